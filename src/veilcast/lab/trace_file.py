"""A trace of the user's own, from the file that `lab run --trace` names.

It is CSV as in `interaction_traces`, packed by gzip or not; or Parquet, a file or a directory as Spark writes it, with
the columns of the lab's table `interactions`: publisher and subscriber, whole numbers, and hour, a number or a date.
The first bytes tell the format, not the name. A process reads it once.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from numpy.typing import NDArray

from veilcast.errors import ConfigError, StorageError
from veilcast.lab import interaction_traces
from veilcast.lab.interaction_traces import InteractionTrace


def load_trace(path: Path) -> InteractionTrace:
    """Raises `StorageError` for an unreadable file, and `ConfigError` for one that is no trace."""
    return _load(path.absolute())


def digest_trace(path: Path) -> str:
    """Its SHA-256; for a directory, that of all its files."""
    found = hashlib.sha256()
    try:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                with file.open("rb") as opened:
                    found.update(f"{file.relative_to(path)}\0".encode())
                    found.update(hashlib.file_digest(opened, "sha256").digest())
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    return found.hexdigest()


@lru_cache(maxsize=1)
def _load(path: Path) -> InteractionTrace:
    try:
        if path.is_dir():
            return _columns(path)
        with path.open("rb") as file:
            start = file.read(len(_PARQUET))
        if start == _PARQUET:
            return _columns(path)
        with gzip.open(path) if start.startswith(_GZIP) else path.open("rb") as lines:
            return interaction_traces.parse_lines(lines, None)
    except ConfigError as error:
        raise ConfigError(f"{path} is no trace: {error}") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise StorageError(f"{path} cannot be read as a trace: it is packed, and damaged; fetch it again") from error
    except (OSError, pa.ArrowException) as error:
        # The system's reasons are short; Arrow's are long, and some of them are file errors.
        why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else _NO_PARQUET
        raise StorageError(f"{path} cannot be read as a trace: {why}; name a file of CSV, or Parquet") from error


def _columns(path: Path) -> InteractionTrace:
    stored = ds.dataset(path, format="parquet")
    missing = [name for name in _NAMES if name not in stored.schema.names]
    if missing:
        raise ConfigError(f"it has no column {missing[0]}; an interaction has {', '.join(_NAMES)}")
    table = stored.to_table(columns=list(_NAMES))
    return interaction_traces.parse_columns(_users(table, _NAMES[0]), _users(table, _NAMES[1]), _hours(table))


def _users(table: pa.Table, name: str) -> NDArray[np.int64]:
    column = table[name]
    if not pa.types.is_integer(column.type):
        raise ConfigError(f"users are whole numbers, and {name} has {column.type}")
    found: NDArray[np.int64] = pc.fill_null(column.cast(pa.int64()), -1).to_numpy()
    return found


def _hours(table: pa.Table) -> NDArray[np.float64]:
    column = table[_NAMES[2]]
    if pa.types.is_timestamp(column.type):
        since = pc.cast(pc.cast(column, pa.timestamp("us")), pa.int64())
        column = pc.divide(pc.cast(since, pa.float64()), 3.6e9)
    elif not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise ConfigError(f"hours are numbers or dates, and {_NAMES[2]} has {column.type}")
    found: NDArray[np.float64] = pc.fill_null(pc.cast(column, pa.float64()), float("nan")).to_numpy()
    return found


_NAMES: Final = ("publisher", "subscriber", "hour")
_PARQUET: Final = b"PAR1"
_NO_PARQUET: Final = "what is there is no Parquet, or is damaged"
_GZIP: Final = b"\x1f\x8b"
