"""What does reliable carriage cost a node for each cell, and what does loss cost a link?

First, CPU time to fill and to take one body, beside the bare cipher sealing as many bytes in the same run: idle cells,
a message in each, fragments of long messages; and the worst body that a hostile neighbour can write. Then two sides
exchange cells through a link that loses some, near (a round trip within a period) and far (eight periods). Goodput
stands beside the ideal: the cells that arrive, full to the last byte that is not a header. Delay counts cell periods
from `put` to arrival, beside that of a message that is in every cell until one arrives. Every message is checked on
arrival. Runs in some seconds:

    python benchmarks/transfer.py [--json]
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
from collections import deque
from collections.abc import Callable
from math import ceil, log
from statistics import median
from time import process_time

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from veilcast.link.chunks import write_chunk
from veilcast.link.lanes import WINDOW
from veilcast.link.transfer import TIMEOUT_CELLS, Transfer
from veilcast.wire.geometry import ACKNOWLEDGEMENTS, CELL, CHUNK_HEAD, CHUNK_MAX, LANES, MESSAGE_MAX


def main() -> None:
    parser = argparse.ArgumentParser(description="The cost of carriage, and of loss.")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the tables")
    as_json = parser.parse_args().json

    cipher_us = bare_cipher()
    costs = {"idle": idle_cost(), **{name: cost(message) for name, message in MESSAGES.items()}}
    worst_us = worst_take()
    losses = {f"{loss:.0%}": of_loss(loss) for loss in (0.0, 0.1, 0.3, 0.5)}

    if as_json:
        print(json.dumps({"cipher_us": cipher_us, "costs_us": costs, "worst_take_us": worst_us, "losses": losses}))
        return
    print(f"CPU us for a cell (the bare cipher seals one in {cipher_us:.2f})")
    print(f"{'':34}{'put':>8}{'fill':>8}{'take':>8}{'fill + take / cipher':>24}")
    for name, of in costs.items():
        ratio = (of["fill"] + of["take"]) / cipher_us
        print(f"{name:34}{of['put']:>8.2f}{of['fill']:>8.2f}{of['take']:>8.2f}{ratio:>24.2f}")
    print(f"{'the worst body':34}{'':16}{worst_us:>8.2f}")
    print()
    print(f"{'':8}{'goodput, bytes a cell; share of the ideal':>44}{'delay of a short message, periods':>40}")
    print(f"{'loss':8}{'near':>12}{'far':>12}{'ideal':>8}{'near':>6}{'far':>6}", end="")
    print(f"{'median':>14}{'ideal':>8}{'p99':>10}{'ideal':>8}")
    for name, of in losses.items():
        near, far, ideal = of["goodput"], of["goodput_far"], of["goodput_ideal"]
        print(f"{name:8}{near:>12.0f}{far:>12.0f}{ideal:>8.0f}{near / ideal:>6.2f}{far / ideal:>6.2f}", end="")
        print(f"{of['median']:>14.0f}{of['median_ideal']:>8.0f}{of['p99']:>10.0f}{of['p99_ideal']:>8.0f}")


def of_loss(loss: float) -> dict[str, float]:
    ideal = (ROOM - ACKNOWLEDGEMENTS - 2 * CHUNK_HEAD) * (1 - loss)
    far = goodput(loss, FAR)
    return {"goodput": goodput(loss, 0), "goodput_far": far, "goodput_ideal": ideal, **delay(loss)}


def bare_cipher() -> float:
    cipher, nonce, body = AESGCM(bytes(32)), bytes(12), bytes(ROOM)
    return cpu_us(lambda: cipher.encrypt(nonce, body, b""))


def idle_cost() -> dict[str, float]:
    left, right = Transfer(timeout_us=1), Transfer(timeout_us=1)
    # Other bytes each time, as a cipher would give them: the same object would compare too fast.
    bodies = itertools.cycle([bytes(bytearray(left.fill(ROOM, 1))) for _ in range(100)])
    return {"put": 0.0, "fill": cpu_us(lambda: left.fill(ROOM, 1)), "take": cpu_us(lambda: right.take(next(bodies), 1))}


def cost(message: bytes) -> dict[str, float]:
    """The median of rounds, in each of which every one of many links carries one cell and has it acknowledged."""
    lefts = [Transfer(timeout_us=1) for _ in range(LINKS)]
    rights = [Transfer(timeout_us=1) for _ in range(LINKS)]
    times: dict[str, list[float]] = {"put": [], "fill": [], "take": []}
    arrived = 0
    for now in range(1, ROUNDS + 1):
        idle = [left for left in lefts if not left.waiting]
        clock = [process_time()]
        for left in idle:
            left.put(message)
        clock.append(process_time())
        bodies = [left.fill(ROOM, now) for left in lefts]
        clock.append(process_time())
        entries = [right.take(body, now) for right, body in zip(rights, bodies, strict=True)]
        clock.append(process_time())
        for name, (start, end) in zip(times, itertools.pairwise(clock), strict=True):
            times[name].append((end - start) * 1e6 / LINKS)
        for left, right, of_link in zip(lefts, rights, entries, strict=True):
            assert all(entry == (message, False) for entry in of_link)
            arrived += len(of_link)
            left.take(right.fill(ROOM, now), now)
    assert arrived >= LINKS * ROUNDS // ceil(len(message) / CHUNK_MAX) - LINKS
    return {name: median(values) for name, values in times.items()}


def worst_take() -> float:
    """Chunks of one byte in every place that has room for one, all early, all new."""
    chunks = [write_chunk(lane, number, b"x", 0) for lane in range(LANES) for number in range(1, WINDOW)]
    body = (bytes(ACKNOWLEDGEMENTS) + b"".join(chunks))[:ROOM]
    body = body[: ROOM - (ROOM - ACKNOWLEDGEMENTS) % len(chunks[0])]
    sides = itertools.cycle([Transfer(timeout_us=1) for _ in range(4_000)])
    return cpu_us(lambda: next(sides).take(body, 1), count=400)


def goodput(loss: float, away: int) -> float:
    """Bytes a cell of long messages without end, one way; cells go both ways and are lost alike."""
    rng, exchange = random.Random(1), Exchange(loss, away)
    message = rng.randbytes(MESSAGE_MAX)
    arrived = 0
    for _ in range(CELLS):
        while exchange.left.waiting < 2:
            exchange.left.put(message)
        for entry in exchange.period():
            assert entry == message
            arrived += len(entry)
    return arrived / CELLS


def delay(loss: float) -> dict[str, float]:
    """A short message every few cells, so that there is room to spare."""
    exchange = Exchange(loss)
    put_at: list[int] = []
    delays: list[int] = []
    for period in range(CELLS):
        if period % 4 == 0:
            exchange.left.put(len(put_at).to_bytes(4, "big") + SHORT)
            put_at.append(period)
        for entry in exchange.period():
            assert entry == len(delays).to_bytes(4, "big") + SHORT
            delays.append(period - put_at[len(delays)] + 1)
    delays.sort()

    def tries(share: float) -> float:
        """Number of tries by which this share has arrived."""
        return max(1, ceil(log(1 - share) / log(loss))) if loss else 1

    return {
        "median": median(delays),
        "median_ideal": tries(0.5),
        "p99": delays[len(delays) * 99 // 100],
        "p99_ideal": tries(0.99),
    }


class Exchange:
    """Two sides, a cell each way in every period. A cell that is not lost arrives some periods after the next cells
    leave."""

    def __init__(self, loss: float, away: int = 0) -> None:
        self._loss, self._rng, self._now = loss, random.Random(2), 1
        self.left = Transfer(timeout_us=TIMEOUT_CELLS * PERIOD_US)
        self._right = Transfer(timeout_us=TIMEOUT_CELLS * PERIOD_US)
        self._to_left: deque[bytes | None] = deque([None] * away)
        self._to_right: deque[bytes | None] = deque([None] * away)

    def period(self) -> list[bytes]:
        self._now += PERIOD_US
        arrived: list[bytes] = []
        self._to_right.append(self._through(self.left.fill(ROOM, self._now)))
        if (body := self._to_right.popleft()) is not None:
            arrived = [message for message, _ in self._right.take(body, self._now)]
        self._to_left.append(self._through(self._right.fill(ROOM, self._now)))
        if (body := self._to_left.popleft()) is not None:
            self.left.take(body, self._now)
        return arrived

    def _through(self, body: bytes) -> bytes | None:
        return None if self._rng.random() < self._loss else body


def cpu_us(work: Callable[[], object], *, count: int = 2_000) -> float:
    rounds = []
    for _ in range(9):
        start = process_time()
        for _ in range(count):
            work()
        rounds.append((process_time() - start) * 1e6 / count)
    return median(rounds)


ROOM = CELL - 8 - 16
"""Bytes of a cell without header and tag."""
PERIOD_US = 250_000
CELLS = 10_000
FAR = 4
"""Periods that a cell takes one way, where it is far."""
LINKS, ROUNDS = 200, 60
SHORT = b"about thirty bytes of a short one"
MESSAGES = {
    "an idle heartbeat": b"a beat of thirty bytes, or so.".ljust(1184, b"\0"),
    "a note of 300 bytes": bytes(range(1, 101)) * 3,
    "a chunk of 1,024 bytes": b"n" * CHUNK_MAX,
    "a fragment of 48 KiB": b"n" * MESSAGE_MAX,
}

if __name__ == "__main__":
    main()
