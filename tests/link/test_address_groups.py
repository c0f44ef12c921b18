"""Groups of addresses: those of one owner share a host or prefix, different networks do not, and any text has one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.link.address_groups import host_of, ip_prefix
from veilcast.machine import Address


def same(u: str, v: str) -> bool:
    return ip_prefix(Address(u)) == ip_prefix(Address(v))


@pytest.mark.parametrize(
    ("u", "v"),
    [
        ("192.0.2.1:4000", "192.0.77.9:1"),
        ("[2001:db8:1::1]:4000", "[2001:db8:ffff::2]:4000"),
        ("2001:db8::1", "[2001:db8::2%eth0]:1"),
        ("[::ffff:192.0.2.1]:1", "192.0.2.1:1"),
        ("[2002:c000:0201::5]:1", "192.0.2.1:1"),
        ("[fd00:1::1]:1", "[fd00:1::2]:1"),
        ("10.1.2.3:1", "10.1.2.3:2"),
        ("a.example.org:1", "B.Example.org.:2"),
        (f"{'a' * 56}.onion:1", f"a{'b' * 55}.onion:1"),
    ],
)
def test_addresses_that_one_owner_may_have_share_a_prefix(u: str, v: str) -> None:
    assert same(u, v)


@pytest.mark.parametrize(
    ("u", "v"),
    [
        ("192.0.2.1:4000", "192.1.2.1:4000"),
        ("[2001:db8::1]:1", "[2001:db9::1]:1"),
        ("a.example.org:1", "a.example.net:1"),
        (f"{'a' * 56}.onion:1", f"{'b' * 56}.onion:1"),
        ("0.0.0.1:1", "[::1]:1"),
        ("192.168.1.4:4000", "192.168.1.5:4000"),
        ("127.0.0.1:4000", "127.0.0.2:4000"),
        ("[fd00:1::1]:1", "[fd00:1:0:1::1]:1"),
    ],
)
def test_addresses_of_different_networks_do_not(u: str, v: str) -> None:
    assert not same(u, v)


@given(st.text(max_size=130))
def test_any_text_has_a_prefix(text: str) -> None:
    assert isinstance(ip_prefix(Address(text)), str)


def test_onion_names_make_no_more_than_32_prefixes() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz234567"
    names = [f"{first}{second * 55}.onion:9" for first in letters for second in letters]
    assert len({ip_prefix(Address(name)) for name in names}) == 32


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
