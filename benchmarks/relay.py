"""What does privacy cost: publications through a relay's server and proxy, beside mosquitto carrying the same labels?

    python benchmarks/relay.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from brokers import mosquitto
from brokers.members import Order, hear, member_process, publishing, reading
from brokers.relay import Broker, relay

import time


class Stage(NamedTuple):
    """`readers` want every one of the labels; the rest of the subscriptions wants what nobody publishes."""

    subscriptions: int
    readers: int

    @property
    def others(self) -> int:
        return self.subscriptions - self.readers * LABELS


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--quick", action="store_true", help="one small stage")
    parser.add_argument("--only")
    arguments = parser.parse_args()
    stages = [Stage(1_000, 10)] if arguments.quick else STAGES
    size = 400 if arguments.quick else 2_000
    for stage in stages:
        print(stage)
        for name in CONTESTANTS:
            if arguments.only and arguments.only not in name: continue
            print(name, measure(name, stage, size))


def measure(name: str, stage: Stage, count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        if name == IN_C:
            place = stack.enter_context(mosquitto.mosquitto(Path(directory)))
            stack.enter_context(member_process(reading, place.broker.join, [], 1, names("other", stage.others)))
            pid = place.broker.processes["broker"]
            before = spent(pid)
            took = mosquitto.carry_in_c(place.port, names("label", LABELS), stage.readers, count * 4)
            return {"seconds": took.seconds, "rate": 4 * count / took.seconds, "cpu": {"broker": (spent(pid) - before)/count/4/stage.readers*1e6, "publisher": took.publisher_s/count/4/stage.readers*1e6, "readers": took.readers_s/count/4/stage.readers*1e6}}
        settings = CONTESTANTS[name]
        labels = names("label", LABELS)
        if settings is None:
            broker = stack.enter_context(mosquitto.mosquitto(Path(directory))).broker
            others = names("other", stage.others)
        else:
            broker = stack.enter_context(relay(Path(directory), *settings, labels, stage.readers, stage.others))
            others = []
        began = time.perf_counter()
        reader, to_reader = stack.enter_context(member_process(reading, broker.join, labels, stage.readers, others))
        publisher, to_publisher = stack.enter_context(member_process(publishing, broker.join, labels))
        setup = time.perf_counter() - began
        processes = {**broker.processes, "publisher": publisher, "readers": reader}

        def carry(order: Order) -> tuple[float, dict[str, float], list[float]]:
            before = {who: spent(pid) for who, pid in processes.items()}
            began = time.perf_counter()
            to_reader.send(order.count)
            to_publisher.send(order)
            through = hear(to_publisher)
            last, took = hear(to_reader)
            return max(through, last) - began, {who: spent(pid) - before[who] for who, pid in processes.items()}, took

        carry(Order(WINDOW, WINDOW))
        seconds, cpu, _ = carry(Order(count, WINDOW))
        _, _, took = carry(Order(100, WINDOW, 0.02))
        took.sort()
        to_reader.send(None)
        to_publisher.send(None)
        return {"setup": setup, "rate": count / seconds, "cpu": {who: each / count / stage.readers * 1e6 for who, each in cpu.items()},
                "p50": took[len(took) // 2] * 1e3, "p99": took[len(took) * 99 // 100] * 1e3, "total": sum(cpu.values()) / count / stage.readers * 1e6}


def names(kind: str, count: int) -> list[str]:
    return [f"{kind}/{number}" for number in range(count)]


def spent(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


LABELS = 25
WINDOW = 256
STAGES = [Stage(1_000, 1), Stage(1_000, 10), Stage(100_000, 10)]
IN_C = "mosquitto, members in C"
CONTESTANTS: dict[str, Any] = {
    IN_C: None,
    "mosquitto, members in Python": None,
    "relay, hardened": ("hardened", 100_000),
    "relay, hardened, without batches": ("hardened", 0),
    "relay, paper": ("paper", 0),
}

if __name__ == "__main__":
    main()
