"""Reliable transfer of whole messages between two neighbours, in bodies that may be lost, repeated and reordered.

A side fills a body whenever a cell is due, and reads the bodies of the other side. Every body acknowledges what has
arrived, so acknowledgements cost nothing and are never repeated. The room of a body goes, in this order, to

1. chunks that are presumed lost: a chunk sent later has arrived, or the timeout has passed;
2. new chunks, one of each lane in turn: control first, then short and long messages, or long and short;
3. chunks in flight that may have arrived, those sent longest ago first. A link with spare room sends each chunk in
   every body until it is acknowledged, so a loss costs one period, and an observer sees only the same cells.

Claim: every chunk is eventually acknowledged or repeated.
Reason: an unacknowledged chunk is repeated when its timeout has passed, before anything new. If the window is full and
nothing new may leave, all room is spare.

`fill` is for cells: one size, whatever there is to send. `prompt` is for the `paper` profile: a body leaves when there
is something to send, cut to its size, and lost chunks are repeated at `next_prompt_us`. The format is the same.

A malformed body raises `RemoteError`; the link must then be closed, because other content of the body may be lost. A
peer can make this side store at most `WINDOW` chunks and `MESSAGE_MAX` bytes in each lane. One body can restore at most
`ZEROS_MAX` zeros, which an honest side never has in flight.
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
"""A message, and whether it is a control message of the link itself."""


class Transfer:
    """One side of one link. `timeout_us`: time to wait for a sign of a chunk; see `TIMEOUT_CELLS`."""

    def __init__(self, *, timeout_us: int, first: int = 0, padded: bool = False) -> None:
        """`first` is the number of the first chunk in each lane; both sides must use the same.

        `padded`: a padded message is sent in its full size, because no cell hides its length.
        """
        if timeout_us <= 0:
            raise LocalError("a timeout must be positive")
        self.timeout_us, self._padded = timeout_us, padded
        self._patience, self._asked_us = 1, 0
        """Timeouts that `prompt` waits after it asked a silent peer, and the time at which it asked."""
        self._out = [SendingLane(lane, first) for lane in range(LANES)]
        self._in = [ReceivingLane(first) for _ in range(LANES)]
        self._in_flight: dict[int, tuple[int, int, bytes]] = {}
        """By lane and number: time first sent, time last sent, and the chunk. Sorted by the time last sent."""
        self._zeros = 0
        """Zeros cut off the messages in flight."""
        self._overtaken_us = 0
        """A chunk first sent at this time has arrived, so any chunk last sent before it should have arrived too."""
        self._turns = self._out[CONTROL], self._out[SHORT], self._out[LONG]
        """The order of lanes in the next body. Short and long alternate."""
        self._acks: bytes | None = None
        self._idle: bytes | None = None
        """The body without news; cached while there is nothing new to send."""
        self._heard: bytes | None = None
        self._heard_acks: bytes | None = None
        """The last body without chunks, and the last acknowledgements: on a quiet link most are the same."""
        self._owed_us: int | None = None
        """Time at which `prompt` must acknowledge what has arrived."""
        self.padding = 0
        """Bodies of cells without a chunk."""
        self.bytes_new = 0
        self.bytes_again = 0
        """Bytes of chunks sent for the first time, and sent again. The rest of all bodies was padding."""

    def put(self, message: bytes, control: bool = False, now: int = 0) -> None:
        """Queue a message. If the queue of the lane is full, its oldest messages are dropped.

        `now` is used by `oldest_waiting_us` alone.
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
        """Messages that were dropped from a full queue."""
        return sum(lane.dropped for lane in self._out)

    @property
    def waiting(self) -> int:
        """Messages that have not left completely."""
        return sum(len(lane.queue) for lane in self._out)

    @property
    def oldest_waiting_us(self) -> int | None:
        """Time at which the oldest waiting message was queued; None if none waits."""
        return min((lane.queue[0][2] for lane in self._out if lane.queue), default=None)

    @property
    def is_settled(self) -> bool:
        """True if everything has left and is acknowledged."""
        control, short, long = self._out
        return not (self._in_flight or control.queue or short.queue or long.queue)

    def fill(self, room: int, now: int) -> bytes:
        """The body of the next cell, padded to `room`. There is always one."""
        idle = self._idle
        if idle is not None and len(idle) == room:
            self.padding += 1
            return idle
        parts = self._begin(room)
        left = room - ACKNOWLEDGEMENTS
        if self._in_flight:
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
        """The next body that must leave at once, cut to its size; None if there is nothing more to send now."""
        parts = self._begin(room)
        overdue_us = now - self._patience * self.timeout_us + 1
        asks = overdue_us > max(self._overtaken_us, self._asked_us)
        lost_us = overdue_us if asks else self._overtaken_us
        left = self._repeat(parts, room - ACKNOWLEDGEMENTS, now, lost_us)
        if asks and len(parts) > 1:
            # One body probes the peer. The rest waits for an answer, and the next probe waits longer.
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
        """Time of the next body of `prompt`, unless a message is queued or received before; None for never."""
        due = [] if self._owed_us is None else [self._owed_us]
        for _, last, _ in self._in_flight.values():
            lost = last < self._overtaken_us
            due.append(last if lost else max(last, self._asked_us) + self._patience * self.timeout_us)
            break
        return min(due, default=None)

    def take(self, body: bytes, now: int) -> Sequence[Arrival]:
        """The messages that this body completes, in order within each lane; raises `RemoteError` if it is malformed."""
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
                    raise ExcessError("more zeros than may be in flight")
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
        """Send again the chunks last sent before this time, oldest first. Returns the room that is left.

        A chunk that does not fit ends the loop, so that no chunk can overtake it forever.
        """
        again = []
        for key, (_, last, chunk) in self._in_flight.items():
            if last >= before_us or len(chunk) > left:
                break
            again.append(key)
            parts.append(chunk)
            left -= len(chunk)
        for key in again:
            first, _, chunk = self._in_flight.pop(key)
            self._in_flight[key] = (first, now, chunk)
            self.bytes_again += len(chunk)
        return left

    def _load(self, parts: list[bytes], left: int, now: int) -> int:
        """Cut new chunks for this room, one of each lane in turn. Returns the room that is left."""
        turns = [lane for lane in self._turns if lane.queue]
        control, first, second = self._turns
        self._turns = control, second, first
        while turns:
            lane = turns.pop(0)
            cut = lane.cut(left, ZEROS_MAX - self._zeros)
            if cut is None:
                continue
            chunk, zeros = cut
            self._in_flight[(lane.next_number - 1) * LANES + lane.lane] = (now, now, chunk)
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
            # All lanes are checked before any is changed: a forged acknowledgement changes nothing.
            step = lane.check_acknowledgement(expected, beyond)
            if step > 0 or (step == 0 and beyond != lane.acknowledged_bits):
                moves.append((lane, step, beyond))
        for lane, step, beyond in moves:
            numbers, zeros = lane.advance(step, beyond)
            self._zeros -= zeros
            for number in numbers:
                sent = self._in_flight.pop(number * LANES + lane.lane, None)
                if sent is not None:
                    self._overtaken_us = max(self._overtaken_us, sent[0])
                    self._patience, self._asked_us = 1, 0


def _without_zeros(message: bytes) -> bytes:
    """The message without its trailing zeros, but never empty. Halving: comparing long runs is ten times faster than
    `rstrip`."""
    end = len(message)
    for zeros in _ZEROS:
        if message.endswith(zeros, 1, end):
            end -= len(zeros)
    return message[:end]


SHORT_MAX: Final = 2 * CHUNK_MAX
"""Largest short message, in bytes without its trailing zeros."""

ZEROS_MAX: Final = 4 * MESSAGE_MAX
"""Zeros cut off the messages in flight, in all lanes."""

TIMEOUT_CELLS: Final = 32
"""Cell periods after which a chunk is repeated before anything new, although nothing sent later has arrived. Two
seconds at the highest rate: a busy link with a longer round trip repeats chunks without need. Waiting costs little,
because the first arrival reveals all earlier losses."""

PROMPT_TIMEOUT_US: Final = 200_000
"""The same for `prompt`, in microseconds. It doubles each time that nothing is heard."""

PATIENCE_MAX: Final = 8
"""Largest number of timeouts that `prompt` waits."""

ACK_DELAY_US: Final = 10_000
"""Time that `prompt` waits for more before it acknowledges: a long message comes in many bodies at once."""

_ACKS: Final = struct.Struct(">" + "IQ" * LANES)
_NONE: Final[tuple[Arrival, ...]] = ()
_ZEROS: Final = tuple(bytes(1 << bit) for bit in reversed(range(MESSAGE_MAX.bit_length())))
