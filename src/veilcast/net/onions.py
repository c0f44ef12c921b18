"""Drives one machine over streams that hide the caller: onion services and circuits of Tor, one for each purpose.

Whoever comes is nobody: each stream that arrives has a fresh name, "in:17", on which may be answered and by which
nothing can be learned. Whom we call is named by purpose and address, "hop@xyz.onion:80": every call has a circuit of
its own, so what is said for two purposes has no caller in common.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from random import Random

from veilcast.machine import Event, Machine
from veilcast.net.address import SocketAddress
from veilcast.net.clock import Clock
from veilcast.net.limits import Limits
from veilcast.net.turns import Turns


class ThroughTor:
    """Calls go through a SOCKS port of Tor, each on a circuit of its own."""

    def __init__(self, socks: SocketAddress) -> None:
        raise NotImplementedError


class WithoutTor:
    """Calls go straight to "purpose@127.0.0.1:4000", for tests and comparisons: nobody is anonymous."""


def doorway() -> socket.socket:
    """A socket that listens on loopback, for Tor to bring callers to; a driver takes it over."""
    raise NotImplementedError


class OnionDriver(Turns):
    """One machine; the same outer methods as `StreamDriver` has. `listen`: doorways, or addresses as text."""

    def __init__(
        self,
        machine: Machine,
        *,
        listen: Sequence[str | socket.socket],
        reach: ThroughTor | WithoutTor,
        act_on: Callable[[Event], object],
        clock: Clock | None = None,
        limits: Limits | None = None,
        rng: Random | None = None,
    ) -> None:
        raise NotImplementedError
