"""A host: the place where a machine lives, and dies, and comes back.

An address has one host for the whole run; a machine is one of its incarnations. What a host has written to
its disk outlives the machine, and is handed to the next one in its `Birth`. A host whose address nobody added
is simply down: frames to it are lost, as on a network.


A node's clock: the world's time, some way off, and running a little fast or slow.

`read` is the time a machine is told; it never goes back, even when the clock is set back: it then stands
still until the old reading is reached again, as a careful driver makes it. `when` is the inverse: the first
instant of the world at which the clock shows a deadline, so that timers fire on the node's own time. Both are
exact in integers."""

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
    """`offset_us` ahead of the world at `since_us`; gains `drift_ppm` microseconds a second from then on."""

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
    """All that a new incarnation is given. Its chance is made on first use: most small machines need none."""

    address: Address
    incarnation: int
    now: int
    stored: dict[int, bytes]
    """What earlier incarnations asked to `Record`, got `stored` and did not settle, by number, in order of writing."""
    seed: int

    @cached_property
    def rng(self) -> Random:
        return derive_rng(self.seed, "rng", self.address, str(self.incarnation))

    @cached_property
    def entropy(self) -> Entropy:
        return SeededEntropy(derive_bytes(self.seed, "entropy", self.address, str(self.incarnation)))


MachineFactory: TypeAlias = Callable[[Birth], Machine]


class SimulatedHost:
    """The engine's state for one address; plain slots, because there may be 10^5 of these."""

    __slots__ = (
        "address",
        "alarms",
        "clock",
        "deadline",
        "disk",
        "factory",
        "held",
        "incarnation",
        "index",
        "links",
        "machine",
        "paused",
        "turns",
        "turns_at",
        "unusual",
        "version",
        "watched",
    )

    def __init__(self, index: int, address: Address) -> None:
        self.index = index
        self.address = address
        self.factory: MachineFactory | None = None
        # Any, not Machine | None: the loop reads it once a step, after `unusual` has said that there is one.
        self.machine: Any = None
        self.incarnation = -1
        self.links: dict[Address, DirectedLink] = {}
        self.disk: dict[int, bytes] | None = None
        self.clock: HostClock | None = None
        # What waits in line for a host that is paused, or that was and has not caught up yet; None when nothing
        # has to wait. Bounded by what others send it.
        self.held: deque[tuple[DirectedLink | None, Any]] | None = None
        self.paused = False
        # True when the host is down, has a line waiting or a clock of its own: when a step is not the plain one.
        self.unusual = True
        # The deadline the machine named last, and the times at which the queue will wake this host for it.
        # The times fall from first to last: a new one is added only when it is earlier than all, so the last
        # is the next to come, nothing in the queue ever has to be cancelled, and moving a deadline to and fro
        # adds no entries.
        self.deadline: int | None = None
        self.alarms: list[int] = []
        # How many turns the host has asked for at one and the same instant.
        self.turns = 0
        self.turns_at = -1
        # The machine's version at the last check, when a checker looks at it at all; None before the first.
        self.version: int | None = None
        self.watched = False

    def clear(self) -> None:
        """Forget the machine and all that was in its memory."""
        self.machine = None
        self.deadline = None
        self.alarms = []
        self.held = None
        self.paused = False
        self.watched = False
        self.version = None
        self.settle()

    def settle(self) -> None:
        self.unusual = self.machine is None or self.held is not None or self.clock is not None
