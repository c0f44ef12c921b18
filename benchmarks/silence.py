"""Can an observer of every wire tell when something happens?

24 nodes on real sockets, in phases of a second each (`veilcast.lab.runs.mesh.traffic_day`): idle, publishing, the edge
of an
epoch with all joins to the meshes of the next, changes of keys. A gradient-boosted classifier sees the gaps between
datagrams and their sizes, for each node and quarter of a second (`veilcast.lab.attack.observer.cadence`), and is to
tell busy
phases from idle ones; how it is judged is in `veilcast.lab.measure.permutation_test`. As a control the same in the
papers'
profile, where publishing shows. A town has 32 phases and takes a minute. The experiment `mesh-silence` asks the same of
many towns with the lab's own classifier, and also for the roles.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from veilcast.lab.experiment.mesh_params import MeshWires
from veilcast.lab.measure.permutation_test import PhaseSamples, judge_classifier
from veilcast.lab.runs.mesh.traffic_day import SECOND_US, TrafficDay, run_day
from veilcast.lab.runs.mesh.wires_live import PHASE_COUNT, PHASE_KINDS, make_population, sample_bursts, select_phases


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="towns of the hardened profile, a minute each (7)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    found = {
        "hardened": watch(HARDENED, options.rounds),
        "paper": watch(PAPER, 1),
    }
    if options.json:
        print(json.dumps({**found, "load": os.getloadavg()[0]}, indent=2))
        return
    for name, town in found.items():
        sizes = f"{len(town['sizes'])} sizes" if len(town["sizes"]) > 1 else "one size"
        print(f"{name}: {town['phases']} phases, {town['datagrams']:,} datagrams of {sizes}")
        for kind, row in town["told"].items():
            verdict = "silent" if row["silent"] else "shows"
            print(
                f"  idle or {kind:<14}{row['area']:>7.3f}   by chance {row['low']:.3f} to {row['high']:.3f}   {verdict}"
            )
    print(f"load of this machine {os.getloadavg()[0]:.1f}")


def watch(params: MeshWires, rounds: int) -> dict[str, Any]:
    """Several towns, one after the other, each with roles, slots and an order of phases of its own."""
    people = make_population(params)
    days = [run_day(people, seed, PHASE_COUNT) for seed in range(1, rounds + 1)]
    seen = [sample_bursts(each, number * PHASE_COUNT) for number, each in enumerate(days)]
    columns = zip(*(samples for samples, _ in seen), strict=True)
    samples, kinds = PhaseSamples(*map(np.concatenate, columns)), np.concatenate([kind for _, kind in seen])
    told = {}
    for kind in (*PHASE_KINDS, "anything"):
        verdict = judge_classifier(select_phases(samples, kinds, kind), rounds, fit=fit_boosted_trees)
        told[kind] = {**verdict._asdict(), "silent": verdict.is_silent}
    return {
        "datagrams": sum(len(each.size) for each in days),
        "sizes": sorted({int(size) for each in days for size in np.unique(each.size)}),
        "phases": rounds * PHASE_COUNT,
        "samples": len(samples.labels),
        "delivered": sum(each.delivered for each in days) / rounds,
        "on_time": sum(map(on_time, days)) / rounds,
        "told": told,
    }


def fit_boosted_trees(
    features: NDArray[np.float64], happened: NDArray[np.bool_]
) -> Callable[[NDArray[np.float64]], Any]:
    model = HistGradientBoostingClassifier(max_iter=100, learning_rate=0.05, max_leaf_nodes=15, random_state=1)
    with threadpool_limits(1):
        model.fit(features, happened)
    return lambda rows: model.predict_proba(rows)[:, 1]


def on_time(seen: TrafficDay) -> float:
    """The share of gaps within a hundredth of the period."""
    order = np.lexsort((seen.t_us, seen.dst, seen.src))
    same = (np.diff(seen.src[order]) == 0) & (np.diff(seen.dst[order]) == 0)
    gaps = np.diff(seen.t_us[order])[same]
    return float(np.mean(np.abs(gaps - PERIOD_US) < PERIOD_US / 100))


PERIOD_US = SECOND_US // 16
HARDENED = MeshWires(nodes=24, ratio=0.25, wire="cells", kappa=0.78)
PAPER = MeshWires(nodes=24, ratio=0.9, wire="prompt")

if __name__ == "__main__":
    main()
