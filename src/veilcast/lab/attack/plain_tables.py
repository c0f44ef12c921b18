"""An attack on tables that no stored experiment explains: their names say which adversary has seen them.

1. Each job needs some tables, and knows attackers by name. The tables that are there decide which jobs are possible.
2. A named attacker is asked through the first possible job that knows it. Without names every possible job asks all its
   attackers that have what they need, except jobs that are for a special question or for ambiguous tables.
3. `cells` are a capture, unless numbers of `epochs` are given. Then they are the copies of one notification in each
   epoch, as P0 grants them to a global observer, and `topology` is needed, too. Without `presence`, all nodes of the
   overlay are present.

Tables are checked before anything is computed: a missing column is an error that names it. Spark frames and Arrow
tables take the same path (`table_engine`). If any table is a frame, Arrow tables beside it become frames.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.insider.coalition_job import guess_from_coalition
from veilcast.lab.attack.insider.observations import CoalitionObservations
from veilcast.lab.attack.insider.token_attackers import TokenObservations
from veilcast.lab.attack.insider.token_job import guess_from_tokens
from veilcast.lab.attack.insider.tree_job import guess_from_trees
from veilcast.lab.attack.insider.tree_nodes import TreeObservations
from veilcast.lab.attack.observer.capture_job import guess_from_captures
from veilcast.lab.attack.observer.clock_job import guess_from_clocks
from veilcast.lab.attack.observer.clock_skew import LinkCells
from veilcast.lab.attack.observer.epoch_job import guess_from_epochs
from veilcast.lab.attack.observer.observations import CaptureObservations, EpochObservations
from veilcast.lab.attack.registry import attack_names
from veilcast.lab.attack.server.lease_job import guess_from_leases
from veilcast.lab.attack.server.lease_times import LeaseTimes
from veilcast.lab.attack.server.observations import ServerObservations
from veilcast.lab.attack.server.server_job import guess_from_server
from veilcast.lab.attack.stream.model import StreamObservations
from veilcast.lab.attack.stream.stream_job import guess_streams
from veilcast.lab.attack.table_engine import AnyTable, concat_rows, engine_of
from veilcast.lab.tables import GuessRow, StreamGuessRow
from veilcast.nearest import did_you_mean


@dataclass(frozen=True, eq=False)
class AttackJob:
    adversary: str
    needs: tuple[str, ...]
    """The tables without which it sees nothing."""
    observes: type[Any]
    guess: Callable[[Mapping[str, AnyTable], Collection[str] | None, Sequence[int]], AnyTable]
    row: type[msgspec.Struct] = GuessRow
    by_epochs: bool | None = None
    """Whether numbers of epochs must be given, or must not be; None if either will do."""
    by_name: bool = False
    """Whether its attackers are asked only by their names."""

    def is_possible(self, observed: Collection[str], *, epochs: bool) -> bool:
        return set(self.needs) <= set(observed) and self.by_epochs in (None, epochs)


def attack_plain_tables(
    observed: AnyTable | Mapping[str, AnyTable], names: Collection[str] | None = None, epochs: Sequence[int] = ()
) -> AnyTable:
    """The guesses of these attackers, as `guesses`, or as `stream_guesses` if the tables are streams. A table alone is
    `cells`. Raises `ConfigError`, in one line, for what cannot be attacked."""
    given = check_tables(observed if isinstance(observed, Mapping) else {"cells": observed})
    if names is not None and not names:
        raise ConfigError("no attack is named")
    if any(number < 1 for number in epochs):
        raise ConfigError("numbers of epochs are 1 or more")
    able = [job for job in JOBS if job.is_possible(given, epochs=bool(epochs))]
    if not able:
        needs = "; ".join(f"{job.adversary}: {', '.join(job.needs)}" for job in JOBS)
        raise ConfigError(f"no adversary sees {', '.join(sorted(given)) or 'no table'} alone; an attack needs {needs}")
    asked: dict[AttackJob, list[str] | None] = (
        {} if names is not None else {job: None for job in able if not job.by_name}
    )
    for name in names or ():
        job = next((job for job in able if name in attack_names(job.observes)), None)
        if job is None:
            raise ConfigError(_explain_missing(name, able))
        asked[job] = [*(asked.get(job) or []), name]
    if not asked:
        raise ConfigError(f"name the attackers of {' or '.join(job.adversary for job in able)}")
    if len({job.row for job in asked}) > 1:
        raise ConfigError("attack streams and nodes apart: their guesses have different columns")
    return concat_rows([job.guess(given, chosen, epochs) for job, chosen in asked.items()])


def check_tables(observed: Mapping[str, AnyTable]) -> dict[str, AnyTable]:
    """The tables with the columns that are defined, of one engine. Raises `ConfigError` for what is no table of that
    name."""
    checked = {name: check_columns(name, table) for name, table in observed.items()}
    frames = [table for table in checked.values() if not isinstance(table, pa.Table)]
    if not frames:
        return checked
    spark = frames[0].sparkSession
    return {
        name: tables.make_frame(spark, table, tables.TABLES[name]) if isinstance(table, pa.Table) else table
        for name, table in checked.items()
    }


def check_columns(name: str, table: AnyTable) -> AnyTable:
    """The columns of the table of this name, in their order and with their types."""
    if name not in tables.TABLES:
        known = ", ".join(tables.OBSERVATIONS)
        raise ConfigError(f"there is no table {name}; there are {known}{did_you_mean(name, tables.OBSERVATIONS)}")
    schema = tables.arrow_schema(tables.TABLES[name])
    if not isinstance(table, pa.Table) and not hasattr(table, "sparkSession"):
        raise ConfigError(f"{name} is a {type(table).__name__}; give a frame of Spark or an Arrow table")
    columns = table.column_names if isinstance(table, pa.Table) else table.columns
    for field in schema:
        if field.name not in columns:
            raise ConfigError(f"{name} has no column {field.name}; its columns are {', '.join(schema.names)}")
    if isinstance(table, pa.Table):
        try:
            return table.select(schema.names).cast(schema)
        except (pa.ArrowException, ValueError) as error:
            raise ConfigError(f"{name} is no such table: {' '.join(str(error).split())}") from error
    wanted = dict(zip(schema.names, (each.dataType for each in tables.spark_schema(tables.TABLES[name])), strict=True))
    for column, kind in table.select(*schema.names).dtypes:
        if kind != wanted[column].simpleString():
            raise ConfigError(f"{name}: column {column} holds {kind}, not {wanted[column].simpleString()}")
    return table.select(*schema.names)


def _explain_missing(name: str, able: Sequence[AttackJob]) -> str:
    epochs = {True: ", and numbers of epochs", False: ", and no numbers of epochs", None: ""}
    wanted = [
        f"of {job.adversary}, which needs {', '.join(job.needs)}{epochs[job.by_epochs]}"
        for job in JOBS
        if name in attack_names(job.observes)
    ]
    if wanted:
        return f"{name} is an attack {'; or '.join(wanted)}"
    known = tuple(dict.fromkeys(each for job in able for each in attack_names(job.observes)))
    return f"no attack on these tables is called {name!r}; there are {', '.join(known)}{did_you_mean(name, known)}"


def _guess_from_whole_record(
    observed: Mapping[str, AnyTable], names: Collection[str] | None, epochs: Sequence[int]
) -> AnyTable:
    return guess_from_captures(observed, names)


def _guess_without_keys(
    observed: Mapping[str, AnyTable], names: Collection[str] | None, epochs: Sequence[int]
) -> AnyTable:
    return guess_from_tokens(observed, names, epochs or (_ALL,))


def _guess_over_epochs(
    observed: Mapping[str, AnyTable], names: Collection[str] | None, epochs: Sequence[int]
) -> AnyTable:
    engine = engine_of(observed["cells"])
    inputs = {name: observed[name] for name in ("cells", "topology")}
    known = {name: engine.query(sql, **inputs) for name, sql in _DEFAULTS.items() if name not in observed}
    return guess_from_epochs({**observed, **known}, names, epochs)


def _guess_by_coalition(
    observed: Mapping[str, AnyTable], names: Collection[str] | None, epochs: Sequence[int]
) -> AnyTable:
    return guess_from_coalition(observed, names, epochs or (_ALL,))


_DEFAULTS: Final = {
    "presence": "SELECT e.run, e.epoch, n.node FROM (SELECT DISTINCT run, epoch FROM {cells}) AS e JOIN "
    "(SELECT run, u AS node FROM {topology} UNION SELECT run, v AS node FROM {topology}) AS n ON e.run = n.run",
    "facts": "SELECT run, '' AS name, cast(0 AS double) AS value FROM {cells} WHERE epoch <> epoch",
}
"""Tables of an observer over epochs, if they are not given."""
_ALL: Final = 1 << 40
"""More epochs than there are: all."""
JOBS: Final = (
    AttackJob("a broker that sees foiled streams", ("streams",), StreamObservations, guess_streams, StreamGuessRow),
    AttackJob("a relay's server", ("server",), ServerObservations, guess_from_server),
    AttackJob("a relay's server with a clock", ("server",), LeaseTimes, guess_from_leases, by_name=True),
    AttackJob("an observer of all wires", ("cells",), CaptureObservations, _guess_from_whole_record, by_epochs=False),
    AttackJob(
        "an observer that tells notifications from other cells",
        ("cells", "topology"),
        EpochObservations,
        _guess_over_epochs,
        by_epochs=True,
    ),
    AttackJob("nodes of a tree", ("server", "tokens", "presence"), TreeObservations, guess_from_trees, by_name=True),
    AttackJob("an observer of clocks", ("cells",), LinkCells, guess_from_clocks, by_name=True),
    AttackJob(
        "a coalition of members", ("insiders", "topology", "presence"), CoalitionObservations, _guess_by_coalition
    ),
    AttackJob(
        "a coalition without keys",
        ("insiders", "topology", "presence", "popularity"),
        TokenObservations,
        _guess_without_keys,
        by_name=True,
    ),
)
"""If several possible jobs know a name, the first is asked."""
