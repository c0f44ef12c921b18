"""A member of several overlays that have no broker in common: P4's p disjoint paths.

A machine around machines: one `BrokerClient` per path. A publication goes over all paths, each with its own keys and
seals, so shares dealt on one path add nothing to what Byzantine brokers know on another. A subscriber takes each
notification from the path that delivers it first. As long as one path works, every publication arrives, and once,
whatever happens to the others: a node of another path may have too many Byzantine replicas, or be gone.

All clients receive the same calls. So a record or subscription has the same number in each of them, after every
restart.

A publication is settled when every path has confirmed it. A slow path cannot be told from a lost one, nor a path that
delivered to all from one whose Byzantine brokers claim so; but time limits the damage. A path that is overdue with a
publication that another path has confirmed is `behind`. A path that is behind keeps only the last few of those
publications. It catches up by confirming a number of them in a row, twice as many each time that it falls behind again.

Claim: a lost path delays nobody. A path whose Byzantine brokers act up from time to time delays others ever more
rarely. A path whose brokers falsely confirm costs the others nothing while the others are in time.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from veilcast.brokers.client import BrokerClient
from veilcast.brokers.keys.scheme import ReplicaId
from veilcast.brokers.routing.renewal import WITHDRAWALS_RECORD, merge_withdrawal_records
from veilcast.core.timers import earliest
from veilcast.errors import LocalError
from veilcast.faults import Faults, faults_of
from veilcast.machine import (
    Address,
    Connect,
    Delay,
    Delivered,
    Disconnect,
    Event,
    Frame,
    Interest,
    Overdue,
    Publication,
    Record,
    Settled,
    Waiting,
)


class MultipathClient:
    """A `LiveMember` (node.modes), as each of `clients` is.

    `records` are the numbers of the records that earlier runs stored and did not settle; all clients were given them.
    Bounded by the bounds of the clients, and by `seen_max` notifications that are remembered to recognize copies.
    """

    def __init__(self, clients: Sequence[BrokerClient], records: Iterable[int], seen_max: int, now: int) -> None:
        if len(clients) < 2:
            raise LocalError("paths are at least two")
        self.clients = tuple(clients)
        self.faults = Faults()
        for client in clients:
            faults_of(client).on_fault = self.faults.count_exception
        self._seen_max = seen_max
        self._whose: dict[Address, int] = {}
        """Path through which a broker is connected."""
        every = range(len(clients))
        self._left = {record: set(every) for record in records if record != WITHDRAWALS_RECORD}
        """Paths that have not confirmed a publication."""
        self._carried: dict[int, None] = {}
        """Publications that some path has confirmed, and not all."""
        self._behind: set[int] = set()
        self._pace = [_PathProgress() for _ in clients]
        self._withdrawn: dict[int, bytes] = {}
        self._stands: set[int] = set()
        self._unread: dict[bytes, dict[int, int]] = {}
        """For each notification and subscription, the path that delivered it first."""
        self._read: dict[tuple[int, bytes], None] = {}
        self._events: deque[Event] = deque()
        self._gather(now)

    # --- the owner

    def publish(self, publication: Publication, now: int) -> int:
        letters = self.clients[0].draft(publication, now)
        for client in self.clients:
            client.check_room()
        record = _one_of([client.keep(letters) for client in self.clients])
        self._left[record] = set(range(len(self.clients)))
        self._gather(now)
        return record

    def withdraw(self, record: int, now: int) -> None:
        self._settle(record)
        for client in self.clients:
            client.withdraw(record, now)
        self._gather(now)

    def subscribe(self, interest: Interest, now: int) -> int:
        """A `Waiting` event says from when on the subscription is in force on one of the paths."""
        number = _one_of([client.subscribe(interest, now) for client in self.clients])
        self._gather(now)
        return number

    def unsubscribe(self, number: int, now: int) -> None:
        self._stands.discard(number)
        for note in [note for note, bearers in self._unread.items() if bearers.pop(number, None) is not None]:
            if not self._unread[note]:
                del self._unread[note]
        for client in self.clients:
            client.unsubscribe(number, now)
        self._gather(now)

    def acknowledge(self, note: bytes, now: int) -> None:
        for number in self._unread.pop(note, ()):
            self._read[number, note] = None
        while len(self._read) > self._seen_max:
            del self._read[next(iter(self._read))]
        for client in self.clients:
            client.acknowledge(note, now)
        self._gather(now)

    # --- the driver

    def receive(self, data: bytes, source: Address, now: int) -> None:
        if (path := self._whose.get(source)) is not None:
            self.clients[path].receive(data, source, now)
            self._gather(now)

    def handle_timer(self, now: int) -> None:
        for client in self.clients:
            if (when := client.next_timer()) is not None and when <= now:
                self.faults.contain(client.handle_timer, now)
        self._gather(now)

    def next_timer(self) -> int | None:
        return earliest(*(client.next_timer() for client in self.clients))

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        frames: list[Frame] = []
        for client in self.clients:
            frames += client.frames_to_send(now, limit - len(frames))
        return frames

    def next_event(self) -> Event | None:
        return self._events.popleft() if self._events else None

    def stored(self, record: int, now: int) -> None:
        for client in self.clients:
            self.faults.contain(client.stored, record, now)
        self._gather(now)

    def peer_up(self, peer: Address, now: int) -> None:
        if (path := self._whose.get(peer)) is not None:
            self.clients[path].peer_up(peer, now)
            self._gather(now)

    def peer_lost(self, peer: Address, now: int) -> None:
        if (path := self._whose.get(peer)) is not None:
            self.clients[path].peer_lost(peer, now)
            self._gather(now)

    # --- what an owner may want to know

    def group_size(self) -> int:
        return 1

    def swaps_played(self) -> int:
        return 0

    def delay(self, now: int) -> Delay | None:
        """The delay of the path that expects to confirm first: one working path is enough for the subscribers."""
        told = [delay for client in self.clients if (delay := client.delay(now)) is not None]
        return min(told, key=lambda delay: (delay.until_us is None, delay.until_us or 0), default=None)

    def suspects(self) -> list[ReplicaId]:
        """Replicas of any path that are proven Byzantine to this member."""
        return [place for client in self.clients for place in client.suspects()]

    @property
    def refused(self) -> Counter[str]:
        return sum((client.refused for client in self.clients), Counter())

    # --- checkers

    @property
    def version(self) -> int:
        return sum(client.version for client in self.clients)

    def sizes(self) -> dict[str, int]:
        """Number of entries of each table; of the clients' tables, the largest."""
        sizes = {name: max(client.sizes()[name] for client in self.clients) for name in self.clients[0].sizes()}
        return {**sizes, "left": len(self._left), "unread": len(self._unread), "read": len(self._read)}

    # --- inside

    def _gather(self, now: int) -> None:
        """Handle the clients' events until there are none."""
        kept = dict(self._withdrawn)
        copies: dict[tuple[int, bytes], None] = {}
        told = deque(self._told())
        while told:
            path, event = told.popleft()
            self._take(path, event, copies, now)
            told.extend(self._told())
        if self._withdrawn != kept:
            self._events.append(Record(WITHDRAWALS_RECORD, merge_withdrawal_records(self._withdrawn.values())))
        for path, note in copies:
            if note not in self._unread:  # Else the owner's word is still to come, and is for all paths.
                self.clients[path].acknowledge(note, now)

    def _told(self) -> Iterator[tuple[int, Event]]:
        for path, client in enumerate(self.clients):
            while (event := client.next_event()) is not None:
                yield path, event

    def _take(self, path: int, event: Event, copies: dict[tuple[int, bytes], None], now: int) -> None:
        match event:
            case Connect(peer):
                if self._whose.setdefault(peer, path) == path:
                    self._events.append(event)
                else:
                    self.clients[path].peer_lost(peer, now)  # An order has put a broker of another path onto this one.
            case Disconnect(peer):
                if self._whose.get(peer) == path:
                    del self._whose[peer]
                    self._events.append(event)
            case Record(record, data) if record == WITHDRAWALS_RECORD:
                self._withdrawn[path] = data
            case Record():
                if not path:  # All paths want the same kept.
                    self._events.append(event)
            case Settled(record):
                self._got_through(path, record, now)
            case Overdue(record, _):
                self._is_late(path, record, event, now)
            case Waiting(number, until_us):
                self._stand(path, number, event, until_us)
            case Delivered(number, note):
                if (number, note.id) in self._read:
                    copies[path, note.id] = None
                elif self._unread.setdefault(note.id, {}).setdefault(number, path) == path:
                    self._events.append(event)
            case _:
                self._events.append(event)

    def _stand(self, path: int, number: int, event: Event, until_us: int | None) -> None:
        if number in self._stands:
            return
        if until_us is not None:
            self._stands.add(number)
            self._events.append(event)
        elif not path:
            self._events.append(event)

    def _got_through(self, path: int, record: int, now: int) -> None:
        left = self._left.get(record, set())
        if path not in left:
            return  # It was given up here.
        if self._pace[path].record_confirmed():
            self._behind.discard(path)
        left.discard(path)
        self._carried[record] = None
        if not left:
            self._settle(record)
        for other in sorted(self._behind):
            waiting = [each for each in self._carried if other in self._left[each]]
            for oldest in waiting[:-_BACKLOG_MAX]:
                self._give_up(other, oldest, now)

    def _is_late(self, path: int, record: int, event: Event, now: int) -> None:
        left = self._left.get(record, set())
        if path not in left:
            return
        if record in self._carried:
            self._pace[path].record_late(again=path not in self._behind)
            self._behind.add(path)
            self._give_up(path, record, now)
        elif path == min(left):
            self._events.append(event)

    def _give_up(self, path: int, record: int, now: int) -> None:
        left = self._left[record]
        left.discard(path)
        if not left:
            self._settle(record)
        self.clients[path].withdraw(record, now)

    def _settle(self, record: int) -> None:
        if self._left.pop(record, None) is not None:
            self._carried.pop(record, None)
            self._events.append(Settled(record))


@dataclass(slots=True)
class _PathProgress:
    """How well a path keeps up with the others."""

    confirmed_in_row: int = 0
    """Publications confirmed since the last late one."""
    required_in_row: int = 0
    """Confirmations in a row that end the state `behind`."""

    def record_confirmed(self) -> bool:
        """Count a confirmation; True if the path is not behind any more."""
        self.confirmed_in_row += 1
        if self.confirmed_in_row >= _FORGIVEN_AFTER:
            self.required_in_row = 0
        return self.confirmed_in_row >= self.required_in_row

    def record_late(self, *, again: bool) -> None:
        """Count a late publication; `again` if the path was not behind before."""
        self.confirmed_in_row = 0
        if again:
            self.required_in_row = min(max(_BACKLOG_MAX, 2 * self.required_in_row), _REQUIRED_MAX)


def _one_of(numbers: Sequence[int]) -> int:
    assert numbers.count(numbers[0]) == len(numbers), "who is called alike counts alike"
    return numbers[0]


_BACKLOG_MAX: Final = 16
"""Publications confirmed by others that a path which is behind still keeps; also the confirmations first required of
it."""
_REQUIRED_MAX: Final = 64 * _BACKLOG_MAX
_FORGIVEN_AFTER: Final = 16 * _REQUIRED_MAX
"""Confirmations in a row after which earlier lateness is forgotten. A path that falls behind on purpose gains nothing
by so many."""
