"""A private Tor network on loopback: three directory authorities and a few relays, for tests and demonstrations.

It runs the real program and the real protocols, and hides nobody from its operator. Nothing in it talks to the public
network: every address is on loopback, and there are no exits. Below DIR, the network has

    network.json             the authorities; `[tor] network` of a node names this file, and every Tor reads it
    a1, ..., r1, ...         one `TorProcess` each: an authority, a relay

The authorities agree every 20 seconds on the members of the network, at times that divide the hour. A relay that
reports too late waits for the next agreement. So all processes start at once, when there is enough time before the
first agreement. The network is up when every process knows every other.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import SystemRandom
from typing import Final, NamedTuple

import msgspec

from veilcast.errors import ConfigError, LocalError, StorageError
from veilcast.net.tor_control import TorControl
from veilcast.net.tor_process import PrivateNetwork, TorProcess, VotingSchedule, find_program, quote_path


class TestnetProcess(NamedTuple):
    """One Tor process of the network, as it is now."""

    name: str
    pid: int | None
    """None if the process is down."""
    knows: int
    """The number of Tor processes of the network that this one knows."""


def start_network(
    directory: Path,
    *,
    relays: int = 4,
    owner: int | None = None,
    within_s: float = 600.0,
    on_progress: Callable[[int, int], object] = lambda known, of: None,
) -> None:
    """Start a network in a directory that has none, and return when it is up; if it does not come up, nothing is left.
    With an `owner`, the id of a process, the network ends by itself when that process ends."""
    if not RELAYS_MIN <= relays <= RELAYS_MAX:
        raise ConfigError(f"a private Tor network has {RELAYS_MIN} to {RELAYS_MAX} relays, not {relays}")
    names = [*(f"a{number + 1}" for number in range(AUTHORITIES)), *(f"r{number + 1}" for number in range(relays))]
    for place in (network_file(directory), *(directory / name for name in names)):
        if place.exists():
            raise StorageError(f"{place} is there already; `veilcast tree testnet down` ends a network")
    find_program()
    gencert = find_program("tor-gencert")
    processes = [TorProcess(directory / name) for name in names]
    deadline = time.monotonic() + within_s
    try:
        ports = _free_ports(2 * len(names))
        plans = [_PlannedProcess(*planned) for planned in zip(processes, ports[::2], ports[1::2], strict=True)]
        with ThreadPoolExecutor(len(names)) as threads:
            fingerprints = threads.map(_make_identity, plans[AUTHORITIES:])
            lines = tuple(threads.map(lambda planned: _make_authority(planned, gencert), plans[:AUTHORITIES]))
        network, bandwidths = PrivateNetwork(lines), _equal_bandwidths(fingerprints)
        for process in processes[:AUTHORITIES]:
            process.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            (process.directory / "bandwidths").write_text(bandwidths)
        _await_time_enough()
        for planned in plans:
            role = planned.authority_options() if planned.process in processes[:AUTHORITIES] else ()
            planned.process.start([*network.options(), *planned.options(), *role, *_owned_by(owner)])
        _await_agreement(processes, deadline, on_progress)
        network_file(directory).write_bytes(msgspec.json.format(msgspec.json.encode(network)))
    except BaseException:
        for process in processes:
            process.end()
        remove_files(directory, names)
        raise
    for process in processes:
        process.detach()


def list_processes(directory: Path) -> list[TestnetProcess]:
    """Return all processes that were started here, alive or dead. Raises `StorageError` if there was no network."""
    return [_look_at(TorProcess(directory / name)) for name in _names(directory)]


def stop_network(directory: Path) -> int:
    """End the living processes and remove the files. Returns the number of processes that were alive."""
    names = _names(directory)
    with ThreadPoolExecutor(len(names)) as threads:
        ended = sum(threads.map(lambda name: TorProcess(directory / name).halt(), names))
    remove_files(directory, names)
    return ended


def network_file(directory: Path) -> Path:
    return directory / "network.json"


def remove_files(directory: Path, names: Sequence[str]) -> None:
    network_file(directory).unlink(missing_ok=True)
    for name in names:
        shutil.rmtree(directory / name, ignore_errors=True)
    try:
        directory.rmdir()
    except OSError:
        return  # Other things are in it, or there is none.


class _PlannedProcess(NamedTuple):
    process: TorProcess
    or_port: int
    dir_port: int

    @property
    def name(self) -> str:
        return self.process.directory.name

    def options(self) -> list[str]:
        return [
            f"Nickname {self.name}",
            "Address 127.0.0.1",
            f"ORPort 127.0.0.1:{self.or_port}",
            f"DirPort 127.0.0.1:{self.dir_port}",
            "SocksPort 0",
            "ExitPolicy reject *:*",
            "AssumeReachable 1",
            "ShutdownWaitLength 0",
            "NumCPUs 1",
        ]

    def authority_options(self) -> list[str]:
        return [*_AUTHORITY, f"V3BandwidthsFile {quote_path(self.process.directory / 'bandwidths')}"]


def _make_identity(planned: _PlannedProcess) -> str:
    """Make the identity keys of a Tor; returns the fingerprint."""
    data = planned.process.directory / "data"
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    data.chmod(0o700)
    said = _run(
        [find_program(), "--list-fingerprint", "--quiet", "-f", "-", "--defaults-torrc", "/dev/null"],
        "\n".join([f"DataDirectory {quote_path(data)}", *planned.options(), "DisableNetwork 1", ""]).encode(),
    )
    return "".join(said.split()[1:])


def _equal_bandwidths(fingerprints: Iterable[str]) -> str:
    """Return a file of measured bandwidths in which all relays are equal; the first line is the time of the
    measurement.

    A Tor chooses relays by bandwidth. Without measurements the bandwidth is what each relay has carried so far: after
    some minutes one relay of eleven had a fifth of all choices, another next to none. Authorities measure no
    authorities.
    """
    return "\n".join([str(_NEVER_STALE), *(f"node_id=${each} bw={BANDWIDTH}" for each in fingerprints), ""])


def _make_authority(planned: _PlannedProcess, gencert: str) -> str:
    """Make the keys of an authority; returns the line by which every Tor knows it."""
    keys = planned.process.directory / "data" / "keys"
    keys.mkdir(mode=0o700, parents=True)
    where = f"127.0.0.1:{planned.dir_port}"
    files = {"-i": "authority_identity_key", "-s": "authority_signing_key", "-c": "authority_certificate"}
    named = [part for flag, file in files.items() for part in (flag, str(keys / file))]
    # The passphrase locks a key that is never used again.
    _run([gencert, "--create-identity-key", "--passphrase-fd", "0", "-m", "12", "-a", where, *named], b"private\n")
    fingerprint = _make_identity(planned)
    certificate = (keys / "authority_certificate").read_text()
    identity = re.search(r"^fingerprint ([0-9A-F]{40})$", certificate, re.MULTILINE)
    if identity is None:
        raise LocalError("tor-gencert made no certificate")
    return f"{planned.name} orport={planned.or_port} no-v2 v3ident={identity[1]} {where} {fingerprint}"


def _run(command: list[str], given: bytes) -> str:
    ended = subprocess.run(command, input=given, capture_output=True, check=False)  # noqa: S603 - what `find` found
    if ended.returncode:
        raise LocalError(f"{Path(command[0]).name} failed: {ended.stderr.decode(errors='replace').strip()[-200:]}")
    return ended.stdout.decode()


def _await_time_enough() -> None:
    """If the authorities vote soon, wait until the vote is over."""
    left = -(time.time() + FIRST.vote_s + FIRST.spread_s) % FIRST.every_s
    if left < SETTLE_S:
        time.sleep(left)


def _await_agreement(processes: list[TorProcess], deadline: float, on_progress: Callable[[int, int], object]) -> None:
    """Return when every Tor knows every other."""
    with ExitStack() as stack:
        controls = [
            stack.enter_context(process.control(max(0.0, deadline - time.monotonic()))) for process in processes
        ]
        missing, reminded = controls, 0.0
        while missing := [control for control in missing if _count_known(control) < len(controls)]:
            on_progress(len(controls) - len(missing), len(controls))
            now = time.monotonic()
            if now > deadline:
                raise LocalError("the private Tor network did not come up in time; nothing is left of it")
            if len(missing) < len(controls) and now - reminded > REMIND_S:
                # A Tor that asked too early waits longer and longer before it asks again; after this, it asks at once.
                for control in missing:
                    control.ask("SIGNAL RELOAD")
                reminded = now
            time.sleep(LOOK_S)
        on_progress(len(controls), len(controls))


def _count_known(control: TorControl) -> int:
    """Return the number of relays in the agreement that this Tor has."""
    return len(re.findall(r"^r ", control.value("ns/all"), re.MULTILINE))


def _look_at(process: TorProcess) -> TestnetProcess:
    try:
        with process.control() as control:
            return TestnetProcess(process.directory.name, int(control.value("process/pid")), _count_known(control))
    except LocalError:
        return TestnetProcess(process.directory.name, None, 0)


def _names(directory: Path) -> list[str]:
    names = sorted(path.parent.name for path in directory.glob("[ar][0-9]*/torrc"))
    if not names:
        raise StorageError(f"{directory} holds no private Tor network; `veilcast tree testnet up` makes one")
    return names


def _owned_by(owner: int | None) -> list[str]:
    return [] if owner is None else [f"__OwningControllerProcess {owner}"]


def _free_ports(count: int) -> list[int]:
    """Return `count` ports that are free on loopback, outside the range that systems assign to outgoing connections:
    keys are made before a port is used, and in these seconds an outgoing connection could take it."""
    rng = SystemRandom()
    found: list[int] = []
    for port in rng.sample(_LISTENED, len(_LISTENED)):
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise LocalError("no ports are free on loopback for a private Tor network; end processes that listen there")


AUTHORITIES: Final = 3
_LISTENED: Final = range(10_000, 32_768)
RELAYS_MIN: Final = 4
RELAYS_MAX: Final = 32
FIRST: Final = VotingSchedule(10, 2, 2)
"""The schedule until the authorities have agreed once."""
SETTLE_S: Final = 5.0
LOOK_S: Final = 0.2
BANDWIDTH: Final = 1_000
"""Bandwidth of every relay, in kilobytes a second, as the authorities are told."""
_NEVER_STALE: Final = 1 << 33
"""A time in the year 2242: Tor ignores measurements that are older than three days."""
REMIND_S: Final = 2.0
_AUTHORITY: Final = (
    "AuthoritativeDirectory 1",
    "V3AuthoritativeDirectory 1",
    "ContactInfo nobody",
    f"TestingV3AuthInitialVotingInterval {FIRST.every_s}",
    f"TestingV3AuthInitialVoteDelay {FIRST.vote_s}",
    f"TestingV3AuthInitialDistDelay {FIRST.spread_s}",
    "TestingDirAuthVoteGuard *",
    "TestingDirAuthVoteHSDir *",
    "MinUptimeHidServDirectoryV2 0",
    # A Tor that calls onion services does so by four relays that it keeps to. In the public network these are four of
    # thousands. Of the few here one that dies is often among them; then every fourth circuit fails, for good, since who
    # is up is assumed; and five failures at each point where a service is met make Tor give it up for two minutes.
    "ConsensusParams vanguards-lite-enabled=0",
)
