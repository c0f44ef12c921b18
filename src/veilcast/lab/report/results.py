"""Reads the results in a directory: the definition, manifest, scores and verdicts of each experiment.

They are read without Spark, and trusted only as far as the manifest goes: a table without a manifest is refused, and a
result that its manifest does not call complete is incomplete, whatever tables there are. The definition is that of the
sweep; the experiment's file may have changed since.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from veilcast.errors import StorageError, TamperedError
from veilcast.lab import tables
from veilcast.lab.experiment import manifest as manifests
from veilcast.lab.experiment.definition import Experiment
from veilcast.lab.experiment.manifest import SweepManifest
from veilcast.lab.experiment.verdicts import ScoreTable


@dataclass(frozen=True)
class StoredResult:
    name: str
    experiment: Experiment
    manifest: SweepManifest
    scores: ScoreTable
    verdicts: tuple[tables.VerdictRow, ...]

    @property
    def doubt(self) -> Literal["", "incomplete", "quick"]:
        """Why the result must not be counted; empty if it may be."""
        if self.manifest.status != "complete":
            return "incomplete"
        return "quick" if self.manifest.quick else ""

    @property
    def seeds(self) -> int:
        """Number of stored seeds."""
        return sum(portion.seeds for portion in self.manifest.portions())

    @property
    def asked_seeds(self) -> int:
        """Number of seeds that the experiment asks for with this engine."""
        return self.experiment.default_seeds(self.manifest.engine)

    @property
    def unjudged(self) -> list[str]:
        """Published values without a verdict: their cells were not run, or the runs do not return their metric."""
        judged = {(row.figure, row.what) for row in self.verdicts}
        return [one.what for one in self.experiment.published if (one.figure, one.what) not in judged]


def read_results(directory: Path) -> list[StoredResult]:
    """The results in the order of their names; at least one."""
    found = [_result(directory, path) for path in sorted((directory / "manifests").glob("*.json"))]
    if not found:
        raise StorageError(f"{directory} holds no results; `veilcast lab run NAME --out {directory}` makes some")
    known = {tables.place(directory, tables.ScoreRow, result.name) for result in found}
    for place in sorted((directory / tables.TABLE_OF[tables.ScoreRow]).glob("*")):
        if place not in known:
            raise TamperedError(f"{place} has no manifest: nothing says how it was made")
    return found


def _result(directory: Path, path: Path) -> StoredResult:
    manifest = manifests.read_manifest(path)
    scores = tables.read(directory, tables.ScoreRow, path.stem).to_pylist()
    verdicts = tables.read(directory, tables.VerdictRow, path.stem).to_pylist()
    if manifest.status == "complete" and not scores:
        raise TamperedError(f"{path} calls its sweep complete, but there are no scores of it")
    for row in verdicts:
        if row["verdict"] not in VERDICTS:
            raise TamperedError(f"the verdicts of {path.stem} have one that is not known: {row['verdict']!r}")
    judged = tuple(tables.VerdictRow(**row) for row in verdicts)
    return StoredResult(path.stem, manifest.load_definition(), manifest, ScoreTable(scores), judged)


VERDICTS = ("fits", "partly", "not reproduced")
