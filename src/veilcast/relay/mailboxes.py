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

from veilcast.core.bounded import BoundedSet
from veilcast.machine import Address
from veilcast.relay.config import MailboxLimits
from veilcast.relay.limits import ProxyQuota
from veilcast.relay.profile import DeliveryTarget, MailProfile, SealedPublication
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
    publication: SealedPublication
    proxy: Address
    """The proxy that submitted the publication."""
    until_us: int
    pending: dict[bytes, None]
    """Names that have not acknowledged it."""


class Mailboxes:
    """Bounded: `held_max` publications with `held_bytes_max` bytes in total, and a quota for each proxy; `waiting_max`
    for each name; the ids of the last `remembered_max` delivered publications. There is one mailbox for each lease.

    `settle` receives the records of publications that are fully delivered; `on_empty` receives the names of mailboxes
    that have become empty.
    """

    def __init__(
        self,
        config: MailboxLimits,
        profile: MailProfile,
        send: Callable[[Address, RelayDelivery], None],
        settle: Callable[[int], None],
        on_empty: Callable[[bytes], None],
    ) -> None:
        self._config, self._profile = config, profile
        self._send, self._settle, self._on_empty = send, settle, on_empty
        self._mailboxes: dict[bytes, Mailbox] = {}
        self._held: dict[int, _Held] = {}
        self._ids: dict[bytes, int] = {}
        self._settled_ids: BoundedSet[bytes] = BoundedSet(config.remembered_max)
        self._bytes = 0
        self._count_quota, self._bytes_quota = ProxyQuota(config.held_each), ProxyQuota(config.held_bytes_each)
        self._connected: dict[Address, None] = {}
        self._backlog: deque[bytes] = deque()
        """Names whose proxy is back and may have missed deliveries."""
        self.abandoned = 0
        """Publications that some subscriber never received, because space or time ran out."""

    def __contains__(self, name: bytes) -> bool:
        return name in self._mailboxes

    def __len__(self) -> int:
        return len(self._mailboxes)

    @property
    def held(self) -> int:
        return len(self._held)

    @property
    def remembered(self) -> int:
        return len(self._settled_ids)

    @property
    def longest_queue(self) -> int:
        return max((len(box.waiting) for box in self._mailboxes.values()), default=0)

    # --- leases

    def open(self, name: bytes, proxy: Address, key: bytes) -> None:
        """Open a mailbox under this name, at this proxy; an existing one keeps its contents."""
        box = self._mailboxes.get(name)
        if box is None:
            self._mailboxes[name] = Mailbox(proxy, key)
        else:
            box.proxy, box.key = proxy, key

    def close(self, name: bytes) -> None:
        """Discard the mailbox and its contents."""
        box = self._mailboxes.pop(name)
        for record in box.waiting.values():
            self._release(record, name)

    def is_empty(self, name: bytes) -> bool:
        return self._mailboxes[name].is_empty

    def key_of(self, name: bytes) -> bytes:
        """The key that seals deliveries to this name."""
        return self._mailboxes[name].key

    def resume(self, name: bytes, proxy: Address) -> None:
        """The subscriber is reachable at this proxy: send again what it may have missed."""
        box = self._mailboxes[name]
        box.proxy = proxy
        box.in_flight.clear()
        self._send_window(name, box)

    def proxy_up(self, proxy: Address) -> None:
        """Schedule what the proxy may have missed; `send_backlog` sends it name by name."""
        self._connected[proxy] = None
        self._backlog = deque(
            name for name in self._backlog if name in self._mailboxes and self._mailboxes[name].proxy != proxy
        )
        for name, box in self._mailboxes.items():
            if box.proxy == proxy and box.waiting:
                box.in_flight.clear()
                self._backlog.append(name)

    def proxy_lost(self, proxy: Address) -> None:
        self._connected.pop(proxy, None)

    def send_backlog(self) -> bool:
        """Send to one more name whose proxy was away; False if no name is left."""
        if not self._backlog:
            return False
        name = self._backlog.popleft()
        if (box := self._mailboxes.get(name)) is not None:
            self._send_window(name, box)
        return True

    # --- publications

    def record_of(self, publication_id: bytes) -> int | None:
        """The record of a held publication, or None."""
        return self._ids.get(publication_id)

    def is_settled(self, publication_id: bytes) -> bool:
        return publication_id in self._settled_ids

    def remember_settled(self, publication_id: bytes) -> None:
        """Remember the id of a publication that has no subscriber left to serve."""
        self._settled_ids.add(publication_id)

    def has_room(self, publication: SealedPublication, proxy: Address, targets: int) -> bool:
        size = len(publication.sealed) + SUBSCRIBER_BYTES * targets
        return (
            len(self._held) < self._config.held_max
            and self._bytes + size <= self._config.held_bytes_max
            and self._count_quota.fits(proxy, 1)
            and self._bytes_quota.fits(proxy, size)
        )

    def store(
        self, record: int, publication: SealedPublication, proxy: Address, names: Sequence[bytes], until_us: int
    ) -> None:
        """Hold a publication for these names, whose mailboxes exist. Nothing is sent before `deliver`."""
        self._held[record] = held = _Held(publication, proxy, until_us, dict.fromkeys(names))
        self._count_quota.charge(proxy, 1)
        for name in names:
            if (box := self._mailboxes.get(name)) is not None:
                box.unwritten[record] = None
        self._ids[publication.id] = record
        self._charge_bytes(held, len(publication.sealed) + SUBSCRIBER_BYTES * len(held.pending))

    def deliver(self, record: int) -> None:
        """The publication is durable: put it into its mailboxes, and send it where the window allows."""
        held = self._held.get(record)
        if held is None:
            return
        ready: dict[Address, list[DeliveryTarget]] = {}
        for name in list(held.pending):
            box = self._mailboxes.get(name)
            if box is None:
                self._release(record, name)
                continue
            ticket = self._profile.ticket(name, held.publication.id)
            box.unwritten.pop(record, None)
            box.waiting[ticket] = record
            if len(box.waiting) > self._config.waiting_max:
                self._abandon(name, box, next(iter(box.waiting)))
            if box.proxy in self._connected and len(box.in_flight) < self._config.window:
                box.in_flight[ticket] = None
                ready.setdefault(box.proxy, []).append(DeliveryTarget(name, ticket, box.key))
        for proxy, targets in ready.items():
            for delivery in self._profile.build_deliveries(held.publication, targets):
                self._send(proxy, delivery)

    def acknowledge(self, name: bytes, ticket: bytes) -> None:
        """Handle a receipt. An unknown ticket belongs to an abandoned publication or to a repeated receipt."""
        box = self._mailboxes.get(name)
        if box is None or ticket not in box.waiting:
            return
        self._remove(name, box, ticket)
        if name in self._mailboxes:
            self._send_window(name, box)

    def next_us(self) -> int | None:
        return next((held.until_us for held in self._held.values()), None)

    def handle(self, now: int) -> None:
        """Abandon publications whose retention time is over. All have the same retention time, so the first are the
        oldest."""
        while self._held:
            record, held = next(iter(self._held.items()))
            if held.until_us > now:
                return
            for name in list(held.pending):
                box = self._mailboxes.get(name)
                ticket = self._profile.ticket(name, held.publication.id)
                if box is not None and ticket in box.waiting:
                    self._abandon(name, box, ticket)
                else:
                    self._release(record, name)

    # --- inside

    def _send_window(self, name: bytes, box: Mailbox) -> None:
        if box.proxy not in self._connected or len(box.in_flight) >= min(len(box.waiting), self._config.window):
            return
        for ticket, record in self._next_in_window(box):
            box.in_flight[ticket] = None
            for delivery in self._profile.build_deliveries(
                self._held[record].publication, [DeliveryTarget(name, ticket, box.key)]
            ):
                self._send(box.proxy, delivery)

    def _next_in_window(self, box: Mailbox) -> Iterator[tuple[bytes, int]]:
        first = list(islice(box.waiting.items(), self._config.window))
        return ((ticket, record) for ticket, record in first if ticket not in box.in_flight)

    def _abandon(self, name: bytes, box: Mailbox, ticket: bytes) -> None:
        self.abandoned += 1
        self._remove(name, box, ticket)

    def _remove(self, name: bytes, box: Mailbox, ticket: bytes) -> None:
        box.in_flight.pop(ticket, None)
        self._release(box.waiting.pop(ticket), name)
        if box.is_empty:
            self._on_empty(name)

    def _release(self, record: int, name: bytes) -> None:
        """Remove this name from the publication; without names left, the publication is settled."""
        held = self._held.get(record)
        if held is None:
            return
        if name in held.pending:
            del held.pending[name]
            self._charge_bytes(held, -SUBSCRIBER_BYTES)
        if not held.pending:
            del self._held[record], self._ids[held.publication.id]
            self._charge_bytes(held, -len(held.publication.sealed))
            self._count_quota.charge(held.proxy, -1)
            self.remember_settled(held.publication.id)
            self._settle(record)

    def _charge_bytes(self, held: _Held, size: int) -> None:
        self._bytes += size
        self._bytes_quota.charge(held.proxy, size)


SUBSCRIBER_BYTES: Final = 256
"""Bytes for one subscriber of a held publication: its name, and the ticket in its mailbox."""
