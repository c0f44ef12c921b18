from __future__ import annotations

import numpy as np
import pytest

from support.relay_users import find_readers, run_small_relay
from veilcast.lab.attack.server.linkage import link_bodies
from veilcast.lab.models.relay import RelayService
from veilcast.lab.models.server_log import DELIVERED


def found(profile: str, seed: int, shuffled: int | None = None) -> float:
    people, shown, _ = run_small_relay(seed, RelayService(profile, batch=8), 6)  # type: ignore[arg-type]
    return find_readers(people, link_bodies(shown.proxy, people.users), shuffled)


def test_the_papers_bodies_link_senders_with_receivers() -> None:
    """The positive control: batches do not help, for the proxy shuffles them itself."""
    people, shown, _ = run_small_relay(1, RelayService("paper", batch=8), 2)
    assert link_bodies(shown.proxy, people.users).sum() == len(shown.proxy.select(DELIVERED))
    assert np.mean([found("paper", seed) for seed in range(3)]) > 0.95


def test_shuffled_subscribers_are_linked_with_no_sender() -> None:
    """The null control."""
    assert np.mean([found("paper", seed, seed) for seed in range(10)]) == pytest.approx(0.5, abs=0.04)
