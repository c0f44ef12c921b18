from __future__ import annotations

import pytest

from veilcast.errors import ConfigError
from veilcast.lab.measure.cost import of_cells, of_messages


def test_a_delivery_costs_its_share_of_all_messages() -> None:
    found = of_messages(100, 600, 40, 4.0, 0.5)
    assert found == pytest.approx({"delivery_messages": 2.5, "delivery_bytes": 1500, "delivery_seconds": 2})


def test_silent_links_cost_the_same_whatever_they_carry() -> None:
    few, many = (of_cells(messages, 200, 2, 1200, 60, 40, 4, 0.5) for messages in (10, 400))
    assert few["delivery_bytes"] == many["delivery_bytes"] == 2 * 200 * 2 * 1200 * 60 / 40
    assert few["delivery_messages"] < many["delivery_messages"]


def test_what_reached_nobody_has_no_cost_of_a_delivery() -> None:
    assert of_messages(3, 600, 0, 0, 1) == {}


def test_silence_without_cells_is_refused() -> None:
    with pytest.raises(ConfigError, match="cells"):
        of_cells(1, 10, 0, 1200, 1, 1, 1, 1)
