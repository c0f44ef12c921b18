"""Batches leave together, shuffled, and no later than configured."""

from __future__ import annotations

from random import Random

from veilcast.relay.forwarding import Batch


def test_messages_within_a_batch_window_leave_together_in_random_order() -> None:
    batch: Batch[int] = Batch(Random(1), wait_us=100, most=1_000)
    for number in range(50):
        batch.put(number, number)
    assert batch.due_us == 100
    assert batch.take(99) == []
    taken = batch.take(100)
    assert taken != list(range(50))
    assert sorted(taken) == list(range(50))
    assert batch.take(1_000) == []
    assert len(batch) == 0


def test_every_order_of_a_batch_is_equally_likely() -> None:
    rng, orders = Random(1), dict.fromkeys(["012", "021", "102", "120", "201", "210"], 0)
    for _ in range(6_000):
        batch: Batch[int] = Batch(rng, wait_us=0, most=3)
        for number in range(3):
            batch.put(number, 0)
        orders["".join(map(str, batch.take(0)))] += 1
    assert all(850 < count < 1_150 for count in orders.values())


def test_a_full_batch_does_not_wait() -> None:
    batch: Batch[int] = Batch(Random(1), wait_us=100, most=2)
    batch.put(1, 0)
    batch.put(2, 7)
    assert batch.due_us == 7
    assert len(batch.take(7)) == 2
