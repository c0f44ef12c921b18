"""How much does one node get done in a second of processor time: cells, and signed notes?

A node of the papers' mesh over links of cells, on a real socket, has 32 neighbours in another process, each with a
socket of its own. Time is made by them: with every round the clocks of all go on by one period, every neighbour sends
the cell that is due, and the node sends one to each. So nothing waits, and the node meets what a busy one would: many
datagrams at once. Counted is the processor time of the node's process for each cell received, opened,
handled and answered by another sealed; then for each note that was signed, checked and read, where sixteen neighbours
fill their cells with them. The floor, in the same run, is the bare socket and the bare cipher.

Where the time of a cell goes follows from what costs less by one thing each: a socket and a cipher, sessions alone
(headers, masks and replay windows beside the cipher), and the same node and neighbours without any socket. The rest is
the driver's and the event loop's, with what it costs to be woken on a machine that others use too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise, zip_longest
from multiprocessing.connection import Connection
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import one_link_node
from veilcast.authority.epoch import HOUR_US
from veilcast.link.config import LinkConfig
from veilcast.machine import Address, Delivered, Event, Frame, Publication, Record
from veilcast.mesh.config import MeshConfig
from veilcast.net.address import parse_address
from veilcast.net.clock import SystemClock
from veilcast.net.udp import UdpDriver
from veilcast.sim.engine import START_US
from veilcast.sim.host import Birth
from veilcast.sim.keyrings import make_keyring, make_topic_records
from veilcast.sim.mesh.owners import MeshNodeOwner
from veilcast.sim.mesh.population import address_prefix
from veilcast.sim.wrappers import unwrap
from veilcast.topics import Label
from veilcast.wire.geometry import CELL


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    as_json = parser.parse_args().json
    found: dict[str, Any] = {**asyncio.run(measure()), "load": os.getloadavg()[0]}
    found["parts"] = parts = floor()
    found["floor"] = bare = 1e6 / sum(parts.values())
    parts |= inside(parts)
    parts["driver, event loop and waking"] = 1e6 / found["cells"] - sum(parts.values())
    if as_json:
        print(json.dumps(found, indent=2))
        return
    print(f"{'a second of processor time':<44}{'each':>10}{'of the floor':>14}")
    for name, rate in (("cells, bare socket and cipher", bare), ("cells, by a node", found["cells"])):
        print(f"  {name:<36}{rate:>12,.0f}{1e6 / rate:>7.1f} us{rate / bare:>10.2f}")
    print(f"  {'signed notes read, in those cells':<36}{found['notes']:>12,.0f}{1e6 / found['notes']:>7.1f} us")
    print("where the time of a cell goes")
    for name, us in parts.items():
        print(f"  {name:<36}{us:>19.1f} us{us * found['cells'] / 1e6:>10.0%}")
    print(f"load of this machine {found['load']:.1f}")


class RoundClock(SystemClock):
    """Goes on with what arrives: a period for every round of datagrams."""

    __slots__ = ("received",)

    def __init__(self) -> None:
        super().__init__()
        self.received: Callable[[], int] = lambda: 0

    def now(self) -> int:
        return START_US + self.received() * PERIOD_US // NEIGHBOURS

    def loop_time(self, at_us: int) -> float:
        """At once if it is due, and soon if it is not: how soon it will be depends on the others."""
        return time.monotonic() + (0 if at_us <= self.now() else 0.001)


async def measure() -> dict[str, float]:
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.Process(target=around, args=(theirs,), daemon=True)
    child.start()
    theirs.close()
    clock, over = RoundClock(), asyncio.Event()
    machine: Any = machine_of(NODE, dict.fromkeys(TOPICS, "subscriber"), PEERS, NEIGHBOURS)
    read = 0

    def act_on(event: Event) -> None:
        nonlocal read
        if isinstance(event, Delivered):
            read += 1
            machine.inner.acknowledge(event.note.id, driver.now())

    driver = UdpDriver(machine, [NODE], act_on, clock)
    clock.received = lambda: driver.counts.received
    driver.open()
    loop = asyncio.get_running_loop()
    loop.add_reader(ours.fileno(), lambda: over.set() if ours.recv() else None)

    async def rounds(count: int, notes: int) -> tuple[int, int, float]:
        before, had, spent = (driver.counts.received, driver.counts.sent), read, time.process_time()
        over.clear()
        ours.send((count, notes))
        await over.wait()
        spent = time.process_time() - spent
        cells = min(driver.counts.received - before[0], driver.counts.sent - before[1])
        return cells, read - had, spent

    await rounds(WARM_UP, 0)
    check(len(machine.peers()) == NEIGHBOURS)
    cells = notes = 0.0
    for _ in range(TURNS):
        count, _, spent = await rounds(ROUNDS, 0)
        check(count > 0.98 * ROUNDS * NEIGHBOURS)
        cells = max(cells, count / spent)
        _, count, spent = await rounds(ROUNDS // 4, NOTES)
        check(count > 0.9 * ROUNDS // 4 * NOTES * len(TOPICS))
        notes = max(notes, count / spent)
        await rounds(DRAIN, 0)
    loop.remove_reader(ours.fileno())
    ours.send(None)
    child.join()
    driver.close()
    check(not machine.inner.refused)
    return {"cells": cells, "notes": notes}


def around(orders: Connection) -> None:
    """The other process: the neighbours. Run this number of rounds, each with a number of notes of each publisher.

    All cells of a round leave at once: if each left when it was made, chance would say how often the node is woken. It
    looks for answers now and then: if it waited for them, the node would pay for waking it with each.
    """
    target, now = parse_address(NODE)[1], START_US
    topics: list[str | None] = [*TOPICS, *[None] * (NEIGHBOURS - len(TOPICS))]
    machines = machines_around()
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in PEERS]
    for bound, peer in zip(sockets, PEERS, strict=True):
        bound.setblocking(False)
        bound.bind(parse_address(peer)[1])
    while (order := orders.recv()) is not None:
        rounds, notes = order
        for _ in range(rounds):
            now += PERIOD_US
            cells: list[tuple[socket.socket, bytes]] = []
            for topic, bound, machine in zip(topics, sockets, machines, strict=True):
                for _ in range(notes if topic else 0):
                    unwrap(machine).publish(Publication((Label(topic or "").pair,), b"x" * 100), now)
                cells += [(bound, frame.data) for frame in step(machine, now)]
            for bound, cell in cells:
                bound.sendto(cell, target)
            answers = 0
            for _ in range(PATIENCE):
                time.sleep(0.001)
                for bound, machine in zip(sockets, machines, strict=True):
                    with suppress(BlockingIOError):
                        while True:
                            machine.receive(bound.recv(2048), NODE, now)
                            answers += 1
                if answers >= NEIGHBOURS:
                    break
        orders.send("done")


def machines_around() -> list[Any]:
    """Frames of all neighbours, in their order."""
    return [
        machine_of(peer, {topic: "publisher"} if topic else {}, [NODE], number)
        for number, (peer, topic) in enumerate(zip_longest(PEERS, TOPICS))
    ]


def step(machine: Any, now: int) -> list[Frame]:
    """The work of a driver when a timer is due, with a quick disk."""
    frames: list[Frame] = []
    while (due_us := machine.next_timer()) is not None and due_us <= now:
        machine.handle_timer(now)
        frames += machine.frames_to_send(now, 64)
    while (event := machine.next_event()) is not None:
        if isinstance(event, Record):
            machine.stored(event.record, now)
    frames += machine.frames_to_send(now, 64)
    return frames


def machine_of(address: Address, roles: dict[str, str], neighbours: list[Address], number: int) -> Any:
    keyring = make_keyring(make_topic_records(TOPICS, 0.0, "paper"), HOUR_US, tuple(roles.items()), number)
    owner = MeshNodeOwner(MESH, keyring, roles, neighbours, address_prefix, link=LinkConfig("cells", RATE))
    machine: Any = owner.start(Birth(address, 0, START_US, {}, SEED))
    machine._sway = None  # Cells leave on their slots, so that each round has one for every neighbour.
    return machine


def floor() -> dict[str, float]:
    """A bare loop, in microseconds for each part: a datagram received, opened, sealed and sent."""
    cipher, nonce = AESGCM(os.urandom(32)), bytes(12)
    best = dict.fromkeys(("socket, to receive", "cipher, to open", "cipher, to seal", "socket, to send"), 1e6)
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as left,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as right,
    ):
        left.bind(("127.0.0.1", 0))
        right.bind(("127.0.0.1", 0))
        sealed = cipher.encrypt(nonce, os.urandom(CELL - 16), None)
        there = right.getsockname()
        for _ in range(TURNS):
            spent = dict.fromkeys(best, 0.0)
            for _ in range(ROUNDS):
                for _ in range(NEIGHBOURS):
                    left.sendto(sealed, there)
                times = [time.process_time()]
                received = [right.recvfrom(2048) for _ in range(NEIGHBOURS)]
                times.append(time.process_time())
                opened = [(cipher.decrypt(nonce, data, None), source) for data, source in received]
                times.append(time.process_time())
                again = [(cipher.encrypt(nonce, plain, None), source) for plain, source in opened]
                times.append(time.process_time())
                for data, source in again:
                    right.sendto(data, source)
                times.append(time.process_time())
                for part, (begun, ended) in zip(spent, pairwise(times), strict=True):
                    spent[part] += (ended - begun) / (ROUNDS * NEIGHBOURS) * 1e6
                for _ in range(NEIGHBOURS):
                    check(left.recv(2048) == sealed)
            best = {part: min(best[part], us) for part, us in spent.items()}
    return best


def inside(bare: dict[str, float]) -> dict[str, float]:
    """The cost of a cell for the node, without sockets and ciphers, in microseconds, at its best over a heartbeat."""
    node = machine_of(NODE, dict.fromkeys(TOPICS, "subscriber"), PEERS, NEIGHBOURS)
    others, now = dict(zip(PEERS, machines_around(), strict=True)), START_US
    taking, making = [0.0], [0.0]
    for number in range(WARM_UP + ROUNDS):
        now += PERIOD_US
        cells = [(frame.data, peer) for peer, machine in others.items() for frame in step(machine, now)]
        begun = time.process_time()
        for cell, peer in cells:
            node.receive(cell, peer, now)
        taken = time.process_time()
        frames = step(node, now)
        taking[-1] += taken - begun
        making[-1] += time.process_time() - taken
        for frame in frames:
            others[frame.destination].receive(frame.data, NODE, now)
        if number % RATE == RATE - 1:
            taking.append(0.0)
            making.append(0.0)
    check(len(node.peers()) == NEIGHBOURS)
    first = WARM_UP // RATE
    take, make = (min(spent[first:-1]) / (RATE * NEIGHBOURS) * 1e6 for spent in (taking, making))
    session = one_link_node.bare()["us a cell"]
    ciphers = bare["cipher, to open"] + bare["cipher, to seal"]
    return {
        "headers, masks, replay windows": session - ciphers,
        "link and mesh, to take and to make": take + make - session,
    }


def check(right: bool) -> None:
    if not right:
        raise SystemExit("a result is wrong")


SEED = 1
RATE = 16
PERIOD_US = 1_000_000 // RATE
NEIGHBOURS = 32
NOTES = 3
NODE = Address("127.9.0.1:4083")
PEERS = [Address(f"127.9.{number + 1}.1:4083") for number in range(NEIGHBOURS)]
TOPICS = tuple(f"topic {number}" for number in range(16))
"""The first neighbours publish, each on its own."""
MESH = MeshConfig(neighbours_max=NEIGHBOURS, silent_periods=60)
"""Patient, for heartbeats wait behind notes that fill all cells."""
WARM_UP = 20 * RATE
ROUNDS = 300
DRAIN = 4 * RATE
TURNS = 4
PATIENCE = 50
"""Milliseconds for which a round waits for all answers."""

if __name__ == "__main__":
    main()
