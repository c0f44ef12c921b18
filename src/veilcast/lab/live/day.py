"""A day of a town, seen from outside: every node in a process of its own, and all that they sent.

In one process for all, the work of each node would delay the cells of all, and an observer would see that of the
machine and not of the nodes. Processes agree on when the day began, and on nothing else. How long it takes is known
before; a process that has said nothing for much longer is given up, with all others.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from multiprocessing.connection import Connection
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import LocalError
from veilcast.lab.live.phases import EPOCH_US, SECOND_US, SLOT_US, Phase, enact, notes, plan
from veilcast.lab.live.tally import Tally
from veilcast.lab.live.town import Town, TownMesh
from veilcast.lab.live.wire import Sightings, Wire
from veilcast.link import generations
from veilcast.machine import Address, Machine
from veilcast.sim.chance import generator


class Day(NamedTuple):
    """All cells, in the order of time; nodes are numbers, in the order of their addresses."""

    phases: list[Phase]
    t_us: NDArray[np.int64]
    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    size: NDArray[np.int64]
    delivered: float
    """The share of notes and readers that came together."""


def day(population: TownMesh, seed: int, phases: int) -> Day:
    """So many phases in real time, on real sockets. One at a time: all towns have the same addresses."""
    planned = plan(phases, generator(seed, "phases"))
    # Keys are made here, once, for they are kept by whoever is forked.
    Town(seed=seed, epoch_us=EPOCH_US, here=[]).settle(population, 0)
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
    pairs = max(1, len(notes(planned)) * len(population.roles(seed)[1]))
    return Day(planned, *_cells(population, [seen for seen, _ in told]), sum(got for _, got in told) / pairs)


def _live(
    population: TownMesh, seed: int, phases: list[Phase], address: Address, began_ns: int, answer: Connection
) -> None:
    """A process: what its node sent, and how many notes it got."""
    lasts_us = _lasts_us(phases)
    tally = Tally(population, seed)
    wires: list[Wire] = []
    town: Town

    def around(machine: Machine, _: Address) -> Machine:
        wires.append(Wire(machine, lambda: town.now))
        return wires[-1]

    town = Town(seed=seed, epoch_us=EPOCH_US, began_ns=began_ns, here=[address], around=around, on_event=tally.take)
    town.settle(population, lasts_us)
    generations.EARLIEST_US = 0  # type: ignore[misc]  # Or peers would refuse keys that are renewed so often.
    enact(phases, town, population.roles(seed)[0], population.addresses(), generator(seed, "day", address))
    asyncio.run(town.run(lasts_us))
    answer.send((wires[0].seen, tally.delivered))


def _answer(answer: Connection, until_ns: int) -> tuple[Sightings, int]:
    try:
        if answer.poll(max(0, until_ns - time.monotonic_ns()) / 1e9):
            told: tuple[Sightings, int] = answer.recv()
            return told
    except EOFError:
        raise LocalError("a node of the town ended before its day did") from None
    raise LocalError("a node of the town did not come to the end of its day; is the machine too busy?")


def _cells(
    population: TownMesh, wires: list[Sightings]
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
