from __future__ import annotations

import msgspec
import pytest

from veilcast.errors import ConfigError
from veilcast.parts.least import at_least


class Settings(msgspec.Struct, frozen=True):
    few: int = 0
    many: int = 9


def test_a_setting_that_is_less_is_named_with_its_table_and_the_least() -> None:
    at_least(Settings(), "shop", 0, "few", "many")
    with pytest.raises(ConfigError, match=r"^shop\.few must be at least 1$"):
        at_least(Settings(), "shop", 1, "many", "few")
