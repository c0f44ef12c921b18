"""Drives one machine over UDP, by the contract of `veilcast.machine`; knows nothing of the contents of datagrams.

A turn takes up to 64 datagrams. This limit keeps cells on schedule: the event loop runs its timers between turns, so a
timer waits for at most 64 datagrams, however many arrive. Nothing here blocks: a datagram that the system does not
accept now is dropped and counted, because the link repeats everything that must arrive.

ICMP errors are ignored: they only say that some peer did not listen, and anybody can forge them.
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
        """Datagrams that the system did not accept at once."""

    def numbers(self) -> dict[str, float]:
        return {**super().numbers(), "datagrams_blocked_total": self.blocked}


def udp_driver(*listen: str) -> Callable[[Machine, Callable[[Event], object], SystemClock], UdpDriver]:
    """Return a function that makes the driver of a machine at these addresses."""
    return lambda machine, act_on, clock: UdpDriver(machine, listen, act_on, clock)


class UdpDriver(MachineDriver):
    """Drives one machine on one UDP socket for each address family."""

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

    def _handle_event(self, event: Event, now: int) -> None:
        """UDP needs no connection: every valid address is up, and there is nothing to disconnect."""
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
        # Port 0 cannot be sent to. Peers may tell one another any text, so a bad address is no error of ours.
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
"""Bytes, more than any datagram of ours has; a longer datagram is cut, and then refused when it is opened."""
BUFFER: Final = 1 << 20
"""Bytes of the send and receive buffers asked of the system, which may grant less."""
ADDRESSES_MAX: Final = 1024
