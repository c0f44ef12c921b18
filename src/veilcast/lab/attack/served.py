"""What a relay's server or its proxy makes of its own ledger: the table `server` in, the table `guesses` out.

All of it is joins and counts, which are Spark's: subscriptions are joined with the tags that a dictionary gives
("dictionary"), or with the names that tags are given by how many subscribe ("tag-frequency", and "proxy-frequency" of
the proxy's ledger, which names users); bodies that went up, with those that came down ("bodies"). Only the naming of
the tags of a run, or of one of its epochs where tags change, is done in one place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.tag_frequency import named_by_counts
from veilcast.lab.tables import Guess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def guesses(
    server: DataFrame,
    *,
    attacks: Collection[str],
    popularity: Mapping[str, float] | None = None,
    users: int = 0,
    lasting: bool = False,
    words: DataFrame | None = None,
) -> DataFrame:
    """Who, by the name that the observer has for it, is held to read a topic; "bodies": to read whom.

    `popularity` is the share of `users` who read each topic, as far as it is public. Where tags are `lasting` they are
    counted over all epochs. `words` (run, topic, tag) are the tags that the server can compute.
    """
    for attack in attacks:
        if attack not in ATTACKS:
            raise ConfigError(f"nobody who serves has an attack {attack!r}; there are {', '.join(ATTACKS)}")
    if "dictionary" in attacks and words is None:
        raise ConfigError("a dictionary attack needs words")
    if {"tag-frequency", "proxy-frequency"} & set(attacks) and not (popularity and users):
        raise ConfigError("tags are named by the popularity of topics among so many users")
    found = []
    if "dictionary" in attacks and words is not None:
        found.append(_guess("dictionary", _asked(server, "server").join(words, ["run", "tag"])))
    for attack, observer in (("tag-frequency", "server"), ("proxy-frequency", "proxy")):
        if attack in attacks and popularity:
            found.append(_guess(attack, _named(_asked(server, observer), popularity, users, lasting)))
    if "bodies" in attacks:
        found.append(_guess("bodies", _linked(server)))
    whole = found[0]
    for part in found[1:]:
        whole = whole.unionByName(part)
    return whole


def _asked(server: DataFrame, observer: str) -> DataFrame:
    """Columns run, epoch, node, tag: each subscription once."""
    asked = server.where(f"role = '{observer}:subscribe'")
    return asked.selectExpr("run", "epoch", "pseudonym as node", "tag").distinct()


def _named(asked: DataFrame, popularity: Mapping[str, float], users: int, lasting: bool) -> DataFrame:
    """The same with the topics that tags are taken for."""
    from pyspark.sql import functions as sql

    topics, shares = list(popularity), np.array(list(popularity.values()))
    asked = asked.withColumn("era", sql.lit(-1).cast("bigint") if lasting else sql.col("epoch"))
    epochs = asked.groupBy("run", "era").agg(sql.countDistinct("epoch").alias("epochs"))
    counts = asked.groupBy("run", "era", "tag").agg(sql.count("*").alias("many")).join(epochs, ["run", "era"])

    def of_era(rows: pa.Table) -> pa.Table:
        rows = rows.sort_by("tag")
        every = float(users * rows["epochs"][0].as_py())
        found = named_by_counts(np.arange(len(rows)), rows["many"].to_numpy(), every, shares)
        kept = rows.take(pa.array(found.tags))
        return kept.select(["run", "era", "tag"]).append_column("topic", pa.array([topics[at] for at in found.topics]))

    names = counts.groupBy("run", "era").applyInArrow(of_era, "run string, era bigint, tag binary, topic string")
    return asked.join(names, ["run", "era", "tag"])


def _linked(server: DataFrame) -> DataFrame:
    """Who got a body that somebody sent, once for each, with the sender for a topic."""
    sent = server.where("role = 'proxy:send'").selectExpr("run", "tag", "pseudonym as topic")
    got = server.where("role = 'proxy:deliver'").selectExpr("run", "epoch", "tag", "pseudonym as node")
    return got.join(sent, ["run", "tag"])


def _guess(attack: str, said: DataFrame) -> DataFrame:
    """Rows of `guesses`: how often it was so, for each node and topic."""
    from pyspark.sql import functions as sql

    counted = said.groupBy("run", "topic", "node").agg(
        sql.countDistinct("epoch").alias("epochs"), sql.count("*").cast("double").alias("score")
    )
    fixed = {"attack": sql.lit(attack), "coalition": sql.lit(1).cast("bigint"), "role": sql.lit("subscriber")}
    return counted.withColumns(fixed).select(*tables.spark_schema(Guess).fieldNames())


ATTACKS: Final = ("dictionary", "tag-frequency", "proxy-frequency", "bodies")
