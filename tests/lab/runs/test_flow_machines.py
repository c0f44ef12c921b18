"""Experiments on the machines: whatever their figures draw of what these run, they give; on the kernels' scenes."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from veilcast.lab import data
from veilcast.lab.data import EdgeFile, Files, SubscriptionFile
from veilcast.lab.experiment import definition as experiment
from veilcast.lab.experiment.definition import Experiment, ExperimentCell
from veilcast.lab.experiment.mesh_params import MeshEpochs, MeshFlows, OverlayParams
from veilcast.lab.experiment.params import Measure, RunParams
from veilcast.lab.models.graph import small_world
from veilcast.lab.runs.mesh import flows_machines, flows_model
from veilcast.lab.runs.mesh.mesh_simulation import link_ends
from veilcast.lab.runs.table import ENGINES

BOTH = [
    name
    for name in experiment.packaged_names()
    if name.startswith("mesh-") and {"kernel", "machines"} <= set(experiment.load_experiment(name)[1].engines)
]
USERS = 80
TOPICS = ("Opera", "Jazz", "Metal", "Rock", "Pop")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Overlays in place of the real ones: a small world of so many users, of whom every fourth likes everything."""
    path = tmp_path_factory.mktemp("data")
    u, v = small_world(USERS, 4, 0.2, 1).edges()
    readers = ", ".join(f'"{user}": {list(TOPICS) if user % 4 == 0 else []}' for user in range(USERS))
    edges = "".join(f"{a},{b}\n" for a, b in zip(u, v, strict=True))
    for name, text in (("edges.gz", edges), ("topics.gz", "{" + readers.replace("'", '"') + "}")):
        (path / name).write_bytes(gzip.compress(text.encode()))
    file = EdgeFile("edges.gz", "here", USERS, u.size, ",", 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(data.FILES, "gnutella", Files(file))
        subscriptions = SubscriptionFile("topics.gz", "here", len(TOPICS), len(TOPICS) * USERS // 4)
        patch.setitem(data.FILES, "deezer", Files(file, subscriptions))
        yield path


def tried() -> list[tuple[str, str]]:
    """The first cell of every series that the machines run of an experiment."""
    found = []
    for name in BOTH:
        cells = list(experiment.load_experiment(name)[1].make_cells(engine="machines"))
        series = {cell.series: cell.name for cell in reversed(cells)}
        found += [(name, cell) for cell in reversed(series.values())]
    return found


def shrunk(params: RunParams) -> OverlayParams:
    """The same in a minute's fraction."""
    assert isinstance(params, MeshFlows | MeshEpochs)
    steps = {"end": (), "swaps": (20,), "rounds": (0, 1), "seconds": (10,), "publications": (1, 2), "epochs": (1,)}
    few = {"publications": min(params.publications, 2)} if isinstance(params, MeshFlows) else {}
    return structs.replace(
        params,
        nodes=min(params.nodes, 40),
        degree=min(max(4, params.degree), 8),
        sample=min(params.sample, 40),
        steps=steps[params.step_unit()],
        **few,
    )


def missing(tried: Experiment, cell: ExperimentCell, found: list[Measure]) -> list[str]:
    """What figures draw of this series and the run does not have."""
    got = {(one.attack, one.metric) for one in found}
    curves = [curve for figure in tried.figures for curve in figure.curves if curve.series == cell.series]
    return [curve.label for curve in curves if (curve.attack, curve.metric) not in got]


@pytest.mark.parametrize(("name", "chosen"), tried())
def test_the_machines_give_what_is_drawn_of_them(name: str, chosen: str, folder: Path) -> None:
    definition = experiment.load_experiment(name)[1]
    (cell,) = [cell for cell in definition.make_cells(engine="machines") if cell.name == chosen]
    params = shrunk(cell.params)
    found = ENGINES["machines"](params, 3, folder)
    assert missing(definition, cell, found) == []
    kernel = ENGINES["kernel"](params, 3, folder)
    assert {one.step for one in found} == {one.step for one in kernel}


def test_a_metric_that_machines_do_not_give_is_noticed() -> None:
    definition = experiment.load_experiment("mesh-fig12")[1]
    cell = next(iter(definition.make_cells()))
    assert missing(definition, cell, [Measure("", "overlays", 0, 1.0)]) == ["PF"]


def test_every_experiment_on_the_mesh_is_for_both_engines_but_for_those_on_attackers() -> None:
    """Attackers have models, machines, captures or sockets to work on, whichever shows what they need."""
    ours = {"pfsg", "overlays", "gnutella", "deezer", "million", "hardened"} | {f"fig{n:02}" for n in range(7, 18)}
    assert {f"mesh-{name}" for name in ours} <= set(BOTH)


def values(found: list[Measure]) -> dict[tuple[str, str, float], float]:
    return {(one.attack, one.metric, one.step): one.value for one in found}


@pytest.mark.parametrize(("picture", "accuracy"), [(0, 4 / 5), (2, 3 / 7), (3, 4 / 8)])
def test_p0_fig_7_comes_about_by_subscriptions_and_invitations(picture: int, accuracy: float) -> None:
    params = MeshFlows(graph="drawn", picture=picture, cover="one", mu=1.0)  # type: ignore[arg-type]
    for engine in (flows_machines.run, flows_model.run):
        assert values(engine(params, 1))["leaf", "accuracy_mesh", 0] == accuracy


@pytest.mark.parametrize("seed", range(3))
def test_machines_and_kernels_share_overlay_and_roles(seed: int) -> None:
    """Where there is one way only, so that no tie is left to chance, they have one mesh: a ring cut nowhere."""
    params = MeshFlows(nodes=31, degree=2, rewire=0.0, ratio=0.2)
    machines, kernel = (values(engine(params, seed)) for engine in (flows_machines.run, flows_model.run))
    assert machines == kernel


def test_covers_that_are_chosen_anew_fall_away_and_kept_ones_do_not() -> None:
    fresh = MeshFlows(nodes=50, ratio=0.2, cover="one", mu=0.8, covers="variable", publications=5)
    kept = structs.replace(fresh, covers="fixed")
    bare = values(flows_machines.run(structs.replace(fresh, cover="none"), 2))["leaf", "accuracy_all", 0]
    seen = {params.covers: values(flows_machines.run(params, 2)) for params in (fresh, kept)}
    assert seen["variable"]["persistent-links", "accuracy_all", 0] == pytest.approx(bare, abs=0.05)
    assert seen["variable"]["leaf", "accuracy_all", 0] < bare - 0.1
    assert seen["fixed"]["persistent-links", "accuracy_all", 0] == seen["fixed"]["leaf", "accuracy_all", 0] < bare - 0.1


def test_bare_swaps_begin_on_the_finished_mesh_and_are_counted_for_each_of_its_nodes() -> None:
    params = MeshFlows(nodes=40, ratio=0.2, game="swaps", look="rounds", steps=(0, 1, 2))
    found = values(flows_machines.run(params, 1))
    size = found["", "overlay", 0]
    assert found["leaf", "residual", 0] == 1
    assert found["", "swaps", 0] == 0
    for step in (1, 2):
        assert step * size <= found["", "swaps", step] <= step * size + 3
    assert found["leaf", "residual", 2] < 1


def test_a_link_that_is_seen_twice_is_one() -> None:
    src, dst = link_ends([(0, 1), (1, 2), (0, 1)])
    assert (src.tolist(), dst.tolist()) == ([0, 1], [1, 2])
    assert [array.size for array in link_ends([])] == [0, 0]
