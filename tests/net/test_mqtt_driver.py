from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from support.broker_certificates import CertificateIssuer
from support.scripted_machine import ScriptedMachine
from support.tls_parties import QUICK_LIMITS, wait_until
from support.waits import HANG_S
from veilcast.errors import ConfigError
from veilcast.machine import Address, Connect, Disconnect, Frame
from veilcast.net import close_reasons
from veilcast.net.mqtt import MqttDriver, MqttSetup, make_tls_context
from veilcast.net.outbound import HostAddress
from veilcast.net.stream_limits import StreamLimits
from veilcast.net.stream_setup import FrameFormat
from veilcast.wire.mqtt import PacketReader, PublishPacket, Version, encode

PACKETS = FrameFormat(PacketReader, lambda packet: b"", has_welcome=False)
SIZES = [0, 1, 118, 119, 120, 16_000, 40_000, 3]
SENT = [encode(PublishPacket("a", bytes([index]) * size, 1), Version.MQTT_5) for index, size in enumerate(SIZES)]


class Listener:
    """The bytes that a broker sends and receives, in a thread of its own: asyncio leaves sockets open whose handshake
    failed."""

    def __init__(self) -> None:
        self.streams: list[socket.socket] = []
        """Streams that completed the handshake."""
        self.port = 0

    @property
    def address(self) -> Address:
        return Address(f"127.0.0.1:{self.port}")

    @contextlib.asynccontextmanager
    async def listening(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Listener]:
        server = socket.create_server(("127.0.0.1", self.port))
        self.port = server.getsockname()[1]
        thread = threading.Thread(target=self._accept, args=(server, tls))
        thread.start()
        try:
            yield self
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            server.close()
            for stream in self.streams:
                stream.close()
            self.streams.clear()

    async def hear(self, place: int, size: int) -> bytes:
        heard = b""
        while len(heard) < size:
            heard += await asyncio.to_thread(self.streams[place].recv, size - len(heard))
        return heard

    def _accept(self, server: socket.socket, tls: ssl.SSLContext | None) -> None:
        while True:
            try:
                stream, _ = server.accept()
            except OSError:
                return
            stream.settimeout(HANG_S)
            if tls is not None:
                try:
                    stream = tls.wrap_socket(stream, server_side=True)
                except OSError:
                    stream.close()
                    continue
            self.streams.append(stream)


@contextlib.asynccontextmanager
async def client(
    machine: ScriptedMachine, *peers: str, broker: MqttSetup | None = None, limits: StreamLimits = QUICK_LIMITS
) -> AsyncIterator[MqttDriver]:
    broker = broker or MqttSetup(PACKETS)
    driver = MqttDriver(machine, broker=broker, act_on=lambda _: None, limits=limits)
    driver.open()
    try:
        machine.events += [Connect(Address(peer)) for peer in peers]
        driver.touch()
        async with asyncio.timeout(HANG_S):
            yield driver
    finally:
        driver.close()


def run(test: Any) -> None:
    asyncio.run(test)


def test_packets_travel_as_they_are_both_ways_and_are_cut_out_again() -> None:
    async def test() -> None:
        machine = ScriptedMachine()
        async with Listener().listening() as broker, client(machine, broker.address) as driver:
            await wait_until(lambda: machine.peers and broker.streams)
            assert machine.peers == [("up", broker.address)], "who calls a broker waits for no welcome"
            machine.frames = [Frame(broker.address, packet) for packet in SENT]
            driver.touch()
            assert await broker.hear(0, sum(map(len, SENT))) == b"".join(SENT)
            stream = b"".join(reversed(SENT))
            for start in range(0, len(stream), 999):
                await asyncio.to_thread(broker.streams[0].sendall, stream[start : start + 999])
            await wait_until(lambda: len(machine.got) == len(SENT))
            assert machine.got == [(broker.address, packet) for packet in reversed(SENT)]

    run(test())


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"\x30\xff\xff\xff\x7f", close_reasons.TOO_LONG),
        (b"\x30\xff\xff\xff\xff", close_reasons.GARBLED),
        (b"\x30\x80\x00", close_reasons.GARBLED),
        (b"", close_reasons.CLOSED),
    ],
)
def test_a_broker_that_speaks_no_mqtt_or_too_much_is_left_and_called_again(said: bytes, reason: str) -> None:
    async def test() -> None:
        machine = ScriptedMachine()
        async with Listener().listening() as broker, client(machine, broker.address) as driver:
            for times in range(1, 4):
                await wait_until(lambda times=times: len(broker.streams) == times)  # type: ignore[misc]
                broker.streams[-1].sendall(said)
                if not said:
                    broker.streams[-1].close()
                await wait_until(lambda times=times: driver.reasons[reason] == times)  # type: ignore[misc]
            await wait_until(lambda: len(machine.peers) == 7)
            assert machine.peers == [("up", broker.address), ("lost", broker.address)] * 3 + [("up", broker.address)]
            assert machine.got == []

    run(test())


def test_a_broker_that_went_away_is_called_until_it_is_back() -> None:
    async def test() -> None:
        machine, broker = ScriptedMachine(), Listener()
        async with broker.listening():
            pass
        async with client(machine, broker.address) as driver:
            await wait_until(lambda: driver.reasons[close_reasons.UNREACHABLE] >= 3)
            for _ in range(2):
                machine.peers.clear()
                async with broker.listening():
                    await wait_until(lambda: broker.streams and ("up", broker.address) in machine.peers)
                await wait_until(lambda: machine.peers[-1] == ("lost", broker.address))

    run(test())


def test_two_sessions_have_streams_of_their_own_to_one_broker_and_end_apart() -> None:
    async def test() -> None:
        machine, broker = ScriptedMachine(), Listener()
        async with broker.listening():
            old, new = Address(f"1@{broker.address}"), Address(f"2@{broker.address}")
            async with client(machine, old, new) as driver:
                await wait_until(lambda: len(broker.streams) == len(machine.peers) == 2)
                machine.frames = [Frame(old, SENT[1]), Frame(new, SENT[2])]
                driver.touch()
                heard = {await broker.hear(place, 8) for place in range(2)}
                assert heard == {SENT[1][:8], SENT[2][:8]}
                machine.events.append(Disconnect(old))
                driver.touch()
                await wait_until(lambda: len(driver.peers()) == 1)
                assert [(peer.peer, peer.up) for peer in driver.peers()] == [(new, True)]

    run(test())


@pytest.mark.parametrize("host", ["broker.example.org", "127.0.0.1"])
def test_a_broker_with_a_certificate_for_its_name_is_talked_to_in_tls(host: str, tmp_path: Path) -> None:
    async def test() -> None:
        machine, issuer = ScriptedMachine(), CertificateIssuer(tmp_path)
        way = MqttSetup(PACKETS, make_tls_context(issuer.file), host)
        async with (
            Listener().listening(issuer.server(host)) as broker,
            client(machine, broker.address, broker=way) as driver,
        ):
            await wait_until(lambda: machine.peers and broker.streams)
            machine.frames = [Frame(broker.address, packet) for packet in SENT]
            driver.touch()
            assert await broker.hear(0, sum(map(len, SENT))) == b"".join(SENT)
            await asyncio.to_thread(broker.streams[0].sendall, b"".join(SENT))
            await wait_until(lambda: len(machine.got) == len(SENT))

    run(test())


def test_a_brokers_name_is_looked_up_for_each_call_and_its_addresses_take_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name has no address at first, then one where nobody listens beside the right one, and later another."""
    known: list[list[int]] = []
    asked = list[tuple[Any, Any]]()

    def resolve(host: str, port: int, **_: object) -> list[Any]:
        asked.append((host, port))
        if len(asked) == 1:
            raise socket.gaierror("no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", each)) for each in known[-1]]

    monkeypatch.setattr("veilcast.net.outbound.socket.getaddrinfo", resolve)

    async def test() -> None:
        machine, issuer = ScriptedMachine(), CertificateIssuer(tmp_path)
        way = MqttSetup(PACKETS, make_tls_context(issuer.file), "mq.example.org")
        tls, address = issuer.server("mq.example.org"), Address("1@mq.example.org:8883")
        with socket.create_server(("127.0.0.1", 0)) as closed:
            nobody = closed.getsockname()[1]
        async with Listener().listening(tls) as old, Listener().listening(tls) as new:
            known.append([nobody, old.port])
            async with client(machine, address, broker=way) as driver:
                await wait_until(lambda: old.streams)
                assert driver.reasons[close_reasons.UNREACHABLE] >= 1, "no such name"
                known.append([new.port])
                old.streams[0].close()
                await wait_until(lambda: new.streams)
        assert set(asked) == {("mq.example.org", 8883)}
        assert len(asked) >= 3

    run(test())


def test_an_answer_that_comes_after_the_call_was_given_up_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = []
    monkeypatch.setattr("veilcast.net.outbound.look_up_host", lambda loop, name, done: answers.append(done))

    async def test() -> None:
        machine = ScriptedMachine()
        way = MqttSetup(PACKETS, make_tls_context(None), "mq.example.org")
        address = Address("mq.example.org:8883")
        async with Listener().listening() as broker, client(machine, address, broker=way) as driver:
            await wait_until(lambda: answers)
            machine.events.append(Disconnect(address))
            driver.touch()
            await wait_until(lambda: not driver.peers())
            answers[0]([HostAddress(socket.AF_INET, ("127.0.0.1", broker.port))])
            await asyncio.sleep(0)
            assert not broker.streams

    run(test())


@pytest.mark.parametrize("reason", [close_reasons.UNTRUSTED, close_reasons.MISNAMED, close_reasons.NOT_TLS])
def test_a_broker_without_the_right_certificate_receives_nothing(reason: str, tmp_path: Path) -> None:
    async def test() -> None:
        machine, issuer = ScriptedMachine(), CertificateIssuer(tmp_path)
        trusted = make_tls_context(None if reason == close_reasons.UNTRUSTED else issuer.file)
        way = MqttSetup(PACKETS, trusted, "broker.example.org")
        name = "other.example.org" if reason == close_reasons.MISNAMED else "broker.example.org"
        tls = None if reason == close_reasons.NOT_TLS else issuer.server(name)
        async with Listener().listening(tls) as broker, client(machine, broker.address, broker=way) as driver:
            if reason == close_reasons.NOT_TLS:
                await wait_until(lambda: broker.streams)
                broker.streams[0].sendall(b"\x20\x03\x00\x00\x00")
            await wait_until(lambda: driver.reasons[reason])
            assert ("up", broker.address) not in machine.peers

    run(test())


def test_without_tls_only_this_computer_is_called(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="TLS"):
        MqttSetup(PACKETS).dial(Address("192.0.2.1:1883"))
    assert MqttSetup(PACKETS).dial(Address("[::1]:1883")).address[:2] == ("::1", 1883)
    with pytest.raises(ConfigError, match="no file of certificates"):
        make_tls_context(tmp_path / "missing")
    (tmp_path / "empty").write_text("nothing")
    with pytest.raises(ConfigError, match="no file of certificates"):
        make_tls_context(tmp_path / "empty")
