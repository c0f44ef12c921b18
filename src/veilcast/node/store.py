"""The store of a member's node: what it keeps over restarts, in one database (`database`).

The store has the machine's records, and for the clients their subscriptions and the unacknowledged notes of each.
`write` may run in a thread of its own; everything else reads the last commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import msgspec

from veilcast.crypto.secret import Secret
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import StorageError, TamperedError
from veilcast.machine import Entropy, Note, Publication
from veilcast.node.database import Database, Execute
from veilcast.node.record_store import ForgetRecord, KeepRecord, RecordTable
from veilcast.node.sealed_slots import ItemName


class AddSubscription(msgspec.Struct, frozen=True):
    subscription: int
    interest: bytes
    keep: bool = True
    """False if the subscription ends with its clients."""


class KeepSubscription(msgspec.Struct, frozen=True):
    """A temporary subscription outlives its clients from now on."""

    subscription: int


class RemoveSubscription(msgspec.Struct, frozen=True):
    """Removes a subscription and its unread notes."""

    subscription: int


class AddNote(msgspec.Struct, frozen=True):
    """A note arrived for a subscription. A note that the subscription has, or has acknowledged, changes nothing."""

    subscription: int
    note: Note


class AcknowledgeNote(msgspec.Struct, frozen=True):
    """The client has the note of this id and must not receive it again."""

    subscription: int
    note: bytes


class SaveValue(msgspec.Struct, frozen=True):
    """Another part of the node stores a value under a name, for its next run."""

    name: str
    data: bytes


StoreChange: TypeAlias = (
    KeepRecord
    | ForgetRecord
    | AddSubscription
    | KeepSubscription
    | RemoveSubscription
    | AddNote
    | AcknowledgeNote
    | SaveValue
)


class UnreadNote(NamedTuple):
    """An unacknowledged note, and its place in the order of arrival."""

    place: int
    note: Note


class NodeStore:
    """Bounded: `unread_max` notes for each subscription, and a table for `remembered_max` acknowledged ones.

    The machine bounds its records, and `MemberRecords` bounds the subscriptions.
    """

    def __init__(
        self, directory: Path, secret: Secret, entropy: Entropy, *, unread_max: int, remembered_max: int
    ) -> None:
        self._unread_max = unread_max
        self._database = Database(directory, FILE, secret, entropy, remembered=remembered_max)
        self._slots, self._acknowledged = self._database.slots, self._database.acknowledged
        self._records = RecordTable(self._slots)
        self._unread: dict[int, dict[bytes, ItemName]] = {}
        """For each subscription, the slots of its unread notes by id, in the order of arrival."""
        self._place = 0
        """The last place in the order of arrival that was assigned."""
        self._last = 0
        self._index()

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> NodeStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- writing

    def write(self, changes: Sequence[StoreChange]) -> list[bytes]:
        """Apply all changes or none, and return when they are on the disk: the ids of the notes that had no room."""
        refused: list[bytes] = []
        try:
            with self._database.transaction() as run:
                for change in changes:
                    if not isinstance(change, AddNote):
                        self._apply(run, change)
                    elif not self._arrive(run, change.subscription, change.note):
                        refused.append(change.note.id)
        except BaseException:
            self._slots.load()
            self._index()
            raise
        return refused

    # --- reading

    def unsettled_records(self) -> dict[int, bytes]:
        """Return the records that earlier runs of the machine stored and did not settle."""
        return self._records.unsettled()

    def unsettled_publications(self) -> list[int]:
        """Return the numbers of the unsettled records that are publications."""
        return self._records.unsettled_publications()

    def subscriptions(self) -> dict[int, bytes]:
        found = ((name.number, self._slots.get(name)) for name in self._slots.names("subscription"))
        return dict(sorted((number, data) for number, data in found if data is not None))

    def temporary_subscriptions(self) -> list[int]:
        """Return the subscriptions that end with their clients."""
        return sorted(name.number for name in self._slots.names(_TEMPORARY))

    def last_subscription(self) -> int:
        """Return the highest number that a subscription ever had, including those that have ended."""
        return int.from_bytes(self._slots.get(_LAST) or b"", "big")

    def unread(self, subscription: int, after: int = 0, limit: int = 64) -> list[UnreadNote]:
        """Return the next unacknowledged notes of a subscription, in the order of arrival."""
        waiting = list(self._unread.get(subscription, {}).values())
        found: list[UnreadNote] = []
        for name in waiting:
            if name.place <= after:
                continue
            data = self._slots.get(name) if len(found) < limit else None
            if data is None:
                break  # It is being written; nothing behind it is on the disk yet.
            found.append(UnreadNote(name.place, Note(name.text, _DECODER.decode(data))))
        return found

    def count_unread(self) -> dict[int, int]:
        """Return the number of unread notes of each subscription that has any."""
        return {number: len(waiting) for number, waiting in sorted(self._unread.items()) if waiting}

    def saved_value(self, name: str) -> bytes | None:
        return self._slots.get(ItemName("state", text=name.encode()))

    # --- inside

    def _index(self) -> None:
        """Build the index of unread notes from the last commit."""
        self._unread, self._last = {}, self.last_subscription()
        names = sorted(self._slots.names("note"), key=lambda name: name.place)
        for name in names:
            self._unread.setdefault(name.number, {})[name.text] = name
        self._place = max([self._place, *(name.place for name in names)])

    def _apply(self, run: Execute, change: StoreChange) -> None:
        match change:
            case KeepRecord() | ForgetRecord():
                self._records.apply(run, change)
            case AddSubscription(number, interest, keep):
                if ItemName("subscription", number) in self._slots:
                    raise StorageError(f"there is a subscription {number} already")
                self._slots.put(run, ItemName("subscription", number), interest)
                if not keep:
                    self._slots.put(run, ItemName(_TEMPORARY, number), b"")
                if number > self._last:
                    self._last = number
                    self._slots.put(run, _LAST, number.to_bytes(8, "big"))
            case KeepSubscription(number):
                self._slots.drop(run, ItemName(_TEMPORARY, number))
            case RemoveSubscription(number):
                self._slots.drop(run, ItemName("subscription", number))
                self._slots.drop(run, ItemName(_TEMPORARY, number))
                for name in self._unread.pop(number, {}).values():
                    self._slots.drop(run, name)
            case AcknowledgeNote(number, note):
                waiting = self._unread.get(number, {})
                if note in waiting:
                    self._slots.drop(run, waiting.pop(note))
                    self._acknowledged.add(run, number, note)
            case SaveValue(title, data):
                self._slots.put(run, ItemName("state", text=title.encode()), data)

    def _arrive(self, run: Execute, subscription: int, note: Note) -> bool:
        """Return False if the subscription has no room for the note."""
        waiting = self._unread.get(subscription, {})
        if note.id in waiting or self._acknowledged.has(run, subscription, note.id):
            return True
        if len(waiting) >= self._unread_max:
            return False
        if ItemName("subscription", subscription) in self._slots:
            self._place += 1
            self._unread.setdefault(subscription, {})[note.id] = name = ItemName(
                "note", subscription, self._place, note.id
            )
            self._slots.put(run, name, msgspec.msgpack.encode(note.publication))
        return True


_DECODER: Final = MsgpackDecoder(Publication, TamperedError, "a notification in the node's state is damaged")
FILE: Final = "node.sqlite"
_TEMPORARY: Final = "temporary"
"""The kind of an empty item that marks a subscription as temporary. Older files have none."""
_LAST: Final = ItemName("last")
