"""The machines of a tree on hosts all of which are 100 ms apart: times have the lower bounds that the model gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.equal_latencies import HOP_S, write_equal_latencies
from veilcast.errors import ConfigError
from veilcast.lab.experiment.tree_params import TreeDelays
from veilcast.lab.runs.table import ENGINES

MACHINES = 24


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return write_equal_latencies(tmp_path, MACHINES, monkeypatch)


def times(folder: Path, timed: str, *steps: float, tree: str = "paper", **more: object) -> dict[str, list[float]]:
    given: dict[str, object] = {"circuit": 0, "by": "nodes", "nodes": 20, **more}
    params = TreeDelays(timed=timed, steps=steps, tree=tree, **given)  # type: ignore[arg-type]
    found: dict[str, list[float]] = {}
    for measure in ENGINES["machines"](params, 1, folder):
        found.setdefault(measure.metric, []).append(measure.value)
    return found


def test_a_subscription_opens_a_stream_at_each_level_of_the_tree(folder: Path) -> None:
    """A stream takes at least a round trip to open, and then a record one hop. The model has open streams."""
    [taken] = times(folder, "subscribing", 1)["subscribed_s"]
    [modelled] = times(folder, "subscribing", 1, by="queues", nodes=60)["subscribed_s"]
    assert 3 * HOP_S < modelled < 3 * HOP_S + 0.1
    assert taken > 2 * 3 * HOP_S


def test_a_publication_climbs_at_least_as_long_as_the_model_says(folder: Path) -> None:
    found = times(folder, "publishing", 1, 5)
    assert HOP_S <= found["own_s"][0] == found["last_s"][0]
    assert found["own_s"][1] <= found["last_s"][1]


def test_relays_between_nodes_make_everything_slower(folder: Path) -> None:
    for timed, metric in (("subscribing", "subscribed_s"), ("publishing", "last_s")):
        [plain], [hidden] = (times(folder, timed, 3, circuit=circuit)[metric] for circuit in (0, 6))
        assert hidden > 1.5 * plain


def test_a_hardened_tree_and_a_crowd_are_timed(folder: Path) -> None:
    assert times(folder, "subscribing", 1, tree="hardened")["subscribed_s"][0] > 4 * HOP_S
    assert times(folder, "publishing", 2, tree="hardened")["own_s"][0] > 4 * HOP_S


def test_a_run_is_decided_by_its_seed(folder: Path) -> None:
    assert times(folder, "publishing", 3) == times(folder, "publishing", 3)


def test_a_crowd_needs_its_fifty_readers(folder: Path) -> None:
    with pytest.raises(ConfigError, match="50 at least"):
        times(folder, "crowd", 5)
