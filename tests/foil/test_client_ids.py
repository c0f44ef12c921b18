"""Client ids of a member at its broker: random, different in each epoch, and no others."""

from __future__ import annotations

import random
import re

from veilcast.authority import issuer
from veilcast.authority.epoch import epoch_of
from veilcast.foil.config import FoilConfig
from veilcast.foil.member import FoilMember
from veilcast.machine import Address, Connect
from veilcast.topics import Label
from veilcast.wire import mqtt
from veilcast.wire.mqtt import Version

HOUR_US = 3_600_000_000
NOW = 500_000 * HOUR_US + 5
BROKER = Address("127.0.0.1:1883")


def names(seed: int, profile: str) -> list[str]:
    """The client ids of all sessions that a member begins in four hours, at a broker that is up and silent."""
    rng = random.Random(seed)
    authority = issuer.create(HOUR_US, rng.randbytes)
    authority = issuer.declare_label(authority, "news", profile, rng.randbytes)  # type: ignore[arg-type]
    epoch = epoch_of(NOW, HOUR_US)
    _, keyring = issuer.grant_ready(authority, "anna", [("news", "subscriber")], epoch, 9, rng.randbytes)
    config = FoilConfig(profile=profile, keep_us=1_000_000)  # type: ignore[arg-type]
    member = FoilMember(config, keyring, BROKER, rng, rng.randbytes, NOW)
    member.subscribe(Label("news"), NOW)
    found: dict[str, None] = {}
    now = NOW
    while now < NOW + 4 * HOUR_US:
        while (event := member.next_event()) is not None:
            if isinstance(event, Connect):
                member.peer_up(event.peer, now)
        for frame in member.frames_to_send(now, 100):
            packet = mqtt.decode(frame.data, Version.MQTT_5)
            if isinstance(packet, mqtt.ConnectPacket):
                found[packet.client] = None
        now = max(now + 1, member.next_timer() or now + HOUR_US)
        member.handle_timer(now)
    return list(found)


def test_a_hardened_member_has_its_own_client_id_in_each_epoch() -> None:
    mine, others = names(1, "hardened"), names(2, "hardened")
    assert len(mine) == len(others) == 5
    assert not set(mine) & set(others)
    assert all(re.fullmatch(r"[0-9a-f]{20}", name) for name in mine)


def test_in_paper_a_member_keeps_one_client_id() -> None:
    assert len(names(1, "paper")) == 1
