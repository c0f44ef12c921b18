"""The cost of the hardened mesh against the baseline: n = 500, degree 8, a tenth subscribers, a tenth offline.

The aim is four times the baseline's messages. A model gave 3.75, with a tenth of the nodes insiders that do not cover,
and no acknowledgements. If every node covers, and messages back along the stem count, too, it is 4.1.

No paper says how many hops a stem may add. A model gave 6.0; the first bound of this test was 7, over four seeds that
had 5.7 (`docs/decisions/0011-hardened-mesh.md`). Hops added since then, by the mean over seeds from 0 on:

    seeds                              4      8     16     32
    before the first relay was kept    5.8    6.2    6.0    5.9, with a standard error of 0.3
    since the first relay is kept      7.9    7.4    7.1    6.5, with a standard error of 0.3

Here the owner names the neighbours. Both rules draw the first relay by the same law, but with another hash, so the stem
of a seed is another draw of 4 to 10 hops. In the second sixteen seeds the two means are 5.8 and 5.9. Four seeds show
nothing, so the bound of 7 is held over 32.
"""

from __future__ import annotations

from statistics import mean

import pytest

from support.hardened_costs import measure_costs
from veilcast.authority.topic_record import COVER_SHARES

SEEDS = range(32)


@pytest.mark.heavy
def test_a_note_reaches_everybody_for_about_four_times_the_messages_and_at_most_seven_hops_later() -> None:
    baseline, hardened = (
        measure_costs(profile, 8, COVER_SHARES["high"], 0.1, 0.0, SEEDS) for profile in ("paper", "hardened")
    )
    assert all(cost.reached == 1 for cost in baseline + hardened)
    assert mean(cost.messages for cost in hardened) <= 4.2 * mean(cost.messages for cost in baseline)
    assert mean(cost.hops for cost in hardened) <= mean(cost.hops for cost in baseline) + 7
