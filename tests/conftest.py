"""What every test shares: one hypothesis profile, a seeded entropy, and a disk that is quick to flush."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings

from veilcast.machine import Entropy

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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="also run what needs Debian packages or more time")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--all"):
        return
    skip = pytest.mark.skip(reason="runs under ./run test --all")
    for item in items:
        if "all_only" in item.keywords:
            item.add_marker(skip)
