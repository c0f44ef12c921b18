"""What server and proxy receive from the machines: bytes repeat in `paper`, and none in `hardened`."""

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
"""Length of a byte sequence that never repeats by chance."""


def pieces(*data: bytes) -> set[bytes]:
    return {each[place : place + LENGTH] for each in data for place in range(len(each) - LENGTH + 1)}


def published(profile: Profile) -> RelayByHand:
    """Both members subscribe to the topic, and Anna publishes the same body twice."""
    relay = RelayByHand(profile)
    for name in (ANNA, BEN):
        relay.subscribe(name, TOPIC)
    relay.run(1_000_000)
    for _ in range(2):
        relay.publish(ANNA, TOPIC, b"the same words")
        relay.run(1_000_000)
    assert relay.notes == {ANNA: [b"the same words"] * 2, BEN: [b"the same words"] * 2}
    return relay


def tags_of(relay: RelayByHand, lease: Lease) -> ElementGroups:
    profile = relay.server._profile
    return profile.compute_tags(lease.subjects, profile.open_lease(lease).bond)


def leases(relay: RelayByHand) -> list[Lease]:
    """The leases that reach the server."""
    return [message for each in relay.between(PROXY, SERVER) if isinstance(message := each.message, Lease)]


@pytest.mark.parametrize("profile", ["paper", "hardened"])
def test_only_in_paper_incoming_bytes_leave_the_proxy_unchanged(profile: Profile) -> None:
    relay = published(profile)
    up = [pieces(each.data) for each in relay.between(ANNA, PROXY) if isinstance(each.message, Submit)]
    down = [pieces(each.data) for each in relay.seen if isinstance(each.message, RelayDelivery)]
    assert (len(up), len(down) > 4) == (2, True)
    assert any(one & other for one in up for other in down) == (profile == "paper")


@pytest.mark.parametrize("profile", ["paper", "hardened"])
def test_only_in_paper_the_proxy_forwards_equal_subjects_for_two_members(profile: Profile) -> None:
    """The forwarded subject is all that the proxy can compute from the received one."""
    subjects = [subject for lease in leases(published(profile)) for group in lease.subjects for subject in group]
    assert len(subjects) > 1
    assert (len(set(subjects)) < len(subjects)) == (profile == "paper")


@pytest.mark.parametrize("profile", ["paper", "hardened"])
def test_only_in_paper_copies_for_two_subscribers_are_alike(profile: Profile) -> None:
    relay = published(profile)
    copies = [
        [pieces(each.message.sealed) for each in relay.between(PROXY, name) if isinstance(each.message, RelayDelivery)]
        for name in (ANNA, BEN)
    ]
    assert [len(each) for each in copies] == [2, 2]
    alike = any(one & other for one in copies[0] for other in copies[1])
    assert alike == (profile == "paper")


def test_hardened_subscriptions_share_nothing_across_epochs() -> None:
    relay = RelayByHand("hardened")
    relay.subscribe(ANNA, TOPIC)
    relay.run(3 * EPOCH_US)
    shown = [
        pieces(lease.name, lease.sealed or b"", *(tag for tags in tags_of(relay, lease) for tag in tags))
        for lease in leases(relay)
    ]
    assert len(shown) > 3
    assert not [one & other for one, other in combinations(shown, 2) if one & other]


def test_in_paper_a_member_has_one_pseudonym_for_ever() -> None:
    relay = RelayByHand("paper")
    relay.subscribe(ANNA, TOPIC)
    relay.run(3 * EPOCH_US)
    relay.subscribe(ANNA, "news/us")
    relay.run(3 * EPOCH_US)
    assert len(leases(relay)) > 1
    assert len({lease.name for lease in leases(relay)}) == 1


def test_hardened_subscriptions_have_separate_pseudonyms() -> None:
    relay = RelayByHand("hardened")
    relay.subscribe(ANNA, TOPIC)
    relay.subscribe(ANNA, "news/us")
    relay.run(EPOCH_US)
    names = [lease.name for lease in leases(relay)]
    assert len(set(names)) == len(names) > 3


@pytest.mark.parametrize("paced", [True, False])
def test_a_paced_busy_member_looks_like_a_quiet_one(paced: bool) -> None:
    wires = []
    for busy in (True, False):
        rate_us = 20_000 if paced else 0
        client = RelayClientConfig(spread_us=1000, rate_us=rate_us)
        relay = RelayByHand("hardened", client, RelayProxyConfig(batch_us=1000, rate_us=rate_us))
        relay.run(1_000_000)
        if busy:
            relay.subscribe(ANNA, TOPIC)
            relay.run(1_000_000)
            relay.publish(ANNA, TOPIC, bytes(3000))
            relay.run(1_000_000)
            assert relay.notes[ANNA] == [bytes(3000)]
        relay.run(3_000_000 - (relay.now - START_US))
        wires.append([(each.now, each.source, each.destination, len(each.data)) for each in relay.on_the_wire_of(ANNA)])
    assert (wires[0] == wires[1]) == paced
