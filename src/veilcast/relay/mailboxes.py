"""Mailboxes: publications that wait for subscribers at the server, under the pseudonyms of their leases.

The server holds a publication once, with the names of all leases it is for. It is released when each lease has
acknowledged it, or when its retention time is over. Each name has a window of deliveries in flight; the next one leaves
when one is acknowledged. Deliveries to an absent subscriber are sent again when the subscriber reports that it is back.
Deliveries through an absent proxy are sent again, little by little, when the proxy is back. Tickets are derived from
name and publication, so a receipt is valid in any run of the server.
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
    """The mailbox of one pseudonym. `key` seals its deliveries."""

    proxy: Address
    key: bytes
    waiting: dict[bytes, int] = field(default_factory=dict)
    """Record of each waiting publication, by ticket."""
    in_flight: dict[bytes, None] = field(default_factory=dict)
    unwritten: dict[int, None] = field(default_factory=dict)
    """Records of publications for this mailbox that are not durable yet."""

    @property
    def is_empty(self) -> bool:
        return not self.waiting and not self.unwritten


@dataclass(slots=True)
class _Held:
    taken: SealedPublication
    proxy: Address
    """The proxy that submitted the publication."""
    until_us: int
    left: dict[bytes, None]
    """Names that have not acknowledged it."""


class Mailboxes:
    """Bounded: `held_max` publications with `held_bytes_max` bytes in total, and a quota for each proxy; `waiting_max`
    for each name; the ids of the last `remembered_max` delivered publications. There is one mailbox for each lease.

    `settle` receives the records of publications that are fully delivered; `emptied` receives the names of mailboxes
    that have become empty.
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
        """Names whose proxy is back and may have missed deliveries."""
        self.abandoned = 0
        """Publications that some subscriber never received, because space or time ran out."""

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
        """Open a mailbox under this name, at this proxy; an existing one keeps its contents."""
        box = self._boxes.get(name)
        if box is None:
            self._boxes[name] = Mailbox(proxy, key)
        else:
            box.proxy, box.key = proxy, key

    def close(self, name: bytes) -> None:
        """Discard the mailbox and its contents."""
        box = self._boxes.pop(name)
        for record in box.waiting.values():
            self._got(record, name)

    def is_empty(self, name: bytes) -> bool:
        return self._boxes[name].is_empty

    def resume(self, name: bytes, proxy: Address) -> None:
        """The subscriber is reachable at this proxy: send again what it may have missed."""
        box = self._boxes[name]
        box.proxy = proxy
        box.in_flight.clear()
        self._fill(name, box)

    def proxy_up(self, proxy: Address) -> None:
        """Schedule what the proxy may have missed; `send_backlog` sends it name by name."""
        self._present[proxy] = None
        self._behind = deque(name for name in self._behind if name in self._boxes and self._boxes[name].proxy != proxy)
        for name, box in self._boxes.items():
            if box.proxy == proxy and box.waiting:
                box.in_flight.clear()
                self._behind.append(name)

    def proxy_lost(self, proxy: Address) -> None:
        self._present.pop(proxy, None)

    def send_backlog(self) -> bool:
        """Send to one more name whose proxy was away; False if no name is left."""
        if not self._behind:
            return False
        name = self._behind.popleft()
        if (box := self._boxes.get(name)) is not None:
            self._fill(name, box)
        return True

    # --- publications

    def record_of(self, publication: bytes) -> int | None:
        """The record of a held publication, or None."""
        return self._ids.get(publication)

    def is_settled(self, publication: bytes) -> bool:
        return publication in self._through

    def remember_settled(self, publication: bytes) -> None:
        """Remember the id of a publication that has no subscriber left to serve."""
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
        """Hold a publication for these names, whose mailboxes exist. Nothing is sent before `deliver`."""
        self._held[record] = held = _Held(taken, proxy, until_us, dict.fromkeys(names))
        self._count_by.charge(proxy, 1)
        for name in names:
            if (box := self._boxes.get(name)) is not None:
                box.unwritten[record] = None
        self._ids[taken.id] = record
        self._weigh(held, len(taken.sealed) + SUBSCRIBER_BYTES * len(held.left))

    def deliver(self, record: int) -> None:
        """The publication is durable: put it into its mailboxes, and send it where the window allows."""
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
        """Handle a receipt. An unknown ticket belongs to an abandoned publication or to a repeated receipt."""
        box = self._boxes.get(name)
        if box is None or ticket not in box.waiting:
            return
        self._take_out(name, box, ticket)
        if name in self._boxes:
            self._fill(name, box)

    def next_us(self) -> int | None:
        return next((held.until_us for held in self._held.values()), None)

    def handle(self, now: int) -> None:
        """Abandon publications whose retention time is over. All have the same retention time, so the first are the
        oldest."""
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
        """Remove this name from the publication; without names left, the publication is settled."""
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
"""Bytes for one subscriber of a held publication: its name, and the ticket in its mailbox."""
