"""Timing on a shared machine: candidates take turns in short rounds, and the best round counts."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar

Clock: TypeAlias = Callable[[], float]
T = TypeVar("T")


def measure_time(work: Callable[[], T], clock: Clock = time.process_time) -> tuple[float, T]:
    """Seconds, and the result. By default it is the processor time of this process."""
    gc.collect()
    start = clock()
    done = work()
    return max(clock() - start, 1e-9), done


def best_time(work: Callable[[], object], rounds: int) -> float:
    return min(measure_time(work)[0] for _ in range(rounds))


def race_times(
    works: Mapping[str, Callable[[], object]], rounds: int, clock: Clock = time.process_time
) -> dict[str, float]:
    """The best time of each candidate. They take turns, so that a busy minute does not affect one of them alone."""
    found: dict[str, float] = {}
    for _ in range(rounds):
        for name, work in works.items():
            seconds, _ = measure_time(work, clock)
            found[name] = min(found.get(name, seconds), seconds)
    return found
