"""A day of traffic on a loopback network: every node in its own process, and all datagrams that they send.

In a single process the work of each node would delay the cells of all, and an observer would see the load of the
machine instead of that of the nodes. Processes agree on when the day began, and on nothing else. The duration of a day
is known. If a process is silent for much longer, it is killed with all others.

A day has phases of a second each. In random order nothing happens, a publisher publishes, or links change their keys.
The edges of epochs lie in between, each with the joins to the meshes of the next epoch, at their own times. A pause
after each phase lets its effects end.
"""

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
    """Since the start of the network."""


class PhaseTarget(Protocol):
    """The common interface of a simulated world and a loopback network."""

    def after(self, delay_us: int, act: Callable[[], None]) -> None: ...

    def call(self, address: Address, act: Callable[[Any, int], None]) -> None: ...

    def machine(self, address: Address) -> Any: ...


def plan_phases(count: int, rng: Random) -> list[Phase]:
    """Plan `count` phases after the warm-up: every fourth is an edge, and half of the others are idle."""
    others = [("idle", "idle", "publishing", "rekeying")[number % 4] for number in range(count - count // EDGE_EVERY)]
    rng.shuffle(others)
    kinds = ["edge" if number % EDGE_EVERY == 0 else others.pop() for number in range(count)]
    return [Phase(kind, WARM_UP_US - BEFORE_EDGE_US + number * SLOT_US) for number, kind in enumerate(kinds)]


def publication_times(phases: list[Phase]) -> list[int]:
    """Times of publications, since the start of the network."""
    busy = [phase.start_us for phase in phases if phase.kind == "publishing"]
    return [start_us + number * PHASE_US // NOTES_PER_PHASE for start_us in busy for number in range(NOTES_PER_PHASE)]


def schedule_phases(
    phases: list[Phase], place: PhaseTarget, publisher: Address, nodes: tuple[Address, ...], rng: Random
) -> int:
    """Schedule the events of the phases. Returns the number of publications. Edges and their joins happen by
    themselves."""
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
    """Let the keys of one link reach their maximum age at once. If it is the node's turn to renew them, it does."""
    while not hasattr(machine, "_links"):
        if machine is None:
            return  # It runs in another process.
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
"""The phase of an edge begins this long before it, just before the next meshes begin to form."""
NOTES_PER_PHASE = 12
"""Publications in each phase of publishing."""
PHASE_MESH = MeshConfig(
    "hardened",
    heartbeat_us=150_000,
    silent_periods=100,
    hardening=HardeningConfig(window_periods=4, lead_periods=5, grace_periods=8, bit_periods=1, uptime_periods=4),
)
assert START_US % EPOCH_US == 0


class TrafficDay(NamedTuple):
    """All cells, in the order of time. Nodes are numbers, in the order of their addresses."""

    phases: list[Phase]
    t_us: NDArray[np.int64]
    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    size: NDArray[np.int64]
    delivered: float
    """The share of pairs of a notification and a reader that were delivered."""


def run_day(population: LoopbackPopulation, seed: int, phases: int) -> TrafficDay:
    """Run these phases in real time, on real sockets. Only one day can run at a time: all networks have the same
    addresses."""
    planned = plan_phases(phases, derive_rng(seed, "phases"))
    # Keys are made here once, and forked processes keep them.
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
        answered = [_answer(answer, began_ns + (_lasts_us(planned) + _PATIENCE_US) * 1000) for answer in answers]
    finally:
        for node in nodes:
            node.kill()
            node.join()
    pairs = max(1, len(publication_times(planned)) * len(population.roles(seed)[1]))
    return TrafficDay(
        planned, *_cells(population, [seen for seen, _ in answered]), sum(got for _, got in answered) / pairs
    )


def _live(
    population: LoopbackPopulation, seed: int, phases: list[Phase], address: Address, began_ns: int, answer: Connection
) -> None:
    """One process: what its node sent, and the number of notifications that it received."""
    lasts_us = _lasts_us(phases)
    tally = DeliveryStats(population, seed)
    wires: list[WireRecorder] = []
    network: LoopbackNetwork

    def around(machine: Machine, _: Address) -> Machine:
        wires.append(WireRecorder(machine, lambda: network.now))
        return wires[-1]

    network = LoopbackNetwork(
        seed=seed, epoch_us=EPOCH_US, began_ns=began_ns, here=[address], around=around, on_event=tally.record_event
    )
    network.settle(population, lasts_us)
    generations.EARLIEST_US = 0  # type: ignore[misc]  # Or peers would refuse keys that are renewed so often.
    schedule_phases(
        phases, network, population.roles(seed)[0], population.addresses(), derive_rng(seed, "day", address)
    )
    asyncio.run(network.run(lasts_us))
    answer.send((wires[0].sent, tally.delivered))


def _answer(answer: Connection, until_ns: int) -> tuple[SentDatagrams, int]:
    try:
        if answer.poll(max(0, until_ns - time.monotonic_ns()) / 1e9):
            answered: tuple[SentDatagrams, int] = answer.recv()
            return answered
    except EOFError:
        raise LocalError("a node of the network ended before its day did") from None
    raise LocalError("a node of the network did not reach the end of its day; is the machine too busy?")


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
