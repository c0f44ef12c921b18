"""Overheard: from all that members of a coalition wrote down, however much, to what their attackers work on.

Insiders write a row for every message that comes or goes. Of these, what happened on a link in an epoch is a few bits
and a time; of an advert, it is who was first with it. Both are aggregations with small states: what is most is first
brought down on the side where it lies. The coalition knows its own: what they said to one another is left out where it
would tell nothing.

Frames have the columns of `insiders` and one more, `topic`. Kinds are those of the wire's messages, with `in:` or
`out:` before them; a stem that climbs to the root already says so in `about`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from veilcast.lab.kernels.sights import ASKED, FOLLOWED, INVITED, RECRUITED, REFUSED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def observers(insiders: DataFrame) -> DataFrame:
    """Columns run, node: the coalition."""
    return insiders.selectExpr("run", "observer as node").distinct()


def about_honest(insiders: DataFrame) -> DataFrame:
    """The rows whose peer is not of the coalition."""
    from pyspark.sql import functions as sql

    ours = observers(insiders).withColumnRenamed("node", "peer")
    return insiders.join(sql.broadcast(ours), ["run", "peer"], "left_anti")


def sights(honest: DataFrame) -> DataFrame:
    """Columns run, topic, epoch, observer, peer, sight, t_us: one of the codes of `sights`, and since when."""
    from pyspark.sql import functions as sql

    def was(kind: str) -> Column:
        return sql.max(sql.col("kind") == kind)

    asked = sql.col("asked")
    code = (
        sql.when(asked & sql.col("invited_by_us"), RECRUITED)
        .when(asked, ASKED)
        .when(sql.col("followed"), FOLLOWED)
        .when(sql.col("invited"), INVITED)
        .otherwise(REFUSED)
    )
    return (
        honest.where(sql.col("kind").isin(*_OF_LINKS.values()))
        .groupBy("run", "topic", "epoch", "observer", "peer")
        .agg(
            *(was(kind).alias(name) for name, kind in _OF_LINKS.items()),
            sql.min(sql.when(sql.col("kind") == _OF_LINKS["asked"], sql.col("t_us"))).alias("t_us"),
        )
        # An invitation alone, without an answer, says nothing.
        .where("asked or followed or invited or refused")
        .select("run", "topic", "epoch", "observer", "peer", code.cast("bigint").alias("sight"), "t_us")
    )


def began(insiders: DataFrame) -> DataFrame:
    """Columns run, topic, epoch, t_us: when the first was heard of a topic in an epoch."""
    from pyspark.sql import functions as sql

    return insiders.groupBy("run", "topic", "epoch").agg(sql.min("t_us").alias("t_us"))


def own(insiders: DataFrame) -> DataFrame:
    """Columns run, topic, epoch, node: which member a flood began with, where one sent an advert before any came."""
    from pyspark.sql import functions as sql

    adverts = insiders.where("kind in ('in:Advert', 'out:Advert')")
    first = sql.min(sql.struct("t_us", "kind", "observer")).alias("first")
    begun = adverts.groupBy("run", "topic", "epoch").agg(first).where("first.kind = 'out:Advert'")
    return begun.select("run", "topic", "epoch", sql.col("first.observer").alias("node"))


def first_heard(honest: DataFrame) -> DataFrame:
    """Columns run, topic, epoch, message, peer: from whom each advert came first, once for each who had it so."""
    from pyspark.sql import functions as sql

    advert = ["run", "topic", "epoch", "message"]
    heard = honest.where("kind = 'in:Advert'").select(*advert, "t_us", "peer")
    first = heard.groupBy(*advert).agg(sql.min("t_us").alias("t_us"))
    # Adverts are few beside all who hear of them, so nothing of what was heard need be moved to be compared.
    return heard.join(sql.broadcast(first), [*advert, "t_us"], "left_semi").drop("t_us")


def chains(honest: DataFrame) -> DataFrame:
    """Columns run, topic, epoch, node, chain: the value with which each neighbour's first advert of an epoch came."""
    from pyspark.sql import functions as sql

    adverts = honest.where("kind = 'in:Advert' and length(chain) > 0")
    first = sql.min(sql.struct("t_us", "message", "chain"))["chain"].alias("chain")
    return adverts.groupBy("run", "topic", "epoch", sql.col("peer").alias("node")).agg(first)


def names(insiders: DataFrame) -> DataFrame:
    """Columns run, topic, epoch, observer, peer, about: the names that shell games hand over."""
    games = insiders.where("kind in ('in:SwapAsk', 'in:SwapAnswer', 'in:SwapCommit') and about != ''")
    return games.select("run", "topic", "epoch", "observer", "peer", "about")


def stems(insiders: DataFrame) -> DataFrame:
    """Columns run, topic, epoch, t_us, observer, peer, climbs: from whom publications came on their way to the root."""
    from pyspark.sql import functions as sql

    climbs = (sql.col("about") == CLIMBS).cast("bigint").alias("climbs")
    return insiders.where("kind = 'in:Stem'").select("run", "topic", "epoch", "t_us", "observer", "peer", climbs)


def read(insiders: DataFrame) -> DataFrame:
    """Columns run, topic, epoch, notes: how many notes came to the coalition."""
    from pyspark.sql import functions as sql

    notes = insiders.where("kind = 'in:Notify'").groupBy("run", "topic", "epoch")
    return notes.agg(sql.countDistinct("message").alias("notes"))


CLIMBS: Final = "climbs"
_OF_LINKS: Final = {
    "asked": "in:Subscribe",
    "invited_by_us": "out:Invite",
    "followed": "out:Subscribe",
    "invited": "in:Invite",
    "refused": "in:Decline",
}
