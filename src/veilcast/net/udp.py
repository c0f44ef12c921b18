"""Drives one machine over UDP. Knows the contract of `veilcast.machine` and nothing of what is in a datagram.

Whatever happens, happens in turns: up to 64 datagrams, or a timer, or a call of the owner; then the machine's frames
are sent, its events are told and one timer is armed. The limit is what keeps cells on schedule: the event loop looks
at its timers between turns, so however much arrives, a timer waits for 64 datagrams at most. Nothing here waits: a
datagram that the system will not take now is dropped and counted, for whatever must arrive is repeated by the link.

An error that ICMP brings says only that some peer did not listen; anybody can forge one. All are ignored.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from veilcast.errors import ConfigError, StorageError
from veilcast.machine import Address, Connect, Disconnect, Event, Frame, Machine
from veilcast.net.address import SocketAddress, name, parse
from veilcast.net.clock import Clock

Target: TypeAlias = tuple[Callable[[bytes, SocketAddress], int], SocketAddress]


class Counts:
    """What went through the sockets, in numbers only."""

    __slots__ = ("blocked", "late_us", "received", "sent", "timers", "undeliverable")

    def __init__(self) -> None:
        self.received = 0
        self.sent = 0
        self.blocked = 0
        """Datagrams that the system would not take at once."""
        self.undeliverable = 0
        """Datagrams that it would not take at all: no route, no such address."""
        self.timers = 0
        self.late_us = 0
        """By how much timers ran after their time, summed up."""

    def numbers(self) -> dict[str, float]:
        """By the names of metrics."""
        return {
            "datagrams_received_total": self.received,
            "datagrams_sent_total": self.sent,
            "datagrams_blocked_total": self.blocked,
            "datagrams_undeliverable_total": self.undeliverable,
            "timer_lateness_seconds_sum": self.late_us / 1e6,
            "timer_lateness_seconds_count": self.timers,
        }


def over_udp(*listen: str) -> Callable[[Machine, Callable[[Event], object], Clock], UdpDriver]:
    """What drives a node's machine at these addresses."""
    return lambda machine, act_on, clock: UdpDriver(machine, listen, act_on, clock)


class UdpDriver:
    """One machine on one UDP socket of each address family it listens on."""

    def __init__(
        self,
        machine: Machine,
        listen: Sequence[str],
        act_on: Callable[[Event], object],
        clock: Clock | None = None,
    ) -> None:
        self._machine = machine
        self._act_on = act_on
        self._clock = clock or Clock()
        self.now = self._clock.now
        self.counts = Counts()
        self.numbers = self.counts.numbers
        self._wanted = [parse(text) for text in listen]
        if len({family for family, _ in self._wanted}) != len(self._wanted):
            raise ConfigError("listen: at most one address of each family")
        self._sockets: dict[socket.AddressFamily, socket.socket] = {}
        # Texts of socket addresses, and ways to send to texts. Either is emptied when it is full: strangers choose
        # their addresses, and the few that matter are back with their next datagram.
        self._names: dict[SocketAddress, Address] = {}
        self._targets: dict[Address, Target] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_us = 0
        self._timer_ran_us = -1
        self._touched = False

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where the sockets are, in the order of `listen`."""
        return tuple(name(bound.getsockname()) for bound in self._sockets.values())

    def open(self) -> None:
        """Bind and start, on the running event loop."""
        self._loop = asyncio.get_running_loop()
        try:
            for family, address in self._wanted:
                self._sockets[family] = _bind(family, address)
        except BaseException:
            self.close()
            raise
        for bound in self._sockets.values():
            self._loop.add_reader(bound, self._readable, bound)
        self.touch()

    def touch(self) -> None:
        """The owner has called the machine; soon, once for all calls until then, do what follows from it."""
        if not self._touched and self._sockets:
            self._touched = True
            self._loop.call_soon(self._again)

    async def drain(self, finish: Callable[[], Awaitable[None]], within_s: float) -> bool:
        """Let the owner finish, with the machine running on, then close; whether that was done in time."""
        try:
            async with asyncio.timeout(within_s):
                await finish()
            self._turn(self.now())
        except TimeoutError:
            return False
        finally:
            self.close()
        return True

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        for bound in self._sockets.values():
            self._loop.remove_reader(bound)
            bound.close()
        self._sockets.clear()
        self._targets.clear()

    # --- what starts a turn -----------------------------------------------------------------------------------

    def _readable(self, bound: socket.socket) -> None:
        receive, take, names = self._machine.receive, bound.recvfrom, self._names
        now = self.now()
        taken = 0
        try:
            for _ in range(BATCH):
                try:
                    data, source = take(DATAGRAM_MAX)
                except BlockingIOError:
                    break
                except OSError:
                    continue
                taken += 1
                receive(data, names.get(source) or self._name(source), now)
        finally:
            self.counts.received += taken
            self._turn(now)

    def _due(self) -> None:
        self._alarm = None
        now, due = self.now(), self._machine.next_timer()
        if due is None or due > now:
            # The alarm was set for an earlier deadline, which the machine has moved since.
            self._arm(now)
            return
        self.counts.timers += 1
        self.counts.late_us += now - due
        self._timer_ran_us = now
        try:
            self._machine.handle_timer(now)
        finally:
            self._turn(now)

    def _again(self) -> None:
        self._touched = False
        if self._sockets:
            self._turn(self.now())

    # --- what every turn ends with ----------------------------------------------------------------------------

    def _turn(self, now: int) -> None:
        more = False
        try:
            frames = self._machine.frames_to_send(now, FRAMES)
            if frames:
                more = len(frames) == FRAMES
                self._send(frames)
            for _ in range(EVENTS):
                event = self._machine.next_event()
                if event is None:
                    break
                # What the owner does about it may give the machine something to send.
                more = True
                self._tell(event, now)
        finally:
            if more:
                self.touch()
            self._arm(now)

    def _send(self, frames: list[Frame]) -> None:
        counts, targets = self.counts, self._targets
        for frame in frames:
            send, address = targets.get(frame.destination) or self._target(frame.destination)
            try:
                send(frame.data, address)
            except BlockingIOError:
                counts.blocked += 1
            except OSError:
                counts.undeliverable += 1
            else:
                counts.sent += 1

    def _tell(self, event: Event, now: int) -> None:
        """On UDP there is a way to every address, and nothing to end; the rest is for the owner."""
        if isinstance(event, Connect):
            reachable = self._target(event.peer)[0] is not _nowhere
            notice = getattr(self._machine, "peer_up" if reachable else "peer_lost", None)
            if notice is not None:
                notice(event.peer, now)
        elif not isinstance(event, Disconnect):
            self._act_on(event)

    def _arm(self, now: int) -> None:
        """See to it that an alarm comes no later than the machine's deadline. One that comes too early does no harm,
        so a deadline that moves away, as it does all the time, costs nothing."""
        due = self._machine.next_timer()
        if due is None or not self._sockets:
            return
        if due <= now == self._timer_ran_us:
            # It has run, and is due still. A machine at fault must not keep the loop from all else.
            due = now + RETRY_US
        if self._alarm is not None:
            if self._alarm_us <= due:
                return
            self._alarm.cancel()
        self._alarm_us = due
        self._alarm = self._loop.call_at(self._clock.loop_time(due), self._due)

    # --- addresses --------------------------------------------------------------------------------------------

    def _name(self, address: SocketAddress) -> Address:
        if len(self._names) >= ADDRESSES_MAX:
            self._names.clear()
        found = self._names[address] = name(address)
        return found

    def _target(self, destination: Address) -> Target:
        if len(self._targets) >= ADDRESSES_MAX:
            self._targets.clear()
        try:
            family, address = parse(destination)
            bound = self._sockets.get(family)
        except ConfigError:
            bound, address = None, ("", 0)
        # Port 0 cannot be sent to. What peers tell one another may hold any text, so it is no error of ours.
        reachable = bound is not None and address[1]
        target = self._targets[destination] = (bound.sendto if bound and reachable else _nowhere, address)
        return target


def _bind(family: socket.AddressFamily, address: SocketAddress) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_DGRAM)
    try:
        bound.setblocking(False)
        if family == socket.AF_INET6:
            # Each family has its own socket, so no peer is seen under two texts.
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise StorageError(f"listen: cannot use {name(address)}: {error.strerror}") from error
    return bound


def _nowhere(_: bytes, __: SocketAddress) -> int:
    raise OSError


BATCH: Final = 64
"""Datagrams of one turn: enough that the loop's own work is a small part, few enough that timers hardly wait."""
FRAMES: Final = 256
EVENTS: Final = 256
DATAGRAM_MAX: Final = 2048
"""More than any datagram of ours has; what is longer is cut, and refused by whoever opens it."""
BUFFER: Final = 1 << 20
"""Asked of the system for either direction; it may give less."""
ADDRESSES_MAX: Final = 1024
RETRY_US: Final = 1000
