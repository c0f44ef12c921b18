from __future__ import annotations

import json

import pytest

from veilcast.cli.exits import FAILED_CHECK
from veilcast.cli.main import main
from veilcast.cli.sim_explore import render_swap_diagram
from veilcast.mesh.swap import Swaps


def test_a_search_prints_its_states_its_depth_and_whether_these_are_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "explore", "--games", "1", "--losses", "2", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["exhausted"]
    assert data["states"] > 50
    assert data["depth"] >= 10
    assert data["fault"] == ""
    assert main(["sim", "explore", "--games", "2", "--states-max", "100"]) == 0
    out = capsys.readouterr().out
    assert "100 states (not all there are)" in out
    assert "no fault" in out


def test_a_liar_lies_once_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    states = []
    for lies in ([], ["--lies", "1"], ["--lies", "2"]):
        assert main(["sim", "explore", "--games", "1", "--liar", "d", *lies, "--json"]) == 0
        states.append(json.loads(capsys.readouterr().out)["states"])
    assert states[0] == states[1] < states[2]


def test_a_fault_is_shown_with_the_way_to_it_and_fails_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Swaps, "expire", lambda self, now: None)
    assert main(["sim", "explore", "--games", "1"]) == FAILED_CHECK
    out = capsys.readouterr().out
    assert "fault: the lock of a outlives its lease" in out
    assert "  begins: a with b" in out


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--games", "4"], "--games must be between 0 and 3"),
        (["--losses", "-1"], "--losses must be between 0 and 8"),
        (["--states-max", "0"], "--states-max must be between 1 and"),
        (["--liar", "d", "--lies", "0"], "--lies"),
        (["--lies", "1"], "liar"),
    ],
)
def test_a_wrong_number_is_reported_in_one_line(
    capsys: pytest.CaptureFixture[str], options: list[str], word: str
) -> None:
    assert main(["sim", "explore", *options]) == 3
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert word in error


def test_the_page_of_states_is_printed_as_it_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "diagram"]) == 0
    assert capsys.readouterr().out == render_swap_diagram()
