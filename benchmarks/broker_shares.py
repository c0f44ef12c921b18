"""What does it cost to bring a key over replicated brokers, by the paper's way and by redistribution?

First P4's Figure 8: AES-128 and AES-256 keys split into 3 to 10 shares of which a majority reconstructs; the paper, in
Java on a Core2 Duo T5550 of 1.83 GHz, has well under 1 ms to split and 5.2 ms to reconstruct ten. (No share is lost to
rounding: each reconstruction is compared with its key, and takes another majority in turn.) Then one hop of
redistribution, step by step, for one broker. Then a publication's key over h hops by both ways, all brokers' work added
up, with the messages and bytes that were sent; nobody lies. Last the code for content. All times are of the processor.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, cycle, islice
from typing import Any

from veilcast.brokers.content.blocks import ContentAssembly, Strategy, encode_content
from veilcast.brokers.keys.paper_split import SplitKeyCollector, SplitShare, TrailVerifier, split_again, split_key
from veilcast.brokers.keys.redistribution import (
    RedistributedKeyCollector,
    accept_publisher_share,
    deal_key,
    redistribute_share,
)
from veilcast.brokers.keys.scheme import KeyAttempt, ReplicaId, ReplicaKeys, Scheme, majority
from veilcast.brokers.keys.share_reception import ShareReception
from veilcast.crypto import shamir
from veilcast.crypto.group import Scalar
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    report: dict[str, Any] = {
        "figure_8_us": figure_8(),
        "redistribution_hop_ms": {str(r): redistribution_hop(r) for r in (3, 5)},
        "publication": [both_ways(r, hops) for r, hops in ((3, 1), (3, 2), (3, 3), (3, 4), (3, 5), (5, 2), (5, 3))],
        "content_mb_s": {str(r): content(r) for r in (3, 5, 7)},
    }
    if as_json:
        print(json.dumps(report))
        return
    print("Fig. 8: microseconds (the paper: split < 1,000, reconstruct 5,200 for 10 shares)")
    print(f"{'shares':>8}{'threshold':>11}{'split 128':>12}{'256':>8}{'reconstruct 128':>18}{'256':>8}")
    for row in report["figure_8_us"]:
        print("{n:8}{k:11}{split_128:12.1f}{split_256:8.1f}{reconstruct_128:18.1f}{reconstruct_256:8.1f}".format(**row))
    print("\none hop of redistribution, milliseconds of one broker")
    for r, steps in report["redistribution_hop_ms"].items():
        print(f"  r = {r}: " + ", ".join(f"{name} {ms:.2f}" for name, ms in steps.items()))
    print("\na key over h hops, all brokers together")
    print(f"{'r':>3}{'h':>3}{'paper: messages':>18}{'kB':>10}{'ms':>9}{'hardened: messages':>21}{'kB':>8}{'ms':>9}")
    for row in report["publication"]:
        paper, hardened = row["paper"], row["hardened"]
        print(
            f"{row['r']:3}{row['hops']:3}{paper['messages']:18,}{paper['kb']:10.1f}{paper['ms']:9.1f}"
            f"{hardened['messages']:21,}{hardened['kb']:8.1f}{hardened['ms']:9.1f}"
        )
    print("\ncoded content of 1 MB, MB/s")
    for r, rates in report["content_mb_s"].items():
        print(f"  ({majority(int(r))} of {r}): " + ", ".join(f"{name} {rate:.0f}" for name, rate in rates.items()))


# --- Figure 8 ---------------------------------------------------------------------------------------------------------


def figure_8() -> list[dict[str, float]]:
    rows = []
    for n in range(3, 11):
        k = majority(n)
        row: dict[str, float] = {"n": n, "k": k}
        for bits in (128, 256):
            key = Secret(os.urandom(bits // 8))
            dealt = shamir.split(key, k, n, os.urandom)
            held = cycle(list(islice(combinations(dealt, k), 64)))
            check(all(shamir.reconstruct(next(held), k) == key for _ in range(64)))
            split = partial(shamir.split, key, k, n, os.urandom)
            row[f"split_{bits}"] = seconds_per_call(split) * 1e6
            row[f"reconstruct_{bits}"] = seconds_per_call(partial(reconstruct_next, held, k)) * 1e6
        rows.append(row)
    return rows


# --- ways -------------------------------------------------------------------------------------------------------------

ORIGIN = KeyAttempt(bytes(16))
PUBLISHER = SigningKey.generate(os.urandom)


@dataclass
class Nodes:
    """Virtual nodes with the keys of their replicas."""

    r: int
    hops: int

    def __post_init__(self) -> None:
        self.schemes = [Scheme(os.urandom(16), 0, self.r) for _ in range(self.hops)]
        self.keys = {
            ReplicaId(scheme, at): SigningKey.generate(os.urandom)
            for scheme in self.schemes
            for at in range(1, self.r + 1)
        }
        self.roster = ReplicaKeys(nodes=self.hops)
        for scheme in self.schemes:
            self.roster.add(scheme, [self.keys[ReplicaId(scheme, at)].public for at in range(1, self.r + 1)])

    def places(self, hop: int) -> list[ReplicaId]:
        return [ReplicaId(self.schemes[hop], at) for at in range(1, self.r + 1)]

    def receivings(self, hop: int) -> list[ShareReception]:
        """Shares that one hop receives from the one before."""
        return [
            ShareReception(ORIGIN, self.schemes[hop - 1], place, PUBLISHER.public, self.roster, self.keys[place])
            for place in self.places(hop)
        ]


def by_paper(nodes: Nodes) -> tuple[int, int]:
    """Messages and bytes; every broker checks what it gets."""
    key = Secret(os.urandom(32))
    checks = {place: TrailVerifier(PUBLISHER.public, nodes.roster) for place in nodes.keys}
    parcels: list[SplitShare] = split_key(key, ORIGIN, nodes.schemes[0], PUBLISHER, os.urandom)
    messages, size = len(parcels), total(parcels)
    for scheme in nodes.schemes[1:]:
        for parcel in parcels:
            checks[parcel.holder].check(parcel)
        parcels = [piece for p in parcels for piece in split_again(p, scheme, nodes.keys[p.holder], os.urandom)]
        messages, size = messages + len(parcels), size + total(parcels)
    gathering = SplitKeyCollector(ORIGIN, TrailVerifier(PUBLISHER.public, nodes.roster))
    for parcel in parcels:
        checks[parcel.holder].check(parcel)
        gathering.add(parcel, parcel.holder)
    check(gathering.key == key)
    return messages + len(parcels), size + total(parcels)


def total(parcels: Sequence[SplitShare]) -> int:
    return sum(len(parcel.encode()) for parcel in parcels)


def by_redistribution(nodes: Nodes) -> tuple[int, int]:
    secret = Scalar.draw(os.urandom)
    parts = deal_key(secret, ORIGIN, nodes.schemes[0], PUBLISHER, os.urandom)
    share_size = len(parts[0].share.encode())
    messages, size = len(parts), len(parts) * (len(parts[0].publisher_header.points) + 120 + share_size)
    holdings = [
        accept_publisher_share(p, place, PUBLISHER.public) for p, place in zip(parts, nodes.places(0), strict=True)
    ]
    for hop in range(1, nodes.hops):
        receivings = nodes.receivings(hop)
        for holding in holdings:
            dealt = redistribute_share(holding, nodes.schemes[hop], nodes.keys[holding.holder_id], os.urandom)
            for receiving, portion in zip(receivings, dealt.shares, strict=True):
                receiving.accept_share(portion)
                messages, size = messages + 1, size + len(portion.encode())
        words = [receiving.announce() for receiving in receivings]
        for at, receiving in enumerate(receivings):
            for author, word in enumerate(words):
                if author != at:
                    receiving.accept_statement(word, 1)
                    messages, size = messages + 1, size + len(word.payload) + len(word.signature) + 4
            check(receiving.relay() == [])
        holdings = [receiving.combine() for receiving in receivings]
    collecting = RedistributedKeyCollector(ORIGIN, PUBLISHER.public)
    for holding in holdings:
        delivery = holding.make_delivery()
        collecting.add(delivery, holding.holder_id)
        messages, size = messages + 1, size + 2 * len(delivery.points) + 120 + share_size
    check(collecting.secret == secret)
    return messages, size


def both_ways(r: int, hops: int) -> dict[str, object]:
    row: dict[str, object] = {"r": r, "hops": hops}
    for name, run in (("paper", by_paper), ("hardened", by_redistribution)):
        nodes = Nodes(r, hops)
        best = float("inf")
        for _ in range(RUNS):
            start = time.process_time()
            messages, size = run(nodes)
            best = min(best, time.process_time() - start)
        row[name] = {"messages": messages, "kb": size / 1000, "ms": best * 1e3}
    return row


def redistribution_hop(r: int) -> dict[str, float]:
    """Work of one broker, as a holder of one hop and a receiver of the next; the best of several runs."""
    nodes = Nodes(r, 2)
    best: dict[str, float] = {}

    def note(name: str, start: float, share: float = 1.0) -> None:
        best[name] = min(best.get(name, float("inf")), (time.process_time() - start) * 1e3 * share)

    for _ in range(TURNS):
        parts = deal_key(Scalar.draw(os.urandom), ORIGIN, nodes.schemes[0], PUBLISHER, os.urandom)
        holdings = [
            accept_publisher_share(p, place, PUBLISHER.public) for p, place in zip(parts, nodes.places(0), strict=True)
        ]
        start = time.process_time()
        handed = [redistribute_share(h, nodes.schemes[1], nodes.keys[h.holder_id], os.urandom) for h in holdings]
        note("hand on", start, 1 / r)
        receivings = nodes.receivings(1)
        start = time.process_time()
        for each in handed:
            for receiving, portion in zip(receivings, each.shares, strict=True):
                receiving.accept_share(portion)
        note("check portions", start, 1 / r)
        start = time.process_time()
        words = [receiving.announce() for receiving in receivings]
        for at, receiving in enumerate(receivings):
            for author, word in enumerate(words):
                if author != at:
                    receiving.accept_statement(word, 1)
        note("agree", start, 1 / r)
        start = time.process_time()
        for receiving in receivings:
            receiving.combine()
        note("combine", start, 1 / r)
    best["in all"] = sum(best.values())
    return best


# --- content ----------------------------------------------------------------------------------------------------------


def content(r: int) -> dict[str, float]:
    """Rates to make blocks with their digests and manifest, and to put content together when all that can is lost."""
    scheme, data = Scheme(bytes(16), 0, r), os.urandom(1_000_000)
    manifest, blocks = encode_content(bytes(16), data, Strategy.CODED, scheme, PUBLISHER)

    def put_together() -> bytes:
        assembly = ContentAssembly(manifest, PUBLISHER.public)
        for block in blocks[r - manifest.needed :]:
            assembly.add(block, ReplicaId(scheme, block.index))
        return assembly.content()

    check(put_together() == data)
    made = seconds_per_call(lambda: encode_content(bytes(16), data, Strategy.CODED, scheme, PUBLISHER))
    return {"made": 1 / made, "put together": 1 / seconds_per_call(put_together)}


def seconds_per_call(job: Callable[[], object]) -> float:
    """Seconds for one call: the best of some turns of ten milliseconds of the processor."""
    best = float("inf")
    for _ in range(TURNS):
        calls, start = 0, time.process_time()
        while (passed := time.process_time() - start) < TURN_SECONDS:
            job()
            calls += 1
        best = min(best, passed / calls)
    return best


def reconstruct_next(held: Iterator[tuple[shamir.ShamirShare, ...]], k: int) -> Secret:
    return shamir.reconstruct(next(held), k)


def check(right: bool) -> None:
    if not right:
        raise SystemExit("a key or content did not come out as it went in")


TURNS = 7
RUNS = 3
TURN_SECONDS = 0.01

if __name__ == "__main__":
    main()
