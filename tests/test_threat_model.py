"""docs/threat-model.md: every "cannot" names tests, and all tests that it names exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "threat-model.md").read_text()
CLAIM = re.compile(r"- \*\*(can|cannot|not known)\*\* \((both|hardened|paper)\): ")
PROOF = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_the_threat_model_keeps_its_own_rules() -> None:
    assert breaches(TEXT) == []


@pytest.mark.parametrize(
    ("planted", "problem"),
    [
        ("- **cannot** (both): fly.\n", "names no test"),
        ("- **cannot** (both): fly. `tests/test_threat_model.py::test_of_flying`\n", "test_of_flying is no test"),
        ("- **cannot** (both): fly. `tests/test_flight.py::test_of_flying`\n", "test_of_flying is no test"),
        ("- **can't** (both): fly.\n", "says neither"),
        ("- **can** (tree): fly.\n", "says neither"),
        ("\n## A bird\nFlies.\n", "A bird: nothing is said of what it can do"),
    ],
)
def test_each_planted_breach_is_seen(planted: str, problem: str) -> None:
    assert [breach for breach in breaches(TEXT + planted) if problem in breach]


def breaches(text: str) -> list[str]:
    found = [f"{test} is no test of {file}" for file, test in PROOF.findall(text) if test not in _tests_of(file)]
    for section in text.split("\n## ")[1:]:
        name, *claims = re.split(r"\n(?=- )", section)
        kinds = set()
        for claim in claims:
            match = CLAIM.match(claim)
            if match is None:
                found.append(f"{claim[:40]!r} says neither can, cannot nor not known, of a profile that there is")
                continue
            kinds.add(match[1])
            if match[1] == "cannot" and not PROOF.search(claim):
                found.append(f"{claim[:60]!r} names no test")
        if not {"can", "cannot"} <= kinds:
            found.append(f"{name.splitlines()[0]}: nothing is said of what it can do, or cannot")
    return found


@cache
def _tests_of(file: str) -> set[str]:
    path = ROOT / file
    if not path.is_file():
        return set()
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}
