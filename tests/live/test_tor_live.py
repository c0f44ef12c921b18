"""Onion streams over real Tor, in a private network that other tests use too (one of its relays may be dead by now)."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.scripted_machine import ScriptedMachine
from support.waits import HANG_S, until
from veilcast.errors import LocalError
from veilcast.machine import Address, Connect, Frame
from veilcast.net import close_reasons, tor, tor_testnet
from veilcast.net.onion import OnionDriver, TorDialer, open_doorway
from veilcast.net.socks import SocksWrapper
from veilcast.net.stream_setup import DialTarget
from veilcast.net.tor import OnionService, Tor

PURPOSES = ("directory", "hop", "publish-1", "publish-2")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a space in its name, as a person's may have."""
    return tmp_path_factory.mktemp("a tor")


@pytest.fixture(scope="module")
def anonymity(tor_network: Path, home: Path) -> Iterator[Tor]:
    with tor.start_tor(home, network=tor_network) as started:
        yield started


class Careless(TorDialer):
    """Gives every call the same user and password."""

    def dial(self, purpose: str, place: str) -> DialTarget:
        host, _, port = place.partition(":")
        return super().dial(purpose, place)._replace(wrap=SocksWrapper(host, int(port), b"one", b"one"))


@pytest.mark.all_only
@pytest.mark.parametrize("careless", [False, True])
def test_every_purpose_has_a_circuit_of_its_own_and_whoever_is_called_learns_no_name(
    anonymity: Tor, careless: bool
) -> None:
    async def test() -> None:
        here, there, door = ScriptedMachine(), ScriptedMachine(), open_doorway()
        service = anonymity.serve(door.getsockname())
        anonymity.await_reachable([service], HANG_S)
        reach = Careless(anonymity.reach.socks) if careless else anonymity.reach
        host = OnionDriver(here, listen=[door], reach=reach, act_on=print)
        caller = OnionDriver(there, listen=[], reach=reach, act_on=print)
        try:
            host.open()
            caller.open()
            peers = [Address(f"{purpose}@{service.address}") for purpose in PURPOSES]
            there.events += map(Connect, peers)
            caller.touch()
            await until(lambda: len(there.peers) >= len(peers))
            assert sorted(name for _, name in here.peers) == [f"in:{number}" for number in range(len(peers))]
            there.frames = [Frame(peer, peer.encode()) for peer in peers]
            caller.touch()
            await until(lambda: len(here.got) == len(peers))
            here.frames = [Frame(source, data) for source, data in here.got]
            host.touch()
            await until(lambda: len(there.got) == len(peers))
            assert all(data == peer.encode() for peer, data in there.got)
            # The test would notice a driver that lets purposes share one.
            assert len(set(circuits(anonymity, service))) == (1 if careless else len(peers))
        finally:
            host.close()
            caller.close()

    asyncio.run(test())


def circuits(anonymity: Tor, service: OnionService) -> list[str]:
    """Circuits of the streams that we called the service with."""
    said = anonymity._control.value("stream-status")
    return re.findall(rf"^\d+ SUCCEEDED (\d+) {re.escape(service.address)}", said, re.MULTILINE)


@pytest.mark.all_only
def test_a_service_with_the_same_key_has_the_same_address_in_its_next_life(anonymity: Tor, home: Path) -> None:
    running = (home / "control").read_text().strip().removeprefix("PORT=")
    with open_doorway() as door, tor.attach_tor(running) as first:
        before = first.serve(door.getsockname())
        assert before.address.partition(".")[0] not in anonymity._control.value("onions/detached")
        assert "ED25519" not in repr(before)
    # It hung on that connection; otherwise there would be two of one address now, and Tor would refuse.
    with open_doorway() as door, tor.attach_tor(running) as second:
        assert second.serve(door.getsockname(), key=before.key) == before


@pytest.mark.all_only
def test_whom_nobody_has_heard_of_cannot_be_reached(anonymity: Tor) -> None:
    async def test() -> None:
        machine = ScriptedMachine()
        caller = OnionDriver(machine, listen=[], reach=anonymity.reach, act_on=print)
        with open_doorway() as door:
            service = anonymity.serve(door.getsockname())
            anonymity._control.ask(f"DEL_ONION {service.address.partition('.')[0]}")
        try:
            caller.open()
            machine.events.append(Connect(Address(f"hop@{service.address}")))
            caller.touch()
            await until(lambda: machine.peers)
            assert set(caller.reasons) == {close_reasons.UNREACHABLE}
        finally:
            caller.close()

    asyncio.run(test())


@pytest.mark.all_only
def test_nothing_of_a_private_network_talks_to_the_world(anonymity: Tor, tor_network: Path) -> None:
    if not Path("/proc/net/tcp").exists():
        pytest.skip("only Linux tells us")
    pids = [part.pid for part in tor_testnet.list_processes(tor_network.parent) if part.pid is not None]
    pids.append(int(anonymity._control.value("process/pid")))
    others = [other for pid in pids for other in connected_to(pid)]
    assert len(others) > len(pids)
    assert {other for other in others if not other.startswith("127.")} == set()


def connected_to(pid: int) -> list[str]:
    """The other ends of the TCP connections of a process."""
    inodes = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()}
    found = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, _, other, state, *rest = line.split()
        if f"socket:[{rest[5]}]" in inodes and state != LISTENING:
            found.append(".".join(str(byte) for byte in reversed(bytes.fromhex(other.partition(":")[0]))))
    return found


LISTENING = "0A"


@pytest.mark.all_only
def test_a_tor_of_our_own_ends_with_whoever_started_it_and_its_end_is_noticed(
    tor_network: Path, tmp_path: Path
) -> None:
    script = (
        "import sys; from pathlib import Path; from veilcast.net import tor\n"
        "with tor.start_tor(Path(sys.argv[1]), network=Path(sys.argv[2])) as made:\n"
        "    print(made._control.value('process/pid'), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "tor"), str(tor_network)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        pid = int(child.stdout.readline())
        os.kill(pid, 0)
        control = (tmp_path / "tor" / "control").read_text().strip().removeprefix("PORT=")
        with tor.attach_tor(control) as second:
            child.send_signal(signal.SIGKILL)
            with pytest.raises(LocalError, match="has ended"):
                asyncio.run(asyncio.wait_for(second.watch(), HANG_S))
