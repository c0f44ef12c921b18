"""Reads the results in a location: the definition, manifest, scores and verdicts of each experiment.

They are read without Spark, and trusted only as far as the manifest goes: a table without a manifest is refused, and a
result that its manifest does not call complete is incomplete, whatever tables there are. The definition is that of the
sweep; the experiment's file may have changed since.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import msgspec

from veilcast.errors import ConfigError, StorageError, TamperedError
from veilcast.lab import tables
from veilcast.lab.experiment import manifest as manifests
from veilcast.lab.experiment.definition import Experiment
from veilcast.lab.experiment.manifest import StoredTable, SweepManifest
from veilcast.lab.experiment.verdicts import ScoreTable
from veilcast.lab.measure.stated_numbers import VERDICTS
from veilcast.lab.storage.location import Location


@dataclass(frozen=True)
class StoredResult:
    name: str
    experiment: Experiment
    manifest: SweepManifest
    scores: ScoreTable
    verdicts: tuple[tables.VerdictRow, ...]
    score_rows: tuple[tables.ScoreRow, ...] = ()
    """The same scores, as rows with all columns."""
    beside: tuple[StoredResult, ...] = ()
    """Results of the same experiment by other engines."""

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
        """Stated numbers without a verdict: their cells were not run, or the runs do not return their metric."""
        judged = {(row.figure, row.what) for row in self.verdicts}
        return [one.what for one in self.experiment.stated if (one.figure, one.what) not in judged]


def read_results(location: Location) -> list[StoredResult]:
    """The results in the order of their names; at least one."""
    found = [_result(location, name) for name in manifests.list_manifests(location)]
    if not found:
        place = location.place
        raise StorageError(f"{place} holds no results; `veilcast lab run NAME --out {place}` makes some")
    known = {f"{tables.place(tables.ScoreRow, result.name)}/" for result in found}
    for file in location.list_files(tables.TABLE_OF[tables.ScoreRow]):
        if not any(file.name.startswith(place) for place in known):
            raise TamperedError(f"{location.path_of(file.name)} has no manifest: nothing says how it was made")
    return found


def combine_engines(found: Iterable[StoredResult]) -> list[StoredResult]:
    """One result for each experiment, in the order of their names; the others of its engines stand beside it."""
    groups: dict[str, list[StoredResult]] = {}
    for result in found:
        groups.setdefault(result.name, []).append(result)
    combined = []
    for name, group in sorted(groups.items()):
        engines = [result.manifest.engine for result in group]
        if len(set(engines)) < len(engines):
            raise ConfigError(f"two of these directories hold {name} by the same engine; give one of them")
        first, *others = sorted(group, key=lambda result: _ENGINES.index(result.manifest.engine))
        combined.append(replace(first, beside=tuple(others)))
    return combined


def _result(location: Location, name: str) -> StoredResult:
    manifest = manifests.read_manifest(location, name)
    scores = _rows(location, name, tables.ScoreRow, manifest.scores)
    verdicts = _rows(location, name, tables.VerdictRow, manifest.verdicts)
    if manifest.status == "complete" and not scores:
        raise TamperedError(f"the manifest of {name} calls its sweep complete, but there are no scores of it")
    for row in verdicts:
        if row["verdict"] not in VERDICTS:
            raise TamperedError(f"the verdicts of {name} have one that is not known: {row['verdict']!r}")
    judged = tuple(tables.VerdictRow(**row) for row in verdicts)
    rows = tuple(tables.ScoreRow(**row) for row in scores)
    return StoredResult(name, manifest.load_definition(), manifest, ScoreTable(scores), judged, rows)


def _rows(location: Location, name: str, row: type[msgspec.Struct], stored: StoredTable | None) -> list[dict[str, Any]]:
    files = [] if stored is None else [stored.path]
    return list(tables.read(location, row, name, files).to_pylist())


_ENGINES: Final = ("kernel", "machines", "live")
