"""The observations of a run: one frozen row type for each table, and a writer.

The lab sees nothing else of a network. The rows are plain on purpose: the simulator, a node's tap and a packet capture
fill the same columns, and `lab/tables.py` derives its Spark schemas from the fields below. Times are integer
microseconds (`_us`), stamped with the injected `now`, never with a clock of our own.

Which adversary sees which table: `CellRow`, `ReceivedRow` and `FormationRow` a global observer; `InsiderRow` a
coalition of members; `ServerRow` a relay's server or proxy, or a tree node; `TopologyRow` and `PresenceRow` anyone who
maps the overlay. `FactRow`, `PopularityRow`, `PairRow`, `WordRow` and `RootRow` are public; `PublishedRow` and
`TokenRow` are known to the members of a topic. `TruthRow` holds the labels; only `lab/measure` reads it.
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


class ReceivedRow(ObservationRow, frozen=True, gc=False):
    """Bytes that reached a node in a round of this length: a byte counter, where cells are too many to record."""

    t_us: int
    """Start of the round."""
    round_us: int
    node: str
    size: int


class FormationRow(ObservationRow, frozen=True, gc=False):
    """A node that carried notifications while the mesh of an epoch grew: stage 0 is the whole mesh, later stages have
    fewer of its subscribers."""

    epoch: int
    stage: int
    node: str


class FactRow(ObservationRow, frozen=True, gc=False):
    """A public parameter of the network, such as its heartbeat or its share of subscribers. `FACTS` has the names."""

    name: str
    value: float


class PopularityRow(ObservationRow, frozen=True, gc=False):
    """The public share of users that subscribe to a topic."""

    topic: str
    share: float


class PairRow(ObservationRow, frozen=True, gc=False):
    """The public share of users that subscribe to two topics; every pair stands in both orders."""

    topic: str
    other: str
    share: float


class PublishedRow(ObservationRow, frozen=True, gc=False):
    """A publication and its time, as every subscriber of the topic knows it."""

    topic: str
    t_us: int


class TokenRow(ObservationRow, frozen=True, gc=False):
    """The topic behind a token, as every member of the topic knows it."""

    epoch: int
    token: bytes
    topic: str


class LastingTokenRow(ObservationRow, frozen=True, gc=False):
    """The token that a topic has in all epochs, beside its token of this one, for an attacker on tokens that never
    change."""

    epoch: int
    token: bytes
    lasting: bytes


class WordRow(ObservationRow, frozen=True, gc=False):
    """A tag that an observer can compute for a topic: from a public word, or with the keys of an ally."""

    topic: str
    tag: bytes


class RootRow(ObservationRow, frozen=True, gc=False):
    """The node at which the floods of a topic begin in an epoch, where that is public."""

    topic: str
    epoch: int
    node: str


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

    def flush(self) -> None:
        """Hand all rows to the operating system, so that a reader who follows the files sees them."""
        for name, file in self._files.items():
            try:
                file.flush()
            except OSError as error:
                raise StorageError(f"cannot write {self._directory / name}.jsonl: {error.strerror}") from error

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
    "received": ReceivedRow,
    "formation": FormationRow,
    "facts": FactRow,
    "popularity": PopularityRow,
    "pairs": PairRow,
    "published": PublishedRow,
    "tokens": TokenRow,
    "lasting_tokens": LastingTokenRow,
    "words": WordRow,
    "roots": RootRow,
    "truth": TruthRow,
}
TABLE_OF: Final[dict[type[ObservationRow], str]] = {row: name for name, row in TABLES.items()}
FACTS: Final[dict[str, str]] = {
    "heartbeat_us": "Length of a heartbeat, in microseconds.",
    "begins_us": "Time from which rounds and volumes are counted, in microseconds; 0 without it.",
    "epoch_us": "Length of an epoch, in microseconds.",
    "hop_us": "Time of one hop, in microseconds, where answers to adverts can be timed.",
    "subscriber_share": "Share of nodes that subscribe, as far as it is known.",
    "cover_share": "Probability that a node that no member needs is in a mesh as a cover.",
    "acting": "Share of honest nodes that act as subscribers, covers included.",
    "kept": "1 if nodes keep their parents and relays their next hops.",
    "onward": "Probability that a relay hands a stem on.",
    "departures": "Number of epochs in which publishers release their notifications once; 0 for in every epoch.",
    "hold": "Largest number of epochs for which roots hold a notification back.",
    "relay_epochs": "Number of epochs after which a publisher changes its first relay; 0 for never.",
    "waits": "1 if publishers wait for an absent first relay.",
    "users": "Number of users of a relay.",
    "window_us": "Length of a proxy's batch, or of the window in which an observer compares records, in microseconds.",
    "lasting": "1 if a subscription has the same tag in every epoch.",
    "filter_bound": "Largest rate of false positives of a server's Bloom filters; 0 if the server holds tags.",
    "queries": "Number of topics that a server, being a user too, can ask about in an epoch.",
    "branching": "Number of children of an inner node of a tree, where the shape of trees is known.",
    "nearest_place": "Fewest hops behind the root of a tree at which its subscriber can stand.",
    "farthest_place": "Most hops behind the root of a tree at which its subscriber can stand.",
    "turnover": "Probability that a guard of a tree is gone by the next epoch.",
}
"""Names of the facts that attackers know, and what each means."""
