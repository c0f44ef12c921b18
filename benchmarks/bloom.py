"""How fast does one publication find its subscribers among a million?

    python benchmarks/bloom.py [--json] [--subscriptions N]

One million subscriptions, each a range over 16 bits at a random place; widths are log-uniform from 1 to 65536,
so covers run from 1 to 30 elements. A publication is one 16-bit value: 17 queries. Beside the bit-sliced index
stands what one would write first: a loop over one `rbloom` filter per subscription, which asks the 17 queries
one by one. The loop runs over the first 20,000 subscriptions and is scaled linearly to all; its filters are
made for the same elements and the same chance of a false hit, and use Python's `hash`, which is faster than any
keyed hash it could be given. Each result is checked against the ranges themselves: nothing may be missing, and
what is too much is printed beside its bound.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time

import numpy as np
import rbloom

from veilcast.machine import Publication
from veilcast.topics import BloomIndex, Cover, Geometry, Integers, Range, Schema, covers, queries

SCHEMA = Schema((Integers("price", 0, 65535, 16),))
BOUND = 1e-3
PUBLICATIONS = 200
LOOP = 20_000
BATCH = 50_000


def main() -> None:
    parser = argparse.ArgumentParser(description="one publication against a million subscriptions")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--subscriptions", type=int, default=1_000_000)
    arguments = parser.parse_args()
    figures = measure(arguments.subscriptions)
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:<44}{value:>16,.6g}")


def measure(count: int) -> dict[str, float]:
    rng = random.Random(1)
    geometry = Geometry.sized(elements=SCHEMA.largest_cover, queries=SCHEMA.most_queries(pairs=1), bound=BOUND)
    index = BloomIndex(geometry, capacity=count)
    lows, highs = random_ranges(rng, count)
    ranges = list(zip(lows.tolist(), highs.tolist(), strict=True))
    first: list[Cover] = []
    elements = 0
    insert_s = 0.0
    for start in range(0, count, BATCH):
        batch = [covers(Range("price", low, high), SCHEMA) for low, high in ranges[start : start + BATCH]]
        elements += sum(len(cover) for (cover,) in batch)
        first += [cover for (cover,) in batch[: LOOP - len(first)]]
        began = time.perf_counter()
        index.insert_many(batch, expiry=1)
        insert_s += time.perf_counter() - began

    values = [rng.randrange(65536) for _ in range(PUBLICATIONS)]
    asked = [queries(Publication((("price", value),)), SCHEMA) for value in values]
    assert {len(query) for query in asked} == {17}
    wanted = [np.flatnonzero((lows <= value) & (value <= highs)) for value in values]

    false = 0
    single_s = []
    for query, right in zip(asked, wanted, strict=True):
        began = time.perf_counter()
        found = index.match(query)
        single_s.append(time.perf_counter() - began)
        assert len(np.setdiff1d(right, found, assume_unique=True)) == 0, "a matching subscription was missed"
        false += len(found) - len(right)
    others = sum(count - len(right) for right in wanted)
    assert false / others <= geometry.bound

    loop_s = time_loop(first, geometry, asked[:5], wanted[:5]) * count / len(first)
    match_s = statistics.median(single_s)
    began = time.perf_counter()
    index.expire(1)
    expire_s = time.perf_counter() - began
    return {
        "subscriptions": count,
        "elements per subscription, mean": elements / count,
        "rows (bits a filter)": geometry.rows,
        "hashes": geometry.hashes,
        "memory, MB": index.nbytes / 1e6,
        "subscriptions that want a publication, mean": statistics.fmean(map(len, wanted)),
        "match, ms per publication, median": match_s * 1e3,
        "match, ms per publication, 99th percentile": statistics.quantiles(single_s, n=100)[-1] * 1e3,
        "match, publications per second": PUBLICATIONS / sum(single_s),
        "rbloom loop, ms per publication (scaled)": loop_s * 1e3,
        "times faster than the loop": loop_s / match_s,
        "insert, subscriptions per second": count / insert_s,
        "expire, subscriptions per second": count / expire_s,
        "false positives, measured rate": false / others,
        "false positives, bound": geometry.bound,
    }


def random_ranges(rng: random.Random, count: int) -> tuple[np.ndarray, np.ndarray]:
    widths = np.array([int(2 ** rng.uniform(0, 16)) for _ in range(count)])
    lows = np.array([rng.randrange(65536 - int(width) + 1) for width in widths])
    return lows, lows + widths - 1


def time_loop(held: list[Cover], geometry: Geometry, asked: list[tuple[bytes, ...]], wanted: list[np.ndarray]) -> float:
    """Seconds per publication of the plain loop over these filters."""
    filters = []
    for cover in held:
        one = rbloom.Bloom(geometry.elements, geometry.bound / geometry.queries)
        one.update(cover)
        filters.append(one)
    seconds = []
    for query, right in zip(asked, wanted, strict=True):
        began = time.perf_counter()
        found = [number for number, one in enumerate(filters) if any(element in one for element in query)]
        seconds.append(time.perf_counter() - began)
        assert set(right[right < len(filters)].tolist()) <= set(found)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
