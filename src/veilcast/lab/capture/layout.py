"""How to read the bytes of a capture: byte order, and the description of each interface.

A capture is a chain of records, each of which states its length. With the layout, reading can begin at any record. So a
long file is cut into spans that are read by themselves, each with the layout that holds in it.
"""

from __future__ import annotations

from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

Octets: TypeAlias = NDArray[np.uint8]
"""Read-only bytes, mapped from a file or unpacked."""

Column: TypeAlias = NDArray[np.int64]
Word: TypeAlias = Any
"""An integer in a kernel, where Python's and numpy's are the same."""


class Interface(msgspec.Struct, frozen=True):
    """Description of an interface: its link type, and how its times count."""

    link: int
    exponent: int = 6
    """A tick is 10 (or, if `binary`, 2) to the minus this of a second."""
    binary: bool = False
    offset_s: int = 0
    """Seconds to add to every time."""
    snap: int = 0
    """Bytes kept of a packet; 0 for all."""

    def __post_init__(self) -> None:
        if not 0 <= self.exponent <= (BINARY_MAX if self.binary else DECIMAL_MAX):
            raise ValueError("a resolution of time that cannot be")
        if not -SECONDS_MAX <= self.offset_s <= SECONDS_MAX:
            raise ValueError("an offset of time that cannot be")


class Layout(msgspec.Struct, frozen=True):
    format: Literal["pcap", "pcapng"]
    big: bool
    """Whether numbers are big-endian."""
    interfaces: tuple[Interface, ...] = ()


class Packets(msgspec.Struct, frozen=True):
    """Positions of the packets of a span, in columns."""

    at: Column
    kept: Column
    """Bytes in the capture."""
    length: Column
    """Bytes on the wire."""
    t_us: Column
    """Unix time in microseconds; 0 if none was recorded, -1 if it is impossible."""
    link: Column
    """Link type; -1 if the interface is unknown."""
    interface: Column


class Walker(Protocol):
    """Goes from record to record of one format."""

    layout: Layout
    begin: int
    """Position of the first record."""

    def walk(self, data: Octets, at: int, stop: int) -> tuple[int, int, int]:
        """Go over whole records until one begins at or after `stop`, another layout begins, or the bytes end.

        Returns that position, the number of packets passed, and one of the reasons below.
        """

    def damage(self) -> str:
        """The damage of the record at which the walk ended as `ABSURD`."""


REACHED: Final = 0
SHORT: Final = 1
"""The bytes end before the record does."""
ABSURD: Final = 2
"""The record states something impossible."""

SECONDS_MAX: Final = 1 << 40
"""Later times are invalid; in microseconds, these still fit 64 bits."""
BINARY_MAX: Final = 63
DECIMAL_MAX: Final = 24
"""64 bits do not hold one second of finer ticks."""
