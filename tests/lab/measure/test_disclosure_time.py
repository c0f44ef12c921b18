from __future__ import annotations

import numpy as np

from veilcast.lab.measure.disclosure_time import rounds_to_disclosure, survival_curve


def rounds(*first: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """The most suspect of three nodes in each round; 3 means that all are equally suspect."""
    return np.array([[float(node == who) for node in range(3)] for who in first])


def test_a_target_is_disclosed_when_it_is_first_and_stays_so() -> None:
    assert rounds_to_disclosure(rounds(1, 0, 1, 0, 0, 0), 0, stays=3) == 4
    assert rounds_to_disclosure(rounds(0, 0, 1, 0, 0, 1), 0, stays=3) is None
    assert rounds_to_disclosure(rounds(0, 0, 0), 0, stays=3) == 1


def test_to_be_as_suspect_as_others_is_no_disclosure() -> None:
    assert rounds_to_disclosure(rounds(3, 3, 3), 0, stays=1) is None


def test_undisclosed_targets_stay_in_the_curve_to_its_end() -> None:
    assert survival_curve([1, 2, 2, None], 3).tolist() == [1.0, 0.75, 0.25, 0.25]
