"""No two datagrams share a byte, a bit or a counter, whether cell or handshake packet.

The tests take the view of a stranger, over thousands of datagrams of equal bodies: each byte of the datagram is a
column. A chi-square test compares the values of a column with the uniform distribution, and the bytes of consecutive
datagrams with chance agreement. The bounds are for one false alarm in a million at this seed. Every check detects a
planted bug.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from support.link_pair import NOW, A, B, admission, handshake_pair, network
from veilcast.crypto.uniform_seal import HeaderMask
from veilcast.link.admission import LinkAdmission
from veilcast.link.session import LinkSession
from veilcast.wire.geometry import CELL, CELL_BODY

Wire = npt.NDArray[np.uint8]
"""One datagram a row."""


def as_wire(datagrams: list[bytes]) -> Wire:
    return np.frombuffer(b"".join(datagrams), dtype=np.uint8).reshape(len(datagrams), CELL)


@cache
def cells() -> Wire:
    """The cells of an idle link."""
    session = handshake_pair()[0].session
    return as_wire([session.seal(bytes(CELL_BODY), NOW) for _ in range(4096)])


@cache
def packets() -> Wire:
    """Every packet of many handshakes of the same two members."""
    people, seen = network(), list[bytes]()
    meeting = 0
    while len(seen) < 4096:
        meeting += 1
        seen += letters_of_one_meeting(admission(people.alice, 2 * meeting), admission(people.bob, 2 * meeting + 1))
    return as_wire(seen[:4096])


def letters_of_one_meeting(ours: LinkAdmission, theirs: LinkAdmission) -> list[bytes]:
    seen = [ours.initiate(B, NOW)]
    while True:
        receiver, source = ((theirs, A), (ours, B))[(len(seen) - 1) % 2]
        reply = receiver.receive(seen[-1], source, NOW).reply
        if reply is None:
            return seen
        seen.append(reply)


def worst_chi_square(wire: Wire) -> float:
    """The largest of all columns, in standard deviations over its mean, with 255 degrees of freedom each."""
    counts = np.stack([np.bincount(column, minlength=256) for column in wire.T])
    expected = len(wire) / 256
    chi_square = ((counts - expected) ** 2 / expected).sum(axis=1)
    return float((chi_square.max() - 255) / np.sqrt(2 * 255))


def worst_bit(wire: Wire) -> float:
    """The most uneven bit, in standard deviations."""
    ones = np.unpackbits(wire, axis=1).sum(axis=0, dtype=np.int64)
    return float(np.abs(ones - len(wire) / 2).max() / np.sqrt(len(wire) / 4))


def agreement_of_neighbours(wire: Wire) -> float:
    """Share of consecutive datagrams with the same byte in a column, at its worst; 1/256 by chance."""
    same = (wire[1:] == wire[:-1]).sum(axis=0)
    expected = (len(wire) - 1) / 256
    return float((same.max() - expected) / np.sqrt(expected))


def worst_step(wire: Wire) -> float:
    """Share of consecutive datagrams whose first eight bytes differ by the same number, as a counter's would."""
    numbers = np.frombuffer(wire[:, :8].tobytes(), dtype=">u8").astype(np.uint64)
    _, counts = np.unique(np.diff(numbers), return_counts=True)
    return float(counts.max())


CHECKS: dict[str, tuple[Callable[[Wire], float], float]] = {
    "chi-square": (worst_chi_square, 7.5),
    "bits": (worst_bit, 6.5),
    "neighbours": (agreement_of_neighbours, 8.0),
    "steps": (worst_step, 1.0),
}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("wire", [cells, packets], ids=["cells", "packets"])
def test_datagrams_show_nothing_in_common(wire: Callable[[], Wire], check: str) -> None:
    measure, bound = CHECKS[check]
    assert measure(wire()) <= bound


def test_cells_and_handshake_packets_cannot_be_distinguished_by_their_bytes() -> None:
    """Both kinds side by side, column by column: a two-sample chi-square on 16 bins of each."""
    mine, others = cells() >> 4, packets() >> 4
    counts = [np.stack([np.bincount(column, minlength=16) for column in wire.T]) for wire in (mine, others)]
    chi_square = ((counts[0] - counts[1]) ** 2 / (counts[0] + counts[1])).sum(axis=1)
    assert (chi_square.max() - 15) / np.sqrt(30) < 11.5


def noise() -> Wire:
    return as_wire([random.Random(seed).randbytes(CELL) for seed in range(4096)])


def one_byte_constant() -> Wire:
    wire = noise().copy()
    wire[:, 700] = 7
    return wire


def points_in_clear() -> Wire:
    """An X25519 point has its highest bit clear."""
    wire = noise().copy()
    wire[:, 63] &= 0x7F
    return wire


def bytes_that_stay_for_a_while() -> Wire:
    wire = noise().copy()
    wire[1::2, 100] = wire[::2, 100]
    return wire


def header_in_clear(monkeypatch: pytest.MonkeyPatch) -> Wire:
    monkeypatch.setattr(HeaderMask, "mask_for", lambda self, sample: 0)
    session: LinkSession = handshake_pair(seed=9)[0].session
    return as_wire([session.seal(bytes(CELL_BODY), NOW) for _ in range(4096)])


def one_mask_for_all(monkeypatch: pytest.MonkeyPatch) -> Wire:
    monkeypatch.setattr(HeaderMask, "mask_for", lambda self, sample: 0x0123456789ABCDEF)
    session: LinkSession = handshake_pair(seed=9)[0].session
    return as_wire([session.seal(bytes(CELL_BODY), NOW) for _ in range(4096)])


@pytest.mark.parametrize(
    ("planted", "check"),
    [
        (one_byte_constant, "chi-square"),
        (points_in_clear, "bits"),
        (bytes_that_stay_for_a_while, "neighbours"),
    ],
)
def test_each_check_detects_its_fault(planted: Callable[[], Wire], check: str) -> None:
    measure, bound = CHECKS[check]
    assert measure(planted()) > 2 * bound


@pytest.mark.parametrize("planted", [header_in_clear, one_mask_for_all])
def test_visible_counters_are_detected(
    planted: Callable[[pytest.MonkeyPatch], Wire], monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = planted(monkeypatch)
    assert worst_step(wire) > 100
    assert worst_chi_square(wire) > 100
