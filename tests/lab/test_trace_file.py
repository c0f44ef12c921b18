"""A trace of the user's own: its formats, what is refused, and its effect on an experiment."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from veilcast.errors import ConfigError, StorageError
from veilcast.lab import trace_file
from veilcast.lab.experiment import definition
from veilcast.lab.experiment.broker_params import TraceParams
from veilcast.lab.experiment.definition import Experiment
from veilcast.lab.experiment.manifest import describe_sweep, find_difference
from veilcast.lab.interaction_traces import RefusedLine
from veilcast.lab.runs.brokers import user_trace
from veilcast.lab.runs.table import ENGINES

LINES = "sender,receiver,time\n7,3,{}\n3,7,{}\nrubbish\n7,9,{}\n7,7,{}\n"
TIMES = {
    "hours": ("2.5", "0.5", "1.5", "9"),
    "seconds": ("1167609000", "1167601800", "1167605400", "1167605400"),
    "stamps": ("4/15/04 2:30 PM", "4/15/04 12:30 PM", "4/15/04 1:30 PM", "4/15/04 1:30 PM"),
    "dates": ("2004-04-15T14:30", "2004-04-15T12:30", "2004-04-15T13:30Z", "2004-04-15T13:30"),
}
TAKEN = [(0, 1, 0.0), (1, 2, 1.0), (1, 0, 2.0)]


def write(place: Path, data: bytes) -> Path:
    place.write_bytes(data)
    return place


def taken(path: Path) -> list[tuple[int, int, float]]:
    trace = trace_file.load_trace(path)
    return list(zip(trace.publisher.tolist(), trace.subscriber.tolist(), trace.hour.tolist(), strict=True))


@pytest.mark.parametrize("clock", TIMES)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_text_is_read_by_the_clock_of_its_first_time_and_what_is_no_interaction_is_named(
    tmp_path: Path, clock: str, pack: Any
) -> None:
    file = write(tmp_path / "mine", pack(LINES.format(*TIMES[clock]).encode()))
    assert taken(file) == [pytest.approx(one) for one in TAKEN]
    trace = trace_file.load_trace(file)
    assert (trace.refused, trace.named) == (
        2,
        (RefusedLine(4, "1 fields, not 3"), RefusedLine(6, "sender and receiver are one")),
    )


def test_one_file_has_one_clock(tmp_path: Path) -> None:
    mixed = write(tmp_path / "mine.csv", b"a,b,t\n1,2,5\n1,2,1167609000\n1,2,2004-04-15T14:30\n")
    assert (
        trace_file.load_trace(mixed)
        .describe_refused()
        .startswith("2 lines are no interactions: line 3: the time is none")
    )


@pytest.mark.parametrize("hours", ["numbers", "whole", "dates"])
def test_columns_are_read_from_a_file_or_a_directory_and_rows_that_are_none_are_named(
    tmp_path: Path, hours: str
) -> None:
    times = {
        "numbers": pa.array([2.5, 0.5, 1.5, 1, 1, None, 1, float("nan")]),
        "whole": pa.array([3, 1, 2, 1, 1, None, 1, -1]),
        "dates": pa.array(
            [datetime(2004, 4, 15, hour, tzinfo=UTC) if hour else None for hour in (14, 12, 13, 12, 12, 0, 12, 0)]
        ),
    }
    table = pa.table(
        {
            "publisher": pa.array([7, 3, 7, 7, None, 7, -1, 7]),
            "subscriber": pa.array([3, 7, 9, 7, 3, 3, 3, 3]),
            "hour": times[hours],
            "more": pa.array(["x"] * 8),
        }
    )
    folder = tmp_path / "interactions"
    folder.mkdir()
    pq.write_table(table.slice(0, 3), folder / "part-0.parquet")
    pq.write_table(table.slice(3), folder / "part-1.parquet")
    (folder / "_SUCCESS").touch()
    assert taken(folder) == TAKEN
    pq.write_table(table, tmp_path / "one")
    assert taken(tmp_path / "one") == TAKEN
    trace = trace_file.load_trace(tmp_path / "one")
    assert trace.refused == 5
    assert [one.line for one in trace.named] == [4, 5, 6, 7, 8]
    assert [one.why for one in trace.named] == [
        "sender and receiver are one",
        "the sender is no user",
        "the time is none",
        "the sender is no user",
        "the time is none",
    ]


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"publisher": [1], "subscriber": [2]}, "no column hour"),
        ({"publisher": ["ann"], "subscriber": [2], "hour": [1.0]}, "users are whole numbers, and publisher has string"),
        ({"publisher": [1], "subscriber": [2], "hour": ["noon"]}, "hours are numbers or dates"),
        ({"publisher": [1], "subscriber": [1], "hour": [1.0]}, "no interaction in it; sender and receiver are one"),
    ],
)
def test_columns_of_another_kind_are_no_trace(tmp_path: Path, columns: dict[str, list[Any]], why: str) -> None:
    pq.write_table(pa.table(columns), tmp_path / "mine")
    with pytest.raises(ConfigError, match=why):
        trace_file.load_trace(tmp_path / "mine")


CUT_OFF = gzip.compress(b"a,b,t\n1,2,3\n" * 99, mtime=0)[:-9]


@pytest.mark.parametrize("data", [b"PAR1rubbish", b"\x1f\x8brubbish", CUT_OFF], ids=["parquet", "gzip", "cut off"])
def test_files_that_are_broken_are_told_in_a_line(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(StorageError, match="cannot be read as a trace"):
        trace_file.load_trace(write(tmp_path / "mine", data))


def test_a_file_that_is_no_trace_is_reported_without_library_errors(tmp_path: Path) -> None:
    def refused(path: Path) -> str:
        with pytest.raises(StorageError) as told:
            trace_file.load_trace(path)
        return str(told.value).partition(" cannot be read as a trace: ")[2]

    assert refused(tmp_path / "nothing") == "No such file or directory; name a file of CSV, or Parquet"
    no_parquet = "what is there is no Parquet, or is damaged; name a file of CSV, or Parquet"
    (tmp_path / "full").mkdir()
    write(tmp_path / "full" / "notes.txt", b"a,b,t\n1,2,3\n")
    assert refused(tmp_path / "full") == no_parquet
    assert refused(write(tmp_path / "mine", b"PAR1rubbish")) == no_parquet
    assert refused(write(tmp_path / "packed", CUT_OFF)) == "it is packed, and damaged; fetch it again"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    # Two months, 400 interactions of 20 users.
    lines = [f"{n % 20},{(n * 7 + 1) % 20 if (n * 7 + 1) % 20 != n % 20 else 20},{n * 3.65}" for n in range(401)]
    return write(tmp_path / "mine.csv", "\n".join(["a,b,hours", *lines, "rubbish"]).encode())


def replays(experiment: Experiment, *, quick: bool = False) -> list[TraceParams]:
    cells = [cell.params for cell in experiment.make_cells(quick=quick)]
    return [params for params in cells if isinstance(params, TraceParams)]


def test_an_experiment_replays_it_in_place_of_the_synthetic_trace_and_is_judged_against_nothing(
    mine: Path, tmp_path: Path
) -> None:
    name, known = definition.load_experiment("brokers-fig9")
    trace = trace_file.load_trace(mine)
    alone = user_trace.replay_user_trace(name, known, mine, trace, None)
    assert [series.name for series in alone.series] == ["geometric", "uniform", "complete"]
    assert {params.trace for params in replays(alone, quick=True)} == {f"file:{mine}"}
    assert {params.interactions for params in replays(alone, quick=True)} == {200}
    assert not alone.published
    assert not any(curve.series.endswith("Orleans") for figure in alone.figures for curve in figure.curves)
    assert "1 lines are no interactions: line 403: 1 fields, not 3" in alone.reading
    beside = user_trace.replay_user_trace(name, known, mine, trace, tmp_path)
    assert {params.trace for params in replays(beside)} - {f"file:{mine}"} == {"facebook"}
    # A month of both.
    assert {params.interactions for params in replays(beside)} == {200}


def test_runs_count_its_interactions(mine: Path) -> None:
    known = definition.load_experiment("brokers-fig10")[1]
    changed = user_trace.replay_user_trace("brokers-fig10", known, mine, trace_file.load_trace(mine), None)
    params = next(iter(changed.make_cells(quick=True))).params
    found = {(one.metric, one.step): one.value for one in ENGINES["kernel"](params, 0, None)}
    # Twenty users speak ten times a month each: a key for ten leaves a tenth.
    assert 0.05 < found["left", 10] < 0.2


def test_results_of_another_file_do_not_stand_together(mine: Path) -> None:
    known = definition.load_experiment("brokers-fig9")[1]
    changed = user_trace.replay_user_trace("brokers-fig9", known, mine, trace_file.load_trace(mine), None)
    means: dict[str, Any] = {"engine": "kernel", "quick": True, "folder": None, "command": ""}
    before = describe_sweep("brokers-fig9", changed, **means)
    write(mine, mine.read_bytes() + b"\n1,2,3")
    after = describe_sweep("brokers-fig9", changed, **means)
    assert find_difference(before, before) == ""
    assert find_difference(before, after) == f"from another {mine}"


def test_an_experiment_without_a_replay_takes_no_trace(mine: Path) -> None:
    for name in ("brokers-fig7", "brokers-placement", "mesh-fig3"):
        if name in definition.packaged_names():
            with pytest.raises(ConfigError, match="replays no trace"):
                user_trace.replay_user_trace(
                    name, definition.load_experiment(name)[1], mine, trace_file.load_trace(mine), None
                )
