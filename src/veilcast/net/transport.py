"""How a service's machine reaches its peers: the driver to make, the peers, and numbers that the driver does not know.

A process has one kind of transport, and each kind imports its driver when it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

from veilcast.machine import Event, Machine
from veilcast.net.clock import SystemClock
from veilcast.net.control_protocol import Peer

if TYPE_CHECKING:
    from veilcast.link.machine import LinkMachine
    from veilcast.net.driver import MachineDriver
    from veilcast.net.streams import BaseStreamDriver

MakeDriver: TypeAlias = "Callable[[Machine, Callable[[Event], object], SystemClock], MachineDriver]"
MakeStreamDriver: TypeAlias = "Callable[[Machine, Callable[[Event], object], SystemClock], BaseStreamDriver]"


class Transport(Protocol):
    @property
    def machine(self) -> Machine:
        """The outermost machine, which the driver moves."""

    @property
    def make_driver(self) -> MakeDriver: ...

    def peers(self) -> Iterable[Peer]:
        """The peers that are connected, or should be."""

    def numbers(self) -> Mapping[str, float]:
        """Values that the driver does not know, by names of `metrics.METRICS`."""


class LinkTransport:
    """Secured links on UDP."""

    def __init__(self, links: LinkMachine, listen: str, clock: SystemClock) -> None:
        from veilcast.net.udp import udp_driver

        self.machine, self._clock = links, clock
        self.make_driver: MakeDriver = udp_driver(listen)

    def peers(self) -> Iterable[Peer]:
        now = self._clock.now()
        for name, up, since_us in self.machine.list_links():
            yield Peer(address=name, up=up, since_s=max(0, now - since_us) / 1e6)

    def numbers(self) -> Mapping[str, float]:
        links = self.machine.status(self._clock.now())
        return {
            "cells_sent_total": links["cells"],
            "cells_padding_total": round(links["cells"] * links["padding share"]),
            "queue_age_seconds": links["queue age us"] / 1e6,
        }


class StreamTransport:
    """Streams of any kind: with inbound peers, and with peers that the machine wants."""

    def __init__(self, machine: Machine, make: MakeStreamDriver) -> None:
        self.machine, self._make = machine, make
        self._driver: BaseStreamDriver | None = None

    def make_driver(self, machine: Machine, act_on: Callable[[Event], object], clock: SystemClock) -> MachineDriver:
        self._driver = self._make(machine, act_on, clock)
        return self._driver

    def peers(self) -> Iterable[Peer]:
        if self._driver is None:
            return
        now = self._driver.now()
        for name, up, since_us, reason in self._driver.peers():
            yield Peer(address=name, up=up, since_s=max(0, now - since_us) / 1e6, reason=reason)

    def numbers(self) -> Mapping[str, float]:
        return {}
