"""What does foiling cost at a broker: events a second with and without fakes, by the same client in the same run?

    python benchmarks/foil_mqtt.py [--quick] [--json]

One publisher and one reader, each a machine on the driver of a live node, at one mosquitto in the clear at quality of
service 1; their owner keeps nothing. "plain" is an MQTT member without keys or fakes; "sealed" is one that foils, with
sealed and signed bodies of one size and no fakes: against it the others are measured, since all else is the same.

First the reader wants all of a random walk: with k_p fakes an event is k_p + 1 messages. Then values are anywhere and
the reader wants an eighth of them: with k_s fake subscriptions it is brought what falls into those as well, up to
(k_p + 1)(k_s + 1) messages where there was one. Every subscribed event must arrive once, or there is no result.

The processor time of both members and of the broker together is what counts on a machine that others use too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import tempfile
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from brokers.broker import free_ports
from brokers.mqtt import MqttMember, drive
from veilcast.authority import issuer
from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.authority.topic_record import TopicRecord
from veilcast.cli.local.mosquitto import Mosquitto
from veilcast.errors import LocalError
from veilcast.foil.config import AttributeConfig, FoilConfig
from veilcast.foil.member import FoilMember
from veilcast.machine import Address, Delivered, Event, Publication, Record, Settled, Waiting
from veilcast.topics import All, Conjunction, Label, Range, Reals, Schema


class FoilContestant(NamedTuple):
    name: str
    k_p: int = 0
    k_s: int = 0
    plain: bool = False
    eighth: bool = False


class FoilFigures(NamedTuple):
    events_s: float
    cpu_us: float
    """Processor time of both members and the broker, for each event."""
    sent: float
    """Messages of the publisher for each event."""
    brought: float
    """Messages that the reader got for each event."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--quick", action="store_true", help="few events")
    arguments = parser.parse_args()
    events = 60 if arguments.quick else 400
    try:
        found = {each.name: contest(each, events) for each in CONTESTANTS}
    except LocalError as error:
        raise SystemExit(str(error)) from error
    rows = [row(each, found[each.name], found[BASE_EIGHTH if each.eighth else BASE]) for each in CONTESTANTS]
    if arguments.json:
        print(json.dumps({"events": events, "load": os.getloadavg()[0], "rows": rows}, indent=2))
        return
    print(f"{'':28}{'events/s':>10}{'cpu us':>10}{'times':>8}{'sent':>8}{'brought':>9}{'times':>8}{'at most':>9}")
    for each in rows:
        print(
            f"{each['name']:28}{each['events_s']:10,.0f}{each['cpu_us']:10,.0f}{each['cpu_times']:8.2f}"
            f"{each['sent']:8.2f}{each['brought']:9.2f}{each['brought_times']:8.2f}{each['at_most']:9}"
        )
    print(f"{events:,} events each; load of this machine {os.getloadavg()[0]:.1f}")


def row(contestant: FoilContestant, figures: FoilFigures, base: FoilFigures) -> dict[str, Any]:
    return {
        **contestant._asdict(),
        **figures._asdict(),
        "cpu_times": figures.cpu_us / base.cpu_us,
        "brought_times": figures.brought / base.brought,
        "at_most": (contestant.k_p + 1) * (contestant.k_s + 1),
    }


def contest(contestant: FoilContestant, events: int) -> FoilFigures:
    with tempfile.TemporaryDirectory() as directory:
        address = f"127.0.0.1:{free_ports(1)[0]}"
        broker = Mosquitto(Path(directory) / "broker", address)
        broker.start()
        try:
            return asyncio.run(_carry(contestant, Address(address), broker, events))
        finally:
            broker.end()


class FoilMemberOwner:
    """The owner of one member: stores and acknowledges at once, and counts."""

    def __init__(self, member: Any) -> None:
        self.member, self.driver = member, drive(member, self._act_on)
        self.under_way, self.ready, self.got, self.news = 0, False, list[bytes](), asyncio.Event()
        self.driver.open()

    def _act_on(self, event: Event) -> None:
        match event:
            case Record(record):
                self.member.stored(record, self.driver.now())
            case Settled():
                self.under_way -= 1
            case Waiting(_, until_us):
                self.ready = until_us is not None
            case Delivered(_, note):
                self.got.append(note.publication.body)
                self.member.acknowledge(note.id, self.driver.now())
        self.driver.touch()
        self.news.set()


async def _carry(contestant: FoilContestant, address: Address, broker: Mosquitto, events: int) -> FoilFigures:
    async with asyncio.timeout(PATIENCE_S):
        publisher, reader = (FoilMemberOwner(_member(contestant, address, place)) for place in range(2))
        reader.member.subscribe(_interest(contestant), reader.driver.now())
        reader.driver.touch()
        await _until(reader, lambda: reader.ready)
        # Once through, and what is said once, when members meet, is over.
        _say(publisher, contestant, 512.0, 0)
        await _until(reader, lambda: len(reader.got) == 1)
        await asyncio.sleep(SETTLE_S)
        values = _values(contestant, events)
        began, cpu_us = time.perf_counter(), _cpu_us(broker)
        before = publisher.driver.counts.sent, reader.driver.counts.received
        for number, value in enumerate(values, start=1):
            await _until(publisher, lambda: publisher.under_way < WINDOW)
            _say(publisher, contestant, value, number)
        wanted = [
            number for number, value in enumerate(values, start=1) if not contestant.eighth or LOW <= value <= HIGH
        ]
        await _until(reader, lambda: len(reader.got) > len(wanted))
        await _until(publisher, lambda: not publisher.under_way)
        taken_s, cpu_us = time.perf_counter() - began, _cpu_us(broker) - cpu_us
        assert sorted(map(int, reader.got)) == [0, *wanted], "lost, or twice"
        sent, brought = publisher.driver.counts.sent - before[0], reader.driver.counts.received - before[1]
        for owner in (publisher, reader):
            owner.driver.close()
        return FoilFigures(events / taken_s, cpu_us / events, sent / events, brought / events)


def _say(publisher: FoilMemberOwner, contestant: FoilContestant, value: float, number: int) -> None:
    label = Label(TOPIC).pair
    pairs = (label,) if contestant.plain else (label, ("price", value))
    publisher.under_way += 1
    publisher.member.publish(Publication(pairs, b"%d" % number), publisher.driver.now())
    publisher.driver.touch()


def _values(contestant: FoilContestant, events: int) -> list[float]:
    rng, value, values = random.Random(1), 512.0, list[float]()
    for _ in range(events):
        value = rng.uniform(0, 1024) if contestant.eighth else min(1000.0, max(24.0, value + rng.gauss(0, 1)))
        values.append(value)
    return values


async def _until(owner: FoilMemberOwner, true: Any) -> None:
    while not true():
        owner.news.clear()
        await owner.news.wait()


def _member(contestant: FoilContestant, address: Address, place: int) -> Any:
    if contestant.plain:
        return MqttMember(f"member-{place}", address)
    config = FoilConfig(
        k_p=contestant.k_p,
        k_s=contestant.k_s,
        window=256,
        records_max=1024,
        keep_us=1_000_000,
        attributes={"price": AttributeConfig(deviation=1.0)},
    )
    return FoilMember(config, KEYRINGS[place], address, random.SystemRandom(), os.urandom, time.time_ns() // 1000)


def _interest(contestant: FoilContestant) -> Conjunction:
    label = Label(TOPIC)
    return All(label, Range("price", LOW, HIGH)) if contestant.eighth else label


def _keyrings() -> tuple[Keyring, Keyring]:
    authority = issuer.create(HOUR_US, os.urandom)
    authority = issuer.declare(authority, TopicRecord(TOPIC, Schema((Reals("price", 0.0, 1024.0, 12),))), os.urandom)
    epoch, rings = epoch_of(time.time_ns() // 1000, HOUR_US), list[Keyring]()
    for name, role in (("publisher", "publisher"), ("reader", "subscriber")):
        authority, ring = issuer.grant_ready(authority, name, [(TOPIC, role)], epoch, 3, os.urandom)  # type: ignore[list-item]
        rings.append(ring)
    return rings[0], rings[1]


def _cpu_us(broker: Mosquitto) -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    theirs = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return (own.ru_utime + own.ru_stime + theirs) * 1e6


TOPIC: Final = "stocks/acme"
HOUR_US: Final = 3_600_000_000
WINDOW: Final = 64
PATIENCE_S: Final = 120.0
SETTLE_S: Final = 2.0
LOW: Final = 448.0
HIGH: Final = 575.75
BASE: Final = "sealed"
BASE_EIGHTH: Final = "an eighth, sealed"
CONTESTANTS: Final = [
    FoilContestant("plain MQTT", plain=True),
    FoilContestant(BASE),
    FoilContestant("k_p = 1", 1),
    FoilContestant("k_p = 4", 4),
    FoilContestant("k_p = 9", 9),
    FoilContestant(BASE_EIGHTH, eighth=True),
    FoilContestant("an eighth, k_p = 4", 4, eighth=True),
    FoilContestant("an eighth, k_p = 4, k_s = 3", 4, 3, eighth=True),
]
KEYRINGS: Final = _keyrings()

if __name__ == "__main__":
    main()
