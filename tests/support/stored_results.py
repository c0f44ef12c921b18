"""Looks at stored results on the disk, past their manifest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pyarrow as pa

from veilcast.lab import tables
from veilcast.lab.storage.location import LocalDirectory


def tables_in(out: Path) -> dict[str, bytes]:
    """Every table of a result, byte for byte. The part of a name that is an attempt's own is left out."""
    return tables_among({path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*.parquet")})


def tables_among(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The same of the files of another file system, by name."""
    found = [(_plain(name), data) for name, data in sorted(files.items()) if name.endswith(".parquet")]
    assert len(dict(found)) == len(found), "two attempts have left the same file"
    return dict(found)


def files_of(out: Path, row: type[msgspec.Struct], name: str) -> list[Path]:
    """The files of an experiment's table, listed or not."""
    return sorted((out / tables.place(row, name)).rglob("*.parquet"))


def read_table(out: Path, row: type[msgspec.Struct], name: str) -> pa.Table:
    """All rows in the files of an experiment's table."""
    files = [path.relative_to(out).as_posix() for path in files_of(out, row, name)]
    return tables.read(LocalDirectory(out), row, name, files)


def _plain(name: str) -> str:
    return re.sub(r"\.[0-9a-f]{8}\.", ".", name)
