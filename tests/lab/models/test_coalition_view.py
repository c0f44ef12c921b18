"""What insiders see: of the baseline exactly what the machines' would, of the others what the notes' model has."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

import numpy as np
import pytest
from numpy.typing import NDArray

from support.small_population import make_population
from veilcast.errors import RemoteError
from veilcast.lab.models import hardened_mesh
from veilcast.lab.models.coalition_view import (
    ANSWER,
    ASK,
    COMMIT,
    CoalitionView,
    insider_links,
    observe_links,
    play_handovers,
    subscription_delays,
    watch_epochs,
    write_insiders,
)
from veilcast.lab.models.epochs import MESH_POLICIES, Epoch, MeshPolicy, Population, run_epochs
from veilcast.lab.models.graph import from_edges
from veilcast.lab.models.link_observations import ASKED, AWAY, FOLLOWED, INVITED, RECRUITED, REFUSED, SILENT
from veilcast.lab.models.mesh import MeshTree
from veilcast.lab.models.rng import stream
from veilcast.machine import Address, Frame
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.heartbeat import read_heartbeat
from veilcast.sim.checkers import Checker
from veilcast.sim.graphs import watts_strogatz
from veilcast.sim.links import LinkDelays
from veilcast.sim.mesh.population import MeshPopulation, topic_token
from veilcast.sim.rng import derive_rng
from veilcast.sim.world import World
from veilcast.wire import decode
from veilcast.wire.mesh import Advert, Subscribe, Unsubscribe

PERIOD_US = 1_000_000
NODES = 120


class Ears(Checker):
    """Who told whom what, as it stands in the end: subscriptions that were not taken back, and when each came."""

    def __init__(self, config: MeshConfig) -> None:
        self._size = config.heartbeat_bytes
        self.subscribed: dict[tuple[Address, Address], int] = {}
        self.advertised: dict[tuple[Address, Address], int] = {}

    def on_frames(self, world: World, address: Address, frames: Sequence[Frame]) -> None:
        for frame in frames:
            try:
                riders = read_heartbeat(frame.data, self._size).riders
            except RemoteError:
                continue
            for message in map(decode, riders):
                pair = (frame.destination, address)
                if isinstance(message, Subscribe):
                    self.subscribed[pair] = world.now
                elif isinstance(message, Unsubscribe):
                    del self.subscribed[pair]
                elif isinstance(message, Advert):
                    self.advertised[pair[::-1]] = world.now


def test_insiders_of_the_baseline_see_exactly_what_those_of_the_machines_see() -> None:
    village = MeshPopulation(
        NODES, 6, 0.2, 0.15, notes=0, mesh=MeshConfig(neighbours_max=20, address_bytes_max=8), checks=()
    )
    world, ears = World(seed=3, links=LinkDelays(latency_us=(1_000, 1_000))), Ears(village.mesh)
    world.watch(ears)
    village.populate(world, 0)
    world.run(30 * PERIOD_US)
    names, token = village.addresses(), topic_token()
    number = {name: place for place, name in enumerate(names)}
    edges = watts_strogatz(NODES, 6, 0.2, derive_rng(3, "graph"))
    graph = from_edges(NODES, [u for u, _ in edges], [v for _, v in edges])
    publisher, readers = village.roles(3)
    # The machines' choice among equally near parents is whoever spoke first: the order that puts that one first.
    ends = np.repeat(np.arange(NODES), graph.degrees)
    via = [world.machine(name).overlay.reachable_origins(token)[0].via for name in names]
    chosen = np.array([-1 if name is None else number[name] for name in via])
    found = hardened_mesh.find_root_paths(graph, number[publisher], (chosen[ends] != graph.targets).astype(np.uint64))
    assert (np.delete(found.parent, number[publisher]) == np.delete(chosen, number[publisher])).all()
    asking = np.zeros(NODES, np.bool_)
    asking[[number[name] for name in readers]] = True
    mesh = hardened_mesh.form_mesh(found, asking)
    there, nobody = np.ones(NODES, np.bool_), np.zeros(graph.targets.size, np.int8)
    epoch = Epoch(0, there, graph, found, asking, mesh, mesh, nobody)
    hostile = np.zeros(NODES, np.bool_)
    hostile[::7] = True
    observer, peer = insider_links(Population(graph, number[publisher], np.empty(0, np.int32), hostile, 0.0, 0))
    seen, later = observe_links(epoch, observer, peer), subscription_delays(epoch)
    assert {ASKED, FOLLOWED, SILENT} == set(seen.tolist())
    for x, w, sight in zip(observer, peer, seen, strict=True):
        pair = (names[x], names[w])
        assert (pair in ears.subscribed) == (sight == ASKED)
        assert (pair[::-1] in ears.subscribed) == (sight == FOLLOWED)
        if sight == ASKED:
            # Each hop of the model is at most a heartbeat, and the answer waits for one.
            waited = (ears.subscribed[pair] - ears.advertised[pair]) / PERIOD_US
            assert 0 < waited <= later[w] + 1.1


def test_who_asks_at_once_is_a_subscriber_and_a_forwarder_takes_two_hops_for_each_link_below_it() -> None:
    # 0 publishes; 3 and 5 read: 0 - 1 - 2 - 3, and 1 - 4 - 5.
    graph = from_edges(6, [0, 1, 2, 1, 4], [1, 2, 3, 4, 5])
    asking = np.array([False, False, False, True, False, True])
    found = hardened_mesh.find_root_paths(graph, 0, np.zeros(graph.targets.size, np.uint64))
    mesh = hardened_mesh.form_mesh(found, asking)
    epoch = Epoch(0, np.ones(6, np.bool_), graph, found, asking, mesh, mesh, np.zeros(graph.targets.size, np.int8))
    assert subscription_delays(epoch)[1:].tolist() == [4, 2, 0, 2, 0]


def test_in_the_baseline_a_delay_of_nothing_is_a_certain_subscriber_and_a_random_moment_hides_it() -> None:
    people = make_population(500, 8, 0.1, 0.1, 1)
    view = watch_epochs(people, MESH_POLICIES["BL"], 20)
    at_once = np.unique(view.peer[(view.delay == 0).any(axis=0)])
    assert at_once.size > 10
    assert np.isin(at_once, people.subscribers).all()
    assert (watch_epochs(people, MESH_POLICIES["BL hidden"], 20).delay < 0).all()


@pytest.mark.parametrize("name", MESH_POLICIES)
def test_a_view_holds_nothing_but_what_happened_on_links_of_insiders(name: str) -> None:
    people = make_population(300, 8, 0.1, 0.1, 1)
    view = watch_epochs(people, MESH_POLICIES[name], 5)
    assert people.insiders[view.observer].all()
    assert not people.insiders[view.peer].any()
    for epoch in run_epochs(people, MESH_POLICIES[name], 5):
        seen = view.seen[epoch.number]
        assert (view.present[epoch.number] == epoch.present).all()
        assert ((seen == AWAY) == ~epoch.present[view.peer]).all()
        inside = epoch.covered_mesh.parent >= 0
        assert inside[view.known_members(epoch.number)].all()
        assert inside[view.peer[seen > SILENT]].all()
        assert (epoch.mesh.parent[view.peer[seen == ASKED]] == view.observer[seen == ASKED]).all()
        assert (epoch.mesh.parent[view.peer[seen == RECRUITED]] < 0).all()
        visible = MESH_POLICIES[name].timing == "seen"
        assert ((view.delay[epoch.number] >= 0) == ((seen == ASKED) & visible)).all()
        assert people.insiders[view.handovers[:, 2]].all()
        assert people.insiders[view.stem_passages[:, 1]].all()
    assert (len(view.handovers) > 0) == ("SG" in name)
    assert ({INVITED, RECRUITED, REFUSED} <= set(view.seen.ravel().tolist())) == ("PF" in name)


def learnt_share(degree: int, insiders: float, games: float) -> float:
    """Of the honest members of a mesh, how many are known to be in it."""
    shares = []
    for seed in range(40):
        people = make_population(500, degree, insiders, 0.1, seed)
        conduct = MeshPolicy(games=games)
        (epoch,) = run_epochs(people, conduct, 1)
        honest = (epoch.covered_mesh.parent >= 0) & ~people.insiders
        honest[people.publisher] = False
        shares.append(float(np.mean(watch_epochs(people, conduct, 1).known_members(0)[honest])))
    return mean(shares)


@pytest.mark.parametrize(
    ("games", "insiders", "published"),
    [
        (0.25, 0.01, (0.03, 0.02, 0.02)),
        (0.25, 0.05, (0.13, 0.11, 0.08)),
        (0.25, 0.1, (0.24, 0.21, 0.17)),
        (4, 0.01, (0.07, 0.05, 0.04)),
        (4, 0.05, (0.31, 0.24, 0.14)),
        (4, 0.1, (0.51, 0.44, 0.29)),
    ],
)
def test_shell_games_give_as_many_away_as_in_the_prototype(
    games: float, insiders: float, published: tuple[float, ...]
) -> None:
    found = [learnt_share(degree, insiders, games) for degree in (4, 8, 16)]
    assert found == pytest.approx(published, abs=0.04)


def test_a_game_names_to_each_insider_what_its_messages_say() -> None:
    # 0 publishes; a chain 0 - 1 - 2 - 3. The one inner node besides 2 is 1: games of 1 and 2, or of 2 and 3.
    mesh = MeshTree(0, np.array([0, 0, 1, 2], np.int32), np.arange(4, dtype=np.int32))

    def told(insider: int) -> set[tuple[int, int, int]]:
        hostile = np.zeros(4, np.bool_)
        hostile[insider] = True
        games: NDArray[np.int32] = play_handovers(mesh, hostile, 1, stream(insider, "games"))
        assert (games[:, 1] == insider).all()
        return {(int(row[2]), int(row[3]), int(row[4])) for row in games}

    assert told(0) <= {(1, COMMIT, 2)}
    assert told(1) in ({(2, ANSWER, 3)}, {(2, COMMIT, 3)})
    assert told(2) in ({(1, ASK, 0)}, set())
    assert told(3) in ({(2, COMMIT, 1)}, {(2, ASK, 1)})


def test_a_stem_shows_an_insider_its_neighbours_on_it_and_whether_it_climbs() -> None:
    met = 0
    for seed in range(20):
        people = make_population(200, 8, 0.2, 0.0, seed)
        view = watch_epochs(people, MESH_POLICIES["H"], 2)
        (once, again) = (view.stem_passages[view.stem_passages[:, 0] == number, 1:] for number in (0, 1))
        assert once.tolist() == again.tolist()  # For life.
        for observer, source, target, climbs in once:
            near = people.graph.neighbours(int(observer))
            assert source in near
            assert target in near
            assert climbs in (0, 1)
            met += 1
    assert met > 0


def test_rows_say_the_same_as_the_arrays() -> None:
    people = make_population(100, 6, 0.1, 0.1, 1)
    names = [f"n{node}" for node in range(100)]

    def table(view: CoalitionView) -> list[tuple[int, int, str, str, str, str]]:
        made = write_insiders(view, "r", names, b"token", start_us=7_000, epoch_us=1_000, hop_us=10)
        columns = ("epoch", "t_us", "observer", "peer", "kind", "about")
        return [tuple(row.values()) for row in made.select(columns).to_pylist()]

    view = watch_epochs(people, MESH_POLICIES["PFSG fresh"], 3)
    found = table(view)
    asked = [row for row in found if row[4] == "in:Subscribe"]
    assert len(asked) == np.count_nonzero((view.seen == ASKED) | (view.seen == RECRUITED))
    assert len([row for row in found if row[5]]) == len(view.handovers)
    epoch, link = np.argwhere(view.seen == ASKED)[0]
    at_us = 7_000 + 1_000 * epoch + 10 * view.delay[epoch, link]
    pair = (names[view.observer[link]], names[view.peer[link]])
    assert (7 + epoch, at_us, *pair, "in:Subscribe", "") in found
    stems = [row for row in table(watch_epochs(people, MESH_POLICIES["H"], 3)) if row[4].endswith(":Stem")]
    assert all(row[4] in ("in:Stem", "out:Stem") for row in stems)
