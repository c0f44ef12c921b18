"""The times of leases on tables: the server's log in, pairs of leases out (`lease_times`).

The log has the roles `server:lease`, `server:ask`, `server:deliver` and `server:receipt`, under pseudonyms; the tag of
a lease is what it is for, and that of the last two the ticket. Two leases with one tag are two members', and left out:
they get the same deliveries, so attackers on receipts would take them for one member's.

All rows of a run go to one task. Pairs grow with the square of leases: an attacker looks at the leases that the server
first heard of in three epochs, two of which follow one another, and compares leases of one epoch and of two that
follow. So a pair across epochs may be two leases of one subscription.

Guesses have the role `lease`: topic and node are two pseudonyms, in order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.lab import tables
from veilcast.lab.attack.registry import attackers_on
from veilcast.lab.attack.server.lease_times import LeaseTimes
from veilcast.lab.attack.table_engine import AnyTable, engine_of
from veilcast.lab.tables import GuessRow


def guess_from_leases(
    observed: Mapping[str, AnyTable], names: Collection[str] | None = None, epochs: Sequence[int] = ()
) -> AnyTable:
    """Rows of `guesses`, after the whole log."""
    chosen = attackers_on(LeaseTimes, names, called="attack on leases")
    server = observed["server"]
    engine = engine_of(server)
    log = engine.query(_LOG, server=server)

    def of_run(rows: pa.Table) -> pa.Table:
        pseudonyms, begun, tag = _choose_leases(rows)
        seen = _build_times(rows, pseudonyms)
        first, second = np.triu_indices(len(pseudonyms), 1)
        near = (np.abs(begun[first] - begun[second]) <= 1) & (tag[first] != tag[second])
        first, second = first[near], second[near]
        last = int(pc.max(rows["epoch"]).as_py() or 0) + 1
        run = rows["run"][0].as_py()
        parts = [_SCHEMA.empty_table()]
        for attacker in chosen:
            scores = attacker.score(seen)[first, second]
            same = {"run": run, "attack": attacker.name, "epochs": last, "coalition": 0, "role": attacker.role}
            given = {
                name: pa.repeat(pa.scalar(value, _SCHEMA.field(name).type), scores.size) for name, value in same.items()
            }
            given |= {"topic": pseudonyms.take(pa.array(first)), "node": pseudonyms.take(pa.array(second))}
            given["score"] = pa.array(scores, pa.float64())
            parts.append(pa.table([given[name] for name in _SCHEMA.names], schema=_SCHEMA))
        return pa.concat_tables(parts)

    return engine.apply_by(log, ["run"], of_run, GuessRow)


def _choose_leases(rows: pa.Table) -> tuple[pa.Array, NDArray[np.int64], NDArray[np.int64]]:
    """The pseudonyms of the chosen epochs, the epoch in which each was first heard of, and a number for its tag."""
    leases = rows.filter(pc.equal(rows["role"], "server:lease"))
    first = leases.group_by("pseudonym").aggregate([("epoch", "min"), ("tag", "min")]).sort_by("pseudonym")
    epoch = first["epoch_min"].to_numpy()
    known = np.unique(epoch)
    middle = known[1:-1] if known.size > 2 else known
    chosen = middle[np.unique([0, min(1, middle.size - 1), middle.size // 2])] if middle.size else middle
    kept = np.isin(epoch, chosen)
    tags = first["tag_min"].combine_chunks().dictionary_encode().indices.to_numpy()
    return first["pseudonym"].combine_chunks().filter(pa.array(kept)), epoch[kept], tags[kept].astype(np.int64)


def _build_times(rows: pa.Table, pseudonyms: pa.Array) -> LeaseTimes:
    place = pc.fill_null(pc.index_in(rows["pseudonym"], pseudonyms), -1).to_numpy()
    role, t_us, ticket = (rows[name].combine_chunks() for name in ("role", "t_us", "tag"))
    asked = np.isin(role.to_numpy(zero_copy_only=False), ["server:lease", "server:ask"]) & (place >= 0)
    times = t_us.to_numpy()
    order = np.argsort(times[asked], kind="stable")
    sent: dict[bytes, int] = {}
    found: list[tuple[int, int, int]] = []
    exchanged = np.flatnonzero((place >= 0) & ~asked)
    for row in exchanged[np.argsort(times[exchanged], kind="stable")].tolist():
        name, at_us = ticket[row].as_py(), int(times[row])
        if role[row].as_py() == "server:deliver":
            sent.setdefault(name, at_us)
        elif name in sent:
            found.append((int(place[row]), at_us, at_us - sent.pop(name)))
    receipts = np.array(found, np.int64).reshape(-1, 3)
    return LeaseTimes(len(pseudonyms), place[asked][order].astype(np.int64), times[asked][order], *receipts.T)


_LOG: Final = """
    SELECT run, epoch, t_us, role, pseudonym, tag FROM {server}
    WHERE role IN ('server:lease', 'server:ask', 'server:deliver', 'server:receipt')
"""
_SCHEMA: Final = tables.arrow_schema(GuessRow)
