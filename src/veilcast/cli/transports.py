"""The ways to a process's peers: links in datagrams, streams of TLS or through Tor, or to a broker of MQTT. What drives
the machine, and what can be told of its peers.

A process has one kind of way. So each function here imports the driver of its kind when it is called, and a process
loads no other driver. The way to a broker of MQTT is in `ways_mqtt`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from veilcast.authority.keyring import Keyring
from veilcast.authority.revocation import RevokedKeys
from veilcast.authority.role import TlsRole
from veilcast.cli.identity import check_role
from veilcast.machine import Event, Machine
from veilcast.net.agent import Peer
from veilcast.net.clock import SystemClock
from veilcast.net.service import Driver
from veilcast.net.stream_limits import StreamLimits

if TYPE_CHECKING:
    from veilcast.cli.tor_setup import TorEndpoint
    from veilcast.link.machine import LinkMachine
    from veilcast.net.mqtt import MqttDriver
    from veilcast.net.onion import OnionDriver
    from veilcast.net.streams import TlsStreamDriver
    from veilcast.net.tls import StreamIdentity

MakeDriver: TypeAlias = Callable[[Machine, Callable[[Event], object], SystemClock], Driver]


class Transport(Protocol):
    @property
    def machine(self) -> Machine:
        """The outermost one, which the driver moves."""

    @property
    def make_driver(self) -> MakeDriver: ...

    def peers(self) -> Iterable[Peer]:
        """Those that there are, or should be."""

    def numbers(self) -> Mapping[str, float]:
        """What the driver does not know, by names of `metrics.METRICS`."""


class LinkTransport:
    """The links of a mesh, on UDP."""

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
    """Streams with peers, of whatever kind: with those who call us, and with those whom the machine wants called."""

    def __init__(self, machine: Machine, over: MakeStreamDriver) -> None:
        self.machine, self._over = machine, over
        self._driver: TlsStreamDriver | OnionDriver | MqttDriver | None = None

    def make_driver(self, machine: Machine, act_on: Callable[[Event], object], clock: SystemClock) -> Driver:
        self._driver = self._over(machine, act_on, clock)
        return self._driver

    def peers(self) -> Iterable[Peer]:
        if self._driver is None:
            return
        now = self._driver.now()
        for name, up, since_us, reason in self._driver.peers():
            yield Peer(address=name, up=up, since_s=max(0, now - since_us) / 1e6, reason=reason)

    def numbers(self) -> Mapping[str, float]:
        return {}


MakeStreamDriver: TypeAlias = Callable[
    [Machine, Callable[[Event], object], SystemClock], "TlsStreamDriver | OnionDriver | MqttDriver"
]


def tls_driver(identity: StreamIdentity, limits: StreamLimits, listen: Sequence[str] = ()) -> MakeStreamDriver:
    from veilcast.net.streams import TlsStreamDriver

    def drive(machine: Machine, act_on: Callable[[Event], object], clock: SystemClock) -> TlsStreamDriver:
        return TlsStreamDriver(machine, listen=listen, identity=identity, act_on=act_on, clock=clock, limits=limits)

    return drive


def onion_driver(place: TorEndpoint) -> MakeStreamDriver:
    from veilcast.net.onion import OnionDriver

    def drive(machine: Machine, act_on: Callable[[Event], object], clock: SystemClock) -> OnionDriver:
        return OnionDriver(machine, listen=[place.listen], reach=place.reach, act_on=act_on, clock=clock)

    return drive


def make_tls_identity(keyring: Keyring, revoked: RevokedKeys, standing: TlsRole, *hosts: TlsRole) -> StreamIdentity:
    """As whom this keyring's holder shows itself, and whom it lets in or calls in that role; `hosts`, if any are named,
    are all whom it calls."""
    check_role(keyring, standing)
    from veilcast.authority.tls_identity import TlsIdentity  # Late, as there.
    from veilcast.net.tls import StreamIdentity

    party = TlsIdentity(keyring, revoked)
    return StreamIdentity(
        chain=party.chain,
        key=party.key.reveal(),
        anchor=party.anchor,
        callers=party.callers,
        hosts=party.make_judge(*hosts) if hosts else party.hosts,
    )


def limits_for(standing: TlsRole) -> StreamLimits:
    """A proxy has many members, and must not wait for one; a member and a server have few peers, and need each. A
    broker has both, and a neighbour that is away is soon back."""
    if standing == "broker":
        return StreamLimits(backoff_max_s=5.0)
    return StreamLimits() if standing == "proxy" else StreamLimits(patience_s=10.0)
