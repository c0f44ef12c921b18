"""Brokers that refuse, lie, flood and fall silent, over real sockets: the node continues, and waiting publications
leave once the broker is honest."""

from __future__ import annotations

import itertools
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from support.broker_certificates import CertificateIssuer
from support.live_foil import LiveFoil, has_mosquitto, run_with_foil
from support.live_network import wait_for_status
from support.waits import pause
from veilcast.cli.local.network import NetworkPlan
from veilcast.wire.mqtt import (
    ConnackPacket,
    DisconnectPacket,
    Packet,
    PubackPacket,
    PublishPacket,
    SubackPacket,
    Version,
    encode,
)

PLAN = NetworkPlan(nodes=3, mode="foil", subscribers=1, epoch_us=3_600_000_000)
FIVE = Version.MQTT_5
CALLS = 24

pytestmark = [pytest.mark.all_only, pytest.mark.skipif(not has_mosquitto(), reason="mosquitto is not installed")]


def said(*packets: Packet) -> bytes:
    return b"".join(encode(packet, FIVE) for packet in packets)


FLOOD = said(
    ConnackPacket(), *(PublishPacket("veilcast/on/" + "0" * 32, bytes(1100), number) for number in range(1, 3000))
)
WORST: list[Callable[[Random], bytes]] = [
    lambda rng: b"",
    lambda rng: rng.randbytes(400),
    lambda rng: b"\x30\xff\xff\xff\x7f" + bytes(1 << 16),
    lambda rng: said(ConnackPacket(code=0x87)),
    lambda rng: said(ConnackPacket(qos_max=0)),
    lambda rng: said(ConnackPacket(packet_max=20)),
    lambda rng: said(ConnackPacket(), ConnackPacket()),
    lambda rng: said(ConnackPacket(), PubackPacket(rng.randrange(1, 65_536))),
    lambda rng: said(ConnackPacket(), SubackPacket(rng.randrange(1, 4), (0x80,) * rng.randrange(1, 9))),
    lambda rng: said(ConnackPacket(), *(SubackPacket(number, (1,) * size) for number in (1, 2) for size in (1, 2))),
    lambda rng: said(ConnackPacket(), DisconnectPacket(0x8E)),
    lambda rng: FLOOD,
]


def test_no_broker_brings_a_node_down_and_what_waits_goes_out_at_an_honest_one(disk: Path) -> None:
    async def test(house: LiveFoil) -> None:
        house.broker.end()
        with hostile(house.net.hosts[0]) as calls:
            await house.start(*house.names())
            reader = house.subscribers[0]
            async with house.client(reader) as me:
                await me.subscribe(house.net.topic, keep=True).start()
            await house.publish_prices(*(500.0 + step for step in range(10)))
            async with house.client(house.publisher) as me:
                while len(calls) < CALLS:
                    assert (await me.status()).outbox == 10
                    await pause()
            for machine in house.machines.values():
                assert machine.sizes()["unacknowledged"] <= 10 * 10 + 10, "no more than was to be sent"
        house.broker.start()
        assert await house.read(reader, 10) == [str(500 + step) for step in range(10)]
        assert house.machines[reader].refusals()

    run_with_foil(disk, PLAN, test)


@pytest.mark.parametrize("right", [True, False])
def test_a_broker_in_tls_asks_for_a_login_and_who_has_none_is_told(right: bool, disk: Path) -> None:
    certificate, key = CertificateIssuer(disk).certify("broker.example.org")
    settings = f"certfile {certificate}\nkeyfile {key}\npassword_file {disk}/passwords\n"
    login = disk / "login"
    login.write_text(f"somebody\n{'open sesame' if right else 'guessed'}\n")
    login.chmod(0o600)
    make_password(disk / "passwords", "somebody", "open sesame")

    async def test(house: LiveFoil) -> None:
        for name in house.names():
            file = house.file(name)
            way = f'name = "broker.example.org"\nca = "{disk}/authorities.pem"\nlogin = "{login}"\n'
            file.write_text(file.read_text().replace("mqtt://", "mqtts://").replace("[foil]\n", f"[foil]\n{way}"))
        await house.start(*house.names())
        if right:
            await house.subscribe(house.subscribers[0])
            await house.publish_prices(500.0)
            assert await house.read(house.subscribers[0], 1) == ["500"]
            return
        async with house.client(house.publisher) as me:
            told = await wait_for_status(me, lambda status: any("refused" in each for each in status.hindrances))
            assert "guessed" not in str(told)

    run_with_foil(disk / "n", PLAN, test, settings=settings)


def make_password(path: Path, user: str, password: str) -> None:
    path.touch(0o600)
    subprocess.run(["mosquitto_passwd", "-b", str(path), user, password], check=True, capture_output=True)


@contextmanager
def hostile(address: str) -> Iterator[list[int]]:
    """Each caller meets the next kind of hostility; the list grows by one for each call."""
    host, _, port = address.rpartition(":")
    server = socket.create_server((host, int(port)))
    calls, kept, rng, turns = list[int](), list[socket.socket](), Random(9), itertools.cycle(WORST)

    def accept() -> None:
        while True:
            try:
                stream, _ = server.accept()
            except OSError:
                return
            with suppress(OSError):
                stream.settimeout(1)
                stream.sendall(next(turns)(rng))
            if len(calls) % 2:
                stream.close()
            else:
                kept.append(stream)
            calls.append(len(calls))

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield calls
    finally:
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        server.close()
        for stream in kept:
            stream.close()
