"""The assignment of tests to workers, and the order in which workers take them.

1. All tests that need Spark go to one worker: a second one would start Java too.
2. A file of the lab or of the benchmarks, and a file with a fixture for all its tests, goes to one worker: others
   would set up again what the file shares.
3. Every other test stands alone.

Large scopes come first, so that no worker is left with one at the end. Tests that stand alone are shuffled, always in
the same way: tests that wait for a live network come between those that compute, and no test can rely on its
neighbours.
"""

from __future__ import annotations

import zlib
from functools import cache
from pathlib import Path
from typing import Final


def scope_of(nodeid: str) -> str:
    """The name of what one worker runs as a whole."""
    file = nodeid.split("::")[0]
    text = _text(file)
    if any(word in text for word in _SPARK):
        return "spark"
    if file.startswith(("tests/lab/", "tests/benchmarks/")) or 'scope="module"' in text:
        return file
    return nodeid


def place_of(nodeid: str) -> tuple[int, int]:
    """Sorts tests. Those of a scope stay in their order, for sorting is stable."""
    scope = scope_of(nodeid)
    rank = 0 if scope == "spark" else 2 if scope == nodeid else 1
    return rank, zlib.crc32(scope.encode())


@cache
def _text(file: str) -> str:
    path = _ROOT / file
    return path.read_text() if path.is_file() else ""


_ROOT: Final = Path(__file__).parents[2]
_SPARK: Final = ("spark: SparkSession", "from veilcast.lab.spark import")
