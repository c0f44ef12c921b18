"""What does a mesh node cost: one message of each kind, a whole simulated mesh, and one advert's flood as n grows?

One node handles a message of each kind again and again: decode, check, act, and encode what follows from it, with the
real signatures and seals. The memory of believed adverts is emptied where that is said. A heartbeat is counted as one
message; management is measured inside the heartbeat that carries it.

The simulated mesh has 500 nodes of degree 4, a tenth of them subscribers, as in P0. The flood is the whole life of one
advert: from a start where everybody knows its neighbours until nobody has anything left to tell, at n = 500 and 5,000.
Its cost must grow like n: adverts sent per node are the same, and so, nearly, is the time per node.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable
from random import Random
from typing import Any

from veilcast.authority.epoch import HOUR_US, epoch_of
from veilcast.crypto import chain
from veilcast.machine import Address, Publication
from veilcast.mesh import adverts
from veilcast.mesh.adverts import make_advert
from veilcast.mesh.config import Config
from veilcast.mesh.content import Content, make_notify
from veilcast.mesh.node import MeshNode
from veilcast.sim.engine import START_US
from veilcast.sim.mesh import TOPIC, MeshPopulation, keyrings, token_of_topic
from veilcast.sim.world import World
from veilcast.topics import Label
from veilcast.wire import encode, pad
from veilcast.wire.messages import Advert, Heartbeat, Message, Notify, Subscribe, Unadvert, Unsubscribe


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    as_json = parser.parse_args().json
    results = {"messages a second": messages(), "frames a second, 500 nodes": frames(), "one advert": floods()}
    if as_json:
        print(json.dumps(results, indent=2))
    else:
        show(results)


def show(results: dict[str, Any]) -> None:
    print(f"{'one node, messages a second':<44}{'':>10}")
    for name, rate in results["messages a second"].items():
        print(f"  {name:<42}{rate:>10,}")
    print(f"{'500 nodes simulated, frames a second':<44}{results['frames a second, 500 nodes']:>10,}")
    for n, flood in results["one advert"].items():
        print(f"one advert's flood, n = {n}")
        for name, value in flood.items():
            print(f"  {name:<42}{value:>10,}")


# --- one node


class Node:
    """A subscriber in the middle of a mesh, with its parent, a branch and two others around it."""

    def __init__(self) -> None:
        rng = Random(1)
        names = [Address(name) for name in ("parent", "child", "x", "y")]
        self.node = MeshNode(CONFIG, keyrings()["subscriber"], rng, rng.randbytes, names, START_US)
        self.node.subscribe(Label(TOPIC), START_US)
        self._number = 0
        for name in names:
            self.take(self.beat(), name)
        self.take(self.beat(advert(0)), names[0])
        self.take(self.beat(Subscribe(TOKEN)), names[1])
        assert self.node.overlay.branches.inward(TOKEN) == ["parent"]

    def beat(self, *riders: Message) -> bytes:
        self._number += 1
        return pad(encode(Heartbeat(self._number, tuple(map(encode, riders)))), CONFIG.heartbeat_bytes)

    def take(self, data: bytes, source: str) -> None:
        """What a driver does with one frame."""
        self.node.receive(data, Address(source), START_US)
        self.node.frames_to_send(START_US, 64)
        while self.node.next_event() is not None:
            pass

    def say(self) -> None:
        """Send what is queued, so that encoding it is measured too."""
        self.node.handle_timer(self.node.next_timer() or 0)
        self.node.frames_to_send(START_US, 64)


def messages() -> dict[str, int]:
    keys = keyrings()["publisher"].at(EPOCH).topic(TOPIC)
    rng = Random(2)
    notes = [
        make_notify(keys, Content(b"stream 1", number, Publication((Label(TOPIC).pair,), b"x" * 100)), rng.randbytes)
        for number in range(1, 801)
    ]
    forged = [Notify(note.token, note.sealed, bytes(64)) for note in notes]
    first = advert(0)
    value = chain.advance(first.value, 3)
    duplicate = Advert(first.token, value, None, first.certificate, first.signature)
    on, off = Subscribe(TOKEN), Unsubscribe(TOKEN)
    rates = {
        "heartbeat, idle": rate(lambda node: [node.beat() for _ in range(5_000)], "x"),
        "advert, duplicate": rate(lambda node: [node.beat(duplicate) for _ in range(2_000)], "x"),
        "advert of a fresh chain, beside 31 others": rate(
            lambda node: [node.beat(told, Unadvert(TOKEN, told.value)) for told in map(advert, range(1, 300))], "x"
        ),
        "advert, both signatures checked": rate(
            lambda node: [node.beat(duplicate) for _ in range(500)], "x", forget=True
        ),
        "subscribe and unsubscribe": rate(lambda node: [node.beat(on, off) for _ in range(1_500)], "x", each=2),
        "note, checked, read and passed on": rate(lambda node: [encode(note) for note in notes], "parent"),
        "note, duplicate": rate(lambda node: [encode(notes[0])] * 3_000, "parent"),
        "note, forged": rate(lambda node: [encode(note) for note in forged], "parent"),
    }
    return {name: round(value) for name, value in rates.items()}


def rate(frames_of: Callable[[Node], list[bytes]], source: str, each: int = 1, forget: bool = False) -> float:
    """The best of three rounds, by process time."""
    best = 0.0
    for _ in range(3):
        node = Node()
        data = frames_of(node)
        start = time.process_time()
        for place, frame in enumerate(data):
            if forget:
                adverts._check.cache_clear()
            node.take(frame, source)
            if place % 8 == 0:
                node.say()
        best = max(best, each * len(data) / (time.process_time() - start))
        assert not {name: count for name, count in node.node.refused.items() if name != "ForgedError"}
    return best


# --- many nodes


def frames() -> int:
    """Heartbeats, and a note every second, on a mesh that has formed."""
    people = MeshPopulation(500, 4, 0.2, 0.1, notes=10, mesh=CONFIG, checks=("everyone",))
    world = World(seed=1)
    people.settle(world, 0)
    world.run(20_000_000)
    before = world.counts.delivered
    start = time.process_time()
    world.run(11_000_000)
    seconds = time.process_time() - start
    world.finish()
    return round((world.counts.delivered - before) / seconds)


def floods() -> dict[str, dict[str, float]]:
    return {f"{n:,}": flood(n) for n in (500, 5_000)}


def flood(n: int) -> dict[str, float]:
    """One advert from the first neighbour to the last, beside the same time without one."""
    config = Config(neighbours_max=20, address_bytes_max=8, d_max=32)
    people = MeshPopulation(n, 4, 0.2, 0.1, notes=0, mesh=config, checks=())
    seconds = {}
    for advertised in (False, True):
        world = World(seed=1)
        people.settle(world, 0)
        publisher, readers = people.roles(1)
        world.call(publisher, lambda machine, now: machine.unadvertise(TOPIC, now))
        for name in readers:
            world.call(name, lambda machine, now: machine.unsubscribe(1, now))
        world.run(3_000_000)
        told = people.facts(world).get("Advert", 0)
        gc.collect()
        start = time.process_time()
        if advertised:
            world.call(publisher, lambda machine, now: machine.advertise(TOPIC, now))
        world.run(20_000_000)
        seconds[advertised] = time.process_time() - start
    tables = [world.machine(name).overlay.routes.origins(TOKEN) for name in people.addresses()]
    assert all(sum(origin.reachable for origin in origins) == 1 for origins in tables)
    cost = seconds[True] - seconds[False]
    return {
        "adverts sent per node": round((people.facts(world)["Advert"] - told) / n, 2),
        "seconds": round(cost, 3),
        "microseconds per node": round(1e6 * cost / n),
    }


def advert(seed: int) -> Advert:
    return make_advert(keyrings()["publisher"].at(EPOCH).topic(TOPIC), Random(seed).randbytes)


CONFIG = Config(neighbours_max=20, address_bytes_max=8)
EPOCH = epoch_of(START_US, HOUR_US)
TOKEN = token_of_topic()

if __name__ == "__main__":
    main()
