from __future__ import annotations

import numpy as np
import pytest

from veilcast.lab.audit.attacker_reports import confidence


def test_only_a_node_that_is_first_in_every_part_is_suspected_with_confidence() -> None:
    parts = np.random.default_rng(1).random((8, 40))
    parts[:, 7] = 2.0
    found = confidence(parts)
    assert found.argmax() == 7
    assert found[7] > 0.999
    assert np.delete(found, 7).max() < 0.5


def test_one_part_may_be_missed_and_not_two() -> None:
    parts = np.tile(np.arange(40.0), (8, 1))
    parts[3, 39] = -1
    assert confidence(parts)[39] > 0.95
    parts[4, 39] = -1
    assert confidence(parts)[39] == 0


def test_parts_in_which_all_look_alike_do_not_count() -> None:
    parts = np.tile(np.arange(40.0), (8, 1))
    some = np.vstack([parts, np.ones((5, 40))])
    assert np.array_equal(confidence(some), confidence(parts))
    assert not confidence(np.ones((8, 40))).any()
    assert not confidence(parts[:2]).any()


def test_a_node_as_suspect_as_many_others_has_no_confidence() -> None:
    parts = np.zeros((8, 24))
    parts[:, :4] = 1
    assert confidence(parts)[0] > 0.95
    parts[:, :20] = 1
    assert confidence(parts)[0] == 0


@pytest.mark.parametrize("nodes", [8, 24, 200])
def test_noise_is_believed_in_one_of_twenty_records_at_most(nodes: int) -> None:
    """The null control; of 400 records a few more may be chance."""
    rng = np.random.default_rng(nodes)
    believed = [confidence(rng.random((8, nodes))).max() >= 0.95 for _ in range(400)]
    assert np.mean(believed) < 0.08
