"""What does privacy cost: publications through a relay's server and proxy, beside mosquitto carrying the same labels?

    python benchmarks/relay_mosquitto.py [--quick] [--json] [--database WHERE]

The relay runs as two commands, with TLS on every stream and SQLite on the disk, in both profiles, and in `hardened`
with and without the proxy's batches. mosquitto runs in the clear, at quality of service 1. One process publishes and
one has all subscribers, each subscribed to all labels; the other subscriptions match no publication. Members of both
brokers are machines of ours on the same turns of the same event loop, for an owner who keeps nothing (`brokers`);
mosquitto also has members in C, its own. Every reader must get each publication once, or there is no result.

Publications go out as fast as they are taken, 256 under way: how many a second, and how much processor time all
processes together need for each delivery, which is what counts on a machine that others use too. Then one goes out
every 20 ms: how long until its readers have it. The members in C tell no times.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from brokers import mosquitto
from brokers.broker import Broker, Stage
from brokers.members import Order, hear, member_process, run_publisher, run_readers
from brokers.relay import RelayKind, relay


class CarriedFigures(NamedTuple):
    """One contestant on one stage. `cpu_us` is for each delivery, by process; latencies are in milliseconds."""

    publications_s: float
    deliveries_s: float
    cpu_us: dict[str, float]
    p50_ms: float | None = None
    p99_ms: float | None = None

    @property
    def whole_us(self) -> float:
        return sum(self.cpu_us.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--quick", action="store_true", help="one small stage")
    parser.add_argument(
        "--database", metavar="WHERE", help="also with the server's records in this PostgreSQL database"
    )
    arguments = parser.parse_args()
    kinds = dict(RELAYS)
    if arguments.database:
        kinds["relay, hardened, PostgreSQL"] = RelayKind("hardened", 100_000, arguments.database)
        kinds["no batches, PostgreSQL"] = RelayKind("hardened", 0, arguments.database)
    stages = QUICK if arguments.quick else STAGES
    found: list[dict[str, Any]] = []
    for stage in stages:
        figures = contest(stage, kinds)
        found.append({**stage._asdict(), "brokers": as_json(figures)})
        if not arguments.json:
            show(stage, figures)
    if arguments.json:
        print(json.dumps({"stages": found, "load": os.getloadavg()[0]}, indent=2))
        return
    if not mosquitto.is_here():
        print("mosquitto is not on this machine (Debian: mosquitto, mosquitto-clients), so there is nothing to compare")
    print(f"load of this machine {os.getloadavg()[0]:.1f}")


def contest(stage: Stage, kinds: dict[str, RelayKind]) -> dict[str, CarriedFigures]:
    found: dict[str, CarriedFigures] = {}
    if mosquitto.is_here():
        longer = stage._replace(publications=LONGER * stage.publications)
        with place() as directory, mosquitto.mosquitto(directory, stage) as (broker, port):
            found[PLAIN] = measure(broker, longer)
        with place() as directory, mosquitto.mosquitto(directory, stage) as (broker, port):
            found[IN_C] = measure_in_c(broker, port, longer)
    for name, kind in kinds.items():
        with place() as directory, relay(directory, kind, stage) as broker:
            found[name] = measure(broker, stage)
    return found


def measure(broker: Broker, stage: Stage) -> CarriedFigures:
    with (
        member_process(run_readers, broker.join, stage.labels, stage.readers, broker.others) as (readers, to_readers),
        member_process(run_publisher, broker.join, stage.labels) as (publisher, to_publisher),
    ):
        processes = {**broker.processes, "publisher": publisher, "readers": readers}
        carry(Order(WINDOW, WINDOW), to_publisher, to_readers)
        before = {who: processor_seconds_of(pid) for who, pid in processes.items()}
        seconds, _ = carry(Order(stage.publications, WINDOW), to_publisher, to_readers)
        deliveries = stage.publications * stage.readers
        cpu_us = {who: (processor_seconds_of(pid) - before[who]) / deliveries * 1e6 for who, pid in processes.items()}
        _, took = carry(Order(PACED, WINDOW, EVERY_S), to_publisher, to_readers)
    took.sort()
    p50, p99 = (took[len(took) * share // 100] * 1e3 for share in (50, 99))
    return CarriedFigures(stage.publications / seconds, deliveries / seconds, cpu_us, p50, p99)


def carry(order: Order, to_publisher: Connection, to_readers: Connection) -> tuple[float, list[float]]:
    """Seconds until all is delivered and answered, and how long each delivery took."""
    to_readers.send(order.publications)
    began = time.perf_counter()
    to_publisher.send(order)
    through = hear(to_publisher)
    last, took = hear(to_readers)
    return max(through, last) - began, took


def measure_in_c(broker: Broker, port: int, stage: Stage) -> CarriedFigures:
    # The other subscriptions are those of a member of ours, who has nothing to do.
    with member_process(run_readers, broker.join, [], 1, broker.others):
        (pid,) = broker.processes.values()
        before = processor_seconds_of(pid)
        took = mosquitto.carry_in_c(port, stage)
        cpu_s = {"broker": processor_seconds_of(pid) - before, "publisher": took.publisher_s, "readers": took.readers_s}
    deliveries = stage.publications * stage.readers
    cpu_us = {who: each / deliveries * 1e6 for who, each in cpu_s.items()}
    return CarriedFigures(stage.publications / took.seconds, deliveries / took.seconds, cpu_us)


def show(stage: Stage, found: dict[str, CarriedFigures]) -> None:
    print(f"{stage.subscriptions:,} subscriptions, {stage.readers} of each label")
    print(f"  {'':28}{'a second':>20}{'processor us a delivery':>38}{'x mosquitto':>14}{'ms':>14}")
    counted = f"{'published':>10}{'delivered':>10}{'broker':>9}{'publisher':>10}{'readers':>9}{'all':>10}"
    print(f"  {'':28}{counted}{'Python':>8}{'C':>6}{'p50':>8}{'p99':>6}")
    for name, each in found.items():
        broker = sum(cpu for who, cpu in each.cpu_us.items() if who not in ("publisher", "readers"))
        parts = f"{broker:9.1f}{each.cpu_us['publisher']:10.1f}{each.cpu_us['readers']:9.1f}{each.whole_us:10.1f}"
        times = "".join(f"{ratio:{width}.1f}" for width, ratio in zip((8, 6), ratios(each, found), strict=False))
        took = "" if each.p50_ms is None else f"{each.p50_ms:8.1f}{each.p99_ms:6.0f}"
        print(f"  {name:28}{each.publications_s:10,.0f}{each.deliveries_s:10,.0f}{parts}{times:14}{took}", flush=True)


def ratios(figures: CarriedFigures, found: dict[str, CarriedFigures]) -> list[float]:
    """The cost of a delivery, in deliveries of mosquitto's: with our members, and with its own."""
    return [figures.whole_us / found[name].whole_us for name in (PLAIN, IN_C) if name in found]


def as_json(found: dict[str, CarriedFigures]) -> dict[str, Any]:
    return {name: {**each._asdict(), "times_mosquitto": ratios(each, found)} for name, each in found.items()}


@contextmanager
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


def processor_seconds_of(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


WINDOW = 256
LONGER = 4
"""Times as many publications for mosquitto: processor time is counted in hundredths of a second."""
PACED = 100
EVERY_S = 0.02
STAGES = [Stage(1_000, 10, 1_000), Stage(100_000, 10, 1_000), Stage(1_000, 1, 1_000)]
QUICK = [Stage(1_000, 10, 400)]
PLAIN = "mosquitto, members in Python"
IN_C = "mosquitto, members in C"
RELAYS = {
    "relay, hardened": RelayKind("hardened", 100_000),
    "relay, hardened, no batches": RelayKind("hardened", 0),
    "relay, paper": RelayKind("paper", 0),
}

if __name__ == "__main__":
    main()
