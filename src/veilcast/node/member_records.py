"""The agent: joins the machine of any mode with the store, for the clients of a node.

Nothing here waits. The driver hands over the machine's events (`take`); what is to be written gathers, and is written
in one go by whoever may wait for the disk:

    changes = agent.changes()
    refused = store.write(changes)               # in a thread, if the links must not wait
    agent.written(changes, refused, now)

Only then is the machine told that a record is stored, or a note acknowledged, and only then does a client hear that its
publication is safe (`is_safe`), or sees a note (`unread`). So a node that is killed anywhere in between has told
nobody what it cannot keep. `step` does all of it at once, where waiting does no harm.

A write that fails is the end of this life: the machine must not go on as if it had succeeded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from veilcast.decoding import MsgpackDecoder
from veilcast.errors import FullError, LocalError, TamperedError
from veilcast.faults import faults_of
from veilcast.machine import Delivered, Event, Machine, Overdue, Publication, Record, Settled, Waiting
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
from veilcast.topics import All, Conjunction, Equal, Range


class MemberRecordCounts(msgspec.Struct, frozen=True):
    """What an owner may want to know of what its node keeps. No topic and no text."""

    unsettled: int
    """Publications that are safe and not through yet."""
    overdue: tuple[int, ...]
    """Those among them that have waited for longer than they should, by their records."""
    unread: dict[int, int]
    """Notes that wait for each subscription's client."""
    waiting: dict[int, int | None]
    """Subscriptions that get something only from some time on, if that is known."""
    lapsed: tuple[int, ...]
    """Subscriptions of earlier lives that our grants or our mode do not allow now. They are kept, with what waits."""
    full: int
    """Notes that found their subscription full, each time that they came."""
    settled: int
    settled_us: int
    """Publications of this life that are through, and the time that they took together."""


class MemberRecords:
    """Bounded: `subscriptions_max`; the machine bounds what is not settled, and the store what is not read."""

    def __init__(
        self,
        member: DurableMember,
        store: NodeStore,
        now: int,
        *,
        subscriptions_max: int,
        complete: Callable[[Conjunction, int], Conjunction] = lambda interest, now: interest,
    ) -> None:
        """`complete` adds to what a client asks for what it may leave out."""
        self._member, self._store, self._subscriptions_max = member, store, subscriptions_max
        self._complete, self._faults = complete, faults_of(member)
        self._interests = {number: decode_interest(data) for number, data in store.subscriptions().items()}
        self._temporary = dict.fromkeys(store.temporary_subscriptions())
        self._last = store.last_subscription()
        self._numbers: dict[int, int] = {}
        """The number of a subscription by that which the machine has for it in this life."""
        self._lapsed: dict[int, None] = {}
        self._unsettled: dict[int, bool] = dict.fromkeys(store.unsettled_publications(), True)
        """Whether it is safe, for each record of a publication."""
        self._since_us: dict[int, int] = {}
        """When each of them was published, if in this life."""
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
        """Take a publication: the number by which to ask whether it is safe. `LocalError` if it cannot be taken."""
        record = self._member.publish(publication, now)
        self._unsettled[record], self._since_us[record] = False, now
        return record

    def is_stored(self, record: int) -> bool:
        """Whether it will be sent whatever happens, or was."""
        return self._unsettled.get(record, True)

    def withdraw(self, record: int, now: int) -> None:
        """Try no more for what was published under this number."""
        self._member.withdraw(record, now)
        self._since_us.pop(record, None)

    def subscribe(self, interest: Conjunction, now: int, *, keep: bool = True) -> int:
        """Start a subscription, or come back to the one with the same interest and all that waits for it.

        Without `keep` it is temporary, unless a client asked to keep it before.
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
        """End a subscription; what waits for it is lost."""
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
        """The next notes that wait for this subscription's acknowledgement, from this place on; all are on the disk."""
        return self._store.unread(number, after, limit)

    def acknowledge(self, number: int, note: bytes) -> None:
        """The client has this note, and gets it no more from when this is written."""
        self._changes.append(AcknowledgeNote(number, note))

    def save_value(self, name: str, data: bytes) -> None:
        """Keep something for another part of the node, under a name of its own; `NodeStore.saved_value` gives it
        back.
        """
        self._changes.append(SaveValue(name, data))

    def temporary(self) -> list[int]:
        """The subscriptions that no client has asked to keep."""
        return list(self._temporary)

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
        """An event of the machine's; False if it is not about what a node keeps, and the driver's own to act on."""
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
                # Of a subscription that has ended, too: the note may be another's as well, who has no room for it yet.
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
        """All that is to be written since this was last asked; the caller writes it, or ends this life."""
        changes, self._changes = self._changes, []
        return changes

    def written(self, changes: Sequence[StoreChange], refused: Sequence[bytes], now: int) -> None:
        """These changes are on the disk, but for the notes that there was no room for."""
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
                    # One that was refused for a single subscription comes again for all, who know it then.
                    if note.id not in refused:
                        self._faults.contain(self._member.acknowledge, note.id, now)
                case _:
                    pass

    def step(self, machine: Machine, now: int) -> list[Event]:
        """Take the machine's events and write, until there is nothing more to do; the events that are the driver's."""
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


_ENDED: Final = 0
"""No subscription has this number, and the store keeps nothing for one that there is not."""
_ENCODER: Final = msgspec.msgpack.Encoder()
_DAMAGED: Final = "a subscription in the node's state is damaged"
_DECODER: Final = MsgpackDecoder(tuple[Equal | Range, ...], TamperedError, _DAMAGED)
