"""Runs of one mesh on the real machines: the nodes of `veilcast.mesh` in the simulator, under the models' parameters.

The machines stand on the overlay that the models have under the same seed (`mesh_simulation`). The observer's flow is
taken in one of two ways.

- *From the wires*, if there is no shell game. When the mesh is at rest the publisher publishes. Every frame that is not
  of a heartbeat's size is a copy of the notification: its source and destination are a link of the flow. If covers are
  chosen again for every publication, old ones have left and new ones were found before the next publication.
- *From a stop of the world*, if there is a shell game. After a number of swaps, or of seconds, the flow is the link
  from which each node receives the topic. A publication would not show the same: a node sends notifications for a while
  to its former place (a lease), so the wires would show the places before and after a swap at once. To let the game
  rest first would change the number of swaps, at which machines and models are compared.

Differences from the models:

- A swap takes messages that wait for heartbeats, and games that meet yield to one another. So seconds are not the
  models' seconds, and the two are compared at equal numbers of swaps. There, locks make no difference in the models
  either.
- No node plays before its paths to the publisher have rested. With an immediate start every node begins on a finished
  mesh, and subscribers do not rise while it is laid, as they do in P0 and in the models. An exponential start is the
  same in both.
- Machines have no swaps without games. Bare swaps are here games without decay, after exponential waits. Initiator and
  child are as random as in the models, except for locked nodes.
- `lock_s` and `hop_s` are for the models: here locks and hops take the time of heartbeats.
- Of several equally near neighbours a machine follows the first that tells it, and a node that looks for a cover asks
  one neighbour after the other. Models do the same with `pace = "beats"`, and are compared with machines in that form.
  The plain models have meshes that are a twentieth larger at degree 16, and a fiftieth larger with covers at mu = 0.9.

A disconnected overlay, as small worlds of degree 2 are, is run as it is: subscribers that no advert reaches are not in
the mesh, and `reached` is the share of the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Final

import numpy as np

from veilcast.crypto.hash_chain import LENGTH_MAX
from veilcast.errors import ConfigError
from veilcast.lab.experiment.mesh_params import MeshFlows
from veilcast.lab.experiment.params import Measure
from veilcast.lab.measure.accuracy import RunTruth
from veilcast.lab.models.mesh import hop_distances
from veilcast.lab.runs.mesh.flow_observer import FlowObservation, PublicationFlow, measure_flows
from veilcast.lab.runs.mesh.mesh_simulation import MeshSimulation, link_ends, node_number
from veilcast.lab.runs.mesh.overlay_setup import OverlaySetup, draw_overlay
from veilcast.mesh.config import CoverChoice, CoverConfig, MeshConfig, ShellGameConfig
from veilcast.observe import CellRow, ObservationRow
from veilcast.wire.geometry import NEIGHBOURS_MAX


def run(params: MeshFlows, seed: int, data: Path | None = None) -> list[Measure]:
    _check(params)
    found = draw_overlay(params, seed, data)
    graph, publisher, subscribers = found
    subscribes = np.zeros(graph.nodes, dtype=np.bool_)
    subscribes[subscribers] = True
    shown = _Run(params, found, seed)
    observations = shown.publications() if params.game == "none" else shown.games()
    return measure_flows(RunTruth(publisher, subscribes), observations, persistent=params.publications > 1)


class _Run:
    def __init__(self, params: MeshFlows, found: OverlaySetup, seed: int) -> None:
        self._params = params
        self._forming = _forming(found)
        config = _config(params, self._forming)
        self._wires = _Wires(config.heartbeat_bytes)
        self._mesh = MeshSimulation(
            found,
            config,
            seed,
            latency_us=(PERIOD_US // 100, PERIOD_US // 10),
            recorder=self._wires if params.game == "none" else None,
        )

    def publications(self) -> Iterator[FlowObservation]:
        params, flows = self._params, list[PublicationFlow]()
        self._mesh.run(self._forming)
        for number in range(1, params.publications + 1):
            if number == 1 or params.covers == "variable":
                self._come_to_rest()
            flows.append(self._publish(number))
            if params.look == "publications" and number in params.steps:
                yield FlowObservation(number, tuple(flows))
                flows = []
        if params.look == "end":
            yield FlowObservation(0, tuple(flows))

    def _come_to_rest(self) -> None:
        """Run until no node joins any more, for longer than a message waits, or an invitation for its answer. A node
        looks for covers as long after it has joined, or has forwarded a notification, as a mesh takes to form."""
        self._mesh.run(self._forming if self._params.cover != "none" else 0)
        before, size = -1, len(self._mesh.members())
        while size != before:
            self._mesh.run(_QUIET)
            before, size = size, len(self._mesh.members())

    def _publish(self, number: int) -> PublicationFlow:
        self._wires.seen.clear()
        self._mesh.publish(b"note %d" % number)
        seen = -1
        while seen != len(self._wires.seen):
            seen = len(self._wires.seen)
            self._mesh.run(1)
        return PublicationFlow(*link_ends(self._wires.seen))

    def games(self) -> Iterator[FlowObservation]:
        """Observe at the steps that the parameters name, at most a fraction of a heartbeat late. Seconds are counted
        from the first swap. If the game has cooled down, or no node can play, the remaining steps show its last state.
        """
        mesh, world = self._mesh, self._mesh.world
        mesh.run(self._forming)
        steps, swaps, first_us, last_us = list(self._params.steps or (inf,)), 0, 0, world.now
        size = len(mesh.members()) if self._params.look == "rounds" else 1
        while steps:
            mesh.run(1 / _SLICES)
            before, swaps = swaps, mesh.count_swaps()
            if swaps > before:
                first_us, last_us = first_us or world.now, world.now
            seconds = (world.now - first_us) / 1_000_000 if first_us else 0.0
            over = world.now - last_us > _PATIENCE * PERIOD_US
            while steps and (over or (seconds if self._params.look == "seconds" else swaps) >= steps[0] * size):
                step = steps.pop(0)
                facts = {"swaps": swaps, "seconds": seconds}
                yield FlowObservation(step if step < inf else 0, (PublicationFlow(*link_ends(mesh.links())),), facts)


class _Wires:
    """Records what an observer of all wires sees: the ends of every frame that is not a heartbeat."""

    def __init__(self, heartbeat_bytes: int) -> None:
        self._heartbeat_bytes = heartbeat_bytes
        self.seen: list[tuple[int, int]] = []

    def append(self, row: ObservationRow) -> None:
        if isinstance(row, CellRow) and row.size != self._heartbeat_bytes:
            self.seen.append((node_number(row.src), node_number(row.dst)))


def _config(params: MeshFlows, forming: int) -> MeshConfig:
    cover = CoverConfig()
    if params.cover != "none":
        choice: CoverChoice = "fresh" if params.covers == "variable" else "kept"
        cover = CoverConfig(params.cover, params.mu, forming * PERIOD_US, choice)
    game = ShellGameConfig()
    if params.game != "none":
        waits = params.game == "swaps" or params.start == "wait"
        game = ShellGameConfig(
            start="child",
            first="exponential" if waits else "immediate",
            wait_us=round(params.wait_s * 1_000_000),
            decay=params.decay_by,
            rate=params.decay if params.game == "events" else 0.0,
            settle_periods=forming if params.cover == "none" else forming + _COVERING,
        )
    return MeshConfig(
        heartbeat_us=PERIOD_US,
        neighbours_max=NEIGHBOURS_MAX,
        address_bytes_max=8,
        d_max=LENGTH_MAX,
        cover=cover,
        shellgame=game,
    )


def _forming(found: OverlaySetup) -> int:
    """Heartbeats that a mesh takes to form: a hop takes a little over half of one, in each direction."""
    return _FIRST + round(_HOP * int(hop_distances(found[0], found[1])[0].max()))


def _check(params: MeshFlows) -> None:
    refused = {
        f"ties = {params.ties!r}: they follow who tells first": params.ties != "uniform",
        f"look = {params.look!r} for this": params.look not in _LOOKS[params.game],
    }
    for what, is_so in refused.items():
        if is_so:
            raise ConfigError(f"the machines do not run {what}")


PERIOD_US: Final = 1_000_000
"""The heartbeat, which times everything else."""
_FIRST: Final = 3
_HOP: Final = 1.2
_COVERING: Final = 40
_QUIET: Final = 6
_SLICES: Final = 4
_PATIENCE: Final = 400
"""Heartbeats without a swap after which a game counts as over: eighty waits of one node."""
_LOOKS: Final = {
    "none": ("end", "publications"),
    "events": ("end", "swaps", "seconds"),
    "swaps": ("swaps", "rounds"),
}
