"""The durable state of a member's node: joins the machine of any mode with the store, for the node's clients.

Nothing here blocks. The driver hands over the machine's events (`take`). Changes gather here, and a caller that may
wait for the disk writes them in one go:

    changes = records.changes()
    refused = store.write(changes)               # in a thread, if the links must not wait
    records.written(changes, refused, now)

Only then does the machine learn that a record is stored or a note acknowledged, and only then does a client learn that
its publication is stored (`is_stored`), or receive a note (`unread`). So a node that is killed at any point has
promised nothing that it cannot keep. `step` does all of it at once, where waiting does no harm.

After a failed write this object must not be used: the machine must not go on as if the write had succeeded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from veilcast.authority.keyring import TopicKeys
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import FullError, LocalError, TamperedError
from veilcast.faults import faults_of
from veilcast.machine import Delivered, Departing, Event, Machine, Overdue, Publication, Record, Settled, Waiting
from veilcast.nearest import did_you_mean
from veilcast.node.modes import DurableMember
from veilcast.node.record_store import ForgetRecord, KeepRecord
from veilcast.node.store import (
    AcknowledgeNote,
    AddNote,
    AddSubscription,
    KeepSubscription,
    NodeStore,
    RemoveSubscription,
    SaveValue,
    StoreChange,
    UnreadNote,
)
from veilcast.topics import TOPIC, All, Conjunction, Equal, Label, Range


class MemberRecordCounts(msgspec.Struct, frozen=True):
    """Counts for the node's owner. No topic and no text."""

    unsettled: int
    """Publications that are on the disk and not settled."""
    overdue: tuple[int, ...]
    """Unsettled publications that have waited longer than they should, by record number."""
    unread: dict[int, int]
    """Unacknowledged notes of each subscription."""
    waiting: dict[int, int | None]
    """Subscriptions that are not ready yet: the time in Unix microseconds from which they are; None if unknown."""
    lapsed: tuple[int, ...]
    """Subscriptions of earlier runs that the grants or the mode do not allow now. They stay, with their notes."""
    full: int
    """Notes that were refused because their subscription was full, counted each time they came."""
    settled: int
    settled_us: int
    """Publications of this run that are settled, and the sum of their times in microseconds."""


class MemberRecords:
    """Bounded: `subscriptions_max`; the machine bounds the unsettled records, and the store bounds the unread notes."""

    def __init__(
        self,
        member: DurableMember,
        store: NodeStore,
        now: int,
        *,
        subscriptions_max: int,
        complete: Callable[[Conjunction, int], Conjunction] = lambda interest, now: interest,
    ) -> None:
        """`complete` adds to a client's interest what the client may leave out."""
        self._member, self._store, self._subscriptions_max = member, store, subscriptions_max
        self._complete, self._faults = complete, faults_of(member)
        self._interests = {number: decode_interest(data) for number, data in store.subscriptions().items()}
        self._temporary = dict.fromkeys(store.temporary_subscriptions())
        self._last = store.last_subscription()
        self._numbers: dict[int, int] = {}
        """The number of each subscription by the number that the machine uses in this run."""
        self._lapsed: dict[int, None] = {}
        self._unsettled: dict[int, bool] = dict.fromkeys(store.unsettled_publications(), True)
        """True for each record of a publication that is on the disk."""
        self._since_us: dict[int, int] = {}
        """Time of publication of each record of this run, in microseconds."""
        self._settled = self._settled_us = 0
        self._overdue: dict[int, None] = {}
        self._waiting: dict[int, int | None] = {}
        self._changes: list[StoreChange] = []
        self._full = 0
        for number, interest in self._interests.items():
            try:
                self._numbers[member.subscribe(interest, now)] = number
            except LocalError:
                self._lapsed[number] = None

    # --- the clients

    def publish(self, publication: Publication, now: int) -> int:
        """Accept a publication; returns the record number for `is_stored`. Raises `LocalError` if it cannot be
        accepted."""
        record = self._member.publish(publication, now)
        self._unsettled[record], self._since_us[record] = False, now
        return record

    def is_stored(self, record: int) -> bool:
        """Return True if the publication is on the disk, or was and is settled."""
        return self._unsettled.get(record, True)

    def withdraw(self, record: int, now: int) -> None:
        """Stop trying to send the publication of this record."""
        self._member.withdraw(record, now)
        self._since_us.pop(record, None)

    def subscribe(self, interest: Conjunction, now: int, *, keep: bool = True) -> int:
        """Start a subscription, or return to the one with the same interest and its unread notes.

        Without `keep` the subscription is temporary, unless a client asked to keep it before.
        """
        interest = self._complete(interest, now)
        for number, known in self._interests.items():
            if known.constraints == interest.constraints:
                if number in self._lapsed:
                    self._numbers[self._member.subscribe(interest, now)] = number
                    del self._lapsed[number]
                if keep and number in self._temporary:
                    del self._temporary[number]
                    self._changes.append(KeepSubscription(number))
                return number
        if len(self._interests) >= self._subscriptions_max:
            raise FullError(f"there are {self._subscriptions_max} subscriptions already; end one that nobody reads")
        inner = self._member.subscribe(interest, now)
        self._last += 1
        self._numbers[inner], self._interests[self._last] = self._last, interest
        if not keep:
            self._temporary[self._last] = None
        self._changes.append(AddSubscription(self._last, _ENCODER.encode(interest.constraints), keep))
        return self._last

    def unsubscribe(self, number: int, now: int) -> None:
        """End a subscription; its unread notes are lost."""
        if number not in self._interests:
            raise LocalError(f"there is no subscription {number}")
        for inner in [inner for inner, known in self._numbers.items() if known == number]:
            self._member.unsubscribe(inner, now)
            del self._numbers[inner]
        del self._interests[number]
        self._lapsed.pop(number, None)
        self._waiting.pop(number, None)
        self._temporary.pop(number, None)
        self._changes.append(RemoveSubscription(number))

    def unread(self, number: int, after: int = 0, limit: int = 64) -> list[UnreadNote]:
        """Return the next unacknowledged notes of this subscription after this place; all of them are on the disk."""
        return self._store.unread(number, after, limit)

    def acknowledge(self, number: int, note: bytes) -> None:
        """The client has this note and does not receive it again once this change is written."""
        self._changes.append(AcknowledgeNote(number, note))

    def save_value(self, name: str, data: bytes) -> None:
        """Store a value for another part of the node under a name; `NodeStore.saved_value` returns it."""
        self._changes.append(SaveValue(name, data))

    def temporary(self) -> list[int]:
        """The subscriptions that no client has asked to keep."""
        return list(self._temporary)

    def leave(self, now: int) -> bool:
        """Have the member take its leave. Returns False if members of this mode have nobody to tell."""
        if not isinstance(self._member, Departing):
            return False
        self._member.leave(now)
        return True

    def interests(self) -> dict[int, Conjunction]:
        return dict(self._interests)

    def status(self) -> MemberRecordCounts:
        return MemberRecordCounts(
            unsettled=sum(self._unsettled.values()),
            overdue=tuple(self._overdue),
            unread=self._store.count_unread(),
            waiting=dict(self._waiting),
            lapsed=tuple(self._lapsed),
            full=self._full,
            settled=self._settled,
            settled_us=self._settled_us,
        )

    # --- the driver

    def take(self, event: Event, now: int) -> bool:
        """Handle an event of the machine. Returns False if the event does not concern the records."""
        match event:
            case Record(record, data):
                self._changes.append(KeepRecord(record, data, record in self._unsettled))
            case Settled(record):
                self._overdue.pop(record, None)
                if (since_us := self._since_us.pop(record, None)) is not None:
                    self._settled += 1
                    self._settled_us += now - since_us
                self._changes.append(ForgetRecord(record))
            case Delivered(inner, note):
                # Also for an ended subscription: the note may belong to another one, too, that has no room for it yet.
                self._changes.append(AddNote(self._numbers.get(inner, _ENDED), note))
            case Overdue(record, _):
                self._overdue[record] = None
            case Waiting(inner, until_us):
                if inner in self._numbers:
                    self._waiting[self._numbers[inner]] = until_us
            case _:
                return False
        return True

    def changes(self) -> list[StoreChange]:
        """Return the changes since the last call; the caller writes them or stops using this object."""
        changes, self._changes = self._changes, []
        return changes

    def written(self, changes: Sequence[StoreChange], refused: Sequence[bytes], now: int) -> None:
        """These changes are on the disk, except the notes in `refused`, which had no room."""
        self._full += len(refused)
        for change in changes:
            match change:
                case KeepRecord(record, _, published):
                    if published:
                        self._unsettled[record] = True
                    self._faults.contain(self._member.stored, record, now)
                case ForgetRecord(record):
                    self._unsettled.pop(record, None)
                case AddNote(number, note):
                    self._waiting.pop(number, None)
                    # A note refused by one subscription comes again for all, and the others know it by then.
                    if note.id not in refused:
                        self._faults.contain(self._member.acknowledge, note.id, now)
                case _:
                    pass

    def step(self, machine: Machine, now: int) -> list[Event]:
        """Handle events and write until nothing is left to do; returns the events that are the driver's."""
        others: list[Event] = []
        while True:
            while (event := machine.next_event()) is not None:
                if not self.take(event, now):
                    others.append(event)
            changes = self.changes()
            if not changes:
                return others
            self.written(changes, self._store.write(changes), now)


def decode_interest(data: bytes) -> Conjunction:
    constraints = _DECODER.decode(data)
    try:
        return All(*constraints)
    except LocalError as error:
        raise TamperedError(_DAMAGED) from error


def complete_topic(interest: Conjunction, topics: Mapping[str, TopicKeys]) -> Conjunction:
    """Return the interest with its topic: if it names none, the one topic of the keyring that declares its attributes.

    People type `sub --range temp 20..25`, and the mesh routes by topics. If several topics fit, the node does not
    guess: a guess could give the subscriber less than it asked for, or join a mesh in which it did not mean to be seen.
    Then this raises `LocalError`.
    """
    asked = {constraint.attribute for constraint in interest.constraints}
    if TOPIC in asked:
        return interest
    names = sorted(
        name for name, keys in topics.items() if asked <= {domain.attribute for domain in keys.record.schema.domains}
    )
    if len(names) == 1:
        return All(Label(names[0]), interest)
    what = " and ".join(sorted(asked))
    if names:
        raise LocalError(f"{what} may be of {', '.join(names)}; name the topic, too")
    declared = {domain.attribute for keys in topics.values() for domain in keys.record.schema.domains}
    questions = [question for name in sorted(asked - declared) if (question := did_you_mean(name, declared))]
    raise LocalError(f"no topic of this keyring declares {what}{[*questions, '; name the topic, too'][0]}")


_ENDED: Final = 0
"""No subscription has this number, and the store keeps no notes for a missing subscription."""
_ENCODER: Final = msgspec.msgpack.Encoder()
_DAMAGED: Final = "a subscription in the node's state is damaged"
_DECODER: Final = MsgpackDecoder(tuple[Equal | Range, ...], TamperedError, _DAMAGED)
