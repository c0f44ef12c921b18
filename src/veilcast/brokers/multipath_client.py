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

1. Property: a lost path does not block the publisher.
   Reason: it is behind after `wait_us`, and then at most `_BACKLOG_MAX` publications wait for it alone.
2. Property: a path whose Byzantine brokers act up from time to time delays others ever more rarely.
   Reason: it must confirm 16 in a row (`_BACKLOG_MAX`, all that it still kept) before it is waited for again, then 32,
   up to 1,024 (`_REQUIRED_MAX`). `_FORGIVEN_AFTER` is 16 times that: to be forgiven is dearer than to stay.
3. Property: a path whose brokers falsely confirm costs the others nothing.
   Assumption: the others are in time, within `wait_us` and, once behind, within `_BACKLOG_MAX` publications.
   Reason: only a path that is overdue gives a publication up, and no path gives up what no other has confirmed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from veilcast.brokers.client import BrokerClient
from veilcast.brokers.keys.scheme import ReplicaId
from veilcast.brokers.routing.renewal import WITHDRAWALS_RECORD, merge_withdrawal_records
from veilcast.core.bounded import BoundedSet
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
    """A `NodeMember` (node.modes), as each of `clients` is.

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
        self._path_of: dict[Address, int] = {}
        """Path through which a broker is connected."""
        every = range(len(clients))
        self._open_paths = {record: set(every) for record in records if record != WITHDRAWALS_RECORD}
        """Paths that have not confirmed a publication."""
        self._confirmed_somewhere: dict[int, None] = {}
        """Publications that some path has confirmed, and not all."""
        self._behind: set[int] = set()
        self._pace = [_PathProgress() for _ in clients]
        self._withdrawn: dict[int, bytes] = {}
        self._in_force: set[int] = set()
        self._delivered: dict[bytes, dict[int, int]] = {}
        """For each notification and subscription, the path that delivered it first."""
        self._acknowledged: BoundedSet[tuple[int, bytes]] = BoundedSet(seen_max)
        self._events: deque[Event] = deque()
        self._handle_events(now)

    # --- the application

    def publish(self, publication: Publication, now: int) -> int:
        drafts = self.clients[0].draft(publication, now)
        for client in self.clients:
            client.check_room()
        record = _one_of([client.keep(drafts) for client in self.clients])
        self._open_paths[record] = set(range(len(self.clients)))
        self._handle_events(now)
        return record

    def withdraw(self, record: int, now: int) -> None:
        self._settle(record)
        for client in self.clients:
            client.withdraw(record, now)
        self._handle_events(now)

    def subscribe(self, interest: Interest, now: int) -> int:
        """A `Waiting` event says from when on the subscription is in force on one of the paths."""
        number = _one_of([client.subscribe(interest, now) for client in self.clients])
        self._handle_events(now)
        return number

    def unsubscribe(self, number: int, now: int) -> None:
        self._in_force.discard(number)
        for note, path_of in list(self._delivered.items()):
            if path_of.pop(number, None) is not None and not path_of:
                del self._delivered[note]
        for client in self.clients:
            client.unsubscribe(number, now)
        self._handle_events(now)

    def acknowledge(self, note: bytes, now: int) -> None:
        for number in self._delivered.pop(note, ()):
            self._acknowledged.add((number, note))
        for client in self.clients:
            client.acknowledge(note, now)
        self._handle_events(now)

    # --- the driver

    def receive(self, data: bytes, source: Address, now: int) -> None:
        if (path := self._path_of.get(source)) is not None:
            self.clients[path].receive(data, source, now)
            self._handle_events(now)

    def handle_timer(self, now: int) -> None:
        for client in self.clients:
            if (when := client.next_timer()) is not None and when <= now:
                self.faults.contain(client.handle_timer, now)
        self._handle_events(now)

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
        self._handle_events(now)

    def peer_up(self, peer: Address, now: int) -> None:
        if (path := self._path_of.get(peer)) is not None:
            self.clients[path].peer_up(peer, now)
            self._handle_events(now)

    def peer_lost(self, peer: Address, now: int) -> None:
        if (path := self._path_of.get(peer)) is not None:
            self.clients[path].peer_lost(peer, now)
            self._handle_events(now)

    # --- status

    def group_size(self) -> int:
        return 1

    def swaps_played(self) -> int:
        return 0

    def delay(self, now: int) -> Delay | None:
        """The delay of the path that expects to confirm first: one working path is enough for the subscribers."""
        delays = [delay for client in self.clients if (delay := client.delay(now)) is not None]
        return min(delays, key=lambda delay: (delay.until_us is None, delay.until_us or 0), default=None)

    def suspects(self) -> list[ReplicaId]:
        """Replicas of any path that are proven Byzantine to this member."""
        return [replica for client in self.clients for replica in client.suspects()]

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
        return {**sizes, "left": len(self._open_paths), "unread": len(self._delivered), "read": len(self._acknowledged)}

    # --- internals

    def _handle_events(self, now: int) -> None:
        """Handle all events of the clients."""
        before = dict(self._withdrawn)
        copies: dict[tuple[int, bytes], None] = {}
        events = deque(self._client_events())
        while events:
            path, event = events.popleft()
            self._on_event(path, event, copies, now)
            events.extend(self._client_events())
        if self._withdrawn != before:
            self._events.append(Record(WITHDRAWALS_RECORD, merge_withdrawal_records(self._withdrawn.values())))
        for path, note in copies:
            if note not in self._delivered:  # Otherwise the application's acknowledgement will go to all paths.
                self.clients[path].acknowledge(note, now)

    def _client_events(self) -> Iterator[tuple[int, Event]]:
        for path, client in enumerate(self.clients):
            while (event := client.next_event()) is not None:
                yield path, event

    def _on_event(self, path: int, event: Event, copies: dict[tuple[int, bytes], None], now: int) -> None:
        match event:
            case Connect(peer):
                if self._path_of.setdefault(peer, path) == path:
                    self._events.append(event)
                else:
                    # An order has moved a broker of another path onto this one.
                    self.clients[path].peer_lost(peer, now)
            case Disconnect(peer):
                if self._path_of.get(peer) == path:
                    del self._path_of[peer]
                    self._events.append(event)
            case Record(record, data) if record == WITHDRAWALS_RECORD:
                self._withdrawn[path] = data
            case Record():
                if not path:  # All paths store the same record.
                    self._events.append(event)
            case Settled(record):
                self._on_confirmed(path, record, now)
            case Overdue(record, _):
                self._on_overdue(path, record, event, now)
            case Waiting(number, until_us):
                self._on_waiting(path, number, event, until_us)
            case Delivered(number, note):
                if (number, note.id) in self._acknowledged:
                    copies[path, note.id] = None
                elif self._delivered.setdefault(note.id, {}).setdefault(number, path) == path:
                    self._events.append(event)
            case _:
                self._events.append(event)

    def _on_waiting(self, path: int, number: int, event: Event, until_us: int | None) -> None:
        if number in self._in_force:
            return
        if until_us is not None:
            self._in_force.add(number)
            self._events.append(event)
        elif not path:
            self._events.append(event)

    def _on_confirmed(self, path: int, record: int, now: int) -> None:
        paths = self._open_paths.get(record, set())
        if path not in paths:
            return  # This path has already given it up.
        if self._pace[path].record_confirmed():
            self._behind.discard(path)
        paths.discard(path)
        self._confirmed_somewhere[record] = None
        if not paths:
            self._settle(record)
        for other in sorted(self._behind):
            waiting = [each for each in self._confirmed_somewhere if other in self._open_paths[each]]
            for oldest in waiting[:-_BACKLOG_MAX]:
                self._give_up(other, oldest, now)

    def _on_overdue(self, path: int, record: int, event: Event, now: int) -> None:
        paths = self._open_paths.get(record, set())
        if path not in paths:
            return
        if record in self._confirmed_somewhere:
            self._pace[path].record_late(newly_behind=path not in self._behind)
            self._behind.add(path)
            self._give_up(path, record, now)
        elif path == min(paths):
            self._events.append(event)

    def _give_up(self, path: int, record: int, now: int) -> None:
        paths = self._open_paths[record]
        paths.discard(path)
        if not paths:
            self._settle(record)
        self.clients[path].withdraw(record, now)

    def _settle(self, record: int) -> None:
        if self._open_paths.pop(record, None) is not None:
            self._confirmed_somewhere.pop(record, None)
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

    def record_late(self, *, newly_behind: bool) -> None:
        """Count a late publication; `newly_behind` if it was not behind before."""
        self.confirmed_in_row = 0
        if newly_behind:
            self.required_in_row = min(max(_BACKLOG_MAX, 2 * self.required_in_row), _REQUIRED_MAX)


def _one_of(numbers: Sequence[int]) -> int:
    assert numbers.count(numbers[0]) == len(numbers), "clients with the same calls have the same numbers"
    return numbers[0]


_BACKLOG_MAX: Final = 16
"""Publications confirmed by others that a path which is behind still keeps; also the confirmations first required of
it."""
_REQUIRED_MAX: Final = 64 * _BACKLOG_MAX
_FORGIVEN_AFTER: Final = 16 * _REQUIRED_MAX
"""Confirmations in a row after which earlier lateness is forgotten. A path that falls behind on purpose gains
nothing by that many."""
