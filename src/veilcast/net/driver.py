"""The base of all drivers: one machine, moved in turns.

A turn begins when something arrives, when a timer is due, or when the owner has called the machine. Then the driver
sends the machine's frames, hands over its events and sets one timer. A turn never blocks and is limited, so the event
loop runs its timers between any two turns. The subclasses send frames and decide what happens to those that cannot be
sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ClassVar, Final

from veilcast.faults import faults_of
from veilcast.machine import Address, Event, Frame, Machine
from veilcast.net.clock import SystemClock
from veilcast.net.log import FaultLog


class TrafficCounts:
    """Traffic of the sockets, in numbers only."""

    __slots__ = ("late_us", "received", "sent", "timers", "undeliverable")
    unit: ClassVar[str]
    """The name of a frame on this kind of socket, in the names of metrics."""

    def __init__(self) -> None:
        self.received = 0
        self.sent = 0
        self.undeliverable = 0
        """Frames that cannot be sent: no route, no such address, no stream."""
        self.timers = 0
        self.late_us = 0
        """Sum of the delays of all timers, in microseconds."""

    def numbers(self) -> dict[str, float]:
        """Return the counts by the names of metrics."""
        return {
            f"{self.unit}_received_total": self.received,
            f"{self.unit}_sent_total": self.sent,
            f"{self.unit}_undeliverable_total": self.undeliverable,
            "timer_lateness_seconds_sum": self.late_us / 1e6,
            "timer_lateness_seconds_count": self.timers,
        }


class MachineDriver:
    """Drives one machine. A subclass sends frames, and starts a turn for everything that arrives."""

    counts: TrafficCounts

    def __init__(self, machine: Machine, act_on: Callable[[Event], object], clock: SystemClock | None) -> None:
        self._machine = machine
        self.faults = faults_of(machine)
        self.faults.on_fault = FaultLog()
        self._act_on = act_on
        self._clock = clock or SystemClock()
        self.now = self._clock.now
        self._timer: asyncio.TimerHandle | None = None
        self._timer_us = 0
        self._timer_ran_us = -1
        self._touched = False
        self._is_open = False

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Addresses of the sockets, in the order of `listen`; empty when closed."""
        raise NotImplementedError

    def numbers(self) -> dict[str, float]:
        return {**self.counts.numbers(), "machine_faults_total": self.faults.count}

    def open(self) -> None:
        """Bind and start, on the running event loop."""
        self._loop = asyncio.get_running_loop()
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        self._is_open = True
        self.touch()

    def touch(self) -> None:
        """Schedule a turn: the owner has called the machine. Several calls before the turn need only one turn."""
        if not self._touched and self._is_open:
            self._touched = True
            self._loop.call_soon(self._run_touched_turn)

    async def drain(self, finish: Callable[[], Awaitable[None]], within_s: float) -> bool:
        """Let the owner finish while the machine runs on, then close. Returns True if that was done in time."""
        try:
            async with asyncio.timeout(within_s):
                await finish()
                self._turn(self.now())
                await self._wait_flushed()
        except TimeoutError:
            return False
        finally:
            self.close()
        return True

    def close(self) -> None:
        self._is_open = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._stop()

    # --- implemented by each driver ---------------------------------------------------------------------------

    def _start(self) -> None:
        """Bind. If this fails, `_stop` is called."""
        raise NotImplementedError

    def _stop(self) -> None:
        """Close everything that is open; may be called at any time."""
        raise NotImplementedError

    def _send(self, frames: list[Frame]) -> None:
        raise NotImplementedError

    def _frames_allowed(self) -> int:
        """The number of frames that may be sent now."""
        return FRAMES

    def _handle_event(self, event: Event, now: int) -> None:
        """Act on events about connections; hand the rest to the owner."""
        raise NotImplementedError

    async def _wait_flushed(self) -> None:
        """Return when nothing waits here to be sent."""

    # --- turns ------------------------------------------------------------------------------------------------

    def _run_timer(self) -> None:
        self._timer = None
        now, due = self.now(), self._machine.next_timer()
        if due is None or due > now:
            # The alarm was set for an earlier deadline, which the machine has moved since.
            self._arm(now)
            return
        self.counts.timers += 1
        self.counts.late_us += now - due
        self._timer_ran_us = now
        self.faults.contain(self._machine.handle_timer, now)
        self._turn(now)

    def _run_touched_turn(self) -> None:
        self._touched = False
        if self._is_open:
            self._turn(self.now())

    def _turn(self, now: int) -> None:
        more = False
        try:
            room = self._frames_allowed()
            if room and (frames := self.faults.call_or_none(self._machine.frames_to_send, now, room)):
                more = len(frames) == room
                self._send(frames)
            for _ in range(EVENTS):
                event = self.faults.call_or_none(self._machine.next_event)
                if event is None:
                    break
                # The owner's reaction may give the machine something to send.
                more = True
                self._handle_event(event, now)
        finally:
            if more:
                self.touch()
            self._arm(now)

    def _notice(self, what: str, peer: Address, now: int) -> None:
        """Call `peer_up` or `peer_lost` of the machine, if it has that method."""
        notice = getattr(self._machine, what, None)
        if notice is not None:
            self.faults.contain(notice, peer, now)

    def _arm(self, now: int) -> None:
        """Set the timer no later than the machine's deadline. A timer that fires early does no harm, so a deadline that
        moves later, which happens all the time, costs nothing."""
        due = self._machine.next_timer()
        if due is None or not self._is_open:
            return
        if due <= now == self._timer_ran_us:
            # It has run, and is due still. A machine at fault must not keep the loop from all else.
            due = now + RETRY_US
        if self._timer is not None:
            if self._timer_us <= due:
                return
            self._timer.cancel()
        self._timer_us = due
        self._timer = self._loop.call_at(self._clock.loop_time(due), self._run_timer)


FRAMES: Final = 256
EVENTS: Final = 256
RETRY_US: Final = 1000
