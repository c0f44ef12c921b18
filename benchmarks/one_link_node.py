"""What does one node with links do in a second of its processor: cells received, opened, handled and sealed again?

A node among sixteen peers, without sockets. First the simulator runs them all, and every call of a driver to the one is
written down; then the same node is made again and played the same calls, alone, and that is timed. It must answer with
the same bytes. All keep the same rate, so the cells that come are as many as those that leave. Its peers have nothing
to say (padding), exchange heartbeats as a mesh does, or send notes, signed and sealed, that the node verifies and
passes on. Beside it the least that any such node must do: open a cell and seal another, header masks included.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import time
from functools import partial
from typing import Any

from veilcast.authority.epoch import epoch_of
from veilcast.link.config import LinkConfig
from veilcast.link.handshake import InitiatorHandshake, ResponderHandshake
from veilcast.link.identity import LinkIdentity
from veilcast.link.machine import LinkMachine
from veilcast.machine import Address, Delivered, Event, Frame, Machine, Publication
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.node import MeshNode
from veilcast.sim.engine import START_US
from veilcast.sim.host import Birth
from veilcast.sim.links import LinkDelays
from veilcast.sim.mesh.owners import LinkedNode
from veilcast.sim.mesh.population import TOPIC, address_prefix, make_own_keyring
from veilcast.sim.world import World
from veilcast.topics import Label
from veilcast.wire.geometry import CELL_BODY

RATE, PEERS, SECOND_US = 4, 16, 1_000_000
WARM_US, RUN_US = 20 * SECOND_US, 60 * SECOND_US


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--profile", choices=("padding", "heartbeats", "notes"), help="profile this one, and no more")
    options = parser.parse_args()
    if options.profile:
        profile(options.profile)
        return
    results = {"the cell's cipher alone": bare()} | {
        kind: measure_kind(kind) for kind in ("padding", "heartbeats", "notes")
    }
    beats, notes = results["heartbeats"], results["notes"]
    notes["us a note"] = (notes["us a cell"] - beats["us a cell"]) * notes["cells"] / notes["notes"]
    if options.json:
        print(json.dumps(results, indent=2))
        return
    floor = results["the cell's cipher alone"]["us a cell"]
    print(f"{'':<26}{'us a cell, in and out':>22}{'cells a CPU second':>20}{'of the floor':>14}")
    for kind, result in results.items():
        share, rate = result["us a cell"] / floor, f"{result['cells a CPU second']:,.0f}"
        print(f"{kind:<26}{result['us a cell']:>22.2f}{rate:>20}{share:>13.1f}x")
    print(f"{'a note, beside its cells':<26}{notes['us a note']:>22.2f}  verified, and passed on to {PEERS - 1}")


def bare(count: int = 20_000) -> dict[str, float]:
    """Open and seal, as quickly as sessions can."""
    parties = [
        LinkIdentity(make_own_keyring("forwarder", name), random.Random(name).randbytes) for name in ("me", "you")
    ]
    ours = InitiatorHandshake(parties[0], START_US, remote=parties[1].static.public)
    theirs = ResponderHandshake(parties[1], ours.first_message, START_US, known=True)
    mine, contact = ours.read(theirs.answer, START_US).session, theirs.result
    assert contact is not None
    body, now = bytes(CELL_BODY), START_US
    cells = [contact.session.seal(body, now) for _ in range(count)]
    best = 1e9
    for start in range(0, count, count // 5):
        took = time.process_time()
        for cell in cells[start : start + count // 5]:
            assert mine.open(cell, now) == body
            mine.seal(body, now)
        best = min(best, time.process_time() - took)
    return {"us a cell": best / (count // 5) * 1e6, "cells a CPU second": count // 5 / best}


def measure_kind(kind: str) -> dict[str, float]:
    calls, said, notes = record_calls(kind)
    took, cells = min((play_calls(kind, calls, said) for _ in range(5)), key=lambda run: run[0])
    result = {"us a cell": took / cells * 1e6, "cells a CPU second": cells / took, "cells": float(cells)}
    return result | ({"notes": float(notes)} if notes else {})


class Ear:
    """A machine, and every call that its driver makes."""

    def __init__(self, machine: Machine, calls: list[tuple[int, str, tuple[Any, ...]]], said: list[Frame]) -> None:
        self._machine, self._calls, self._said, self._now = machine, calls, said, START_US

    def _heard(self, method: str, *arguments: Any) -> Any:
        self._calls.append((self._now, method, arguments))
        return getattr(self._machine, method)(*arguments)

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self._now = now
        self._heard("receive", data, source, now)

    def handle_timer(self, now: int) -> None:
        self._now = now
        self._heard("handle_timer", now)

    def next_timer(self) -> int | None:
        due_us: int | None = self._heard("next_timer")
        return due_us

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        frames: list[Frame] = self._heard("frames_to_send", now, limit)
        self._said += frames
        return frames

    def next_event(self) -> Event | None:
        event: Event | None = self._heard("next_event")
        return event


class Quiet:
    """A machine inside that says a word now and then, so that links stay."""

    def __init__(self, peers: list[Address], now: int) -> None:
        self._peers, self._next_us, self._said = peers, now, list[Frame]()

    def receive(self, data: bytes, source: Address, now: int) -> None:
        pass

    def handle_timer(self, now: int) -> None:
        self._next_us = now + 50 * SECOND_US
        self._said = [Frame(peer, b"a word") for peer in self._peers]

    def next_timer(self) -> int:
        return self._next_us

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        said, self._said = self._said, []
        return said

    def next_event(self) -> None:
        return None

    def peer_up(self, peer: Address, now: int) -> None:
        pass

    def peer_lost(self, peer: Address, now: int) -> None:
        pass

    def stored(self, record: int, now: int) -> None:
        pass


def make(kind: str, birth: Birth) -> LinkMachine:
    """The node in the middle, or a peer of it: the first publishes, the others read."""
    middle = birth.address == "me"
    around = [Address(f"p{place}") for place in range(PEERS)] if middle else [Address("me")]
    role = "forwarder" if middle else "publisher" if birth.address == "p0" else "subscriber"
    keyring = make_own_keyring(role, birth.address)
    inner: Quiet | MeshNode
    if kind == "padding":
        inner = Quiet(around, birth.now)
    else:
        mesh = MeshConfig(neighbours_max=20, address_bytes_max=32)
        inner = MeshNode(mesh, keyring, birth.rng, birth.entropy, around, birth.now, birth.address, address_prefix)
        if role == "publisher":
            inner.advertise(TOPIC, birth.now)
        elif role == "subscriber":
            inner.subscribe(Label(TOPIC), birth.now)
    return LinkedNode(inner, LinkConfig(rate=RATE), keyring, birth.rng, birth.entropy)


def record_calls(kind: str) -> tuple[list[tuple[int, str, tuple[Any, ...]]], list[Frame], int]:
    """The calls of a driver, what the node said, and how many notes it passed on in the time that is measured."""
    calls: list[tuple[int, str, tuple[Any, ...]]] = []
    said: list[Frame] = []
    read: dict[tuple[Address, bytes], int] = {}

    def seen(address: Address, event: Event, now: int) -> None:
        if isinstance(event, Delivered):
            read[address, event.note.publication.body] = now
            world.call(address, lambda machine, now: machine.inner.acknowledge(event.note.id, now))

    world = World(seed=1, links=LinkDelays(latency_us=(5_000,)), on_event=seen)
    world.add(Address("me"), lambda birth: Ear(make(kind, birth), calls, said))
    for place in range(PEERS):
        world.add(Address(f"p{place}"), partial(make, kind))
    if kind == "notes":
        for published in range(4 * (WARM_US + RUN_US) // SECOND_US):
            note = Publication((Label(TOPIC).pair,), b"note %d " % published + bytes(200))
            publish = partial(_publish, note)
            world.after(WARM_US // 2 + published * SECOND_US // 4, partial(world.call, Address("p0"), publish))
    world.run(WARM_US + RUN_US)
    assert epoch_of(world.now, world.epoch_us) == epoch_of(START_US, world.epoch_us)
    if kind == "notes":
        late = sum(now >= START_US + WARM_US for now in read.values())
        assert late >= 0.95 * 4 * RUN_US // SECOND_US * (PEERS - 1), "notes are missing"
        return calls, said, 4 * RUN_US // SECOND_US
    return calls, said, 0


def _publish(note: Publication, machine: Any, now: int) -> None:
    machine.inner.publish(note, now)


def play_calls(kind: str, calls: list[tuple[int, str, tuple[Any, ...]]], said: list[Frame]) -> tuple[float, int]:
    """The time that the node takes for all calls after the warming up, and the cells that it gets in it."""
    machine = make(kind, Birth(Address("me"), 0, START_US, {}, 1))
    bound = [(now, getattr(machine, method), arguments) for now, method, arguments in calls]
    early = sum(now < START_US + WARM_US for now, _, _ in calls)
    frames: list[Frame] = []
    for _, method, arguments in bound[:early]:
        answer = method(*arguments)
        if answer.__class__ is list:
            frames += answer
    before = len(frames)
    timed = [(method, arguments) for _, method, arguments in bound[early:]]
    gc.collect()
    gc.disable()
    took = time.process_time()
    for method, arguments in timed:
        answer = method(*arguments)
        if answer.__class__ is list:
            frames += answer
    took = time.process_time() - took
    gc.enable()
    assert [frame.data for frame in frames] == [frame.data for frame in said], "it did not do the same"
    cells = sum(method == "receive" for _, method, _ in calls[early:])
    assert 0.9 < (len(frames) - before) / cells < 1.1
    assert cells > 0.9 * RATE * PEERS * RUN_US // SECOND_US
    return took, cells


def profile(kind: str) -> None:
    import cProfile
    import pstats

    calls, said, _ = record_calls(kind)
    profiler = cProfile.Profile()
    profiler.runcall(play_calls, kind, calls, said)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(28)


if __name__ == "__main__":
    main()
