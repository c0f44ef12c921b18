"""The observations of a run: one frozen row type for each table, and a writer.

The lab sees nothing else of a network. The rows are plain on purpose: the simulator, a node's tap and a packet capture
fill the same columns, and `lab/tables.py` derives its Spark schemas from the fields below. Times are integer
microseconds (`_us`), stamped with the injected `now`, never with a clock of our own.

Which adversary sees which table: `CellRow` a global observer; `InsiderRow` a coalition of members; `ServerRow` a
relay's server or proxy, or a tree node; `TopologyRow` and `PresenceRow` anyone who maps the overlay. `TruthRow` holds
the labels; only `lab/measure` reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self, TypeVar

import msgspec

from veilcast.decoding import JsonDecoder
from veilcast.errors import StorageError, TamperedError


class ObservationRow(msgspec.Struct, frozen=True, gc=False):
    """The base of every row. `run` names the run it was seen in."""

    run: str


class CellRow(ObservationRow, frozen=True, gc=False):
    """One frame on one wire, as an observer of every link sees it."""

    epoch: int
    t_us: int
    src: str
    dst: str
    size: int


class TopologyRow(ObservationRow, frozen=True, gc=False):
    """One undirected link of the overlay in one epoch, u < v."""

    epoch: int
    u: str
    v: str


class PresenceRow(ObservationRow, frozen=True, gc=False):
    """This node was reachable in this epoch."""

    epoch: int
    node: str


class InsiderRow(ObservationRow, frozen=True, gc=False):
    """One message as a hostile member saw it come in or go out."""

    epoch: int
    t_us: int
    observer: str
    peer: str
    kind: str
    message: bytes
    token: bytes
    chain: bytes
    about: str


class ServerRow(ObservationRow, frozen=True, gc=False):
    """One request, as a relay's server or proxy, or a tree node, saw it."""

    epoch: int
    t_us: int
    role: str
    pseudonym: str
    tag: bytes
    size: int


class TruthRow(ObservationRow, frozen=True, gc=False):
    """The true role of a node in a topic, and its period: the labels that an attack is measured against."""

    topic: str
    node: str
    role: str
    since_us: int
    until_us: int


class TableWriter:
    """Appends rows to `DIRECTORY/TABLE.jsonl`, one JSON array a line, in column order; a context manager."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[str, IO[bytes]] = {}
        self._encoder = msgspec.json.Encoder()
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot make {directory}: {error.strerror}") from error

    def append(self, row: ObservationRow) -> None:
        name = TABLE_OF[type(row)]
        try:
            file = self._files.get(name)
            if file is None:
                file = self._files[name] = (self._directory / f"{name}.jsonl").open("ab")
            file.write(self._encoder.encode(msgspec.structs.astuple(row)) + b"\n")
        except OSError as error:
            raise StorageError(f"cannot write {self._directory / name}.jsonl: {error.strerror}") from error

    def extend(self, rows: Iterable[ObservationRow]) -> None:
        for row in rows:
            self.append(row)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


AnyRow = TypeVar("AnyRow", bound=ObservationRow)


def read_table(directory: Path, row_type: type[AnyRow]) -> Iterator[AnyRow]:
    """Yield the rows a `TableWriter` wrote, checked against their columns."""
    path = directory / f"{TABLE_OF[row_type]}.jsonl"
    decoder = _decoder(row_type)
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            yield row_type(*decoder.decode(line, f"{path}:{number}"))


@cache
def _decoder(row_type: type[ObservationRow]) -> JsonDecoder[tuple[Any, ...]]:
    kinds = tuple(field.type for field in msgspec.structs.fields(row_type))
    return JsonDecoder(tuple.__class_getitem__(kinds), TamperedError, f"is not a row of {TABLE_OF[row_type]}")


TABLES: Final[dict[str, type[ObservationRow]]] = {
    "cells": CellRow,
    "topology": TopologyRow,
    "presence": PresenceRow,
    "insiders": InsiderRow,
    "server": ServerRow,
    "truth": TruthRow,
}
TABLE_OF: Final[dict[type[ObservationRow], str]] = {row: name for name, row in TABLES.items()}
