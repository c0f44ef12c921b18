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
