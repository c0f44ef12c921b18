"""Adversaries: machines that misbehave on purpose, for tests, scenarios and the lab.

Each wraps an honest machine and does one thing to its traffic, so they stack: `Tee(Dropper(node, ...), ...)`
is a spy that also drops. What a wrapper draws it draws from the `rng` it is given. `Puppet` has no honest
machine inside: it says what its script says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from random import Random
from typing import Any, Final, TypeAlias

from veilcast.machine import Address, Event, Frame, Machine
from veilcast.observe import InsiderRow
from veilcast.sim.recorder import RowSink


class MachineWrapper:
    """Passes everything on, to and fro, notices too if the inner machine has them; the base of the others."""

    def __init__(self, inner: Machine) -> None:
        self._inner = inner

    @property
    def inner(self) -> Any:
        return self._inner

    @property
    def version(self) -> int:
        return int(self.inner.version)  # No default: a machine without a version must not escape its checkers.

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self._inner.receive(data, source, now)

    def handle_timer(self, now: int) -> None:
        self._inner.handle_timer(now)

    def next_timer(self) -> int | None:
        return self._inner.next_timer()

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        return self._inner.frames_to_send(now, limit)

    def next_event(self) -> Event | None:
        return self._inner.next_event()

    def peer_up(self, peer: Address, now: int) -> None:
        self._notify("peer_up", peer, now)

    def peer_lost(self, peer: Address, now: int) -> None:
        self._notify("peer_lost", peer, now)

    def stored(self, record: int, now: int) -> None:
        self._notify("stored", record, now)

    def _frames_of_inner(self, now: int, limit: int) -> list[Frame]:
        """All frames the inner machine has, for wrappers that do not pass on one for one.

        A driver asks again only after a full batch, so what such a wrapper left inside could be stuck there.
        """
        frames = batch = self._inner.frames_to_send(now, limit)
        while len(batch) == limit:
            batch = self._inner.frames_to_send(now, limit)
            frames = frames + batch
        return frames

    def _notify(self, notice: str, about: Address | int, now: int) -> None:
        method = getattr(self._inner, notice, None)
        if method is not None:
            method(about, now)


def iterate_layers(machine: Any) -> Iterator[Any]:
    """A machine, the machine that it wraps, and so on to the last."""
    while machine is not None:
        yield machine
        machine = getattr(machine, "inner", None)


def unwrap(machine: Any) -> Any:
    """The machine inside all wrappers, and inside its links."""
    while (inner := getattr(machine, "inner", None)) is not None:
        machine = inner
    return machine


class Dropper(MachineWrapper):
    """Swallows a share of the frames its machine would send."""

    def __init__(self, inner: Machine, rng: Random, drop_ppm: int = 1_000_000) -> None:
        super().__init__(inner)
        self._rng = rng
        self._drop_ppm = drop_ppm
        self._kept: list[Frame] = []

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        for frame in self._frames_of_inner(now, limit):
            if self._rng.randrange(1_000_000) >= self._drop_ppm:
                self._kept.append(frame)
        frames, self._kept = self._kept[:limit], self._kept[limit:]
        return frames


class Tamperer(MachineWrapper):
    """Flips one bit in a share of the frames its machine sends."""

    def __init__(self, inner: Machine, rng: Random, tamper_ppm: int = 1_000_000) -> None:
        super().__init__(inner)
        self._rng = rng
        self._tamper_ppm = tamper_ppm

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        return [self._tampered(frame) for frame in super().frames_to_send(now, limit)]

    def _tampered(self, frame: Frame) -> Frame:
        if not frame.data or self._rng.randrange(1_000_000) >= self._tamper_ppm:
            return frame
        data = bytearray(frame.data)
        data[self._rng.randrange(len(data))] ^= 1 << self._rng.randrange(8)
        return Frame(frame.destination, bytes(data))


class Delayer(MachineWrapper):
    """Holds back every frame its machine sends for a fixed time; past `MEMORY_MAX` frames the oldest are lost."""

    def __init__(self, inner: Machine, delay_us: int) -> None:
        super().__init__(inner)
        self._delay_us = delay_us
        self._waiting: deque[tuple[int, Frame]] = deque(maxlen=MEMORY_MAX)

    def next_timer(self) -> int | None:
        inner = super().next_timer()
        if not self._waiting:
            return inner
        due = self._waiting[0][0]
        return due if inner is None else min(due, inner)

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        self._waiting += [(now + self._delay_us, frame) for frame in self._frames_of_inner(now, limit)]
        frames: list[Frame] = []
        while self._waiting and self._waiting[0][0] <= now and len(frames) < limit:
            frames.append(self._waiting.popleft()[1])
        return frames


class Replayer(MachineWrapper):
    """Sends each frame it receives once more, to whoever writes to it next; at most `MEMORY_MAX` wait."""

    def __init__(self, inner: Machine) -> None:
        super().__init__(inner)
        self._last: bytes | None = None
        self._replays: deque[Frame] = deque(maxlen=MEMORY_MAX)

    def receive(self, data: bytes, source: Address, now: int) -> None:
        if self._last is not None:
            self._replays.append(Frame(source, self._last))
        self._last = data
        super().receive(data, source, now)

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        frames = [*super().frames_to_send(now, limit)]
        while self._replays and len(frames) < limit:
            frames.append(self._replays.popleft())
        return frames


FrameDescription: TypeAlias = tuple[str, bytes, bytes, bytes, str]
"""What an insider makes of a frame: kind, message, token, chain, about."""


class RecordingWrapper(MachineWrapper):
    """A member that works as it should and writes down all it sees, in the `insiders` table."""

    def __init__(
        self,
        inner: Machine,
        observer: Address,
        recorder: RowSink,
        *,
        run: str,
        epoch_us: int,
        describe: Callable[[bytes], FrameDescription] | None = None,
    ) -> None:
        super().__init__(inner)
        self._observer = observer
        self._recorder = recorder
        self._run = run
        self._epoch_us = epoch_us
        self._describe = describe or _bare

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self._write("in", source, data, now)
        super().receive(data, source, now)

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        frames = super().frames_to_send(now, limit)
        for frame in frames:
            self._write("out", frame.destination, frame.data, now)
        return frames

    def _write(self, way: str, peer: Address, data: bytes, now: int) -> None:
        kind, message, token, chain, about = self._describe(data)
        epoch = now // self._epoch_us
        row = InsiderRow(self._run, epoch, now, self._observer, peer, f"{way}:{kind}", message, token, chain, about)
        self._recorder.append(row)


class Puppet:
    """A machine without logic: sends frames at the times of its script; keeps the last `MEMORY_MAX` it got."""

    version = 0

    def __init__(self, script: Iterable[tuple[int, Frame]] = ()) -> None:
        self._script = deque(sorted(script, key=lambda line: line[0]))
        self._due: list[Frame] = []
        self.received: deque[tuple[int, Address, bytes]] = deque(maxlen=MEMORY_MAX)

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self.received.append((now, source, data))

    def handle_timer(self, now: int) -> None:
        while self._script and self._script[0][0] <= now:
            self._due.append(self._script.popleft()[1])

    def next_timer(self) -> int | None:
        return self._script[0][0] if self._script else None

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        frames, self._due = self._due[:limit], self._due[limit:]
        return frames

    def next_event(self) -> Event | None:
        return None


def _bare(data: bytes) -> FrameDescription:
    """An insider that understands nothing can still tell when it sees the same bytes again."""
    return "frame", blake2b(data, digest_size=16).digest(), b"", b"", ""


MEMORY_MAX: Final = 4096
