"""Runs on the real machines with their links: all wires are recorded, and attacked from outside.

`captured_network` describes the networks. Several publishers publish at random times, so the AUC of publishers is known
about as precisely as that of readers. Epochs are short: a capture begins when links are up, and contains an edge of
epochs.

Classifiers are trained on captures of their own, whose seeds no run has. The same captures are the examples of the
nearest neighbour (`nn_error`, `nn_error_publisher`), whose error bounds that of any classifier of cadence.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.lab.attack.observer.capture_job import guess_from_captures
from veilcast.lab.attack.observer.observations import CaptureObservations
from veilcast.lab.attack.registry import attackers_on
from veilcast.lab.attack.table_engine import AnyTable
from veilcast.lab.experiment.mesh_params import MeshWires
from veilcast.lab.experiment.params import Measure
from veilcast.lab.experiment.plan import SEEDS_MAX
from veilcast.lab.experiment.recorder import NO_RECORDER, TableRecorder, record_tables
from veilcast.lab.measure.nearest_neighbours import nearest_neighbour_error
from veilcast.lab.models.graph import from_edges
from veilcast.lab.runs.mesh import captured_network
from veilcast.lab.runs.mesh.wire_attackers import (
    ROLES,
    CaptureRoles,
    TrainedCadence,
    WireCapture,
    cadence_features,
    measure_attackers,
    measure_capture_guesses,
    train_cadence,
)
from veilcast.machine import Address, Delivered, Event, Machine, Publication
from veilcast.mesh.config import MeshConfig
from veilcast.observe import CellRow, ObservationRow
from veilcast.sim.links import LinkDelays
from veilcast.sim.mesh.population import TOPIC, MeshPopulation
from veilcast.sim.mesh.topic_roles import TopicRoles, addresses_with_role
from veilcast.sim.rng import derive_rng
from veilcast.sim.world import World
from veilcast.sim.wrappers import unwrap
from veilcast.topics import Label


def run(params: MeshWires, seed: int, data: Path | None = None, recorder: TableRecorder = NO_RECORDER) -> list[Measure]:
    capture, truth, delivered = observe(params, seed, recorder)
    guesses = attack_tables(capture.tables, params, (), data)
    record_tables(recorder, {"guesses": guesses})
    neighbours = _measure_neighbours(params, capture, truth)
    return [*measure_attackers(capture, truth, guesses), *neighbours, Measure("", "delivered", 0, delivered)]


def observe(params: MeshWires, seed: int, recorder: TableRecorder) -> tuple[WireCapture, CaptureRoles, float]:
    """What `take_capture` returns, and the tables of it recorded."""
    capture, truth, delivered = take_capture(params, seed)
    capture.record(recorder)
    truth.record(recorder, capture)
    return capture, truth, delivered


def attack_tables(
    observed: Mapping[str, AnyTable], params: MeshWires, names: Collection[str], _: Path | None
) -> AnyTable:
    """The guesses of these attackers; or of all, and of those that the parameters name."""
    if not names and params.attacks:
        names = dict.fromkeys((*(each.name for each in attackers_on(CaptureObservations)), *params.attacks))
    return guess_from_captures(observed, names or None, trained=_train(params))


def measure_guesses(
    guesses: pa.Table, truth: pa.Table, _: MeshWires, names: Collection[str], seed: int
) -> list[Measure]:
    """The measures of these guesses."""
    nodes = pc.unique(guesses["node"]).sort()

    def having(role: str) -> NDArray[np.bool_]:
        those = truth.filter(pc.equal(truth["role"], role))["node"].combine_chunks()
        return np.asarray(pc.is_in(nodes, those).to_numpy(zero_copy_only=False), np.bool_)

    return measure_capture_guesses(guesses, CaptureRoles(having("publisher"), having("subscriber")))


def take_capture(params: MeshWires, seed: int) -> tuple[WireCapture, CaptureRoles, float]:
    """A capture, its roles, and the share of pairs of a notification and a reader that were delivered."""
    people = _population(params)
    places = {address: place for place, address in enumerate(people.addresses())}
    wires, delivered = _Wires(places), _Delivered()
    world = World(seed=seed, links=_LINKS, recorder=wires, epoch_us=_EPOCH_US, on_event=delivered.take)
    people.populate(world, _LASTS_US)
    cast, rng = people.draw_roles(seed)[TOPIC], derive_rng(seed, "captured")
    published = sorted(rng.randrange(_FIRST_US, _LAST_US) for _ in range(params.publications))
    for number, at_us in enumerate(published):
        _publish(world, at_us, rng.choice(addresses_with_role(cast, "publisher")), number)
    world.run(_BEGINS_US)
    wires.rows.clear()
    world.run(_LASTS_US - _BEGINS_US)
    publishes, subscribes = (_mask(places, addresses_with_role(cast, role)) for role in ("publisher", "subscriber"))
    t_us, src, dst, size = np.array(wires.rows, dtype=np.int64).T
    capture = WireCapture(
        t_us=t_us,
        src=src.astype(np.int32),
        dst=dst.astype(np.int32),
        size=size,
        graph=from_edges(len(places), src, dst),
        subscriber_share=float(np.mean(subscribes)),
        published=world.start + np.array(published),
        heartbeat_us=people.mesh.heartbeat_us,
        epoch_us=_EPOCH_US,
    )
    pairs = params.publications * int(np.count_nonzero(subscribes))
    return capture, CaptureRoles(publishes, subscribes), delivered.notes / pairs


class CapturedMesh(MeshPopulation, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="captured"):
    """A mesh whose publishers are drawn from all nodes, as its readers are."""

    def _first_topic_roles(self, seed: int) -> TopicRoles:
        rng: Random = derive_rng(seed, "roles")
        drawn = rng.sample(self.addresses(), self.publishers + self._subscriber_count)
        publishers, readers = drawn[: self.publishers], drawn[self.publishers :]
        return dict.fromkeys(publishers, "publisher") | dict.fromkeys(readers, "subscriber")


class _Wires:
    """Records every cell of a world."""

    def __init__(self, places: dict[Address, int]) -> None:
        self._places = places
        self.rows: list[tuple[int, int, int, int]] = []

    def append(self, row: ObservationRow) -> None:
        if isinstance(row, CellRow):
            ends = self._places[Address(row.src)], self._places[Address(row.dst)]
            self.rows.append((row.t_us, *ends, row.size))


class _Delivered:
    def __init__(self) -> None:
        self.notes = 0

    def take(self, address: Address, event: Event, now: int) -> None:
        self.notes += isinstance(event, Delivered)


@lru_cache(maxsize=8)
def _train(params: MeshWires) -> TrainedCadence:
    return train_cadence(_examples(params))


@lru_cache(maxsize=2)
def _examples(params: MeshWires) -> list[tuple[WireCapture, CaptureRoles]]:
    return [take_capture(params, SEEDS_MAX + number)[:2] for number in range(_TRAINED_ON)]


def _measure_neighbours(params: MeshWires, capture: WireCapture, truth: CaptureRoles) -> list[Measure]:
    known, seen = [cadence_features(each) for each, _ in _examples(params)], cadence_features(capture)
    found = []
    for role in ROLES:
        masks = [roles.candidates(role) for _, roles in _examples(params)]
        examples = np.vstack([rows[asked] for rows, (asked, _) in zip(known, masks, strict=True)])
        having = np.concatenate([positive[asked] for asked, positive in masks])
        asked, positive = truth.candidates(role)
        error = nearest_neighbour_error(examples, having, seen[asked], positive[asked])
        found.append(Measure("", "nn_error" if role == "subscriber" else f"nn_error_{role}", 0, error))
    return found


def _population(params: MeshWires) -> CapturedMesh:
    return CapturedMesh(
        **captured_network.population_fields(params, _PAPER), publishers=params.publishers, whole=False, checks=()
    )


def _publish(world: World, at_us: int, publisher: Address, number: int) -> None:
    note = Publication((Label(TOPIC).pair,), b"note %3d" % number)

    def publish(machine: Machine, now: int) -> None:
        unwrap(machine).publish(note, now)

    world.after(at_us, lambda: world.call(publisher, publish))


def _mask(places: dict[Address, int], chosen: list[Address]) -> NDArray[np.bool_]:
    found = np.zeros(len(places), np.bool_)
    found[[places[address] for address in chosen]] = True
    return found


_SECOND_US: Final = 1_000_000
_EPOCH_US: Final = 6 * _SECOND_US
_BEGINS_US: Final = 2 * _SECOND_US
"""The observer starts when the network is complete."""
_FIRST_US: Final = 4 * _SECOND_US
_LAST_US: Final = 8 * _SECOND_US
"""Publications happen between these two times."""
_LASTS_US: Final = 9 * _SECOND_US
_LINKS: Final = LinkDelays(latency_us=(1_000, 20_000))
_PAPER: Final = MeshConfig(heartbeat_us=250_000, silent_periods=100, neighbours_max=32, address_bytes_max=8)
_TRAINED_ON: Final = 8
"""Number of captures to train on."""
