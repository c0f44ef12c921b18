"""Roots: which member is elected, which is accepted, and what happens when it fails."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from support.hardened_mesh_network import (
    EPOCH_US,
    FIRST,
    HARDENED_CONFIG,
    PERIOD_US,
    RULES,
    HardenedMeshNetwork,
    SingleHardenedNode,
    call,
    certified_notify,
    lot_rank,
    member,
    only,
    ring,
    root_advert,
    token,
    topic_keys,
    with_rules,
)
from support.mesh_network import LABEL
from veilcast.authority.keyring import EpochKeys, Keyring
from veilcast.crypto import hash_chain, vrf
from veilcast.errors import ExpiredError
from veilcast.machine import Address
from veilcast.mesh import hardened
from veilcast.mesh.advertisements import make_advert
from veilcast.mesh.roots import leading_origin
from veilcast.sim.engine import START_US
from veilcast.sim.keyrings import KEYRING_EPOCHS
from veilcast.wire import encode
from veilcast.wire.mesh import Advert, Call, Candidacy, Greet, Notify, Stem, StemReceipt, Subscribe, Unadvert

replace = msgspec.structs.replace
ELECTION = 12 + RULES.patience_periods + 6
"""Periods in which a lottery is decided: the worst lot waits for twelve."""


def by_lot() -> list[int]:
    """Numbers of members, the best lot first."""
    return sorted(range(12), key=lambda number: lot_rank(member(number)))


# --- standing -----------------------------------------------------------------------------------------------


def test_the_better_the_lot_the_shorter_the_wait() -> None:
    waits = []
    for number in by_lot():
        bench = SingleHardenedNode(number=number)
        bench.hear("a", call())
        said = only(bench.run(ELECTION), Advert)
        waits.append(said[0][0] - START_US)
    assert waits == sorted(waits)
    assert waits[0] < waits[-1]


def test_a_member_that_has_just_started_waits_longer() -> None:
    waits = []
    for uptime in (1, 600):
        bench = SingleHardenedNode(config=with_rules(uptime_periods=uptime), number=by_lot()[3])
        bench.run(2)
        bench.hear("a", call())
        waits.append(only(bench.run(ELECTION + 6), Advert)[0][0])
    assert waits[0] < waits[1]


def test_a_call_is_forwarded_to_all_other_neighbours_once() -> None:
    bench = SingleHardenedNode()
    bench.hear("a", call())
    bench.hear("b", call())
    said = only(bench.run(3), Call)
    assert [name for _, name, _ in said] == ["b", "c"]


def test_a_member_that_does_not_volunteer_never_stands() -> None:
    bench = SingleHardenedNode(config=with_rules(volunteer=False))
    bench.hear("a", call())
    assert only(bench.run(4 * ELECTION), Advert) == []


def test_no_member_stands_if_there_is_a_root() -> None:
    bench = SingleHardenedNode(number=by_lot()[0])
    bench.hear("a", root_advert(by_lot()[5]))
    bench.run(2 * ELECTION)
    assert not bench.node.overlay.originates(token())


def test_a_root_that_advertised_before_its_turn_is_displaced_by_a_better_lot() -> None:
    best, worst = by_lot()[0], by_lot()[-1]
    for number, stands in ((best, True), (worst, False)):
        bench = SingleHardenedNode(number=number)
        bench.hear("a", call())
        bench.hear("b", root_advert(by_lot()[6]))
        bench.run(2 * ELECTION)
        assert bench.node.overlay.originates(token()) == stands


def test_a_root_that_waited_for_its_turn_stays_although_an_absent_member_has_a_better_lot() -> None:
    bench = SingleHardenedNode(config=with_rules(uptime_periods=600), number=by_lot()[0])
    bench.hear("a", call())
    bench.run(ELECTION - 8)
    bench.hear("b", root_advert(by_lot()[-1]))
    bench.run(4 * ELECTION)
    assert not bench.node.overlay.originates(token())


def test_the_root_of_this_epoch_need_not_wait_for_the_next() -> None:
    bench = SingleHardenedNode(number=by_lot()[0])
    bench.hear("a", root_advert(by_lot()[-1]))
    bench.run_until(START_US + EPOCH_US - RULES.lead_periods * PERIOD_US + PERIOD_US)
    bench.hear("a", call(1))
    bench.hear("a", root_advert(by_lot()[-1], later=1))
    bench.run(2 * ELECTION)
    assert not bench.node.overlay.originates(token(1))


@pytest.mark.parametrize(("place", "stays"), [(1, True), (0, False)])
def test_a_root_does_not_leave_the_next_mesh_to_a_worse_lot_that_comes_first(place: int, stays: bool) -> None:
    """The call for it came over a stem to the root. The relays on the way have it too."""
    usurper, bench = by_lot()[2 * place], SingleHardenedNode(number=by_lot()[1], config=with_rules(onward=0.0))
    bench.hear("a", call())
    bench.run(ELECTION)
    assert bench.node.overlay.originates(token())
    bench.send("a", Stem(True, encode(call(1))))
    bench.run_until(START_US + EPOCH_US - (RULES.lead_periods + 2) * PERIOD_US)
    bench.hear("b", root_advert(usurper, later=1))
    bench.run(4)
    assert bench.node.overlay.originates(token(1)) == stays


def test_a_candidate_steps_back_for_a_better_one_and_not_for_a_worse() -> None:
    best, middle, worst = by_lot()[0], by_lot()[6], by_lot()[-1]
    bench = SingleHardenedNode(number=middle)
    bench.hear("a", call())
    bench.run(ELECTION)
    assert bench.node.overlay.originates(token())
    bench.hear("a", root_advert(worst))
    bench.run(3)
    assert bench.node.overlay.originates(token())
    bench.hear("b", root_advert(best))
    said = bench.run(3)
    assert not bench.node.overlay.originates(token())
    assert [name for _, name, _ in only(said, Unadvert)][:3] == ["a", "b", "c"]


def test_of_several_candidates_the_best_leads() -> None:
    bench = SingleHardenedNode("forwarder")
    bench.hear("a", root_advert(by_lot()[4]))
    bench.hear("b", root_advert(by_lot()[1]))
    bench.hear("c", Subscribe(token()))
    bench.run(RULES.follow_periods + 2)
    assert bench.node.overlay.branches.inward(token()) == ["b"]


def test_a_root_begins_the_next_mesh_a_lead_before_the_edge() -> None:
    bench = SingleHardenedNode()
    bench.hear("a", call())
    bench.run(ELECTION)
    bench.hear("a", call(1))
    begin_us = START_US + EPOCH_US - RULES.lead_periods * PERIOD_US
    assert [message for _, _, message in only(bench.run_until(begin_us), Advert)] == []
    said = only(bench.run(3), Advert)
    assert [message.token for _, _, message in said if isinstance(message, Advert)] == [token(1)] * 3


def test_a_root_that_gets_the_next_call_late_begins_at_once() -> None:
    bench = SingleHardenedNode()
    bench.hear("a", call())
    bench.run(ELECTION)
    bench.run_until(START_US + EPOCH_US + 20 * PERIOD_US)
    bench.hear("a", call(1))
    said = only(bench.run(2), Advert)
    assert len(said) == 3


def test_a_member_whose_membership_has_ended_does_not_stand() -> None:
    bench = SingleHardenedNode(number=by_lot()[-1], config=with_rules(grace_periods=30))
    bench.now = START_US + KEYRING_EPOCHS * EPOCH_US - 5 * PERIOD_US
    bench.run(3)
    bench.hear("a", call(KEYRING_EPOCHS - 1))
    assert only(bench.run_until(START_US + KEYRING_EPOCHS * EPOCH_US + 33 * PERIOD_US), Advert) == []
    assert bench.node.sizes()["calls"] == 0


@pytest.mark.parametrize("hold_back_epochs", [0.0, 0.1])
def test_a_root_whose_membership_has_ended_acknowledges_nothing(hold_back_epochs: float) -> None:
    config = with_rules(onward=0.0, grace_periods=30, hold_back_epochs=hold_back_epochs)
    bench, last = SingleHardenedNode(number=by_lot()[0], config=config), KEYRING_EPOCHS - 1
    end_us = START_US + KEYRING_EPOCHS * EPOCH_US
    bench.now = end_us - 80 * PERIOD_US
    bench.run(3)
    bench.hear("a", call(last))
    bench.run_until(end_us + PERIOD_US)
    assert bench.node.overlay.originates(token(last))
    bench.hear("b", Subscribe(token(last)))
    said = bench.send("a", Stem(True, encode(certified_notify(b"x", later=last)))) + bench.run(20)
    assert [name for _, name, _ in only(said, Notify)] == ["b"]
    assert only(said, StemReceipt) == []


def test_no_member_begins_a_mesh_for_an_epoch_beyond_its_membership(monkeypatch: pytest.MonkeyPatch) -> None:
    """It could acknowledge nothing in it, nor start a fresh chain."""
    this, following, without_end = call(), call(1), Keyring.keys_at

    def at(keyring: Keyring, epoch: int) -> EpochKeys:
        if epoch > FIRST:
            raise ExpiredError("the membership is for the first epoch only")
        return without_end(keyring, epoch)

    monkeypatch.setattr(Keyring, "keys_at", at)
    bench = SingleHardenedNode(number=by_lot()[0])
    bench.hear("a", this)
    bench.run(ELECTION)
    assert bench.node.overlay.originates(this.token)
    bench.hear("a", following)
    bench.run_until(START_US + EPOCH_US - PERIOD_US)
    assert not bench.node.overlay.originates(following.token)


def test_an_unanswered_call_is_sent_to_later_neighbours() -> None:
    """Otherwise only the nodes present at the call would know it, and they may not volunteer."""
    bench = SingleHardenedNode(config=with_rules(volunteer=False))
    bench.hear("a", call())
    bench.run(2)
    bench.hear("b", Greet())
    assert [name for _, name, _ in only(bench.run(2), Call)] == ["b"]


# --- what is believed ---------------------------------------------------------------------------------------


def forged_adverts() -> dict[str, Advert]:
    right, other = root_advert(50), root_advert(51)
    assert right.root is not None
    assert right.anchor is not None
    assert other.root is not None
    yesterday = root_advert(50, at_us=START_US - 3 * EPOCH_US)
    publisher = topic_keys()
    own = make_advert(publisher, lambda size: bytes(size))
    return {
        "a lot of its own liking": replace(right, root=replace(right.root, draw=other.root.draw)),
        "a lot that is no point": replace(right, root=replace(right.root, draw=b"\xff" * 32)),
        "another's certificate": replace(right, root=replace(other.root, draw=right.root.draw)),
        "another's candidacy": replace(right, root=other.root),
        "a publisher's certificate": replace(right, root=Candidacy(right.certificate, right.root.draw)),
        "an anchor that has expired": yesterday,
        "an anchor for longer": replace(right, anchor=replace(right.anchor, expires_us=START_US + 3 * EPOCH_US)),
        "an anchor for too long": root_advert(50, at_us=START_US + 30 * EPOCH_US),
        "another value": replace(right, value=hash_chain.start_chain(lambda size: bytes(size))),
        "another's chain": replace(right, anchor=other.anchor, value=other.value),
        "no candidacy": replace(right, root=None),
        "no anchor": replace(right, anchor=None),
        "a publisher's own advert": own,
        "no call": replace(right, signature=bytes(64)),
        "the call of another epoch": replace(right, token=token(1)),
        "an epoch too far away": root_advert(50, later=2),
    }


@pytest.mark.parametrize("forgery", forged_adverts())
def test_a_forged_root_advertisement_is_refused(forgery: str) -> None:
    bench = SingleHardenedNode()
    bench.hear("a", forged_adverts()[forgery])
    assert only(bench.run(3), Advert) == []
    assert bench.node.sizes()["routes"] == 0
    assert bench.node.sizes()["calls"] == 0
    assert sum(bench.node.refused.values()) == 1


def copied(advert: Advert, number: int, expires_us: int, length: int = HARDENED_CONFIG.d_max) -> Advert:
    """The chain of another's advertisement, or its first part, as this member would claim it."""
    end, keys, lineage = hash_chain.advance_chain(advert.value, length), member(number), advert.certificate.leaf.lineage
    statement = hash_chain.encode_anchor(advert.token, end, length, expires_us)
    anchor = hash_chain.Anchor(
        end, length, expires_us, vrf.prove_lot(keys.lot, lineage, statement, Random(number).randbytes)
    )
    return replace(advert, anchor=anchor, root=Candidacy(keys.membership, vrf.draw_lot(keys.lot, lineage)))


@pytest.mark.parametrize("copy_first", [True, False])
@pytest.mark.parametrize("length", [HARDENED_CONFIG.d_max, 3])
def test_a_member_that_signs_the_root_s_chain_does_not_take_its_place(copy_first: bool, length: int) -> None:
    bench, true = SingleHardenedNode(), root_advert(by_lot()[0])
    copy = copied(true, by_lot()[-1], START_US + 6 * PERIOD_US, length)
    for advert in (copy, true) if copy_first else (true, copy):
        bench.hear("b" if advert is copy else "a", advert)
    origin = leading_origin(bench.node.overlay.reachable_origins(token()))
    assert origin is not None
    assert (origin.advert.root, origin.via) == (true.root, "a")
    told = {message.root for _, _, message in only(bench.run(2), Advert) if isinstance(message, Advert)}
    assert true.root in told
    bench.run(10)
    assert [origin.advert.root for origin in bench.node.overlay.reachable_origins(token())] == [true.root]
    bench.hear("a", Unadvert(token(), true.value))
    assert bench.node.overlay.reachable_origins(token()) == []


def test_a_better_lot_does_not_take_over_an_own_chain() -> None:
    bench = SingleHardenedNode(number=by_lot()[1])
    bench.hear("a", call())
    [ours, *_] = [message for _, _, message in only(bench.run(ELECTION), Advert) if isinstance(message, Advert)]
    bench.hear("b", copied(ours, by_lot()[0], START_US + EPOCH_US))
    assert bench.node.overlay.originates(token())
    assert bench.node.refused == {"ForgedError": 1}


def test_the_planted_bug_of_an_unchecked_lot_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardened, "check_root_advert", lambda *_: None)
    with pytest.raises(AssertionError):
        test_a_forged_root_advertisement_is_refused("a lot of its own liking")


@pytest.mark.parametrize("later", [-2, 2, 40])
def test_a_call_of_another_time_is_refused(later: int) -> None:
    bench = SingleHardenedNode()
    if later < 0:
        bench.now += -later * EPOCH_US
        bench.run(2)
    bench.hear("a", call(max(0, later)))
    assert only(bench.run(2), Call) == []
    assert bench.node.refused["StaleError"] == 1


def test_a_call_of_a_member_that_is_no_publisher_is_refused() -> None:
    bench = SingleHardenedNode()
    right, stranger = call(), ring("forwarder", 9).membership.certificate
    for wrong in (
        Call(right.token, right.certificate, bytes(64)),
        Call(right.token, stranger, right.signature),
        Call(bytes(32), right.certificate, right.signature),
    ):
        bench.hear("a", wrong)
    assert only(bench.run(ELECTION), Call) == []
    assert sum(bench.node.refused.values()) == 3
    assert bench.node.sizes()["calls"] == 0


def test_ten_thousand_forged_adverts_for_one_call_leave_no_trace() -> None:
    """Without a check of the anchor, the value of a genuine advertisement can be anything. Here it is checked."""
    bench = SingleHardenedNode("subscriber", "a b m")
    bench.node.subscribe(LABEL, bench.now)
    right = root_advert()
    bench.hear("a", right)
    bench.run(RULES.window_periods + 2)
    sizes = bench.node.sizes()
    for number in range(10_000):
        forged = replace(right, value=number.to_bytes(len(right.value), "big"))
        bench.hear("m", forged)
    said = bench.run(3)
    assert only(said, Advert) == []
    assert bench.node.sizes() == sizes
    assert bench.node.refused.total() == 10_000
    assert bench.node.overlay.branches.inward(token()) == ["a"]
    bench.events()
    bench.send("a", certified_notify(b"x"))
    assert bench.delivered() == [b"x"]


# --- whole hamlets ------------------------------------------------------------------------------------------

RING = "p-a a-b b-c c-d d-s s-e e-p a-d b-e"


@pytest.mark.parametrize("seed", range(4))
def test_there_is_one_root_and_it_keeps_over_epochs(seed: int) -> None:
    network = HardenedMeshNetwork(RING, seed=seed, cover=0.5).run_until(0.5)
    [root] = network.roots()
    for later in (1.5, 2.5):
        network.run_until(later)
        assert network.roots() == [root]


@pytest.mark.parametrize("seed", range(3))
def test_when_the_root_crashes_another_takes_over_and_delivery_resumes(seed: int) -> None:
    network = HardenedMeshNetwork(RING, seed=seed, cover=0.5, config=with_rules(volunteer=True)).run_until(0.4)
    [first] = network.roots()
    if first in "ps":
        pytest.skip("the root is the publisher or the reader of this test")
    network.world.crash(Address(first))
    network.run(ELECTION + 10)
    [second] = network.roots()
    assert second != first
    network.publish(b"x", wait=12)
    assert network.delivered("s") == [b"x"]
    network.world.restart(Address(first))
    network.run_until(1.5)
    assert len(network.roots()) == 1
    network.publish(b"y", wait=12)
    assert network.delivered("s") == [b"x", b"y"]


def test_a_root_that_dies_with_the_next_call_is_called_for_again() -> None:
    network = HardenedMeshNetwork(RING, cover=0.5).run_until(0.55)
    [root] = network.roots()
    assert root not in "ps"
    network.run_until(0.79)
    network.world.crash(Address(root))
    network.run_until(1.4)
    assert len(network.roots()) == 1
    network.publish(b"x", wait=12)
    assert network.delivered("s") == [b"x"]


def test_two_halves_that_elected_two_roots_end_with_one() -> None:
    network = HardenedMeshNetwork("p-a a-b p-b b-c c-d d-s s-c", cover=1)
    network.run_until(0.4)
    for way in (("b", "c"), ("c", "b")):
        network.world.block(Address(way[0]), Address(way[1]))
    network.run(ELECTION + 20)
    assert len(network.roots()) == 2
    for way in (("b", "c"), ("c", "b")):
        network.world.unblock(Address(way[0]), Address(way[1]))
    network.run(20)
    assert len(network.roots()) == 1
    network.publish(b"x", wait=12)
    assert network.delivered("s") == [b"x"]
    network.run_until(1.5)
    assert len(network.roots()) == 1
    network.publish(b"y", wait=12)
    assert network.delivered("s") == [b"x", b"y"]


# --- members who stand out of turn --------------------------------------------------------------------------


def test_members_with_bad_lots_cannot_fill_the_table_before_the_best_advertises() -> None:
    """Twelve of them, with as many chains each as the quota allows, through two neighbours."""
    members = by_lot()
    bench = SingleHardenedNode("subscriber", "a b c")
    bench.node.subscribe(LABEL, bench.now)
    for seed in range(4):
        for number in members[1:]:
            bench.hear("ab"[seed % 2], root_advert(number, seed=seed))
        bench.run(1)
    bound = bench.config.origins_max
    assert len(bench.node.overlay.routes.origins(token())) <= bound
    bench.hear("c", root_advert(members[0]))
    bench.run(RULES.window_periods + RULES.repair_periods + 2)
    assert bench.node.overlay.branches.inward(token()) == ["c"]
    assert len(bench.node.overlay.routes.origins(token())) <= bound
