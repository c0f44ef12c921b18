"""The stored results of an experiment: its tables and its manifest, safe against a kill at any moment, and against
other sweeps of the same experiment in the same location.

A file counts once an entry of the manifest lists it. A sweep claims the manifest when it begins, so of two sweeps the
later one goes on, and the earlier one fails at its next entry; what both stored before stays. Then the sweep removes
the files that no entry lists: a killed sweep has left them. `write_once_log` has the argument. A killed sweep loses the
runs of its open job, and nothing else.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa

from veilcast.errors import StorageError, TamperedError
from veilcast.lab import tables
from veilcast.lab.experiment import manifest as manifests
from veilcast.lab.experiment.kept_tables import KeptFile, check_kept_files
from veilcast.lab.experiment.manifest import (
    LogEntry,
    PortionsStored,
    ReadManifest,
    StoredPortion,
    StoredTable,
    SweepBegun,
    SweepFinished,
    SweepManifest,
)
from veilcast.lab.experiment.plan import SeedPortion
from veilcast.lab.storage.location import Location, iterate_chunks
from veilcast.lab.tables import MeasureRow, ScoreRow, VerdictRow


class NewPortion(NamedTuple):
    """A portion to store."""

    portion: SeedPortion
    measures: pa.Table
    wall_s: float


class ResultStore:
    """The stored results of one experiment, for one sweep."""

    def __init__(self, location: Location, name: str) -> None:
        self._location, self._name = location, name
        self._log = manifests.manifest_log(location, name)
        self._next = 0
        self._attempt = secrets.token_hex(4)
        """Part of the names of all files of this sweep."""

    def check(self, now: SweepManifest, *, fresh: bool) -> SweepManifest | None:
        """The manifest of a stored result that a sweep can continue; None if nothing is stored, or if `fresh` discards
        it. Writes nothing. Raises `StorageError` if the result was made differently, and `TamperedError` if a file has
        changed since it was stored."""
        self._location.check_writable()
        return self._read(now, fresh=fresh).manifest

    def begin(self, now: SweepManifest, *, fresh: bool) -> SweepManifest:
        """Claim the manifest. Returns the manifest to continue with: the stored portions, if they were made alike, or
        none."""
        before = self._read(now, fresh=fresh)
        self._next = before.next
        self._append(SweepBegun(now, before.manifest is None, before.incomplete))
        after = manifests.read_log(self._location, self._name)
        if after.manifest is None or after.next != self._next:
            raise self._overtaken()
        self._remove_unlisted(after.listed)
        if before.manifest is None:
            for number in self._log.numbers():
                if number < self._next - 1:
                    self._log.delete(number)
        return after.manifest

    def add(
        self, manifest: SweepManifest, portions: Sequence[NewPortion], kept: Sequence[KeptFile] = ()
    ) -> SweepManifest:
        """Store the portions of a job by one entry. When this returns, they are durable. Kept tables are written
        already; a job that keeps tables has one portion."""
        check_kept_files(self._location, kept)
        stored = []
        for portion, measures, wall_s in portions:
            file = f"{tables.place(MeasureRow, self._name, portion.bucket)}/{portion.stem}.{self._attempt}.parquet"
            written = self._write(file, measures)
            stored.append(StoredPortion(portion, len(measures), written, manifest.means, wall_s, tuple(kept)))
        self._append(PortionsStored(tuple(stored)))
        return msgspec.structs.replace(
            manifest,
            stored=tuple(sorted([*manifest.stored, *stored], key=lambda one: one.portion)),
            wall_s=manifest.wall_s + sum(one.wall_s for one in stored),
        )

    def finish(self, manifest: SweepManifest, scores: pa.Table, verdicts: pa.Table, wall_s: float) -> SweepManifest:
        file = f"all.{self._attempt}.parquet"
        entry = SweepFinished(
            seeds=sum(portion.seeds for portion in manifest.portions()),
            scores=self._write(f"{tables.place(ScoreRow, self._name)}/{file}", scores),
            verdicts=self._write(f"{tables.place(VerdictRow, self._name)}/{file}", verdicts),
            wall_s=wall_s,
        )
        self._append(entry)
        # Readers outside take every file of a directory.
        for old in (manifest.scores, manifest.verdicts):
            if old is not None:
                self._location.delete(old.path)
        return msgspec.structs.replace(
            manifest,
            status="complete",
            seeds=entry.seeds,
            scores=entry.scores,
            verdicts=entry.verdicts,
            wall_s=manifest.wall_s + wall_s,
        )

    def _read(self, now: SweepManifest, *, fresh: bool) -> ReadManifest:
        if fresh:
            return ReadManifest(None, max(self._log.numbers(), default=-1) + 1, (), frozenset())
        try:
            before = manifests.read_log(self._location, self._name)
            if before.manifest is not None:
                if differs := manifests.find_difference(before.manifest, now):
                    place = self._location.place
                    raise StorageError(f"{place} holds {self._name} made {differs}; choose another --out")
                self._check_files(before.manifest)
        except (StorageError, TamperedError) as error:
            raise type(error)(f"{error}; --fresh starts again") from error
        return before

    def _append(self, entry: LogEntry) -> None:
        if not self._log.create(self._next, manifests.encode_entry(entry)):
            raise self._overtaken()
        self._next += 1

    def _overtaken(self) -> StorageError:
        return StorageError(
            f"another sweep of {self._name} has begun in {self._location.place}, and this one ends: what it stored "
            "stays, and the other continues with it"
        )

    def _write(self, name: str, table: pa.Table) -> StoredTable:
        return StoredTable(name, tables.write(self._location, name, table))

    def _digest(self, name: str) -> str:
        digest = hashlib.sha256()
        with self._location.open_file(name) as file:
            for part in iterate_chunks(file):
                digest.update(part)
        return digest.hexdigest()

    def _check_files(self, manifest: SweepManifest) -> None:
        """Check that the listed files are those that were stored: a mean over other rows would be wrong."""
        sizes = self._sizes()
        for stored in manifest.stored:
            for path in (stored.measures.path, *(kept.path for kept in stored.kept)):
                if path not in sizes:
                    raise TamperedError(f"{self._location.path_of(path)} is gone, though the manifest lists it")
            tables.check(self._location, stored.measures.path, MeasureRow)
            if self._digest(stored.measures.path) != stored.measures.sha256:
                raise TamperedError(f"{self._location.path_of(stored.measures.path)} is not what was stored there")
            for kept in stored.kept:
                # Kept tables can be large: their sizes tell of a cut or a replaced file.
                if sizes[kept.path] != kept.bytes:
                    raise TamperedError(f"{self._location.path_of(kept.path)} is not what was stored there")

    def _sizes(self) -> Mapping[str, int]:
        """The sizes of all files of tables of this experiment."""
        places = [tables.place(row, self._name) for row in _STORED]
        return {file.name: file.bytes for place in places for file in self._location.list_files(place)}

    def _remove_unlisted(self, listed: frozenset[str]) -> None:
        left = [name for name in self._sizes() if name not in listed]
        left += [file.name for file in self._location.list_files(self._log.directory)]
        for name in left:
            if _OURS.fullmatch(name.rpartition("/")[2]):
                self._location.delete(name)


_OURS: Final = re.compile(
    r"(seeds-\d+-\d+(\.cell-\d+)?|all)(\.[0-9a-f]{8})?\.parquet|\.\d{6}\.json\.[0-9a-f]{8}\.new",
)
"""Names of files of sweeps that no entry lists, and of incomplete entries."""
_STORED: Final[tuple[type[msgspec.Struct], ...]] = (
    ScoreRow,
    VerdictRow,
    MeasureRow,
    *(tables.TABLES[name] for name in tables.OBSERVATIONS),
)
