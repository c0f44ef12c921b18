"""What tests of the lab share: a Java machine that starts quickly and a small experiment."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from veilcast.lab.spark import session
from veilcast.lab.sweep import experiment, plan
from veilcast.lab.sweep.experiment import Experiment


@pytest.fixture(scope="session", autouse=True)
def quick_java() -> Iterator[None]:
    """Compiling little is quickest for a few small jobs."""
    before = os.environ.get("JDK_JAVA_OPTIONS")
    os.environ["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    yield
    if before is None:
        del os.environ["JDK_JAVA_OPTIONS"]
    else:
        os.environ["JDK_JAVA_OPTIONS"] = before


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session("local[2]") as made:
        yield made


@pytest.fixture
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "BUCKET", 2)


@pytest.fixture(scope="session")
def two_cells() -> Experiment:
    """Two cells, a figure and a published number."""
    return experiment.parse(
        b"""
title = "Two"
claim = "more is more"
reading = "as it stands"
minutes = 0.1
seeds = 4
base = { cover = "one" }
axes = { mu = [0.25, 0.5] }

[[figures]]
name = "overlay"
title = "Overlay"
x = "mu"
x_label = "mu"
y_label = "nodes"
curves = [{ label = "PF", metric = "overlay" }]

[[published]]
what = "overlay at a half"
value = 50.0
within = 2
figure = "overlay"
curve = "PF"
x = 0.5
""",
        "two",
    )
