"""How long subscribers of trees wait, on a planet of machines all of which are 100 ms apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.equal_latencies import HOP_S, write_equal_latencies
from veilcast.errors import ConfigError
from veilcast.lab.experiment.tree_params import TreeDelays
from veilcast.lab.runs.table import ENGINES

MACHINES = 64


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return write_equal_latencies(tmp_path, MACHINES, monkeypatch)


def times(folder: Path, timed: str, *steps: float, tree: str = "paper", **more: object) -> dict[str, list[float]]:
    given: dict[str, object] = {"circuit": 0, **more}
    params = TreeDelays(nodes=60, timed=timed, steps=steps, tree=tree, **given)  # type: ignore[arg-type]
    found: dict[str, list[float]] = {}
    for measure in ENGINES["machines"](params, 1, folder):
        found.setdefault(measure.metric, []).append(measure.value)
    return found


def test_a_subscription_stands_when_it_has_gone_down_the_tree(folder: Path) -> None:
    one, many = times(folder, "subscribing", 1, 60)["subscribed_s"]
    assert 3 * HOP_S < one < 3 * HOP_S + 0.02 < many < 3 * HOP_S + 0.5


def test_hardened_it_is_spread_over_seconds(folder: Path) -> None:
    [taken] = times(folder, "subscribing", 1, tree="hardened")["subscribed_s"]
    assert 1.0 < taken < 6.0


def test_a_note_climbs_and_the_last_has_it_later(folder: Path) -> None:
    found = times(folder, "publishing", 1, 50)
    assert found["own_s"][0] == found["last_s"][0]
    assert found["own_s"][1] < found["last_s"][1] < 4 * HOP_S + 0.05
    [guarded] = times(folder, "publishing", 50, tree="hardened")["last_s"]
    assert 6 * HOP_S < guarded < 8 * HOP_S + 0.1


def test_relays_between_nodes_make_everything_longer(folder: Path) -> None:
    [plain], [hidden] = (times(folder, "publishing", 50, circuit=relays)["last_s"] for relays in (0, 6))
    assert 5 * plain < hidden <= 7 * plain


def test_who_publishes_in_a_crowd_hardly_waits_for_others(folder: Path) -> None:
    alone, crowd = times(folder, "crowd", 1, 60)["own_s"]
    assert alone <= crowd < alone + 0.2


def test_a_timed_run_of_trees_is_decided_by_its_seed(folder: Path) -> None:
    assert times(folder, "crowd", 5, tree="hardened") == times(folder, "crowd", 5, tree="hardened")


def test_no_more_subscribe_than_there_are_nodes(folder: Path) -> None:
    with pytest.raises(ConfigError, match="as many nodes"):
        times(folder, "subscribing", 61)
