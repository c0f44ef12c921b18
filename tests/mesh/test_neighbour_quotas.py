"""A neighbour over its share of a table loses its own entries, and no other neighbour does."""

from __future__ import annotations

from collections import Counter, deque

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.mesh_network import SMALL_CONFIG, TOKEN, SingleNode, advert
from veilcast.crypto import hash_chain
from veilcast.errors import ConfigError
from veilcast.machine import Address
from veilcast.mesh.advertisements import replace_chain_value
from veilcast.mesh.config import Defences, MeshConfig
from veilcast.mesh.limits import FairQueue, NeighbourQueues
from veilcast.mesh.routes import AdvertisedOrigin, RouteTable
from veilcast.mesh.topic_overlay import MeshOverlay
from veilcast.wire.mesh import Advert, Subscribe, Unadvert

A, B, C = Address("a"), Address("b"), Address("c")
TIGHT = Defences(caps=True, origins_each=2, chains_each=3, branches_each=2)
ON = msgspec.structs.replace(SMALL_CONFIG, origins_max=4, defences=TIGHT)
OFF = msgspec.structs.replace(SMALL_CONFIG, origins_max=4)


# --- routes -------------------------------------------------------------------------------------------------


def origins(bench: SingleNode) -> list[tuple[Address | None, bytes]]:
    return [(origin.charged_to, origin.value) for origin in bench.node.overlay.routes.origins(TOKEN)]


def greedy(config: MeshConfig) -> SingleNode:
    """One neighbour brings twenty chains, then another brings one."""
    bench = SingleNode("forwarder", "a b c", config)
    for seed in range(20):
        bench.hear("a", advert(seed))
    bench.hear("b", advert(77))
    return bench


def test_a_greedy_neighbour_pushes_out_its_own_oldest_chain_and_leaves_room_for_others() -> None:
    assert origins(greedy(ON)) == [("a", advert(18).value), ("a", advert(19).value), ("b", advert(77).value)]


def test_without_caps_the_first_to_fill_the_table_shuts_the_others_out() -> None:
    assert origins(greedy(OFF)) == [("a", advert(seed).value) for seed in range(4)]


def test_neighbours_are_told_when_a_chain_is_evicted() -> None:
    bench = SingleNode("forwarder", "a b", ON)
    for seed in range(3):
        bench.hear("a", advert(seed))
    said = [message for _ in range(6) for message in bench.next_riders().get("b", [])]
    assert [type(message) for message in said] == [Advert, Advert, Advert, Unadvert]


def test_a_chain_that_another_neighbour_also_offers_is_charged_to_that_one() -> None:
    bench = SingleNode("forwarder", "a b c", ON)
    bench.hear("a", advert(0))
    bench.hear("b", advert(0))
    bench.hear("a", advert(1), advert(2))
    bench.hear("a", advert(2))
    assert origins(bench) == [("b", advert(0).value), ("a", advert(1).value), ("a", advert(2).value)]
    assert bench.node.overlay.routes.origins(TOKEN)[0].via == B


def test_the_quota_has_as_many_entries_as_the_table() -> None:
    bench = greedy(ON)
    routes = bench.node.overlay.routes
    assert len(routes._brought) == len(routes.origins(TOKEN)) == 3
    bench.node.peer_lost(A, bench.now)
    for origin in list(routes.origins(TOKEN)):
        routes.remove(origin)
    assert len(routes._brought) == 0


# --- branches -----------------------------------------------------------------------------------------------


def wishful(monkeypatch: pytest.MonkeyPatch, config: MeshConfig) -> SingleNode:
    """One neighbour asks for ten topics, after another has asked for one."""
    monkeypatch.setattr(RouteTable, "origins", lambda self, token: [AdvertisedOrigin(advert(), C)])
    bench = SingleNode("forwarder", "a b c", config)
    bench.hear("b", Subscribe(bytes([1]) * 32))
    for number in range(1, 11):
        bench.hear("a", Subscribe(bytes([number]) * 32))
    return bench


def wanted(bench: SingleNode, name: Address) -> list[int]:
    branches = bench.node.overlay.branches
    return [token[0] for token in branches.tokens() if name in branches.outward(token)]


def test_a_neighbour_over_its_share_of_topics_loses_the_oldest_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = wishful(monkeypatch, ON)
    assert (wanted(bench, A), wanted(bench, B)) == ([9, 10], [1])
    assert [token[0] for token in bench.node.overlay.branches._inward] == [1, 9, 10], "and we want them no more either"


def test_without_caps_a_neighbour_gets_all_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(wanted(wishful(monkeypatch, OFF), A)) == 10


# --- queues -------------------------------------------------------------------------------------------------


def queued(config: MeshConfig) -> Counter[Address]:
    """What is left in a queue of eight of one neighbour's two messages, after a hundred of another's."""
    backlogs, left = NeighbourQueues(config), Counter[Address]()
    queue = backlogs.make(8)
    for name, count in ((B, 2), (A, 100)):
        with backlogs.charging(name):
            for _ in range(count):
                queue.append(name.encode())
    while len(queue):
        left[Address(queue.popleft().decode())] += 1
    return left


def test_a_full_queue_drops_from_the_greediest_neighbour_and_without_caps_the_oldest() -> None:
    assert queued(ON) == {B: 2, A: 6}
    assert queued(OFF) == {A: 8}


def test_messages_caused_by_a_neighbour_are_charged_to_it() -> None:
    bench = SingleNode("forwarder", "a b c", msgspec.structs.replace(ON, queue_max=4, again_periods=1))
    bench.hear("b", advert(50))
    for seed in range(20):
        bench.hear("a", advert(seed))
    said = [message for _ in range(8) for message in bench.next_riders().get("c", [])]
    assert len(said) == 4
    assert said[0] == replace_chain_value(advert(50), hash_chain.advance_chain(advert(50).value))


@given(st.lists(st.sampled_from("abx<"), max_size=80), st.integers(1, 6))
def test_a_fair_queue_keeps_the_order_and_for_one_alone_is_the_plain_one(steps: list[str], size: int) -> None:
    fair, alone, plain = FairQueue(size, lambda: blamed), FairQueue(size, lambda: None), deque[bytes](maxlen=size)
    blamed: Address | None = None
    taken: list[int] = []
    for number, step in enumerate(steps):
        if step == "<":
            if plain:
                taken.append(int(fair.popleft()))
                assert alone[0] == plain[0]
                assert alone.popleft() == plain.popleft()
            continue
        blamed = None if step == "x" else Address(step)
        for queue in (fair, alone, plain):
            queue.append(b"%d" % number)
        assert len(fair) == len(alone) == len(plain)
    rest = [int(fair.popleft()) for _ in range(len(fair))]
    assert taken + rest == sorted(taken + rest)


def test_shares_of_nothing_are_refused() -> None:
    for name in ("origins_each", "chains_each", "branches_each"):
        with pytest.raises(ConfigError, match=name):
            msgspec.structs.replace(TIGHT, **{name: 0})


def test_the_planted_bug_of_an_unapplied_cap_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MeshOverlay, "_enforce_share", lambda *_: None)
    with pytest.raises(AssertionError):
        test_a_greedy_neighbour_pushes_out_its_own_oldest_chain_and_leaves_room_for_others()
