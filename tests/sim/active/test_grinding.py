"""Address grinding: the insider takes a first relay that is ranked by address, and none that is kept."""

from __future__ import annotations

from functools import cache

import msgspec
import pytest

from veilcast.machine import Address
from veilcast.mesh.config import Config, Hardening
from veilcast.mesh.links import OF_NEIGHBOURHOOD
from veilcast.mesh.neighbour_record import read_neighbour_record
from veilcast.mesh.relay_rules import RelayRules
from veilcast.sim.active.grinding import DrawnPopulation, Insider
from veilcast.sim.links import Links
from veilcast.sim.mesh import prefix_of
from veilcast.sim.mesh_owners import Owner
from veilcast.sim.world import World

PERIOD_US = 1_000_000
EPOCH_US = 600 * PERIOD_US
FORMING = 120
TURN = 36
"""Heartbeats between two knocks of one prefix, within the limit of 30."""
LAST = 120
"""Heartbeats at the end in which the insider's guess is made."""


class Ground:
    """24 hardened members of their own keyrings, drawn for each seed, and one insider with one certificate."""

    def __init__(self, seed: int, rule: str = "kept", turn: int = TURN) -> None:
        rules = Hardening(window_periods=12, lead_periods=32, bit_periods=2, uptime_periods=1)
        rules = msgspec.structs.replace(rules, relay=msgspec.convert({"rule": rule}, RelayRules))
        self.mesh = Config(profile="hardened", membership="certified", address_bytes_max=12, hardening=rules)
        self.people = DrawnPopulation(
            nodes=24, subscribers=0.2, notes=0, mesh=self.mesh, cover_share=0.78, checks=(), draw=seed + 1
        )
        people = msgspec.structs.replace(self.people, notes=400, first_us=60 * PERIOD_US, every_us=5 * PERIOD_US)
        self.world = World(seed=seed, links=Links(latency_us=(10_000, 100_000)), epoch_us=EPOCH_US)
        people.settle(self.world, 0)
        self.publisher, _ = people.roles(seed)
        keyring = people.insider_keyring(EPOCH_US)
        self.insider = Insider(self.world, self.mesh, keyring, people.addresses(), turn * PERIOD_US)
        self.world.after(FORMING * PERIOD_US, self.insider.start)

    def run(self, periods: int) -> Ground:
        self.world.run(periods * PERIOD_US)
        return self

    def is_named(self) -> bool:
        return self.insider.guess(self.world.now - LAST * PERIOD_US) == self.publisher

    def first_hand(self) -> int:
        """Publications of the last time that the publisher itself handed to the insider."""
        since_us = self.world.now - LAST * PERIOD_US
        return sum(source == self.publisher and at_us >= since_us for source, at_us in self.insider.first.values())

    def relay_key(self) -> bytes | None:
        key: bytes | None = self.world.machine(self.publisher)._conduct.first_relay.key
        return key


@cache
def ground(seed: int, rule: str, turn: int = TURN) -> Ground:
    return Ground(seed, rule, turn).run(FORMING + 8 * 60)


def test_grinding_takes_a_first_relay_that_is_ranked_by_address() -> None:
    """The positive control: the attack works where it must."""
    found = ground(SEED_TAKEN, "any")
    assert found.is_named()
    assert found.first_hand() >= LAST // 5 - 1


def test_one_insider_does_not_become_the_first_relay_by_coming_from_many_addresses() -> None:
    found = ground(SEED_TAKEN, "kept")
    assert len(found.insider.addresses) > 24 * 10
    assert not found.is_named()
    assert found.first_hand() == 0


def test_without_new_addresses_the_same_insider_is_not_the_first_relay_in_either_case() -> None:
    """The null control."""
    assert not ground(SEED_TAKEN, "any", 0).is_named()


@pytest.mark.all_only
@pytest.mark.parametrize("seed", range(6))
def test_grinding_for_longer_does_not_help(seed: int) -> None:
    found = Ground(seed).run(FORMING + 23 * 60)
    assert not found.is_named()
    assert found.first_hand() == 0


def test_the_first_relay_is_the_same_after_a_restart_and_when_it_comes_from_another_address() -> None:
    found = Ground(1).run(FORMING)
    world, publisher = found.world, found.publisher
    key = found.relay_key()
    assert key is not None
    disk = read_neighbour_record((world._hosts[publisher].disk or {})[OF_NEIGHBOURHOOD])
    assert disk.relay is not None
    assert disk.relay.key == key
    world.crash(publisher)
    found.run(10)
    world.restart(publisher)
    found.run(60)
    assert found.relay_key() == key
    old = Address(disk.relay.address)
    assert world.machine(publisher)._conduct.first_relay.address() == old
    # The relay's process ends, and begins again at another port, with the same keyring.
    number = found.people.addresses().index(old)
    roles = {"mesh": "subscriber"} if old in found.people.roles(1)[1] else {}
    keyring = found.people._keyring(roles, number, EPOCH_US)
    world.crash(old)
    found.run(20)
    assert world.machine(publisher)._conduct.first_relay.address() is None
    world.add(Address("moved.1"), Owner(found.mesh, keyring, {}, [publisher], prefix_of).start)
    found.run(60)
    assert found.relay_key() == key
    assert world.machine(publisher)._conduct.first_relay.address() == "moved.1"


def test_nodes_that_come_and_go_change_no_first_relay() -> None:
    found = Ground(2).run(FORMING)
    key, others = found.relay_key(), [name for name in found.people.addresses() if name != found.publisher]
    assert key is not None
    for place in range(12):
        away = others[place::6]
        for name in away:
            found.world.crash(name)
        found.run(20)
        for name in away:
            found.world.restart(name)
        found.run(20)
        assert found.relay_key() == key


SEED_TAKEN = 3
"""A seed whose publisher the insider takes soon, where first relays are ranked by address."""
