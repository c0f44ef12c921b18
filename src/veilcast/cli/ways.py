"""The ways to a process's peers: links in datagrams, streams of TLS or through Tor, or to a broker of MQTT. What drives
the machine, and what can be told of its peers.

A process has one kind of way. So each function here imports the driver of its kind when it is called, and a process
loads no other driver. The way to a broker of MQTT is in `ways_mqtt`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from veilcast.authority.keyring import Keyring
from veilcast.authority.revoked import Revoked
from veilcast.authority.standing import Standing
from veilcast.cli.opening import check_standing
from veilcast.machine import Event, Machine
from veilcast.net.agent import Peer
from veilcast.net.clock import Clock
from veilcast.net.limits import Limits
from veilcast.net.service import Driver

if TYPE_CHECKING:
    from veilcast.cli.anonymity import Place
    from veilcast.link.machine import LinkMachine
    from veilcast.net.mqtt import MqttDriver
    from veilcast.net.onions import OnionDriver
    from veilcast.net.streams import StreamDriver
    from veilcast.net.tls import Identity

Drive: TypeAlias = Callable[[Machine, Callable[[Event], object], Clock], Driver]


class Ways(Protocol):
    @property
    def machine(self) -> Machine:
        """The outermost one, which the driver moves."""

    @property
    def drive(self) -> Drive: ...

    def peers(self) -> Iterable[Peer]:
        """Those that there are, or should be."""

    def numbers(self) -> Mapping[str, float]:
        """What the driver does not know, by names of `metrics.METRICS`."""


class Links:
    """The links of a mesh, on UDP."""

    def __init__(self, links: LinkMachine, listen: str, clock: Clock) -> None:
        from veilcast.net.udp import over_udp

        self.machine, self._clock = links, clock
        self.drive: Drive = over_udp(listen)

    def peers(self) -> Iterable[Peer]:
        now = self._clock.now()
        for name, up, since_us in self.machine.known():
            yield Peer(address=name, up=up, since_s=max(0, now - since_us) / 1e6)

    def numbers(self) -> Mapping[str, float]:
        links = self.machine.status(self._clock.now())
        return {
            "cells_sent_total": links["cells"],
            "cells_padding_total": round(links["cells"] * links["padding share"]),
            "queue_age_seconds": links["queue age us"] / 1e6,
        }


class Streams:
    """Streams with peers, of whatever kind: with those who call us, and with those whom the machine wants called."""

    def __init__(self, machine: Machine, over: OverStreams) -> None:
        self.machine, self._over = machine, over
        self._driver: StreamDriver | OnionDriver | MqttDriver | None = None

    def drive(self, machine: Machine, act_on: Callable[[Event], object], clock: Clock) -> Driver:
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


OverStreams: TypeAlias = Callable[
    [Machine, Callable[[Event], object], Clock], "StreamDriver | OnionDriver | MqttDriver"
]


def over_tls(identity: Identity, limits: Limits, listen: Sequence[str] = ()) -> OverStreams:
    from veilcast.net.streams import StreamDriver

    def drive(machine: Machine, act_on: Callable[[Event], object], clock: Clock) -> StreamDriver:
        return StreamDriver(machine, listen=listen, identity=identity, act_on=act_on, clock=clock, limits=limits)

    return drive


def over_tor(place: Place) -> OverStreams:
    from veilcast.net.onions import OnionDriver

    def drive(machine: Machine, act_on: Callable[[Event], object], clock: Clock) -> OnionDriver:
        return OnionDriver(machine, listen=[place.listen], reach=place.reach, act_on=act_on, clock=clock)

    return drive


def identity_of(keyring: Keyring, revoked: Revoked, standing: Standing, *hosts: Standing) -> Identity:
    """As whom this keyring's holder shows itself, and whom it lets in or calls in that role; `hosts`, if any are named,
    are all whom it calls."""
    check_standing(keyring, standing)
    from veilcast.authority.tls import TlsParty  # Late, as there.
    from veilcast.net.tls import Identity

    party = TlsParty(keyring, revoked)
    return Identity(
        chain=party.chain,
        key=party.key.reveal(),
        anchor=party.anchor,
        callers=party.callers,
        hosts=party.judge(*hosts) if hosts else party.hosts,
    )


def limits_of(standing: Standing) -> Limits:
    """A proxy has many members, and must not wait for one; a member and a server have few peers, and need each. A
    broker has both, and a neighbour that is away is soon back."""
    if standing == "broker":
        return Limits(backoff_max_s=5.0)
    return Limits() if standing == "proxy" else Limits(patience_s=10.0)
