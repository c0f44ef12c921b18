"""Fixtures of all tests: one hypothesis profile, a seeded entropy, a disk that is quick to flush, the lab's Spark, and
a private Tor network.

Only the fixtures that need the lab or Tor import them: no other test waits for Spark.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from veilcast.machine import Entropy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from veilcast.lab.experiment.definition import Experiment

from support import claim_lists, inherited_signals, schedule

# Before anything is started: workers of pytest-xdist import this file too.
inherited_signals.restore_signals()

settings.register_profile("veilcast", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("veilcast")


@pytest.fixture
def entropy() -> Entropy:
    """Key bytes that are the same in every run."""
    return random.Random(2026).randbytes


@pytest.fixture(scope="session")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Path]]:
    """Makes private directories, in memory where there is such a place: databases flush often."""
    memory, numbers = Path("/dev/shm"), count()
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path_factory.mktemp("disks")) as base:

        def fresh() -> Path:
            directory = Path(base) / str(next(numbers))
            directory.mkdir(mode=0o700)
            return directory

        yield fresh


@pytest.fixture
def disk(disks: Callable[[], Path]) -> Path:
    return disks()


@pytest.fixture(scope="session")
def tor_network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file of a private Tor network that is up, for `[tor] network` and `tor.started`. Others use it too."""
    from support import private_tor

    if reason := private_tor.reason_to_skip():
        pytest.skip(reason)
    base, alone = tmp_path_factory.getbasetemp(), "PYTEST_XDIST_WORKER" not in os.environ
    yield private_tor.shared_network(base if alone else base.parent)
    if alone:
        private_tor.end_network(base)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    from veilcast.lab.spark import session

    with session("local[2]") as made:
        yield made


@pytest.fixture
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    from veilcast.lab.experiment import plan

    monkeypatch.setattr(plan, "BUCKET_SEEDS", 2)


@pytest.fixture(scope="session")
def two_cells() -> Experiment:
    """Two cells, a figure and a published number."""
    from veilcast.lab.experiment import definition

    return definition.parse_experiment(
        b"""
title = "Two"
kind = "mesh.flows"
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
place = "P0 5"
value = 50.0
within = 2
figure = "overlay"
curve = "PF"
x = 0.5
""",
        "two",
    )


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.pluginmanager.hasplugin("dsession"):
        # All workers are done, and none of them could know that.
        from support import private_tor

        private_tor.end_network(session.config._tmp_path_factory.getbasetemp())  # type: ignore[attr-defined]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """A test that leaves a signal ignored fails itself, and not the next test whose child ignores Ctrl-C."""
    left = inherited_signals.ignored_signals()
    inherited_signals.restore_signals()
    assert not left, f"{item.nodeid} leaves {', '.join(left)} ignored or blocked"


def pytest_configure() -> None:
    # Java starts quickest, for a few small jobs, if it compiles little.
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="also run what needs Debian packages or more time")
    parser.addoption(
        "--heavy", action="store_true", help="everything: all of --all, and what takes long and has a lighter form"
    )
    parser.addoption("--write-pages", action="store_true", help="write the parts of docs/ that follow from the code")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two workers more than there are cores: tests of live networks wait, and others can run meanwhile."""
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores + 2, int(memory_gb / 1.5)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests that one worker runs together, and the order in which they begin."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return schedule.scope_of(nodeid)

    # The collection has the order already.
    config.option.loadscopereorder = False
    return Scheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[claim_lists.COLLECTED] = list(items)
    heavy = config.getoption("--heavy")
    skips = {
        "all_only": (heavy or config.getoption("--all"), pytest.mark.skip(reason="runs under ./run test --all")),
        "heavy": (heavy, pytest.mark.skip(reason="takes long; runs under ./run test --heavy")),
    }
    for item in items:
        for mark, (wanted, skip) in skips.items():
            if mark in item.keywords and not wanted:
                item.add_marker(skip)
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: schedule.place_of(item.nodeid))
