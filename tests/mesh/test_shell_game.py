"""The shell game as a policy of real nodes: when they play, which invariants hold, and the result."""

from __future__ import annotations

from math import exp, sqrt
from statistics import mean, stdev
from typing import Any

import msgspec
import pytest

from support.mesh_network import SMALL_CONFIG, TOKEN, MeshNetwork, SingleNode, advert
from veilcast.errors import ConfigError
from veilcast.machine import Address
from veilcast.mesh import swap
from veilcast.mesh.config import MeshConfig, ShellGameConfig
from veilcast.mesh.shell_game import _GameState
from veilcast.mesh.swap import SwapGame, SwapRule, Swaps, SwapState
from veilcast.observe import CellRow, ObservationRow, TopologyRow
from veilcast.sim import scenario
from veilcast.sim.faults import Storm
from veilcast.sim.links import Weather
from veilcast.sim.mesh.population import MeshPopulation
from veilcast.wire.base import Message
from veilcast.wire.mesh import Subscribe, SwapAsk, SwapCommit, SwapLock, SwapVote, Unadvert

BASE = scenario.load_scenario("mesh-shellgame").config
GAME = bytes(16)


def with_game(**options: Any) -> MeshConfig:
    return msgspec.structs.replace(SMALL_CONFIG, shellgame=ShellGameConfig(**{"start": "child", **options}))


def run(seed: int, *, notes: int = 100, owed_us: int = 0, **config: Any) -> scenario.ScenarioOutcome:
    """The packaged scenario, with other options of the game or with faults. Links repair losses."""
    replace, population = msgspec.structs.replace, BASE.population
    assert isinstance(population, MeshPopulation)
    game = replace(population.mesh.shellgame, **config.pop("game", {}))
    mesh = replace(population.mesh, shellgame=game, cover=replace(population.mesh.cover, **config.pop("cover", {})))
    checks = config.pop("checks", population.checks)
    people = replace(population, mesh=mesh, notes=notes, owed_us=owed_us, checks=checks)
    return scenario.run_scenario(scenario.Scenario("test", replace(BASE, population=people, **config)), seed)


# --- one node


def played_on(config: MeshConfig) -> SingleNode:
    """A forwarder between p and two children, with stable ways."""
    bench = SingleNode("forwarder", "p v w x", config)
    bench.hear("p", advert())
    bench.hear("v", Subscribe(TOKEN))
    bench.hear("w", Subscribe(TOKEN))
    for _ in range(config.shellgame.settle_periods):
        for name in ("p", "v", "w", "x"):
            bench.hear(name)
        bench.next_riders()
    return bench


def test_a_lock_is_asked_for_and_granted_inside_heartbeats() -> None:
    bench = played_on(with_game(wait_us=10**12, first="exponential"))
    bench.hear("p", SwapLock(GAME, TOKEN, False))
    assert bench.next_riders() == {"p": [SwapVote(GAME, True)]}
    bench.hear("v", SwapLock(bytes([1] * 16), TOKEN, True))
    assert bench.next_riders() == {"v": [SwapVote(bytes([1] * 16), False)]}


def test_a_successor_outside_the_neighbourhood_gets_heartbeats_and_both_nodes_get_notifications_for_a_lease() -> None:
    bench = played_on(with_game(wait_us=10**12, first="exponential"))
    bench.hear("p", SwapLock(GAME, TOKEN, False))
    bench.next_riders()
    bench.hear("p", SwapCommit(GAME, TOKEN, "q"))
    assert bench.inward() == ["q"]
    assert sorted(bench.node.overlay.mesh_neighbours(TOKEN)) == ["p", "q", "v", "w"]
    assert "q" in [frame.destination for frame in bench.tick()]
    for _ in range(4):
        bench.node.receive(b"\0", Address("q"), bench.now)  # Not a heartbeat: but it is listened to.
    assert bench.node.refused["MalformedError"] == 4


def test_a_node_whose_parent_at_its_position_fails_asks_for_a_fresh_chain() -> None:
    bench = played_on(with_game(wait_us=10**12, first="exponential"))
    bench.hear("p", SwapLock(GAME, TOKEN, False))
    bench.next_riders()
    bench.hear("p", SwapCommit(GAME, TOKEN, "q"))
    bench.node.peer_lost(Address("q"), bench.now)
    said = [type(message).__name__ for message in bench.next_riders()["p"]]
    assert "Unadvert" in said
    assert bench.inward() == ["p"]


def test_an_old_chain_beside_fresh_ones_causes_no_repeated_requests() -> None:
    bench = played_on(with_game(wait_us=10**12, first="exponential"))
    bench.hear("x", advert(2))
    asked: list[Unadvert] = [message for message in bench.next_riders()["x"] if isinstance(message, Unadvert)]
    for fresh in range(3, 30):
        for name in ("p", "v", "w", "x"):
            bench.hear(name, *([advert(fresh)] if name == "x" and fresh < 8 else []))
        asked += [message for message in bench.next_riders().get("x", []) if isinstance(message, Unadvert)]
    # The one that came unawaited is asked for again, and stays as well; those that came since are let be.
    assert [message.value for message in asked] == [advert(2).value] * len(asked) != []


def test_a_child_missing_from_its_parents_table_is_entered_again_despite_frequent_fresh_chains() -> None:
    bench = played_on(with_game(wait_us=10**12, first="exponential"))
    said: list[Message] = []
    for fresh in range(2, 22):
        bench.hear("p", advert(fresh), Unadvert(TOKEN, advert(fresh - 1).value))
        bench.hear("v")
        bench.hear("w")
        said += [message for message in bench.next_riders().get("p", []) if isinstance(message, Subscribe)]
    assert len(said) >= 2


def test_a_chain_that_came_during_a_game_is_followed_and_not_attributed_to_the_position() -> None:
    bench = played_on(with_game(wait_us=10**12, first="exponential"))
    bench.hear("p", SwapLock(GAME, TOKEN, False))
    bench.next_riders()
    bench.hear("x", advert(2))
    bench.hear("p", SwapCommit(GAME, TOKEN, "q"))
    assert bench.inward() == ["q", "x"]


def test_a_node_without_a_way_to_an_origin_takes_part_in_no_game() -> None:
    bench = played_on(with_game(wait_us=10**12, first="exponential"))
    bench.node.peer_lost(Address("p"), bench.now)
    bench.next_riders()
    bench.hear("v", SwapLock(GAME, TOKEN, True))
    assert bench.next_riders()["v"] == [SwapVote(GAME, False)]


def test_a_former_neighbour_of_an_ended_position_can_ask_for_the_topic_again() -> None:
    """Until then its subscription may be one from before the swap, and is refused."""
    bench = played_on(with_game(wait_us=10**12, first="exponential"))
    bench.hear("p", SwapLock(GAME, TOKEN, False))
    bench.next_riders()
    bench.hear("p", SwapCommit(GAME, TOKEN, "q"))
    bench.hear("p", Subscribe(TOKEN))
    assert bench.outward() == ["v", "w"]
    bench.hear("x", advert(2))
    bench.hear("p", Unadvert(TOKEN, advert().value))
    bench.hear("p", Subscribe(TOKEN))
    assert bench.outward() == ["v", "w", "p"]


def test_a_neighbour_that_asks_for_lock_after_lock_holds_a_node_for_half_of_the_time_in_the_long_run() -> None:
    bench = played_on(with_game(wait_us=10**12, first="exponential", patience_periods=20))
    bound = 0
    for second in range(400):
        bench.hear("p")
        bench.hear("w", Subscribe(TOKEN))
        bench.hear("v", Subscribe(TOKEN), SwapLock(second.to_bytes(16), TOKEN, True))
        bound += bench.node.overlay.policy.is_locked(TOKEN)
        bench.next_riders()
    assert 180 < bound < 400 / 2 + 20 + 10
    bench.hear("w", SwapLock(bytes([1] * 16), TOKEN, True))
    assert bench.next_riders()["w"] == [SwapVote(bytes([1] * 16), True)]  # The others are not refused for that.


def test_acquaintances_are_bounded() -> None:
    bench = played_on(with_game(wait_us=10**12, first="exponential", acquaintances_max=2))
    bench.hear("p", SwapAsk(GAME, TOKEN, ("a", "b"), ("c",)))
    assert bench.next_riders()["p"][0].agreed is False  # type: ignore[attr-defined]
    bench.hear("p", SwapAsk(bytes([1] * 16), TOKEN, ("a",), ("b",)))
    assert bench.next_riders()["p"][0].agreed is True  # type: ignore[attr-defined]
    bench.hear("p", SwapCommit(bytes([1] * 16), TOKEN, "x"))
    assert bench.node.overlay.acquaintances() == ["a", "b"]
    bench.next_riders()
    bench.hear("p", SwapLock(bytes([2] * 16), TOKEN, True))  # It would bring a third.
    assert bench.next_riders()["p"] == [SwapVote(bytes([2] * 16), False)]


@pytest.mark.parametrize(
    "bad",
    [
        {"rate": -1.0},
        {"rate": float("nan")},
        {"rate": float("inf")},
        {"wait_us": 0},
        {"lease_periods": 7},
        {"remind_periods": 0},
        {"patience_periods": 0},
        {"acquaintances_max": 0},
    ],
)
def test_impossible_options_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ShellGameConfig(**bad)


# --- when to play


def test_a_node_cools_down_with_time_or_with_games() -> None:
    player = _GameState(0, ())
    player.games = 3
    assert player.play_probability(0.05, "time", 20_000_000) == exp(-1)
    assert player.play_probability(0.5, "count", 20_000_000) == exp(-1.5)
    assert player.play_probability(0.0, "time", 10**12) == 1


@pytest.mark.parametrize("decay", ["time", "count"])
def test_faster_cooling_makes_fewer_games(decay: str) -> None:
    def games(rate: float) -> int:
        return run(2, notes=0, game={"decay": decay, "rate": rate}).facts["swaps"]

    assert games(0.0) > 2 * games(0.5) > 0


@pytest.mark.parametrize("plays", [False, True])
def test_a_publisher_keeps_its_place_unless_it_plays(plays: bool) -> None:
    network = MeshNetwork("p-f f-s", config=with_game(rate=0.0, publisher_plays=plays, settle_periods=2)).run(120)
    moved = network.inward("p") != [] or network.outward("p") != ["f"]
    others = network.node("f").overlay.policy.swaps_completed() + network.node("s").overlay.policy.swaps_completed()
    assert others > 0
    assert (network.node("p").overlay.policy.swaps_completed() > 0) is plays
    assert moved or not plays


def test_figure_6_the_parent_of_a_newcomer_plays_and_nodes_with_new_neighbours_play_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P0 Fig. 6: s4 joins, f swaps with it, p declines, f3 swaps with s3, s4 is triggered again."""
    sequences = [sequence for seed in range(8) if (sequence := figure_6(seed, monkeypatch))[0] == ("f", "s4")]
    assert sequences, "f never chose the newcomer"
    for sequence in sequences:
        assert sequence[1] == ("f3", "s3")
        assert sequence[2][0] == "s4"
        assert all(starter != "p" for starter, _ in sequence)


def figure_6(seed: int, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The games after s4's link comes up. Only changes make nodes play, not waits, and none before."""
    games: list[tuple[str, str]] = []
    warm = False
    finish = Swaps._on_gone

    def gone(self: Swaps, game: SwapGame, message: SwapCommit, source: Address, now: int) -> None:
        finish(self, game, message, source, now)
        (name,) = [name for name in network.neighbours if network.node(name).overlay.policy.swaps is self]  # type: ignore[attr-defined]
        games.append((name, game.partner))

    key: tuple[SwapState, type[Message]] = (SwapState.DECIDED, SwapCommit)
    monkeypatch.setitem(swap.OWN_GAME_RULES, key, SwapRule(gone, swap.OWN_GAME_RULES[key].leads))
    monkeypatch.setattr(_GameState, "play_probability", lambda self, rate, decay, now: float(warm))
    config = with_game(start="change", settle_periods=1, wait_us=10**12)
    network = MeshNetwork("p-f f-f3 f3-s3 f-s4 p-f2 f2-s1 f2-s2", seed=seed, config=config)
    for pair in (("f", "s4"), ("s4", "f")):
        network.world.block(Address(pair[0]), Address(pair[1]))
    network.run(15)
    assert games == []
    assert network.outward("f") == ["f3"]
    warm = True
    for pair in (("f", "s4"), ("s4", "f")):
        network.world.unblock(Address(pair[0]), Address(pair[1]))
    network.run(60)
    return games or [("", "")]


# --- what holds meanwhile


OPTIONS: dict[str, dict[str, Any]] = {
    "first child at once": {},
    "first neighbour after a wait": {"game": {"start": "neighbour", "first": "exponential", "rate": 0.0}},
    "any change, decay on count": {"game": {"start": "change", "decay": "count", "rate": 0.3}},
    "the publisher plays": {"game": {"publisher_plays": True, "rate": 0.0}},
    "linked to all near": {"game": {"reach": 3, "rate": 0.0}},
    "publications held": {"game": {"hold_periods": 12}},
    "with covers (PFSG)": {"cover": {"rule": "one", "delay_us": 3_000_000}, "game": {"rate": 0.02}},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
def test_no_note_is_lost_while_games_are_played(options: dict[str, Any]) -> None:
    outcome = run(1, **options)
    assert outcome.violations == ()
    assert outcome.facts["swaps"] > 0


FAULTS: dict[str, tuple[str, ...]] = {
    "copies and wrong order": ("duplicate", "reorder"),
    "crashes": ("crash",),
    "pauses": ("pause",),
    "crashes, pauses and wrong clocks": ("crash", "pause", "skew"),
}


@pytest.mark.parametrize("linked", [{}, {"reach": 3}], ids=["", "linked to all near"])
@pytest.mark.parametrize("kinds", FAULTS.values(), ids=list(FAULTS))
def test_once_faults_have_ended_every_subscriber_is_reached_and_no_lock_outlived_its_lease(
    kinds: tuple[str, ...], linked: dict[str, int]
) -> None:
    checks = ("once", "intact", "readers", "bounds", "everyone", "leases", "reach")
    span: dict[str, Any] = {"notes": 140, "owed_us": 145_000_000, "duration_us": 160_000_000}
    outcome = run(3, game={"rate": 0.02, **linked}, checks=checks, swarm=scenario.Swarm(kinds), **span)
    assert outcome.violations == ()
    assert outcome.facts["swaps"] > 0


def test_under_loss_locks_end_with_their_leases_and_tables_stay_bounded() -> None:
    storm = Storm(at_us=15_000_000, for_us=60_000_000, weather=Weather(loss_ppm=300_000, duplicate_ppm=200_000))
    outcome = run(4, checks=("once", "intact", "readers", "bounds", "leases"), faults=(storm,))
    assert outcome.violations == ()


def test_a_forgotten_lock_release_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Swaps, "expire", lambda self, now: None)
    monkeypatch.setattr(Swaps, "_give_up", lambda self, game, now: None)
    violations = [violation for seed in range(3) for violation in run(seed).violations]
    assert any(violation.startswith("LocksExpire") for violation in violations)


def test_an_edge_lost_in_a_swap_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """v2 forgets to take over one of v1's children, and ignores its reminders too."""
    ask = Swaps._on_ask

    def forgetful(self: Swaps, message: SwapAsk, source: Address, now: int) -> None:
        ask(self, SwapAsk(message.game, message.token, message.inward, message.outward[1:]), source, now)

    key: tuple[SwapState, type[Message]] = (SwapState.FREE, SwapAsk)
    monkeypatch.setitem(swap.OTHER_GAME_RULES, key, SwapRule(forgetful, swap.OTHER_GAME_RULES[key].leads))
    violations = [violation for seed in range(3) for violation in run(seed).violations]
    assert any(violation.startswith(("Everyone", "Tree", "Reach")) for violation in violations)


# --- what comes of it


def test_an_observer_sees_new_pairs_and_one_size_of_all_frames_except_notifications() -> None:
    rows: list[ObservationRow] = []
    population = BASE.population
    assert isinstance(population, MeshPopulation)
    silent = msgspec.structs.replace(population, notes=0)
    config = msgspec.structs.replace(BASE, population=silent, duration_us=40_000_000)
    outcome = scenario.run_scenario(scenario.Scenario("seen", config), 2, rows)
    ties = {frozenset((row.u, row.v)) for row in rows if isinstance(row, TopologyRow)}
    cells = [row for row in rows if isinstance(row, CellRow)]
    assert outcome.facts["swaps"] > 0
    assert {row.size for row in cells} == {population.mesh.heartbeat_bytes}
    strangers = {(row.src, row.dst) for row in cells if frozenset((row.src, row.dst)) not in ties}
    assert strangers
    assert any((dst, src) in strangers for src, dst in strangers)


def test_after_enough_games_a_leaf_is_as_likely_a_subscriber_as_any_other_node() -> None:
    """The share of subscribers among leaves tends to |Sa|/(|Va|-1): within three standard errors. At first it is 1."""
    excess = [sample for seed in range(4) for sample in leaf_excess(seed)]
    error = stdev(excess) / sqrt(len(excess))
    assert abs(mean(excess)) < 3 * error < 0.2


def leaf_excess(seed: int) -> list[float]:
    """Leaf ratio minus its limit, at some moments."""
    game = ShellGameConfig(start="child", first="exponential", rate=0.0, wait_us=1_000_000, settle_periods=20)
    mesh = MeshConfig(neighbours_max=30, address_bytes_max=8, heartbeat_us=200_000, shellgame=game)
    population = MeshPopulation(nodes=40, subscribers=0.2, notes=0, mesh=mesh, checks=("tree",))
    config = msgspec.structs.replace(BASE, population=population, duration_us=10**9)
    world = scenario.build_world(scenario.Scenario("leaves", config), seed)
    readers = population.roles(seed)[1]

    def share_of_readers() -> float:
        leaves = [
            name for name in population.mesh_members(world) if not world.machine(name).overlay.branches.outward(TOKEN)
        ]
        return sum(name in readers for name in leaves) / len(leaves)

    world.run(4_000_000)
    assert share_of_readers() == 1
    world.run(16_000_000)
    samples = []
    for _ in range(5):
        world.run(8_000_000)
        samples.append(share_of_readers() - len(readers) / (len(population.mesh_members(world)) - 1))
    return samples
