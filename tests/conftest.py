"""What every test shares: one hypothesis profile, and a seeded entropy."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings

from veilcast.machine import Entropy

settings.register_profile("veilcast", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("veilcast")


@pytest.fixture
def entropy() -> Entropy:
    """Key bytes that are the same in every run."""
    return random.Random(2026).randbytes


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="also run what needs Debian packages or more time")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--all"):
        return
    skip = pytest.mark.skip(reason="runs under ./run test --all")
    for item in items:
        if "all_only" in item.keywords:
            item.add_marker(skip)
