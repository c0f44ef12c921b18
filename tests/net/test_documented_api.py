"""docs/api.md: its programs run and print what the page says, and it names all that is public."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
from pathlib import Path

import pytest

import veilcast
from support.thread_node import node

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```\n```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("program", "printed"), EXAMPLES)
def test_a_program_of_the_page_prints_what_the_page_says(
    program: str, printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = io.StringIO()
    with node(tmp_path), contextlib.redirect_stdout(out):
        exec(compile(program, "docs/api.md", "exec"), {"__name__": "__main__"})
    assert out.getvalue() == printed


def test_every_program_of_the_page_is_run() -> None:
    assert len(EXAMPLES) == PAGE.count("```python") >= 4


def test_the_page_names_all_that_is_public() -> None:
    names = {*veilcast.__all__}
    for kind in (veilcast.Client, veilcast.BlockingClient, veilcast.Subscription, veilcast.BlockingSubscription):
        names |= {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}
    assert [name for name in sorted(names) if not re.search(rf"`{name}\b", PAGE)] == []
