"""A day of a town, seen from outside: every node in a process of its own, and all that they sent.

In one process for all, the work of each node would delay the cells of all, and an observer would see that of the
machine and not of the nodes. Processes agree on when the day began, and on nothing else. How long it takes is known
before; a process that has said nothing for much longer is given up, with all others.


What happens to a town in a day: phases of a second each.

In random order nothing happens, a publisher publishes, or links change their keys; in between come the edges of epochs,
each with the joins to the meshes of the next, at their own times. A pause after each phase lets what it began end."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from random import Random
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import LocalError
from veilcast.lab.runs.mesh.loopback_network import (
    DeliveryStats,
    LoopbackNetwork,
    LoopbackPopulation,
    SentDatagrams,
    WireRecorder,
)
from veilcast.link import generations
from veilcast.machine import Address, Machine, Publication
from veilcast.mesh.config import HardeningConfig, MeshConfig
from veilcast.sim.engine import START_US
from veilcast.sim.mesh.population import TOPIC
from veilcast.sim.rng import derive_rng
from veilcast.sim.wrappers import unwrap
from veilcast.topics import Label


class Phase(NamedTuple):
    kind: str
    start_us: int
    """From the beginning of the town."""


class PhaseTarget(Protocol):
    """What a world and a town have in common."""

    def after(self, delay_us: int, act: Callable[[], None]) -> None: ...

    def call(self, address: Address, act: Callable[[Any, int], None]) -> None: ...

    def machine(self, address: Address) -> Any: ...


def plan_phases(count: int, rng: Random) -> list[Phase]:
    """So many phases after the warm-up: every fourth an edge, half of the others idle."""
    others = [("idle", "idle", "publishing", "rekeying")[number % 4] for number in range(count - count // EDGE_EVERY)]
    rng.shuffle(others)
    kinds = ["edge" if number % EDGE_EVERY == 0 else others.pop() for number in range(count)]
    return [Phase(kind, WARM_UP_US - BEFORE_EDGE_US + number * SLOT_US) for number, kind in enumerate(kinds)]


def publication_times(phases: list[Phase]) -> list[int]:
    """When notes are published, from the beginning of the town."""
    busy = [phase.start_us for phase in phases if phase.kind == "publishing"]
    return [start_us + number * PHASE_US // NOTES_PER_PHASE for start_us in busy for number in range(NOTES_PER_PHASE)]


def schedule_phases(
    phases: list[Phase], place: PhaseTarget, publisher: Address, nodes: tuple[Address, ...], rng: Random
) -> int:
    """Have it happen; how many notes are published. Edges and their joins need nobody."""
    published = publication_times(phases)
    for number, at_us in enumerate(published):
        place.after(at_us, lambda body=b"note %d" % number: place.call(publisher, _publishing(body)))  # type: ignore[misc]
    for phase in phases:
        if phase.kind == "rekeying":
            for node in nodes:
                at_us = phase.start_us + rng.randrange(PHASE_US * 9 // 10)
                place.after(at_us, lambda node=node: _rekey(place.machine(node), rng))  # type: ignore[misc]
    return len(published)


def _publishing(body: bytes) -> Callable[[Any, int], None]:
    publication = Publication((Label(TOPIC).pair,), body)

    def publish(machine: Any, now: int) -> None:
        unwrap(machine).publish(publication, now)

    return publish


def _rekey(machine: Any, rng: Random) -> None:
    """The keys of one link are as old as keys may get, all at once; if it is the node's turn to renew them, it does."""
    while not hasattr(machine, "_links"):
        if machine is None:
            return  # It lives elsewhere.
        machine = machine.inner
    lines = [link.channel for link in machine._links.values() if link.channel is not None]
    if lines:
        keys = rng.choice(lines).generations
        keys.due_us = keys.session.rekey_us = keys.session.born_us


SECOND_US = 1_000_000
PHASE_US = SECOND_US
SLOT_US = 1_500_000
EDGE_EVERY = 4
EPOCH_US = EDGE_EVERY * SLOT_US
WARM_UP_US = 2 * EPOCH_US
BEFORE_EDGE_US = 800_000
"""An edge's phase begins so long before it, just before the next meshes begin to form."""
NOTES_PER_PHASE = 12
"""In each phase of publishing."""
PHASE_MESH = MeshConfig(
    "hardened",
    heartbeat_us=150_000,
    silent_periods=100,
    hardening=HardeningConfig(window_periods=4, lead_periods=5, grace_periods=8, bit_periods=1, uptime_periods=4),
)
assert START_US % EPOCH_US == 0


class TrafficDay(NamedTuple):
    """All cells, in the order of time; nodes are numbers, in the order of their addresses."""

    phases: list[Phase]
    t_us: NDArray[np.int64]
    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    size: NDArray[np.int64]
    delivered: float
    """The share of notes and readers that came together."""


def run_day(population: LoopbackPopulation, seed: int, phases: int) -> TrafficDay:
    """So many phases in real time, on real sockets. One at a time: all towns have the same addresses."""
    planned = plan_phases(phases, derive_rng(seed, "phases"))
    # Keys are made here, once, for they are kept by whoever is forked.
    LoopbackNetwork(seed=seed, epoch_us=EPOCH_US, here=[]).settle(population, 0)
    context = multiprocessing.get_context("fork")
    began_ns = time.monotonic_ns()
    nodes, answers = [], []
    for address in population.addresses():
        ours, theirs = context.Pipe()
        arguments = (population, seed, planned, address, began_ns, theirs)
        nodes.append(context.Process(target=_live, args=arguments, daemon=True))
        nodes[-1].start()
        theirs.close()
        answers.append(ours)
    try:
        told = [_answer(answer, began_ns + (_lasts_us(planned) + _PATIENCE_US) * 1000) for answer in answers]
    finally:
        for node in nodes:
            node.kill()
            node.join()
    pairs = max(1, len(publication_times(planned)) * len(population.roles(seed)[1]))
    return TrafficDay(planned, *_cells(population, [seen for seen, _ in told]), sum(got for _, got in told) / pairs)


def _live(
    population: LoopbackPopulation, seed: int, phases: list[Phase], address: Address, began_ns: int, answer: Connection
) -> None:
    """A process: what its node sent, and how many notes it got."""
    lasts_us = _lasts_us(phases)
    tally = DeliveryStats(population, seed)
    wires: list[WireRecorder] = []
    town: LoopbackNetwork

    def around(machine: Machine, _: Address) -> Machine:
        wires.append(WireRecorder(machine, lambda: town.now))
        return wires[-1]

    town = LoopbackNetwork(
        seed=seed, epoch_us=EPOCH_US, began_ns=began_ns, here=[address], around=around, on_event=tally.record_event
    )
    town.settle(population, lasts_us)
    generations.EARLIEST_US = 0  # type: ignore[misc]  # Or peers would refuse keys that are renewed so often.
    schedule_phases(phases, town, population.roles(seed)[0], population.addresses(), derive_rng(seed, "day", address))
    asyncio.run(town.run(lasts_us))
    answer.send((wires[0].sent, tally.delivered))


def _answer(answer: Connection, until_ns: int) -> tuple[SentDatagrams, int]:
    try:
        if answer.poll(max(0, until_ns - time.monotonic_ns()) / 1e9):
            told: tuple[SentDatagrams, int] = answer.recv()
            return told
    except EOFError:
        raise LocalError("a node of the town ended before its day did") from None
    raise LocalError("a node of the town did not come to the end of its day; is the machine too busy?")


def _cells(
    population: LoopbackPopulation, wires: list[SentDatagrams]
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
    places = {address: place for place, address in enumerate(population.addresses())}
    parts = [
        (np.frombuffer(times, np.int64), place, places[peer], np.frombuffer(sizes, np.int32))
        for place, seen in enumerate(wires)
        for peer, (times, sizes) in seen.items()
    ]
    many = [len(times) for times, _, _, _ in parts]
    t_us, size = (np.concatenate([part[at] for part in parts]).astype(np.int64) for at in (0, 3))
    src, dst = (np.repeat(np.array([part[at] for part in parts], np.int32), many) for at in (1, 2))
    order = np.argsort(t_us, kind="stable")
    return t_us[order], src[order], dst[order], size[order]


def _lasts_us(phases: list[Phase]) -> int:
    return phases[-1].start_us + SLOT_US + SECOND_US


_PATIENCE_US: Final = 60 * SECOND_US
