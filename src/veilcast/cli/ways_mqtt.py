"""The way of a member of the mode "foil" to its broker of MQTT."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from veilcast.cli.ways import OverStreams
from veilcast.machine import Event, Machine
from veilcast.net.clock import Clock
from veilcast.net.framing import Framing
from veilcast.net.mqtt import Broker, MqttDriver, trusting
from veilcast.node.foil_member import FoilSettings
from veilcast.wire.mqtt import Reader


def over_mqtt(settings: FoilSettings) -> OverStreams:
    authorities = None if settings.ca is None else Path(settings.ca)
    broker = Broker(PACKETS, trusting(authorities) if settings.tls else None, settings.name)

    def drive(machine: Machine, act_on: Callable[[Event], object], clock: Clock) -> MqttDriver:
        return MqttDriver(machine, broker=broker, act_on=act_on, clock=clock)

    return drive


PACKETS: Final = Framing(Reader, lambda packet: b"", welcome=False)
"""Packets of MQTT say themselves how long they are."""
