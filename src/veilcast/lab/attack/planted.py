"""What colluding nodes make of the trees that they are part of: the table `server` in, the table `guesses` out.

The role of a row says which of them got an instruction, the pseudonym whom it is to hand on to. Tags may change with
every refresh, but who reads a topic computes them: `words` (run, epoch, topic, tag). The rest is counting, which is
Spark's: the scores are those of `attack.parents`, for each topic and each parent.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.tables import Guess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def guesses(server: DataFrame, words: DataFrame, *, attacks: Collection[str]) -> DataFrame:
    """Who, by name, is held to read a topic; a node that was nobody's parent has no row."""
    from pyspark.sql import functions as sql

    for attack in attacks:
        if attack not in ATTACKS:
            raise ConfigError(f"nodes of a tree have no attack {attack!r}; there are {', '.join(ATTACKS)}")
    told = server.where("role like 'tree:%'").join(words, ["run", "epoch", "tag"])
    coalition = told.groupBy("run").agg(sql.countDistinct("role").alias("coalition"))
    by_pair = told.groupBy("run", "topic", "pseudonym", "role").agg(
        sql.count("*").alias("times"), sql.max("size").alias("longest"), sql.collect_set("epoch").alias("when")
    )
    # One shuffle more brings the pairs of a parent together, and all three scores come of it.
    by_parent = by_pair.groupBy("run", "topic", "pseudonym").agg(
        sql.size(sql.array_distinct(sql.flatten(sql.collect_list("when")))).cast("bigint").alias("epochs"),
        sql.sum("times").cast("double").alias("count"),
        sql.max("times").cast("double").alias("lasting"),
        sql.max("longest").cast("double").alias("depth"),
    )
    scores = sql.explode(
        sql.array(*(sql.struct(sql.lit(attack).alias("attack"), sql.col(attack).alias("score")) for attack in attacks))
    )
    rows = by_parent.join(coalition, ["run"]).withColumn("each", scores)
    return rows.selectExpr(
        *("run", "each.attack", "epochs", "coalition", "topic", "'subscriber' as role", "pseudonym as node"),
        "each.score",
    ).select(*tables.spark_schema(Guess).fieldNames())


ATTACKS: Final = ("count", "lasting", "depth")
