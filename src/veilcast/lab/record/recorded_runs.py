"""The files of a record: what was run, the scores, and the verdicts of one experiment on one engine.

`runs/NAME.ENGINE.json` says how a result was made; beside it are its scores and verdicts as CSV. `quick/` is the same
for runs with `--quick`, which any machine repeats in seconds. A record holds the scores that figures, matrices and
stated numbers need, in all digits, so that another run can be compared with them.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from veilcast.authority.secret_file import replace_file
from veilcast.decoding import JsonDecoder
from veilcast.errors import StorageError, TamperedError
from veilcast.lab.experiment.definition import Experiment
from veilcast.lab.experiment.manifest import SweepManifest
from veilcast.lab.tables import ScoreRow, VerdictRow

Row = TypeVar("Row", ScoreRow, VerdictRow)


class RecordedRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a recorded result was made."""

    experiment: str
    engine: str
    quick: bool
    seeds: int
    commit: str
    fingerprint: str
    """Digest of the code that made the runs."""
    versions: dict[str, str]
    data_sha256: dict[str, str]
    wall_s: float

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"{self.experiment}.{self.engine}"

    @property
    def command(self) -> str:
        """The command that makes the result again."""
        engine = "" if self.engine == "kernel" else f" --engine {self.engine}"
        data = " --data DIR" if self.data_sha256 else ""
        return f"veilcast lab run {self.experiment}{engine}{' --quick' if self.quick else ''}{data}"


class Record:
    """A directory of recorded results."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def list_runs(self, *, quick: bool = False) -> list[RecordedRun]:
        """In the order of their names."""
        try:
            paths = sorted((self.directory / _folder(quick)).glob("*.json"))
            return [_RUN.decode(path.read_bytes(), str(path)) for path in paths]
        except OSError as error:
            raise _unreadable(self.directory, error) from error

    def read_scores(self, run: RecordedRun) -> list[ScoreRow]:
        return _read_rows(self._path(run, "scores"), ScoreRow, run.experiment)

    def read_verdicts(self, run: RecordedRun) -> list[VerdictRow]:
        return _read_rows(self._path(run, "verdicts"), VerdictRow, run.experiment)

    def write_run(self, run: RecordedRun, scores: Iterable[ScoreRow], verdicts: Iterable[VerdictRow]) -> None:
        """Write the files; the JSON file last, since it says that the others are whole."""
        _write(self._path(run, "scores"), _encode_rows(ScoreRow, scores))
        self.write_verdicts(run, verdicts)
        encoded = msgspec.json.format(msgspec.json.encode(run), indent=1)
        _write(self.directory / _folder(run.quick) / f"{run.name}.json", encoded + b"\n")

    def write_verdicts(self, run: RecordedRun, verdicts: Iterable[VerdictRow]) -> None:
        _write(self._path(run, "verdicts"), _encode_rows(VerdictRow, verdicts))

    def _path(self, run: RecordedRun, table: str) -> Path:
        return self.directory / _folder(run.quick) / f"{run.name}.{table}.csv"


def describe_run(manifest: SweepManifest) -> RecordedRun:
    return RecordedRun(
        experiment=manifest.experiment,
        engine=manifest.engine,
        quick=manifest.quick,
        seeds=manifest.seeds,
        commit=manifest.commit,
        fingerprint=manifest.fingerprint,
        versions=manifest.means.versions,
        data_sha256=manifest.data_sha256,
        wall_s=round(manifest.wall_s, 1),
    )


def choose_drawn_scores(experiment: Experiment, scores: Iterable[ScoreRow]) -> Iterator[ScoreRow]:
    """The scores that a figure, a stated number or a matrix of the experiment needs."""
    curves = {(curve.attack, curve.metric) for figure in experiment.figures for curve in figure.curves}
    cells = {
        (attack, metric)
        for matrix in experiment.matrices
        for attack in matrix.attacks
        for metric in (matrix.metric, matrix.over)
    }
    costs = {("", metric) for matrix in experiment.matrices for metric in matrix.costs}
    drawn = curves | cells | costs
    return (row for row in scores if (row.attack, row.metric) in drawn)


def _encode_rows(kind: type[Row], rows: Iterable[Row]) -> bytes:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    columns = _columns(kind)
    table.writerow(columns)
    for row in rows:
        # JSON would have no infinity; `repr` keeps all digits.
        values = (getattr(row, column) for column in columns)
        table.writerow(
            ["" if value is None else repr(value) if isinstance(value, float) else value for value in values]
        )
    return text.getvalue().encode()


def _read_rows(path: Path, kind: type[Row], experiment: str) -> list[Row]:
    columns = _columns(kind)
    try:
        with path.open(newline="") as file:
            lines = list(csv.reader(file))
    except OSError as error:
        raise _unreadable(path, error) from error
    if lines[:1] != [columns]:
        raise TamperedError(f"{path} is no table of {kind.__name__}: its first line does not name the columns")
    found = []
    for number, line in enumerate(lines[1:], 2):
        given = {name: None if text == "" and name == "x" else text for name, text in zip(columns, line, strict=False)}
        try:
            found.append(msgspec.convert({**given, "experiment": experiment}, kind, strict=False))
        except msgspec.ValidationError as error:
            raise TamperedError(f"{path}, line {number}: {error}") from error
    return found


def _columns(kind: type[Row]) -> list[str]:
    return [name for name in kind.__struct_fields__ if name != "experiment"]


def _folder(quick: bool) -> str:
    return "quick" if quick else "runs"


def _write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make {path.parent}: {os.strerror(error.errno or 0)}") from error
    replace_file(path, data, mode=0o644)


def _unreadable(path: Path, error: OSError) -> StorageError:
    return StorageError(f"cannot read {path}: {os.strerror(error.errno) if error.errno else error}")


_RUN: Final = JsonDecoder(RecordedRun, TamperedError, "is no recorded run")
