"""Runs on real sockets: a day of a town on the loopback interface, and what an observer of all its wires makes of it.

Two questions. *Who is it?* Every attacker from outside is held against the roles, as it is on captures of simulated
networks (`wiretaps`). *Is anything going on?* A classifier sees the `pulse` of what each node sent in each quarter of a
second, and is to tell phases in which something happened from idle ones; it learns from one half of the phases of a day
and is judged by the other (`telltale`).

A run takes a minute, is alone on its machine, and has a new outcome each time: its seed gives the roles, the overlay
and the order of the phases. What a busy machine does to the cells of all nodes is seen too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.attack import pulse
from veilcast.lab.kernels.graph import from_edges
from veilcast.lab.live.day import Day, day
from veilcast.lab.live.phases import EPOCH_US, MESH, PHASE_US, notes
from veilcast.lab.live.town import TownMesh, one_at_a_time
from veilcast.lab.measure.telltale import Samples, judge
from veilcast.lab.sweep import wired
from veilcast.lab.sweep.params import Measure, Params
from veilcast.lab.sweep.wiretaps import Capture, Trained, Truth, measures
from veilcast.machine import Address
from veilcast.mesh.config import Config
from veilcast.sim.engine import START_US


def run(params: Params, seed: int, data: Path | None = None) -> list[Measure]:
    people = population(params)
    with one_at_a_time():
        seen = day(people, seed, PHASES)
    return made_of(people, seen, seed)


def made_of(people: TownMesh, seen: Day, seed: int) -> list[Measure]:
    """All that an observer of this day learns."""
    found = [*measures(*_captured(people, seen, seed), Trained({})), Measure("", "delivered", 0, seen.delivered)]
    samples, kinds = samples_of(seen)
    for kind in (*KINDS, "anything"):
        verdict = judge(chosen(samples, kinds, kind), seed, exchanges=1)
        found.append(Measure("cadence", f"busy_{kind}", 0, verdict.area))
    return found


def population(params: Params) -> TownMesh:
    wired.check(params, "towns on real sockets")
    if params.publishers > 1:
        raise ConfigError("towns on real sockets have one publisher")
    return TownMesh(**wired.fields(params, _PAPER), checks=("once", "readers"), port=_PORT)


def samples_of(seen: Day, first: int = 0) -> tuple[Samples, NDArray[np.str_]]:
    """For each node and quarter of a phase what it sent to all its peers; and the kind of each sample's phase. Phases
    are numbered from `first` on."""
    part_us = PHASE_US // _PARTS
    rows, phases = [], []
    for sent in pulse.links(seen.src, seen.dst, seen.t_us, seen.size):
        for number, phase in enumerate(seen.phases):
            for part in range(_PARTS):
                start_us = START_US + phase.start_us + part * part_us
                if (row := pulse.pulse(sent, start_us, start_us + part_us)) is not None:
                    rows.append(row)
                    phases.append(number)
    kinds = np.array([each.kind for each in seen.phases])[phases]
    return Samples(np.array(rows), (kinds != "idle").astype(np.int64), first + np.array(phases)), kinds


def chosen(samples: Samples, kinds: NDArray[np.str_], kind: str) -> Samples:
    """Idle phases, and those of one kind, or of any."""
    kept = (kinds == "idle") | (kinds == kind) | (kind == "anything")
    return Samples(*(column[kept] for column in samples))


def _captured(people: TownMesh, seen: Day, seed: int) -> tuple[Capture, Truth]:
    """Without the beginning, when links and meshes form."""
    late = seen.t_us >= START_US + seen.phases[0].start_us
    publisher, readers = people.roles(seed)
    publishes, subscribes = (_mask(people, named) for named in ((publisher,), readers))
    capture = Capture(
        t_us=seen.t_us[late],
        src=seen.src[late],
        dst=seen.dst[late],
        size=seen.size[late],
        graph=from_edges(people.nodes, seen.src[late], seen.dst[late]),
        rate=float(np.mean(subscribes)),
        published=START_US + np.array(notes(seen.phases)),
        heartbeat_us=people.mesh.heartbeat_us,
        epoch_us=EPOCH_US,
    )
    return capture, Truth(publishes, subscribes)


def _mask(people: TownMesh, named: tuple[Address, ...]) -> NDArray[np.bool_]:
    return np.isin(np.array(people.addresses()), np.array(named))


PHASES: Final = 32
KINDS: Final = ("publishing", "edge", "rekeying")
_PARTS: Final = 4
_PORT: Final = 4082
_PAPER: Final = Config(heartbeat_us=MESH.heartbeat_us, silent_periods=MESH.silent_periods)
