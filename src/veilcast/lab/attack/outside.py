"""What a global observer makes of its cells: the table `cells` in, the table `guesses` out, of any number of runs.

Spark brings cells down to what attackers work on (`gathering`), each kind only if somebody asks for it, and all of a
run to one task (`folder`); there the attackers score every node (`outsiders`). A run must fit into a task as its notes
and counts do, not as its cells.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import pyarrow as pa

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack import cadence, folder, gathering
from veilcast.lab.attack.guessing import told
from veilcast.lab.attack.outsiders import ACTIVITY, ATTACKS, CADENCE, NOTES, OUTSIDERS, Outsider
from veilcast.lab.tables import Guess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def guesses(
    cells: DataFrame,
    topology: DataFrame | None = None,
    presence: DataFrame | None = None,
    *,
    heartbeat_us: int,
    attacks: Collection[str] = ATTACKS,
    rate: float = 0.1,
    published: DataFrame | None = None,
) -> DataFrame:
    """Of every node that was seen, what each attack holds of it.

    Without a topology the overlay is the links that carry anything, and without presence whoever had to do with anybody
    was there. `rate` is the share of readers, as far as it is known. `published` (run, topic, t_us) is for an observer
    who reads along, and knows when something came.
    """
    chosen = _chosen(attacks)
    needs = {each.needs for each in chosen}
    links = gathering.links(cells) if topology is None else topology
    gathered = folder.filed(
        links,
        gathering.there(links) if presence is None else presence,
        notes=gathering.notes(cells, heartbeat_us) if needs & {NOTES, ACTIVITY} else None,
        activity=gathering.activity(cells, heartbeat_us) if ACTIVITY in needs else None,
        tally=cadence.tallied(cells) if CADENCE in needs else None,
        published=published,
    )

    def of_run(rows: pa.Table) -> pa.Table:
        return _guessed(rows, chosen, heartbeat_us, rate)

    return gathered.groupBy("run").applyInArrow(of_run, tables.spark_schema(Guess))


def _chosen(attacks: Collection[str]) -> list[Outsider]:
    for attack in attacks:
        if attack not in ATTACKS:
            raise ConfigError(f"no attack from outside is called {attack!r}; there are {', '.join(ATTACKS)}")
    return [each for each in OUTSIDERS if each.attack in attacks]


def _guessed(rows: pa.Table, chosen: list[Outsider], heartbeat_us: int, rate: float) -> pa.Table:
    names, topics, record = folder.opened(rows, heartbeat_us)
    epochs, parts = len(record.present), []
    for each in chosen:
        found = each.scores(record, rate)
        # Who cannot tell topics apart says one thing of all of them.
        for topic, scores in zip(topics if len(found) == len(topics) else [""], found, strict=True):
            parts.append(told(rows["run"][0].as_py(), each.attack, epochs, 0, topic, each.role, names, scores))
    return pa.concat_tables(parts)
