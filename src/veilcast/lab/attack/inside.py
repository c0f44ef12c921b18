"""What a coalition of members makes of what it overheard: the table `insiders` in, the table `guesses` out.

All that was overheard in a run comes to one task (`dossier`); there the attackers score every honest node
(`conspirators`), after each of the numbers of epochs that are asked for. Topics are told apart where the coalition
knows their tokens; what those do who know none is in `keyless`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack import dossier
from veilcast.lab.attack.conspirators import ATTACKS, CONSPIRATORS, TRAINED, UNTRAINED, Conspirator, Known
from veilcast.lab.attack.folder import Folder, filed
from veilcast.lab.attack.guessing import told
from veilcast.lab.tables import Guess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def guesses(
    insiders: DataFrame,
    topology: DataFrame,
    presence: DataFrame,
    *,
    attacks: Collection[str] = UNTRAINED,
    epochs: Sequence[int] = (1, 5, 20, 50),
    known: Known | None = None,
    topics: DataFrame | None = None,
    roots: DataFrame | None = None,
    hop_us: int | None = None,
) -> DataFrame:
    """Of every honest node, what each attack holds of it after so many epochs; numbers above all that there are, once.

    `topics` (run, epoch, token, topic) says which tokens the coalition knows, and what it knows none of is left out;
    without, all is taken for one topic. `roots` (run, topic, epoch, node) says where floods begin, if that is public.
    With `hop_us`, the time that a message takes, answers to adverts can be timed. Attacks of who is alone are left out
    where there are several.
    """
    granted = known or Known()
    chosen = _chosen(attacks, granted, epochs)
    named = _named(insiders, topics)
    needs = frozenset().union(*(each.needs for each in chosen))
    sheets = dossier.sheets(named, topology, presence, needs, roots)

    def of_run(rows: pa.Table) -> pa.Table:
        return _guessed(Folder(rows), chosen, granted, epochs, hop_us)

    return filed(sheets).groupBy("run").applyInArrow(of_run, tables.spark_schema(Guess))


def _chosen(attacks: Collection[str], known: Known, epochs: Sequence[int]) -> list[Conspirator]:
    for attack in attacks:
        if attack not in ATTACKS:
            raise ConfigError(f"no attack from inside is called {attack!r}; there are {', '.join(ATTACKS)}")
        if attack in TRAINED and not all((attack, number) in known.trained for number in epochs):
            raise ConfigError(f"{attack} is a trained attack, and was not trained for every number of epochs")
    return [each for each in CONSPIRATORS if each.attack in attacks]


def _named(insiders: DataFrame, topics: DataFrame | None) -> DataFrame:
    from pyspark.sql import functions as sql

    if topics is None:
        return insiders.withColumn("topic", sql.lit(""))
    return insiders.join(sql.broadcast(topics), ["run", "epoch", "token"])


def _guessed(
    folder: Folder, chosen: list[Conspirator], known: Known, epochs: Sequence[int], hop_us: int | None
) -> pa.Table:
    together = [each for each in chosen if not each.alone]
    parts = [tables.arrow_schema(Guess).empty_table()]
    for topic in dossier.topics(folder):
        whole = dossier.coalition(folder, topic, hop_us)
        honest = np.flatnonzero(~whole.enemy)
        names = [folder.names[node] for node in honest]
        size = len(folder.names) - len(names)
        for number in sorted({min(number, whole.epochs) for number in epochs}):
            so_far = whole.until(number)
            for each in chosen if size == 1 else together:
                scores = each.scores(so_far, known)[honest]
                parts.append(told(folder.run, each.attack, number, size, topic, each.role, names, scores))
    return pa.concat_tables(parts)
