"""The three runs of the tests, and the claims that each of them adds: the lists in `docs/tests.md`.

./run test tests --write-pages -k the_page_lists_every_claim    writes the lists again
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest


def lists_of(items: Iterable[pytest.Item]) -> dict[str, str]:
    """The text of each list: a heading for each file, then a claim a line."""
    claims: dict[str, dict[str, dict[str, int]]] = {mark: {} for mark in MARKS}
    cases: dict[tuple[str, str], int] = {}
    for item in items:
        file, _, name = item.nodeid.partition("::")
        name = name.partition("[")[0]
        cases[file, name] = cases.get((file, name), 0) + 1
        for mark in reversed(MARKS):
            if mark in item.keywords:
                counts = claims[mark].setdefault(file, {})
                counts[name] = counts.get(name, 0) + 1
                break
    return {
        mark: "".join(_chapter(file, names, cases) for file, names in sorted(claims[mark].items())) for mark in MARKS
    }


def replace_list(page: str, mark: str, text: str) -> str:
    """The page with another list between the two comments that name the mark."""
    begin, end = f"<!-- {mark}: begin -->\n", f"<!-- {mark}: end -->"
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    assert found, f"the page has no place for {mark}"
    return before + begin + text + end + after


def _chapter(file: str, names: dict[str, int], cases: dict[tuple[str, str], int]) -> str:
    lines = [f"- `{file}`"]
    for name, count in names.items():
        claim = name.rpartition("::")[2].removeprefix("test_").replace("_", " ")
        whole = cases[file, name]
        lines.append(f"  - {claim}{f' ({count} of {whole} cases)' if count < whole else ''}")
    return "\n".join(lines) + "\n"


COLLECTED: Final = pytest.StashKey[list[pytest.Item]]()
"""All tests that were collected, before any was deselected."""
MARKS: Final = ("all_only", "heavy")
PAGE: Final = Path(__file__).parents[2] / "docs" / "tests.md"
