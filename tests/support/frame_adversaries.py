"""Adversaries that change frames: each wraps an honest machine and does one thing to its traffic, so they stack.

`ScriptedPeer` has no honest machine inside: it sends the frames of its script.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from hashlib import blake2b
from random import Random
from typing import TypeAlias

from veilcast.machine import Address, Event, Frame, Machine
from veilcast.observe import InsiderRow
from veilcast.sim.recorder import RowSink
from veilcast.sim.wrappers import MEMORY_MAX, MachineWrapper


class Dropper(MachineWrapper):
    """Drops a share of its machine's frames."""

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


class Replayer(MachineWrapper):
    """Sends each received frame once more, to the sender of the next one; at most `MEMORY_MAX` wait."""

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
"""An insider's description of a frame: kind, message, token, chain, about."""


class RecordingWrapper(MachineWrapper):
    """A correct member that records all it sees in the `insiders` table."""

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


class ScriptedPeer:
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
