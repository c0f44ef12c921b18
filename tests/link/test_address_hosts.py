from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.link.address_groups import host_of
from veilcast.machine import Address


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("10.0.0.1:4000", "10.0.0.1:4001"),
        ("10.0.0.1:4000", "[::ffff:10.0.0.1]:9"),
        ("[2001:db8::1]:4000", "[2001:db8::ffff:1]:9"),
        ("[fe80::1%eth0]:4000", "[fe80::1%eth1]:4000"),
        ("Node.Example:1", "node.example:2"),
    ],
)
def test_one_host_is_one_whatever_port_it_sends_from(one: str, other: str) -> None:
    assert host_of(Address(one)) == host_of(Address(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [("10.0.0.1:4000", "10.0.0.2:4000"), ("[2001:db8::1]:1", "[2001:db8:0:1::1]:1"), ("a:1", "b:1")],
)
def test_two_hosts_are_two(one: str, other: str) -> None:
    assert host_of(Address(one)) != host_of(Address(other))


@given(st.text())
def test_strangers_may_have_any_address(address: str) -> None:
    host_of(Address(address))
