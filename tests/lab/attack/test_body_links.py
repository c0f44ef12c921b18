from __future__ import annotations

import numpy as np
import pytest

from support.clients import readers_found, served
from veilcast.lab.attack.bodies import links
from veilcast.lab.kernels.ledger import DELIVERED
from veilcast.lab.kernels.relay import Service


def found(profile: str, seed: int, shuffled: int | None = None) -> float:
    people, shown, _ = served(seed, Service(profile, batch=8), 6)  # type: ignore[arg-type]
    return readers_found(people, links(shown.proxy, people.users), shuffled)


def test_the_papers_bodies_link_who_sent_them_with_who_got_them() -> None:
    """The positive control: batches do not help, for the proxy shuffles them itself."""
    people, shown, _ = served(1, Service("paper", batch=8), 2)
    assert links(shown.proxy, people.users).sum() == len(shown.proxy.of(DELIVERED))
    assert np.mean([found("paper", seed) for seed in range(3)]) > 0.95


def test_bodies_that_are_sealed_anew_link_nobody() -> None:
    assert found("hardened", 1) == 0.5


def test_shuffled_readers_are_linked_with_nobody() -> None:
    """The null control."""
    assert np.mean([found("paper", seed, seed) for seed in range(10)]) == pytest.approx(0.5, abs=0.04)
