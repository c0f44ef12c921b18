"""A directory of results: one experiment's tables and manifest, written so that a kill at any moment does no harm.

Every file is put in its place whole, and counts from the moment at which the manifest lists it. What a killed sweep
left unlisted is removed by the next one. A lock keeps a second sweep of the same experiment away.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from veilcast.authority.secret_file import replace_file
from veilcast.errors import StorageError, TamperedError
from veilcast.lab import tables
from veilcast.lab.experiment import manifest as manifests
from veilcast.lab.experiment.manifest import StoredPortion, SweepManifest
from veilcast.lab.experiment.plan import SeedPortion
from veilcast.lab.tables import MeasureRow, RunRow, ScoreRow, VerdictRow


class ResultStore:
    """What is stored of one experiment. Made by `open_store`, which holds the lock."""

    def __init__(self, root: Path, name: str) -> None:
        self._root = root
        self._name = name
        self._path = manifest_path(root, name)

    def check(self, now: SweepManifest, *, fresh: bool) -> SweepManifest | None:
        """The manifest of what is there and may be gone on with; None if there is nothing, or it is to be discarded.
        Raises `StorageError` for what was made otherwise, and `TamperedError` for what is not as it was stored."""
        if fresh or not self._path.exists():
            return None
        try:
            before = manifests.read_manifest(self._path)
            if differs := manifests.find_difference(before, now):
                raise StorageError(f"{self._root} holds {self._name} made {differs}; choose another --out")
            with _told(self._root):
                self._check_files(before)
        except (StorageError, TamperedError) as error:
            raise type(error)(f"{error}; --fresh starts anew") from error
        return before

    def begin(self, now: SweepManifest, *, fresh: bool) -> SweepManifest:
        """The manifest to go on with: with what is there already, if it was made alike, or with nothing."""
        before = self.check(now, fresh=fresh)
        if before is None:
            with _told(self._root):
                self._discard()
            return self._write(now)
        with _told(self._root):
            self._remove_unlisted(before)
        # What is drawn and held against the numbers may have changed; the numbers stand.
        return self._write(msgspec.structs.replace(now, seeds=before.seeds, wall_s=before.wall_s, stored=before.stored))

    def add(
        self, manifest: SweepManifest, portion: SeedPortion, runs: pa.Table, measures: pa.Table, wall_s: float
    ) -> SweepManifest:
        """Store a portion; from the return on it is there."""
        digests = {}
        for row, table in ((RunRow, runs), (MeasureRow, measures)):
            file = self._file(row, portion)
            tables.write(file, table)
            with _told(self._root):
                digests[tables.TABLE_OF[row]] = _digest(file)
        stored = StoredPortion(portion, len(measures), digests, manifest.means, wall_s)
        return self._write(
            msgspec.structs.replace(
                manifest,
                stored=tuple(sorted([*manifest.stored, stored], key=lambda one: one.portion)),
                wall_s=manifest.wall_s + wall_s,
            )
        )

    def files(self, manifest: SweepManifest) -> list[Path]:
        """The measures that count."""
        return [self._file(MeasureRow, stored.portion) for stored in manifest.stored]

    def finish(self, manifest: SweepManifest, scores: pa.Table, verdicts: pa.Table, wall_s: float) -> SweepManifest:
        for row, table in ((ScoreRow, scores), (VerdictRow, verdicts)):
            tables.write(tables.place(self._root, row, self._name) / "all.parquet", table)
        seeds = sum(portion.seeds for portion in manifest.portions())
        return self._write(
            msgspec.structs.replace(manifest, status="complete", seeds=seeds, wall_s=manifest.wall_s + wall_s)
        )

    def _write(self, manifest: SweepManifest) -> SweepManifest:
        data = msgspec.json.format(msgspec.json.encode(manifest))
        with _told(self._root):
            self._path.parent.mkdir(exist_ok=True)
        replace_file(self._path, data, mode=0o644)
        return manifest

    def _check_files(self, manifest: SweepManifest) -> None:
        """That what is listed is what was stored: a mean over other rows would be believed."""
        for stored in manifest.stored:
            for row in (RunRow, MeasureRow):
                file = self._file(row, stored.portion)
                if not file.exists():
                    raise TamperedError(f"{file} is gone, though the manifest lists it")
                tables.check(file, row)
                if _digest(file) != stored.sha256.get(tables.TABLE_OF[row]):
                    raise TamperedError(f"{file} is not what was stored there")

    def _remove_unlisted(self, manifest: SweepManifest) -> None:
        listed = {self._file(row, portion) for row in (RunRow, MeasureRow) for portion in manifest.portions()}
        for row in (RunRow, MeasureRow):
            for file in tables.place(self._root, row, self._name).rglob("*"):
                if _OURS.fullmatch(file.name) and file not in listed:
                    file.unlink()

    def _discard(self) -> None:
        # The manifest first: what lies there without one is nothing.
        self._path.unlink(missing_ok=True)
        for row in (ScoreRow, VerdictRow, MeasureRow, RunRow):
            place = tables.place(self._root, row, self._name)
            if place.exists():
                shutil.rmtree(place)

    def _file(self, row: type[msgspec.Struct], portion: SeedPortion) -> Path:
        return tables.place(self._root, row, self._name, portion.bucket) / portion.file


@contextmanager
def open_store(root: Path, name: str) -> Iterator[ResultStore]:
    """The store, with its lock."""
    with ExitStack() as held:
        with _told(root):
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
def _told(root: Path) -> Iterator[None]:
    """A disk that fails, in one line."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot work in {root}: {os.strerror(error.errno) if error.errno else error}") from error


def _digest(file: Path) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


_OURS: Final = re.compile(r"\.?seeds-\d+-\d+\.parquet(\.\d+\.new)?")
