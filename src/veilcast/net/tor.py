"""A Tor process of our own, or one that runs already: its SOCKS port, and the onion services that it serves for us.

Both are controlled by the control port, and everything depends on that connection: when it ends, a Tor of our own ends
too, and a Tor that runs for others forgets our services. Only the watch over Tor uses asyncio: Tor is up before a
driver starts, and ends after it.

    with start_tor(state / "tor", network=settings.network) as tor:            # or attach_tor("127.0.0.1:9051")
        door = open_doorway()                                                  # of `onion`
        service = tor.serve(door.getsockname(), key=stored_key)                # the key of an earlier run, or None
        driver = OnionDriver(machine, listen=[door], reach=tor.reach, act_on=...)

A Tor of our own calls onion services and nothing else, listens on loopback only, and stores its files in its own
directory: `torrc` is rewritten at every start, and `log` has Tor's messages, by Tor's own rule without addresses.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from veilcast.errors import ConfigError, LocalError
from veilcast.machine import Address
from veilcast.net.address import SocketAddress, format_address, parse_address
from veilcast.net.onion import TorDialer
from veilcast.net.tor_control import TorControl
from veilcast.net.tor_process import TorProcess, read_network


@dataclass(frozen=True)
class OnionService:
    """The address follows from the key: with the same key, a service has the same address in every run."""

    address: Address
    key: str = field(repr=False)


class Tor:
    """A Tor that answers, until its control connection ends."""

    def __init__(self, control: TorControl) -> None:
        self._control = control
        self.reach = TorDialer(_socks(control))
        """Dials peers through this Tor; for drivers."""

    def serve(self, target: SocketAddress, *, key: str | None = None, port: int = 80) -> OnionService:
        """Serve an onion service from now on: Tor connects its callers to `target`, a listening socket of ours. Without
        a key, Tor makes one."""
        if key is not None and not KEY.fullmatch(key):
            raise ConfigError("this is no key of an onion service")
        self._control.ask("SETEVENTS HS_DESC")
        said = self._add_onion(key or "NEW:ED25519-V3", f"Port={port},{format_address(target)}")
        values = dict(line.split("=", 1) for line in said if "=" in line)
        service, made = values.get("ServiceID", ""), key or values.get("PrivateKey", "")
        if not SERVICE.fullmatch(service) or not KEY.fullmatch(made):
            raise LocalError("Tor made an onion service and does not say which; is it Tor that answers there?")
        return OnionService(Address(f"{service}.onion:{port}"), made)

    def _add_onion(self, key: str, target: str) -> list[str]:
        """Ask for proof of work from callers under load if this Tor knows it. Tor 0.4.8 takes that from its torrc
        alone."""
        try:
            return self._control.ask(f"ADD_ONION {key} {_LIMITS} {_WORK} {target}")
        except LocalError as refused:
            if "PoW" not in str(refused):
                raise
            return self._control.ask(f"ADD_ONION {key} {_LIMITS} {target}")

    def await_reachable(self, services: Sequence[OnionService], within_s: float) -> None:
        """Return when others can find these services. Call it before any other event is awaited."""
        missing = {service.address.partition(".")[0] for service in services}
        deadline = time.monotonic() + within_s
        while missing:
            try:
                event = self._control.await_event(deadline - time.monotonic()).split()
            except TimeoutError as error:
                raise LocalError(f"an onion service cannot be found after {within_s:g} s") from error
            if event[:2] == ["HS_DESC", "UPLOADED"] and len(event) > 2:
                missing.discard(event[2])
        self._control.ask("SETEVENTS")

    async def watch(self) -> None:
        """Never returns. Raises `LocalError` when this Tor ends or closes the control connection."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def look() -> None:
            try:
                self._control.drop_events()
            except LocalError:
                loop.remove_reader(self._control)
                ended.set()

        loop.add_reader(self._control, look)
        try:
            await ended.wait()
            self._control.drop_events()
        finally:
            loop.remove_reader(self._control)


@contextmanager
def start_tor(
    directory: Path,
    *,
    network: Path | None = None,
    within_s: float = 600.0,
    on_progress: Callable[[int], object] = lambda percent: None,
) -> Iterator[Tor]:
    """Start a Tor process with its files in `directory`, in the public network or in a private one: `network` is the
    file that `tor_testnet` writes. `on_progress` receives the progress in percent. Raises `LocalError` if `tor` is not
    installed."""
    options = [] if network is None else read_network(network).options()
    options += ["ClientOnly 1", "SocksPort 127.0.0.1:auto OnionTrafficOnly", f"__OwningControllerProcess {os.getpid()}"]
    options += _CALLS
    process = TorProcess(directory)
    _renew(process, options)
    process.start(options)
    try:
        with process.control(within_s) as control:
            control.ask("TAKEOWNERSHIP")
            _await_bootstrap(control, process, within_s, on_progress)
            yield Tor(control)
    finally:
        process.end()


@contextmanager
def attach_tor(control: str, *, cookie: Path | None = None) -> Iterator[Tor]:
    """Use a Tor that runs already, by its control port ("127.0.0.1:9051" or "unix:/run/tor/control"). Without a
    `cookie`, Tor says where its cookie file is."""
    with TorControl(control, cookie) as connection:
        yield Tor(connection)


def _renew(process: TorProcess, options: Sequence[str]) -> None:
    """Prepare the directory for another network. A Tor cannot join another network with the data of the first one. Data
    of a private network is removed. Data of the public network has the entry guards, which should stay the same, so it
    is kept and the start is refused."""
    before, now = (
        {line for line in lines if line.startswith("DirAuthority ")} for lines in (process.read_torrc(), options)
    )
    if not process.read_torrc() or before == now:
        return
    if not before:
        raise ConfigError(
            f"{process.directory} is of the public Tor network; a private one needs a directory of its own"
        )
    process.remove_data()


def _await_bootstrap(
    control: TorControl, process: TorProcess, within_s: float, on_progress: Callable[[int], object]
) -> None:
    deadline = time.monotonic() + within_s
    while (percent := bootstrap_percent(control)) < 100:
        on_progress(percent)
        if time.monotonic() > deadline:
            raise LocalError(f"Tor got no further than {percent} % in {within_s:g} s; {process.log} may say why")
        time.sleep(LOOK_S)
    on_progress(100)


def bootstrap_percent(control: TorControl) -> int:
    """Return how far a Tor has started, in percent."""
    match = re.search(r"PROGRESS=(\d+)", control.value("status/bootstrap-phase"))
    return int(match[1]) if match else 0


def _socks(control: TorControl) -> SocketAddress:
    """Return the address of the SOCKS port. A unix socket is of no use to other users than Tor's."""
    for place in re.findall(r'"([^"]*)"', control.value("net/listeners/socks")):
        if not place.startswith("unix:"):
            return parse_address(place)[1]
    raise ConfigError("this Tor has no SocksPort on TCP; set SocksPort 9050 in its torrc")


KEY: Final = re.compile(r"ED25519-V3:[A-Za-z0-9+/]{86}==", re.ASCII)
SERVICE: Final = re.compile(r"[a-z2-7]{56}", re.ASCII)
LOOK_S: Final = 0.1
_CALLS: Final = ("MaxCircuitDirtiness 10 seconds", "MaxClientCircuitsPending 1024")
"""Every call of ours has a circuit of its own. After the call no other call uses that circuit, and Tor would keep it
for ten minutes. More circuits are under way than in a browser, and Tor would make them wait for one another."""
_LIMITS: Final = "Flags=MaxStreamsCloseCircuit MaxStreams=8"
"""Our peers use a circuit for one stream; a caller that opens many streams on one circuit is no peer of ours."""
_WORK: Final = "PoWDefensesEnabled=1"
"""While more callers come than Tor can answer, Tor answers those first that did more work (Tor's proposal 327)."""
