"""How many messages of each kind does one mesh node handle in a second?

Decode, check, act, and encode what follows from it, by process time, the best of three rounds. A message in a heartbeat
is measured with that heartbeat; after every few frames the node sends its own. The second column is the same work
without the cryptography: signatures, proofs of lots, key agreements and seals answer from memory. Adverts and calls are
believed once for all their copies; "checked" forgets that before each.
"""

from __future__ import annotations

import argparse
import json

from one_node import hardened, papers
from one_node.bench import rate, rate_without


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    as_json = parser.parse_args().json
    works = (*papers.WORKS, *hardened.WORKS)
    results = {work.name: {"a second": rate(work), "without crypto": rate_without(work)} for work in works}
    if as_json:
        print(json.dumps(results, indent=2))
    else:
        show(results)


def show(results: dict[str, dict[str, int | None]]) -> None:
    print(f"{'one node, messages a second':<52}{'':>10}{'without crypto':>16}")
    for name, found in results.items():
        bare = found["without crypto"]
        print(f"  {name:<50}{found['a second']:>10,}" + (f"{bare:>16,}" if bare else ""))


if __name__ == "__main__":
    main()
