"""Probabilistic forwarding: which nodes become covers, which decline, and how covers end."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from support.mesh_network import LABEL, SMALL_CONFIG, TOKEN, MeshNetwork, SingleNode, advert
from veilcast.lab.attack.observer.leaf_rule import find_leaves
from veilcast.machine import Address, Frame
from veilcast.mesh.config import CoverConfig, MeshConfig
from veilcast.sim.checkers import Checker
from veilcast.sim.world import World
from veilcast.wire import decode
from veilcast.wire.base import Message
from veilcast.wire.mesh import Decline, Invite, Notify, Subscribe, Unsubscribe


def covering(rule: str = "one", mu: float = 1.0, delay_us: int = 0, *, fresh: bool = False) -> MeshConfig:
    assert rule in ("one", "each")
    cover = CoverConfig("one" if rule == "one" else "each", mu, delay_us, "fresh" if fresh else "kept")
    return MeshConfig(neighbours_max=20, address_bytes_max=8, cover=cover)


def member(rule: str = "one", mu: float = 1.0) -> SingleNode:
    """A subscriber below `up`, with neighbours to choose from."""
    bench = SingleNode("subscriber", "up x y z", covering(rule, mu))
    bench.node.subscribe(LABEL, bench.now)
    bench.hear("up", advert())
    return bench


def invited(said: dict[str, list[Message]]) -> list[str]:
    return [name for name, messages in said.items() if Invite(TOKEN) in messages]


# --- P0 Fig. 7 ----------------------------------------------------------------------------------------------


FIG_7 = "p-f1 f1-s1 f1-s2 p-s3 s3-s4"
"""The left picture; the others have room for covers below s1 and s3."""


class NotifyLinks(Checker):
    """The links that notifications take, as an observer of all links has them."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, str]] = []

    def on_frames(self, world: World, address: Address, frames: Sequence[Frame]) -> None:
        for frame in frames:
            if frame.data[:1] != b"\0" and isinstance(decode(frame.data), Notify):
                self.taken.append((address, frame.destination))


def leaf_accuracy(edges: str, mu: float) -> Fraction:
    """The accuracy of the leaf rule over the mesh without its publisher, from the frames of one publication."""
    links = NotifyLinks()
    network = MeshNetwork(edges, config=covering(mu=mu), checkers=[links]).run(14)
    network.publish(b"x")
    assert {name for name in network.notes if network.notes[name] == [b"x"]} == {"s1", "s2", "s3", "s4"}
    names = sorted({name for link in links.taken for name in link})
    src, dst = (np.array([names.index(link[end]) for link in links.taken], np.int32) for end in (0, 1))
    leaves, judged = find_leaves(src, dst, len(names)), [name for name in names if name != "p"]
    right = [leaves[names.index(name)] == name.startswith("s") for name in judged]
    return Fraction(sum(map(bool, right)), len(judged))


@pytest.mark.parametrize(("covers", "expected"), [("", (4, 5)), ("s1-f2 s3-f3", (3, 7)), ("s1-f2 s3-f3 f3-f4", (4, 8))])
def test_fig_7_the_attackers_accuracy_over_the_mesh_that_the_machines_build(
    covers: str, expected: tuple[int, int]
) -> None:
    assert leaf_accuracy(f"{FIG_7} {covers}", mu=1) == Fraction(*expected)


def test_fig_7_without_covers_more_nodes_around_change_nothing() -> None:
    """A planted fault: nodes that never ask for a cover."""
    assert leaf_accuracy(f"{FIG_7} s1-f2 s3-f3 f3-f4", mu=0) == Fraction(4, 5)


def test_fig_7_right_is_reproduced_with_the_machines() -> None:
    """A line p - s - a - b: the subscriber takes a cover, and the cover another."""
    network = MeshNetwork("p-s s-a a-b", config=covering()).run(12)
    assert (network.inward("s"), network.inward("a"), network.inward("b")) == (["p"], ["s"], ["a"])
    network.publish(b"x")
    assert network.notes == {"s": [b"x"]}
    assert network.sent("Notify") == 3


# --- asking -------------------------------------------------------------------------------------------------


def test_rule_one_asks_one_after_the_other_until_one_accepts() -> None:
    bench = member()
    (first,) = invited(bench.next_riders())
    assert invited(bench.next_riders()) == []
    bench.hear(first, Decline(TOKEN))
    (second,) = invited(bench.next_riders())
    bench.hear(second, Subscribe(TOKEN))
    assert [invited(bench.next_riders()) for _ in range(3)] == [[], [], []]
    assert bench.outward() == [second]
    assert len({first, second, "up"}) == 3


def test_rule_each_asks_all_that_the_coins_choose_at_once() -> None:
    bench = member("each")
    assert sorted(invited(bench.next_riders())) == ["x", "y", "z"]
    assert invited(bench.next_riders()) == []


def test_without_luck_no_neighbour_is_asked() -> None:
    for rule in ("one", "each"):
        bench = member(rule, mu=0)
        assert [invited(bench.next_riders()) for _ in range(5)] == [[]] * 5


def test_a_neighbour_that_fails_while_asked_is_skipped() -> None:
    bench = member()
    (first,) = invited(bench.next_riders())
    bench.node.peer_lost(Address(first), bench.now)
    (second,) = invited(bench.next_riders())
    assert second != first


def test_the_delay_is_kept() -> None:
    bench = SingleNode("subscriber", "up x", covering(delay_us=3 * SMALL_CONFIG.heartbeat_us))
    bench.node.subscribe(LABEL, bench.now)
    bench.hear("up", advert())
    assert [invited(bench.next_riders()) for _ in range(5)] == [[], [], ["x"], [], []]


# --- being asked --------------------------------------------------------------------------------------------


def test_a_node_outside_accepts_by_a_plain_subscription_and_looks_for_a_cover_at_once() -> None:
    bench = SingleNode("forwarder", "a b", covering(delay_us=10**9))
    bench.hear("b", advert())
    bench.hear("a", Invite(TOKEN))
    said = bench.next_riders()
    assert Subscribe(TOKEN) in said["a"]
    assert bench.inward() == ["a"]
    assert said["b"] == [Invite(TOKEN)]


@pytest.mark.parametrize("role", ["publisher", "subscriber", "forwarder", "cover"])
def test_a_node_in_the_mesh_declines(role: str) -> None:
    bench = SingleNode(role if role != "cover" else "forwarder", "a b c", covering(mu=0))
    if role == "publisher":
        bench.node.advertise("mesh", bench.now)
    else:
        bench.hear("b", advert())
    if role == "subscriber":
        bench.node.subscribe(LABEL, bench.now)
    elif role == "forwarder":
        bench.hear("c", Subscribe(TOKEN))
    elif role == "cover":
        bench.hear("c", Invite(TOKEN))
    bench.next_riders()
    bench.hear("a", Invite(TOKEN))
    assert bench.next_riders() == {"a": [Decline(TOKEN)]}


def test_a_node_without_the_policy_declines() -> None:
    bench = SingleNode("forwarder", "a b")
    bench.hear("a", Invite(TOKEN))
    assert bench.next_riders() == {"a": [Decline(TOKEN)]}


# --- the end of a cover -------------------------------------------------------------------------------------


def test_a_cover_is_no_reason_to_stay_and_is_dismissed_with_all_behind_it() -> None:
    network = MeshNetwork("p-s s-a a-b", config=covering()).run(12)
    assert network.members() == ["a", "b", "p", "s"]
    network.world.call(Address("s"), lambda node, now: node.unsubscribe(1, now))
    network.run(8)
    assert network.members() == ["p"]
    assert all(not network.outward(name) for name in network.neighbours)


def test_a_cover_that_others_depend_on_finds_its_own_way() -> None:
    bench = SingleNode("forwarder", "way inviter child", covering(mu=0))
    bench.hear("way", advert())
    bench.hear("inviter", Invite(TOKEN))
    bench.next_riders()
    bench.hear("child", Subscribe(TOKEN))
    said = bench.next_riders()
    assert said == {"way": [Subscribe(TOKEN)], "inviter": [Unsubscribe(TOKEN)]}


def test_an_inviter_that_dismisses_a_cover_which_needs_it_is_asked_again() -> None:
    bench = SingleNode("forwarder", "inviter child", covering(mu=0))
    bench.hear("inviter", advert(), Invite(TOKEN))
    bench.hear("child", Subscribe(TOKEN))
    bench.next_riders()
    bench.hear("inviter", Decline(TOKEN))
    assert bench.next_riders() == {"inviter": [Unsubscribe(TOKEN), Subscribe(TOKEN)]}


def test_a_cover_whose_inviter_fails_leaves() -> None:
    network = MeshNetwork("p-s s-a p-b b-a", config=covering(mu=1)).run(12)
    network.world.crash(Address("s"))
    network.run(6)
    assert network.members() == ["p"]


def test_the_choice_is_made_once_and_kept() -> None:
    """P0 5: PF should select neighbours only once."""
    bench = member()
    chosen = []
    for number in range(2, 6):
        (first,) = invited(bench.next_riders())
        chosen.append(first)
        bench.node.unsubscribe(number - 1, bench.now)
        assert bench.node.subscribe(LABEL, bench.now) == number
    assert len(set(chosen)) == 1


def test_a_fresh_choice_is_made_for_every_publication_on_the_mesh_that_was_there_without_covers() -> None:
    """The cover of s changes from notification to notification, with a cover's cover behind it. All others have left by
    then."""
    network = MeshNetwork(
        "p-s s-a s-b s-c a-aa b-bb c-cc", config=covering(delay_us=6 * SMALL_CONFIG.heartbeat_us, fresh=True)
    )
    taken = []
    for number in range(8):
        network.run(14)
        (cover,) = network.outward("s")
        assert network.members() == sorted([cover, 2 * cover, "p", "s"])
        taken.append(cover)
        network.publish(b"%d" % number)
    assert len(set(taken)) > 1
    assert network.notes == {"s": [b"%d" % number for number in range(8)]}


def test_a_kept_choice_outlasts_every_publication() -> None:
    network = MeshNetwork("p-s s-a s-b s-c", config=covering()).run(12)
    before = network.outward("s")
    for number in range(4):
        network.publish(b"%d" % number, wait=8)
    assert network.outward("s") == before


def test_a_fresh_coin_may_fall_the_other_way() -> None:
    network = MeshNetwork("p-s s-a", config=covering(mu=0.5, fresh=True))
    counts = []
    for number in range(16):
        network.run(8)
        counts.append(len(network.members()))
        network.publish(b"%d" % number)
    assert sorted(set(counts)) == [2, 3]


def test_a_cover_sends_nothing_that_a_forwarder_does_not() -> None:
    cover, forwarder = (SingleNode("forwarder", "a b c", covering()) for _ in range(2))
    for bench in (cover, forwarder):
        bench.hear("a", advert())
        bench.next_riders()
    cover.hear("a", Invite(TOKEN))
    forwarder.hear("b", Subscribe(TOKEN))
    for bench in (cover, forwarder):
        said = [message for messages in bench.next_riders().values() for message in messages]
        assert {type(message) for message in said} == {Subscribe, Invite}
