"""What does the relay's arithmetic cost, beside the bare library underneath it?

The peer is rbcl called directly on bytes: the difference is what points that cannot be illegal cost. The
rows after those are the steps of a message through the relay, and the last the lottery's. All are timed
in turns, and the best turn counts; results are checked first.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable

import rbcl

from veilcast.crypto import vrf
from veilcast.crypto.group import Ciphertext, Point, Scalar, decrypt, encrypt, rerandomise, transform

Job = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    pairs, steps = operations(), relay() | lots()
    best: dict[Job, float] = {}
    for _ in range(TURNS):
        for job in [job for ours, peer in pairs.values() for job in (ours, peer)] + list(steps.values()):
            best[job] = min(best.get(job, float("inf")), seconds_per_call(job))
    report = {
        "us": {name: best[ours] * 1e6 for name, (ours, _) in pairs.items()},
        "us_rbcl": {name: best[peer] * 1e6 for name, (_, peer) in pairs.items()},
        "us_steps": {name: best[job] * 1e6 for name, job in steps.items()},
    }
    if as_json:
        print(json.dumps(report))
        return
    print(f"{'microseconds':32}{'veilcast':>12}{'rbcl':>10}{'ratio':>8}")
    for name, (ours, peer) in pairs.items():
        print(f"{name:32}{best[ours] * 1e6:12.1f}{best[peer] * 1e6:10.1f}{best[ours] / best[peer]:8.2f}")
    for name, job in steps.items():
        print(f"{name:32}{best[job] * 1e6:12.1f}")


def operations() -> dict[str, tuple[Job, Job]]:
    a, b = Scalar.draw(os.urandom), Scalar.draw(os.urandom)
    p, q = Point.draw(os.urandom), Point.draw(os.urandom)
    s, t, x, y = a.reveal(), b.reveal(), p.encode(), q.encode()
    check((p * a).encode() == rbcl.crypto_scalarmult_ristretto255(s, x))
    check((p + q).encode() == rbcl.crypto_core_ristretto255_add(x, y))
    check((a * b).reveal() == rbcl.crypto_core_ristretto255_scalar_mul(s, t))
    return {
        "decode a point": (lambda: Point.decode(x), lambda: rbcl.crypto_core_ristretto255_is_valid_point(x)),
        "point * scalar": (lambda: p * a, lambda: rbcl.crypto_scalarmult_ristretto255(s, x)),
        "generator * scalar": (a.public, lambda: rbcl.crypto_scalarmult_ristretto255_base(s)),
        "point + point": (lambda: p + q, lambda: rbcl.crypto_core_ristretto255_add(x, y)),
        "scalar * scalar": (lambda: a * b, lambda: rbcl.crypto_core_ristretto255_scalar_mul(s, t)),
    }


def relay() -> dict[str, Job]:
    sender, common = Scalar.draw(os.urandom), Scalar.draw(os.urandom)
    message = Point.draw(os.urandom)
    public, ratio = common.public(), common / sender
    sent = encrypt(message, sender.public(), os.urandom)
    moved: Ciphertext = transform(sent, ratio)
    check(decrypt(rerandomise(moved, public, os.urandom), common) == message)
    return {
        "tag a subject": lambda: Point.hash(b"news/eu", b"subject") * sender,
        "encrypt": lambda: encrypt(message, public, os.urandom),
        "transform by a ratio": lambda: transform(sent, ratio),
        "re-randomise": lambda: rerandomise(moved, public, os.urandom),
        "decrypt": lambda: decrypt(moved, common),
    }


def lots() -> dict[str, Job]:
    key = Scalar.draw(os.urandom)
    public, subject, said = vrf.public_of(key), bytes(16), bytes(200)
    lot, proof = vrf.draw_lot(key, subject), vrf.prove_lot(key, subject, said, os.urandom)
    vrf.check_lot(public, subject, lot, said, proof)
    return {
        "draw a lot": lambda: vrf.draw_lot(key, subject),
        "prove a lot": lambda: vrf.prove_lot(key, subject, said, os.urandom),
        "check a lot": lambda: vrf.check_lot(public, subject, lot, said, proof),
    }


def seconds_per_call(job: Job) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        job()
    return (time.perf_counter() - start) / CALLS


def check(right: bool) -> None:
    if not right:
        raise SystemExit("a result is wrong")


TURNS = 25
CALLS = 40

if __name__ == "__main__":
    main()
