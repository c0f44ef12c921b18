"""The way of a member of the mode "foil" to its broker of MQTT."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from veilcast.cli.transports import MakeStreamDriver
from veilcast.machine import Event, Machine
from veilcast.net.clock import SystemClock
from veilcast.net.mqtt import MqttDriver, MqttSetup, make_tls_context
from veilcast.net.stream_setup import FrameFormat
from veilcast.node.foil_member import FoilSettings
from veilcast.wire.mqtt import PacketReader


def mqtt_driver(settings: FoilSettings) -> MakeStreamDriver:
    authorities = None if settings.ca is None else Path(settings.ca)
    broker = MqttSetup(PACKETS, make_tls_context(authorities) if settings.tls else None, settings.name)

    def drive(machine: Machine, act_on: Callable[[Event], object], clock: SystemClock) -> MqttDriver:
        return MqttDriver(machine, broker=broker, act_on=act_on, clock=clock)

    return drive


PACKETS: Final = FrameFormat(PacketReader, lambda packet: b"", has_welcome=False)
"""Packets of MQTT say themselves how long they are."""
