"""The attackers in trees on tables: what nodes of a coalition were told and forwarded, in; `guesses` out.

1. Relations, as SQL for both engines: each instruction with its topic, and with the number of publications that took
   this path; and the steps of publications whose paths insiders recognise.
2. The relations of a run go to one task, which builds `TreeObservations` and asks the attackers of the registry: on
   subscribers for each topic, on publishers for all topics together.

Tables: `server`, with the observer and its place in the role, and the next node as the pseudonym. `tree:OBSERVER:PLACE`
is an instruction, and `forward:OBSERVER:PLACE` a publication that followed it; with good clocks the root and the guards
behind it know their place, the number of hops behind the root. `origin:OBSERVER` and `path:OBSERVER` are steps of a
publication, which is the tag. `tokens` says which tags of an epoch belong to a topic: a member of the topic computes
them. `presence` has all nodes; `popularity` may have topics without a subscriber; `facts` says how trees are made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.grouped_tables import GroupedRun, RunTable, distinct_values, make_guesses, union_tables
from veilcast.lab.attack.insider.tree_nodes import SeenPaths, TreeObservations
from veilcast.lab.attack.registry import PUBLISHER, Attacker, applies, attackers_on
from veilcast.lab.attack.table_engine import AnyTable, engine_of
from veilcast.lab.models.tree_entries import TreeEntries
from veilcast.lab.tables import GuessRow

Numbers = NDArray[np.int64]


def guess_from_trees(
    observed: Mapping[str, AnyTable], names: Collection[str] | None = None, epochs: Sequence[int] = ()
) -> AnyTable:
    """Score every honest node, after each number of epochs; after all epochs of a run if no number is given.

    An attacker that needs to know more of how trees are made than the facts say is left out.
    """
    if missing := [table for table in ("server", "tokens", "presence") if table not in observed]:
        raise ConfigError(f"attackers in trees need the tables {' and '.join(missing)}")
    chosen = attackers_on(TreeObservations, names, called="attack in trees")
    united = union_tables(_relations(observed))

    def of_run(rows: pa.Table) -> pa.Table:
        return _guess_run(GroupedRun(rows), chosen, epochs)

    return engine_of(united).apply_by(united, ["run"], of_run, GuessRow)


def _relations(observed: Mapping[str, AnyTable]) -> Iterator[RunTable]:
    server = observed["server"]
    engine = engine_of(server)
    told = engine.query(_INSTRUCTIONS, server=server, tokens=observed["tokens"])
    numbers = {"at": "epoch", "number": "size", "share": "cast(forwarded as double)"}
    yield RunTable(_TOLD, told, numbers | {"u": "observer", "v": "parent", "word": "topic", "value": "place"})
    steps = {"at": "begins", "number": "t_us", "u": "observer", "v": "parent", "value": "tag"}
    yield RunTable(_STEPS, engine.query(_STEPS_OF_PATHS, server=server), steps)
    yield RunTable(_THERE, observed["presence"], {"at": "epoch", "u": "node"})
    if "popularity" in observed:
        yield RunTable(_SHARES, observed["popularity"], {"word": "topic", "share": "share"})
    if "facts" in observed:
        yield RunTable(_FACTS, observed["facts"], {"word": "name", "share": "value"})


def _guess_run(run: GroupedRun, chosen: Sequence[Attacker[TreeObservations]], epochs: Sequence[int]) -> pa.Table:
    topics = distinct_values([run.table(_TOLD)["word"], run.table(_SHARES)["word"]])
    whole = _build_observations(run, topics)
    chosen = [each for each in chosen if applies(each, whole)]
    honest = np.flatnonzero(whole.honest)
    names, size = [run.names[node] for node in honest], whole.nodes - honest.size
    parts = [tables.arrow_schema(GuessRow).empty_table()]
    for number in sorted({min(number, whole.epochs) for number in epochs or (whole.epochs,)}):
        so_far = whole.first_epochs(number)
        by_topic = {name: so_far.of_topic(topic) for topic, name in enumerate(topics.to_pylist())}
        for each in chosen:
            for topic, seen in {"": so_far}.items() if each.role == PUBLISHER else by_topic.items():
                scores = each.score(seen)[honest]
                parts.append(make_guesses(run.run, each.name, number, size, topic, each.role, names, scores))
    return pa.concat_tables(parts)


def _build_observations(run: GroupedRun, topics: pa.Array) -> TreeObservations:
    told, steps, facts = run.table(_TOLD), run.table(_STEPS), run.table(_FACTS)
    known = dict(zip(facts["word"].to_pylist(), facts["share"].to_pylist(), strict=True))
    epochs = np.unique(np.concatenate([told["at"].to_numpy(), run.table(_THERE)["at"].to_numpy()]))
    honest = np.ones(len(run.names), np.bool_)
    for rows in (told, steps):
        honest[run.node_numbers(rows["u"])] = False
    places = None
    if "farthest_place" in known:
        places = range(int(known["nearest_place"]), int(known["farthest_place"]) + 1)
    return TreeObservations(
        entries=_entries(run, told, epochs, topics),
        nodes=len(run.names),
        honest=honest,
        epochs=len(epochs),
        paths=_paths(run, steps) if len(steps) else None,
        branching=int(known["branching"]) if "branching" in known else None,
        places=places,
        turnover=known.get("turnover", 1.0),
    )


def _entries(run: GroupedRun, told: pa.Table, epochs: Numbers, topics: pa.Array) -> TreeEntries:
    place = pc.if_else(pc.equal(pc.binary_length(told["value"]), 0), b"-1", told["value"])
    observer, parent = (run.node_numbers(told[end]).astype(np.int64) for end in ("u", "v"))
    return TreeEntries(
        refresh=np.searchsorted(epochs, told["at"].to_numpy()),
        observer=observer,
        parent=parent,
        topic=np.asarray(pc.index_in(told["word"], topics).to_numpy(), np.int64),
        size=told["number"].to_numpy(),
        forwarded=told["share"].to_numpy().astype(np.int64),
        hops_behind_root=place.cast(pa.string()).cast(pa.int64()).to_numpy(),
        tree=np.zeros(len(told), np.int64),
    )


def _paths(run: GroupedRun, steps: pa.Table) -> SeenPaths:
    steps = steps.sort_by([("value", "ascending"), ("number", "ascending")])
    publication = np.asarray(pc.dictionary_encode(steps["value"]).combine_chunks().indices.to_numpy(), np.int64)
    observer, following = (run.node_numbers(steps[end]).astype(np.int64) for end in ("u", "v"))
    return SeenPaths(publication, observer, following, steps["at"].to_numpy() > 0)


_TOLD: Final = "told"
_STEPS: Final = "steps"
_THERE: Final = "there"
_SHARES: Final = "shares"
_FACTS: Final = "facts"
# Instructions have a tag of their own in each tree and epoch, so the publications that followed one have it, too.
_INSTRUCTIONS: Final = """
    SELECT t.run, t.epoch, k.topic, t.observer, cast(t.place AS binary) AS place, t.parent, t.size,
           coalesce(f.forwarded, 0) AS forwarded
    FROM (
        SELECT run, epoch, tag, pseudonym AS parent, size, split_part(role, ':', 2) AS observer,
               split_part(role, ':', 3) AS place
        FROM {server} WHERE role LIKE 'tree:%'
    ) AS t
    JOIN {tokens} AS k ON t.run = k.run AND t.epoch = k.epoch AND t.tag = k.token
    LEFT JOIN (
        SELECT run, epoch, tag, pseudonym AS parent, split_part(role, ':', 2) AS observer,
               split_part(role, ':', 3) AS place, count(*) AS forwarded
        FROM {server} WHERE role LIKE 'forward:%' GROUP BY 1, 2, 3, 4, 5, 6
    ) AS f
    ON t.run = f.run AND t.epoch = f.epoch AND t.tag = f.tag AND t.parent = f.parent AND t.observer = f.observer
       AND t.place = f.place
"""
_STEPS_OF_PATHS: Final = """
    SELECT run, t_us, tag, split_part(role, ':', 2) AS observer, pseudonym AS parent,
           cast(CASE WHEN role LIKE 'origin:%' THEN 1 ELSE 0 END AS bigint) AS begins
    FROM {server} WHERE role LIKE 'origin:%' OR role LIKE 'path:%'
"""
