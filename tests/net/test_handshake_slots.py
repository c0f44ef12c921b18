"""Newcomers against floods of strangers, in virtual time: which handshakes end in time, and which are evicted.

The adversary opens connections at a rate, from as many prefixes as it has, and holds them. A bare connection sends
nothing; a speaking one sends a first message, which the host answers, and nothing more. A newcomer's first message
comes some time after its connection, and its last one a round trip after the answer.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.machine import Address
from veilcast.net.handshake_slots import HandshakeSlots
from veilcast.net.stream_limits import StreamLimits

LIMIT = StreamLimits().handshakes
TIMEOUT_US = int(StreamLimits().handshake_s * 1e6)
WARM_UP_US = 1_200_000
"""Long enough for the slowest flood to take all slots."""
NEWCOMERS = {20: Address("198.50.7.7:4000"), 200: Address("198.51.7.7:4000"), 400: Address("198.52.7.7:4000")}
"""Sources by their round trip in milliseconds."""


@dataclass(eq=False)
class Connection:
    source: Address
    answered: bool = False
    done: bool = False
    evicted: bool = False


class Slots(Protocol):
    def refuses(self, source: Address) -> bool: ...
    def victim(self) -> Connection | None: ...
    def add(self, connection: Connection, source: Address) -> None: ...
    def remove(self, connection: Connection) -> None: ...
    def __len__(self) -> int: ...


class OldestFirst:
    """The earlier policy of hosts, planted so that the simulation must find it insufficient."""

    def __init__(self) -> None:
        self._held: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._held)

    def refuses(self, source: Address) -> bool:
        return False

    def victim(self) -> Connection | None:
        return next(iter(self._held)) if len(self._held) >= LIMIT else None

    def add(self, connection: Connection, source: Address) -> None:
        self._held[connection] = None

    def remove(self, connection: Connection) -> None:
        self._held.pop(connection, None)


@dataclass
class Host:
    """A host's handshake admission in virtual time."""

    slots: Slots
    now: int = 0
    accepted: int = 0
    _due: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    _order: count[int] = field(default_factory=count)

    def at(self, when: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (when, next(self._order), action))

    def run(self, until: int) -> None:
        while self._due and self._due[0][0] <= until:
            self.now, _, action = heapq.heappop(self._due)
            action()
            assert len(self.slots) <= LIMIT

    def accept(self, connection: Connection) -> None:
        if self.slots.refuses(connection.source):
            connection.evicted = True
            return
        self.accepted += 1
        victim = self.slots.victim()
        if victim is not None:
            self.end(victim)
        self.slots.add(connection, connection.source)
        self.at(self.now + TIMEOUT_US, lambda: self.end(connection))

    def finish(self, connection: Connection) -> None:
        if not connection.evicted:
            connection.done = True
            self.slots.remove(connection)

    def end(self, connection: Connection) -> None:
        connection.evicted = not connection.done
        self.slots.remove(connection)


@dataclass(frozen=True)
class Flood:
    rate: int
    sources: tuple[Address, ...]
    speaks: bool = False
    holds: int = 0
    """Speaking connections in addition to those at the rate; each is opened again when it ends."""


def kept_out(slots: Slots, flood: Flood, hello_ms: int = 2, newcomers: dict[int, Address] = NEWCOMERS) -> list[int]:
    """The round trips, in milliseconds, of the newcomers that do not get through."""
    host, others = Host(slots), count()

    def strange(*, speaks: bool) -> Connection:
        connection = Connection(flood.sources[next(others) % len(flood.sources)])
        host.accept(connection)
        connection.answered = speaks
        return connection

    def arrive(index: int) -> None:
        strange(speaks=flood.speaks)
        host.at((index + 1) * 1_000_000 // flood.rate, lambda: arrive(index + 1))

    def refill(held: list[Connection]) -> None:
        held[:] = [each for each in held if not each.evicted]
        held += [strange(speaks=True) for _ in range(flood.holds - len(held))]
        host.at(host.now + 10_000, lambda: refill(held))

    if flood.rate:
        host.at(0, lambda: arrive(0))
    host.at(0, lambda: refill([]))
    came = {delay_ms: Connection(source) for delay_ms, source in newcomers.items()}
    for delay_ms, connection in came.items():
        host.at(WARM_UP_US, partial(host.accept, connection))
        host.at(WARM_UP_US + hello_ms * 1000, partial(setattr, connection, "answered", True))
        host.at(WARM_UP_US + (hello_ms + delay_ms) * 1000, partial(host.finish, connection))
    host.run(2 * WARM_UP_US)
    return [delay_ms for delay_ms, connection in came.items() if not connection.done]


def shared() -> HandshakeSlots[Connection]:
    return HandshakeSlots(LIMIT, lambda connection: connection.answered)


ONE_HOST = (Address("203.0.113.9:1"),)
ONE_PREFIX = tuple(Address(f"203.0.{index // 250}.{index % 250}:1") for index in range(2000))
HUNDRED = tuple(Address(f"{index + 1}.9.1.1:1") for index in range(100))
SITES = (
    (tuple(Address(f"203.0.113.{index}:1") for index in range(256)), "203.0.{}.7:4000"),
    (tuple(Address(f"[2001:db8:9:{index:x}::1]:1") for index in range(3000)), "[2001:db8:{}::7]:4000"),
    (tuple(Address(f"[2001:db8:9:{index:x}::1]:1") for index in range(256)), "[2001:db8:9:{}00::7]:4000"),
)
"""Floods of one customer, and the form of their neighbours' addresses."""
THOUSAND = tuple(Address(f"{index % 100 + 1}.{index // 100}.1.1:1") for index in range(1000))


def test_the_simulation_finds_the_policy_that_lets_the_oldest_go_first_wanting() -> None:
    table = {rate: kept_out(OldestFirst(), Flood(rate, ONE_HOST)) for rate in (0, 800, 1500)}
    assert table == {0: [], 800: [400], 1500: [200, 400]}


@pytest.mark.parametrize("speaks", [False, True])
@pytest.mark.parametrize("sources", [ONE_HOST, ONE_PREFIX, HUNDRED], ids=["one host", "one prefix", "100 prefixes"])
@pytest.mark.parametrize("rate", [0, pytest.param(800, marks=pytest.mark.all_only), 1500, 6000])
def test_a_flood_of_few_prefixes_keeps_no_newcomer_out(rate: int, sources: tuple[Address, ...], speaks: bool) -> None:
    assert kept_out(shared(), Flood(rate, sources, speaks)) == []


@pytest.mark.parametrize("speaks", [False, True])
@pytest.mark.parametrize("flood", SITES, ids=["a /24", "a /48", "a /56"])
def test_a_flood_of_one_customer_keeps_out_no_newcomer_of_the_same_provider(
    flood: tuple[tuple[Address, ...], str], speaks: bool
) -> None:
    """The flood has every address of a network that one customer has, and the newcomers are in the same prefix."""
    sources, where = flood
    newcomers = {delay_ms: Address(where.format(number)) for number, delay_ms in enumerate(NEWCOMERS, 1)}
    for hello_ms in (2, 200):
        assert kept_out(shared(), Flood(1500, sources, speaks), hello_ms, newcomers) == []


def test_a_newcomer_of_the_flood_s_own_host_gets_through_a_silent_flood() -> None:
    assert kept_out(shared(), Flood(1500, tuple(NEWCOMERS.values()))) == []


def test_silent_connections_from_any_number_of_prefixes_keep_no_peer_out() -> None:
    assert kept_out(shared(), Flood(1500, THOUSAND)) == []


@pytest.mark.parametrize("holds", [100, *(pytest.param(held, marks=pytest.mark.all_only) for held in (200, 255)), 256])
def test_held_answers_and_bare_connections_together_keep_no_newcomer_out(holds: int) -> None:
    """Held answers alone would leave one slot for all that are silent: hence the half for either kind."""
    for sources in (ONE_HOST, ONE_PREFIX, HUNDRED):
        assert kept_out(shared(), Flood(1500, sources, holds=holds), hello_ms=20) == []


def test_speaking_connections_of_very_many_prefixes_do_keep_newcomers_out() -> None:
    """The limit of the policy, as the threat model states it."""
    assert kept_out(shared(), Flood(1500, THOUSAND, speaks=True)) == [200, 400]
    assert kept_out(shared(), Flood(250, THOUSAND, speaks=True)) == []


def test_a_host_that_sends_first_messages_gets_no_more_answers_than_there_are_slots() -> None:
    """Until its handshakes time out: the work that one host can cause is bounded, whatever its rate."""
    host = Host(shared())
    for _ in range(20 * LIMIT):
        connection = Connection(ONE_HOST[0])
        host.accept(connection)
        connection.answered = True
    assert host.accepted == LIMIT
    other = Connection(NEWCOMERS[400])
    host.accept(other)
    assert not other.evicted
    assert (len(host.slots), host.accepted) == (LIMIT, LIMIT + 1)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.booleans()), max_size=120), st.integers(11, 20))
def test_a_prefix_with_one_connection_keeps_it(steps: list[tuple[int, int, bool]], limit: int) -> None:
    """Five prefixes, and more than ten slots."""
    slots: HandshakeSlots[Connection] = HandshakeSlots(limit, lambda connection: connection.answered)
    held: list[Connection] = []
    for prefix, host, speaks in steps:
        source = Address(f"{prefix + 1}.0.{host}.1:5")
        victim = slots.victim()
        assert (victim is None) == (len(held) < limit)
        if slots.refuses(source):
            assert victim is not None
            assert victim.answered
            assert victim.source == source
            continue
        if victim is not None:
            own = victim.source.partition(".")[0]
            assert sum(each.source.partition(".")[0] == own for each in held) > 1
            held.remove(victim)
            slots.remove(victim)
            slots.remove(victim)
        fresh = Connection(source, answered=speaks)
        slots.add(fresh, fresh.source)
        held.append(fresh)
        assert len(slots) == len(held) <= limit
    for each in held:
        slots.remove(each)
    assert len(slots) == 0
