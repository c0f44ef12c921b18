"""Reliable carriage of whole messages between two neighbours, in bodies that may be lost, repeated and reordered.

A side fills a body whenever a cell is due and takes those of the other. Every body says what has arrived, so
acknowledgements cost nothing and none is worth repeating. Room goes, in this order, to

1. chunks that are lost as far as one can tell: something sent later has arrived, or time is up;
2. new chunks, one of each lane in turns: control begins, then short and long messages, or long and short;
3. chunks under way that may have arrived or not, those sent longest ago first. A link with room to spare sends each
   chunk in every body until it is acknowledged, so a loss costs one period, and nobody sees more than the same cells.

Progress is certain: a chunk of which nothing is heard is repeated when its time is up, before anything new; and where
nothing new may leave, because the window is full, all room is to spare.

`fill` is for cells: one size, whatever there is to say. `prompt` is for the profile `paper`: a body leaves when there
is something to say, cut to its size; what is lost is repeated when `next_us` says so. The inside is the same.

A peer that sends nonsense meets a `RemoteError`; the link to it is then to be given up, for what else the body brought
may be gone. What it can make us keep is bounded by `WINDOW` and `MESSAGE_MAX` in each lane, and the zeros that one body
can make us restore by `ZEROS_MAX`, which an honest side never has under way.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, TypeAlias

from veilcast.errors import ExcessError, LocalError, MalformedError
from veilcast.link.chunks import CONTROL, LONG, SHORT, read_chunks
from veilcast.link.lanes import ReceivingLane, SendingLane
from veilcast.wire.geometry import ACKNOWLEDGEMENTS, CELL_BODY_MIN, CHUNK_MAX, LANES, MESSAGE_MAX

Arrival: TypeAlias = tuple[bytes, bool]
"""A message, and whether it is a control message: one of the link itself."""


class Transfer:
    """One side of one link. `timeout_us` is how long to wait for a sign of a chunk; see `TIMEOUT_CELLS`."""

    def __init__(self, *, timeout_us: int, first: int = 0, padded: bool = False) -> None:
        """`first` is the number of the first chunk in each lane; both sides must have the same.

        `padded`: what was padded to a size is sent in that size, since nothing else hides how long it was.
        """
        if timeout_us <= 0:
            raise LocalError("a timeout has some length")
        self.timeout_us, self._padded = timeout_us, padded
        self._patience, self._asked_us = 1, 0
        """Timeouts that `prompt` waits after it asked a silent peer, and when it did."""
        self._out = [SendingLane(lane, first) for lane in range(LANES)]
        self._in = [ReceivingLane(first) for _ in range(LANES)]
        self._flight: dict[int, tuple[int, int, bytes]] = {}
        """By lane and number: when it was sent first and last, and the chunk. In the order in which they were sent."""
        self._zeros = 0
        """Cut off the messages under way."""
        self._overtaken_us = 0
        """Something that was first sent at this time has arrived: what was last sent before it should have, too."""
        self._turns = self._out[CONTROL], self._out[SHORT], self._out[LONG]
        """Who comes first in the next body: of short and long, the one that did not in the last."""
        self._acks: bytes | None = None
        self._idle: bytes | None = None
        """The body that says nothing new; kept while there is nothing new to say."""
        self._heard: bytes | None = None
        self._heard_acks: bytes | None = None
        """The last body without chunks, and the last acknowledgements: on a quiet link, most are the same."""
        self._owed_us: int | None = None
        """When `prompt` has to acknowledge what has arrived."""
        self.padding = 0
        """Bodies of cells without a chunk."""
        self.bytes_new = 0
        self.bytes_again = 0
        """Chunks sent for the first time, and sent again; the rest of all bodies was padding."""

    def put(self, message: bytes, control: bool = False, now: int = 0) -> None:
        """Queue a message. When the lane's queue is full, the oldest that wait there are dropped.

        `now` is for `oldest_us` alone.
        """
        if not 0 < len(message) <= MESSAGE_MAX:
            raise LocalError(f"a message of {len(message)} bytes cannot travel")
        content = message if message[-1] or self._padded else _without_zeros(message)
        zeros = len(message) - len(content)
        lane = CONTROL if control else SHORT if len(content) <= SHORT_MAX else LONG
        self._out[lane].put(content, zeros, now)
        self._idle = None

    @property
    def dropped(self) -> int:
        """Messages that found no room in the queue."""
        return sum(lane.dropped for lane in self._out)

    @property
    def waiting(self) -> int:
        """Messages of which not all has left."""
        return sum(len(lane.queue) for lane in self._out)

    @property
    def oldest_waiting_us(self) -> int | None:
        """When the one of them was put that has waited longest; None if none waits."""
        return min((lane.queue[0][2] for lane in self._out if lane.queue), default=None)

    @property
    def is_settled(self) -> bool:
        """Everything has left and is acknowledged."""
        control, short, long = self._out
        return not (self._flight or control.queue or short.queue or long.queue)

    def fill(self, room: int, now: int) -> bytes:
        """The body of the next cell, padded to `room`. There always is one."""
        idle = self._idle
        if idle is not None and len(idle) == room:
            self.padding += 1
            return idle
        parts = self._begin(room)
        left = room - ACKNOWLEDGEMENTS
        if self._flight:
            left = self._repeat(parts, left, now, max(self._overtaken_us, now - self.timeout_us + 1))
        left = self._load(parts, left, now)
        self._repeat(parts, left, now, now)
        body = b"".join(parts).ljust(room, b"\0")
        if len(parts) == 1:
            self.padding += 1
            if self.is_settled:
                self._idle = body
        return body

    def prompt(self, room: int, now: int) -> bytes | None:
        """The next body that is to leave at once, cut to its size; None when nothing more is to be said now."""
        parts = self._begin(room)
        overdue_us = now - self._patience * self.timeout_us + 1
        asks = overdue_us > max(self._overtaken_us, self._asked_us)
        lost_us = overdue_us if asks else self._overtaken_us
        left = self._repeat(parts, room - ACKNOWLEDGEMENTS, now, lost_us)
        if asks and len(parts) > 1:
            # One body asks whether anybody is there; the rest waits for an answer, and the next question longer.
            self._patience, self._asked_us = min(2 * self._patience, PATIENCE_MAX), now
        self._load(parts, left, now)
        if len(parts) == 1 and (self._owed_us is None or now < self._owed_us):
            return None
        self._owed_us = None
        return b"".join(parts)

    def acknowledge(self) -> bytes:
        """A body of acknowledgements alone."""
        return self._begin(CELL_BODY_MIN)[0]

    @property
    def next_prompt_us(self) -> int | None:
        """When `prompt` has something to say again, unless something is put or taken before that; None for never."""
        due = [] if self._owed_us is None else [self._owed_us]
        for _, last, _ in self._flight.values():
            lost = last < self._overtaken_us
            due.append(last if lost else max(last, self._asked_us) + self._patience * self.timeout_us)
            break
        return min(due, default=None)

    def take(self, body: bytes, now: int) -> Sequence[Arrival]:
        """The messages that this body completes, those of a lane in order; `RemoteError` for nonsense."""
        if body == self._heard:
            return _NONE
        if len(body) < ACKNOWLEDGEMENTS:
            raise MalformedError("a body without acknowledgements")
        chunks = read_chunks(body)
        acks = body[:ACKNOWLEDGEMENTS]
        if acks != self._heard_acks:
            self._acknowledged(acks)
            self._heard_acks = acks
        if not chunks:
            self._heard = body
            return _NONE
        if self._owed_us is None:
            self._owed_us = now + ACK_DELAY_US
        arrivals: list[Arrival] = []
        zeros_left = ZEROS_MAX
        for lane, number, content, zeros in chunks:
            complete = self._in[lane].accept(number, content, zeros)
            if complete is None:
                continue
            self._acks = self._idle = None
            for message, stripped in complete:
                zeros_left -= stripped
                if zeros_left < 0:
                    raise ExcessError("more zeros than may be under way")
                arrivals.append((message + bytes(stripped) if stripped else message, lane == CONTROL))
        return arrivals

    def _begin(self, room: int) -> list[bytes]:
        if room < CELL_BODY_MIN:
            raise LocalError(f"a body needs room for {CELL_BODY_MIN} bytes")
        if self._acks is None:
            control, short, long = self._in
            self._acks = _ACKS.pack(*control.acknowledgement(), *short.acknowledgement(), *long.acknowledgement())
        return [self._acks]

    def _repeat(self, parts: list[bytes], left: int, now: int, before_us: int) -> int:
        """Send again what was last sent before this time, the oldest first; the room that is left then.

        One that does not fit ends it: nothing may overtake it for ever.
        """
        again = []
        for key, (_, last, chunk) in self._flight.items():
            if last >= before_us or len(chunk) > left:
                break
            again.append(key)
            parts.append(chunk)
            left -= len(chunk)
        for key in again:
            first, _, chunk = self._flight.pop(key)
            self._flight[key] = (first, now, chunk)
            self.bytes_again += len(chunk)
        return left

    def _load(self, parts: list[bytes], left: int, now: int) -> int:
        """Cut new chunks for this room, one of each lane in turns; the room that is left then."""
        turns = [lane for lane in self._turns if lane.queue]
        control, first, second = self._turns
        self._turns = control, second, first
        while turns:
            lane = turns.pop(0)
            cut = lane.cut(left, ZEROS_MAX - self._zeros)
            if cut is None:
                continue
            chunk, zeros = cut
            self._flight[(lane.next_number - 1) * LANES + lane.lane] = (now, now, chunk)
            self._zeros += zeros
            self.bytes_new += len(chunk)
            parts.append(chunk)
            left -= len(chunk)
            if lane.queue:
                turns.append(lane)
        return left

    def _acknowledged(self, acks: bytes) -> None:
        fields = _ACKS.unpack(acks)
        moves = []
        for lane in self._out:
            expected, beyond = fields[2 * lane.lane : 2 * lane.lane + 2]
            # Every lane is looked at before any is moved: a lie in one leaves everything as it was.
            step = lane.check_acknowledgement(expected, beyond)
            if step > 0 or (step == 0 and beyond != lane.acknowledged_bits):
                moves.append((lane, step, beyond))
        for lane, step, beyond in moves:
            numbers, zeros = lane.advance(step, beyond)
            self._zeros -= zeros
            for number in numbers:
                sent = self._flight.pop(number * LANES + lane.lane, None)
                if sent is not None:
                    self._overtaken_us = max(self._overtaken_us, sent[0])
                    self._patience, self._asked_us = 1, 0


def _without_zeros(message: bytes) -> bytes:
    """Without those at its end, but never empty. By halves: long runs compare ten times as fast as `rstrip` looks."""
    end = len(message)
    for zeros in _ZEROS:
        if message.endswith(zeros, 1, end):
            end -= len(zeros)
    return message[:end]


SHORT_MAX: Final = 2 * CHUNK_MAX
"""What a message has without its zeros, to count as short."""

ZEROS_MAX: Final = 4 * MESSAGE_MAX
"""Zeros cut off the messages under way, in all lanes."""

TIMEOUT_CELLS: Final = 32
"""Cell periods after which a chunk is repeated before anything new, though nothing sent later has arrived either. Two
seconds at the highest rate: a busy link with a longer round trip repeats what it need not. Waiting costs little, for
the first thing that does arrive tells of all that was lost before it."""

PROMPT_TIMEOUT_US: Final = 200_000
"""The same for `prompt`; it doubles each time that nothing is heard."""

PATIENCE_MAX: Final = 8
"""Timeouts that `prompt` waits at most."""

ACK_DELAY_US: Final = 10_000
"""How long `prompt` waits for more before it acknowledges: a long message comes in many bodies at once."""

_ACKS: Final = struct.Struct(">" + "IQ" * LANES)
_NONE: Final[tuple[Arrival, ...]] = ()
_ZEROS: Final = tuple(bytes(1 << bit) for bit in reversed(range(MESSAGE_MAX.bit_length())))
