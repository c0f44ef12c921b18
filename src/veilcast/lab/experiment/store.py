"""A directory of results: the tables and the manifest of an experiment, safe against a kill at any moment.

Every file is put in its place whole, and counts once the manifest lists it. The next sweep removes files that a killed
sweep left unlisted. A lock keeps a second sweep of the same experiment away.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from veilcast.authority.secret_file import replace_file
from veilcast.errors import StorageError, TamperedError
from veilcast.lab import tables
from veilcast.lab.experiment import manifest as manifests
from veilcast.lab.experiment.kept_tables import KeptFile, check_kept_files
from veilcast.lab.experiment.manifest import StoredPortion, SweepManifest
from veilcast.lab.experiment.plan import SeedPortion
from veilcast.lab.tables import MeasureRow, RunRow, ScoreRow, VerdictRow


class ResultStore:
    """The stored results of one experiment. `open_store` makes it and holds its lock."""

    def __init__(self, root: Path, name: str) -> None:
        self._root = root
        self._name = name
        self._path = manifest_path(root, name)

    def check(self, now: SweepManifest, *, fresh: bool) -> SweepManifest | None:
        """The manifest of a stored result that a sweep can continue; None if nothing is stored, or if `fresh` discards
        it. Raises `StorageError` if the result was made differently, and `TamperedError` if a file has changed since it
        was stored."""
        if fresh or not self._path.exists():
            return None
        try:
            before = manifests.read_manifest(self._path)
            if differs := manifests.find_difference(before, now):
                raise StorageError(f"{self._root} holds {self._name} made {differs}; choose another --out")
            with _disk_errors(self._root):
                self._check_files(before)
        except (StorageError, TamperedError) as error:
            raise type(error)(f"{error}; --fresh starts again") from error
        return before

    def begin(self, now: SweepManifest, *, fresh: bool) -> SweepManifest:
        """The manifest to continue with: the stored portions, if they were made alike, or none."""
        before = self.check(now, fresh=fresh)
        if before is None:
            with _disk_errors(self._root):
                self._discard()
            return self._write(now)
        with _disk_errors(self._root):
            self._remove_unlisted(before)
        for stored in before.stored:
            # Results from before have all portions in one file.
            self._list(stored)
        # Figures and published numbers may have changed since; the measures remain valid.
        return self._write(
            msgspec.structs.replace(
                now, seeds=before.seeds, wall_s=before.wall_s, stored=before.stored, keep=before.keep
            )
        )

    def add(
        self,
        manifest: SweepManifest,
        portion: SeedPortion,
        runs: pa.Table,
        measures: pa.Table,
        wall_s: float,
        kept: Sequence[KeptFile] = (),
    ) -> SweepManifest:
        """Store a portion. When this returns, the portion is durable. Its kept tables are written already."""
        check_kept_files(self._root, kept)
        digests = {}
        for row, table in ((RunRow, runs), (MeasureRow, measures)):
            file = self._file(row, portion)
            tables.write(file, table)
            with _disk_errors(self._root):
                digests[tables.TABLE_OF[row]] = _digest(file)
        stored = StoredPortion(portion, len(measures), digests, manifest.means, wall_s, tuple(kept))
        self._list(stored)
        return msgspec.structs.replace(
            manifest,
            stored=tuple(sorted([*manifest.stored, stored], key=lambda one: one.portion)),
            wall_s=manifest.wall_s + wall_s,
        )

    def files(self, manifest: SweepManifest) -> list[Path]:
        """The files of measures that the manifest lists."""
        return [self._file(MeasureRow, stored.portion) for stored in manifest.stored]

    def finish(self, manifest: SweepManifest, scores: pa.Table, verdicts: pa.Table, wall_s: float) -> SweepManifest:
        for row, table in ((ScoreRow, scores), (VerdictRow, verdicts)):
            tables.write(tables.place(self._root, row, self._name) / "all.parquet", table)
        seeds = sum(portion.seeds for portion in manifest.portions())
        return self._write(
            msgspec.structs.replace(manifest, status="complete", seeds=seeds, wall_s=manifest.wall_s + wall_s)
        )

    def _write(self, manifest: SweepManifest) -> SweepManifest:
        with _disk_errors(self._root):
            self._path.parent.mkdir(exist_ok=True)
        replace_file(self._path, manifests.encode_head(manifest), mode=0o644)
        return manifest

    def _list(self, stored: StoredPortion) -> None:
        """List a portion in the manifest, once."""
        entry = manifests.portion_entry(self._path, stored.portion)
        with _disk_errors(self._root):
            if entry.exists():
                return
            entry.parent.mkdir(parents=True, exist_ok=True)
        replace_file(entry, msgspec.json.encode(stored), mode=0o644)

    def _check_files(self, manifest: SweepManifest) -> None:
        """Check that the listed files are those that were stored: a mean over other rows would be wrong."""
        for stored in manifest.stored:
            for row in (RunRow, MeasureRow):
                file = self._file(row, stored.portion)
                if not file.exists():
                    raise TamperedError(f"{file} is gone, though the manifest lists it")
                tables.check(file, row)
                if _digest(file) != stored.sha256.get(tables.TABLE_OF[row]):
                    raise TamperedError(f"{file} is not what was stored there")
            for kept in stored.kept:
                # Kept tables can be large: their sizes tell of a cut or a replaced file.
                file = self._root / kept.path
                if not file.exists():
                    raise TamperedError(f"{file} is gone, though the manifest lists it")
                if file.stat().st_size != kept.bytes:
                    raise TamperedError(f"{file} is not what was stored there")

    def _remove_unlisted(self, manifest: SweepManifest) -> None:
        listed = {self._file(row, portion) for row in (RunRow, MeasureRow) for portion in manifest.portions()}
        listed |= {self._root / kept.path for stored in manifest.stored for kept in stored.kept}
        for row in _PORTIONED:
            for file in tables.place(self._root, row, self._name).rglob("*"):
                if _OURS.fullmatch(file.name) and file not in listed:
                    file.unlink()

    def _discard(self) -> None:
        # The manifest first: files without a manifest do not count.
        self._path.unlink(missing_ok=True)
        places = [tables.place(self._root, row, self._name) for row in _STORED]
        for place in (manifests.portions_directory(self._path), *places):
            if place.exists():
                shutil.rmtree(place)

    def _file(self, row: type[msgspec.Struct], portion: SeedPortion) -> Path:
        return tables.place(self._root, row, self._name, portion.bucket) / portion.file


@contextmanager
def open_store(root: Path, name: str) -> Iterator[ResultStore]:
    """Open the store and lock it."""
    with ExitStack() as held:
        with _disk_errors(root):
            root.mkdir(parents=True, exist_ok=True)
            lock = held.enter_context((root / f".{name}.lock").open("wb"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise StorageError(f"another sweep is writing {name} to {root}") from error
        yield ResultStore(root, name)


def manifest_path(root: Path, name: str) -> Path:
    return root / "manifests" / f"{name}.json"


@contextmanager
def _disk_errors(root: Path) -> Iterator[None]:
    """Turn errors of the disk into one line."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot work in {root}: {os.strerror(error.errno) if error.errno else error}") from error


def _digest(file: Path) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


_OURS: Final = re.compile(r"\.?seeds-\d+-\d+(\.cell-\d+\.[0-9a-f]+)?\.parquet(\.\d+\.new)?")
_PORTIONED: Final[tuple[type[msgspec.Struct], ...]] = (
    RunRow,
    MeasureRow,
    *(tables.TABLES[name] for name in tables.OBSERVATIONS),
)
"""Rows of tables that have files for each portion."""
_STORED: Final[tuple[type[msgspec.Struct], ...]] = (ScoreRow, VerdictRow, *_PORTIONED)
