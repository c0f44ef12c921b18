"""Hosts: each address has one for the whole run, and a machine is one of its incarnations.

The disk of a host outlives the machine, and its records are given to the next incarnation (`Birth`). A host whose
address was never added is down: frames to it are lost, as on a network.

A host's clock may be wrong. `HostClock.read` is the time that the machine is given. It never goes back: if the clock is
set back, it stands still until the old reading is reached again, as a careful driver makes it. `HostClock.when` is the
inverse: the first instant of the world at which the clock shows a deadline, so that timers fire by the host's own time.
Both are exact in integers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any, Final, TypeAlias

from veilcast.errors import ConfigError
from veilcast.machine import Address, Entropy, Machine
from veilcast.sim.links import DirectedLink
from veilcast.sim.rng import SeededEntropy, derive_bytes, derive_rng


class HostClock:
    """`offset_us` ahead of the world at `since_us`; from then on it gains `drift_ppm` microseconds a second."""

    __slots__ = ("_floor", "_offset", "_rate", "_since")

    def __init__(self, since_us: int, offset_us: int, drift_ppm: int, floor_us: int) -> None:
        if drift_ppm <= -_MILLION:
            raise ConfigError(f"drift_ppm must be more than -1000000, not {drift_ppm}: the clock would stand still")
        self._since = since_us
        self._offset = offset_us
        self._rate = _MILLION + drift_ppm
        self._floor = floor_us

    def read(self, world_us: int) -> int:
        shown = self._since + self._offset + (world_us - self._since) * self._rate // _MILLION
        return max(shown, self._floor)

    def when(self, deadline_us: int) -> int:
        if deadline_us <= self._floor:
            return self._since
        missing = deadline_us - self._since - self._offset
        return self._since - (-missing * _MILLION // self._rate)


_MILLION: Final = 1_000_000


@dataclass(frozen=True)
class Birth:
    """The arguments of a new incarnation. Its generators are made on first use: most small machines need none."""

    address: Address
    incarnation: int
    now: int
    stored: dict[int, bytes]
    """Records that earlier incarnations stored and did not settle, by number, in order of writing."""
    seed: int

    @cached_property
    def rng(self) -> Random:
        return derive_rng(self.seed, "rng", self.address, str(self.incarnation))

    @cached_property
    def entropy(self) -> Entropy:
        return SeededEntropy(derive_bytes(self.seed, "entropy", self.address, str(self.incarnation)))


MachineFactory: TypeAlias = Callable[[Birth], Machine]


class SimulatedHost:
    """The engine's state for one address; with slots, because there may be 10^5 hosts."""

    __slots__ = (
        "address",
        "clock",
        "deadline",
        "disk",
        "factory",
        "incarnation",
        "index",
        "links",
        "machine",
        "paused",
        "turns",
        "turns_at",
        "unusual",
        "version",
        "waiting",
        "wakeups",
        "watched",
    )

    def __init__(self, index: int, address: Address) -> None:
        self.index = index
        self.address = address
        self.factory: MachineFactory | None = None
        # Any, not Machine | None: the loop reads it once a step, after `unusual` has told that there is a machine.
        self.machine: Any = None
        self.incarnation = -1
        self.links: dict[Address, DirectedLink] = {}
        self.disk: dict[int, bytes] | None = None
        self.clock: HostClock | None = None
        # The line of entries for a host that is paused, or that was and has not caught up; None if there is no line.
        # Bounded by the frames that other hosts send.
        self.waiting: deque[tuple[DirectedLink | None, Any]] | None = None
        self.paused = False
        # True if the host is down, has a line or its own clock: the loop then takes the slow path.
        self.unusual = True
        # The machine's last deadline, and the times at which the queue will wake this host for it. The times
        # decrease: a new one is added only if it is earlier than all others. So the last is the next to come, no
        # entry of the queue has to be cancelled, and moving a deadline to and fro adds no entries.
        self.deadline: int | None = None
        self.wakeups: list[int] = []
        # Turns that the host has asked for at the instant `turns_at`.
        self.turns = 0
        self.turns_at = -1
        # The machine's version at the last check; None before the first, or if no checker watches it.
        self.version: int | None = None
        self.watched = False

    def clear(self) -> None:
        """Forget the machine and all that was in its memory."""
        self.machine = None
        self.deadline = None
        self.wakeups = []
        self.waiting = None
        self.paused = False
        self.watched = False
        self.version = None
        self.settle()

    def settle(self) -> None:
        self.unusual = self.machine is None or self.waiting is not None or self.clock is not None
