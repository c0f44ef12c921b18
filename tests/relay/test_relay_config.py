"""What the machines of the relay can be told, and what not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from veilcast.errors import ConfigError
from veilcast.relay.config import RateAllowance, RelayClientConfig, RelayProxyConfig, RelayServerConfig
from veilcast.wire import encode, geometry
from veilcast.wire.relay import RelayDelivery, Submit


@pytest.mark.parametrize("kind", [RelayClientConfig, RelayProxyConfig, RelayServerConfig])
def test_every_number_has_a_least_value_and_its_error_names_it(kind: type[Any]) -> None:
    defaults = kind()
    numbers = [name for name, value in msgspec.structs.asdict(defaults).items() if type(value) is int]
    assert len(numbers) >= 8
    for name in numbers:
        with pytest.raises(ConfigError, match=rf"\.{name} must"):
            msgspec.structs.replace(defaults, **{name: -1})


def test_an_allowance_allows_something() -> None:
    for every_us, burst in ((0, 1), (1, 0)):
        with pytest.raises(ConfigError):
            RateAllowance(every_us, burst)


def test_a_bound_that_no_filter_keeps_is_refused() -> None:
    with pytest.raises(ConfigError, match="no filter keeps this bound"):
        RelayServerConfig(filter_elements=1 << 30, filter_bound=1e-12)
    assert RelayServerConfig(filter_bound=0.01).filter_geometry.bound <= 0.01


def test_leases_are_not_for_ever_ahead() -> None:
    with pytest.raises(ConfigError, match="at most"):
        RelayClientConfig(ahead_epochs=25)


def test_the_largest_messages_fit() -> None:
    sealed, subject = bytes(geometry.RELAYED_MAX), bytes(geometry.SUBJECT_MAX)
    subjects = ((subject,) * geometry.SUBJECTS_MAX, *((),) * (geometry.GROUPS_MAX - 1))
    names = (bytes(geometry.LEASE_NAME),) * geometry.ADDRESSEES_MAX
    assert len(encode(Submit(2**32 - 1, subjects, bytes(64), sealed))) <= geometry.MESSAGE_MAX
    assert len(encode(RelayDelivery(names, bytes(geometry.TICKET), bytes(64), sealed))) <= geometry.MESSAGE_MAX
