"""What server and proxy are handed by the machines themselves: what repeats in it in `paper`, and not in `hardened`."""

from __future__ import annotations

from itertools import combinations
from typing import Literal, TypeAlias

import pytest

from support.relay_by_hand import ANNA, BEN, EPOCH_US, PROXY, SERVER, TOPIC, RelayByHand
from veilcast.core.match_elements import ElementGroups
from veilcast.relay.config import RelayClientConfig, RelayProxyConfig
from veilcast.sim.engine import START_US
from veilcast.wire.relay import Lease, RelayDelivery, Submit

Profile: TypeAlias = Literal["paper", "hardened"]
LENGTH = 12
"""Bytes in a row: chance alone repeats so many nowhere."""


def pieces(*data: bytes) -> set[bytes]:
    return {each[place : place + LENGTH] for each in data for place in range(len(each) - LENGTH + 1)}


def published(profile: Profile) -> RelayByHand:
    """Both read the topic, and Anna publishes on it twice the same."""
    table = RelayByHand(profile)
    for name in (ANNA, BEN):
        table.subscribe(name, TOPIC)
    table.run(1_000_000)
    for _ in range(2):
        table.publish(ANNA, TOPIC, b"the same words")
        table.run(1_000_000)
    assert table.notes == {ANNA: [b"the same words"] * 2, BEN: [b"the same words"] * 2}
    return table


def tags_of(table: RelayByHand, lease: Lease) -> ElementGroups:
    part = table.server._part
    return part.compute_tags(lease.subjects, part.open_lease(lease).bond)


def leases(table: RelayByHand) -> list[Lease]:
    """As they come to the server."""
    return [message for each in table.between(PROXY, SERVER) if isinstance(message := each.message, Lease)]


@pytest.mark.parametrize("profile", ["paper", "hardened"])
def test_in_paper_alone_bytes_that_came_to_the_proxy_go_down_from_it(profile: Profile) -> None:
    table = published(profile)
    up = [pieces(each.data) for each in table.between(ANNA, PROXY) if isinstance(each.message, Submit)]
    down = [pieces(each.data) for each in table.seen if isinstance(each.message, RelayDelivery)]
    assert (len(up), len(down) > 4) == (2, True)
    assert any(one & other for one in up for other in down) == (profile == "paper")


@pytest.mark.parametrize("profile", ["paper", "hardened"])
def test_in_paper_alone_the_proxy_hands_on_the_same_subject_for_two_members(profile: Profile) -> None:
    """What it hands on is all that it can compute of what came."""
    subjects = [subject for lease in leases(published(profile)) for group in lease.subjects for subject in group]
    assert len(subjects) > 1
    assert (len(set(subjects)) < len(subjects)) == (profile == "paper")


@pytest.mark.parametrize("profile", ["paper", "hardened"])
def test_in_paper_alone_copies_of_one_note_to_two_readers_are_alike(profile: Profile) -> None:
    table = published(profile)
    copies = [
        [pieces(each.message.sealed) for each in table.between(PROXY, name) if isinstance(each.message, RelayDelivery)]
        for name in (ANNA, BEN)
    ]
    assert [len(each) for each in copies] == [2, 2]
    alike = any(one & other for one in copies[0] for other in copies[1])
    assert alike == (profile == "paper")


def test_hardened_nothing_of_a_subscription_stays_from_epoch_to_epoch() -> None:
    table = RelayByHand("hardened")
    table.subscribe(ANNA, TOPIC)
    table.run(3 * EPOCH_US)
    shown = [
        pieces(lease.name, lease.sealed or b"", *(tag for tags in tags_of(table, lease) for tag in tags))
        for lease in leases(table)
    ]
    assert len(shown) > 3
    assert not [one & other for one, other in combinations(shown, 2) if one & other]


def test_in_paper_a_member_has_one_pseudonym_for_ever() -> None:
    table = RelayByHand("paper")
    table.subscribe(ANNA, TOPIC)
    table.run(3 * EPOCH_US)
    table.subscribe(ANNA, "news/us")
    table.run(3 * EPOCH_US)
    assert len(leases(table)) > 1
    assert len({lease.name for lease in leases(table)}) == 1


def test_hardened_each_subscription_has_pseudonyms_of_its_own() -> None:
    table = RelayByHand("hardened")
    table.subscribe(ANNA, TOPIC)
    table.subscribe(ANNA, "news/us")
    table.run(1_000_000)
    names = [lease.name for lease in leases(table)]
    assert len(set(names)) == len(names) > 3


@pytest.mark.parametrize("paced", [True, False])
def test_with_a_rate_the_wire_of_a_busy_member_is_that_of_a_quiet_one(paced: bool) -> None:
    wires = []
    for busy in (True, False):
        rate_us = 20_000 if paced else 0
        client = RelayClientConfig(spread_us=1000, rate_us=rate_us)
        table = RelayByHand("hardened", client, RelayProxyConfig(batch_us=1000, rate_us=rate_us))
        table.run(1_000_000)
        if busy:
            table.subscribe(ANNA, TOPIC)
            table.run(1_000_000)
            table.publish(ANNA, TOPIC, bytes(3000))
            table.run(1_000_000)
            assert table.notes[ANNA] == [bytes(3000)]
        table.run(3_000_000 - (table.now - START_US))
        wires.append([(each.now, each.source, each.destination, len(each.data)) for each in table.on_the_wire_of(ANNA)])
    assert (wires[0] == wires[1]) == paced
