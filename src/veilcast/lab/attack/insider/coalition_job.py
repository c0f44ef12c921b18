"""The attack of a coalition that knows its topics: the table `insiders` in, the table `guesses` out.

All observations of a run go to one task (`coalition_tables`). There the attackers of the registry score every honest
node after each requested number of epochs. Parameters of the network come from the table `facts`. Where `tokens` is
given, the coalition knows these tokens and leaves others out; otherwise all tokens count as one topic without a name.
Where `roots` is given, it is public where floods begin. Attacks of a lone insider are left out where the coalition has
several.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.grouped_tables import GroupedRun, make_guesses, union_tables
from veilcast.lab.attack.insider import coalition_tables
from veilcast.lab.attack.insider.observations import Classifiers, CoalitionObservations
from veilcast.lab.attack.registry import PUBLISHER, SUBSCRIBER, Attacker, attackers_on, find_needs
from veilcast.lab.attack.table_engine import AnyTable, engine_of
from veilcast.lab.tables import GuessRow


def guess_from_coalition(
    observed: Mapping[str, AnyTable],
    names: Collection[str] | None = None,
    epochs: Sequence[int] = (1, 5, 20, 50),
    *,
    trained: Classifiers | None = None,
    roles: Collection[str] = (SUBSCRIBER, PUBLISHER),
) -> AnyTable:
    """Score every honest node by each attack, after each of these numbers of epochs; larger numbers than there are
    count once.

    Reads the tables insiders, topology and presence, and facts, tokens and roots where they are given. Without names,
    the attacks that need no training. Attackers that look for none of these `roles` are left out.
    """
    chosen = [each for each in _choose(names, trained or {}, epochs) if each.role in roles]
    needs = find_needs(chosen, coalition_tables.PARTS)
    named = coalition_tables.name_topics(observed["insiders"], observed.get("tokens"))
    united = union_tables(coalition_tables.select_tables(named, observed, needs))

    def of_run(rows: pa.Table) -> pa.Table:
        return _guess_run(GroupedRun(rows), chosen, trained, epochs)

    return engine_of(united).apply_by(united, ["run"], of_run, GuessRow)


def _choose(
    names: Collection[str] | None, trained: Classifiers, epochs: Sequence[int]
) -> list[Attacker[CoalitionObservations]]:
    found = attackers_on(CoalitionObservations, names, called="attack from inside")
    if names is None:
        return [each for each in found if not each.trained]
    for each in found:
        if each.trained and not all((each.name, number) in trained for number in epochs):
            raise ConfigError(f"{each.name} is a trained attack, and was not trained for every number of epochs")
    return found


def _guess_run(
    run: GroupedRun,
    chosen: list[Attacker[CoalitionObservations]],
    trained: Classifiers | None,
    epochs: Sequence[int],
) -> pa.Table:
    known = coalition_tables.read_knowledge(run, trained)
    together = [each for each in chosen if not each.lone]
    parts = [tables.arrow_schema(GuessRow).empty_table()]
    for topic in coalition_tables.find_topics(run):
        whole = coalition_tables.build_coalition(run, topic, known)
        honest = np.flatnonzero(~whole.hostile)
        names = [run.names[node] for node in honest]
        size = len(run.names) - len(names)
        for number in sorted({min(number, whole.epochs) for number in epochs}):
            so_far = whole.first_epochs(number)
            for each in chosen if size == 1 else together:
                scores = each.score(so_far)[honest]
                parts.append(make_guesses(run.run, each.name, number, size, topic, each.role, names, scores))
    return pa.concat_tables(parts)
