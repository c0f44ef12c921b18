"""Drives one machine over UDP. Knows the contract of `veilcast.machine` and nothing of what is in a datagram.

A turn takes up to 64 datagrams. The limit is what keeps cells on schedule: the event loop looks at its timers between
turns, so however much arrives, a timer waits for 64 datagrams at most. Nothing here waits: a datagram that the system
will not take now is dropped and counted, for whatever must arrive is repeated by the link.

An error that ICMP brings says only that some peer did not listen; anybody can forge one. All are ignored.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from veilcast.errors import ConfigError
from veilcast.machine import Address, Connect, Disconnect, Event, Frame, Machine
from veilcast.net.address import SocketAddress, format_address, listen_error, parse_address
from veilcast.net.clock import SystemClock
from veilcast.net.driver import MachineDriver, TrafficCounts

Target: TypeAlias = tuple[Callable[[bytes, SocketAddress], int], SocketAddress]


class DatagramCounts(TrafficCounts):
    __slots__ = ("blocked",)
    unit = "datagrams"

    def __init__(self) -> None:
        super().__init__()
        self.blocked = 0
        """Datagrams that the system would not take at once."""

    def numbers(self) -> dict[str, float]:
        return {**super().numbers(), "datagrams_blocked_total": self.blocked}


def udp_driver(*listen: str) -> Callable[[Machine, Callable[[Event], object], SystemClock], UdpDriver]:
    """What drives a node's machine at these addresses."""
    return lambda machine, act_on, clock: UdpDriver(machine, listen, act_on, clock)


class UdpDriver(MachineDriver):
    """One machine on one UDP socket of each address family it listens on."""

    counts: DatagramCounts

    def __init__(
        self,
        machine: Machine,
        listen: Sequence[str],
        act_on: Callable[[Event], object],
        clock: SystemClock | None = None,
    ) -> None:
        super().__init__(machine, act_on, clock)
        self.counts = DatagramCounts()
        self._wanted = [parse_address(text) for text in listen]
        if len({family for family, _ in self._wanted}) != len(self._wanted):
            raise ConfigError("listen: at most one address of each family")
        self._sockets: dict[socket.AddressFamily, socket.socket] = {}
        # Texts of socket addresses, and ways to send to texts. Either is emptied when it is full: strangers choose
        # their addresses, and the few that matter are back with their next datagram.
        self._names: dict[SocketAddress, Address] = {}
        self._targets: dict[Address, Target] = {}

    @property
    def addresses(self) -> tuple[Address, ...]:
        return tuple(format_address(bound.getsockname()) for bound in self._sockets.values())

    def _start(self) -> None:
        for family, address in self._wanted:
            self._sockets[family] = _bind(family, address)
        for bound in self._sockets.values():
            self._loop.add_reader(bound, self._readable, bound)

    def _stop(self) -> None:
        for bound in self._sockets.values():
            self._loop.remove_reader(bound)
            bound.close()
        self._sockets.clear()
        self._targets.clear()

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
                try:
                    receive(data, names.get(source) or self._name(source), now)
                except Exception as error:
                    self.faults.count_exception(error)
        finally:
            self.counts.received += taken
            self._turn(now)

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
        """On UDP there is a way to every address, and nothing to end."""
        if isinstance(event, Connect):
            reachable = self._target(event.peer)[0] is not _nowhere
            self._notice("peer_up" if reachable else "peer_lost", event.peer, now)
        elif not isinstance(event, Disconnect):
            self._act_on(event)

    # --- addresses --------------------------------------------------------------------------------------------

    def _name(self, address: SocketAddress) -> Address:
        if len(self._names) >= ADDRESSES_MAX:
            self._names.clear()
        found = self._names[address] = format_address(address)
        return found

    def _target(self, destination: Address) -> Target:
        if len(self._targets) >= ADDRESSES_MAX:
            self._targets.clear()
        try:
            family, address = parse_address(destination)
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
        raise listen_error("listen", address, error) from error
    return bound


def _nowhere(_: bytes, __: SocketAddress) -> int:
    raise OSError


BATCH: Final = 64
"""Datagrams of one turn: enough that the loop's own work is a small part, few enough that timers hardly wait."""
DATAGRAM_MAX: Final = 2048
"""More than any datagram of ours has; what is longer is cut, and refused by whoever opens it."""
BUFFER: Final = 1 << 20
"""Asked of the system for either direction; it may give less."""
ADDRESSES_MAX: Final = 1024
