"""How many clients can join and subscribe a second, and what do threads and processes add on this machine?

    python benchmarks/relay_bulk.py [--json] [--elements N]

A subscription here is a label: one element; one to a range has fourteen or so. Rows are the steps of each party, in
`hardened`: one by one, by threads (`node.workers`, which a running proxy or server uses) and by processes, which are
handed points as bytes. Beside the rates stand those of the bare library for the multiplications alone, one by one.
Joins are not shared out: they are few, and a server opens one box for each. Results are checked against one another.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from functools import partial
from multiprocessing import get_context
from typing import TypeVar

import rbcl

from veilcast.crypto.group import Ciphertext, Multiply, Point, Scalar, multiply_each
from veilcast.node.multiply_pool import MultiplyPool
from veilcast.relay import subject_tags
from veilcast.relay.transformation_key import (
    ServerKeys,
    answer_enrolment,
    begin_enrolment,
    check_transformation,
    combine_shares,
)

T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--elements", type=int, default=4000)
    arguments = parser.parse_args()
    cores = os.cpu_count() or 1
    entropy = random.Random(1).randbytes
    keys, mask = ServerKeys.draw(entropy), Scalar.draw(entropy)
    with MultiplyPool(cores) as threads, closing(Processes(cores)) as processes:
        by: dict[str, Multiply] = {
            "one by one": multiply_each,
            f"{cores} threads": threads,
            f"{cores} processes": processes.multiply,
        }
        steps = measure_subscriptions(keys, mask, arguments.elements, by)
    joins, library = measure_joins(keys, arguments.elements // 8), bare(arguments.elements)
    if arguments.json:
        print(json.dumps({"joins": joins, "elements": steps, "library": library}))
        return
    print("joins a second")
    for step, rate in joins.items():
        print(f"  {step:28}{rate:12,.0f}")
    print(f"elements a second{'':11}" + "".join(f"{name:>22}" for name in by))
    for step, rates in steps.items():
        times = "".join(f"{rate:13,.0f} (x{rate / rates['one by one']:4.2f})" for rate in rates.values())
        print(f"  {step:26}{times}")
    for step, rate in library.items():
        print(f"  {step:26}{rate:13,.0f}")


def measure_joins(keys: ServerKeys, count: int) -> dict[str, float]:
    entropy = random.Random(2).randbytes
    public = keys.public()
    begun, client = time_best(lambda: [begin_enrolment(public, entropy) for _ in range(count)])
    answers, server = time_best(lambda: [answer_enrolment(keys, each.sealed) for each in begun])

    def at_proxy() -> list[Scalar]:
        moves = [combine_shares(each.ratio, answered) for each, answered in zip(begun, answers, strict=True)]
        for each, move in zip(begun, moves, strict=True):
            check_transformation(move, each.claim, public)
        return moves

    moves, proxy = time_best(at_proxy)
    assert all(move * each.key == keys.k_r for each, move in zip(begun, moves, strict=True))
    return {"client": count / client, "server": count / server, "proxy, which checks": count / proxy}


def measure_subscriptions(
    keys: ServerKeys, mask: Scalar, count: int, by: dict[str, Multiply]
) -> dict[str, dict[str, float]]:
    key = Scalar.draw(random.Random(3).randbytes)
    elements = [number.to_bytes(8, "big") for number in range(count)]
    subject, move, bond = keys.public().subject, keys.k_r / key, Scalar.draw(os.urandom)
    unveil = subject_tags.unveiling_key(keys, bond)

    def upload(multiply: Multiply) -> list[Ciphertext]:
        return subject_tags.veil_many(
            subject_tags.blind_many(elements, key, multiply), subject, bond, os.urandom, multiply
        )

    rates: dict[str, dict[str, float]] = {step: {} for step in ("client: upload", "proxy: move", "server: tag")}
    first: list[bytes] = []
    for name, multiply in by.items():
        multiply([(subject, mask)] * 64)  # whoever does it is awake now
        uploaded, seconds = time_best(partial(upload, multiply))
        rates["client: upload"][name] = count / seconds
        moved, seconds = time_best(partial(subject_tags.move_many, uploaded, move, mask, multiply))
        rates["proxy: move"][name] = count / seconds
        tags, seconds = time_best(partial(subject_tags.tag_many, moved, unveil, multiply))
        rates["server: tag"][name] = count / seconds
        first = first or tags
        assert tags == first
        assert len(set(tags)) == count
    return rates


def bare(count: int) -> dict[str, float]:
    """The multiplications of a proxy and of a server, by the library alone."""
    entropy = random.Random(5).randbytes
    scalar = Scalar.draw(entropy).reveal()
    points = [Point.draw(entropy).encode() for _ in range(count)]
    _, seconds = time_best(lambda: [rbcl.crypto_scalarmult_ristretto255(scalar, point) for point in points])
    return {"library: 2 multiplications": count / seconds / 2, "library: 1 multiplication": count / seconds}


class Processes:
    """A `Multiply` on processes: what `node.workers` is measured against."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool = ProcessPoolExecutor(count, get_context("forkserver"))

    def close(self) -> None:
        self._pool.shutdown()

    def multiply(self, pairs: Sequence[tuple[Point, Scalar]]) -> list[Point]:
        size = -(-len(pairs) // self._count)
        raw = [(point.encode(), scalar.reveal()) for point, scalar in pairs]
        chunks = [raw[start : start + size] for start in range(0, len(raw), size)]
        return [Point(product) for chunk in self._pool.map(_products, chunks) for product in chunk]


def _products(raw: list[tuple[bytes, bytes]]) -> list[bytes]:
    return [(Point(point) * Scalar(scalar)).encode() for point, scalar in raw]


def time_best(work: Callable[[], T]) -> tuple[T, float]:
    """The result, and the seconds of the best of three runs."""
    turns = []
    for _ in range(3):
        began = time.perf_counter()
        result = work()
        turns.append(time.perf_counter() - began)
    return result, min(turns)


if __name__ == "__main__":
    main()
