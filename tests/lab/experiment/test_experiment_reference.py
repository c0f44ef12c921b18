"""docs/experiments.md says what the code says."""

from __future__ import annotations

from pathlib import Path

import msgspec

from support.experiment_reference import EXAMPLE, STRUCTS, render_reference
from veilcast.lab.experiment import definition, dry_run
from veilcast.lab.experiment.kinds import KINDS
from veilcast.lab.runs.table import ENGINES

PAGE = Path(__file__).parents[3] / "docs" / "experiments.md"


def test_the_page_is_the_one_that_the_code_writes() -> None:
    assert PAGE.read_text() == render_reference(), "python tests/support/experiment_reference.py > docs/experiments.md"


def test_every_field_has_a_row() -> None:
    text = PAGE.read_text()
    kinds: list[type[msgspec.Struct]] = [*KINDS.values(), *(kind for kind, _ in STRUCTS.values())]
    for kind in kinds:
        for field in msgspec.structs.fields(kind):
            assert f"| `{field.name}` |" in text


def test_the_example_of_the_page_is_an_experiment_whose_curves_have_their_metrics() -> None:
    dry_run.check_drawn_metrics(
        "example", definition.parse_experiment(EXAMPLE.encode(), "example"), "kernel", ENGINES["kernel"], None
    )
