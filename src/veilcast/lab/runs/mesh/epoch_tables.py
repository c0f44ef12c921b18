"""The tables of a run over epochs: what its observers saw, what is public, and the truth.

A run observes what its attackers read, and no more. Tables are built from arrays, column by column. An overlay that
does not change is written once, in its first epoch. Every epoch takes an hour. Its notification leaves at the
beginning, and a hop takes a minute. The rounds of `round_counts` divide the epoch. The topic in question has no name;
other topics have numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.lab import tables
from veilcast.lab.attack.insider.coalition_tables import ADVERTS, CHAINS, PARTS
from veilcast.lab.attack.insider.observations import CoalitionObservations
from veilcast.lab.attack.registry import ACTIVITY, FORMATION, Attacker, find_needs
from veilcast.lab.experiment.mesh_params import MeshEpochs
from veilcast.lab.experiment.recorder import TableRecorder
from veilcast.lab.models.coalition_view import insiders_table, watch_epochs, write_insiders
from veilcast.lab.models.epochs import Epoch, MeshPolicy, Population
from veilcast.lab.models.hardened_mesh import ONWARD_PROBABILITY
from veilcast.lab.models.shell_game import GameOutcome
from veilcast.lab.runs.mesh.advert_observer import AdvertObserver
from veilcast.lab.runs.mesh.epoch_setup import observe_constant_wires, observe_formation, observe_wires
from veilcast.lab.runs.mesh.round_counts import ROUNDS, TOPICS, RoundCounts
from veilcast.observe import InsiderRow
from veilcast.wire.geometry import CELL

EPOCH_US: Final = 3_600_000_000


class EpochTables:
    """The tables of one run, after the epochs that it has been shown."""

    def __init__(
        self,
        params: MeshEpochs,
        people: Population,
        conduct: MeshPolicy,
        attackers: Sequence[Attacker[Any]],
        kept: Collection[str] = (),
        epoch_us: int = EPOCH_US,
    ) -> None:
        """`kept` names tables that are stored, whether an attacker reads them or not."""
        outside = [each for each in attackers if each.observes is not CoalitionObservations]
        watched = find_needs(outside, (FORMATION, ACTIVITY))
        heard = find_needs((each for each in attackers if each.observes is CoalitionObservations), PARTS)
        self._params, self._people, self._conduct, self._epoch_us = params, people, conduct, epoch_us
        self._names = pa.array(node_names(people.graph.nodes))
        self._parts: dict[str, list[pa.Table]] = {}
        some = bool(people.insiders.any())
        self._watches_wires = bool(outside) or "cells" in kept
        self._watches_links = bool(heard - {ADVERTS, CHAINS}) or (some and "insiders" in kept)
        self._watches_formation = FORMATION in watched or "formation" in kept
        counts = ACTIVITY in watched or bool({"received", "published"} & set(kept))
        self._rounds = RoundCounts(people, conduct, int(params.steps[-1])) if counts else None
        hears = bool(heard & {ADVERTS, CHAINS}) or (some and "insiders" in kept)
        self._adverts = AdvertObserver(people, together=params.pace == "instant") if hears else None
        self._recorder = TableRecorder(RUN, {name: self._parts.setdefault(name, []).append for name in _TABLES})
        u, v = people.graph.edges()
        self._record("topology", epoch=0, u=self._take(u), v=self._take(v))
        self._record_heartbeats()
        facts = self._facts()
        self._record("facts", name=list(facts), value=np.array(list(facts.values()), np.float64))
        if counts:
            share = len(people.subscribers) / people.graph.nodes
            self._record("popularity", topic=[_topic_name(number) for number in range(TOPICS)], share=share)

    def observe_epoch(self, epoch: Epoch, shuffled: GameOutcome | None) -> None:
        """Add one epoch of the models, after these games."""
        number, began_us = epoch.number, epoch.number * self._epoch_us
        self.record_presence(number, epoch.present, epoch.root_paths.root)
        if self._watches_wires:
            hidden = self._params.kappa > 0
            src, dst, hop = observe_constant_wires(epoch) if hidden else observe_wires(epoch, shuffled)
            ends = {"src": self._take(src), "dst": self._take(dst)}
            self._record("cells", epoch=number, t_us=began_us + hop * HOP_US, **ends, size=CELL)
        if self._watches_formation:
            stage, node = np.nonzero(observe_formation(self._people, epoch, hidden=self._params.kappa > 0))
            self._record("formation", epoch=number, stage=stage, node=self._take(node))
        if self._rounds is not None:
            busy, activity = self._rounds.draw(epoch)
            when, topic = np.nonzero(busy)
            topics = [_topic_name(each) for each in topic.tolist()]
            self._record("published", topic=topics, t_us=began_us + when * ROUND_US)
            when, node = np.nonzero(activity)
            sizes = {"node": self._take(node), "size": activity[when, node].astype(np.int64)}
            self._record("received", t_us=began_us + when * ROUND_US, round_us=ROUND_US, **sizes)
        if self._adverts is not None:
            heard = self._adverts.hear(epoch)
            self._parts["insiders"].append(
                insiders_table(
                    RUN,
                    self._names,
                    _TOKEN,
                    start_us=0,
                    epoch_us=self._epoch_us,
                    epoch=np.full(len(heard.peer), number),
                    after_us=heard.after_us,
                    observer=heard.observer,
                    peer=heard.peer,
                    kind="in:Advert",
                    message=b"%d" % number,
                    chain=heard.chain,
                )
            )

    def record_presence(self, number: int, present: NDArray[np.bool_], root: int) -> None:
        """Add the present nodes of an epoch, and its root, which the coalition knows."""
        self._record("presence", epoch=number, node=self._take(np.flatnonzero(present)))
        self._record("roots", topic="", epoch=number, node=self._names[root].as_py())

    def watch_links(self) -> None:
        """Add all that the coalition saw on its links in all epochs of the models, if an attacker reads it."""
        if self._watches_links:
            view = watch_epochs(self._people, self._conduct, int(self._params.steps[-1]))
            names, times = self._names.to_pylist(), {"epoch_us": self._epoch_us, "hop_us": HOP_US}
            self._parts["insiders"].append(write_insiders(view, RUN, names, _TOKEN, start_us=0, **times))

    def record_insiders(self, rows: Sequence[InsiderRow], nodes: Sequence[str]) -> None:
        """Add what a tap wrote; `nodes` are its names of the nodes, by number."""
        table, named = tables.from_rows(InsiderRow, rows), pa.array(nodes, pa.string())
        for place, column in enumerate(table.column_names):
            if column in ("observer", "peer"):
                known = self._names.take(pc.index_in(table[column].combine_chunks(), named))
                table = table.set_column(place, table.schema.field(column), known)
        self._parts["insiders"].append(table)

    def observed(self) -> dict[str, pa.Table]:
        """The tables that attackers read."""
        return {name: pa.concat_tables(parts) for name, parts in self._parts.items() if parts}

    def truth(self) -> pa.Table:
        """The roles, over the whole run. `exposed` are honest nodes with an insider as a neighbour."""
        people, graph = self._people, self._people.graph
        ends = np.repeat(np.arange(graph.nodes), graph.degrees)
        exposed = np.unique(ends[people.insiders[graph.targets] & ~people.insiders[ends]])
        roles: dict[str, NDArray[np.integer]] = {
            "subscriber": people.subscribers,
            "publisher": np.array([people.publisher]),
            "insider": np.flatnonzero(people.insiders),
            "exposed": exposed,
        }
        role = [name for name, nodes in roles.items() for _ in range(len(nodes))]
        collected: list[pa.Table] = []
        TableRecorder(RUN, {"truth": collected.append}).record(
            "truth",
            topic="",
            node=self._take(np.concatenate(list(roles.values()))),
            role=role,
            since_us=0,
            until_us=int(self._params.steps[-1]) * self._epoch_us,
        )
        return collected[0]

    def _record_heartbeats(self) -> None:
        """Each insider notes its first heartbeat, so that the coalition knows its members."""
        graph, ours = self._people.graph, np.flatnonzero(self._people.insiders).astype(np.int32)
        if not ours.size:
            return
        count = int(self._params.steps[-1])
        epoch = np.repeat(np.arange(count), ours.size)
        observer = np.tile(ours, count)
        self._parts["insiders"].append(
            insiders_table(
                RUN,
                self._names,
                _TOKEN,
                start_us=0,
                epoch_us=self._epoch_us,
                epoch=epoch,
                after_us=0,
                observer=observer,
                peer=graph.targets[graph.offsets[observer]],
                kind="out:Heartbeat",
            )
        )

    def _facts(self) -> dict[str, float]:
        people, conduct, params = self._people, self._conduct, self._params
        facts = {
            "epoch_us": float(self._epoch_us),
            "subscriber_share": len(people.subscribers) / people.graph.nodes,
            "cover_share": _COVERED if conduct.mu else 0.0,
            "acting": acting_share(people, params.kappa),
            "kept": float(params.kappa > 0),
            "onward": ONWARD_PROBABILITY,
            "departures": float(conduct.departures),
            "hold": float(conduct.hold),
            "relay_epochs": float(conduct.relay_epochs),
            "waits": 1.0,
        }
        return facts | ({"hop_us": float(HOP_US)} if conduct.timing == "seen" else {})

    def _take(self, nodes: NDArray[np.integer]) -> pa.Array:
        return self._names.take(pa.array(nodes))

    def _record(self, table: str, **columns: Any) -> None:
        self._recorder.record(table, **columns)


def node_names(nodes: int) -> list[str]:
    """Names whose order is that of the numbers."""
    width = len(str(nodes - 1))
    return [f"n{number:0{width}}" for number in range(nodes)]


def acting_share(people: Population, kappa: float) -> float:
    """Insiders know how many nodes subscribe, and how many act as subscribers."""
    share = len(people.subscribers) / int(np.count_nonzero(~people.insiders))
    return min(share + (1 - share) * kappa, _SURE)


def _topic_name(number: int) -> str:
    return str(number) if number else ""


RUN: Final = "run"
"""Name of the run while it is made; a recorder gives it the name under which it is stored."""
HOP_US: Final = 60_000_000
ROUND_US: Final = EPOCH_US // ROUNDS
_TOKEN: Final = b"token"
_TABLES: Final = (
    "topology",
    "presence",
    "roots",
    "cells",
    "formation",
    "popularity",
    "published",
    "received",
    "insiders",
    "facts",
)
_SURE: Final = 0.999
_COVERED: Final = 0.35
"""Approximate probability that a node that no member needs is a cover in P0's meshes. An observer with this number
learns more."""
