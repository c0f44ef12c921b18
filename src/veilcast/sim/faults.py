"""Faults as values: what fails, when, and for how long; scripted, or drawn from the seed.

A fault begins at `at_us` of the run and ends `for_us` later, or never. `draw_swarm` draws a plan. Each seed switches on
a random subset of the kinds, each with a random strength: if everything fails a little at once, bugs that need one
thing to fail a lot stay hidden. All drawn faults are over by three quarters of the run, and a protocol must achieve its
goals in the calm that follows. Only clocks stay wrong.

Faults may overlap. The first end of a crash restarts a node, the first end of a pause resumes it, and the end of any
storm is calm. A link that two partitions block stays closed until both have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import ClassVar, Final, TypeAlias

import msgspec

from veilcast.errors import ConfigError
from veilcast.machine import Address
from veilcast.sim.links import CALM, Weather
from veilcast.sim.rng import derive_rng
from veilcast.sim.world import World


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind"):
    """The base of every fault; in TOML, `kind` selects the class."""

    lasting: ClassVar[bool] = True
    """True if this fault lasts until it is ended."""

    at_us: int = 0
    for_us: int | None = None
    """Duration in microseconds; None lasts to the end of the run."""

    def __post_init__(self) -> None:
        if self.at_us < 0:
            raise ConfigError("at_us must not be negative")
        if self.for_us is not None and (self.for_us <= 0 or not self.lasting):
            raise ConfigError("for_us must be positive, and is not for what happens at once")

    def nodes(self) -> tuple[Address, ...]:
        """The addresses that the fault names, so that a script can be checked before it runs."""
        return ()

    def begin(self, world: World) -> None:
        raise NotImplementedError

    def end(self, world: World) -> None:
        """Undo the fault; nothing by default."""


class Crash(Fault, frozen=True, tag="crash"):
    """The machine dies. At the end its next incarnation starts, with the contents of the disk."""

    node: Address

    def nodes(self) -> tuple[Address, ...]:
        return (self.node,)

    def begin(self, world: World) -> None:
        world.crash(self.node)

    def end(self, world: World) -> None:
        world.restart(self.node)


class Pause(Fault, frozen=True, tag="pause"):
    """The process stops. At the end it receives all waiting messages at once."""

    node: Address

    def nodes(self) -> tuple[Address, ...]:
        return (self.node,)

    def begin(self, world: World) -> None:
        world.pause(self.node)

    def end(self, world: World) -> None:
        world.resume(self.node)


class Partition(Fault, frozen=True, tag="partition"):
    """No frame gets from these sources to these targets. The other direction is a second fault."""

    sources: tuple[Address, ...]
    targets: tuple[Address, ...]

    def nodes(self) -> tuple[Address, ...]:
        return self.sources + self.targets

    def begin(self, world: World) -> None:
        self._each(world.block)

    def end(self, world: World) -> None:
        self._each(world.unblock)

    def _each(self, act: Callable[[Address, Address], None]) -> None:
        for source in self.sources:
            for target in self.targets:
                if source != target:
                    act(source, target)


class Cut(Fault, frozen=True, tag="cut"):
    """The stream between two machines breaks, if there is one; they may connect again at once."""

    lasting: ClassVar[bool] = False

    between: tuple[Address, Address]

    def nodes(self) -> tuple[Address, ...]:
        return self.between

    def begin(self, world: World) -> None:
        world.cut(*self.between)


class Storm(Fault, frozen=True, tag="storm"):
    """Faults on all links; calm at the end."""

    weather: Weather

    def begin(self, world: World) -> None:
        world.set_weather(self.weather)

    def end(self, world: World) -> None:
        world.set_weather(CALM)


class Skew(Fault, frozen=True, tag="skew"):
    """A clock with a wrong offset and a wrong rate, from this time on."""

    lasting: ClassVar[bool] = False

    node: Address
    offset_us: int = 0
    drift_ppm: int = 0

    def nodes(self) -> tuple[Address, ...]:
        return (self.node,)

    def begin(self, world: World) -> None:
        world.set_clock(self.node, self.offset_us, self.drift_ppm)


AnyFault: TypeAlias = Crash | Pause | Partition | Cut | Storm | Skew


def inject_faults(world: World, faults: Iterable[Fault]) -> None:
    """Schedule faults; their times count from the world's present."""
    for fault in faults:
        world.after(fault.at_us, _bind(fault.begin, world))
        if fault.for_us is not None:
            world.after(fault.at_us + fault.for_us, _bind(fault.end, world))


def draw_swarm(seed: int, addresses: Sequence[Address], horizon_us: int, kinds: Sequence[str]) -> tuple[AnyFault, ...]:
    """The faults of this seed. Each kind has its own generator, so leaving one out does not change the others."""
    plan: list[AnyFault] = []
    weather = {}
    calm_from_us = max(1, horizon_us * 3 // 4)
    for kind in kinds:
        rng = derive_rng(seed, "swarm", kind)
        if rng.getrandbits(1):
            continue
        if kind in _STORMS:
            weather[f"{kind}_ppm"] = rng.randint(1, _STORMS[kind])
            if kind == "reorder":
                weather["reorder_us"] = rng.randint(1_000, 500_000)
            elif kind == "replay":
                weather["replay_us"] = rng.randint(1, max(1, calm_from_us // 4))
        else:
            plan += _PLANS[kind](rng, addresses, calm_from_us)
    if weather:
        # The last replayed frame also arrives before the calm.
        plan.insert(0, Storm(for_us=max(1, calm_from_us - weather.get("replay_us", 0)), weather=Weather(**weather)))
    return tuple(plan)


def draw_kills(
    rng: Random, whom: Callable[[], Address], *, least: int = 0, most: int, longest_us: int, begin_us: int, end_us: int
) -> list[AnyFault]:
    """Crashes at any moment, of drawn machines, each with a restart before `end_us`."""
    deaths: list[AnyFault] = []
    for _ in range(rng.randint(least, most)):
        node, length_us = whom(), rng.randint(1, longest_us)
        deaths.append(Crash(at_us=rng.randrange(begin_us, end_us - length_us), for_us=length_us, node=node))
    return deaths


def _crashes(rng: Random, addresses: Sequence[Address], horizon_us: int) -> list[AnyFault]:
    return [Crash(node=node, at_us=at, for_us=length) for node, at, length in _spells(rng, addresses, horizon_us)]


def _pauses(rng: Random, addresses: Sequence[Address], horizon_us: int) -> list[AnyFault]:
    return [Pause(node=node, at_us=at, for_us=length) for node, at, length in _spells(rng, addresses, horizon_us)]


def _partitions(rng: Random, addresses: Sequence[Address], horizon_us: int) -> list[AnyFault]:
    faults: list[AnyFault] = []
    for _ in range(rng.randint(1, 3)):
        at, length = _spell(rng, horizon_us)
        mixed = rng.sample(addresses, len(addresses))
        cut = rng.randint(1, max(1, min(PARTITION_SIDE, len(mixed) // 2)))
        one, other = tuple(mixed[:cut]), tuple(mixed[cut:])
        if rng.getrandbits(1):
            one, other = other, one
        faults.append(Partition(sources=one, targets=other, at_us=at, for_us=length))
    return faults


def _skews(rng: Random, addresses: Sequence[Address], horizon_us: int) -> list[AnyFault]:
    share = rng.randint(1, len(addresses))
    return [
        Skew(node=node, offset_us=rng.randint(-5_000_000, 5_000_000), drift_ppm=rng.randint(-500, 500))
        for node in rng.sample(addresses, share)
    ]


def _spells(rng: Random, addresses: Sequence[Address], horizon_us: int) -> Iterable[tuple[Address, int, int]]:
    for _ in range(rng.randint(1, max(1, len(addresses) // 4))):
        yield rng.choice(addresses), *_spell(rng, horizon_us)


def _spell(rng: Random, horizon_us: int) -> tuple[int, int]:
    """A start, and a duration that ends before the horizon."""
    at = rng.randrange(horizon_us)
    return at, rng.randint(1, horizon_us - at)


def _bind(step: Callable[[World], None], world: World) -> Callable[[], None]:
    return lambda: step(world)


PARTITION_SIDE: Final = 32
"""Most nodes on the smaller side of a drawn partition. It blocks every pair across, so this bounds its work."""
_STORMS: Final = {"loss": 400_000, "duplicate": 300_000, "reorder": 500_000, "replay": 100_000}
"""The kinds that are link faults, with the highest rate of each in parts per million."""
_PLANS: Final[dict[str, Callable[[Random, Sequence[Address], int], list[AnyFault]]]] = {
    "crash": _crashes,
    "pause": _pauses,
    "partition": _partitions,
    "skew": _skews,
}
SWARM_KINDS: Final = (*_STORMS, *_PLANS)
