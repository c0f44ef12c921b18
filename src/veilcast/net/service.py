"""Starts and stops a service: driver, control socket and metrics, in order.

The first SIGTERM or SIGINT, or a client's request, lets the service finish: accepted publications are sent, cells keep
their rate, and clients may still read and acknowledge. This has a time limit, and a second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from veilcast.machine import Address, Event, Machine
from veilcast.net.clock import SystemClock
from veilcast.net.control import ControlServer
from veilcast.net.driver import MachineDriver
from veilcast.net.group_commit import EventJournal, GroupCommit
from veilcast.net.host_queries import HostQueryServer, QueryHandler
from veilcast.net.log import LoopFaults
from veilcast.net.metrics import MetricsServer
from veilcast.net.node_service import NodeService


class HostService:
    """The service of a host without clients: it has records to write and numbers to show."""

    def __init__(
        self,
        journal: EventJournal,
        write: Callable[[Sequence[Any]], Any],
        driver: MachineDriver,
        numbers: Callable[[], Mapping[str, float]],
    ) -> None:
        self._writer = GroupCommit(journal, write, driver)
        self.run, self.act_on, self.finish = self._writer.run, self._writer.act_on, self._writer.flush
        self.numbers = numbers


class MachineService(Protocol):
    """Owns a machine: handles its events and knows its numbers. `NodeService` and `HostService` fulfil it."""

    async def run(self) -> None:
        """Do the service's own work. Never returns; an exception ends the process."""

    def act_on(self, event: Event) -> None: ...

    async def finish(self) -> None:
        """Return when everything that was promised has been done."""

    def numbers(self) -> Mapping[str, float]:
        """Return values by names of `metrics.METRICS`; those of the driver are added."""


class ControlFrontend(Protocol):
    """Serves the local users of a service."""

    @property
    def clients(self) -> int: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...


Watchdog: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""Watches something that a service depends on. Never returns; an exception ends the service."""

_O = TypeVar("_O", bound=MachineService)


@dataclass(frozen=True, kw_only=True)
class ServiceSetup(Generic[_O]):
    """The parts of one service before it runs. Only peers talk to it."""

    machine: Machine
    make_driver: Callable[[Machine, Callable[[Event], object], SystemClock], MachineDriver]
    make_service: Callable[[MachineDriver], _O]
    """Makes the service. The service calls the machine with the driver's `now()`, and calls `touch()` after each
    call."""
    metrics: str | None = None
    drain_s: float = 10.0
    clock: SystemClock = field(default_factory=SystemClock)
    """The driver's clock; the machine is built with the same one."""
    address: Address | None = None
    """The address by which others call the service, if it is not a listening address of the driver."""
    watch: Watchdog | None = None
    reload: Callable[[], Coroutine[Any, Any, object]] | None = None
    """Takes new keys; called on SIGHUP. Without it, and in a terminal, SIGHUP ends the process."""

    def make_frontend(self, service: _O, stop: Callable[[], object]) -> ControlFrontend | None:
        """Make the frontend for local users; None for a service without local users."""
        return None


@dataclass(frozen=True, kw_only=True)
class NodeSetup(ServiceSetup[NodeService]):
    """The parts of one node, which serves the clients of its control socket."""

    control: Path
    clients_max: int = 16

    def make_frontend(self, service: NodeService, stop: Callable[[], object]) -> ControlServer:
        return ControlServer(self.control, service, stop, self.clients_max)


@dataclass(frozen=True, kw_only=True)
class HostSetup(ServiceSetup[_O]):
    """The parts of one host that answers its owner's queries."""

    control: Path
    make_handler: Callable[[_O, Callable[[], object]], QueryHandler]
    """Makes the query handler from the service and the function that stops it."""

    def make_frontend(self, service: _O, stop: Callable[[], object]) -> HostQueryServer:
        return HostQueryServer(self.control, self.make_handler(service, stop))


async def serve(setup: ServiceSetup[_O], on_ready: Callable[[MachineDriver], object] = lambda _: None) -> bool:
    """Serve until a signal or a client asks to stop. Returns True if everything that was promised has been sent by
    then."""
    stop, hurry = asyncio.Event(), asyncio.Event()
    with _signals(stop, hurry), _hangup(setup.reload):
        return await serve_until(setup, stop, hurry, on_ready)


async def serve_until(
    setup: ServiceSetup[_O],
    stop: asyncio.Event,
    hurry: asyncio.Event,
    on_ready: Callable[[MachineDriver], object] = lambda _: None,
) -> bool:
    """Serve until `stop` is set, for a process with its own signal handlers and several services on one event loop."""
    faults = LoopFaults()
    asyncio.get_running_loop().set_exception_handler(faults)
    driver = setup.make_driver(setup.machine, lambda event: service.act_on(event), setup.clock)
    service = setup.make_service(driver)
    frontend = setup.make_frontend(service, stop.set)

    def numbers() -> dict[str, float]:
        clients = {} if frontend is None else {"control_clients": frontend.clients}
        return {**service.numbers(), **driver.numbers(), **clients, "callback_faults_total": faults.count}

    async with contextlib.AsyncExitStack() as parts:
        parts.callback(driver.close)
        if frontend is not None:
            # The control socket comes first: it shows whether another node runs here.
            await frontend.open()
            parts.push_async_callback(frontend.close)
        if setup.metrics is not None:
            metrics = MetricsServer(setup.metrics, numbers)
            await metrics.open()
            parts.push_async_callback(metrics.close)
        driver.open()
        work = asyncio.create_task(_work(service, setup.watch))
        parts.push_async_callback(_end, work)
        _LOG.info("started")
        on_ready(driver)
        await _first(work, stop.wait())
        _LOG.info("stopping; at most %g s for what is under way", setup.drain_s)
        drained = await driver.drain(lambda: _finish(service, hurry, work), setup.drain_s)
        drained = drained and not hurry.is_set()
        if work.done():
            work.result()
        _LOG.info("stopped" if drained else "stopped; the outbox keeps what has not gone out")
        return drained


async def _work(service: MachineService, watch: Watchdog | None) -> None:
    """Run the service's work and the watchdog; raises what either raised."""
    parts = [asyncio.create_task(each()) for each in (service.run, watch) if each is not None]
    try:
        ended, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        for part in ended:
            part.result()
    finally:
        for part in parts:
            await _end(part)


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


async def _finish(service: MachineService, hurry: asyncio.Event, running: asyncio.Task[None]) -> None:
    """Let the service finish, unless `hurry` is set or its work fails."""
    finishing = asyncio.create_task(_finish_or_fail(service, running))
    try:
        await _first(finishing, hurry.wait())
    finally:
        await _end(finishing)


async def _finish_or_fail(service: MachineService, running: asyncio.Task[None]) -> None:
    finishing = asyncio.create_task(service.finish())
    try:
        await asyncio.wait([finishing] if running.done() else [finishing, running], return_when=asyncio.FIRST_COMPLETED)
        if not finishing.done():
            running.result()
        await finishing
    finally:
        await _end(finishing)


@contextlib.contextmanager
def _signals(stop: asyncio.Event, hurry: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        (hurry if stop.is_set() else stop).set()

    # A script starts a background job with SIGINT ignored: Ctrl-C in its terminal is not for the node.
    handled = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in handled:
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def _hangup(reload: Callable[[], Coroutine[Any, Any, object]] | None) -> Iterator[None]:
    """Reload on SIGHUP. In a terminal SIGHUP says that the terminal is gone, and ends the process as before."""
    at_terminal = sys.stdin is not None and sys.stdin.isatty()
    if reload is None or at_terminal or signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        yield
        return
    loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[object]]()

    def on_hangup() -> None:
        task = loop.create_task(reload())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    loop.add_signal_handler(signal.SIGHUP, on_hangup)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_LOG: Final = logging.getLogger("veilcast.node")
