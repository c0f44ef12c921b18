"""Tables that a `veilcast.observe.TableWriter` wrote, read in parts: JSON lines, cut where a line ends.

A writer that was stopped may leave a line without an end; it is left out, and this is said. A line that is no row of
its table is an error, told by where it stands.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa

from veilcast import observe
from veilcast.decoding import JsonDecoder
from veilcast.errors import StorageError, TamperedError
from veilcast.lab import tables


class Part(msgspec.Struct, frozen=True):
    """Whole lines of a file."""

    path: str
    file: int
    start: int
    end: int


def cut(path: Path, file: int, step: int) -> tuple[list[Part], str | None]:
    """The parts of a file, of about `step` bytes each, and what is wrong with its end."""
    parts, start = [], 0
    try:
        size = path.stat().st_size
        with path.open("rb") as lines:
            while size - start > step:
                lines.seek(start + step - 1)
                passed = lines.readline(LINE_MAX)
                if len(passed) == LINE_MAX:
                    raise TamperedError(f"{path} is no table: it has a line of {LINE_MAX:,} bytes or more")
                if not passed.endswith(b"\n"):
                    break
                parts.append(Part(str(path), file, start, lines.tell()))
                start = lines.tell()
            lines.seek(start)
            rest = lines.read(step + LINE_MAX)
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    whole = rest.rfind(b"\n") + 1
    if whole:
        parts.append(Part(str(path), file, start, start + whole))
    left = len(rest) - whole
    return parts, f"its last {left:,} bytes are no whole line" if left else None


def rows(part: Part, row: type[observe.Row]) -> list[tuple[Any, ...]]:
    """The rows of a part, as plain values in the order of the columns."""
    try:
        with Path(part.path).open("rb") as file:
            file.seek(part.start)
            data = file.read(part.end - part.start)
    except OSError as error:
        raise StorageError(f"cannot read {part.path}: {error.strerror}") from error
    decoder = _decoder(row)
    try:
        return decoder.decode_lines(data)
    except TamperedError as error:
        at, reason = _wrong_line(data, decoder) or (0, str(error.__cause__))
        where = f"{part.path}, the line at byte {part.start + at:,},"
        raise TamperedError(f"{where} is no row of {observe.TABLE_OF[row]}: {reason}") from error


def to_table(values: list[tuple[Any, ...]], row: type[observe.Row]) -> pa.Table:
    schema = tables.arrow_schema(row)
    columns = list(zip(*values, strict=True))
    if not columns:
        return schema.empty_table()
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)


def _wrong_line(data: bytes, decoder: JsonDecoder[tuple[Any, ...]]) -> tuple[int, str] | None:
    at = 0
    for line in data.splitlines(keepends=True):
        try:
            decoder.decode(line)
        except TamperedError as error:
            return at, str(error.__cause__)
        at += len(line)
    return None


@cache
def _decoder(row: type[observe.Row]) -> JsonDecoder[tuple[Any, ...]]:
    kinds = tuple(_kind(field) for field in msgspec.structs.fields(row))
    return JsonDecoder(tuple.__class_getitem__(kinds), TamperedError, "is no row")


def _kind(field: msgspec.structs.FieldInfo) -> Any:
    if field.name == "t_us":
        return _TIME
    return _INT64 if field.type is int else field.type


_TIME: Final = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
"""Differences of such times still fit 64 bits, whatever is taken off them."""
_INT64: Final = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
LINE_MAX: Final = 1 << 20
STEP: Final = 1 << 23
"""The most in one part: as rows of Python, it is some thirty times as large."""
