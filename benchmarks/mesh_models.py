"""How fast are models and sweeps of the mesh, beside plain Python and networkx?

python benchmarks/mesh_models.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from mesh_model_peers import model_sizes, peers, run_rates, sweep_rates
from mesh_model_peers.sweep_rates import SweepTiming


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    found = run(arguments.quick, (lambda _: None) if arguments.json else print)
    if arguments.json:
        print(json.dumps(found))


def run(quick: bool, say: Callable[[str], object]) -> dict[str, Any]:
    """Report each measurement by `say` as it is made, and return all of them. Wrong results raise `LocalError`."""
    found = peers.networkx()
    others = [peers.plain_python()] + ([found] if isinstance(found, peers.PeerModel) else [])
    say("kernels on one core: seconds of processor time, and shell games in swaps a second")
    say("".join(f"{column:>{width}}" for column, width in _COLUMNS.items()) + "  the same by")
    sizes = []
    for size in model_sizes.measure_sizes(_QUICK_SIZES if quick else _SIZES, 2 if quick else 5, others):
        sizes.append(msgspec.to_builtins(size))
        times = (f"{seconds:.4f}" for seconds in (size.graph_s, size.mesh_s, size.cover_s))
        rates = (f"{rate:,.0f}" for rate in (size.events, size.locked, size.swaps))
        row = zip((f"{size.nodes:,}", f"{size.overlay:,}", *times, *rates), _COLUMNS.values(), strict=True)
        same = ", ".join(f"{name}: {seconds:.3f} s" for name, seconds in size.peers_s.items())
        say("".join(f"{cell:>{width}}" for cell, width in row) + f"  {same}")
    missing = [found] if isinstance(found, str) else []
    rounds, runs = (2, 20) if quick else (5, 50)
    playing = run_rates.measure_games(others, swaps=20_000 if quick else 100_000, rounds=rounds)
    running = run_rates.measure_runs(others, runs, rounds)
    say("")
    say("bare swaps a second at 500 nodes, one core")
    _compare(playing, others[-1].name, say)
    say("")
    say("runs a second: overlay of 500 nodes, mesh, covers, attack; loops by processor time, Spark's by the clock")
    sweeping = [
        sweep_rates.measure_sweeps(cores, _QUICK_SWEEPS if quick else _SWEEPS) for cores in ((2,) if quick else (1, 2))
    ]
    running |= {f"veilcast on Spark, local[{one.cores}]": one.rates[run_rates.SETTING.nodes] for one in sweeping}
    _compare(running, others[-1].name, say)
    for reason in missing:
        say(f"no comparison with networkx: {reason}")
    say("")
    _scale(sweeping, say)
    return {
        "cores": os.cpu_count(),
        "growth": sizes,
        "swaps": playing,
        "runs": running,
        "sweeps": msgspec.to_builtins(sweeping, str_keys=True),
        "missing": missing,
    }


def _scale(sweeping: Sequence[SweepTiming], say: Callable[[str], object]) -> None:
    """The same sweeps on one core and on more, and the speed-up."""
    say("sweeps on Spark: runs a second by the clock, and how many times those of one core")
    say("".join(f"{column:>16}" for column in ("nodes", *(f"local[{one.cores}]" for one in sweeping))))
    for nodes, first in sweeping[0].rates.items():
        cells = [f"{one.rates[nodes]:,.0f} ({one.rates[nodes] / first:.2f} x)" for one in sweeping]
        say("".join(f"{cell:>16}" for cell in (f"{nodes:,}", *cells)))
    say(f"Spark and its workers stood after {' and '.join(f'{one.ready_s:.1f}' for one in sweeping)} s")


def _compare(rates: Mapping[str, float], peer: str, say: Callable[[str], object]) -> None:
    """Each rate, and its ratio to that of a peer."""
    for name, rate in sorted(rates.items(), key=lambda entry: entry[1]):
        say(f"{name:28} {rate:>14,.0f} {rate / rates[peer]:>10,.1f} x {peer}")


_COLUMNS: Final = {
    "nodes": 9,
    "mesh": 9,
    "graph s": 9,
    "mesh s": 9,
    "cover s": 9,
    "events/s": 13,
    "locked/s": 13,
    "swaps/s": 13,
}
_SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
_QUICK_SIZES: Final = (1_000, 10_000)
_SWEEPS: Final = {run_rates.SETTING.nodes: 200, 20_000: 20}
"""Seeds by number of nodes: runs of about half a millisecond, and of a few hundredths of a second."""
_QUICK_SWEEPS: Final = {run_rates.SETTING.nodes: 5, 20_000: 1}

if __name__ == "__main__":
    main()
