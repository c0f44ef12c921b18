"""A node in service: driver, control socket and metrics, up in order, and down in order when told to stop.

The first SIGTERM or SIGINT, or a client's wish, lets the owner finish: what was promised goes out, cells keep their
rate meanwhile, clients may still read and acknowledge. That has a limit, and a second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from veilcast.machine import Event, Machine
from veilcast.net.agent import Agent
from veilcast.net.clock import Clock
from veilcast.net.control import ControlServer
from veilcast.net.log import LoopFaults
from veilcast.net.metrics import MetricsServer
from veilcast.net.udp import UdpDriver


class Owner(Agent, Protocol):
    """The agent that owns a machine: it hears its events, too, and knows its numbers."""

    async def run(self) -> None:
        """Its own work. Returns never; what it raises ends the node."""

    def act_on(self, event: Event) -> None: ...

    def numbers(self) -> Mapping[str, float]:
        """By names of `metrics.METRICS`; what the sockets count is added to it."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """The parts of one node, not yet running."""

    machine: Machine
    hire: Callable[[UdpDriver], Owner]
    """Makes the owner. It calls the machine with the driver's `now()`, and the driver's `touch()` after each call."""
    listen: Sequence[str]
    control: Path
    metrics: str | None = None
    clients_max: int = 16
    drain_s: float = 10.0
    clock: Clock = field(default_factory=Clock)
    """The driver's. Whoever builds the machine reads the same one."""


async def serve(service: Service, on_ready: Callable[[UdpDriver], object] = lambda _: None) -> bool:
    """Run until a signal or a client says stop; whether all that was promised has gone out by then."""
    stop, hurry = asyncio.Event(), asyncio.Event()
    with _signals(stop, hurry):
        return await attend(service, stop, hurry, on_ready)


async def attend(
    service: Service,
    stop: asyncio.Event,
    hurry: asyncio.Event,
    on_ready: Callable[[UdpDriver], object] = lambda _: None,
) -> bool:
    """The same for whoever has signals of its own, as a process with several nodes on one event loop has."""
    faults = LoopFaults()
    asyncio.get_running_loop().set_exception_handler(faults)
    driver = UdpDriver(service.machine, service.listen, lambda event: owner.act_on(event), service.clock)
    owner = service.hire(driver)
    control = ControlServer(service.control, owner, stop.set, service.clients_max)

    def numbers() -> dict[str, float]:
        return {**owner.numbers(), **_of_sockets(driver, control, faults)}

    async with contextlib.AsyncExitStack() as parts:
        parts.callback(driver.close)
        # The control socket comes first: it tells whether another node lives here.
        await control.open()
        parts.push_async_callback(control.close)
        if service.metrics is not None:
            metrics = MetricsServer(service.metrics, numbers)
            await metrics.open()
            parts.push_async_callback(metrics.close)
        driver.open()
        work = asyncio.create_task(owner.run())
        parts.push_async_callback(_end, work)
        _LOG.info("started")
        on_ready(driver)
        await _first(work, stop.wait())
        _LOG.info("stopping; at most %g s for what is under way", service.drain_s)
        drained = await driver.drain(lambda: _finish(owner, hurry), service.drain_s)
        drained = drained and not hurry.is_set()
        if work.done():
            work.result()
        _LOG.info("stopped" if drained else "stopped; the outbox keeps what has not gone out")
        return drained


async def _first(work: asyncio.Task[None], other: Coroutine[object, object, object]) -> None:
    """Wait for either; raises what the work raised."""
    waiting = asyncio.ensure_future(other)
    try:
        await asyncio.wait([work, waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    if work.done():
        work.result()


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def _finish(owner: Owner, hurry: asyncio.Event) -> None:
    """Let the owner finish, or the signal not to wait for it."""
    work = asyncio.create_task(owner.finish())
    try:
        await _first(work, hurry.wait())
    finally:
        await _end(work)


@contextlib.contextmanager
def _signals(stop: asyncio.Event, hurry: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def told() -> None:
        (hurry if stop.is_set() else stop).set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, told)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


def _of_sockets(driver: UdpDriver, control: ControlServer, faults: LoopFaults) -> dict[str, float]:
    counts = driver.counts
    return {
        "datagrams_received_total": counts.received,
        "datagrams_sent_total": counts.sent,
        "datagrams_blocked_total": counts.blocked,
        "datagrams_undeliverable_total": counts.undeliverable,
        "timer_lateness_seconds_sum": counts.late_us / 1e6,
        "timer_lateness_seconds_count": counts.timers,
        "callback_faults_total": faults.count,
        "control_clients": control.clients,
    }


_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_LOG: Final = logging.getLogger("veilcast.node")
