"""How fast are keys split and reconstructed, alone and in batches, beside the libraries that do it?

A key of 32 bytes, a (6, 10) scheme. The peers take one key at a time; a batch is compared with their rate
for one. All are timed in turns, so that a slow moment of the machine hits all alike, and the best turn
counts. Every result is compared with the key it came from. Each reconstruction is by another k of the n holders, in
turn over all 210 choices. The verifiable shares of `verifiable_sharing` stand below for orientation: no peer has them.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, cycle
from typing import TypeVar

import numpy as np
import shamirs
from Crypto.Protocol.SecretSharing import Shamir
from shamir_mnemonic import shamir as mnemonic
from sslib import shamir as sslib

from veilcast.crypto import shamir, verifiable_sharing
from veilcast.crypto.group import Scalar
from veilcast.crypto.secret import Secret


@dataclass
class ShareLibrary:
    """Two jobs to time, and how many keys each handles in a call."""

    name: str
    split: Callable[[], object]
    reconstruct: Callable[[], object]
    keys: int = 1
    split_seconds: float = float("inf")
    reconstruct_seconds: float = float("inf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    key = os.urandom(KEY_SIZE)
    peers = [pycryptodome(key), shamirs_(key), sslib_(key), mnemonic_(key)]
    alone, batch, verifiable = veilcast_alone(key), veilcast_batch(), veilcast_dealing()
    everyone = [*peers, alone, batch, verifiable]
    for _ in range(TURNS):
        for contender in everyone:
            contender.split_seconds = min(contender.split_seconds, seconds_per_key(contender.split, contender.keys))
            contender.reconstruct_seconds = min(
                contender.reconstruct_seconds, seconds_per_key(contender.reconstruct, contender.keys)
            )
    split_peer = min(peer.split_seconds for peer in peers)
    reconstruct_peer = min(peer.reconstruct_seconds for peer in peers)
    report = {
        "us_per_key": {
            c.name: {"split": c.split_seconds * 1e6, "reconstruct": c.reconstruct_seconds * 1e6} for c in everyone
        },
        "times_the_fastest_peer": {
            c.name: {
                "split": split_peer / c.split_seconds,
                "reconstruct": reconstruct_peer / c.reconstruct_seconds,
            }
            for c in (alone, batch)
        },
        "targets_hold": alone.split_seconds <= split_peer
        and alone.reconstruct_seconds <= reconstruct_peer
        and split_peer / batch.split_seconds >= BATCH_SPLIT_TARGET
        and reconstruct_peer / batch.reconstruct_seconds >= BATCH_RECONSTRUCT_TARGET,
    }
    if as_json:
        print(json.dumps(report))
        return
    print(f"a {KEY_SIZE}-byte key, ({K}, {N}), microseconds per key, best of {TURNS} turns")
    print(f"{'':32}{'split':>12}{'x':>8}{'reconstruct':>14}{'x':>8}")
    for c in everyone:
        print(
            f"{c.name:32}{c.split_seconds * 1e6:12.2f}{split_peer / c.split_seconds:8.2f}"
            f"{c.reconstruct_seconds * 1e6:14.2f}{reconstruct_peer / c.reconstruct_seconds:8.2f}"
        )
    print("x: times the fastest peer of the column; targets: alone 1 and 1, batch 10 and 50:", end=" ")
    print("hold" if report["targets_hold"] else "MISSED")


def seconds_per_key(job: Callable[[], object], keys: int) -> float:
    """Seconds per key, over calls that take about ten milliseconds together."""
    calls = 0
    start = time.perf_counter()
    while (passed := time.perf_counter() - start) < TURN_SECONDS:
        job()
        calls += 1
    return passed / calls / keys


_Held = TypeVar("_Held")


def choices(dealt: Sequence[_Held]) -> Iterator[list[_Held]]:
    """The shares of k holders, another k each time."""
    return cycle([list(chosen) for chosen in combinations(dealt, K)])


def check(right: bool) -> None:
    if not right:
        raise SystemExit("a reconstructed key is not the one that was split")


def veilcast_alone(key: bytes) -> ShareLibrary:
    secret = Secret(key)
    dealt = shamir.split(secret, K, N, os.urandom)
    check(all(shamir.reconstruct(chosen, K) == secret for chosen in combinations(dealt, K)))
    held = choices(dealt)
    return ShareLibrary(
        "veilcast alone",
        lambda: shamir.split(secret, K, N, os.urandom),
        lambda: shamir.reconstruct(next(held), K),
    )


def veilcast_batch() -> ShareLibrary:
    keys = np.frombuffer(os.urandom(BATCH * KEY_SIZE), dtype=np.uint8).reshape(BATCH, KEY_SIZE)
    dealt = shamir.split_many(keys, K, N, os.urandom)
    last, indices = dealt[-K:], range(N - K + 1, N + 1)
    check(np.array_equal(shamir.reconstruct_many(indices, last), keys))
    return ShareLibrary(
        f"veilcast batch of {BATCH:,}",
        lambda: shamir.split_many(keys, K, N, os.urandom),
        lambda: shamir.reconstruct_many(indices, last),
        BATCH,
    )


def veilcast_dealing() -> ShareLibrary:
    secret = Scalar.draw(os.urandom)
    dealt = verifiable_sharing.deal_secret(secret, K, N, os.urandom)
    check(verifiable_sharing.reconstruct(dealt.shares[-K:], dealt.commitments) == secret)
    held = choices(dealt.shares)
    return ShareLibrary(
        "veilcast verifiable (dealing)",
        lambda: verifiable_sharing.deal_secret(secret, K, N, os.urandom),
        lambda: verifiable_sharing.reconstruct(next(held), dealt.commitments),
    )


def pycryptodome(key: bytes) -> ShareLibrary:
    """It shares 16 bytes at a time."""
    halves = key[:16], key[16:]

    def split() -> list[list[tuple[int, bytes]]]:
        return [Shamir.split(K, N, half) for half in halves]

    held = choices(list(zip(*split(), strict=True)))

    def reconstruct() -> bytes:
        return b"".join(Shamir.combine(list(half)) for half in zip(*next(held), strict=True))

    check(reconstruct() == key)
    return ShareLibrary("pycryptodome (2 x 16 bytes)", split, reconstruct)


def shamirs_(key: bytes) -> ShareLibrary:
    """It shares integers below a prime; this is the largest below 2^257, so it hardly ever draws twice."""
    number = int.from_bytes(key, "big")

    def split() -> list[shamirs.share]:
        return list(shamirs.shares(number, quantity=N, modulus=PRIME, threshold=K))

    held = choices(split())

    def reconstruct() -> int:
        return int(shamirs.interpolate(next(held), modulus=PRIME, threshold=K))

    check(reconstruct() == number)
    return ShareLibrary("shamirs", split, reconstruct)


def sslib_(key: bytes) -> ShareLibrary:
    def split() -> dict[str, object]:
        return dict(sslib.split_secret(key, K, N))

    dealt = split()
    held = choices(list(dealt["shares"]))  # type: ignore[call-overload]

    def reconstruct() -> bytes:
        return bytes(sslib.recover_secret({**dealt, "shares": next(held)}))

    check(reconstruct() == key)
    return ShareLibrary("sslib", split, reconstruct)


def mnemonic_(key: bytes) -> ShareLibrary:
    """Its sharing without the mnemonics, by its private functions; it also shares a digest."""

    def split() -> list[mnemonic.RawShare]:
        return list(mnemonic._split_secret(K, N, key))

    held = choices(split())

    def reconstruct() -> bytes:
        return bytes(mnemonic._recover_secret(K, next(held)))

    check(reconstruct() == key)
    return ShareLibrary("shamir-mnemonic (private)", split, reconstruct)


K, N = 6, 10
KEY_SIZE = 32
BATCH = 100_000
PRIME = 2**257 - 93
TURNS = 15
TURN_SECONDS = 0.01
BATCH_SPLIT_TARGET = 10
BATCH_RECONSTRUCT_TARGET = 50

if __name__ == "__main__":
    main()
