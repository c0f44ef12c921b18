"""Multiplications in the group, shared by several threads: the `Multiply` of a busy proxy or server.

libsodium runs with the interpreter's lock released, and a multiplication is 95 % libsodium. So threads are as good as
processes up to some ten cores, and no secret has to leave the process (`benchmarks/relay_bulk.py`). The calling thread
takes a share, too, and waits for the others: a machine sees an ordinary function.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Self

from veilcast.crypto.group import Point, Scalar, multiply_each
from veilcast.errors import ConfigError


class MultiplyPool:
    """A `Multiply` on this many threads, including the caller's own. Use it in a `with` block."""

    def __init__(self, threads: int) -> None:
        if not 1 <= threads <= THREADS_MAX:
            raise ConfigError(f"multiplications take 1 to {THREADS_MAX} threads")
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads - 1, "multiply") if threads > 1 else None

    def __call__(self, pairs: Sequence[tuple[Point, Scalar]]) -> list[Point]:
        shares = min(self.threads, len(pairs) // WORTHWHILE)
        if self._pool is None or shares < 2:
            return multiply_each(pairs)
        size = -(-len(pairs) // shares)
        others = [
            self._pool.submit(multiply_each, pairs[start : start + size]) for start in range(size, len(pairs), size)
        ]
        products = multiply_each(pairs[:size])
        for other in others:
            products += other.result()
        return products

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()


THREADS_MAX: Final = 64

WORTHWHILE: Final = 4
"""The smallest share, in multiplications: a smaller one takes less time than waking a thread for it."""
