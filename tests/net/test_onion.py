from __future__ import annotations

import asyncio
import dataclasses
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from support.scripted_machine import ScriptedMachine
from support.tls_parties import wait_until
from support.waits import HANG_S
from veilcast.machine import Address, Connect, Disconnect, Frame
from veilcast.net import close_reasons
from veilcast.net.onion import ONION_LIMITS, DirectDialer, OnionDriver, TorDialer, open_doorway
from veilcast.net.records import WELCOME, encode_record
from veilcast.net.stream_limits import StreamLimits

QUICK = dataclasses.replace(ONION_LIMITS, backoff_s=0.01, backoff_max_s=0.05, handshake_s=HANG_S, review_s=HANG_S)
HOST = "a" * 56 + ".onion"


@asynccontextmanager
async def running(
    machine: ScriptedMachine,
    reach: TorDialer | DirectDialer | None = None,
    limits: StreamLimits = QUICK,
    *,
    door: bool = False,
) -> AsyncIterator[OnionDriver]:
    listen = [open_doorway()] if door else []
    driver = OnionDriver(machine, listen=listen, reach=reach or DirectDialer(), act_on=lambda _: None, limits=limits)
    driver.open()
    try:
        async with asyncio.timeout(HANG_S):
            yield driver
    finally:
        driver.close()


def call(driver: OnionDriver, machine: ScriptedMachine, purpose: str, place: str) -> Address:
    peer = Address(f"{purpose}@{place}")
    machine.events.append(Connect(peer))
    driver.touch()
    return peer


class SocksPort:
    """Listens as Tor does, records the requests, and connects to a driver's doorway."""

    def __init__(self, target: Address | None) -> None:
        self.target = target
        self.asked: list[tuple[bytes, bytes, bytes]] = []
        """User, password, and the name and port asked for."""

    async def __aenter__(self) -> TorDialer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return TorDialer(self._server.sockets[0].getsockname())

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(3) == b"\x05\x01\x02"
        writer.write(b"\x05\x02")
        assert await reader.readexactly(1) == b"\x01"
        user, password = await _counted(reader), await _counted(reader)
        writer.write(b"\x01\x00")
        assert await reader.readexactly(4) == b"\x05\x01\x00\x03"
        self.asked.append((user, password, await _counted(reader) + await reader.readexactly(2)))
        if self.target is None:
            writer.write(b"\x05\x04\x00\x01" + bytes(6))
            writer.close()
            return
        host, port = self.target.split(":")
        there, back = await asyncio.open_connection(host, int(port))
        # The answer, and what the called says at once, may come in one piece.
        writer.write(b"\x05\x00\x00\x01" + bytes(6) + await there.readexactly(4))
        await asyncio.gather(_pour(reader, back), _pour(there, writer))


async def _counted(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly((await reader.readexactly(1))[0])


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
    except ConnectionError:
        pass
    finally:
        writer.close()


def test_callers_have_no_name_but_a_fresh_one_for_each_stream_and_are_answered_on_it() -> None:
    async def test() -> None:
        here, there = ScriptedMachine(), ScriptedMachine()
        async with running(here, door=True) as host, running(there) as caller:
            peers = [call(caller, there, purpose, host.addresses[0]) for purpose in ("hop", "publish-1", "publish-2")]
            await wait_until(lambda: len(there.peers) == len(here.peers) == 3)
            names = [name for _, name in here.peers]
            assert names == ["in:0", "in:1", "in:2"]
            there.frames = [Frame(peer, peer.encode()) for peer in peers]
            caller.touch()
            await wait_until(lambda: len(here.got) == 3)
            assert {source for source, _ in here.got} == set(names)
            here.frames = [Frame(source, b"heard " + data) for source, data in here.got]
            host.touch()
            await wait_until(lambda: len(there.got) == 3)
            assert sorted(there.got) == sorted((peer, b"heard " + peer.encode()) for peer in peers)
            here.events.append(Disconnect(names[0]))
            host.touch()
            await wait_until(lambda: ("up", "in:3") in here.peers)  # It is wanted still, and is somebody else now.

    asyncio.run(test())


def test_every_call_through_tor_has_its_purpose_and_a_fresh_password() -> None:
    async def test() -> None:
        here, there = ScriptedMachine(), ScriptedMachine()
        async with running(here, door=True) as host:
            socks = SocksPort(host.addresses[0])
            async with socks as reach, running(there, reach) as caller:
                peer = call(caller, there, "hop", f"{HOST}:80")
                call(caller, there, "probe-7", f"{HOST}:80")
                await wait_until(lambda: len(there.peers) == 2)
                for event in (Disconnect(peer), Connect(peer)):
                    there.events.append(event)
                caller.touch()
                await wait_until(lambda: len(socks.asked) == 3)
            assert sorted(user for user, _, _ in socks.asked) == [b"hop", b"hop", b"probe-7"]
            assert len({password for _, password, _ in socks.asked}) == 3
            assert {place for _, _, place in socks.asked} == {HOST.encode() + b"\x00\x50"}

    asyncio.run(test())


def test_records_pass_both_ways_through_a_socks_port() -> None:
    async def test() -> None:
        here, there = ScriptedMachine(), ScriptedMachine()
        sizes = [1, 100, 16_384, QUICK.record_max]
        async with (
            running(here, door=True) as host,
            SocksPort(host.addresses[0]) as reach,
            running(there, reach) as caller,
        ):
            peer = call(caller, there, "hop", f"{HOST}:80")
            await wait_until(lambda: there.peers)
            there.frames = [Frame(peer, bytes(size)) for size in sizes]
            caller.touch()
            await wait_until(lambda: len(here.got) == len(sizes))
            here.frames = [Frame(Address("in:0"), data) for _, data in here.got]
            host.touch()
            await wait_until(lambda: len(there.got) == len(sizes))
            assert [len(data) for _, data in there.got] == sizes

    asyncio.run(test())


def test_a_peer_that_tor_cannot_reach_is_lost_and_called_again() -> None:
    async def test() -> None:
        machine, socks = ScriptedMachine(), SocksPort(None)
        async with socks as reach, running(machine, reach) as caller:
            peer = call(caller, machine, "hop", f"{HOST}:80")
            await wait_until(lambda: len(socks.asked) >= 3)
            assert machine.peers[:2] == [("lost", peer)] * 2
            assert set(caller.reasons) == {close_reasons.UNREACHABLE}

    asyncio.run(test())


@pytest.mark.parametrize(
    "place",
    ["127.0.0.1:80", "example.org:80", "a" * 16 + ".onion:80", HOST, f"{HOST}:0", f"x.{HOST}:80", f"{HOST}:99999"],
)
def test_through_tor_nothing_is_called_but_onion_services_of_version_3(place: str) -> None:
    async def test() -> None:
        machine, socks = ScriptedMachine(), SocksPort(None)
        async with socks as reach, running(machine, reach) as caller:
            call(caller, machine, "hop", place)
            await wait_until(lambda: caller.reasons[close_reasons.UNREACHABLE] >= 2)
            assert socks.asked == []

    asyncio.run(test())


@pytest.mark.parametrize("purpose", ["", "@", "a purpose@", "x" * 65 + "@"])
def test_a_call_without_a_purpose_is_refused(purpose: str) -> None:
    async def test() -> None:
        machine = ScriptedMachine()
        async with running(machine) as caller:
            machine.events.append(Connect(Address(f"{purpose}127.0.0.1:80")))
            caller.touch()
            await wait_until(lambda: caller.reasons[close_reasons.UNREACHABLE])

    asyncio.run(test())


def test_without_room_the_peer_with_the_longest_silence_gives_way() -> None:
    async def test() -> None:
        here = ScriptedMachine()
        limits = dataclasses.replace(QUICK, callers=3)
        async with running(here, door=True, limits=limits) as host:
            strangers = [await _stranger(host) for _ in range(3)]
            # The first speaks, so the second is the next to go.
            strangers[0][1].write(encode_record(b"x"))
            await wait_until(lambda: here.got)
            strangers.append(await _stranger(host))
            assert await strangers[1][0].read() == b""
            assert host.numbers()["streams_up"] == 3
            assert host.reasons == {close_reasons.CROWDED: 1}
            assert ("lost", "in:1") in here.peers
            strangers[0][1].write(encode_record(b"y"))
            await wait_until(lambda: len(here.got) == 2)
            assert {source for source, _ in here.got} == {"in:0"}
            for _, writer in strangers:
                writer.close()

    asyncio.run(test())


async def _stranger(driver: OnionDriver) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = driver.addresses[0].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    assert await reader.readexactly(4) == encode_record(WELCOME)
    return reader, writer


def test_a_record_that_is_too_long_ends_the_stream_of_its_sender() -> None:
    async def test() -> None:
        here = ScriptedMachine()
        async with running(here, door=True) as host:
            reader, writer = await _stranger(host)
            writer.write((QUICK.record_max + 1).to_bytes(4, "big"))
            assert await reader.read() == b""
            assert host.reasons == {close_reasons.TOO_LONG: 1}
            writer.close()

    asyncio.run(test())


def test_a_doorway_is_on_loopback_and_closes_with_its_driver() -> None:
    async def test() -> Any:
        async with running(ScriptedMachine(), door=True) as host:
            return host.addresses[0]

    host, port = asyncio.run(test()).split(":")
    assert host == "127.0.0.1"
    with socket.socket() as probe:
        assert probe.connect_ex((host, int(port))) != 0
