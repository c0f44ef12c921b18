"""Replicas join and leave only by the operator's order, nothing is lost, and no minority delays it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from support.deployment_network import MS, OPERATOR, PACE, DeploymentNetwork, entry, key, overlay, signed_overlay
from veilcast.brokers.keys.scheme import ReplicaId, Scheme
from veilcast.brokers.operations.deployment import Deployment, RedeployTimes
from veilcast.brokers.operations.detachment import Detachment, DetachRule, RemainingWork
from veilcast.brokers.operations.state_catch_up import PATIENCE_FACTOR, RoutingStateCatchUp
from veilcast.brokers.overlay import node_id, sign_overlay
from veilcast.brokers.quota import AwaitedClaims
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ConfigError, ForgedError, LocalError, MalformedError, StaleError
from veilcast.machine import Address
from veilcast.wire.brokers import OverlayOrder, VersionAdopted

W, X, Y = ["w1", "w2", "w3"], ["x1", "x2", "x3"], ["y1", "y2", "y3"]
BASE = {"W": (0, W), "X": (0, X), "Y": (0, Y)}
GROWN = BASE | {"X": (1, [*X, "x4", "x5"])}
SHRUNK = BASE | {"X": (2, ["x1", "x3", "x5"])}
SECOND = 1_000_000


def deployment(
    me: str | None = "w1", at: str = "W", nodes: Mapping[str, tuple[int, list[str]]] = BASE, version: int = 0
) -> Deployment:
    return Deployment(
        signed_overlay(version, nodes),
        OPERATOR.public,
        node_id(at),
        None if me is None else key(me),
        profile="hardened",
        pace=PACE,
        now=0,
    )


def complete_transfer(*names: str, at: str = "W") -> Deployment:
    made = deployment(at=at)
    for name in names or (*W, *X, *Y):
        made.record_state_answer(key(name))
    made.handle(0, RemainingWork())
    assert made.has_routing_state
    made.outbox.clear()
    return made


def order(version: int, nodes: Mapping[str, tuple[int, list[str]]]) -> OverlayOrder:
    return OverlayOrder(signed_overlay(version, nodes).encode())


def stand(made: Deployment, names: list[str], version: int = 1, ready: bool = True) -> None:
    for name in names:
        made.accept_status(VersionAdopted(version, ready), key(name), 0)


class TestGrowingAndShrinking:
    @pytest.mark.parametrize(("seed", "mute"), list(enumerate(["", "x2", "x3", "x5", "w1", "y3"])))
    def test_nothing_is_lost_while_a_node_grows_and_shrinks_whichever_replica_is_silent(
        self, seed: int, mute: str
    ) -> None:
        world = DeploymentNetwork(signed_overlay(0, BASE), seed=seed, mute=(mute,) if mute else ())
        world.run(SECOND)
        sent = world.run(2 * SECOND, publish_every_us=100 * MS)
        newer = signed_overlay(1, GROWN)
        world.order(newer, "y2")
        for name in ("x4", "x5"):
            world.start(key(name), "X", newer)
        sent += world.run(6 * SECOND, publish_every_us=100 * MS, first=sent)
        world.order(signed_overlay(2, SHRUNK), "w2")
        sent += world.run(10 * SECOND, publish_every_us=100 * MS, first=sent)
        world.run(11 * SECOND)
        for made in world.deployments.values():
            assert made.version == 2
            assert made.is_settled or made.is_leaving
        honest = [key(name) for name in ["x1", "x3", "x5"] if name != mute]
        assert all(world.seen[key(name)] == set(range(sent)) for name in Y), "each got each from somebody"
        assert all(world.lost[replica] == 0 for replica in world.at if replica not in world.mute)
        assert set(world.left_us) == {key("x2"), key("x4")} - world.mute | (world.mute & {key("x2")})
        after = max(world.seen[honest[0]])
        assert all(after in world.seen[replica] for replica in honest)

    def test_without_byzantine_replicas_a_leaving_replica_goes_long_before_the_deadline(self) -> None:
        world = DeploymentNetwork(signed_overlay(0, GROWN))
        world.run(SECOND)
        world.order(signed_overlay(1, SHRUNK), *X)
        world.run(3 * SECOND, publish_every_us=20 * MS)
        assert set(world.left_us) == {key("x2"), key("x4")}
        assert max(world.left_us.values()) < SECOND + PACE.settle_us + 500 * MS

    def test_replicas_of_a_node_are_exchanged_one_for_one(self) -> None:
        """After review, a suspect is replaced; the size stays odd."""
        world = DeploymentNetwork(signed_overlay(0, BASE))
        world.run(SECOND)
        sent = world.run(2 * SECOND, publish_every_us=100 * MS)
        newer = signed_overlay(1, BASE | {"X": (1, ["x1", "x2", "x9"])})
        world.order(newer, "w1")
        world.start(key("x9"), "X", newer)
        sent += world.run(6 * SECOND, publish_every_us=20 * MS, first=sent)
        world.run(7 * SECOND)
        assert all(world.seen[key(name)] == set(range(sent)) for name in Y)
        assert set(world.left_us) == {key("x3")}
        assert not world.lost


class TestAlgorithm3AsPrinted:
    def test_with_and_the_broker_leaves_at_the_first_empty_queue_and_what_comes_later_is_lost(self) -> None:
        """Its neighbours switch later: here because one Byzantine replica is never ready."""
        assert self.lost_by("printed") > 10

    def test_with_or_nothing_is_lost(self) -> None:
        assert self.lost_by("corrected") == 0

    def lost_by(self, rule: DetachRule) -> int:
        world = DeploymentNetwork(signed_overlay(0, GROWN), rule=rule, mute=("x1",))
        world.run(SECOND)
        world.order(signed_overlay(1, SHRUNK), "x2")
        world.run(3 * SECOND, publish_every_us=20 * MS)
        assert key("x2") in world.left_us
        return world.lost[key("x2")]

    def test_waiting_for_every_neighbour_is_blocked_for_ever_by_one_byzantine_neighbour(self) -> None:
        world = DeploymentNetwork(signed_overlay(0, GROWN), rule="every", mute=("y1",))
        world.run(SECOND)
        world.order(signed_overlay(1, SHRUNK), *X)
        world.run(100 * SECOND)
        assert not world.left_us


@pytest.mark.parametrize("mute", ["y1", "w3", "x1"])
def test_a_leaving_replica_is_blocked_by_no_neighbour(mute: str) -> None:
    world = DeploymentNetwork(signed_overlay(0, GROWN), mute=(mute,))
    world.run(SECOND)
    world.order(signed_overlay(1, SHRUNK), *[name for name in X if name != mute])
    world.run(SECOND + PACE.prepare_us + 2 * PACE.settle_us + SECOND, publish_every_us=20 * MS)
    assert set(world.left_us) == {key("x2"), key("x4")}
    assert not world.lost


class TestTwoPhases:
    def test_a_sender_switches_when_all_of_the_new_scheme_are_ready_and_not_before(self) -> None:
        made = complete_transfer()
        made.accept_order(order(1, GROWN), 0)
        node = node_id("X")
        stand(made, [*X, "x4"])
        made.handle(0, RemainingWork())
        assert made.scheme(node) == Scheme(node, 0, 3)
        assert made.schemes(node) == [Scheme(node, 0, 3), Scheme(node, 1, 5)], "either is taken"
        stand(made, ["x5"])
        made.handle(0, RemainingWork())
        assert made.scheme(node) == Scheme(node, 1, 5)
        assert made.schemes(node) == [Scheme(node, 1, 5), Scheme(node, 0, 3)]
        made.handle(PACE.settle_us, RemainingWork())
        assert made.schemes(node) == [Scheme(node, 1, 5)]
        assert made.is_settled

    def test_a_replica_without_routing_state_is_not_ready(self) -> None:
        """The paper counts it toward the threshold with empty tables."""
        fresh = deployment("x4", "X", GROWN, 1)
        assert not fresh.has_routing_state
        assert not any(isinstance(message, VersionAdopted) for _, message in fresh.outbox)
        assert fresh.make_greeting(key("w1")) == VersionAdopted(1, False)

    def test_a_replica_that_is_never_ready_only_delays_the_switch(self) -> None:
        made = complete_transfer()
        made.accept_order(order(1, GROWN), 0)
        stand(made, [*X, "x4"])
        made.handle(PACE.prepare_us - 1, RemainingWork())
        assert made.scheme(node_id("X")).size == 3
        assert made.next_us() == PACE.prepare_us
        made.handle(PACE.prepare_us, RemainingWork())
        assert made.scheme(node_id("X")).size == 5

    def test_without_a_ready_majority_the_old_scheme_continues(self) -> None:
        made = complete_transfer()
        made.accept_order(order(1, GROWN), 0)
        stand(made, ["x4", "x5"])
        made.handle(100 * SECOND, RemainingWork())
        assert made.scheme(node_id("X")).size == 3
        assert made.next_us() is None
        stand(made, ["x1"])
        made.handle(100 * SECOND, RemainingWork())
        assert made.scheme(node_id("X")).size == 5

    def test_a_restarted_replica_is_not_ready_any_more(self) -> None:
        made = complete_transfer()
        made.accept_order(order(1, GROWN), 0)
        stand(made, [*X, "x4"])
        stand(made, ["x4"], ready=False)
        stand(made, ["x5"])
        made.handle(0, RemainingWork())
        assert made.scheme(node_id("X")).size == 3

    def test_leaving_replicas_are_told_after_their_last_message(self) -> None:
        made = complete_transfer()
        made.accept_order(order(1, BASE | {"X": (1, ["x1", "x2", "x9"])}), 0)
        told = [(peer, message) for peer, message in made.outbox if isinstance(message, VersionAdopted)]
        assert key("x3") not in dict(told), "still sent to, by the old scheme"
        assert made.make_greeting(key("x3")) == VersionAdopted(1, False)
        made.outbox.clear()
        stand(made, ["x1", "x2", "x9"])
        made.handle(0, RemainingWork())
        assert made.outbox == [(key("x3"), VersionAdopted(1, True))]
        assert made.make_greeting(key("x3")) == VersionAdopted(1, True)

    def test_links_with_departed_replicas_end_when_they_say_so_or_after_a_while(self) -> None:
        for farewell in (True, False):
            made = complete_transfer()
            made.accept_order(order(1, BASE | {"X": (1, ["x1", "x2", "x9"])}), 0)
            assert {key("x3"), key("x9")} <= set(made.linked_replicas())
            stand(made, ["x1", "x2", "x9"])
            made.handle(0, RemainingWork())
            assert key("x3") in made.linked_replicas()
            if farewell:
                stand(made, ["x3"])
                assert key("x3") not in made.linked_replicas()
            made.handle(PACE.settle_us, RemainingWork())
            assert made.is_settled is farewell
            made.handle(PACE.linger_us, RemainingWork())
            assert made.is_settled
            assert key("x3") not in made.linked_replicas()

    def test_votes_count_by_either_scheme_while_both_are_valid(self) -> None:
        made = complete_transfer()
        node = node_id("X")
        assert made.includes_honest(node, {key("x1"), key("x2")})
        assert not made.includes_honest(node, {key("x1"), key("w2")})
        made.accept_order(order(1, GROWN), 0)
        assert made.includes_honest(node, {key("x1"), key("x2")})
        assert not made.includes_honest(node, {key("x4"), key("x5")}), "two of five may lie"
        assert made.includes_honest(node, {key("x3"), key("x4"), key("x5")})
        stand(made, [*X, "x4", "x5"])
        made.handle(0, RemainingWork())
        made.handle(PACE.settle_us, RemainingWork())
        assert not made.includes_honest(node, {key("x1"), key("x2")})


def test_only_the_operator_gives_orders() -> None:
    """A Byzantine replica would exclude the honest ones, until it is alone and its scheme is (1, 1)."""
    made = complete_transfer()
    evil = sign_overlay(overlay(1, BASE | {"X": (1, ["x1", "x8", "x9"])}), SigningKey(Secret(b"x" * 32)))
    with pytest.raises(ForgedError):
        made.accept_order(OverlayOrder(evil.encode()), 0)
    with pytest.raises(MalformedError):
        made.accept_order(OverlayOrder(b"\x00"), 0)
    assert made.version == 0
    assert made.is_settled
    assert not made.outbox


class TestOrders:
    def test_a_replica_that_announces_its_departure_affects_no_other(self) -> None:
        made = complete_transfer()
        before = made.linked_replicas()
        stand(made, X, version=7)
        made.handle(10 * SECOND, RemainingWork())
        assert made.linked_replicas() == before
        assert made.scheme(node_id("X")).size == 3
        with pytest.raises(StaleError):
            made.accept_status(VersionAdopted(1, True), key("stranger"), 0)

    def test_an_older_order_is_stale_and_two_of_one_version_are_forged(self) -> None:
        made = complete_transfer()
        made.accept_order(order(2, GROWN), 0)
        with pytest.raises(StaleError):
            made.accept_order(order(1, GROWN), 0)
        with pytest.raises(ForgedError):
            made.accept_order(order(2, BASE | {"X": (1, ["x1", "x2", "x9"])}), 0)
        assert not made.accept_order(order(2, GROWN), 0), "the same again is no news"

    def test_in_hardened_replicas_move_in_pairs(self) -> None:
        for replicas in (["x1", "x2"], [*X, "x4"], ["x1"]):
            with pytest.raises(MalformedError):
                complete_transfer().accept_order(order(1, BASE | {"X": (1, replicas)}), 0)

    def test_in_paper_they_move_one_by_one(self) -> None:
        made = Deployment(
            signed_overlay(0, BASE), OPERATOR.public, node_id("W"), None, profile="paper", pace=PACE, now=0
        )
        assert made.accept_order(order(1, BASE | {"W": (1, [*W, "w4"])}), 0)

    @pytest.mark.parametrize(
        "nodes",
        [
            {"W": (0, W), "X": (0, X)},
            BASE | {"Z": (0, ["z1", "z2", "z3"])},
            BASE | {"X": (0, ["x1", "x2", "x9"])},
            BASE | {"X": (1, ["x1", "x2", "y3"]), "Y": (1, ["y1", "y2", "y9"])},
            BASE | {"X": (1, ["x1", "x2", "y3"])},
        ],
        ids=["tree smaller", "tree larger", "same scheme, other replicas", "moved at once", "in two nodes"],
    )
    def test_an_invalid_successor_is_refused(self, nodes: Mapping[str, tuple[int, list[str]]]) -> None:
        made = complete_transfer()
        with pytest.raises((MalformedError, StaleError)):
            made.accept_order(order(1, nodes), 0)
        assert made.version == 0

    def test_an_order_at_one_broker_reaches_all(self) -> None:
        world = DeploymentNetwork(signed_overlay(0, BASE))
        world.run(SECOND)
        world.order(signed_overlay(1, BASE | {"X": (1, ["x1", "x2", "x9"])}), "w1")
        world.run(2 * SECOND)
        assert all(made.version == 1 for made in world.deployments.values())

    def test_a_replica_that_was_offline_gets_the_newest_order_and_skips_missed_ones(self) -> None:
        made, late = complete_transfer(), deployment("y1", "Y")
        made.accept_order(order(3, SHRUNK | {"W": (4, W)}), 0)
        made.outbox.clear()
        made.accept_status(late.make_greeting(key("w1")), Address("client"), 0)
        made.accept_status(VersionAdopted(0, False), key("x1"), 0)
        (client, shown), (peer, again) = made.outbox
        assert (client, peer) == ("client", key("x1"))
        assert shown == again
        assert isinstance(shown, OverlayOrder)
        assert late.accept_order(shown, 0)
        assert late.version == 3

    def test_a_peer_that_keeps_naming_an_old_version_gets_the_order_once_per_stream(self) -> None:
        made = complete_transfer()
        made.accept_order(order(1, GROWN), 0)
        made.outbox.clear()
        stand(made, ["x1"] * 50, version=0)
        assert len(made.outbox) == 1
        made.make_greeting(key("x1"))
        stand(made, ["x1"], version=0)
        assert len(made.outbox) == 2

    def test_a_newer_order_waits_for_the_current_one_and_only_the_newest_waits(self) -> None:
        made = complete_transfer()
        made.accept_order(order(1, GROWN), 0)
        made.accept_order(order(2, GROWN | {"X": (2, X)}), 0)
        made.accept_order(order(3, GROWN | {"X": (3, [*X, "x6", "x7"])}), 0)
        assert made.version == 1
        assert key("x6") not in made.linked_replicas()
        stand(made, [*X, "x4", "x5"], version=1)
        made.handle(0, RemainingWork())
        made.handle(PACE.settle_us, RemainingWork())
        assert made.version == 3
        assert {key("x4"), key("x6")} <= set(made.linked_replicas())
        assert made.scheme(node_id("X")).version == 1

    def test_a_client_follows_orders_and_forwards_none(self) -> None:
        made = deployment(None, "X")
        assert made.has_routing_state
        assert made.nearby_nodes() == [node_id("X")]
        assert made.accept_order(order(1, SHRUNK), 0)
        assert not made.outbox
        assert {key("x2"), key("x5")} <= set(made.linked_replicas())
        stand(made, ["x1", "x3", "x5"])
        made.handle(0, RemainingWork())
        assert made.outbox == [(key("x2"), VersionAdopted(1, True))]


class TestReplicaIds:
    def test_staying_replicas_are_known_under_both_schemes(self) -> None:
        made = complete_transfer()
        made.accept_order(order(1, SHRUNK), 0)
        node = node_id("X")
        old, new = Scheme(node, 0, 3), Scheme(node, 2, 3)
        assert made.ids_of(key("x3")) == [ReplicaId(old, 3), ReplicaId(new, 2)]
        assert made.replica_id(key("x2"), new) is None
        assert made.replica_id(key("x5"), new) == ReplicaId(new, 3)
        assert made.node_of(key("x5")) == node
        assert made.node_of(key("y1")) is None
        with pytest.raises(StaleError):
            made.replicas(Scheme(node, 9, 3))
        with pytest.raises(LocalError):
            made.scheme(node_id("Y"))

    def test_a_replica_must_be_listed(self) -> None:
        with pytest.raises(LocalError):
            deployment("x1", "W")
        with pytest.raises(ConfigError):
            RedeployTimes(settle_us=0)


class TestStateTransfer:
    def made(self) -> RoutingStateCatchUp:
        nodes = {b"own": [key("x2"), key("x3")], b"W": [key(name) for name in W]}
        return RoutingStateCatchUp(nodes, b"own", copy_us=10, linger_us=200, now=0)

    def test_all_are_asked_and_silent_ones_again(self) -> None:
        made = self.made()
        assert len(made.handle(0, RemainingWork())) == 5
        made.record_answer(key("w1"))
        assert not made.handle(9, RemainingWork())
        assert made.next_us() == 10
        assert key("w1") not in made.handle(10, RemainingWork())
        assert not made.is_complete

    def test_it_is_complete_when_all_have_answered_and_their_clients_have_connected(self) -> None:
        made = self.made()
        for name in [*W, "x2", "x3"]:
            made.record_answer(key(name))
        made.handle(1, RemainingWork(has_missing_claims=True))
        early = made.is_complete
        made.handle(2, RemainingWork())
        assert (early, made.is_complete) == (False, True)
        assert made.next_us() is None

    def test_a_silent_minority_only_delays_it(self) -> None:
        made = self.made()
        for name in ("w1", "w2", "x3", "nobody"):
            made.record_answer(key(name))
        made.handle(9, RemainingWork())
        assert not made.is_complete
        made.handle(10, RemainingWork())
        assert made.is_complete

    def test_absent_clients_are_waited_for_until_they_must_have_reconnected(self) -> None:
        made = self.made()
        for name in [*W, "x2", "x3"]:
            made.record_answer(key(name))
        made.handle(10 * PATIENCE_FACTOR - 1, RemainingWork(has_missing_claims=True))
        assert not made.is_complete
        made.handle(10 * PATIENCE_FACTOR, RemainingWork(has_missing_claims=True))
        assert made.is_complete

    def test_claims_reported_by_too_few_are_waited_for_if_a_replica_is_silent(self) -> None:
        made = self.made()
        for name in ("w1", "w2", "x2", "x3"):
            made.record_answer(key(name))
        made.handle(10 * PATIENCE_FACTOR - 1, RemainingWork(has_unconfirmed_claims=True))
        assert not made.is_complete
        made.handle(10 * PATIENCE_FACTOR, RemainingWork(has_unconfirmed_claims=True))
        assert made.is_complete

    def test_a_sibling_that_invents_clients_fills_only_its_own_quota(self) -> None:
        awaited, come = AwaitedClaims(4), set[bytes]()
        for number in range(9):
            awaited.add(b"liar", bytes([number]))
        awaited.add(b"honest", b"client")
        assert len(awaited) == 5
        come.update(bytes([number]) for number in range(9))
        assert awaited.has_missing(come.__contains__)
        come.add(b"client")
        assert not awaited.has_missing(come.__contains__)

    def test_without_a_majority_of_a_neighbour_it_completes_only_after_linger_us(self) -> None:
        made = self.made()
        for name in ("w1", "x2", "x3"):
            made.record_answer(key(name))
        made.handle(199, RemainingWork())
        assert not made.is_complete
        made.handle(200, RemainingWork())
        assert made.is_complete

    def test_a_single_replica_has_nobody_to_ask(self) -> None:
        made = RoutingStateCatchUp({b"own": []}, b"own", copy_us=10, linger_us=100, now=0)
        assert not made.handle(0, RemainingWork())
        assert made.is_complete


class TestDetachment:
    def made(self) -> Detachment:
        return Detachment({b"W": [key(name) for name in W]}, settle_us=10, until_us=100)

    def test_strangers_do_not_count(self) -> None:
        made = self.made()
        for name in ("a", "b", "c"):
            made.record_moved(key(name))
        assert not made.handle(50, RemainingWork())

    def test_new_work_postpones_it(self) -> None:
        made = self.made()
        for name in ("w1", "w2"):
            made.record_moved(key(name))
        assert not made.handle(0, RemainingWork())
        assert made.next_us() == 10
        assert not made.handle(5, RemainingWork(keys_held=1))
        assert made.next_us() == 100
        assert not made.handle(6, RemainingWork())
        assert not made.handle(15, RemainingWork())
        assert made.handle(16, RemainingWork())

    def test_a_peer_that_accepts_nothing_does_not_block_it(self) -> None:
        made = self.made()
        for name in W:
            made.record_moved(key(name))
        assert not made.handle(0, RemainingWork([key("w1")]))
        assert made.handle(10, RemainingWork([key("w1")]))

    def test_at_the_deadline_it_leaves_with_any_work_if_others_have_switched(self) -> None:
        made = self.made()
        made.record_moved(key("w1"))
        assert not made.handle(100, RemainingWork(keys_held=3)), "of whom one may lie"
        assert made.next_us() is None
        made.record_moved(key("w2"))
        assert made.next_us() == 100
        assert made.handle(100, RemainingWork([key("w1"), key("w2")], keys_held=3))

    def test_a_scheme_belongs_to_its_node(self) -> None:
        assert entry("X", 3, X).scheme == Scheme(node_id("X"), 3, 3)
