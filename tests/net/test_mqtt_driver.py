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

from support.crowd import QUICK, until
from support.papers_of_brokers import Issuer
from support.patience import HANG_S
from support.puppet import Puppet
from veilcast.errors import ConfigError
from veilcast.machine import Address, Connect, Disconnect, Frame
from veilcast.net import ends
from veilcast.net.framing import Framing
from veilcast.net.limits import Limits
from veilcast.net.mqtt import Broker, MqttDriver, trusting
from veilcast.wire.mqtt import Publish, Reader, Version, encode

PACKETS = Framing(Reader, lambda packet: b"", welcome=False)
SIZES = [0, 1, 118, 119, 120, 16_000, 40_000, 3]
SENT = [encode(Publish("a", bytes([index]) * size, 1), Version.MQTT_5) for index, size in enumerate(SIZES)]


class Listener:
    """Whatever a broker says and hears, as bytes: in a thread of its own, since asyncio leaves sockets behind whose
    handshake has failed."""

    def __init__(self) -> None:
        self.streams: list[socket.socket] = []
        """Of those who got through the handshake."""
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
    machine: Puppet, *peers: str, broker: Broker | None = None, limits: Limits = QUICK
) -> AsyncIterator[MqttDriver]:
    broker = broker or Broker(PACKETS)
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
        machine = Puppet()
        async with Listener().listening() as broker, client(machine, broker.address) as driver:
            await until(lambda: machine.peers and broker.streams)
            assert machine.peers == [("up", broker.address)], "who calls a broker waits for no welcome"
            machine.frames = [Frame(broker.address, packet) for packet in SENT]
            driver.touch()
            assert await broker.hear(0, sum(map(len, SENT))) == b"".join(SENT)
            stream = b"".join(reversed(SENT))
            for start in range(0, len(stream), 999):
                await asyncio.to_thread(broker.streams[0].sendall, stream[start : start + 999])
            await until(lambda: len(machine.got) == len(SENT))
            assert machine.got == [(broker.address, packet) for packet in reversed(SENT)]

    run(test())


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"\x30\xff\xff\xff\x7f", ends.TOO_LONG),
        (b"\x30\xff\xff\xff\xff", ends.GARBLED),
        (b"\x30\x80\x00", ends.GARBLED),
        (b"", ends.CLOSED),
    ],
)
def test_a_broker_that_speaks_no_mqtt_or_too_much_is_left_and_called_again(said: bytes, reason: str) -> None:
    async def test() -> None:
        machine = Puppet()
        async with Listener().listening() as broker, client(machine, broker.address) as driver:
            for times in range(1, 4):
                await until(lambda times=times: len(broker.streams) == times)  # type: ignore[misc]
                broker.streams[-1].sendall(said)
                if not said:
                    broker.streams[-1].close()
                await until(lambda times=times: driver.reasons[reason] == times)  # type: ignore[misc]
            await until(lambda: len(machine.peers) == 7)
            assert machine.peers == [("up", broker.address), ("lost", broker.address)] * 3 + [("up", broker.address)]
            assert machine.got == []

    run(test())


def test_a_broker_that_went_away_is_called_until_it_is_back() -> None:
    async def test() -> None:
        machine, broker = Puppet(), Listener()
        async with broker.listening():
            pass
        async with client(machine, broker.address) as driver:
            await until(lambda: driver.reasons[ends.UNREACHABLE] >= 3)
            for _ in range(2):
                machine.peers.clear()
                async with broker.listening():
                    await until(lambda: broker.streams and ("up", broker.address) in machine.peers)
                await until(lambda: machine.peers[-1] == ("lost", broker.address))

    run(test())


def test_two_sessions_have_streams_of_their_own_to_one_broker_and_end_apart() -> None:
    async def test() -> None:
        machine, broker = Puppet(), Listener()
        async with broker.listening():
            old, new = Address(f"1@{broker.address}"), Address(f"2@{broker.address}")
            async with client(machine, old, new) as driver:
                await until(lambda: len(broker.streams) == len(machine.peers) == 2)
                machine.frames = [Frame(old, SENT[1]), Frame(new, SENT[2])]
                driver.touch()
                heard = {await broker.hear(place, 8) for place in range(2)}
                assert heard == {SENT[1][:8], SENT[2][:8]}
                machine.events.append(Disconnect(old))
                driver.touch()
                await until(lambda: len(driver.peers()) == 1)
                assert [(peer.peer, peer.up) for peer in driver.peers()] == [(new, True)]

    run(test())


@pytest.mark.parametrize("host", ["broker.example.org", "127.0.0.1"])
def test_a_broker_with_a_certificate_for_its_name_is_talked_to_in_tls(host: str, tmp_path: Path) -> None:
    async def test() -> None:
        machine, issuer = Puppet(), Issuer(tmp_path)
        way = Broker(PACKETS, trusting(issuer.file), host)
        async with (
            Listener().listening(issuer.server(host)) as broker,
            client(machine, broker.address, broker=way) as driver,
        ):
            await until(lambda: machine.peers and broker.streams)
            machine.frames = [Frame(broker.address, packet) for packet in SENT]
            driver.touch()
            assert await broker.hear(0, sum(map(len, SENT))) == b"".join(SENT)
            await asyncio.to_thread(broker.streams[0].sendall, b"".join(SENT))
            await until(lambda: len(machine.got) == len(SENT))

    run(test())


@pytest.mark.parametrize("reason", [ends.UNTRUSTED, ends.MISNAMED, ends.NOT_TLS])
def test_a_broker_without_the_right_certificate_is_told_nothing(reason: str, tmp_path: Path) -> None:
    async def test() -> None:
        machine, issuer = Puppet(), Issuer(tmp_path)
        trusted = trusting(None if reason == ends.UNTRUSTED else issuer.file)
        way = Broker(PACKETS, trusted, "broker.example.org")
        name = "other.example.org" if reason == ends.MISNAMED else "broker.example.org"
        tls = None if reason == ends.NOT_TLS else issuer.server(name)
        async with Listener().listening(tls) as broker, client(machine, broker.address, broker=way) as driver:
            if reason == ends.NOT_TLS:
                await until(lambda: broker.streams)
                broker.streams[0].sendall(b"\x20\x03\x00\x00\x00")
            await until(lambda: driver.reasons[reason])
            assert ("up", broker.address) not in machine.peers

    run(test())


def test_in_the_clear_nobody_is_called_but_this_machine(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="TLS"):
        Broker(PACKETS).dial(Address("192.0.2.1:1883"))
    assert Broker(PACKETS).dial(Address("[::1]:1883")).address[:2] == ("::1", 1883)
    with pytest.raises(ConfigError, match="no file of certificates"):
        trusting(tmp_path / "missing")
    (tmp_path / "empty").write_text("nothing")
    with pytest.raises(ConfigError, match="no file of certificates"):
        trusting(tmp_path / "empty")
