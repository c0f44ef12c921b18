"""Mailboxes: what waits for the readers of a server, under the pseudonyms of their leases.

A publication is held once, with the names of all whom it is for, until each has said that it has it, or the time for
which it is held is over. Each name has a window: so many deliveries are under way at once, and the next leaves when one
is acknowledged. What was sent to a reader who is away is sent again when the reader says that it is back, and to a
proxy that is back by and by. Tickets are made from name and publication, so a receipt counts in any life of the server.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from veilcast.machine import Address
from veilcast.relay.config import RelayServerConfig
from veilcast.relay.limits import ProxyQuota
from veilcast.relay.profile import DeliveryTarget, SealedPublication, ServerProfile
from veilcast.wire.relay import RelayDelivery


@dataclass(slots=True)
class Mailbox:
    """Of one pseudonym. `key` is what its deliveries are wrapped with."""

    proxy: Address
    key: bytes
    waiting: dict[bytes, int] = field(default_factory=dict)
    """The record of each publication that waits, by its ticket."""
    in_flight: dict[bytes, None] = field(default_factory=dict)
    unwritten: dict[int, None] = field(default_factory=dict)
    """The records of publications for it that are not on the disk yet."""

    @property
    def is_empty(self) -> bool:
        return not self.waiting and not self.unwritten


@dataclass(slots=True)
class _Held:
    taken: SealedPublication
    proxy: Address
    """By whom it came."""
    until_us: int
    left: dict[bytes, None]
    """The names that have not got it."""


class Mailboxes:
    """Bounded: `held_max` publications of `held_bytes_max` bytes together, of which each proxy has a share;
    `waiting_max` for each name, and the ids of the last `remembered_max` that are through. Mailboxes are as many as
    leases.

    `settle` is told of records of publications that are through, `emptied` of mailboxes in which nothing waits any
    more.
    """

    def __init__(
        self,
        config: RelayServerConfig,
        part: ServerProfile,
        send: Callable[[Address, RelayDelivery], None],
        settle: Callable[[int], None],
        emptied: Callable[[bytes], None],
    ) -> None:
        self._config, self._part = config, part
        self._send, self._settle, self._emptied = send, settle, emptied
        self._boxes: dict[bytes, Mailbox] = {}
        self._held: dict[int, _Held] = {}
        self._ids: dict[bytes, int] = {}
        self._through: dict[bytes, None] = {}
        self._bytes = 0
        self._count_by, self._bytes_by = ProxyQuota(config.held_each), ProxyQuota(config.held_bytes_each)
        self._present: dict[Address, None] = {}
        self._behind: deque[bytes] = deque()
        """The names whose proxy is back and may have missed something."""
        self.abandoned = 0
        """Publications that some reader never got: for want of room, or of time."""

    def __contains__(self, name: bytes) -> bool:
        return name in self._boxes

    def __len__(self) -> int:
        return len(self._boxes)

    @property
    def held(self) -> int:
        return len(self._held)

    @property
    def remembered(self) -> int:
        return len(self._through)

    @property
    def longest_queue(self) -> int:
        return max((len(box.waiting) for box in self._boxes.values()), default=0)

    # --- leases

    def open(self, name: bytes, proxy: Address, key: bytes) -> None:
        """Have a mailbox under this name, at this proxy; what waits in it stays."""
        box = self._boxes.get(name)
        if box is None:
            self._boxes[name] = Mailbox(proxy, key)
        else:
            box.proxy, box.key = proxy, key

    def close(self, name: bytes) -> None:
        """Nobody wants what waits under this name."""
        box = self._boxes.pop(name)
        for record in box.waiting.values():
            self._got(record, name)

    def is_empty(self, name: bytes) -> bool:
        return self._boxes[name].is_empty

    def resume(self, name: bytes, proxy: Address) -> None:
        """The reader is there, at this proxy: send again what it may have missed."""
        box = self._boxes[name]
        box.proxy = proxy
        box.in_flight.clear()
        self._fill(name, box)

    def proxy_up(self, proxy: Address) -> None:
        """Send again what it may have missed: not all at once, but as `catch_up` is called."""
        self._present[proxy] = None
        self._behind = deque(name for name in self._behind if name in self._boxes and self._boxes[name].proxy != proxy)
        for name, box in self._boxes.items():
            if box.proxy == proxy and box.waiting:
                box.in_flight.clear()
                self._behind.append(name)

    def proxy_lost(self, proxy: Address) -> None:
        self._present.pop(proxy, None)

    def send_backlog(self) -> bool:
        """Send to one more name whose proxy was away; False if there is none."""
        if not self._behind:
            return False
        name = self._behind.popleft()
        if (box := self._boxes.get(name)) is not None:
            self._fill(name, box)
        return True

    # --- publications

    def record_of(self, publication: bytes) -> int | None:
        """The record of a publication that is held; None if it is not."""
        return self._ids.get(publication)

    def is_settled(self, publication: bytes) -> bool:
        return publication in self._through

    def remember_settled(self, publication: bytes) -> None:
        """Nobody wants it, or everybody has it: remember that it was here."""
        self._through[publication] = None
        if len(self._through) > self._config.remembered_max:
            del self._through[next(iter(self._through))]

    def has_room(self, taken: SealedPublication, proxy: Address, readers: int) -> bool:
        size = len(taken.sealed) + SUBSCRIBER_BYTES * readers
        return (
            len(self._held) < self._config.held_max
            and self._bytes + size <= self._config.held_bytes_max
            and self._count_by.fits(proxy, 1)
            and self._bytes_by.fits(proxy, size)
        )

    def store(
        self, record: int, taken: SealedPublication, proxy: Address, names: Sequence[bytes], until_us: int
    ) -> None:
        """Keep a publication for these names, whose mailboxes there are. Nothing is sent before `deliver`."""
        self._held[record] = held = _Held(taken, proxy, until_us, dict.fromkeys(names))
        self._count_by.charge(proxy, 1)
        for name in names:
            if (box := self._boxes.get(name)) is not None:
                box.unwritten[record] = None
        self._ids[taken.id] = record
        self._weigh(held, len(taken.sealed) + SUBSCRIBER_BYTES * len(held.left))

    def deliver(self, record: int) -> None:
        """The publication is on the disk: put it into its mailboxes, and send it to those who have room."""
        held = self._held.get(record)
        if held is None:
            return
        ready: dict[Address, list[DeliveryTarget]] = {}
        for name in list(held.left):
            box = self._boxes.get(name)
            if box is None:
                self._got(record, name)
                continue
            ticket = self._part.ticket(name, held.taken.id)
            box.unwritten.pop(record, None)
            box.waiting[ticket] = record
            if len(box.waiting) > self._config.waiting_max:
                self._drop(name, box, next(iter(box.waiting)))
            if box.proxy in self._present and len(box.in_flight) < self._config.window:
                box.in_flight[ticket] = None
                ready.setdefault(box.proxy, []).append(DeliveryTarget(name, ticket, box.key))
        for proxy, readers in ready.items():
            for delivery in self._part.build_deliveries(held.taken, readers):
                self._send(proxy, delivery)

    def acknowledge(self, name: bytes, ticket: bytes) -> None:
        """A receipt; one that is not known is of what was given up, or comes a second time."""
        box = self._boxes.get(name)
        if box is None or ticket not in box.waiting:
            return
        self._take_out(name, box, ticket)
        if name in self._boxes:
            self._fill(name, box)

    def next_us(self) -> int | None:
        return next((held.until_us for held in self._held.values()), None)

    def handle(self, now: int) -> None:
        """Give up what was held for long enough. All is held for the same time, so the first are the oldest."""
        while self._held:
            record, held = next(iter(self._held.items()))
            if held.until_us > now:
                return
            for name in list(held.left):
                box = self._boxes.get(name)
                ticket = self._part.ticket(name, held.taken.id)
                if box is not None and ticket in box.waiting:
                    self._drop(name, box, ticket)
                else:
                    self._got(record, name)

    # --- inside

    def _fill(self, name: bytes, box: Mailbox) -> None:
        if box.proxy not in self._present or len(box.in_flight) >= min(len(box.waiting), self._config.window):
            return
        for ticket, record in self._window(box):
            box.in_flight[ticket] = None
            for delivery in self._part.build_deliveries(
                self._held[record].taken, [DeliveryTarget(name, ticket, box.key)]
            ):
                self._send(box.proxy, delivery)

    def _window(self, box: Mailbox) -> Iterator[tuple[bytes, int]]:
        first = list(islice(box.waiting.items(), self._config.window))
        return ((ticket, record) for ticket, record in first if ticket not in box.in_flight)

    def _drop(self, name: bytes, box: Mailbox, ticket: bytes) -> None:
        self.abandoned += 1
        self._take_out(name, box, ticket)

    def _take_out(self, name: bytes, box: Mailbox, ticket: bytes) -> None:
        box.in_flight.pop(ticket, None)
        self._got(box.waiting.pop(ticket), name)
        if box.is_empty:
            self._emptied(name)

    def _got(self, record: int, name: bytes) -> None:
        """One name less to hold this publication for; with the last it is through."""
        held = self._held.get(record)
        if held is None:
            return
        if name in held.left:
            del held.left[name]
            self._weigh(held, -SUBSCRIBER_BYTES)
        if not held.left:
            del self._held[record], self._ids[held.taken.id]
            self._weigh(held, -len(held.taken.sealed))
            self._count_by.charge(held.proxy, -1)
            self.remember_settled(held.taken.id)
            self._settle(record)

    def _weigh(self, held: _Held, size: int) -> None:
        self._bytes += size
        self._bytes_by.charge(held.proxy, size)


SUBSCRIBER_BYTES: Final = 256
"""Bytes that it takes to remember one reader of a publication that is held: its name, and the ticket in its mailbox."""
