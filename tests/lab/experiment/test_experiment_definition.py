"""An experiment's file says all of it, and is refused, with the key that is wrong, where it does not."""

from __future__ import annotations

import msgspec
import pytest

from veilcast.errors import ConfigError
from veilcast.lab.experiment import definition
from veilcast.lab.experiment.definition import ExperimentCell

WHOLE = b"""
title = "Two degrees"
kind = "mesh.flows"
claim = "covers help"
reading = "one cover for each node"
minutes = 0.1

[axes]
degree = [2, 4]

[[series]]
name = "BL"

[[series]]
name = "PF"
params = { cover = "one", mu = 0.7 }

[[figures]]
name = "accuracy"
title = "Accuracy"
x = "degree"
x_label = "degree"
y_label = "accuracy"
curves = [{ label = "baseline", series = "BL", attack = "leaf", metric = "accuracy_all" }]

[[matrices]]
name = "readers"
title = "Readers named"
attacks = ["leaf", "majority"]
metric = "accuracy"
costs = ["messages"]
at = { degree = 4 }

[[published]]
what = "BL at degree 2"
place = "P0 5, Fig. 8"
value = 0.927
figure = "accuracy"
curve = "baseline"
x = 2
within = 0.015
"""


def parameter(cell: ExperimentCell, name: str) -> object:
    return getattr(cell.params, name)


def test_cells_are_the_product_of_the_axes_for_every_series() -> None:
    cells = list(definition.parse_experiment(WHOLE, "whole").make_cells())
    assert [cell.name for cell in cells] == ["BL degree=2", "BL degree=4", "PF degree=2", "PF degree=4"]
    assert [parameter(cell, "mu") for cell in cells] == [0, 0, 0.7, 0.7]


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        (b"minutes = 0.1", b"minutes = 0.1\nhours = 2", "hours"),
        (b"mu = 0.7", b"mu = 1.7", "mu"),
        (b"mu = 0.7", b"nu = 0.7", "nu"),
        (b"degree = [2, 4]", b"degree = []", "axes.degree"),
        (b"degree = [2, 4]", b"degree = [4, 4]", "axes.degree"),
        (b'name = "PF"', b'name = "BL"', "series"),
        (b'x = "degree"', b'x = "ratio"', "ratio"),
        (b'series = "BL", attack', b'series = "SG", attack', "SG"),
        (b'"accuracy_all" }', b'"accuracy_all", at = { mu = 0.7 } }', "`at` mu = 0.7 is in no cell"),
        (b'"accuracy_all" }', b'"accuracy_all", at = { degree = 2 } }', "`at` degree = 2 is in no cell"),
        (b'curve = "baseline"', b'curve = "other"', "other"),
        (b"value = 0.927", b'value = "high"', "value"),
        (b"x = 2\n", b"x = 3\n", "axes.degree"),
        (b"x = 2\n", b"", "x is for value"),
        (b"x = 2\n", b"x = 2\nsince = 4\n", "since is for change"),
        (b"x = 2\n", b'x = 2\nstatistic = "gap"\n', "beside is for gap"),
        (b"degree = 4 }", b"degree = 8 }", "`at` degree = 8 is in no cell"),
        (b"degree = 4 }", b"step = 5 }", "`at` step = 5 is in no cell"),
        (b'"leaf", "majority"]', b'"leaf", "leaf"]', "matrices.readers: attacks"),
        (b'name = "readers"', b'name = "accuracy"', "there twice"),
        (b'metric = "accuracy"\n', b'metric = "accuracy"\nchance = 1\n', "chance and certain"),
        (b"[[figures]]", b'[machines]\ncells = ["PF degree=8"]\n\n[[figures]]', "machines.cells"),
        (b"[[figures]]", b"[machines]\nseeds = 0\n\n[[figures]]", "seeds"),
        (b"[[figures]]", b"[machines]\nparams = { node = 60 }\n\n[[figures]]", "node"),
    ],
)
def test_what_is_wrong_is_named(old: bytes, new: bytes, named: str) -> None:
    assert old in WHOLE
    with pytest.raises(ConfigError, match=named):
        definition.parse_experiment(WHOLE.replace(old, new), "changed")


def test_the_machines_run_the_part_that_is_named() -> None:
    part = b'[machines]\ncells = ["PF degree=*"]\nseeds = 7\n\n[[figures]]'
    tried = definition.parse_experiment(WHOLE.replace(b"[[figures]]", part), "part")
    assert [cell.name for cell in tried.make_cells(engine="machines")] == ["PF degree=2", "PF degree=4"]
    assert len(list(tried.make_cells())) == 4
    assert (
        tried.default_seeds("kernel"),
        tried.default_seeds("machines"),
        tried.default_seeds("machines", quick=True),
    ) == (100, 7, 4)


def test_the_machines_may_run_something_smaller_and_nobody_else_does() -> None:
    part = b"[machines]\nparams = { nodes = 60 }\n\n[quick]\nparams = { nodes = 90, ratio = 0.2 }\n\n[[figures]]"
    tried = definition.parse_experiment(WHOLE.replace(b"[[figures]]", part), "smaller")
    sizes = {
        (engine, quick): {
            (parameter(cell, "nodes"), parameter(cell, "ratio"))
            for cell in tried.make_cells(engine=engine, quick=quick)
        }
        for engine in ("machines", "kernel")
        for quick in (True, False)
    }
    assert sizes == {
        ("machines", True): {(60, 0.2)},
        ("machines", False): {(60, 0.1)},
        ("kernel", True): {(90, 0.2)},
        ("kernel", False): {(500, 0.1)},
    }


def test_an_unknown_experiment_says_where_to_look() -> None:
    with pytest.raises(ConfigError, match="veilcast lab list"):
        definition.load_experiment("mesh-fig99")


@pytest.mark.parametrize("name", definition.packaged_names())
def test_every_packaged_experiment_is_whole(name: str) -> None:
    assert definition.load_experiment(name)[1].title


@pytest.mark.parametrize("name", definition.packaged_names())
def test_the_outline_of_a_packaged_experiment_says_what_the_whole_says(name: str) -> None:
    (_, whole), (_, outline) = definition.load_experiment(name), definition.load_outline(name)
    assert {field: getattr(whole, field) for field in outline.__struct_fields__} == msgspec.structs.asdict(outline)


def test_a_data_folder_is_asked_for_only_where_runs_read_it() -> None:
    with pytest.raises(ConfigError, match="data folder"):
        definition.load_experiment("relay-fig3")[1].check_requirements("relay-fig3", "machines", None)
    definition.load_experiment("relay-loopback")[1].check_requirements("relay-loopback", "live", None)
    definition.load_experiment("mesh-fig12")[1].check_requirements("mesh-fig12", "kernel", None)


OLD = b"""
title = "From before kinds"
claim = "-"
reading = "-"
minutes = 1

[base]
look = "clients"
timed = "crowd"
steps = [1, 10]

[[series]]
name = "relay"
params = { relay = "paper" }

[[series]]
name = "tree"
params = { tree = "paper" }
"""


def test_a_file_without_kinds_is_read_and_each_series_gets_the_kind_that_its_switches_mean() -> None:
    read = definition.parse_experiment(OLD, "old")
    assert [cell.params.kind() for cell in read.make_cells()] == ["relay.delays", "tree.delays"]
    stored = msgspec.convert(msgspec.to_builtins(read), definition.Experiment)
    assert stored == read


@pytest.mark.parametrize(
    ("base", "kind"),
    [
        ('brokers = "losses"\ncounts = [1]', "brokers.losses"),
        ('foil = "many"\nask = "game"', "foil.game"),
        ('foil = "dependent"\ntruth = "pairs"\nslaves = "alone"', "foil.pairs"),
        ('look = "epochs"\nsteps = [1]', "mesh.epochs"),
        ('script = "grinding"\nkappa = 0.5\nlook = "seconds"\nsteps = [1]', "mesh.grinding"),
        ('tree = "hardened"\ndroppers = 0.1\nlook = "epochs"\nsteps = [1]', "tree.droppers"),
        ("", "mesh.flows"),
    ],
)
def test_switches_of_old_files_name_their_kind(base: str, kind: str) -> None:
    text = f'title = "-"\nclaim = "-"\nreading = "-"\nminutes = 1\n[base]\n{base}\n'
    (cell,) = definition.parse_experiment(text.encode(), "old").make_cells()
    assert cell.params.kind() == kind


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        (b'kind = "mesh.flows"', b'kind = "mesh.flow"', "there is no kind 'mesh.flow'.*did you mean 'mesh.flows'"),
        (b'name = "PF"', b'name = "PF"\nkind = "mesh.pruning"', "there is no field 'cover'"),
    ],
)
def test_a_wrong_kind_is_named_and_so_is_a_parameter_of_another(old: bytes, new: bytes, named: str) -> None:
    assert old in WHOLE
    with pytest.raises(ConfigError, match=named):
        definition.parse_experiment(WHOLE.replace(old, new), "changed")
