"""A recorded message has no effect: the view of an attacker with recordings of all ages."""

from __future__ import annotations

from functools import cache
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.mesh_network import LABEL, SMALL_CONFIG, TOKEN, SingleNode, advert, publication
from veilcast.authority.epoch import HOUR_US, epoch_of
from veilcast.core.publication import NumberedPublication, make_notify
from veilcast.machine import Address, Delivered, Frame
from veilcast.mesh import paper
from veilcast.mesh.config import Defences, MeshConfig
from veilcast.mesh.heartbeat import NUMBERS
from veilcast.mesh.replay import LIVES_MAX, STRIDE, CounterHistory, HeartbeatHistory, TwoGenerationIds
from veilcast.sim.engine import START_US
from veilcast.sim.mesh.population import TOPIC, role_keyrings
from veilcast.wire import encode, pad
from veilcast.wire.mesh import Subscribe, Unsubscribe

ON = msgspec.structs.replace(SMALL_CONFIG, defences=Defences(replay=True))
A, B = Address("a"), Address("b")


# --- heartbeats --------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, NUMBERS - 1), st.integers(1, 50)), min_size=1, max_size=10))
def test_no_number_of_any_run_is_taken_twice_wherever_the_runs_began(lives: list[tuple[int, int]]) -> None:
    memory, recorded = CounterHistory(), list[int]()
    for first, length in lives:
        recorded += [number for number in ((first + n) % NUMBERS for n in range(length)) if memory.take(number)]
    assert not any(memory.take(number) for number in recorded)


def test_a_run_continues_after_a_gap_and_a_new_one_begins_after_a_jump_and_runs_are_bounded() -> None:
    lives = CounterHistory()
    assert lives.take(5)
    assert lives.take(5 + STRIDE - 1)
    assert len(lives) == 1
    assert not lives.take(6), "overtaken"
    for number in range(1, 200):
        assert lives.take(number * 1_000_000)
    assert len(lives) == LIVES_MAX


def test_the_heartbeat_history_is_bounded_in_neighbours() -> None:
    heard = HeartbeatHistory(ON)
    for number in range(300):
        heard.take(Address(f"n{number}"), 1)
        heard.take(A, number)
    assert len(heard) == 4 * ON.neighbours_max
    assert not heard.take(A, 7)


@given(st.lists(st.integers(0, 30), max_size=200), st.integers(1, 8))
def test_two_generations_remember_at_least_the_last_ids_and_at_most_twice_as_many(
    names: list[int], memory: int
) -> None:
    seen, order = TwoGenerationIds(memory), dict[int, None]()
    for name in names:
        if b"%d" % name not in seen:
            seen.add(b"%d" % name)
            order.pop(name, None)
            order[name] = None
        assert all(b"%d" % recent in seen for recent in list(order)[-memory:])
        assert len(seen) <= 2 * memory


# --- heartbeats ---------------------------------------------------------------------------------------------


def acts_again(config: MeshConfig, later: int, absent: bool = False) -> bool:
    """True if a recorded heartbeat restores a subscription that was withdrawn this many heartbeats ago."""
    bench = SingleNode("forwarder", "a b", config)
    bench.hear("a", advert())
    recorded = pad(encode(bench.beat(102, Subscribe(TOKEN))), config.heartbeat_bytes)
    bench.feed("b", recorded)
    bench._numbers[B] = 102
    assert bench.outward() == [B]
    bench.hear("b", Unsubscribe(TOKEN))
    for _ in range(later):
        bench.hear("b")
    if absent:
        bench.node.peer_lost(B, bench.now)
        bench.hear("a", advert())
    assert bench.outward() == []
    bench.feed("b", recorded)
    return bench.outward() == [B]


@pytest.mark.parametrize("later", [0, 1, 1022, 1023, 3000])
@pytest.mark.parametrize("absent", [False, True])
def test_a_recorded_heartbeat_has_no_effect(later: int, absent: bool) -> None:
    assert not acts_again(ON, later, absent)


def test_without_the_switch_an_old_heartbeat_has_an_effect_again_also_after_a_failure() -> None:
    assert acts_again(SMALL_CONFIG, 3000)
    assert acts_again(SMALL_CONFIG, 1, absent=True)


def test_a_restarted_neighbour_is_heard() -> None:
    bench = SingleNode("forwarder", "a b", ON)
    bench.hear("a", advert())
    bench._numbers[B] = 3_000_000_000
    bench.hear("b", Subscribe(TOKEN))
    assert bench.outward() == [B]


# --- notes --------------------------------------------------------------------------------------------------


@cache
def recordings() -> list[bytes]:
    """Ten thousand notifications of one publisher: more than a node of the paper profile remembers, and a subscriber's
    window holds."""
    keys = role_keyrings()["publisher"].keys_at(epoch_of(START_US, HOUR_US)).topic(TOPIC)
    entropy = Random(1).randbytes
    return [
        encode(make_notify(keys, NumberedPublication(b"stream 1", number, publication(b"%d" % number)), entropy))
        for number in range(1, 10_001)
    ]


@pytest.fixture
def believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recordings are authentic. Checking that twenty thousand times takes long."""
    monkeypatch.setattr(paper, "check_notify", lambda *_: None)


def played(config: MeshConfig) -> tuple[SingleNode, int, int]:
    """A subscriber that gets all recordings twice. Returns what the second time made it deliver and forward."""
    bench = SingleNode("subscriber", "a b", config)
    bench.node.subscribe(LABEL, bench.now)
    bench.hear("a", advert())
    bench.hear("b", Subscribe(TOKEN))
    assert feed(bench) == (10_000, 10_000)
    delivered, passed_on = feed(bench)
    return bench, delivered, passed_on


def feed(bench: SingleNode) -> tuple[int, int]:
    delivered, frames = 0, list[Frame]()
    for recording in recordings():
        bench.feed("a", recording)
        frames += [frame for frame in bench.frames() if frame.data == recording]
        for event in bench.events():
            assert isinstance(event, Delivered)
            delivered += 1
            bench.node.acknowledge(event.note.id, bench.now)
    return delivered, len(frames)


@pytest.mark.usefixtures("believed")
def test_ten_thousand_old_notifications_are_neither_delivered_nor_forwarded_again() -> None:
    bench, delivered, passed_on = played(ON)
    assert (delivered, passed_on) == (0, 0)
    assert bench.node.sizes()["seen"] == 10_000


@pytest.mark.usefixtures("believed")
def test_without_the_switch_old_notifications_flood_the_mesh_again_but_none_is_delivered_twice() -> None:
    bench, delivered, passed_on = played(SMALL_CONFIG)
    assert (delivered, passed_on) == (0, 10_000)
    assert bench.node.sizes()["seen"] == SMALL_CONFIG.seen_max
