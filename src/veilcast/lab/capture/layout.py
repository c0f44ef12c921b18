"""How the bytes of a capture are to be read: byte order, and what was said about each interface.

A capture is a chain of records, each of which tells how long it is. Whoever knows the layout can begin at any record;
so a long file is cut into spans that are read by themselves, each with the layout that holds in it.
"""

from __future__ import annotations

from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

Octets: TypeAlias = NDArray[np.uint8]
"""Read-only, whether they come from a map of a file or from what was unpacked."""

Column: TypeAlias = NDArray[np.int64]
Word: TypeAlias = Any
"""An integer in a kernel, where those of Python and of numpy are the same."""


class Interface(msgspec.Struct, frozen=True):
    """What was said about an interface: its link type, and how its times count."""

    link: int
    exponent: int = 6
    """A tick is 10 (or, if `binary`, 2) to the minus this of a second."""
    binary: bool = False
    offset_s: int = 0
    """Seconds that are to be added to every time."""
    snap: int = 0
    """How much of a packet is kept; 0 for all."""

    def __post_init__(self) -> None:
        if not 0 <= self.exponent <= (BINARY_MAX if self.binary else DECIMAL_MAX):
            raise ValueError("a resolution of time that cannot be")
        if not -SECONDS_MAX <= self.offset_s <= SECONDS_MAX:
            raise ValueError("an offset of time that cannot be")


class Layout(msgspec.Struct, frozen=True):
    format: Literal["pcap", "pcapng"]
    big: bool
    """Whether numbers have their big end first."""
    interfaces: tuple[Interface, ...] = ()


class Packets(msgspec.Struct, frozen=True):
    """Where the packets of a span lie, in columns."""

    at: Column
    kept: Column
    """How many bytes of it are there."""
    length: Column
    """How many it had on the wire."""
    t_us: Column
    """Unix time; 0 where none was recorded, -1 where it cannot be."""
    link: Column
    """Its link type; -1 where the interface is not known."""
    interface: Column


class Walker(Protocol):
    """Goes from record to record of one format."""

    layout: Layout
    begin: int
    """Where the first record is."""

    def walk(self, data: Octets, at: int, stop: int) -> tuple[int, int, int]:
        """Go over whole records until one begins at or after `stop`, another layout begins, or no more can be gone.

        Returns where that is, how many packets were passed, and which of the reasons below it was.
        """

    def damage(self) -> str:
        """What was wrong with the record where the walk ended as `ABSURD`."""


REACHED: Final = 0
SHORT: Final = 1
"""The bytes end before the record does."""
ABSURD: Final = 2
"""The record says of itself what cannot be."""

SECONDS_MAX: Final = 1 << 40
"""Times beyond are no times; with microseconds, they still fit 64 bits."""
BINARY_MAX: Final = 63
DECIMAL_MAX: Final = 24
"""Of finer ticks 64 bits do not hold a second's worth."""
