"""How soon do survivors hear of news again, when four nodes of five are killed at once?

The hardened mesh among certified members who found one another. At one moment most fall silent, and nobody is told: it
is for the others to notice. The publisher survives, and goes on publishing twice a second. Counted are the heartbeats
until every reader that survives has got something that was published after the crash. The claim is ten, in 99 of 100
seeds.

Without links (`--links` has them, and takes ten times as long) a killed node is one that is stopped for ever: the
simulator tells peers of a crash as the end of a stream would, and datagrams have none.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.mass_crash import CLAIM, beats_until_heard


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--links", action="store_true", help="nodes have secured links, with cells at four a second")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    start = time.perf_counter()
    tasks = [(seed, options.links) for seed in range(options.first, options.first + options.seeds)]
    with get_context("spawn").Pool(options.workers) as pool:
        outcomes = pool.starmap(beats_until_heard, tasks, chunksize=1)
    took = time.perf_counter() - start
    heard = sorted(beats for beats, _ in outcomes if beats is not None)
    results: dict[str, Any] = {
        "seeds": len(outcomes),
        "within ten heartbeats": sum(beats <= CLAIM for beats in heard) / len(outcomes),
        "median": statistics.median(heard) if heard else None,
        "worst": heard[-1] if len(heard) == len(outcomes) else None,
        "notes lost": sum(lost for _, lost in outcomes),
        "late seeds": [
            seed for (seed, _), (beats, _) in zip(tasks, outcomes, strict=True) if not (beats and beats <= CLAIM)
        ],
        "seconds": round(took),
    }
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        for name, value in results.items():
            print(f"{name:<26}{value!s:>14}")


if __name__ == "__main__":
    main()
