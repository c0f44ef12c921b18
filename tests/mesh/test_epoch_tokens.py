"""A topic whose token changes at every epoch edge: which token is in use when, and nothing is lost at the edge."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from random import Random

import msgspec
import pytest

from support.mesh_network import SMALL_CONFIG, MeshNetwork, publication
from veilcast.authority import issuer
from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.authority.topic_keys import TopicRole
from veilcast.errors import ConfigError, ExpiredError, LocalError, UnknownTopicError
from veilcast.machine import Address
from veilcast.mesh.config import ALL_DEFENCES, Defences, MeshConfig
from veilcast.mesh.epoch_tokens import EpochTokens
from veilcast.sim.checkers import AtMostOnce, InOrder
from veilcast.sim.engine import START_US
from veilcast.sim.mesh.population import TOPIC

EPOCH_US = 60_000_000
FIRST = epoch_of(START_US, EPOCH_US)
EPOCHS = 6
ON = msgspec.structs.replace(SMALL_CONFIG, defences=Defences(epoch_tokens=True, lead_us=15_000_000, grace_us=5_000_000))


@cache
def rings() -> dict[str, Keyring]:
    """The topic in the `hardened` profile, with epochs of a minute."""
    entropy = Random(1).randbytes
    state = issuer.declare_label(issuer.create(EPOCH_US, entropy), TOPIC, "hardened", entropy)
    wanted: dict[str, list[tuple[str, TopicRole]]] = {
        "publisher": [(TOPIC, "publisher")],
        "subscriber": [(TOPIC, "subscriber")],
        "forwarder": [],
    }
    found = {}
    for role, grants in wanted.items():
        state, found[role] = issuer.grant_ready(state, role, grants, FIRST, EPOCHS, entropy)
    return found


def token(epoch: int) -> bytes:
    return rings()["subscriber"].keys_at(epoch).topic(TOPIC).token


def edge(number: int) -> int:
    return (FIRST + number) * EPOCH_US


# --- which token when ---------------------------------------------------------------------------------------


def test_the_next_token_counts_from_its_lead_on_and_the_last_one_until_its_grace_is_over() -> None:
    epochs, e = EpochTokens(ON, rings()["publisher"]), FIRST + 1

    def read(now: int) -> list[bytes]:
        return [keys.token for keys in epochs.subscription_keys(TOPIC, now)]

    def told(now: int) -> list[bytes]:
        return [keys.token for keys in epochs.advertising_keys(TOPIC, now)]

    middle, lead, grace = edge(1) + 30_000_000, edge(2) - 15_000_000, edge(2) + 5_000_000
    assert read(middle) == told(middle) == [token(e)]
    assert read(lead - 1) == told(lead - 1) == [token(e)]
    assert read(lead) == told(lead) == [token(e), token(e + 1)]
    assert epochs.current_keys(TOPIC, edge(2) - 1).token == token(e)
    assert epochs.current_keys(TOPIC, edge(2)).token == token(e + 1)
    assert (read(edge(2)), told(edge(2))) == ([token(e), token(e + 1)], [token(e + 1)])
    assert (read(grace - 1), told(grace - 1)) == ([token(e), token(e + 1)], [token(e + 1)])
    assert read(grace) == told(grace) == [token(e + 1)]
    assert (epochs.oldest_epoch(grace - 1), epochs.oldest_epoch(grace)) == (e, e + 1)


def test_a_change_of_tokens_is_reported_once() -> None:
    epochs = EpochTokens(ON, rings()["publisher"])
    turns = [now for now in range(edge(1), edge(3), 1_000_000) if epochs.has_changed(now)]
    at = [edge(1), edge(1) + 5_000_000, edge(2) - 15_000_000, edge(2) + 5_000_000, edge(3) - 15_000_000]
    assert turns == at


def test_a_certificate_counts_in_its_own_epoch_and_near_its_edges_whatever_the_clocks() -> None:
    epochs = EpochTokens(ON, rings()["publisher"])
    certificate = rings()["publisher"].keys_at(FIRST + 1).topic(TOPIC).certificate
    assert certificate is not None
    counts = [
        second
        for second in range(180)
        if epochs.verification_epoch(certificate, edge(0) + second * 1_000_000) == FIRST + 1
    ]
    assert counts == list(range(60 - 15 - 5, 120 + 5))


def test_epochs_beyond_the_grant_are_not_read_and_the_owner_is_told() -> None:
    epochs = EpochTokens(ON, rings()["subscriber"])
    last = edge(EPOCHS) - 1
    assert [keys.token for keys in epochs.subscription_keys(TOPIC, last)] == [token(FIRST + EPOCHS - 1)]
    assert epochs.subscription_keys(TOPIC, edge(EPOCHS) + 10_000_000) == []
    assert epochs.subscription_keys("nowhere", last) == []
    with pytest.raises(ExpiredError):
        epochs.current_keys(TOPIC, edge(EPOCHS))
    with pytest.raises(UnknownTopicError):
        epochs.current_keys("nowhere", last)


def test_keys_of_four_epochs_are_cached() -> None:
    epochs = EpochTokens(ON, rings()["subscriber"])
    for number in range(EPOCHS):
        epochs.subscription_keys(TOPIC, edge(number))
    assert len(epochs._cache._cached) == 4


def test_lead_and_grace_fit_into_an_epoch() -> None:
    with pytest.raises(ConfigError, match="epoch"):
        EpochTokens(msgspec.structs.replace(SMALL_CONFIG, defences=Defences(epoch_tokens=True)), rings()["subscriber"])
    with pytest.raises(ConfigError, match="lead_us"):
        Defences(lead_us=-1)


# --- over the edges -----------------------------------------------------------------------------------------


def over_three_edges(config: MeshConfig, skews: dict[str, int] | None = None) -> MeshNetwork:
    """A publisher sends a notification about every second for four epochs."""
    checkers = (AtMostOnce(), InOrder(lambda note: int(note.publication.body)))
    network = MeshNetwork("p-f f-g g-s f-h h-s2 g-h", config=config, rings=rings(), checkers=checkers)
    for name, offset_us in (skews or {}).items():
        network.world.set_clock(Address(name), offset_us, 0)
    network.world.run(edge(1) + 10_000_000 - network.world.now)
    for number in numbers(network):
        network.publish(b"%d" % number, wait=1.3)
    network.run(5)
    return network


def numbers(network: MeshNetwork) -> Iterator[int]:
    number = 0
    while network.world.now < edge(4) + 20_000_000:
        yield number
        number += 1


def test_over_three_edges_no_notification_is_lost_or_out_of_order() -> None:
    network = over_three_edges(ON)
    assert len(network.delivered("s")) > 140
    assert (
        network.delivered("s")
        == network.delivered("s2")
        == [b"%d" % number for number in range(len(network.delivered("s")))]
    )
    for name in network.neighbours:
        assert network.node(name).overlay.routes.tokens() == [token(FIRST + 4)]
        assert network.node(name).overlay.branches.tokens() == [token(FIRST + 4)]


def published(network: MeshNetwork) -> int:
    return network.node("p")._records.draft(TOPIC, None, publication(b"")).content.number - 1


def test_over_three_edges_nothing_is_lost_with_all_defences_and_differing_clocks() -> None:
    defences = msgspec.structs.replace(ALL_DEFENCES, lead_us=15_000_000, grace_us=5_000_000)
    network = over_three_edges(
        msgspec.structs.replace(SMALL_CONFIG, defences=defences), {"p": 2_000_000, "g": -2_000_000, "s2": -1_000_000}
    )
    sent = published(network)
    assert network.delivered("s") == network.delivered("s2") == [b"%d" % number for number in range(sent)]


def test_a_subscriber_that_never_unsubscribes_is_forgotten_with_the_token() -> None:
    network = MeshNetwork("p-f f-x", config=ON, rings=rings()).run(5)
    network.node("f").overlay.branches.add_outward(token(FIRST), Address("x"))
    network.world.run(edge(1) + 8_000_000 - network.world.now)
    assert network.node("f").overlay.branches.tokens() == []


def test_without_lead_and_grace_notifications_are_lost_at_the_edge() -> None:
    sharp = msgspec.structs.replace(SMALL_CONFIG, defences=Defences(epoch_tokens=True, lead_us=0, grace_us=0))
    network = over_three_edges(sharp)
    assert len(network.delivered("s")) < published(network)


def test_without_the_switch_the_topic_is_refused() -> None:
    with pytest.raises(LocalError, match="hardened"):
        MeshNetwork("p-s", rings=rings())


def test_a_member_that_stops_reading_or_publishing_stops_for_all_tokens_in_use() -> None:
    network = MeshNetwork("p-f f-s", config=ON, rings=rings())
    network.world.run(edge(1) - 5_000_000 - network.world.now)
    assert network.node("f").overlay.branches.tokens() == [token(FIRST), token(FIRST + 1)]
    network.world.call(Address("s"), lambda machine, now: machine.unsubscribe(1, now))
    network.run(4)
    assert network.node("f").overlay.branches.tokens() == []
    network.world.call(Address("p"), lambda machine, now: machine.unadvertise(TOPIC, now))
    network.run(4)
    assert not any(
        origin.is_reachable for t in (0, 1) for origin in network.node("f").overlay.routes.origins(token(FIRST + t))
    )
