from __future__ import annotations

import errno
import ipaddress
import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import ConfigError
from veilcast.net.address import format_address, listen_error, parse_address, split_pinned

PORTS = st.integers(0, 0xFFFF)


@given(st.ip_addresses(v=4), PORTS)
def test_every_address_of_four_bytes_has_one_text(host: ipaddress.IPv4Address, port: int) -> None:
    text = f"{host}:{port}"
    assert parse_address(text) == (socket.AF_INET, (str(host), port))
    assert format_address(parse_address(text)[1]) == text


@given(st.ip_addresses(v=6), PORTS, st.integers(0, 99))
def test_every_address_of_sixteen_bytes_has_one_text(host: ipaddress.IPv6Address, port: int, scope: int) -> None:
    address = (str(host), port, 0, scope)
    assert parse_address(format_address(address)) == (socket.AF_INET6, address)
    assert format_address(parse_address(f"[{host.exploded}]:{port}")[1]) == f"[{host}]:{port}"


@pytest.mark.parametrize(
    "text",
    [
        *("", "a" * 10_000, "localhost:4000"),
        *("127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:4000 ", "127.0.0.1:\u0663"),
        *("256.0.0.1:1", "1.2.3:4", "01.2.3.4:5"),
        *("::1:4000", "[::1]", "[::g]:1", "[fe80::1%eth0]:1", "[127.0.0.1]:4"),
    ],
)
def test_a_text_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="no address and port"):
        parse_address(text)


@given(st.text(), st.ip_addresses(), PORTS)
def test_the_pinned_name_is_before_the_last_at_sign(who: str, host: ipaddress.IPv4Address, port: int) -> None:
    assert split_pinned(f"{who}@{host}:{port}") == (who, f"{host}:{port}")
    assert split_pinned(f"{host}:{port}") == ("", f"{host}:{port}")


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.EADDRINUSE, "; if this process runs already, stop that one first"),
        (errno.EADDRNOTAVAIL, "; name an address that this machine has"),
        (errno.EACCES, "; name a port from 1024 on"),
        (errno.ENOBUFS, ""),
    ],
)
def test_an_unusable_address_is_reported_with_its_key_and_the_next_step(number: int, told: str) -> None:
    error = listen_error("listen", ("127.0.0.1", 4200), OSError(number, "whatever a library says"))
    assert str(error).startswith(f"listen: cannot use 127.0.0.1:4200: {os.strerror(number)}{told}")
