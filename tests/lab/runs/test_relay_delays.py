"""How long a relay's clients wait: on a planet of machines all of which are 100 ms apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.equal_latencies import HOP_S, write_equal_latencies
from veilcast.errors import ConfigError
from veilcast.lab.experiment.relay_params import RelayDelays
from veilcast.lab.runs.relay.delays import run

MACHINES = 64


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return write_equal_latencies(tmp_path, MACHINES, monkeypatch)


def times(
    folder: Path, timed: str, *steps: float, relay: str = "paper", serial: bool = False
) -> dict[str, list[float]]:
    params = RelayDelays(nodes=60, timed=timed, steps=steps, relay=relay, serial=serial)  # type: ignore[arg-type]
    found: dict[str, list[float]] = {}
    for measure in run(params, 1, folder):
        found.setdefault(measure.metric, []).append(measure.value)
    return found


def test_one_subscription_takes_four_hops_and_a_little_work(folder: Path) -> None:
    [taken] = times(folder, "subscribing", 1)["subscribed_s"]
    assert 4 * HOP_S < taken < 4 * HOP_S + 0.01


def test_where_proxies_wait_for_each_answer_the_last_waits_for_all_before_it(folder: Path) -> None:
    one, many = times(folder, "subscribing", 1, 20, serial=True)["subscribed_s"]
    assert many - one == pytest.approx(19 * 2 * HOP_S, rel=0.05)
    one, many = times(folder, "subscribing", 1, 20)["subscribed_s"]
    assert many - one < HOP_S


def test_a_note_takes_four_hops_and_the_last_reader_has_it_later_than_the_publisher(folder: Path) -> None:
    found = times(folder, "publishing", 1, 20)
    assert found["own_s"][0] == found["last_s"][0]
    assert all(4 * HOP_S < taken < 4 * HOP_S + 0.05 for taken in found["last_s"])
    assert found["own_s"][1] < found["last_s"][1]


def test_who_publishes_in_a_crowd_waits_longer_and_longest_one_by_one(folder: Path) -> None:
    alone, crowd = times(folder, "crowd", 1, 30)["own_s"]
    [serial] = times(folder, "crowd", 30, serial=True)["own_s"]
    assert alone < crowd < serial


def test_hardened_waits_for_its_batches_besides(folder: Path) -> None:
    [taken] = times(folder, "publishing", 5, relay="hardened")["last_s"]
    assert 4 * HOP_S < taken < 4 * HOP_S + 2 * 0.1 + 0.05


def test_a_run_is_decided_by_its_seed(folder: Path) -> None:
    assert times(folder, "publishing", 5) == times(folder, "publishing", 5)


def test_there_are_no_more_clients_than_nodes(folder: Path) -> None:
    with pytest.raises(ConfigError, match="as many nodes"):
        times(folder, "subscribing", 61)
