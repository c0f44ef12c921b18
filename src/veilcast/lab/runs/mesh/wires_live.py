"""Runs on real sockets: a day of a loopback network, and what an observer of all its wires learns.

Two questions. *Which node has which role?* Every attacker from outside is compared with the roles, as on captures of
simulated networks (`wire_attackers`). *Does anything happen?* A classifier sees the bursts of what each node sent in
each quarter of a second, and has to tell busy phases from idle ones. It learns from one half of the phases of a day and
is judged on the other (`measure.permutation_test`).

A run takes a minute, needs its machine for itself, and has a new outcome each time. Its seed gives the roles, the
overlay and the order of the phases. The effects of a busy machine on the cells of all nodes are in the capture, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.attack.observer import cadence
from veilcast.lab.attack.observer.capture_job import guess_from_captures
from veilcast.lab.experiment.mesh_params import MeshWires
from veilcast.lab.experiment.params import Measure
from veilcast.lab.measure.permutation_test import PhaseSamples, judge_classifier
from veilcast.lab.models.graph import from_edges
from veilcast.lab.runs.mesh import captured_network
from veilcast.lab.runs.mesh.loopback_network import LoopbackPopulation, exclusive_addresses
from veilcast.lab.runs.mesh.traffic_day import EPOCH_US, PHASE_MESH, PHASE_US, TrafficDay, publication_times, run_day
from veilcast.lab.runs.mesh.wire_attackers import CaptureRoles, WireCapture, measure_attackers
from veilcast.machine import Address
from veilcast.mesh.config import MeshConfig
from veilcast.sim.engine import START_US


def run(params: MeshWires, seed: int, data: Path | None = None) -> list[Measure]:
    people = make_population(params)
    with exclusive_addresses():
        seen = run_day(people, seed, PHASE_COUNT)
    return measure_day(people, seen, seed)


def measure_day(people: LoopbackPopulation, seen: TrafficDay, seed: int) -> list[Measure]:
    """Everything that an observer of this day learns."""
    capture, truth = _make_capture(people, seen, seed)
    found = [
        *measure_attackers(capture, truth, guess_from_captures(capture.tables)),
        Measure("", "delivered", 0, seen.delivered),
    ]
    samples, kinds = sample_bursts(seen)
    for kind in (*PHASE_KINDS, "anything"):
        verdict = judge_classifier(select_phases(samples, kinds, kind), seed, exchanges=1)
        found.append(Measure("cadence", f"busy_{kind}", 0, verdict.area))
    return found


def make_population(params: MeshWires) -> LoopbackPopulation:
    if params.publishers > 1:
        raise ConfigError("networks on real sockets have one publisher")
    return LoopbackPopulation(
        **captured_network.population_fields(params, _PAPER), checks=("once", "readers"), port=_PORT
    )


def sample_bursts(seen: TrafficDay, first: int = 0) -> tuple[PhaseSamples, NDArray[np.str_]]:
    """A sample for each node and quarter of a phase, of what it sent to all its peers; and the kind of each sample's
    phase. Phases are numbered from `first`."""
    part_us = PHASE_US // _PARTS
    rows, phases = [], []
    for sent in cadence.split_by_link(seen.src, seen.dst, seen.t_us, seen.size):
        for number, phase in enumerate(seen.phases):
            for part in range(_PARTS):
                start_us = START_US + phase.start_us + part * part_us
                if (row := cadence.extract_burst_features(sent, start_us, start_us + part_us)) is not None:
                    rows.append(row)
                    phases.append(number)
    kinds = np.array([each.kind for each in seen.phases])[phases]
    return PhaseSamples(np.array(rows), (kinds != "idle").astype(np.int64), first + np.array(phases)), kinds


def select_phases(samples: PhaseSamples, kinds: NDArray[np.str_], kind: str) -> PhaseSamples:
    """The samples of idle phases, and of phases of one kind, or of any."""
    kept = (kinds == "idle") | (kinds == kind) | (kind == "anything")
    return PhaseSamples(*(column[kept] for column in samples))


def _make_capture(people: LoopbackPopulation, seen: TrafficDay, seed: int) -> tuple[WireCapture, CaptureRoles]:
    """The capture without its beginning, when links and meshes form."""
    late = seen.t_us >= START_US + seen.phases[0].start_us
    publisher, readers = people.roles(seed)
    publishes, subscribes = (_mask(people, named) for named in ((publisher,), readers))
    capture = WireCapture(
        t_us=seen.t_us[late],
        src=seen.src[late],
        dst=seen.dst[late],
        size=seen.size[late],
        graph=from_edges(people.nodes, seen.src[late], seen.dst[late]),
        subscriber_share=float(np.mean(subscribes)),
        published=START_US + np.array(publication_times(seen.phases)),
        heartbeat_us=people.mesh.heartbeat_us,
        epoch_us=EPOCH_US,
    )
    return capture, CaptureRoles(publishes, subscribes)


def _mask(people: LoopbackPopulation, named: tuple[Address, ...]) -> NDArray[np.bool_]:
    return np.isin(np.array(people.addresses()), np.array(named))


PHASE_COUNT: Final = 32
PHASE_KINDS: Final = ("publishing", "edge", "rekeying")
_PARTS: Final = 4
_PORT: Final = 4082
_PAPER: Final = MeshConfig(heartbeat_us=PHASE_MESH.heartbeat_us, silent_periods=PHASE_MESH.silent_periods)
