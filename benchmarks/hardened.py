"""What does the hardened mesh cost beside the papers' baseline, for each note: messages, hops, and the share of
subscribers it reaches?

500 nodes of degree 8, one publisher, a tenth subscribers; covers as `--privacy high` has them. The meshes have formed
before the first note. Results with a tenth of the nodes offline, and with all online. The 30 seeds of the record take a
quarter of an hour on two cores. `--insiders 0.1` has a tenth of the nodes be neither readers nor covers, which is the
world in which the cover was chosen.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import mean
from typing import Any

from veilcast.authority.topic_record import COVER_SHARES

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.hardened_costs import NoteCost, measure_costs


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4, help="worlds of each kind (4)")
    parser.add_argument("--insiders", type=float, default=0.0, help="the share of nodes that do not cover (0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    results = {
        name: beside(offline, options.insiders, range(options.seeds))
        for name, offline in (("a tenth offline", 0.1), ("all online", 0.0))
    }
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        show(results)


def beside(offline: float, insiders: float, seeds: range) -> dict[str, Any]:
    baseline, hardened = (
        averages(measure_costs(profile, 8, COVER_SHARES["high"], offline, insiders, seeds))
        for profile in ("paper", "hardened")
    )
    ratio = hardened["messages"] / baseline["messages"]
    later = hardened["hops"] - baseline["hops"]
    return {
        "baseline": baseline,
        "hardened": hardened,
        "targets": {
            f"messages at most {RATIO_MAX} times the baseline's": (round(ratio, 2), ratio <= RATIO_MAX),
            f"at most {LATER_MAX} hops more": (round(later, 2), later <= LATER_MAX),
            "every subscriber reached": (hardened["reached"], hardened["reached"] == 1 == baseline["reached"]),
        },
    }


def averages(found: list[NoteCost]) -> dict[str, float]:
    return {name: round(mean(getattr(cost, name) for cost in found), 3) for name in NoteCost._fields}


def show(results: dict[str, dict[str, Any]]) -> None:
    for situation, result in results.items():
        print(f"{situation:<44}" + "".join(f"{name:>11}" for name in NoteCost._fields))
        for profile in ("baseline", "hardened"):
            print(f"  {profile:<42}" + "".join(f"{value:>11}" for value in result[profile].values()))
        for target, (value, holds) in result["targets"].items():
            print(f"  {target:<42}{value:>11}  {'holds' if holds else 'MISSED'}")


RATIO_MAX, LATER_MAX = 4, 7

if __name__ == "__main__":
    main()
