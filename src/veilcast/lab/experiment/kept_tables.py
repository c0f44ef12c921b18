"""Observation tables that a sweep keeps: the files that its tasks write, and how they are read again.

A task writes one file of each table, for some runs of one cell, straight into the results, under a name that no other
attempt has. A file counts when the manifest lists it, so what a killed or repeated task left is ignored, and the next
sweep removes it. The metadata of each file says which runs, code and parameters its rows come from. Rows go from the
run to the file in parts; no process holds a table, and none of it goes through the process that sweeps.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from veilcast.decoding import JsonDecoder
from veilcast.errors import StorageError, TamperedError
from veilcast.lab import tables
from veilcast.lab.experiment.recorder import TableRecorder
from veilcast.lab.spark.locations import LocationAddress
from veilcast.lab.storage.location import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from veilcast.lab.experiment.manifest import SweepManifest


class KeptFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a kept table, as its task describes it and the manifest lists it."""

    table: str
    path: str
    """Below the location of results."""
    rows: int
    bytes: int
    sha256: str


class KeptGroup(msgspec.Struct, frozen=True):
    """A file of each kept table, with the same whole runs of one cell in all of them."""

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

    root: LocationAddress
    experiment: str
    names: tuple[str, ...]
    lineage: dict[str, str]
    """What the metadata of every file says: the engine, the code's fingerprint and its commit."""


class KeptWriter:
    """Writes the kept tables of some runs of one cell. Only `finish` makes files that may be listed."""

    def __init__(self, output: KeptOutput, cell: int, name: str, params: bytes, seeds: Sequence[int]) -> None:
        self._output, self._location = output, output.root.open()
        self._stem = f"seeds-{seeds[0]:06}-{seeds[-1]:06}.cell-{cell}.{secrets.token_hex(4)}.parquet"
        lineage = output.lineage | {"experiment": output.experiment, "cell": name, "params": params.decode()}
        runs = [run_name(name, seed) for seed in seeds]
        self._metadata = {METADATA_KEY: msgspec.json.encode({**lineage, "seeds": list(seeds), "runs": runs})}
        self._open: dict[str, _OpenTable] = {}

    def record_run(self, name: str) -> TableRecorder:
        """The recorder for the next run."""
        return TableRecorder(name, {table: self._table(table).append for table in self._output.names})

    def add_rows(self, table: str, rows: pa.Table) -> None:
        """Add rows of no run of their own, such as measures."""
        self._table(table).append(rows)

    def finish(self) -> list[KeptFile]:
        """The files, one for each kept table; a table that got no rows has an empty file."""
        return [self._open[table].finish() for table in self._output.names]

    def _table(self, table: str) -> _OpenTable:
        if table not in self._open:
            name = f"{tables.place(tables.TABLES[table], self._output.experiment)}/{self._stem}"
            self._open[table] = _OpenTable(table, self._location, name, self._metadata)
        return self._open[table]


class _OpenTable:
    """A file that is being written; rows wait until they fill a row group."""

    def __init__(self, table: str, location: Location, name: str, metadata: dict[bytes, bytes]) -> None:
        self._table, self._name = table, name
        self._schema = tables.arrow_schema(tables.TABLES[table], stored=True).with_metadata(metadata)
        self._waiting: list[pa.Table] = []
        self._rows = self._waiting_rows = 0
        self._file = _DigestedFile(location.open_new(name))
        self._writer: Any = pq.ParquetWriter(self._file, self._schema, compression="zstd")

    def append(self, part: pa.Table) -> None:
        self._waiting.append(part)
        self._waiting_rows += len(part)
        if self._waiting_rows >= _GROUP_ROWS:
            self._flush()

    def finish(self) -> KeptFile:
        self._flush()
        self._writer.close()
        self._file.close()
        return KeptFile(self._table, self._name, self._rows, self._file.tell(), self._file.digest.hexdigest())

    def _flush(self) -> None:
        if not self._waiting:
            return
        # One chunk, cut at fixed rows: the parts of a run must not show in the bytes.
        whole = pa.concat_tables(self._waiting).replace_schema_metadata(self._schema.metadata).combine_chunks()
        self._writer.write_table(whole, row_group_size=_GROUP_ROWS)
        self._rows += len(whole)
        self._waiting, self._waiting_rows = [], 0


class _DigestedFile:
    """A new file, whose digest is known without reading it again."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._size = file, 0
        self.digest = hashlib.sha256()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def write(self, data: bytes | memoryview) -> int:
        self.digest.update(data)
        self._size += memoryview(data).nbytes
        return self._file.write(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def run_name(cell: str, seed: int) -> str:
    """The name of a run, in the column `run` of all tables."""
    return f"{cell} seed={seed}"


def split_run_name(run: str) -> tuple[str, int]:
    """The cell and the seed of a run. Another name is that of a cell with one run."""
    cell, mark, seed = run.rpartition(" seed=")
    return (cell, int(seed)) if mark and seed.isdigit() else (run, 0)


def check_kept_files(location: Location, files: Sequence[KeptFile]) -> None:
    """Raise `StorageError` if this machine does not see what tasks have written."""
    places = dict.fromkeys(file.path.rpartition("/")[0] for file in files)
    seen = {file.name for place in places for file in location.list_files(place)}
    for file in files:
        if file.path not in seen:
            raise StorageError(
                f"an executor wrote {location.path_of(file.path)} where this machine does not see it; with --keep, "
                "--out must be a location that all of them share"
            )


def count_kept_rows(manifest: SweepManifest) -> int:
    """The rows of a run in all kept tables: the most of any cell, by the means of the first portion; 0 before it."""
    groups = list_groups(msgspec.structs.replace(manifest, stored=manifest.stored[:1]))
    return max((group.rows_of_run for group in groups), default=0)


def list_groups(manifest: SweepManifest) -> list[KeptGroup]:
    """All files of kept tables, by cell and seeds."""
    found: dict[tuple[int, int, int], dict[str, KeptFile]] = {}
    for stored in manifest.stored:
        for file in stored.kept:
            first, last, cell = map(int, _NAME.findall(file.path)[0])
            found.setdefault((cell, first, last), {})[file.table] = file
    return [
        KeptGroup(cell, tuple(range(first, last + 1)), files) for (cell, first, last), files in sorted(found.items())
    ]


def read_kept(location: Location, manifest: SweepManifest, table: str) -> pa.Table:
    """A kept table of an experiment. For small ones; `kept_frame` is for all."""
    return tables.read(location, tables.TABLES[table], manifest.experiment, _names(location, manifest, table))


def kept_frame(spark: SparkSession, location: Location, manifest: SweepManifest, table: str) -> DataFrame:
    """The same as a frame of Spark."""
    return tables.frame(spark, location, tables.TABLES[table], manifest.experiment, _names(location, manifest, table))


def read_lineage(location: Location, name: str) -> dict[str, Any]:
    """The origin of the rows of a kept file."""
    with location.open_file(name) as file:
        found = (pq.read_schema(file).metadata or {}).get(METADATA_KEY)
    if found is None:
        raise TamperedError(f"{location.path_of(name)} does not say from which runs it is")
    return dict(_LINEAGE.decode(found, location.path_of(name)))


def _names(location: Location, manifest: SweepManifest, table: str) -> list[str]:
    if table not in manifest.keep:
        kept = f"it kept {', '.join(manifest.keep)}" if manifest.keep else "it kept no tables"
        raise StorageError(
            f"{location.place} has no {table} of {manifest.experiment}: {kept}; "
            f"`veilcast lab run {manifest.experiment} --keep {table}` in another --out makes them"
        )
    return [file.path for stored in manifest.stored for file in stored.kept if file.table == table]


_NAME: Final = re.compile(r"seeds-(\d+)-(\d+)\.cell-(\d+)\.[0-9a-f]+\.parquet$")
METADATA_KEY: Final = b"veilcast"
"""The key of a file's origin, as JSON, in its metadata."""
_LINEAGE: Final = JsonDecoder(dict[str, Any], TamperedError, "says nothing readable of its runs")
_GROUP_ROWS: Final = 1 << 20
