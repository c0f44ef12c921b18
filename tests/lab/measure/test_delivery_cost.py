from __future__ import annotations

import pytest

from veilcast.lab.measure.delivery_cost import delivery_cost


def test_a_delivery_costs_its_share_of_all_messages() -> None:
    found = delivery_cost(100, 600, 40, 4.0, 0.5)
    assert found == pytest.approx({"messages_each": 2.5, "bytes": 1500, "latency": 2})


def test_a_notification_without_deliveries_has_no_cost_of_a_delivery() -> None:
    assert delivery_cost(3, 600, 0, 0, 1) == {}
