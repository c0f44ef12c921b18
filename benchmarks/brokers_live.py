"""What does secret forwarding cost: an overlay of virtual nodes beside mosquitto and nats-server, carrying the same?

    python benchmarks/brokers_live.py [--quick] [--json]

The overlay is a line of virtual nodes with three replicas each, from the publisher's to the readers', all on this
machine with TLS between all of them, in two processes; in `hardened`, with each way to carry content, with one liar at
each node, and in `paper`. mosquitto (quality of service 1) and nats-server run in the clear: one process, one hop, no
replicas. All have the same members: machines of ours on the same turns of the same event loop, for an owner who keeps
nothing (`brokers`). Every reader must get each publication once, or there is no result.

Publications leave as fast as they are accepted, with a bound on those in flight. Measured are publications a second,
and the processor time of all processes for each delivery. Then one goes out every so often: how long until its readers
have it. Brokers that are not on this machine are left out, and that is said.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator

from brokers import mosquitto, nats
from brokers.broker import Broker, Stage
from brokers.members import Order, member_process, run_publisher, run_readers
from brokers.overlay import OverlayKind, overlay
from relay_mosquitto import CarriedFigures, carry, place, processor_seconds_of
from veilcast.brokers.content.blocks import Strategy


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--quick", action="store_true", help="few publications, fewer contestants")
    arguments = parser.parse_args()
    stage = QUICK if arguments.quick else STAGE
    found: dict[str, CarriedFigures] = {}
    if not arguments.json:
        head(stage)
    for name, figures in contest(stage, {"hardened": OVERLAYS["hardened"]} if arguments.quick else OVERLAYS):
        found[name] = figures
        if not arguments.json:
            show(name, found)
    absent = [name for name in (MOSQUITTO, NATS) if name not in found]
    if arguments.json:
        rows = {name: {**each._asdict(), **times(each, found)} for name, each in found.items()}
        told = {"publications": stage.publications, "readers": stage.readers, "load": os.getloadavg()[0]}
        print(json.dumps({**told, "absent": absent, "contestants": rows}, indent=2))
        return
    for name in absent:
        print(f"{name} is not on this machine (a Debian package), so it is not compared with")
    print(f"load of this machine {os.getloadavg()[0]:.1f}")


def contest(stage: Stage, overlays: dict[str, OverlayKind]) -> Iterator[tuple[str, CarriedFigures]]:
    longer = stage._replace(publications=LONGER * stage.publications)
    if mosquitto.is_here():
        with place() as directory, mosquitto.mosquitto(directory, stage) as (broker, _):
            yield MOSQUITTO, measure(broker, longer)
    if nats.is_here():
        with place() as directory, nats.nats(directory, stage) as broker:
            yield NATS, measure(broker, longer)
    for name, kind in overlays.items():
        with place() as directory, overlay(directory, kind, stage) as broker:
            yield f"overlay, {name}", measure(broker, stage)


def measure(broker: Broker, stage: Stage) -> CarriedFigures:
    with (
        member_process(run_publisher, broker.join, stage.labels) as (publisher, to_publisher),
        member_process(run_readers, broker.join, stage.labels, stage.readers, broker.others) as (readers, to_readers),
    ):
        processes = {**broker.processes, "publisher": publisher, "readers": readers}
        time.sleep(SETTLE_S)
        carry(Order(WINDOW, WINDOW), to_publisher, to_readers)
        before = {who: processor_seconds_of(pid) for who, pid in processes.items()}
        seconds, _ = carry(Order(stage.publications, WINDOW), to_publisher, to_readers)
        deliveries = stage.publications * stage.readers
        cpu_us = {who: (processor_seconds_of(pid) - before[who]) / deliveries * 1e6 for who, pid in processes.items()}
        _, took = carry(Order(PACED, WINDOW, EVERY_S), to_publisher, to_readers)
    took.sort()
    p50, p99 = (took[len(took) * share // 100] * 1e3 for share in (50, 99))
    return CarriedFigures(stage.publications / seconds, deliveries / seconds, cpu_us, p50, p99)


def times(figures: CarriedFigures, found: dict[str, CarriedFigures]) -> dict[str, dict[str, float]]:
    """How many times as slow, as costly and as late as each of the others, who protect nothing."""
    return {
        f"times_{name}": {
            "slower": found[name].publications_s / figures.publications_s,
            "cpu": figures.whole_us / (found[name].whole_us or 1),  # 0 is less than a hundredth of a second in all.
            "p50": (figures.p50_ms or 0) / (found[name].p50_ms or 1),
        }
        for name in (MOSQUITTO, NATS)
        if name in found
    }


def head(stage: Stage) -> None:
    print(f"{stage.publications:,} publications to {stage.readers} readers of {stage.size} labels")
    print(f"{'':26}{'a second':>10}{'cpu us a':>10}{'ms':>14}{'times mosquitto':>26}{'times nats-server':>26}")
    heads = f"{'slower':>10}{'cpu':>8}{'p50':>8}"
    print(f"{'':26}{'published':>10}{'delivery':>10}{'p50':>7}{'p99':>7}{heads}{heads}", flush=True)


def show(name: str, found: dict[str, CarriedFigures]) -> None:
    each = found[name]
    ratios = times(each, found)
    told = "".join(
        f"{one['slower']:10.1f}{one['cpu']:8.1f}{one['p50']:8.1f}" if one else " " * 26
        for one in (ratios.get(f"times_{peer}") for peer in (MOSQUITTO, NATS))
    )
    row = f"{each.publications_s:10,.0f}{each.whole_us:10,.0f}{each.p50_ms:7.1f}{each.p99_ms:7.1f}"
    print(f"{name:26}{row}{told}", flush=True)


WINDOW = 64
LONGER = 10
"""Factor by which fast contestants publish more: processor time is counted in hundredths of a second."""
PACED = 50
EVERY_S = 0.1
SETTLE_S = 1.0
"""Until what is advertised is known at the other end."""
STAGE = Stage(3 * 2, 2, 200, size=3)
QUICK = Stage(2, 1, 60, size=2)
MOSQUITTO = "mosquitto"
NATS = "nats-server"
OVERLAYS = {
    "hardened": OverlayKind("hardened"),
    "hardened, one copy": OverlayKind("hardened", strategy=Strategy.ONE),
    "hardened, coded": OverlayKind("hardened", strategy=Strategy.CODED),
    "hardened, 1 node": OverlayKind("hardened", nodes=1),
    "hardened, liars drop": OverlayKind("hardened", byzantine="drop"),
    "paper": OverlayKind("paper"),
}

if __name__ == "__main__":
    main()
