"""The tables of a run of the trees' model: `server`, what members of a topic know, what is public, and the truth.

Each tree has a tag in each epoch. The root and the guards behind it know their place, because they have good clocks:
it stands in the role (`attack.insider.tree_job`). A publication that an insider forwards is a row, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from veilcast.lab import tables
from veilcast.lab.models import tree
from veilcast.lab.models.tree_entries import TreeEntries
from veilcast.lab.models.tree_refreshes import PublicationPaths, TreePolicy, TreeReaders

Numbers = NDArray[np.int64]


def observe_trees(
    run: str,
    village: TreeReaders,
    habit: TreePolicy,
    entries: TreeEntries,
    paths: PublicationPaths | None = None,
    topics: int = 1,
) -> dict[str, pa.Table]:
    """The tables that attackers read."""
    nodes, names = tables.name_numbers("n", village.nodes), tables.name_numbers("t", topics)
    _, first = np.unique((entries.refresh << _HALF) | entries.tree, return_index=True)
    known = entries.where(first)
    facts = _facts(village, habit)
    return {
        "server": pa.concat_tables([*_instructions(run, nodes, entries), *_steps(run, nodes, paths)]),
        "tokens": tables.from_columns(
            "tokens",
            run=run,
            epoch=known.refresh,
            token=_tags(known.refresh, known.tree),
            topic=names.take(pa.array(known.topic)),
        ),
        "presence": tables.from_columns("presence", run=run, epoch=0, node=nodes),
        "popularity": tables.from_columns("popularity", run=run, topic=names, share=1 / topics),
        "facts": tables.from_columns("facts", run=run, name=[*facts], value=[*map(float, facts.values())]),
    }


def tabulate_truth(
    run: str, village: TreeReaders, epochs: int, topics: int = 1, publisher: int | None = None
) -> pa.Table:
    """The subscribers of each topic, the coalition, and the publisher of all publications, if there is one."""
    nodes, names = tables.name_numbers("n", village.nodes), tables.name_numbers("t", topics)
    held = {
        "subscriber": (names.take(pa.array(village.topics)), village.readers),
        "insider": ("", village.insiders),
        "publisher": ("", np.array([] if publisher is None else [publisher], np.int64)),
    }
    parts = [
        tables.from_columns(
            "truth",
            run=run,
            topic=topic,
            node=nodes.take(pa.array(who)),
            role=role,
            since_us=0,
            until_us=epochs * EPOCH_US,
        )
        for role, (topic, who) in held.items()
    ]
    return pa.concat_tables(parts)


def _facts(village: TreeReaders, habit: TreePolicy) -> Mapping[str, float]:
    if habit.profile == "paper":
        return {"branching": tree.least_branching(village.nodes, habit.depth)}
    last = habit.chain + habit.tail + 1
    turnover = habit.turnover if habit.kept else 1.0
    return {"nearest_place": 2 if habit.tail else last, "farthest_place": last, "turnover": turnover}


def _instructions(run: str, nodes: pa.Array, entries: TreeEntries) -> Iterator[pa.Table]:
    each = np.arange(len(entries))
    for kind, rows, size in (
        ("tree", each, entries.size),
        ("forward", np.repeat(each, entries.forwarded), np.zeros(len(entries), np.int64)),
    ):
        yield tables.from_columns(
            "server",
            run=run,
            epoch=entries.refresh[rows],
            t_us=entries.refresh[rows] * EPOCH_US,
            role=_roles(kind, nodes, entries).take(pa.array(rows)),
            pseudonym=nodes.take(pa.array(entries.parent[rows])),
            tag=_tags(entries.refresh[rows], entries.tree[rows]),
            size=size[rows],
        )


def _roles(kind: str, nodes: pa.Array, entries: TreeEntries) -> pa.Array:
    """The role of each entry's observer, at its place."""
    places = int(entries.hops_behind_root.max(initial=0)) + 2
    codes = entries.observer * places + entries.hops_behind_root + 1
    names = [
        f"{kind}:{node}" + (f":{place}" if place >= 0 else "")
        for node in nodes.to_pylist()
        for place in range(-1, places - 1)
    ]
    return pa.array(names, pa.string()).take(pa.array(codes))


def _steps(run: str, nodes: pa.Array, paths: PublicationPaths | None) -> Iterator[pa.Table]:
    """The steps of publications in the first epoch, a hop apart."""
    if paths is None:
        return
    begins = paths.hop == 0
    for kind, rows in (("origin", np.flatnonzero(begins)), ("path", np.flatnonzero(~begins))):
        yield tables.from_columns(
            "server",
            run=run,
            epoch=0,
            t_us=paths.publication[rows] * _APART_US + paths.hop[rows] * HOP_US,
            role=pa.array([f"{kind}:{nodes[node]}" for node in paths.observer[rows].tolist()], pa.string()),
            pseudonym=nodes.take(pa.array(paths.following[rows])),
            tag=_tags(np.full(rows.size, -1), paths.publication[rows]),
            size=0,
        )


def _tags(first: Numbers, second: Numbers) -> pa.Array:
    """Eight bytes for each two numbers."""
    words = np.ascontiguousarray(np.column_stack([first, second]), ">i4")
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), len(words), [None, pa.py_buffer(words.tobytes())]).cast(
        pa.binary()
    )


_HALF: Final = 32
EPOCH_US: Final = 3_600_000_000
HOP_US: Final = 100_000
_APART_US: Final = 1_000_000
"""Time between two publications."""
