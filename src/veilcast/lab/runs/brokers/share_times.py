"""How long it takes to split a key into shares, and to reconstruct it (P4, Fig. 8), by the code that brokers run.

The times are real, so no two runs are equal. The threshold is floor(n/2) + 1 of n.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from veilcast.crypto.secret import Secret
from veilcast.crypto.shamir import reconstruct, split
from veilcast.errors import LocalError
from veilcast.lab.experiment.broker_params import BrokersTimes
from veilcast.lab.experiment.params import Measure


def run(params: BrokersTimes, seed: int, data: Path | None = None) -> list[Measure]:
    """Milliseconds of processor time, as the mean over many keys."""
    rng = np.random.default_rng(seed)
    found = []
    for n in params.counts:
        k = n // 2 + 1
        keys = [Secret(rng.bytes(params.key_bits // 8)) for _ in range(_KEYS)]
        splits = _measure_ms(lambda: [split(key, k, n, rng.bytes) for key in keys])  # noqa: B023  It is called here.
        whole = [split(key, k, n, rng.bytes) for key in keys]
        dealt = [[shares[at] for at in rng.permutation(n)[:k]] for shares in whole]
        back = _measure_ms(lambda: [reconstruct(shares, k) for shares in dealt])  # noqa: B023
        if any(reconstruct(shares, k).reveal() != key.reveal() for shares, key in zip(dealt, keys, strict=True)):
            raise LocalError(f"{k} of {n} shares did not reconstruct the key")
        found += [Measure("", "split_ms", n, splits), Measure("", "reconstruct_ms", n, back)]
    return found


def _measure_ms(work: Callable[[], object]) -> float:
    work()  # The scheme makes its tables once.
    start = time.process_time()
    work()
    return (time.process_time() - start) * 1e3 / _KEYS


_KEYS: Final = 100
