from __future__ import annotations

import msgspec
import pytest

from veilcast.core.settings import check_minimum
from veilcast.errors import ConfigError


class Settings(msgspec.Struct, frozen=True):
    few: int = 0
    many: int = 9


def test_a_setting_below_its_minimum_is_named_with_its_table() -> None:
    check_minimum(Settings(), "shop", 0, "few", "many")
    with pytest.raises(ConfigError, match=r"^shop\.few must be at least 1$"):
        check_minimum(Settings(), "shop", 1, "many", "few")
