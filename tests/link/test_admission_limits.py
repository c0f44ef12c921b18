"""Which strangers are refused, when, and that no host pays for another."""

from __future__ import annotations

import random

import pytest

from veilcast.errors import ExcessError, RemoteError, StaleError
from veilcast.link.admission import (
    COOKIE_US,
    HOST_BURST,
    HOST_EVERY_US,
    PREFIXES_MAX,
    PROVEN_BURST,
    PROVEN_EVERY_US,
    STRANGERS_BURST,
    AdmissionLimits,
)
from veilcast.machine import Address

A, B = Address("10.0.0.1:4000"), Address("10.0.0.2:4000")
NEXT_DOOR = Address("10.0.0.1:4001")
THREAD = b"thread 8"
NOW = 1_000 * COOKIE_US


def make_limits(seed: int = 1) -> AdmissionLimits:
    return AdmissionLimits(random.Random(seed).randbytes)


def host(number: int) -> Address:
    return Address(f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}:4000")


def test_a_cookie_is_valid_for_its_address_its_nonce_and_a_limited_time() -> None:
    limits = make_limits()
    cookie = limits.cookie(A, THREAD, NOW)
    limits.admit(A, THREAD, cookie, NOW)
    limits.admit(A, THREAD, cookie, NOW + COOKIE_US)
    for source, thread, shown, when in (
        (B, THREAD, cookie, NOW),
        (NEXT_DOOR, THREAD, cookie, NOW),
        (A, b"other  8", cookie, NOW),
        (A, THREAD, cookie[:-1] + b"\0", NOW),
        (A, THREAD, make_limits(2).cookie(A, THREAD, NOW), NOW),
        (A, THREAD, cookie, NOW + 2 * COOKIE_US),
        (A, THREAD, cookie, NOW - COOKIE_US),
    ):
        with pytest.raises(StaleError):
            limits.admit(source, thread, shown, when)


def test_a_host_gets_its_burst_and_twenty_a_second_whatever_its_ports() -> None:
    limits, admitted = make_limits(), 0
    cookie = limits.cookie(A, THREAD, NOW)
    for step in range(2_000):
        now = NOW + step * 1_000
        try:
            limits.admit(A, THREAD, cookie, now)
            admitted += 1
        except StaleError:
            pass
    assert HOST_EVERY_US == 50_000
    assert admitted == HOST_BURST + 2_000_000 // HOST_EVERY_US - 1
    for port in range(4000, 4000 + HOST_BURST):
        limits.cookie(Address(f"10.0.0.9:{port}"), THREAD, NOW)
    with pytest.raises(StaleError):
        limits.cookie(Address("10.0.0.9:9"), THREAD, NOW)


def test_packets_with_a_forged_source_do_not_shut_its_owner_out() -> None:
    """An adversary that forges A's address uses up the cookies of A, never the handshakes of A, which has a cookie."""
    limits = make_limits()
    cookie = limits.cookie(A, THREAD, NOW)
    for _ in range(1_000):
        try:
            limits.cookie(A, THREAD, NOW)
        except StaleError:
            continue
    for _ in range(1_000):
        with pytest.raises(StaleError):
            limits.admit(A, THREAD, bytes(16), NOW)
    limits.admit(A, THREAD, cookie, NOW)


def test_all_hosts_together_get_no_more_than_the_total_rate() -> None:
    limits, cookies = make_limits(), 0
    for number in range(5_000):
        try:
            limits.cookie(host(number), THREAD, NOW)
            cookies += 1
        except ExcessError:
            pass
    assert cookies == STRANGERS_BURST
    admitted = 0
    for number in range(5_000):
        try:
            limits.admit(host(number), THREAD, limits._cookies.make(host(number), THREAD, NOW), NOW)
            admitted += 1
        except ExcessError:
            pass
    assert admitted == PROVEN_BURST
    limits.admit(B, THREAD, limits._cookies.make(B, THREAD, NOW), NOW + PROVEN_EVERY_US)


def test_remembered_hosts_are_bounded() -> None:
    limits = make_limits()
    for number in range(PREFIXES_MAX + 500):
        now = NOW + number * HOST_EVERY_US
        limits.admit(host(number), THREAD, limits.cookie(host(number), THREAD, now), now)
    assert len(limits._proven) == len(limits._strangers) == PREFIXES_MAX


def test_a_refusal_is_a_remote_error() -> None:
    limits = make_limits()
    with pytest.raises(RemoteError):
        limits.admit(A, THREAD, bytes(16), NOW)
