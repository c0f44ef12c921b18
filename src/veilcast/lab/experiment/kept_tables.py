"""Observation tables that a sweep keeps: the files that its tasks write, and how they are read again.

A task writes one file for each table and cell of a portion, straight into the results, under a name that no other
attempt has: neither a lock nor a rename is needed. A file counts when the manifest lists it, so what a killed or
repeated task left is ignored, and the next sweep removes it. The metadata of each file says which runs, code and
parameters its rows come from. Rows go from the run to the file in parts; no process holds a table, and none of it goes
through the process that sweeps.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from veilcast.decoding import JsonDecoder
from veilcast.errors import StorageError, TamperedError
from veilcast.lab import tables
from veilcast.lab.experiment.recorder import TableRecorder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from veilcast.lab.experiment.manifest import SweepManifest


class KeptFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a kept table, as its task describes it and the manifest lists it."""

    table: str
    path: str
    """Below the directory of results."""
    rows: int
    bytes: int
    sha256: str


class KeptGroup(msgspec.Struct, frozen=True):
    """The files of one portion and one cell: a file of each kept table, with the same whole runs in all of them."""

    cell: int
    """The number of the cell."""
    seeds: tuple[int, ...]
    files: dict[str, KeptFile]
    """By table."""

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files.values())

    @property
    def rows_of_run(self) -> int:
        """Mean number of rows of a run in all tables: runs of a cell are alike."""
        return self.rows // len(self.seeds)


class KeptOutput(msgspec.Struct, frozen=True):
    """Which tables a sweep keeps, and where."""

    root: str
    experiment: str
    names: tuple[str, ...]
    lineage: dict[str, str]
    """What the metadata of every file says: the engine, the code's fingerprint and its commit."""


class KeptWriter:
    """Writes the kept tables of some runs of one cell. Only `finish` makes files that may be listed."""

    def __init__(self, output: KeptOutput, cell: int, name: str, params: bytes, seeds: Sequence[int]) -> None:
        self._output = output
        self._stem = f"seeds-{seeds[0]:06}-{seeds[-1]:06}.cell-{cell}.{secrets.token_hex(4)}.parquet"
        lineage = output.lineage | {"experiment": output.experiment, "cell": name, "params": params.decode()}
        runs = [run_name(name, seed) for seed in seeds]
        self._metadata = {METADATA_KEY: msgspec.json.encode({**lineage, "seeds": list(seeds), "runs": runs})}
        self._open: dict[str, _OpenTable] = {}

    def record_run(self, name: str) -> TableRecorder:
        """The recorder for the next run."""
        return TableRecorder(name, {table: self._table(table).append for table in self._output.names})

    def finish(self) -> list[KeptFile]:
        """The files, one for each kept table; a table that got no rows has an empty file."""
        return [self._open[table].finish() for table in self._output.names]

    def _table(self, table: str) -> _OpenTable:
        if table not in self._open:
            place = Path(self._output.root, table, f"experiment={self._output.experiment}")
            self._open[table] = _OpenTable(table, Path(self._output.root), place / self._stem, self._metadata)
        return self._open[table]


class _OpenTable:
    """A file that is being written; rows wait until they fill a row group."""

    def __init__(self, table: str, root: Path, path: Path, metadata: dict[bytes, bytes]) -> None:
        self._table, self._root, self._path = table, root, path
        self._schema = tables.arrow_schema(tables.TABLES[table]).with_metadata(metadata)
        self._waiting: list[pa.Table] = []
        self._rows = self._waiting_rows = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("xb")
        except OSError as error:
            raise _cannot_write(path, error) from error
        self._writer: Any = pq.ParquetWriter(self._file, self._schema, compression="zstd")

    def append(self, part: pa.Table) -> None:
        self._waiting.append(part)
        self._waiting_rows += len(part)
        if self._waiting_rows >= _GROUP_ROWS:
            self._flush()

    def finish(self) -> KeptFile:
        self._flush()
        try:
            self._writer.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            with self._path.open("rb") as data:
                digest = hashlib.file_digest(data, "sha256").hexdigest()
            size = self._path.stat().st_size
        except OSError as error:
            raise _cannot_write(self._path, error) from error
        return KeptFile(self._table, self._path.relative_to(self._root).as_posix(), self._rows, size, digest)

    def _flush(self) -> None:
        if not self._waiting:
            return
        # One chunk, cut at fixed rows: the parts of a run must not show in the bytes.
        whole = pa.concat_tables(self._waiting).replace_schema_metadata(self._schema.metadata).combine_chunks()
        try:
            self._writer.write_table(whole, row_group_size=_GROUP_ROWS)
        except OSError as error:
            raise _cannot_write(self._path, error) from error
        self._rows += len(whole)
        self._waiting, self._waiting_rows = [], 0


def run_name(cell: str, seed: int) -> str:
    """The name of a run, in the column `run` of all tables."""
    return f"{cell} seed={seed}"


def check_kept_files(root: Path, files: Sequence[KeptFile]) -> None:
    """Raise `StorageError` if this machine does not see what tasks have written."""
    for file in files:
        path = root / file.path
        if not path.exists():
            raise StorageError(
                f"an executor wrote {path} where this machine does not see it; with --keep, --out must be a directory "
                "that all of them share"
            )


def list_groups(manifest: SweepManifest) -> list[KeptGroup]:
    """All files of kept tables, by cell and portion."""
    found: dict[tuple[int, int, int], dict[str, KeptFile]] = {}
    for stored in manifest.stored:
        for file in stored.kept:
            first, last, cell = map(int, _NAME.findall(file.path)[0])
            found.setdefault((cell, first, last), {})[file.table] = file
    return [
        KeptGroup(cell, tuple(range(first, last + 1)), files) for (cell, first, last), files in sorted(found.items())
    ]


def read_kept(root: Path, manifest: SweepManifest, table: str) -> pa.Table:
    """A kept table of an experiment. For small ones; `kept_frame` is for all."""
    return tables.read(root, tables.TABLES[table], manifest.experiment, _paths(root, manifest, table))


def kept_frame(spark: SparkSession, root: Path, manifest: SweepManifest, table: str) -> DataFrame:
    """The same as a frame of Spark."""
    return tables.frame(spark, root, tables.TABLES[table], manifest.experiment, _paths(root, manifest, table))


def read_lineage(path: Path) -> dict[str, Any]:
    """The origin of the rows of a kept file."""
    found = (pq.read_schema(path).metadata or {}).get(METADATA_KEY)
    if found is None:
        raise TamperedError(f"{path} does not say from which runs it is")
    return dict(_LINEAGE.decode(found, path))


def _paths(root: Path, manifest: SweepManifest, table: str) -> list[Path]:
    if table not in manifest.keep:
        kept = f"it kept {', '.join(manifest.keep)}" if manifest.keep else "it kept no tables"
        raise StorageError(
            f"{root} has no {table} of {manifest.experiment}: {kept}; "
            f"`veilcast lab run {manifest.experiment} --keep {table}` in another --out makes them"
        )
    return [root / file.path for stored in manifest.stored for file in stored.kept if file.table == table]


def _cannot_write(path: Path, error: OSError) -> StorageError:
    return StorageError(f"cannot write {path}: {os.strerror(error.errno) if error.errno else error}")


_NAME: Final = re.compile(r"seeds-(\d+)-(\d+)\.cell-(\d+)\.[0-9a-f]+\.parquet$")
METADATA_KEY: Final = b"veilcast"
"""The key of a file's origin, as JSON, in its metadata."""
_LINEAGE: Final = JsonDecoder(dict[str, Any], TamperedError, "says nothing readable of its runs")
_GROUP_ROWS: Final = 1 << 20
