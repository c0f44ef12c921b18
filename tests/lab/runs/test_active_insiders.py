"""Active insiders on the real machines, in small: each reaches what it must, and not where it must not."""

from __future__ import annotations

from functools import cache

import msgspec
import pytest

from veilcast.errors import ConfigError
from veilcast.lab.experiment import definition
from veilcast.lab.experiment.mesh_params import MeshActive, MeshGrinding
from veilcast.lab.runs.mesh.active_insiders import INSIDER_ACTS, InsiderScenario
from veilcast.lab.runs.table import ENGINES

SMALL = MeshActive(script="siege", nodes=40, degree=4, ratio=0.15, insiders=0.2)
OF_THE_GAME = ("refusing", "crawling", "bogus")


@cache
def reached(script: str) -> dict[tuple[str, str], float]:
    game = "events" if script in OF_THE_GAME else "none"
    return played(msgspec.structs.replace(SMALL, script=script, game=game))


def played(params: MeshActive) -> dict[tuple[str, str], float]:
    return {(found.attack, found.metric): found.value for found in ENGINES["machines"](params, 1, None)}


def test_timing_tells_who_is_in_the_papers_mesh_better_than_watching() -> None:
    found = reached("timing")
    assert found["timing", "auc"] > found["watching", "auc"] + 0.1
    assert found["timing", "looked_at"] == found["watching", "looked_at"] > 10


def test_a_besieged_reader_and_a_besieged_publisher_are_certain() -> None:
    found = reached("siege")
    assert found["siege", "auc"] == found["siege", "success"] == 1.0


def test_victims_have_none_but_hostile_neighbours_and_half_of_them_read() -> None:
    stage = InsiderScenario(SMALL, 3)
    publisher, readers, coalition, victims = stage.draw_siege()
    assert publisher in victims
    assert all(name in coalition for victim in victims for name in stage.neighbours[victim])
    assert sum(victim in readers for victim in victims) == len(victims) // 2
    assert not set(coalition) & {publisher, *readers, *victims}


def test_refusal_keeps_honest_nodes_from_playing() -> None:
    found = reached("refusing")
    assert found["refusing", "swaps"] < found["watching", "swaps"]


def test_games_tell_a_coalition_most_of_the_mesh_by_name_whether_or_not_it_hurries() -> None:
    found = reached("crawling")
    assert found["crawling", "known"] > 0.5
    assert found["watching", "known"] > 0.5


def test_a_changed_note_is_never_believed_and_costs_those_behind_it() -> None:
    found = reached("tagging")
    assert found["tagging", "accepted"] == 0
    assert found["tagging", "delivered"] < found["watching", "delivered"] == 1


def test_a_repeated_note_has_no_effect() -> None:
    found = reached("replay")
    assert found["replay", "echoed"] > 0
    assert found["replay", "effects"] == found["watching", "effects"] == 0


def test_a_repeated_note_has_effects_where_nobody_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    forgetful = msgspec.structs.replace(InsiderScenario(SMALL, 0).mesh, seen_max=1)
    monkeypatch.setattr(InsiderScenario, "mesh", property(lambda _: forgetful))
    assert played(msgspec.structs.replace(SMALL, script="replay"))["replay", "effects"] > 0


@pytest.mark.all_only
def test_grinding_names_the_publisher_where_addresses_are_ranked_and_not_where_the_first_relay_is_kept() -> None:
    """Seed 3 is one whose publisher is taken soon."""
    small = MeshGrinding(nodes=24, kappa=0.78, steps=(480,))
    for rule, named in (("any", 1.0), ("kept", 0.0)):
        params = msgspec.structs.replace(small, first_relay=rule)
        found = {(one.attack, one.metric): one.value for one in ENGINES["machines"](params, 3, None)}
        assert found["grinding", "success"] == named
        assert found["watching", "first_hand"] == 0
    with pytest.raises(ConfigError, match="grinding"):
        msgspec.structs.replace(small, kappa=0.0)


def test_a_run_is_a_function_of_its_seed() -> None:
    assert reached("siege") == played(msgspec.structs.replace(SMALL, script="siege"))


def test_a_coalition_that_falls_silent_looks_at_the_same_nodes_and_costs_readers_notes() -> None:
    found = reached("quitting")
    assert found["quitting", "looked_at"] == found["watching", "looked_at"]
    assert 0 < found["quitting", "delivered"] < found["watching", "delivered"] == 1


def test_bogus_names_lead_some_to_the_liars() -> None:
    assert 0 < reached("bogus")["bogus", "captured"] < 1


def test_every_curve_of_the_experiment_is_of_a_number_that_its_script_gives() -> None:
    _, active = definition.load_experiment("mesh-active")
    scripts = {series.name: str(series.params["script"]) for series in active.series}
    for curve in (curve for figure in active.figures for curve in figure.curves):
        assert (curve.attack, curve.metric) in reached(scripts[curve.series]), curve.label


def test_scripts_of_the_shell_game_need_a_game_and_every_script_has_an_act() -> None:
    for script in OF_THE_GAME:
        with pytest.raises(ConfigError, match="game"):
            msgspec.structs.replace(SMALL, script=script)
    assert set(INSIDER_ACTS) == set(_literal())


def _literal() -> tuple[str, ...]:
    annotation = next(field.type for field in msgspec.structs.fields(MeshActive) if field.name == "script")
    return tuple(annotation.__args__)
