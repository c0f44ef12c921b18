"""How many messages do our nodes carry, and how soon, beside py-libp2p's gossipsub in the same run?

A publisher and its readers, one or ten, each a node with a socket of its own on loopback; all of one contestant live in
one process, and one contestant runs at a time. A message has 1 KiB, is signed by its publisher and checked by every
reader, and links are encrypted (Noise). The pace is raised until a reader misses a message, or the last is late by more
than a tenth of the round, twice in a row; the highest pace before that counts. The limits that are a policy are lifted
on both sides: gossipsub's 10 messages a second of a topic and 32 in a queue, our 1,000 datagrams a second of a peer.

Differences: gossipsub is TCP with yamux, and forgets what it drops; ours is UDP, and links repeat what
got lost. Ours also seals what is said for the readers of the topic, and delivers in order, again and again until the
reader has acknowledged; what it has to keep until then would be on disk, which is memory here. Ours is raced in the
profile `paper`, where a message leaves at once, as it does in gossipsub. `hardened` sends cells of one size, four a
second on each link, whatever there is to say: that is the point of it, and its pace is no matter of speed. Its latency
stands beside the others, in a network where all are neighbours of all.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import veilcast.link.machine
from veilcast.authority.epoch import HOUR_US
from veilcast.link.config import LinkConfig
from veilcast.machine import Address, Delivered, Event, Publication, Record
from veilcast.mesh.config import HardeningConfig, MeshConfig
from veilcast.net.clock import SystemClock
from veilcast.net.udp import UdpDriver
from veilcast.sim.engine import START_US
from veilcast.sim.host import Birth
from veilcast.sim.keyrings import make_keyring, make_topic_records
from veilcast.sim.mesh.owners import MeshNodeOwner
from veilcast.sim.mesh.population import address_prefix
from veilcast.sim.wrappers import unwrap
from veilcast.topics import Label

Sleep: TypeAlias = Callable[[float], Awaitable[None]]
Heard: TypeAlias = Callable[[int, bytes], None]
"""Called with the number of a reader and what it got."""
Publish: TypeAlias = Callable[[bytes], Awaitable[None]]
Nodes: TypeAlias = Callable[[Heard], AbstractAsyncContextManager[Publish]]
"""A publisher and its readers, under way."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    as_json = parser.parse_args().json
    if find_spec("libp2p") is None:
        print("gossipsub: there is no peer to measure beside; pip install libp2p==0.8.1 (it is large), and call again")
        return
    found = {
        "1 reader": beside(1, {"gossipsub": gossipsub, "ours, paper": paper}),
        "10 readers": beside(10, {"gossipsub": gossipsub, "ours, paper": paper, "ours, hardened": measure_hardened}),
    }
    if as_json:
        print(json.dumps({**found, "load": os.getloadavg()[0]}, indent=2))
        return
    for readers, rows in found.items():
        print(f"{'1 publisher, ' + readers:<28}{'messages/s':>12}{'deliveries a CPU second':>25}{'p50':>14}")
        theirs, ours = rows["gossipsub"], rows["ours, paper"]
        for name, row in rows.items():
            rates = f"{row['rate']:>12,.0f}{row['per_cpu']:>25,.0f}" if "rate" in row else " " * 37
            print(f"  {name:<26}{rates}{row['p50_ms']:>11.1f} ms")
        rate, per_cpu, p50 = (ours[measure] / theirs[measure] for measure in ("rate", "per_cpu", "p50_ms"))
        print(f"  {'paper / gossipsub':<26}{rate:>12.1f}{per_cpu:>25.1f}{p50:>14.2f}")
    print(
        f"p50 at {PACE:.0f} messages/s; hardened at {SLOW_PACE}, where each fills two cells of every link on its way,"
    )
    print("by the stem to the root and through the mesh, and waits for the next of 4 a second each time")
    print(f"load of this machine {os.getloadavg()[0]:.1f}")


def beside(readers: int, contestants: dict[str, Callable[[int], dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Each in a process of its own, that no other has warmed or burdened."""
    with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        return {name: pool.apply(contest, (readers,)) for name, contest in contestants.items()}


def gossipsub(readers: int) -> dict[str, float]:
    import trio

    logging.disable(logging.CRITICAL)  # It tells of everything that it drops.
    found: dict[str, float] = trio.run(run_race, partial(gossipsub_nodes, readers), readers, trio.sleep)
    return found


def paper(readers: int) -> dict[str, float]:
    return asyncio.run(run_race(partial(our_nodes, PAPER, LinkConfig("prompt"), readers), readers, asyncio.sleep))


def measure_hardened(readers: int) -> dict[str, float]:
    return asyncio.run(
        measure_latency(partial(our_nodes, HARDENED, LinkConfig("cells", 4), readers), readers, asyncio.sleep)
    )


# --- the race: the same for all, whoever runs the loop


class Round:
    """Messages at one pace, and what became of them."""

    def __init__(self, readers: int) -> None:
        self._readers = readers
        self._sent: dict[bytes, float] = {}
        self._got: dict[tuple[int, bytes], float] = {}
        self.cpu_s = 0.0

    def heard(self, reader: int, body: bytes) -> None:
        if body in self._sent:
            check((reader, body) not in self._got)
            self._got[reader, body] = time.perf_counter()

    async def run(self, publish: Publish, sleep: Sleep, pace: float, count: int, patience_s: float) -> bool:
        """Whether everybody got everything, and the last of it in time."""
        self._sent, self._got = {}, {}
        spent, begun = time.process_time(), time.perf_counter()
        for number in range(count):
            await sleep(max(0.0, begun + number / pace - time.perf_counter()))
            body = b"%08d" % number + os.urandom(SIZE - 8)
            self._sent[body] = time.perf_counter()
            await publish(body)
        end = begun + count / pace + patience_s
        while len(self._got) < count * self._readers and time.perf_counter() < end:
            await sleep(0.02)
        self.cpu_s = time.process_time() - spent
        return len(self._got) == count * self._readers

    def latencies(self) -> Iterator[float]:
        return (at - self._sent[body] for (_, body), at in self._got.items())


async def run_race(nodes: Nodes, readers: int, sleep: Sleep) -> dict[str, float]:
    this = Round(readers)
    async with nodes(this.heard) as publish:
        await wait_for_mesh(this, publish, sleep)

        async def bears(pace: float) -> bool:
            """Loss that comes again; the machine may have been busy with something else."""
            for _ in range(2):
                if await this.run(publish, sleep, pace, round(pace * ROUND_S), PATIENCE_S):
                    return True
                await sleep(REST_S)
            return False

        check(await bears(PACE))
        p50, low, high, per_cpu = median(this.latencies()), PACE, 0.0, 0.0
        while not high or high / low > CLOSE:
            pace = low * RAISE if not high else (low * high) ** 0.5
            if await bears(pace):
                low, per_cpu = pace, round(pace * ROUND_S) * readers / this.cpu_s
            else:
                high = pace
        return {"rate": low, "per_cpu": per_cpu, "p50_ms": p50 * 1e3}


async def measure_latency(nodes: Nodes, readers: int, sleep: Sleep) -> dict[str, float]:
    """The latency alone."""
    this = Round(readers)
    async with nodes(this.heard) as publish:
        await wait_for_mesh(this, publish, sleep)
        check(await this.run(publish, sleep, SLOW_PACE, SLOW_COUNT, SLOW_PATIENCE_S))
        return {"p50_ms": median(this.latencies()) * 1e3}


async def wait_for_mesh(this: Round, publish: Publish, sleep: Sleep) -> None:
    """Until a message reaches everybody: the mesh stands."""
    end = time.perf_counter() + SETTLE_S
    while not await this.run(publish, sleep, 1.0, 1, 1.0):
        check(time.perf_counter() < end)
    await sleep(REST_S)


# --- ours


@asynccontextmanager
async def our_nodes(mesh: MeshConfig, link: LinkConfig, readers: int, heard: Heard) -> AsyncIterator[Publish]:
    """The publisher in the middle of its readers; in the hardened profile all are neighbours, for that is its shape."""
    publisher, *others = addresses = [Address(f"127.8.{number + 1}.1:4085") for number in range(readers + 1)]
    veilcast.link.machine.PROMPT_ALLOWANCE = (1, QUEUE)  # type: ignore[misc]
    clock = SystemClock(lambda: START_US * 1000)
    topics = make_topic_records((TOPIC,), 0.0, mesh.profile)
    machines: dict[Address, Any] = {}
    drivers: dict[Address, UdpDriver] = {}

    def act_on(address: Address, event: Event) -> None:
        machine, now = machines[address], clock.now()
        if isinstance(event, Record):
            machine.stored(event.record, now)
        elif isinstance(event, Delivered):
            unwrap(machine).acknowledge(event.note.id, now)
            heard(addresses.index(address), event.note.publication.body)

    for number, address in enumerate(addresses):
        role = "publisher" if address == publisher else "subscriber"
        keyring = make_keyring(topics, HOUR_US, ((TOPIC, role),), number)
        near = addresses if mesh.profile == "hardened" else others if address == publisher else [publisher]
        owner = MeshNodeOwner(
            mesh, keyring, {TOPIC: role}, [each for each in near if each != address], address_prefix, link=link
        )
        machines[address] = owner.start(Birth(address, 0, clock.now(), {}, SEED))
        drivers[address] = UdpDriver(machines[address], [address], partial(act_on, address), clock)

    async def publish(body: bytes) -> None:
        unwrap(machines[publisher]).publish(Publication((Label(TOPIC).pair,), body), clock.now())
        drivers[publisher].touch()

    try:
        for driver in drivers.values():
            driver.open()
        yield publish
    finally:
        for driver in drivers.values():
            driver.close()


# --- theirs


@asynccontextmanager
async def gossipsub_nodes(readers: int, heard: Heard) -> AsyncIterator[Publish]:
    import trio

    # Beside this file stands one that is called as a library is which it needs.
    sys.path[:] = [place for place in sys.path if Path(place).resolve() != Path(__file__).parent.resolve()]
    from libp2p import new_host
    from libp2p.crypto.ed25519 import create_new_key_pair
    from libp2p.crypto.x25519 import create_new_key_pair as create_noise_key_pair
    from libp2p.peer.peerinfo import PeerInfo
    from libp2p.pubsub import pubsub as module
    from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11, GossipSub
    from libp2p.pubsub.rpc_queue import RpcQueue
    from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
    from libp2p.security.noise.transport import Transport
    from libp2p.tools.anyio_service import background_trio_service
    from multiaddr import Multiaddr

    module.SUBSCRIPTION_CHANNEL_SIZE = QUEUE
    module.RpcQueue = partial(RpcQueue, QUEUE)

    async def read(number: int, subscription: Any) -> None:
        async for message in subscription:
            heard(number, message.data)

    async with AsyncExitStack() as stack:
        hubs, hosts = [], []
        for _ in range(readers + 1):
            keys, noise = create_new_key_pair(), create_noise_key_pair()
            host = new_host(keys, sec_opt={NOISE: Transport(keys, noise.private_key)})
            await stack.enter_async_context(host.run([Multiaddr("/ip4/127.0.0.1/tcp/0")]))
            router = GossipSub(
                [PROTOCOL_ID_V11],
                degree=12,
                degree_low=10,
                degree_high=16,
                heartbeat_interval=1,
                spam_protection_enabled=False,
                eclipse_protection_enabled=False,
            )
            hub = module.Pubsub(host, router, strict_signing=True)
            await stack.enter_async_context(background_trio_service(router))
            await stack.enter_async_context(background_trio_service(hub))
            await hub.wait_until_ready()
            hubs.append(hub)
            hosts.append(host)
        nursery = await stack.enter_async_context(trio.open_nursery())
        for number in range(1, readers + 1):
            nursery.start_soon(read, number, await hubs[number].subscribe(TOPIC))
            await hosts[number].connect(PeerInfo(hosts[0].get_id(), hosts[0].get_addrs()))
        yield partial(hubs[0].publish, TOPIC)
        nursery.cancel_scope.cancel()


def check(right: bool) -> None:
    if not right:
        raise SystemExit("a result is wrong")


SEED, TOPIC, SIZE = 1, "news", 1024
PACE, RAISE, CLOSE = 20.0, 2.0, 1.15
"""The pace that all bear, by how much it is raised, and how near the end of the race is found."""
ROUND_S, PATIENCE_S, REST_S, SETTLE_S = 1.5, 0.15, 1.0, 120.0
SLOW_PACE, SLOW_COUNT, SLOW_PATIENCE_S = 0.5, 10, 20.0
"""Where cells have a pace of their own."""
QUEUE = 1 << 16
PAPER = MeshConfig(neighbours_max=16)
HARDENED = MeshConfig(
    "hardened",
    heartbeat_us=500_000,
    silent_periods=20,
    neighbours_max=16,
    hardening=HardeningConfig(window_periods=16, lead_periods=48, bit_periods=2, uptime_periods=16),
)

if __name__ == "__main__":
    main()
