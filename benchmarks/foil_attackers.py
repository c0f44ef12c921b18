"""How long does an attack on a foiled stream take, and how long by plain arrays or a plain loop of the same sums?

    python benchmarks/foil_attackers.py [--json]

One stream of 500 steps with 10 fakes, noise ten times as large as the moves, where smoothing finds most. The chains are
compiled; beside them stand the same sums by numpy, step after step, and for the others a loop in plain Python. Seconds
are of a core, the best of some turns; results are compared.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from veilcast.foil.generators.base import foil_series
from veilcast.foil.generators.noise import NoiseFakes
from veilcast.lab.attack.registry import score_candidates
from veilcast.lab.attack.stream.model import MoveLaw, StreamModel

Numbers = npt.NDArray[np.float64]


@dataclass
class AttackerTiming:
    name: str
    ours_ms: float
    plain: str
    plain_ms: float
    times: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    as_json: bool = parser.parse_args().json
    rng = np.random.default_rng(1)
    values = 500 + np.cumsum(rng.standard_normal((1, STEPS)), axis=1)
    candidates, _ = foil_series(NoiseFakes(K, NOISE), values, rng)
    results = [measure_attacker(name, plain, how, candidates) for name, plain, how in peers()]
    if as_json:
        print(json.dumps({"steps": STEPS, "k": K, "attackers": [asdict(each) for each in results]}))
        return
    print(f"one stream of {STEPS} steps with {K} fakes, milliseconds of a core, best of {TURNS}")
    print(f"{'':18}{'ours':>10}{'plain':>12}{'times':>9}")
    for each in results:
        print(f"{each.name:18}{each.ours_ms:10.2f}{each.plain_ms:12.2f}{each.times:9.1f}  ({each.plain})")


def peers() -> list[tuple[str, str, Callable[[Numbers], Numbers]]]:
    return [
        ("filter", "numpy", plain_filter),
        ("smoother", "numpy", plain_smoother),
        ("viterbi", "numpy", plain_viterbi),
        ("kalman-nearest", "Python", plain_kalman),
        ("medoid", "Python", plain_medoid),
    ]


def measure_attacker(name: str, plain: str, how: Callable[[Numbers], Numbers], candidates: Numbers) -> AttackerTiming:
    ours, theirs = score_candidates(name, candidates, MODEL)[0], how(candidates[0])
    assert np.allclose(ours, theirs, atol=1e-9), name
    mine = min(processor_seconds(lambda: score_candidates(name, candidates, MODEL)) for _ in range(TURNS))
    other = min(processor_seconds(lambda: how(candidates[0])) for _ in range(TURNS))
    return AttackerTiming(name, mine * 1e3, plain, other * 1e3, other / mine)


def processor_seconds(what: Callable[[], object]) -> float:
    begun = time.process_time()
    what()
    return time.process_time() - begun


# --- the same, without compiled code ----------------------------------------------------------------------------------


def emissions(values: Numbers) -> Numbers:
    """Arrays of [steps, n]."""
    return np.asarray(-((values[:, :, None] - values[:, None, :]) ** 2).sum(axis=2) / (2 * NOISE**2))


def laws(values: Numbers, step: int) -> Numbers:
    """From each place of the step before to each of this one."""
    return np.asarray(-0.5 * (values[step][None, :] - values[step - 1][:, None]) ** 2)


def log_sum(terms: Numbers, axis: int) -> Numbers:
    most = terms.max(axis=axis, keepdims=True)
    return np.asarray(np.squeeze(most, axis) + np.log(np.exp(terms - most).sum(axis=axis)))


def shares(logs: Numbers) -> Numbers:
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def forward(values: Numbers) -> Numbers:
    logs = emissions(values)
    for step in range(1, len(values)):
        logs[step] += log_sum(logs[step - 1][:, None] + laws(values, step), 0)
    return logs


def plain_filter(values: Numbers) -> Numbers:
    return shares(forward(values))


def plain_smoother(values: Numbers) -> Numbers:
    logs, told = forward(values), emissions(values)
    ahead = np.zeros(values.shape)
    for step in range(len(values) - 2, -1, -1):
        ahead[step] = log_sum(laws(values, step + 1) + (told[step + 1] + ahead[step + 1])[None, :], 1)
    return shares(logs + ahead)


def plain_viterbi(values: Numbers) -> Numbers:
    told = emissions(values)
    score, came = told[0], np.zeros(values.shape, np.int64)
    for step in range(1, len(values)):
        reached = score[:, None] + laws(values, step)
        came[step] = reached.argmax(axis=0)
        score = reached.max(axis=0) + told[step]
    path = [int(score.argmax())]
    for step in range(len(values) - 1, 0, -1):
        path.append(int(came[step, path[-1]]))
    return np.asarray(np.eye(values.shape[1])[path[::-1]])


def plain_kalman(values: Numbers) -> Numbers:
    rows: list[list[float]] = values.tolist()
    mean, variance = sum(rows[0]) / len(rows[0]), NOISE**2
    result = [[1 / len(rows[0])] * len(rows[0])]
    for row in rows[1:]:
        variance += 1.0
        far = [abs(value - mean) for value in row]
        pick = far.index(min(far))
        gain = variance / (variance + NOISE**2)
        mean += gain * (row[pick] - mean)
        variance *= 1 - gain
        result.append([float(slot == pick) for slot in range(len(row))])
    return np.array(result)


def plain_medoid(values: Numbers) -> Numbers:
    rows: list[list[float]] = values.tolist()
    result = []
    for row in rows:
        mean = math.fsum(row) / len(row)
        far = [abs(value - mean) for value in row]
        pick = far.index(min(far))
        result.append([float(slot == pick) for slot in range(len(row))])
    return np.array(result)


K: Final = 10
STEPS: Final = 500
TURNS: Final = 15
NOISE: Final = 10.0
MODEL: Final = StreamModel(truth=MoveLaw(1.0), noise=NOISE)

if __name__ == "__main__":
    main()
