"""How many copies does a publication of P2's tree cost, by how nodes forward it?

    python benchmarks/tree_messages.py [--json] [--nodes N] [--most COPIES] [--seed SEED]

The real machines in the simulator, with one tree for each subscriber. "trees" keeps the trees apart, as the paper's own
count supposes; "seen" forwards by topic alone and lets each node remember what it has forwarded; "labels" forwards by
topic alone with the labels of the way in the header, as the paper says, and is cut off where it does not end. Beside
each stands s * r, what a way of length r to each of s subscribers would cost, and for the busiest node what a central
server would send. With `--nodes 500` it is the table of the issue and takes some minutes.

Every publication must reach every subscriber, or the count is not taken.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from typing import Final

import msgspec

from veilcast.sim.tree.load import TreeLoad, measure_load
from veilcast.tree.config import PaperRouting


@dataclass(frozen=True)
class Row:
    subscribers: int
    routing: PaperRouting
    publications: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--most", type=int, default=20_000, help="copies after which labels are cut off")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if not arguments.json:
        print(f"{arguments.nodes} nodes, depth {DEPTH}")
        print(f"{'subscribers':>11} {'routing':8} {'publications':>12} {'copies each':>12}", end="")
        print(f"{'s * r':>7} {'busiest':>8} server")
    loads = []
    for row in ROWS:
        load = measure_load(
            arguments.nodes, row.subscribers, row.routing, row.publications, arguments.seed, arguments.most
        )
        loads.append(check_load(load))
        if not arguments.json:
            print(line(load), flush=True)
    if arguments.json:
        print(json.dumps({"depth": DEPTH, "loads": [msgspec.to_builtins(load) for load in loads]}))


def check_load(load: TreeLoad) -> TreeLoad:
    if not load.cut and load.delivered != load.publications * load.subscribers:
        raise SystemExit(f"of {load.publications * load.subscribers} deliveries there were {load.delivered}")
    return load


def line(load: TreeLoad) -> str:
    each = load.copies / load.publications
    copies = f"> {load.copies:,}" if load.cut else f"{each:,.1f}"
    served = load.subscribers * load.publications
    return (
        f"{load.subscribers:11} {load.routing:8} {load.publications:12} {copies:>12} "
        f"{load.subscribers * DEPTH:6} {load.busiest:8,} {served:6,}"
    )


DEPTH: Final = 3
ROWS: Final = (
    *(Row(subscribers, "trees", publications) for subscribers, publications in ((2, 20), (3, 20), (10, 20), (50, 100))),
    *(Row(subscribers, "seen", publications) for subscribers, publications in ((2, 10), (3, 10), (10, 3), (50, 1))),
    Row(2, "labels", 1),
)

if __name__ == "__main__":
    main()
