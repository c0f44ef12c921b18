"""Valid settings of a member, and the errors of invalid ones."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from veilcast.errors import ConfigError
from veilcast.foil.config import HISTORY_MAX, STEPS_MAX, VALUES_MAX, WINDOW_MAX, AttributeConfig, FoilConfig
from veilcast.foil.generators.base import FAKES_MAX


def test_the_defaults_are_valid_and_fakes_can_be_turned_off() -> None:
    assert FoilConfig().profile == "hardened"
    assert FoilConfig(k_p=0, k_s=0, keep_us=0, margin_us=0, ahead_us=0).k_p == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"k_p": -1},
        {"k_p": FAKES_MAX + 1},
        {"k_s": FAKES_MAX + 1},
        {"prefix": ""},
        {"prefix": "a/b"},
        {"prefix": "$SYS"},
        {"prefix": "x" * 65},
        {"window": 0},
        {"window": WINDOW_MAX + 1},
        {"keep_alive_us": 1},
        {"retry_us": 0},
        {"records_max": 0},
    ],
)
def test_a_wrong_setting_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        FoilConfig(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"deviation": -1.0},
        {"deviation": float("nan")},
        {"block": 0},
        {"block": STEPS_MAX + 1},
        {"public_after": -1},
        {"values": ("a", "b"), "weights": (1.0,)},
        {"values": ("a", "a")},
        {"values": ("a", 1.0)},
        {"values": tuple(map(float, range(VALUES_MAX + 1)))},
        {"history": (0.0,) * (HISTORY_MAX + 1)},
        {"history": (1.0, float("nan"), 2.0)},
        {"lean": (0.0, float("inf"))},
        {"values": (1.0, float("nan"))},
        {"values": ("a", "b"), "weights": (1.0, float("nan"))},
    ],
)
def test_attribute_settings_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"foil\.attributes"):
        AttributeConfig(**wrong)


def test_a_toml_table_becomes_a_configuration() -> None:
    table = msgspec.toml.decode(
        b"""
        k_p = 9
        [attributes.price]
        relative = true
        history = [10.0, 10.5, 10.25]
        [attributes.kind]
        values = ["red", "green"]
        weights = [3.0, 1.0]
        """
    )
    config = msgspec.convert(table, FoilConfig)
    assert config.attributes["price"].relative
    assert config.attributes["kind"].values == ("red", "green")
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"fakes": 3}, FoilConfig)
