"""A broker's view of foiling members: everything it sees, by mosquitto's own client and its own log."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.live_foil import LiveFoil, has_mosquitto, run_with_foil
from support.live_network import wait_for_status
from veilcast.cli.local.network import NetworkPlan

HOUR_US = 3_600_000_000
PLAN = NetworkPlan(nodes=3, mode="foil", subscribers=2, epoch_us=HOUR_US)
PRICES = [500.0 + step for step in range(20)]
EVERYTHING = ("-t", "#", "-q", "1")

pytestmark = [pytest.mark.all_only, pytest.mark.skipif(not has_mosquitto(), reason="mosquitto is not installed")]


def test_a_broker_sees_events_of_one_size_under_keyed_names_and_nothing_of_what_is_said(disk: Path) -> None:
    async def test(house: LiveFoil) -> None:
        with listening(house, "-t", "+/on/#", "-t", "end") as spy:
            await house.start(*house.names())
            for reader in house.subscribers:
                await house.subscribe(reader)
            await house.publish_prices(*PRICES[:-1])
            async with house.client(house.publisher) as me:
                await me.publish(house.net.topic, "attack at dawn", price=PRICES[-1])
                await wait_for_status(me, lambda status: not status.outbox)
            subprocess.run(["mosquitto_pub", *place(house), "-t", "end", "-q", "1", "-m", "0"], check=True)
            assert spy.stdout is not None
            out = "".join(iter(spy.stdout.readline, "0 end 30\n"))
        # A reader that has just subscribed asks for what it may have missed: an event may be sent again, as it was.
        seen = {tuple(line.split(" ")) for line in out.splitlines() if re.match(r"[01] ", line)}
        assert len(seen) == 10 * len(PRICES)
        assert {retained for retained, _, _ in seen} == {"0"}
        assert len({len(payload) for _, _, payload in seen}) == 1, "all are of one size, true or not"
        assert len({payload for _, _, payload in seen}) == len(seen)
        for _, topic, _ in seen:
            assert re.fullmatch(r"veilcast/on/[0-9a-f]{32}(/[01]){12}", topic)
        everything = out + (disk / "broker" / "log").read_text() + stored(disk)
        for word in ("stocks", "acme", "price", "dawn", "attack"):
            assert word.encode().hex() not in out
            assert word not in everything

    run_with_foil(disk, PLAN, test, settings="log_type all\n")


def test_client_ids_tell_nothing_are_new_for_every_member_and_the_same_when_it_comes_back(disk: Path) -> None:
    async def test(house: LiveFoil) -> None:
        await house.start(*house.names())
        for reader in house.subscribers:
            await house.subscribe(reader)
        before = ids(disk)
        assert len(before) == 3
        await house.stop(house.publisher)
        await house.start(house.publisher)
        await house.publish_prices(1.0)
        async with house.client(house.publisher) as me:
            await wait_for_status(me, lambda status: not status.outbox)
        after = ids(disk)
        assert set(after) == set(before), "who starts anew comes back to its session"
        assert all(re.fullmatch(r"[0-9a-f]{20}", each) for each in after)

    run_with_foil(disk, PLAN, test, settings="log_type all\n")


def test_nothing_is_left_retained_at_the_broker(disk: Path) -> None:
    async def test(house: LiveFoil) -> None:
        await house.start(*house.names())
        for reader in house.subscribers:
            await house.subscribe(reader)
        await house.publish_prices(*PRICES)
        for reader in house.subscribers:
            await house.read(reader, len(PRICES))
        found = subprocess.run(
            ["mosquitto_sub", *place(house), *EVERYTHING, "--retained-only", "-W", "1"], capture_output=True, text=True
        )
        assert found.stdout == ""

    run_with_foil(disk, PLAN, test)


def test_a_stranger_at_the_same_broker_can_neither_read_nor_be_read(disk: Path) -> None:
    """In the paper's profile names are plain, and any client can publish under them."""

    async def test(house: LiveFoil) -> None:
        (reader,) = house.subscribers
        await house.start(*house.names())
        await house.subscribe(reader)
        topic = "veilcast/on/stocks%2Facme" + "/0" * 12
        for options in (["-q", "0"], ["-q", "1"], ["-q", "2"], ["-q", "1", "-r"]):
            said = ["mosquitto_pub", *place(house), "-t", topic, "-m", "junk" * 300, *options]
            subprocess.run(said, check=True)
        # What is longer than a stream takes would end it, and come again on the next, for ever.
        long = ["mosquitto_pub", *place(house), "-t", topic, "-q", "1", "-s"]
        subprocess.run(long, input=b"junk" * 25_000, check=True)
        await house.publish_prices(*PRICES[:3])
        assert await house.read(reader, 3) == ["500", "501", "502"]
        assert house.machines[reader].refused["MalformedError"] == 4

    run_with_foil(disk, NetworkPlan(nodes=3, mode="foil", profile="paper", subscribers=1, epoch_us=HOUR_US), test)


def ids(disk: Path) -> Counter[str]:
    said = (disk / "broker" / "log").read_text()
    return Counter(re.findall(r"New client connected from \S+ as (\S+) ", said))


def stored(disk: Path) -> str:
    return "".join(file.read_bytes().decode("latin-1") for file in (disk / "broker").glob("mosquitto.db*"))


def place(house: LiveFoil) -> list[str]:
    host, _, port = house.net.hosts[0].rpartition(":")
    return ["-h", host, "-p", port]


@contextmanager
def listening(house: LiveFoil, *options: str) -> Iterator[subprocess.Popen[str]]:
    """mosquitto's own client, which reports in its debug output when it is subscribed."""
    command = ["stdbuf", "-oL", "mosquitto_sub", *place(house), "-q", "1", "-F", "%r %t %x", "-d", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as spy:
        assert spy.stdout is not None
        try:
            while "Subscribed" not in spy.stdout.readline():
                assert spy.poll() is None
            yield spy
        finally:
            spy.kill()
