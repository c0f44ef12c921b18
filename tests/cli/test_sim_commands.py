from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from veilcast.cli.exits import FAILED_CHECK
from veilcast.cli.main import main
from veilcast.observe import CellRow, read_table


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_run_is_decided_by_its_seed(capsys: pytest.CaptureFixture[str]) -> None:
    _, first = run(capsys, "sim", "run", "flood", "--seed", "7")
    _, again = run(capsys, "sim", "run", "flood", "--seed", "7")
    _, other = run(capsys, "sim", "run", "flood", "--seed", "8")
    assert first == again
    assert first["runs"][0]["trace_hash"] != other["runs"][0]["trace_hash"]
    assert first["failed"] == 0


def test_the_tables_contain_the_sent_frames(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, data = run(capsys, "sim", "run", "flood", "--out", str(tmp_path / "t"))
    assert code == 0
    assert len(list(read_table(tmp_path / "t", CellRow))) == data["runs"][0]["sent"]
    assert main(["sim", "run", "flood", "--out", str(tmp_path / "t")]) == 4


def test_every_packaged_scenario_is_listed_with_a_word_about_it(capsys: pytest.CaptureFixture[str]) -> None:
    _, data = run(capsys, "sim", "list")
    assert "flood" in data["scenarios"]
    assert all(data["scenarios"].values())


def test_a_scenario_with_a_wrong_key_or_no_file_is_reported_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "s.toml"
    file.write_text('about = "x"\nduration_us = 5\nspeed = 3\n[population]\nkind = "flood"\n')
    for name, word in ((str(file), "speed"), ("no-such-scenario", "flood")):
        assert main(["sim", "run", name]) == 3
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert word in error


HUGE = str(1 << 64)


@pytest.mark.parametrize(
    ("command", "option", "values"),
    [
        (["demo"], "--nodes", ["-1", "0", "7", "65", HUGE]),
        (["demo"], "--subscribers", ["-1", "0", "23", HUGE]),
        (["demo"], "--notes", ["-1", "0", "501", HUGE]),
        (["sim", "run", "flood"], "--seed", ["-1", HUGE]),
        (["sim", "run", "flood"], "--seeds", ["-1", "0", "1000001", HUGE]),
        (["sim", "run", "flood", "--seeds", "2"], "--seed", [str((1 << 64) - 1)]),
        (["sim", "soak"], "--seed", ["-1", HUGE]),
        (["sim", "soak"], "--seeds", ["-1", "0", "1000001", HUGE]),
        (["sim", "soak"], "--jobs", ["-1", "0", "257", HUGE]),
    ],
)
def test_an_error_about_a_number_out_of_bounds_names_its_option(
    command: list[str], option: str, values: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for value in values:
        assert main([*command, option, value]) == 3
        error = capsys.readouterr().err
        assert error.startswith(f"veilcast: {option} must be between")
        assert error.count("\n") == 1


def test_the_last_seed_that_is_allowed_works(capsys: pytest.CaptureFixture[str]) -> None:
    code, data = run(capsys, "sim", "run", "flood", "--seed", str((1 << 64) - 1))
    assert code == 0
    assert data["runs"][0]["seed"] == (1 << 64) - 1


def test_progress_is_for_terminals_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "run", "flood", "--seeds", "2"]) == 0
    assert capsys.readouterr().err == ""


def test_a_failed_check_prints_the_command_that_replays_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Flooding that must reach everyone, on links that lose frames: the check has to fail, and say how to see it."""
    file = tmp_path / "lossy.toml"
    file.write_text(
        'about = "x"\nduration_us = 20000000\n[population]\nkind = "flood"\nnodes = 12\nchecks = ["everyone"]\n'
        '[swarm]\nkinds = ["loss", "crash"]\n'
    )
    codes = {main(["sim", "run", str(file), "--seeds", "20"])}
    out = capsys.readouterr().out
    assert codes == {FAILED_CHECK}
    assert f"veilcast sim run {file} --seed" in out


def test_no_command_prints_the_help_and_a_typo_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "authority" in capsys.readouterr().out
    assert main(["authority"]) == 2
    with pytest.raises(SystemExit) as exit_:
        main(["authorty"])
    assert exit_.value.code == 2
    assert "authority" in capsys.readouterr().err


def test_the_help_fits_a_screen(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert len(capsys.readouterr().out.splitlines()) <= 24
