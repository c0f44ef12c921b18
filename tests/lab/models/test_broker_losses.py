"""Byzantine brokers: what walking every path says of losses, and what each remedy leaves of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.models import broker_losses as losing
from veilcast.lab.models.broker_tree import BrokerTree, grow_tree
from veilcast.lab.models.rng import draw_below, stream
from veilcast.lab.models.user_placement import zipf_weights

OVERLAY = grow_tree(30, 2, "geometric", 4)
MATRIX = np.random.default_rng(1).integers(0, 4, (30, 30))
TRAFFIC = losing.BrokerTraffic(MATRIX, OVERLAY)


def path(overlay: BrokerTree, u: int, v: int) -> list[int]:
    up, down = [u], [v]
    while up[-1] != down[-1]:
        side = up if up[-1] > down[-1] else down
        side.append(int(overlay.parents[side[-1]]))
    return up + down[-2::-1]


few = settings(max_examples=20)
MARKED = st.lists(st.booleans(), min_size=30, max_size=30).map(np.array)


@few
@given(MARKED)
def test_every_byzantine_broker_on_a_path_costs_one_retransmission(marked: NDArray[np.bool_]) -> None:
    walked = {(u, v): path(OVERLAY, u, v) for u in range(30) for v in range(30)}
    again = sum(int(MATRIX[ends]) * int(marked[way].sum()) for ends, way in walked.items())
    content = sum(int(MATRIX[ends]) * (len(way) + 1) for ends, way in walked.items())
    assert TRAFFIC.plain(marked) == (again, content + again)
    # Who learns nothing of any loss loses as much, however suspicious.
    assert TRAFFIC.failover(marked, 1.0, 0, 1, 0).retransmissions == again


@few
@given(MARKED)
def test_who_never_forgets_loses_one_publication_for_each_pair_of_sender_and_broker(
    marked: NDArray[np.bool_],
) -> None:
    senders = set()
    for u in range(30):
        for v in range(30):
            if MATRIX[u, v]:
                way = path(OVERLAY, u, v)
                senders |= {pair for pair in zip(["client", *way], way, strict=False) if marked[pair[1]]}
    assert TRAFFIC.failover(marked, 1.0, 10**6, 1, 0).retransmissions == len(
        {(at if before == "client" else before, at) for before, at in senders}
    )


@few
@given(MARKED, st.integers(0, 9))
def test_of_coded_content_only_what_is_missing_beyond_the_spare_blocks_is_sent_again(
    marked: NDArray[np.bool_], number: int
) -> None:
    plain = TRAFFIC.plain(marked)
    coded = TRAFFIC.coded(marked, 3, 2, 1, number)
    assert 0 <= coded.retransmissions <= min(plain.retransmissions, 2 * MATRIX.sum())
    # With no spare block, whoever is met costs one, unless another had dropped the same already.
    assert coded.retransmissions <= TRAFFIC.coded(marked, 3, 3, 1, number).retransmissions <= plain.retransmissions
    if not marked.any():
        assert coded == (0, plain.content * 3 / 2)


@few
@given(MARKED, st.integers(0, 9))
def test_blocks_that_are_sent_again_are_those_that_walking_misses(marked: NDArray[np.bool_], number: int) -> None:
    chance = stream(1, "guilty", number)
    guilty = {int(broker): int(draw_below(chance, 5)) for broker in np.flatnonzero(marked)}
    missing = 0
    for u in range(30):
        for v in range(30):
            dropped = {guilty[broker] for broker in path(OVERLAY, u, v) if broker in guilty}
            missing += int(MATRIX[u, v]) * max(0, len(dropped) - 2)
    assert TRAFFIC.coded(marked, 5, 3, 1, number).retransmissions == missing


def test_one_byzantine_broker_leaves_enough_blocks_and_two_do_not_always() -> None:
    one = np.arange(30) == 0
    assert TRAFFIC.coded(one, 3, 2, 1, 0).retransmissions == 0
    both = [TRAFFIC.coded(np.arange(30) < 2, 3, 2, 1, number).retransmissions for number in range(30)]
    assert min(both) == 0 < max(both)


def test_full_replication_sends_nothing_again_and_much_more() -> None:
    whole = TRAFFIC.replicated(3)
    assert whole == (0, 9 * (MATRIX * OVERLAY.edges).sum() + 6 * MATRIX.sum())


def test_failover_loses_as_often_as_brokers_are_tried_again() -> None:
    many = MATRIX * 10_000
    marked = np.arange(30) < 5
    plain, held = (
        losing.BrokerTraffic(many, OVERLAY).failover(marked, finds, holds, 1, 0).retransmissions
        for finds, holds in ((1.0, 0), (0.9, 100))
    )
    assert held / plain == pytest.approx((1 / 0.9) / (1 / 0.9 + 100), rel=0.05)


def test_brokers_are_drawn_by_zipfs_law_twice_or_all_different() -> None:
    twice = np.mean([losing.draw_byzantine(400, 15, 1.0, True, 1, number) for number in range(2_000)], axis=0)
    assert twice == pytest.approx(1 - (1 - zipf_weights(400, 1.0)) ** 15, abs=0.05)
    different = [losing.draw_byzantine(400, 15, 1.0, False, 1, number) for number in range(50)]
    assert {int(marked.sum()) for marked in different} == {15}
    assert losing.draw_byzantine(5, 5, 2.0, False, 1, 0).all()


def test_remedies_that_are_none_are_refused() -> None:
    none = np.zeros(30, np.bool_)
    for finds, holds in ((0.0, 5), (1.1, 5), (0.5, -1)):
        with pytest.raises(ConfigError):
            TRAFFIC.failover(none, finds, holds, 1, 0)
    for replicas, needed in ((3, 4), (3, 0), (33, 2)):
        with pytest.raises(ConfigError):
            TRAFFIC.coded(none, replicas, needed, 1, 0)
    with pytest.raises(ConfigError, match="Byzantine"):
        losing.draw_byzantine(5, 6, 1.0, True, 1, 0)
