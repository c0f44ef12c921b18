"""Makes the drivers of a process's streams: TLS, Tor or MQTT, and the identity and limits that they need.

A process has one kind of stream. So each function here imports the driver of its kind when it is called, and a process
loads no other driver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from veilcast.authority.keyring import Keyring
from veilcast.authority.revocation import RevokedKeys
from veilcast.authority.role import TlsRole
from veilcast.cli.identity import check_role
from veilcast.machine import Event, Machine
from veilcast.net.clock import SystemClock
from veilcast.net.stream_limits import StreamLimits
from veilcast.net.transport import MakeStreamDriver

if TYPE_CHECKING:
    from veilcast.cli.tor_setup import TorEndpoint
    from veilcast.net.mqtt import MqttDriver
    from veilcast.net.onion import OnionDriver
    from veilcast.net.stream_setup import FrameFormat
    from veilcast.net.streams import TlsStreamDriver
    from veilcast.net.tls import StreamIdentity
    from veilcast.node.foil import FoilSettings


def tls_driver(identity: StreamIdentity, limits: StreamLimits, listen: Sequence[str] = ()) -> MakeStreamDriver:
    from veilcast.net.streams import TlsStreamDriver

    def drive(machine: Machine, act_on: Callable[[Event], object], clock: SystemClock) -> TlsStreamDriver:
        return TlsStreamDriver(machine, listen=listen, identity=identity, act_on=act_on, clock=clock, limits=limits)

    return drive


def onion_driver(endpoint: TorEndpoint) -> MakeStreamDriver:
    from veilcast.net.onion import OnionDriver

    def drive(machine: Machine, act_on: Callable[[Event], object], clock: SystemClock) -> OnionDriver:
        return OnionDriver(machine, listen=[endpoint.listen], reach=endpoint.reach, act_on=act_on, clock=clock)

    return drive


def mqtt_driver(settings: FoilSettings) -> MakeStreamDriver:
    """Make the driver of a member that uses an MQTT broker."""
    from veilcast.net.mqtt import MqttDriver, MqttSetup, make_tls_context

    authorities = None if settings.ca is None else Path(settings.ca)
    setup = MqttSetup(mqtt_packets(), make_tls_context(authorities) if settings.tls else None, settings.name)

    def drive(machine: Machine, act_on: Callable[[Event], object], clock: SystemClock) -> MqttDriver:
        return MqttDriver(machine, broker=setup, act_on=act_on, clock=clock)

    return drive


def mqtt_packets() -> FrameFormat:
    """The frame format of MQTT, whose packets contain their length."""
    from veilcast.net.stream_setup import FrameFormat
    from veilcast.wire.mqtt import PacketReader

    return FrameFormat(PacketReader, lambda packet: b"", has_welcome=False)


def make_tls_identity(keyring: Keyring, revoked: RevokedKeys, role: TlsRole, *hosts: TlsRole) -> StreamIdentity:
    """Make the identity of this keyring's holder in this role, with the judges of its peers. `hosts` are the roles that
    the holder calls; without any, those that its own role calls."""
    check_role(keyring, role)
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


def limits_for(role: TlsRole) -> StreamLimits:
    """A proxy has many members, and must not wait for one. A member and a server have few peers, and need each. A
    broker has both. The peers that a proxy or a broker calls are hosts, and an absent one, or another in its place,
    returns soon."""
    return StreamLimits(backoff_max_s=5.0) if role in ("broker", "proxy") else StreamLimits(patience_s=10.0)
