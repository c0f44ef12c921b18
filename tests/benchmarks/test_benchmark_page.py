"""`docs/benchmarks.md` lists every benchmark, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_lists_every_benchmark() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    first_columns = [line.split("|")[1] for line in page.split("\n## ")[1].splitlines() if line.startswith("| `")]
    listed = [name for column in first_columns for name in re.findall(r"`(\w+)`", column)]
    assert sorted(listed) == sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py"))
