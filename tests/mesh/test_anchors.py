"""Chains that only authorised members can start: refusals, expiry, and the quota of one signer."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from support.mesh_network import SMALL_CONFIG, TOKEN, MeshNetwork, SingleNode, advert
from veilcast.authority.epoch import HOUR_US, epoch_of
from veilcast.authority.keyring import TopicKeys
from veilcast.crypto import hash_chain
from veilcast.crypto.hash_chain import Anchor
from veilcast.machine import Address
from veilcast.mesh import anchors
from veilcast.mesh.advertisements import make_advert, replace_chain_value
from veilcast.mesh.anchors import AnchoredRouteTable, PublisherAnchorRules, anchor_advert
from veilcast.mesh.config import Defences, MeshConfig
from veilcast.sim.engine import START_US
from veilcast.sim.mesh.population import TOPIC, role_keyrings
from veilcast.wire.mesh import Advert, Unadvert

ON = msgspec.structs.replace(SMALL_CONFIG, defences=Defences(anchors=True))
LIFE_US = ON.defences.anchor_life_us
A, B = Address("a"), Address("b")


def publisher() -> TopicKeys:
    return role_keyrings()["publisher"].keys_at(epoch_of(START_US, HOUR_US)).topic(TOPIC)


def signed(seed: int = 1, expires_us: int = START_US + LIFE_US, length: int = 16) -> Advert:
    keys = publisher()
    return anchor_advert(make_advert(keys, Random(seed).randbytes), keys, length, expires_us)


def fresh_chain(captured: Advert, seed: int) -> Advert:
    """What any member can make of an advertisement: its signed parts, and a value of its own."""
    return replace_chain_value(captured, Random(seed).randbytes(32))


def table(quota: int = 2, origins_max: int = 32) -> AnchoredRouteTable:
    return AnchoredRouteTable(
        MeshConfig(origins_max=origins_max, defences=Defences(anchors=True, anchor_quota=quota)), PublisherAnchorRules()
    )


# --- what is believed ---------------------------------------------------------------------------------------


def unbelievable() -> list[Advert]:
    right = signed()
    anchor = right.anchor
    assert anchor is not None
    stranger = Random(9).randbytes(32)
    end = hash_chain.advance_chain(stranger, 16)
    return [
        advert(),
        fresh_chain(right, 7),
        msgspec.structs.replace(right, value=stranger, anchor=Anchor(end, 16, anchor.expires_us, anchor.signature)),
        msgspec.structs.replace(right, anchor=Anchor(anchor.end, 16, anchor.expires_us + 1, anchor.signature)),
        signed(expires_us=START_US),
        signed(expires_us=START_US + 2 * LIFE_US + HOUR_US),
        signed(length=17),
        replace_chain_value(right, hash_chain.advance_chain(right.value, 17)),
    ]


@pytest.mark.parametrize("which", range(8))
def test_a_chain_without_an_anchor_is_refused(which: int) -> None:
    bench = SingleNode("forwarder", "a b", ON)
    bench.hear("a", unbelievable()[which])
    assert bench.node.overlay.routes.count_offers() == 0
    assert bench.next_riders() == {}
    assert bench.node.refused.total() == 1


def test_without_the_switch_a_chain_of_any_member_is_accepted() -> None:
    bench = SingleNode("forwarder", "a b")
    bench.hear("a", fresh_chain(advert(), 7))
    assert bench.node.overlay.routes.count_offers() == 1


def test_the_planted_bug_of_an_unchecked_anchor_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anchors, "_check_signature", lambda *_: None)
    with pytest.raises(AssertionError):
        test_a_chain_without_an_anchor_is_refused(2)


def test_an_anchored_advert_is_passed_on_one_hop_further_and_withdrawn_by_its_value() -> None:
    bench, right = SingleNode("forwarder", "a b", ON), signed()
    bench.hear("a", right)
    assert bench.next_riders() == {"b": [replace_chain_value(right, hash_chain.advance_chain(right.value))]}
    bench.hear("a", Unadvert(TOKEN, right.value))
    assert bench.next_riders()["b"] == [Unadvert(TOKEN, hash_chain.advance_chain(right.value))]


def test_values_beyond_the_end_of_a_chain_are_not_advertised() -> None:
    right = signed()
    bench = SingleNode("forwarder", "a b", ON)
    bench.hear("a", replace_chain_value(right, hash_chain.advance_chain(right.value, 16)))
    assert bench.node.overlay.routes.origins(TOKEN)[0].via == A
    assert bench.next_riders() == {}


def test_a_node_without_the_switch_passes_anchors_on_unread() -> None:
    bench, right = SingleNode("forwarder", "a b"), signed()
    bench.hear("a", right)
    assert bench.next_riders() == {"b": [replace_chain_value(right, hash_chain.advance_chain(right.value))]}


# --- the table ----------------------------------------------------------------------------------------------


def test_a_value_is_placed_by_one_walk_however_many_chains_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    routes, adverts = table(quota=32), [signed(seed) for seed in range(32)]
    for each in adverts:
        routes.add(each, A)
    hashes = 0

    def counted(value: bytes, steps: int = 1) -> bytes:
        nonlocal hashes
        hashes += steps
        return advance(value, steps)

    advance = hash_chain.advance_chain
    monkeypatch.setattr(hash_chain, "advance_chain", counted)
    for each in adverts:
        for hops in (0, 3, 16):
            found = routes.find(TOKEN, advance(each.value, hops))
            assert found is not None
            assert (found[0].advert, found[1]) == (each, hops)
    assert hashes <= 16 * 96
    assert routes.find(TOKEN, bytes(32)) is None


def test_nearer_and_further_values_are_told_apart_as_without_anchors() -> None:
    routes, right = table(), signed()
    origin = routes.add(replace_chain_value(right, hash_chain.advance_chain(right.value, 5)), A)
    assert origin is not None
    nearer = routes.find(TOKEN, hash_chain.advance_chain(right.value, 3))
    assert nearer == (origin, -2)
    origin.offer(hash_chain.advance_chain(right.value, 3), -2, B)
    assert (origin.via, origin.advertised_value) == (B, hash_chain.advance_chain(right.value, 4))
    assert routes.find(TOKEN, hash_chain.advance_chain(right.value, 3)) == (origin, 0)
    assert routes.find(TOKEN, hash_chain.advance_chain(right.value, 4)) == (origin, 1)


def test_one_signer_gets_its_quota_and_the_newest_stay() -> None:
    routes = table(quota=2)
    ages = [START_US + seconds * 1_000_000 for seconds in (3, 1, 2, 9, 4)]
    for seed, expires_us in enumerate(ages):
        routes.add(signed(seed, expires_us), A)
        assert len(routes.origins(TOKEN)) <= 2
    kept = sorted(origin.advert.anchor.expires_us for origin in routes.origins(TOKEN) if origin.advert.anchor)
    assert kept == sorted(ages)[-2:]
    assert routes.add(signed(0, ages[0]), B) is None, "what was let go does not come back"


def test_a_chain_that_is_lost_makes_room_before_one_that_stands() -> None:
    routes = table(quota=2)
    standing, lost = routes.add(signed(1, START_US + 1), A), routes.add(signed(2, START_US + 2), A)
    assert lost is not None
    lost.withdraw(A)
    newest = routes.add(signed(3, START_US + 3), B)
    assert routes.origins(TOKEN) == [standing, newest]


def test_our_own_chain_counts_for_nothing_and_stays() -> None:
    routes = table(quota=1)
    routes.add(signed(2, START_US + 2), A)
    own = routes.add(signed(1, START_US + 1), None)
    assert own is not None
    for seed in (3, 4):
        routes.add(signed(seed, START_US + seed), A)
    assert own in routes.origins(TOKEN)
    assert len(routes.origins(TOKEN)) == 2


def test_the_index_of_ends_is_as_long_as_the_table() -> None:
    routes = table(quota=100, origins_max=3)
    for seed in range(10):
        origin = routes.add(signed(seed), A)
        if origin is not None and seed % 2:
            origin.withdraw(A)
    assert len(routes._ends) == len(routes.origins(TOKEN)) == 3
    for origin in list(routes.origins(TOKEN)):
        routes.remove(origin)
    assert (len(routes._ends), routes.tokens()) == (0, [])


def test_origins_expire_with_their_anchors() -> None:
    routes = table()
    first, second = routes.add(signed(1, START_US + 10), A), routes.add(signed(2, START_US + 20), A)
    assert routes.expired(START_US + 9) == []
    assert routes.expired(START_US + 10) == [first]
    assert first is not None
    routes.remove(first)
    assert routes.expired(START_US + 19) == []
    assert routes.expired(START_US + 20) == [second]


# --- in a network -------------------------------------------------------------------------------------------


def brief(life_s: int) -> MeshConfig:
    return msgspec.structs.replace(SMALL_CONFIG, defences=Defences(anchors=True, anchor_life_us=life_s * 1_000_000))


def test_a_publisher_renews_its_chain_before_it_expires_and_nothing_is_lost() -> None:
    network = MeshNetwork("p-f f-g g-s f-s2", config=brief(30)).run(10)
    for number in range(60):
        network.publish(b"%d" % number)
    assert network.delivered("s") == network.delivered("s2") == [b"%d" % number for number in range(60)]
    assert network.sent("Advert") > 6 * 4
    assert all(network.node(name).refused == {} for name in network.neighbours)


def test_the_advertisements_of_a_dead_publisher_are_forgotten_everywhere_in_time() -> None:
    network = MeshNetwork("p-f f-g g-s", config=brief(30)).run(10)
    network.world.crash(Address("p"))
    network.run(60)
    assert [network.node(name).overlay.routes.count_offers() for name in "fgs"] == [0, 0, 0]
    assert [network.node(name).overlay.branches.size() for name in "fgs"] == [0, 0, 0]


def test_repair_starts_fresh_chains_within_the_quota() -> None:
    """A ring whose links fail one after the other: the publisher advertises again and again, and is accepted."""
    network = MeshNetwork("p-a a-b b-s s-c c-d d-p", config=ON).run(10)
    for round_ in range(12):
        broken = Address("abcd"[round_ % 4])
        network.world.crash(broken)
        network.run(8)
        network.world.restart(broken)
        network.run(12)
        network.publish(b"%d" % round_)
    assert network.delivered("s") == [b"%d" % round_ for round_ in range(12)]
    for name in network.neighbours:
        assert network.node(name).overlay.routes.count_offers() <= 2 * ON.defences.anchor_quota


def test_two_publishers_with_one_key_share_the_quota_and_are_both_heard() -> None:
    network = MeshNetwork("p-f f-s f-p2 s-p2", config=ON).run(15)
    for name in ("p", "p2", "p", "p2"):
        network.world.crash(Address(name))
        network.run(6)
        network.world.restart(Address(name))
        network.run(10)
        network.publish(b"of p " + name.encode(), by="p")
        network.publish(b"of p2 " + name.encode(), by="p2")
    assert len(network.delivered("s")) == 8
