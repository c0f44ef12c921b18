"""How fast does the relay's server find who wants a publication, among a million subscriptions, and in what memory?

    python benchmarks/relay_match.py [--json] [--subscriptions N]

Two kinds of subscriptions: labels, 10,000 of them, asked for and published on by Zipf's law; and ranges over 16 bits as
in `bloom.py`, of which a publication asks 17 tags. Beside the exact index stand the Bloom index, for at most one false
delivery a publication; a dictionary from tag to the set of subscriptions, which is what one would write first; and a
loop over all subscriptions. The last two run over the first subscriptions only and are scaled linearly. Every result is
held against the labels and ranges themselves.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from bloom import SCHEMA, random_ranges
from veilcast.crypto.derive import digest
from veilcast.machine import Publication
from veilcast.topics import BloomIndex, Cover, Geometry, Label, Range, covers, queries
from veilcast.topics.tag_index import TAG, TagIndex

Numbers = npt.NDArray[np.int64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--subscriptions", type=int, default=1_000_000)
    arguments = parser.parse_args()
    report = {kind.name: measure(kind) for kind in (labels(arguments.subscriptions), ranges(arguments.subscriptions))}
    if arguments.json:
        print(json.dumps(report))
        return
    for name, figures in report.items():
        wanted = figures.pop("wanted")["mean"]
        print(f"{arguments.subscriptions:,} {name}, a publication wanted by {wanted:,.0f} of them")
        print(f"  {'':24}{'ms':>10}{'ms, 99 %':>10}{'times':>9}{'bytes each':>12}")
        for who, figure in figures.items():
            times = figure["ms"] / figures["exact tags"]["ms"]
            print(f"  {who:24}{figure['ms']:10.3f}{figure['ms_p99']:10.3f}{times:9.1f}{figure['bytes']:12.0f}")


@dataclass(frozen=True)
class MatchCase:
    """Subscriptions as tags, in batches; publications as tags, with the subscriptions that are right for each."""

    name: str
    count: int
    batches: Callable[[], Iterator[list[tuple[Cover, ...]]]]
    asked: list[list[bytes]]
    right: list[Numbers]
    geometry: Geometry


def labels(count: int) -> MatchCase:
    rng = np.random.default_rng(1)
    share = 1 / np.arange(1, LABELS + 1)
    share /= share.sum()
    wanted, published = rng.choice(LABELS, count, p=share), rng.choice(LABELS, PUBLICATIONS, p=share)
    tags = [make_tags(covers(Label(f"label/{number}"), SCHEMA))[0][0] for number in range(LABELS)]

    def batches() -> Iterator[list[tuple[Cover, ...]]]:
        for start in range(0, count, BATCH):
            yield [((tags[number],),) for number in wanted[start : start + BATCH].tolist()]

    geometry = Geometry.sized(elements=1, queries=1, bound=1 / count)
    right = [np.flatnonzero(wanted == number) for number in published]
    return MatchCase("labels", count, batches, [[tags[number]] for number in published], right, geometry)


def ranges(count: int) -> MatchCase:
    rng = random.Random(1)
    lows, highs = random_ranges(rng, count)
    published = [rng.randrange(65536) for _ in range(PUBLICATIONS)]

    def batches() -> Iterator[list[tuple[Cover, ...]]]:
        for start in range(0, count, BATCH):
            ends = zip(lows[start : start + BATCH].tolist(), highs[start : start + BATCH].tolist(), strict=True)
            yield [make_tags(covers(Range("price", low, high), SCHEMA)) for low, high in ends]

    geometry = Geometry.sized(elements=SCHEMA.largest_cover, queries=SCHEMA.most_queries(pairs=1), bound=1 / count)
    asked = [list(map(tag, queries(Publication((("price", value),)), SCHEMA))) for value in published]
    right = [np.flatnonzero((lows <= value) & (value <= highs)) for value in published]
    return MatchCase("ranges of 16 bits", count, batches, asked, right, geometry)


def measure(kind: MatchCase) -> dict[str, dict[str, float]]:
    report = {"wanted": {"mean": statistics.fmean(map(len, kind.right))}}
    exact = TagIndex(capacity=kind.count)
    filters = BloomIndex(kind.geometry, capacity=kind.count)
    sets: dict[bytes, set[int]] = {}
    first: list[Cover] = []
    for batch in kind.batches():
        exact.insert_many(batch, expiry=1)
        filters.insert_many(batch, expiry=1)
        for (cover,) in batch[: SOME - len(first)]:
            for each in cover:
                sets.setdefault(each, set()).add(len(first))
            first.append(cover)
    report["exact tags"] = time_matches(exact.match, kind, kind.count, exact.nbytes / kind.count)
    report["Bloom filters"] = time_matches(filters.match, kind, kind.count, filters.nbytes / kind.count, excess=True)
    held = sum(sys.getsizeof(key) + sys.getsizeof(value) for key, value in sets.items()) + sys.getsizeof(sets)

    def by_sets(asked: Sequence[bytes]) -> Numbers:
        return np.array(sorted(set().union(*(sets.get(each, ()) for each in asked))), dtype=np.int64)

    def by_loop(asked: Sequence[bytes]) -> Numbers:
        query = set(asked)
        return np.flatnonzero([not query.isdisjoint(cover) for cover in first[:LOOP]])

    report["dictionary of sets"] = time_matches(by_sets, kind, len(first), held / len(first))
    bare = sum(map(sys.getsizeof, first[:LOOP])) / min(LOOP, len(first))
    report["loop"] = time_matches(by_loop, kind, min(LOOP, len(first)), bare, few=5)
    return report


def time_matches(
    match: Callable[[list[bytes]], Numbers],
    kind: MatchCase,
    count: int,
    each: float,
    *,
    excess: bool = False,
    few: int | None = None,
) -> dict[str, float]:
    """Milliseconds for a publication over a part of the subscriptions, scaled to all."""
    seconds = []
    too_many = 0
    for asked, right in list(zip(kind.asked, kind.right, strict=True))[:few]:
        began = time.perf_counter()
        found = match(asked)
        seconds.append(time.perf_counter() - began)
        right = right[right < count]
        assert len(np.setdiff1d(right, found, assume_unique=True)) == 0, "a matching subscription was missed"
        too_many += len(found) - len(right)
    assert too_many <= (3 * len(seconds) if excess else 0), "more than was asked for"
    scale = 1e3 * kind.count / count
    return {
        "ms": statistics.median(seconds) * scale,
        "ms_p99": statistics.quantiles(seconds, n=100)[-1] * scale,
        "bytes": each,
    }


def make_tags(wanted: tuple[Cover, ...]) -> tuple[Cover, ...]:
    return tuple(tuple(map(tag, cover)) for cover in wanted)


@cache
def tag(element: bytes) -> bytes:
    """As good as one that went through the group: the indexes see sixteen bytes."""
    return digest(element, purpose=b"benchmark", size=TAG)


LABELS = 10_000
PUBLICATIONS = 200
BATCH = 50_000
SOME = 100_000
"""Subscriptions in the dictionary."""
LOOP = 20_000

if __name__ == "__main__":
    main()
