"""Several threads multiply as one does, and an error in one of them is raised."""

from __future__ import annotations

import threading

import pytest

from veilcast.crypto import group
from veilcast.crypto.group import Point, Scalar
from veilcast.errors import ConfigError, MalformedError
from veilcast.machine import Entropy
from veilcast.node import multiply_pool
from veilcast.node.multiply_pool import THREADS_MAX, WORTHWHILE, MultiplyPool


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 2 * WORTHWHILE - 1, 2 * WORTHWHILE, 3 * WORTHWHILE, 41])
def test_products_come_in_the_order_asked_for(threads: int, count: int, entropy: Entropy) -> None:
    pairs = [(Point.draw(entropy), Scalar.draw(entropy)) for _ in range(count)]
    with MultiplyPool(threads) as multiply:
        assert multiply(pairs) == group.multiply_each(pairs)


def test_work_is_shared_and_little_of_it_is_not(entropy: Entropy, monkeypatch: pytest.MonkeyPatch) -> None:
    at: dict[str, int] = {}

    def watched(pairs: list[tuple[Point, Scalar]]) -> list[Point]:
        at[threading.current_thread().name] = len(pairs)
        return group.multiply_each(pairs)

    monkeypatch.setattr(multiply_pool, "multiply_each", watched)
    pairs = [(Point.draw(entropy), Scalar.draw(entropy)) for _ in range(5 * WORTHWHILE)]
    with MultiplyPool(2) as multiply:
        multiply(pairs[:WORTHWHILE])
        assert at == {threading.current_thread().name: WORTHWHILE}
        multiply(pairs)
    assert sorted(at.values()) == [len(pairs) // 2] * 2


def test_an_error_in_a_thread_is_raised(entropy: Entropy, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(pairs: list[tuple[Point, Scalar]]) -> list[Point]:
        if threading.current_thread() is not threading.main_thread():
            raise MalformedError("the product is the identity")
        return group.multiply_each(pairs)

    monkeypatch.setattr(multiply_pool, "multiply_each", failing)
    with MultiplyPool(2) as multiply, pytest.raises(MalformedError):
        multiply([(Point.draw(entropy), Scalar.draw(entropy))] * 2 * WORTHWHILE)


@pytest.mark.parametrize("threads", [0, THREADS_MAX + 1])
def test_no_threads_and_too_many_are_refused(threads: int) -> None:
    with pytest.raises(ConfigError):
        MultiplyPool(threads)
