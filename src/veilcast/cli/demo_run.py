"""One measured run of a network: starts it, publishes and reads notes through its control sockets, records its wires,
ends it.

The clients are ordinary programs: they see what a user would see, with disks and sockets in between. The recording is
that of the taps of all nodes, each datagram taken from its sender: what a global observer has.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from veilcast.cli.context import Context
from veilcast.cli.local import network
from veilcast.cli.local.network import LocalNetwork, NetworkPlan, node_file, tap_directory
from veilcast.cli.local.status import wait_until_linked
from veilcast.cli.local.workers import WORKERS, WorkerGroup
from veilcast.errors import LocalError
from veilcast.net.client import Client, open_client
from veilcast.observe import CellRow, read_table


@dataclass(frozen=True)
class DemoRun:
    """The results. Times are Unix microseconds; latencies are seconds from `publish` to the subscriber's program."""

    net: LocalNetwork
    published_us: tuple[int, ...]
    latencies: tuple[float, ...]
    """One latency for each note and subscriber that received it."""
    cells: tuple[CellRow, ...]
    """All datagrams from a second before the first publication to a second after the last delivery."""

    @property
    def expected(self) -> int:
        return len(self.published_us) * len(self.net.nodes_with_role("subscriber"))


def run_network(
    directory: Path,
    plan: NetworkPlan,
    context: Context,
    rng: Random,
    *,
    notes: int,
    settle_s: float,
    on_progress: Callable[[str], object],
) -> DemoRun:
    """Run a network of this plan; `settle_s` is the pause, in seconds, after the first notes have arrived."""
    on_progress("making an authority and keyrings")
    net = network.lay_out(directory, plan, context, rng)
    network.check_addresses(net)
    workers = WorkerGroup(directory, WORKERS, lifeline=True)
    try:
        exchange = _Exchange(directory, net, rng, on_progress)
        asyncio.run(exchange.run(workers, notes, settle_s))
    finally:
        on_progress("ending")
        workers.end()
    cells = _read_taps(directory, net, exchange.began_us, exchange.ended_us)
    return DemoRun(net, tuple(exchange.published_us), tuple(exchange.latencies), cells)


class _Exchange:
    """The notes of one run: sent by the first publisher, read by all subscribers."""

    def __init__(self, directory: Path, net: LocalNetwork, rng: Random, on_progress: Callable[[str], object]) -> None:
        self._directory, self._network, self._rng, self._on_progress = directory, net, rng, on_progress
        self._sent: dict[bytes, float] = {}
        """Publication times of the measured notes, by body."""
        self._reached: Counter[bytes] = Counter()
        """The number of subscribers that have read each body."""
        self.published_us: list[int] = []
        self.latencies: list[float] = []
        self.began_us = self.ended_us = 0

    async def run(self, workers: WorkerGroup, notes: int, settle_s: float) -> None:
        nodes = self._network.plan.nodes
        try:
            await wait_until_linked(
                self._directory,
                self._network,
                workers,
                _START_S,
                lambda up: self._on_progress(f"{up} of {nodes} nodes are linked"),
            )
        except TimeoutError:
            raise LocalError(f"not every node found a neighbour within {_START_S:g} s") from None
        async with contextlib.AsyncExitStack() as open_ones:
            [first, *_] = self._network.nodes_with_role("publisher")
            publisher = await open_ones.enter_async_context(self._client(first))
            for number in self._network.nodes_with_role("subscriber"):
                reader = await open_ones.enter_async_context(self._client(number))
                task = asyncio.create_task(self._read(reader))
                open_ones.push_async_callback(_end, task)
            await self._until_heard(publisher)
            if settle_s:
                self._on_progress("left alone for a while")
                await asyncio.sleep(settle_s)
            await self._measure(publisher, notes)
        workers.check()

    async def _until_heard(self, publisher: Client) -> None:
        """Publish until two notes in a row have reached all subscribers at once: only then there is a mesh to
        measure."""
        readers, probes, in_a_row = len(self._network.nodes_with_role("subscriber")), 0, 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FORM_S):
                while in_a_row < _IN_A_ROW:
                    body = _body(f"probe {probes}")
                    await publisher.publish(self._network.topic, body)
                    await asyncio.sleep(_PROBE_S)
                    heard = self._reached[body]
                    in_a_row = in_a_row + 1 if heard == readers else 0
                    probes += 1
                    self._on_progress(f"the mesh forms; {heard} of {readers} readers hear the publisher")

    async def _measure(self, publisher: Client, notes: int) -> None:
        expected = notes * len(self._network.nodes_with_role("subscriber"))
        self.began_us = _now_us()
        await asyncio.sleep(_MARGIN_S)
        for number in range(notes):
            body = _body(f"note {number}")
            self._sent[body] = time.monotonic()
            self.published_us.append(_now_us())
            await publisher.publish(self._network.topic, body)
            self._on_progress(f"{number + 1} of {notes} notes published, {len(self.latencies)} delivered")
            await asyncio.sleep(self._rng.uniform(*_PAUSE_S))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LATE_S):
                while len(self.latencies) < expected:
                    await asyncio.sleep(_LOOK_S)
        await asyncio.sleep(_MARGIN_S)
        self.ended_us = _now_us()

    async def _read(self, client: Client) -> None:
        async for note in client.subscribe(self._network.topic):
            body = note.publication.body
            self._reached[body] += 1
            sent = self._sent.get(body)
            if sent is not None:
                self.latencies.append(time.monotonic() - sent)

    @contextlib.asynccontextmanager
    async def _client(self, number: int) -> AsyncIterator[Client]:
        client = await open_client(node_file(self._directory, number))
        try:
            yield client
        finally:
            await client.close()


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _read_taps(directory: Path, net: LocalNetwork, began_us: int, ended_us: int) -> tuple[CellRow, ...]:
    cells = [
        cell
        for number, own in enumerate(net.addresses)
        for cell in read_table(tap_directory(directory, number), CellRow)
        if cell.src == own and began_us <= cell.t_us < ended_us
    ]
    return tuple(sorted(cells, key=lambda cell: cell.t_us))


def _body(text: str) -> bytes:
    """Pad all bodies to one length, as a careful publisher would."""
    return text.ljust(_BODY).encode()


def _now_us() -> int:
    return time.time_ns() // 1000


_BODY: Final = 200
_START_S: Final = 300.0
_FORM_S: Final = 60.0
_PROBE_S: Final = 0.7
_IN_A_ROW: Final = 2
_PAUSE_S: Final = (0.3, 0.7)
_MARGIN_S: Final = 1.0
_LATE_S: Final = 8.0
_LOOK_S: Final = 0.1
