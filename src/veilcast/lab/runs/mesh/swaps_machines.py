"""Runs of the shell game on the machines: what heartbeats and one notification show, and what it all costs.

The machines stand on the overlay that the models have under the same seed (`mesh_simulation`), with the links off, as
in P0: an observer of all wires sees heartbeats of one size, and notifications. It also has the basic overlay, and the
share of subscribers, as P0 grants it. It watches from the first heartbeat on.

Attackers guess from the cells (`attack.observer.pair_job`). Members of the mesh are those at the end of the run, and
are all judged but the publisher. Costs are counted from the start: messages of each kind, and the heartbeats that carry
them. Every message counts, also those of games that were given up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.crypto.hash_chain import LENGTH_MAX
from veilcast.lab import tables
from veilcast.lab.attack.observer.pair_job import guess_from_heartbeats
from veilcast.lab.attack.registry import MEMBER, PUBLISHER, SUBSCRIBER
from veilcast.lab.attack.table_engine import AnyTable
from veilcast.lab.experiment.mesh_params import MeshSwaps
from veilcast.lab.experiment.params import Measure
from veilcast.lab.experiment.recorder import NO_RECORDER, TableRecorder, record_tables
from veilcast.lab.measure import ranking
from veilcast.lab.models.mesh import hop_distances
from veilcast.lab.runs.mesh.flow_tables import NEVER_US, TOPIC, name_nodes
from veilcast.lab.runs.mesh.mesh_simulation import MeshSimulation, node_number
from veilcast.lab.runs.mesh.overlay_setup import OverlaySetup, draw_overlay
from veilcast.machine import Address, Delivered, Event
from veilcast.mesh.config import CoverConfig, MeshConfig, ShellGameConfig
from veilcast.observe import CellRow, ObservationRow
from veilcast.wire.geometry import NEIGHBOURS_MAX


def run(params: MeshSwaps, seed: int, data: Path | None = None, recorder: TableRecorder = NO_RECORDER) -> list[Measure]:
    found = draw_overlay(params, seed, data)
    config = _config(params, found)
    wires, arrivals = _Wires(), _Arrivals()
    mesh = MeshSimulation(found, config, seed, latency_us=_LATENCY_US, recorder=wires, on_event=arrivals.take)
    start, asked_us = mesh.world.now, round(params.publish_s * SECOND_US)
    if asked_us:
        mesh.world.run(asked_us)
        mesh.publish(b"note")
    mesh.world.run(round(params.watch_s * SECOND_US) - asked_us)
    observed = _tabulate(params, config, mesh, wires)
    truth = _tabulate_truth(mesh)
    guesses = attack_tables(observed, params, (), data)
    record_tables(recorder, observed | {"truth": truth, "guesses": guesses})
    facts = _count_messages(mesh, wires, params) | arrivals.summarise(start + asked_us, len(mesh.subscribers))
    if not asked_us:
        facts = {name: value for name, value in facts.items() if name not in ("delivered", "seconds_to_first")}
    return [
        *measure_guesses(guesses, truth, params, (), seed),
        *(Measure("", name, 0, value) for name, value in facts.items()),
    ]


def attack_tables(
    observed: Mapping[str, AnyTable], params: MeshSwaps, names: Collection[str], _: Path | None
) -> AnyTable:
    """The guesses of these attackers, or of all that can say anything."""
    asked = names or (None if params.publish_s else ("heartbeat-pairs",))
    return guess_from_heartbeats(observed, asked)


def measure_guesses(
    guesses: pa.Table, truth: pa.Table, _: MeshSwaps, names: Collection[str], seed: int
) -> list[Measure]:
    """The measures of these attackers, or of all: rank measures; and how many of the nodes with the highest score have
    the role, and how many of those with the role are among them."""
    found = []
    known = {role: _having(truth, role) for role in (PUBLISHER, MEMBER, SUBSCRIBER)}
    for attack in pc.unique(guesses["attack"]).to_pylist():
        if names and attack not in names:
            continue
        rows = guesses.filter(pc.equal(guesses["attack"], attack))
        asked = rows.filter(pc.invert(pc.is_in(rows["node"], known[PUBLISHER])))
        positive = np.asarray(pc.is_in(asked["node"], known[asked["role"][0].as_py()]).to_numpy(), np.bool_)
        scores = asked["score"].to_numpy()
        measures = ranking.measure_ranking(scores, positive) | {"base": float(np.mean(positive))}
        # Members are all that are named at all; leaves score more than other members.
        named = scores > 0 if attack == "heartbeat-pairs" else scores >= max(scores.max(), _LEAF)
        measures["recall"] = float(np.mean(named[positive])) if positive.any() else 0.0
        if named.any():
            measures["precision"] = float(np.mean(positive[named]))
        found += [Measure(attack, metric, 0, value) for metric, value in measures.items()]
    return found


class _Wires:
    """Records every frame."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, int]] = []

    def append(self, row: ObservationRow) -> None:
        if isinstance(row, CellRow):
            self.rows.append((row.t_us, node_number(row.src), node_number(row.dst), row.size))


class _Arrivals:
    """When notifications were delivered."""

    def __init__(self) -> None:
        self._at: list[int] = []

    def take(self, address: Address, event: Event, now: int) -> None:
        if isinstance(event, Delivered):
            self._at.append(now)

    def summarise(self, asked_us: int, subscribers: int) -> dict[str, float]:
        found = {"delivered": len(self._at) / max(1, subscribers)}
        if self._at:
            found["seconds_to_first"] = (min(self._at) - asked_us) / SECOND_US
        return found


def _config(params: MeshSwaps, found: OverlaySetup) -> MeshConfig:
    forming = _FIRST + round(_HOP * int(hop_distances(found[0], found[1])[0].max()))
    cover = CoverConfig()
    if params.cover != "none":
        cover = CoverConfig(params.cover, params.mu, round(forming * params.heartbeat_s * SECOND_US))
    game = ShellGameConfig()
    if params.game != "none":
        game = ShellGameConfig(
            start="child",
            first="exponential" if params.start == "wait" else "immediate",
            wait_us=round(params.wait_s * SECOND_US),
            rate=params.decay,
            settle_periods=forming if params.cover == "none" else forming + _COVERING,
            reach=params.reach,
            hold_periods=round(params.hold_s / params.heartbeat_s),
        )
    return MeshConfig(
        heartbeat_us=round(params.heartbeat_s * SECOND_US),
        neighbours_max=NEIGHBOURS_MAX,
        address_bytes_max=8,
        d_max=LENGTH_MAX,
        cover=cover,
        shellgame=game,
    )


def _tabulate(params: MeshSwaps, config: MeshConfig, mesh: MeshSimulation, wires: _Wires) -> dict[str, pa.Table]:
    t_us, src, dst, size = np.array(wires.rows, np.int64).reshape(-1, 4).T
    u, v = map(name_nodes, mesh.graph.edges())
    facts = {"heartbeat_us": config.heartbeat_us, "subscriber_share": len(mesh.subscribers) / mesh.graph.nodes}
    return {
        "cells": tables.from_columns(
            "cells", run=_RUN, epoch=0, t_us=t_us, src=_names(src), dst=_names(dst), size=size
        ),
        "topology": tables.from_columns("topology", run=_RUN, epoch=0, u=u.tolist(), v=v.tolist()),
        "facts": tables.from_columns(
            "facts", run=_RUN, name=list(facts), value=np.array(list(facts.values()), np.float64)
        ),
    }


def _tabulate_truth(mesh: MeshSimulation) -> pa.Table:
    roles = {PUBLISHER: [mesh.publisher], SUBSCRIBER: mesh.subscribers.tolist(), MEMBER: mesh.members()}
    return pa.concat_tables(
        tables.from_columns(
            "truth", run=_RUN, topic=TOPIC, node=_names(np.array(nodes)), role=role, since_us=0, until_us=NEVER_US
        )
        for role, nodes in roles.items()
    )


def _count_messages(mesh: MeshSimulation, wires: _Wires, params: MeshSwaps) -> dict[str, float]:
    """Sizes of the mesh, games, and messages; heartbeats and their bytes by node and second."""
    sent, members = mesh.count_sent(), mesh.members()
    overlay = {(min(u, v), max(u, v)) for u, v in zip(*(end.tolist() for end in mesh.graph.edges()), strict=True)}
    beats = [row for row in wires.rows if row[3] == mesh.config.heartbeat_bytes]
    pairs = {(min(src, dst), max(src, dst)) for _, src, dst, _ in beats}
    of_nodes = mesh.graph.nodes * params.watch_s
    inner = [node for node in members if node != mesh.publisher]
    found = {
        "overlay": float(len(members)),
        "share": float(np.mean(np.isin(inner, mesh.subscribers))) if inner else 0.0,
        "swaps": float(mesh.count_swaps()),
        "games_begun": float(sent["SwapAsk"]),
        "pairs_outside": float(len(pairs - overlay)),
        "heartbeats": len(beats) / of_nodes,
        "heartbeat_bytes": len(beats) * mesh.config.heartbeat_bytes / of_nodes,
        **{name: _total(sent, kinds) for name, kinds in MESSAGES.items()},
    }
    if found["swaps"]:
        found["messages_each_swap"] = found["swap_messages"] / found["swaps"]
    return found


def _total(sent: Counter[str], kinds: tuple[str, ...]) -> float:
    return float(sum(sent[kind] for kind in kinds))


def _having(truth: pa.Table, role: str) -> pa.Array:
    return truth.filter(pc.equal(truth["role"], role))["node"].combine_chunks()


def _names(nodes: NDArray[np.int64]) -> pa.Array:
    return pa.array(name_nodes(nodes).tolist(), pa.string())


MESSAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "adverts": ("Advert", "Unadvert"),
    "subscriptions": ("Subscribe", "Unsubscribe"),
    "invitations": ("Invite", "Decline"),
    "swap_messages": ("SwapAsk", "SwapAnswer", "SwapLock", "SwapVote", "SwapCommit", "SwapAbort"),
    "surroundings": ("Surroundings",),
}
"""Metrics that count messages, and the kinds that each counts."""
SECOND_US: Final = 1_000_000
_LATENCY_US: Final = (10_000, 100_000)
_FIRST: Final = 3
_HOP: Final = 1.2
_COVERING: Final = 40
_LEAF: Final = 1e-9
_RUN: Final = "run"
