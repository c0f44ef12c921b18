"""Runs on the real machines: the mesh nodes of `veilcast.mesh`, in the simulator, under the same parameters.

The link layer is off, as in P0: notes travel as frames of their own. What the observer has is taken in two ways.

- *From the wires*, where nobody plays the shell game. When the mesh has come to rest the publisher publishes, and every
  frame that is not of a heartbeat's size is a copy of the note: its source and destination are a link of the flow.
- *From a stop of the world*, where it is played: at the moment when so many swaps are done, or so many seconds are
  over, the flow is from whom each node has the topic. To publish then would not show the same: a node sends notes for a
  while to where it left (a lease), so the wires show the places before and after a swap at once; and to let the
  game rest first would change the number of swaps, at which machines and kernels are compared.

What differs from the kernels, and where it shows. A swap takes messages that wait for heartbeats, and games that meet
give way to one another: so seconds are not the kernels' seconds, and the two are compared at equal numbers of swaps;
there locks make no difference, in the kernels either. Nobody plays before its ways to the publisher have rested, so
with an immediate start everybody begins on a finished mesh, and subscribers do not rise while it is laid, as they do in
P0 and in the kernels; an exponential start is the same in both. `lock_s` and `hop_s` are the kernels': here locks and
hops take what heartbeats take. Of several equally near neighbours a machine follows the first that tells, and who looks
for a cover asks one after the other: kernels do the same where `pace` is "beats", and are held against machines so. The
plain ones have meshes that are a twentieth larger at degree 16, and a fiftieth with covers at mu = 0.9.

An overlay that falls apart, as small worlds of degree 2 do, is run as it is: subscribers whom no advert reaches are not
in the mesh, and `reached` tells how many are.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Final

import numpy as np

from veilcast.crypto.chain import LENGTH_MAX
from veilcast.errors import ConfigError
from veilcast.lab.measure.accuracy import Truth
from veilcast.lab.sweep import active_runs
from veilcast.lab.sweep.params import Measure, Params
from veilcast.lab.sweep.sights import Flow, Sight, measures
from veilcast.machine import Address, Machine, Publication
from veilcast.mesh.config import Config, Cover, ShellGame
from veilcast.observe import Cell, Row
from veilcast.sim.adversaries import innermost
from veilcast.sim.links import Links
from veilcast.sim.mesh import TOPIC, MeshPopulation
from veilcast.sim.mesh_checkers import node_at
from veilcast.sim.world import World
from veilcast.topics import Label


def run(params: Params, seed: int, data: Path | None = None) -> list[Measure]:
    """One run. The data folder is not used: the machines lay out small worlds only."""
    if params.script:
        return active_runs.run(params, seed)
    _check(params)
    return measures(*_Run(params, seed).watched(), persistent=params.publications > 1)


class _Run:
    def __init__(self, params: Params, seed: int) -> None:
        self._params = params
        self._people = _population(params)
        self._places = {address: place for place, address in enumerate(self._people.addresses())}
        self._publisher, self._readers = self._people.roles(seed)
        self._wires = _Wires(self._people.mesh.heartbeat_bytes)
        links = Links(latency_us=(PERIOD_US // 100, PERIOD_US // 10))
        self._world = World(seed=seed, links=links, recorder=self._wires if params.game == "none" else None)
        self._people.settle(self._world, 0)

    def watched(self) -> tuple[Truth, Iterator[Sight]]:
        subscribes = np.zeros(len(self._places), dtype=np.bool_)
        subscribes[[self._places[reader] for reader in self._readers]] = True
        truth = Truth(self._places[self._publisher], subscribes)
        return truth, self._publications() if self._params.game == "none" else self._games()

    def _publications(self) -> Iterator[Sight]:
        self._come_to_rest()
        flows = []
        for number in range(1, self._params.publications + 1):
            flows.append(self._publish(number))
            if self._params.look == "publications" and number in self._params.steps:
                yield Sight(number, tuple(flows))
                flows = []
        if self._params.look == "end":
            yield Sight(0, tuple(flows))

    def _come_to_rest(self) -> None:
        """Until nobody joins any more: for longer than a message waits, or an invitation for its answer."""
        self._world.run(_forming(self._params) * PERIOD_US)
        before, size = -1, 0
        while size != before:
            self._world.run(_QUIET * PERIOD_US)
            before, size = size, len(self._people.members(self._world))

    def _publish(self, number: int) -> Flow:
        note = Publication((Label(TOPIC).pair,), b"note %d" % number)
        self._wires.seen.clear()

        def publish(machine: Machine, now: int) -> None:
            innermost(machine).publish(note, now)

        self._world.call(self._publisher, publish)
        seen = -1
        while seen != len(self._wires.seen):
            seen = len(self._wires.seen)
            self._world.run(PERIOD_US)
        return self._flow([(Address(cell.src), Address(cell.dst)) for cell in self._wires.seen])

    def _games(self) -> Iterator[Sight]:
        """Looks at what the parameters count, a fraction of a heartbeat late at most; seconds are those since the first
        swap. A game that has cooled down, or that nobody can play, is at the steps that are left as it ended."""
        steps, swaps, first_us, last_us = list(self._params.steps or (inf,)), 0, 0, self._world.now
        while steps:
            self._world.run(PERIOD_US // _SLICES)
            before, swaps = swaps, self._swaps()
            if swaps > before:
                first_us, last_us = first_us or self._world.now, self._world.now
            seconds = (self._world.now - first_us) / 1_000_000 if first_us else 0.0
            over = self._world.now - last_us > _PATIENCE * PERIOD_US
            while steps and (over or (swaps if self._params.look == "swaps" else seconds) >= steps[0]):
                step = steps.pop(0)
                yield Sight(step if step < inf else 0, (self._standing(),), {"swaps": swaps, "seconds": seconds})

    def _standing(self) -> Flow:
        """From whom each node has the topic."""
        token = self._people.token(self._world)
        links = []
        for address in self._places:
            if (node := node_at(self._world, address)) is not None:
                links += [(parent, address) for parent in node.overlay.branches.inward(token)]
        return self._flow(links)

    def _swaps(self) -> int:
        return sum(
            node.overlay.policy.played()
            for address in self._places
            if (node := node_at(self._world, address)) is not None
        )

    def _flow(self, links: list[tuple[Address, Address]]) -> Flow:
        unique = dict.fromkeys((self._places[src], self._places[dst]) for src, dst in links)
        ends = np.array(list(unique), dtype=np.int32).reshape(-1, 2)
        return Flow(ends[:, 0], ends[:, 1])


class _Wires:
    """What an observer of all wires writes down: whatever is not a heartbeat."""

    def __init__(self, heartbeat_bytes: int) -> None:
        self._heartbeat_bytes = heartbeat_bytes
        self.seen: list[Cell] = []

    def append(self, row: Row) -> None:
        if isinstance(row, Cell) and row.size != self._heartbeat_bytes:
            self.seen.append(row)


def _population(params: Params) -> MeshPopulation:
    forming = _forming(params)
    cover = Cover() if params.cover == "none" else Cover(params.cover, params.mu, forming * PERIOD_US)
    game = ShellGame()
    if params.game == "events":
        game = ShellGame(
            start="child",
            first="immediate" if params.start == "immediate" else "exponential",
            wait_us=round(params.wait_s * 1_000_000),
            decay=params.decay_by,
            rate=params.decay,
            settle_periods=forming if params.cover == "none" else forming + _COVERING,
        )
    mesh = Config(
        heartbeat_us=PERIOD_US,
        neighbours_max=params.degree + _MORE_NEIGHBOURS,
        address_bytes_max=8,
        d_max=LENGTH_MAX,
        cover=cover,
        shellgame=game,
    )
    return MeshPopulation(
        params.nodes, params.degree, params.rewire, params.ratio, notes=0, mesh=mesh, checks=(), whole=False
    )


def _forming(params: Params) -> int:
    """Heartbeats that a mesh takes to form. A hop takes half a heartbeat and a little; small worlds are a few hops
    wide, but for those of degree 2, which are long threads, up to where chains end."""
    return _FORMING if params.degree >= 4 else _FORMING_THIN


def _check(params: Params) -> None:
    refused = {
        f"graph = {params.graph!r}": params.graph != "small-world",
        "a topic of the data folder": params.topic != "",
        f"ties = {params.ties!r}: they follow who tells first": params.ties != "uniform",
        "variable covers: they choose once": params.covers == "variable",
        "bare swaps": params.game == "swaps",
        "kappa, insiders or churn": params.kappa + params.insiders + params.churn > 0,
        f"look = {params.look!r} for this": params.look not in (_LOOKS if params.game == "none" else _GAME_LOOKS),
    }
    for what, is_so in refused.items():
        if is_so:
            raise ConfigError(f"the machines do not run {what}")


PERIOD_US: Final = 1_000_000
"""A heartbeat, by which all else is timed."""
_FORMING: Final = 12
_FORMING_THIN: Final = 40
_COVERING: Final = 40
_QUIET: Final = 6
_SLICES: Final = 4
_PATIENCE: Final = 400
"""Heartbeats without a swap after which a game is over: eighty waits of one node."""
_MORE_NEIGHBOURS: Final = 24
"""How many more than the mean a node of a small world may have."""
_LOOKS: Final = ("end", "publications")
_GAME_LOOKS: Final = ("end", "swaps", "seconds")
