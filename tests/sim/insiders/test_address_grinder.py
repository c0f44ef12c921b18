"""Address grinding: the insider takes a first relay that is ranked by address, and none that is kept."""

from __future__ import annotations

from functools import cache

import msgspec
import pytest

from veilcast.authority.epoch import epoch_of
from veilcast.machine import Address
from veilcast.mesh.config import FirstRelayConfig, HardeningConfig
from veilcast.mesh.neighbour_links import NEIGHBOUR_RECORD
from veilcast.mesh.neighbour_record import read_neighbour_record
from veilcast.sim.insiders.address_grinder import EPOCH_US, FORMING_S, SECOND_US, TURN_S, GrindingRun
from veilcast.sim.mesh.owners import MeshNodeOwner
from veilcast.sim.mesh.population import address_prefix

LAST = 120
"""Heartbeats at the end in which the insider's guess is made."""


def make(seed: int, rule: str = "kept", turn: int = TURN_S, nodes: int = 24) -> GrindingRun:
    rules = HardeningConfig(window_periods=12, lead_periods=32, bit_periods=2, uptime_periods=1)
    relay = msgspec.convert({"rule": rule}, FirstRelayConfig)
    return GrindingRun(seed, msgspec.structs.replace(rules, relay=relay), turn * SECOND_US, nodes=nodes)


@cache
def ground(seed: int, rule: str, turn: int = TURN_S) -> GrindingRun:
    return make(seed, rule, turn).run(FORMING_S + 8 * 60)


def test_grinding_takes_a_first_relay_that_is_ranked_by_address() -> None:
    """The positive control: the attack works where it must."""
    found = ground(SEED_TAKEN, "any")
    assert found.is_publisher_guessed(LAST)
    assert found.first_hand_share(LAST) > 0.9


def test_one_insider_does_not_become_the_first_relay_by_coming_from_many_addresses() -> None:
    found = ground(SEED_TAKEN, "kept")
    assert len(found.insider.addresses) > 24 * 10
    assert not found.is_publisher_guessed(LAST)
    assert found.first_hand_share(LAST) == 0


@pytest.mark.all_only
def test_without_new_addresses_the_same_insider_is_not_the_first_relay_in_either_case() -> None:
    """The null control."""
    assert not ground(SEED_TAKEN, "any", 0).is_publisher_guessed(LAST)


@pytest.mark.all_only
@pytest.mark.parametrize("seed", range(6))
def test_grinding_for_longer_does_not_help(seed: int) -> None:
    found = make(seed).run(FORMING_S + 23 * 60)
    assert not found.is_publisher_guessed(LAST)
    assert found.first_hand_share(LAST) == 0


def test_the_first_relay_is_the_same_after_a_restart_and_when_it_comes_from_another_address() -> None:
    found = make(1).run(FORMING_S)
    world, publisher = found.world, found.publisher
    key = found.first_relay().key
    assert key is not None
    disk = read_neighbour_record((world._hosts[publisher].disk or {})[NEIGHBOUR_RECORD])
    assert disk.relay is not None
    assert disk.relay.key == key
    world.crash(publisher)
    found.run(10)
    world.restart(publisher)
    found.run(60)
    assert found.first_relay().key == key
    old = Address(disk.relay.address)
    assert found.first_relay().address() == old
    # The relay's process ends, and begins again at another port, with the same keyring.
    number = found.population.addresses().index(old)
    roles = {"mesh": "subscriber"} if old in found.population.roles(1)[1] else {}
    keyring = found.population._keyring(roles, number, EPOCH_US)
    world.crash(old)
    found.run(20)
    assert found.first_relay().address() is None
    world.add(Address("moved.1"), MeshNodeOwner(found.mesh, keyring, {}, [publisher], address_prefix).start)
    found.run(60)
    assert found.first_relay().key == key
    assert found.first_relay().address() == "moved.1"


@pytest.mark.all_only
def test_nodes_that_come_and_go_change_no_first_relay() -> None:
    found = make(2).run(FORMING_S)
    key, others = found.first_relay().key, [name for name in found.population.addresses() if name != found.publisher]
    assert key is not None
    for place in range(12):
        away = others[place::6]
        for name in away:
            found.world.crash(name)
        found.run(20)
        for name in away:
            found.world.restart(name)
        found.run(20)
        assert found.first_relay().key == key


def silence(found: GrindingRun, names: list[Address]) -> None:
    """The adversary drops all frames between the publisher and these nodes."""
    for name in names:
        found.world.block(found.publisher, name)
        found.world.block(name, found.publisher)


def let_through(found: GrindingRun, names: list[Address]) -> None:
    for name in names:
        found.world.unblock(found.publisher, name)
        found.world.unblock(name, found.publisher)


def insider_key(found: GrindingRun) -> bytes:
    keyring = found.population.insider_keyring(EPOCH_US)
    return keyring.keys_at(epoch_of(found.world.now, EPOCH_US)).membership.leaf.subject


@pytest.mark.all_only
@pytest.mark.parametrize("seed", [3, 4])
def test_an_insider_that_came_does_not_stand_in_when_the_adversary_ends_all_other_links(seed: int) -> None:
    """The adversary cannot keep the publisher from nodes not linked to it: one of those is the new relay."""
    found = make(seed, turn=0, nodes=40).run(FORMING_S + 60)
    links = found.world.machine(found.publisher).neighbourhood.slots.links
    assert any(name in found.insider.addresses for name in links)
    silence(found, [name for name in links if name not in found.insider.addresses])
    for _ in range(60):
        found.run(1)
        assert found.first_relay().key_in_use != insider_key(found)
    assert found.first_relay().address() is not None


@pytest.mark.all_only
def test_an_insider_that_alone_can_reach_the_publisher_stands_in_until_the_relay_is_heard() -> None:
    """The remaining attack: the adversary drops all frames from other nodes. It becomes no relay, and replaces only
    one."""
    found = make(0, turn=0).run(FORMING_S + 60)
    first = found.first_relay().record
    assert first is not None
    others = [name for name in found.population.addresses() if name != found.publisher]
    silence(found, others)
    found.run(5)
    assert found.first_relay().key_in_use != insider_key(found)
    found.run(25)
    assert found.first_relay().key_in_use == insider_key(found)
    let_through(found, others)
    found.run(60)
    assert found.first_relay().key_in_use == found.first_relay().key == first.key
    price = FirstRelayConfig().refill_epochs * EPOCH_US // SECOND_US
    assert found.first_relay().record.credit >= first.credit - price  # type: ignore[union-attr]


SEED_TAKEN = 3
"""A seed whose publisher the insider takes soon, where first relays are ranked by address."""
