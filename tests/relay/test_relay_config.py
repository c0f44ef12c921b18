"""Valid and invalid settings of the relay's machines."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from veilcast.errors import ConfigError
from veilcast.relay.config import RateAllowance, RelayClientConfig, RelayProxyConfig, RelayServerConfig
from veilcast.wire import encode, geometry
from veilcast.wire.relay import RelayDelivery, Submit


@pytest.mark.parametrize("kind", [RelayClientConfig, RelayProxyConfig, RelayServerConfig])
def test_every_setting_has_a_minimum_and_the_error_names_it(kind: type[Any]) -> None:
    defaults = kind()
    numbers = [name for name, value in msgspec.structs.asdict(defaults).items() if type(value) is int]
    assert len(numbers) >= 8
    for name in numbers:
        with pytest.raises(ConfigError, match=rf"\.{name} must"):
            msgspec.structs.replace(defaults, **{name: -1})


def test_a_rate_allowance_is_positive() -> None:
    for every_us, burst in ((0, 1), (1, 0)):
        with pytest.raises(ConfigError):
            RateAllowance(every_us, burst)


def test_an_impossible_filter_bound_is_refused() -> None:
    with pytest.raises(ConfigError, match="no filter keeps this bound"):
        RelayServerConfig(filter_elements=1 << 30, filter_bound=1e-12)
    assert RelayServerConfig(filter_bound=0.01).filter_geometry.bound <= 0.01


def test_the_number_of_epochs_leased_ahead_is_bounded() -> None:
    with pytest.raises(ConfigError, match="at most"):
        RelayClientConfig(ahead_epochs=25)


def test_the_largest_messages_fit() -> None:
    sealed, subject = bytes(geometry.RELAYED_MAX), bytes(geometry.SUBJECT_MAX)
    subjects = ((subject,) * geometry.SUBJECTS_MAX, *((),) * (geometry.GROUPS_MAX - 1))
    names = (bytes(geometry.LEASE_NAME),) * geometry.ADDRESSEES_MAX
    assert len(encode(Submit(2**32 - 1, subjects, bytes(64), sealed))) <= geometry.MESSAGE_MAX
    assert len(encode(RelayDelivery(names, bytes(geometry.TICKET), bytes(64), sealed))) <= geometry.MESSAGE_MAX
