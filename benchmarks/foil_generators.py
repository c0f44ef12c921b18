"""How many candidates a second does each generator of fakes make, and how many does a plain loop of the same law?

    python benchmarks/foil_generators.py [--json] [--streams N]

Arrays foil all streams at once, step after step, as the lab does; a loop in plain Python with `random` foils them one
by one. A live publisher has one stream and chance that is secret: the last column is the time that one of its events
takes. The best of several turns counts, by the time that the process had of a core. Both sides must have the truth
where they say it is, and fakes on average as far from it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from veilcast.foil.generators.base import Generator, foil_series
from veilcast.foil.generators.categories import BucketFakes, EntropyFakes, Pmf
from veilcast.foil.generators.moran import MoranTrajectories
from veilcast.foil.generators.movers import BlockMoves, GaussianMoves, SignFlipMoves, StudentMoves
from veilcast.foil.generators.noise import NoiseFakes
from veilcast.foil.generators.trajectory import Trajectories
from veilcast.foil.generators.window import WindowFakes
from veilcast.foil.random_source import SecretRandom

Series = Sequence[float]
Loop = Callable[[Series, random.Random], tuple[list[list[float]], list[int]]]
"""One stream: its values to candidates and positions."""


@dataclass
class GeneratorRate:
    name: str
    arrays_per_s: float
    loop_per_s: float
    times_the_loop: float
    live_us_per_event: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--streams", type=int, default=5000)
    streams: int = parser.parse_args().streams
    as_json: bool = parser.parse_args().json
    results = [measure_generator(name, generator, loop, streams) for name, generator, loop in contenders()]
    if as_json:
        print(
            json.dumps({"streams": streams, "steps": STEPS, "k": K, "generators": [asdict(each) for each in results]})
        )
        return
    print(f"{streams} streams of {STEPS} steps with {K} fakes each, best of {TURNS} turns; candidates a second of core")
    print(f"{'':24}{'arrays':>14}{'plain loop':>14}{'times':>8}{'us a live event':>18}")
    for each in results:
        rates = f"{each.arrays_per_s:14,.0f}{each.loop_per_s:14,.0f}{each.times_the_loop:8.1f}"
        print(f"{each.name:24}{rates}{each.live_us_per_event:18.0f}")


def contenders() -> list[tuple[str, Generator[Any, Any], Loop]]:
    return [
        ("noise", NoiseFakes(K, 1.0), noise_loop),
        ("window", WindowFakes(K, 1.0), window_loop),
        ("entropy", EntropyFakes(K, PMF), entropy_loop),
        ("buckets, cache of one", BucketFakes(K, PMF), buckets_loop),
        ("trajectories, Gaussian", Trajectories(K, GaussianMoves(0, 1)), gaussian_loop),
        ("trajectories, Student", Trajectories(K, StudentMoves(0, 1, FREEDOM)), student_loop),
        ("trajectories, blocks", Trajectories(K, BlockMoves(HISTORY, BLOCK)), blocks_loop),
        ("sign-flip", Trajectories(K, SignFlipMoves()), signflip_loop),
        ("Moran, Gaussian", MoranTrajectories(Trajectories(K, GaussianMoves(0, 1)), RATE), moran_loop),
    ]


def measure_generator(name: str, generator: Generator[Any, Any], loop: Loop, streams: int) -> GeneratorRate:
    codes = name.startswith(("entropy", "buckets"))
    rng = np.random.default_rng(1)
    values = (
        PMF.codes_at(rng.random((streams, STEPS)))
        if codes
        else np.cumsum(rng.standard_normal((streams, STEPS)), axis=1)
    )
    some = values[: max(1, streams // 25)].tolist()
    plain = random.Random(1)
    seconds = loop_seconds = live = math.inf
    for _ in range(TURNS):
        begun = time.process_time()
        candidates, position = foil_series(generator, values, rng)
        seconds = min(seconds, time.process_time() - begun)
        begun = time.process_time()
        sets = [loop(series, plain) for series in some]
        loop_seconds = min(loop_seconds, time.process_time() - begun)
        begun = time.process_time()
        foil_series(generator, values[:1], SecretRandom(os.urandom))
        live = min(live, time.process_time() - begun)
    check(values, candidates, position, some, sets)
    rate, loop_rate = candidates.size / seconds, len(some) * STEPS * (K + 1) / loop_seconds
    return GeneratorRate(name, rate, loop_rate, rate / loop_rate, live / STEPS * 1e6)


def check(
    values: npt.NDArray[Any],
    candidates: npt.NDArray[Any],
    position: npt.NDArray[np.int64],
    some: list[list[float]],
    sets: list[tuple[list[list[float]], list[int]]],
) -> None:
    assert np.array_equal(np.take_along_axis(candidates, position[:, :, None], axis=2)[:, :, 0], values)
    for series, (by_loop, places) in zip(some, sets, strict=True):
        assert [each[place] for each, place in zip(by_loop, places, strict=True)] == series
    ours = np.abs(candidates - values[:, :, None]).mean()
    theirs = np.abs(np.array([each for each, _ in sets]) - np.array(some)[:, :, None]).mean()
    assert abs(ours - theirs) < 0.1 * ours, (ours, theirs)


# --- the same laws, one number after the other ------------------------------------------------------------------------


def noise_loop(series: Series, rng: random.Random) -> tuple[list[list[float]], list[int]]:
    return memoryless(series, rng, lambda value: [value + rng.gauss(0, 1) for _ in range(K)])


def window_loop(series: Series, rng: random.Random) -> tuple[list[list[float]], list[int]]:
    def fakes(value: float) -> list[float]:
        centre = value + rng.gauss(0, 1)
        return [centre + rng.gauss(0, 1) for _ in range(K)]

    return memoryless(series, rng, fakes)


def entropy_loop(series: Series, rng: random.Random) -> tuple[list[list[float]], list[int]]:
    return memoryless(series, rng, lambda value: list(rng.choices(CODES, cum_weights=LEVELLED, k=K)))


def buckets_loop(series: Series, rng: random.Random) -> tuple[list[list[float]], list[int]]:
    sets, places = [], []
    for step, value in enumerate(series):
        if not step or value != series[step - 1]:
            code = int(value)
            inside = (CUMULATED[code] - PROBABILITIES[code] * rng.random()) * (K + 1)
            offset = inside % 1
            held = [float(bisect_right(CUMULATED, (bucket + offset) / (K + 1))) for bucket in range(K + 1)]
            held[int(inside)] = value
            rng.shuffle(held)
            place = held.index(value)
        sets.append(held)
        places.append(place)
    return sets, places


def gaussian_loop(series: Series, rng: random.Random) -> tuple[list[list[float]], list[int]]:
    return lineages(series, rng, lambda slot, before, now: rng.gauss(0, 1))


def student_loop(series: Series, rng: random.Random) -> tuple[list[list[float]], list[int]]:
    def move(slot: int, before: float, now: float) -> float:
        return rng.gauss(0, 1) / math.sqrt(rng.gammavariate(FREEDOM / 2, 2) / FREEDOM)

    return lineages(series, rng, move)


def blocks_loop(series: Series, rng: random.Random) -> tuple[list[list[float]], list[int]]:
    at = [rng.randrange(len(MOVES)) for _ in range(K + 1)]
    left = [rng.randrange(BLOCK) for _ in range(K + 1)]

    def move(slot: int, before: float, now: float) -> float:
        if not left[slot]:
            at[slot], left[slot] = rng.randrange(len(MOVES)), BLOCK
        step = MOVES[at[slot]]
        at[slot], left[slot] = (at[slot] + 1) % len(MOVES), left[slot] - 1
        return step

    return lineages(series, rng, move)


def signflip_loop(series: Series, rng: random.Random) -> tuple[list[list[float]], list[int]]:
    return lineages(series, rng, lambda slot, before, now: rng.choice((-1, 1)) * (now - before))


def moran_loop(series: Series, rng: random.Random) -> tuple[list[list[float]], list[int]]:
    def branch(held: list[float], truth: int) -> int:
        waited = rng.expovariate(RATE)
        while waited < 1:
            parent = truth if rng.random() < 2 / (K + 1) else rng.choice([slot for slot in SLOTS if slot != truth])
            victim = rng.choice([slot for slot in SLOTS if slot not in (parent, truth)])
            held[victim] = held[parent]
            if parent == truth and rng.random() < 0.5:
                truth = victim
            waited += rng.expovariate(RATE)
        return truth

    return lineages(series, rng, lambda slot, before, now: rng.gauss(0, 1), branch)


def memoryless(
    series: Series, rng: random.Random, fakes: Callable[[float], list[float]]
) -> tuple[list[list[float]], list[int]]:
    sets, places = [], []
    for value in series:
        held, place = fakes(value), rng.randrange(K + 1)
        held.insert(place, value)
        sets.append(held)
        places.append(place)
    return sets, places


def lineages(
    series: Series,
    rng: random.Random,
    move: Callable[[int, float, float], float],
    branch: Callable[[list[float], int], int] = lambda held, truth: truth,
) -> tuple[list[list[float]], list[int]]:
    truth, held = rng.randrange(K + 1), [series[0]] * (K + 1)
    sets, places = [held], [truth]
    for before, now in pairwise(series):
        held = list(held)
        truth = branch(held, truth)
        held = [value + move(slot, before, now) for slot, value in enumerate(held)]
        held[truth] = now
        sets.append(held)
        places.append(truth)
    return sets, places


K: Final = 5
STEPS: Final = 50
TURNS: Final = 3
FREEDOM: Final = 4.0
BLOCK: Final = 20
RATE: Final = 2.0
SLOTS: Final = range(K + 1)

PMF: Final = Pmf(1 / np.arange(20.0, 84.0))
PROBABILITIES: Final = PMF.p.tolist()
CUMULATED: Final = PMF.upto.tolist()
CODES: Final = [float(code) for code in range(len(PMF))]
LEVELLED: Final = list(accumulate(EntropyFakes(K, PMF).fakes.p.tolist()))

HISTORY: Final = np.random.default_rng(0).standard_normal(2000)
MOVES: Final[list[float]] = HISTORY.tolist()

if __name__ == "__main__":
    main()
