"""The results under a directory, as sweeps left them: of each its definition, manifest, scores and verdicts.

Read without Spark, and believed only as far as the manifest goes: what has none is not ours, and what its manifest does
not call complete is incomplete, however much of it is there. The definition is the one that the sweep was made from,
though the experiment's file may have changed since.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from veilcast.errors import StorageError, TamperedError
from veilcast.lab import tables
from veilcast.lab.sweep import manifest as manifests
from veilcast.lab.sweep.curves import Scores
from veilcast.lab.sweep.experiment import Experiment
from veilcast.lab.sweep.manifest import Manifest


@dataclass(frozen=True)
class Result:
    name: str
    experiment: Experiment
    manifest: Manifest
    scores: Scores
    verdicts: tuple[tables.Verdict, ...]

    @property
    def doubt(self) -> Literal["", "incomplete", "quick"]:
        """Why it must not be counted; empty where it may."""
        if self.manifest.status != "complete":
            return "incomplete"
        return "quick" if self.manifest.quick else ""

    @property
    def seeds(self) -> int:
        """Those there are; of a sweep that is not complete, so far."""
        return sum(portion.seeds for portion in self.manifest.portions())

    @property
    def asked(self) -> int:
        """Those that the experiment asks of its engine."""
        return self.experiment.seeds_by(self.manifest.engine)

    @property
    def unjudged(self) -> list[str]:
        """What was published, and has no verdict: its part was not run, or the runs do not give what it is about."""
        judged = {(row.figure, row.what) for row in self.verdicts}
        return [one.what for one in self.experiment.published if (one.figure, one.what) not in judged]


def read(directory: Path) -> list[Result]:
    """In the order of their names; at least one."""
    found = [_result(directory, path) for path in sorted((directory / "manifests").glob("*.json"))]
    if not found:
        raise StorageError(f"{directory} holds no results; `veilcast lab run NAME --out {directory}` makes some")
    known = {tables.place(directory, tables.Score, result.name) for result in found}
    for place in sorted((directory / tables.TABLE_OF[tables.Score]).glob("*")):
        if place not in known:
            raise TamperedError(f"{place} has no manifest: nothing says how it was made")
    return found


def _result(directory: Path, path: Path) -> Result:
    manifest = manifests.read(path)
    scores = tables.read(directory, tables.Score, path.stem).to_pylist()
    verdicts = tables.read(directory, tables.Verdict, path.stem).to_pylist()
    if manifest.status == "complete" and not scores:
        raise TamperedError(f"{path} calls its sweep complete, but there are no scores of it")
    for row in verdicts:
        if row["verdict"] not in VERDICTS:
            raise TamperedError(f"the verdicts of {path.stem} have one that is not known: {row['verdict']!r}")
    judged = tuple(tables.Verdict(**row) for row in verdicts)
    return Result(path.stem, manifest.defined(), manifest, Scores(scores), judged)


VERDICTS = ("fits", "partly", "not reproduced")
