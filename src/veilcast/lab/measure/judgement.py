"""Guesses held against the truth, over frames: the tables `guesses` and `truth` in, metrics by run out.

Everybody who was scored is asked about, but where subscribers are sought those who publish are left out. A guess that
names no topic is about all of them: right if a node has that role in any. Of several publishers each is sought for
itself, and the mean is told. What the measures mean is said in `suspicion`; here one shuffle brings scores together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from veilcast.lab.measure.suspicion import of_publisher, of_subscribers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def judged(guesses: DataFrame, truth: DataFrame, near: DataFrame | None = None, *, seed: int = 1) -> DataFrame:
    """Columns run, attack, epochs, coalition, topic, role, metric, value.

    `near` (run, node) are those with an insider beside them. The seed is for the shuffles of roles that show how much
    would be learnt by chance.
    """
    from pyspark.sql import functions as sql

    roles = truth.select("run", "topic", "node", "role")
    anywhere = roles.withColumn("topic", sql.lit(""))
    known = (
        roles.unionByName(anywhere)
        .groupBy("run", "topic", "node")
        .agg(*(sql.max(sql.col("role") == role).alias(role) for role in _ROLES))
    )
    beside = guesses.select("run", "node").limit(0) if near is None else near
    labelled = (
        guesses.join(known, ["run", "topic", "node"], "left")
        .join(beside.distinct().withColumn("near", sql.lit(True)), ["run", "node"], "left")
        .na.fill(False, [*_ROLES, "near"])
    )

    def of_guess(rows: pa.Table) -> pa.Table:
        return _measured(rows.sort_by("node"), seed)

    return labelled.groupBy(*_KEYS).applyInArrow(of_guess, _SCHEMA)


def _measured(rows: pa.Table, seed: int) -> pa.Table:
    """Of one attack on one role in one run."""
    scores = rows["score"].to_numpy()
    subscribes, publishes, near = (np.asarray(rows[name], np.bool_) for name in (*_ROLES, "near"))
    if rows["role"][0].as_py() == "publisher":
        everybody = np.ones(len(scores), np.bool_)
        each = [of_publisher(scores, int(node), everybody) for node in np.flatnonzero(publishes)]
        found = {metric: float(np.mean([one[metric] for one in each])) for metric in (each[0] if each else ())}
    else:
        found = of_subscribers(scores, subscribes, ~publishes, near, seed)
    same = [pa.repeat(rows[name][0], len(found)) for name in _KEYS]
    names = [*_KEYS, "metric", "value"]
    return pa.table([*same, pa.array(found, pa.string()), pa.array(found.values(), pa.float64())], names)


_ROLES: Final = ("subscriber", "publisher")
_KEYS: Final = ("run", "attack", "epochs", "coalition", "topic", "role")
_SCHEMA: Final = (
    "run string, attack string, epochs bigint, coalition bigint, topic string, role string, metric string, value double"
)
