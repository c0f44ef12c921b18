"""Runs over epochs on the real machines: what a note costs in a mesh that is laid anew in each, hardened or not.

Who is an insider and who is away when is what the kernels drew (`kernels.epochs`); in every epoch one note is
published when the mesh stands. The paper's mesh is a new town in each epoch, of those who are there: new adverts, new
subscriptions, nothing kept. The hardened mesh lives in one town over all epochs, since it keeps much: its root, whose
turn it is to cover, parents, relays for an epoch longer. There those who are to be away in the next epoch stop, and
those who come back start anew, after the next root was called for and before its mesh begins to form.

Hops are counted by the clock: every link takes the same time, and a note waits nowhere. Bytes are those of a cell for
each message. What differs from the kernels:
the root is whom the machines elect, in an epoch before the first in which everybody is there; so relays stay from the
first epoch on. A publisher whose successor is away publishes nothing in that epoch, as it could not send it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from veilcast.authority.epoch import epoch_of
from veilcast.errors import ConfigError
from veilcast.lab.experiment.mesh_params import MeshEpochs
from veilcast.lab.experiment.params import Measure
from veilcast.lab.measure.delivery_cost import delivery_cost
from veilcast.lab.models.coalition_view import CoalitionView
from veilcast.lab.models.epochs import Epoch, MeshPolicy, Population, run_epochs
from veilcast.lab.models.rng import stream
from veilcast.lab.runs.mesh.attack_suite import AttackSuite
from veilcast.lab.runs.mesh.epoch_setup import average_epochs, make_policy, settle_people
from veilcast.lab.runs.mesh.insider_tap import InsiderTap, build_view
from veilcast.lab.runs.mesh.mesh_simulation import FAST_HARDENING, MeshSimulation, node_address, node_number
from veilcast.machine import Address, Delivered, Event
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.sticky_choices import StickyChoices
from veilcast.sim.keyrings import KEYRING_EPOCHS
from veilcast.sim.mesh.population import TOPIC
from veilcast.wire.geometry import CELL, NEIGHBOURS_MAX
from veilcast.wire.mesh import Notify, Stem, StemReceipt


def run(params: MeshEpochs, seed: int, data: Path | None = None) -> list[Measure]:
    if params.cover != "none" or params.games or params.origin != "kept":
        raise ConfigError("over epochs the machines run the baseline or a hardened mesh")
    if params.departures or params.hold or params.relay_epochs or not params.steady:
        raise ConfigError("over epochs the machines' publishers are always there, and their notes do not wait")
    if params.attacks and (not params.kappa or set(params.attacks) - set(_OVERHEARD)):
        raise ConfigError(f"the machines show a hardened mesh to insiders: {', '.join(_OVERHEARD)}")
    if params.steps[-1] > KEYRING_EPOCHS - 2:
        raise ConfigError(f"the machines' keys hold for {KEYRING_EPOCHS - 2} epochs, not for {params.steps[-1]:g}")
    people = settle_people(params, seed, data)
    drawn = list(run_epochs(people, MeshPolicy(), int(params.steps[-1])))
    found: list[Measure] = []
    before: list[dict[str, float]] = []
    coalition = RecordedCoalition(people) if params.attacks else None
    for facts in _hardened(people, drawn, params.kappa, coalition) if params.kappa else _papers(people, drawn):
        before.append(facts)
        if len(before) in params.steps:
            found += average_epochs(before, len(before))
    if coalition is not None:
        suite = AttackSuite(params, people, make_policy(params), data, coalition.build_view())
        for epoch in drawn:
            suite.see(epoch, None)
            found += suite.measures() if epoch.number + 1 in params.steps else ()
    return found


class RecordedCoalition:
    """Insiders of a town, and what they know of each of its epochs."""

    def __init__(self, people: Population) -> None:
        self._people = people
        self.tap = InsiderTap(
            map(node_address, np.flatnonzero(people.insiders).tolist()), HARDENED_MESH.heartbeat_bytes
        )
        self._present: list[NDArray[np.bool_]] = []
        self._origin: list[int] = []

    def learn_tokens(self, town: MeshSimulation, count: int) -> None:
        """They hold the topic's key, and so know its names."""
        first = epoch_of(town.world.now, EPOCH_US) + 1
        self.tap.epoch_of_token |= {
            town.keyring.keys_at(first + number).topic(TOPIC).token: number for number in range(count)
        }

    def observe_epoch(self, present: NDArray[np.bool_], roots: list[int]) -> None:
        """When the mesh of an epoch stands: everybody knows who is there, and who is the root. Where there is none the
        last one counts, and before the first one of their own: nobody tells them more."""
        self._present.append(present)
        self._origin += roots[:1] or self._origin[-1:] or [int(np.argmax(self._people.insiders))]

    def build_view(self) -> CoalitionView:
        places = {node_address(number): number for number in range(self._people.graph.nodes)}
        origin = np.array(self._origin, np.int32)
        return build_view(self.tap.rows, self._people, places, np.array(self._present), origin)


def _papers(people: Population, drawn: list[Epoch]) -> Iterator[dict[str, float]]:
    config = MeshConfig(heartbeat_us=PERIOD_US, neighbours_max=NEIGHBOURS_MAX, address_bytes_max=8)
    for epoch in drawn:
        watch = _Watch()
        here = (epoch.graph, people.publisher, people.subscribers)
        seed = int(stream(people.seed, "town", epoch.number)[0])
        town = MeshSimulation(here, config, seed, latency_us=(HOP_US,), on_event=watch)
        town.run(_FORMING)
        yield _published(town, watch, epoch.present)


def _hardened(
    people: Population, drawn: list[Epoch], kappa: float, coalition: RecordedCoalition | None
) -> Iterator[dict[str, float]]:
    insider = msgspec.structs.replace(HARDENED_MESH, hardening=_INSIDER)
    outfits = {int(node): insider for node in people.insiders.nonzero()[0]}
    watch = _Watch()
    here = (people.graph, people.publisher, people.subscribers)
    town = MeshSimulation(
        here,
        HARDENED_MESH,
        people.seed,
        latency_us=(HOP_US,),
        epoch_us=EPOCH_US,
        kappa=kappa,
        outfits=outfits,
        on_event=watch,
        checkers=() if coalition is None else (coalition.tap,),
    )
    if coalition is not None:
        coalition.learn_tokens(town, len(drawn))
    successor = _successor(town)
    for number, epoch in enumerate(drawn):
        _run_until(town, number * _EPOCH + _CALLED)
        present = _leave_and_return(town, epoch.present)
        _run_until(town, (number + 1) * _EPOCH + 1)
        if coalition is not None:
            coalition.observe_epoch(present, _roots(town))
        if successor is None or present[successor]:
            yield {"waits": 0.0} | _published(town, watch, present)
        else:
            size = len(town.members())
            yield {"waits": 1.0, "overlay": float(size), "notes": float(size - 1)}


def _published(town: MeshSimulation, watch: _Watch, present: NDArray[np.bool_]) -> dict[str, float]:
    """What the next note costs: messages by kind, hops, and the share of readers who are there that get it."""
    before, since_us = town.count_sent(), town.world.now
    town.publish(watch.next())
    town.run(_THROUGH)
    sent = town.count_sent()
    notes, stem, answers = (float(sent[kind.__name__] - before[kind.__name__]) for kind in (Notify, Stem, StemReceipt))
    there = int(np.count_nonzero(present[town.subscribers]))
    messages, delivered = notes + stem + answers, len(watch.delivered)
    facts = {
        "overlay": float(len(town.members())),
        "notes": notes,
        "messages": messages,
        "reached": delivered / max(1, there),
    }
    if stem:
        facts["stem"] = stem
    if watch.delivered:
        facts["hops"] = mean(at_us - since_us for at_us in watch.delivered.values()) / HOP_US
        facts |= delivery_cost(messages, CELL, delivered, facts["hops"], HOP_US / 1e6)
    return facts


def _leave_and_return(town: MeshSimulation, drawn: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Who is to be away stops, but for the root, and who is back begins anew; gives who is there from now on."""
    present = drawn.copy()
    present[_roots(town)] = True
    for number, is_there in enumerate(present):
        if is_there:
            town.world.restart(node_address(number))
        else:
            town.world.crash(node_address(number))
    return present


def _roots(town: MeshSimulation) -> list[int]:
    token = town.token
    return [number for number, node in town.nodes() if node.overlay.originates(token)]


def _successor(town: MeshSimulation) -> int | None:
    """To whom the publisher's notes go first, and while that one is away nowhere."""
    known = [node_address(int(near)).encode() for near in town.graph.neighbours(town.publisher)]
    first = StickyChoices(town.keyring.membership.link).choose_first_relay(known)
    return None if first is None else node_number(Address(first.decode()))


def _run_until(town: MeshSimulation, period: int) -> None:
    town.world.run(town.world.start + period * PERIOD_US - town.world.now)


class _Watch:
    """Who was given the last note, and when; those before may still be under way."""

    def __init__(self) -> None:
        self.delivered: dict[Address, int] = {}
        self._number = 0

    def next(self) -> bytes:
        """What the next one says."""
        self.delivered = {}
        self._number += 1
        return b"note %d" % self._number

    def __call__(self, name: Address, event: Event, now: int) -> None:
        if isinstance(event, Delivered) and event.note.publication.body == b"note %d" % self._number:
            self.delivered.setdefault(name, now)


PERIOD_US: Final = 1_000_000
"""A heartbeat."""
HOP_US: Final = 10_000
_HASTY: Final = msgspec.structs.replace(FAST_HARDENING, lead_periods=24, grace_periods=4)
"""Epochs as short as they can be."""
_INSIDER: Final = msgspec.structs.replace(_HASTY, covers=False, volunteer=False)
"""Insiders neither cover nor stand for election, as in the kernels."""
HARDENED_MESH: Final = MeshConfig(
    profile="hardened",
    heartbeat_us=PERIOD_US,
    neighbours_max=NEIGHBOURS_MAX,
    address_bytes_max=8,
    hardening=_HASTY,
)
_OVERHEARD: Final = ("group-testing", "linear", "binned", "predecessor", "presence", "sender")
_EPOCH: Final = 4 * _HASTY.lead_periods
EPOCH_US: Final = _EPOCH * PERIOD_US
_CALLED: Final = 2 * _HASTY.lead_periods + 2
"""Heartbeats of an epoch after which the root of the next one was called for."""
_FORMING: Final = 25
"""Heartbeats after which the paper's mesh stands."""
_THROUGH: Final = 3
"""Heartbeats after which a note has arrived wherever it goes."""
