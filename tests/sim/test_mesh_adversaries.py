"""A forger's messages are right except for the signature that it cannot have."""

from __future__ import annotations

from random import Random

import pytest

from veilcast.authority.epoch import HOUR_US, epoch_of
from veilcast.core.publication import check_notify, open_notify
from veilcast.crypto.certificate import CertificateKind
from veilcast.errors import ForgedError
from veilcast.machine import Address, Frame, Publication
from veilcast.mesh.advertisements import check_advert
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.heartbeat import read_heartbeat
from veilcast.mesh.node import MeshNode
from veilcast.sim.engine import START_US
from veilcast.sim.mesh.adversaries import HEARTBEATS_PER_FORGERY, Forger
from veilcast.sim.mesh.population import TOPIC, role_keyrings
from veilcast.topics import Label
from veilcast.wire import decode
from veilcast.wire.mesh import Advert, Notify

CONFIG = MeshConfig(neighbours_max=20, address_bytes_max=8)
PEERS = [Address(f"n{i}") for i in range(3)]
EPOCH = epoch_of(START_US, HOUR_US)
KEYS = role_keyrings()["subscriber"].keys_at(EPOCH).topic(TOPIC)
FORGED = Publication((Label(TOPIC).pair,), b"forged")


def beats(times: int) -> list[list[Frame]]:
    """The frames of this many heartbeats of a forger."""
    rng = Random(1)
    node = MeshNode(CONFIG, role_keyrings()["forger"], rng, rng.randbytes, PEERS, START_US)
    forger = Forger(node, KEYS, EPOCH, FORGED, rng.randbytes)
    sent = []
    for _ in range(times):
        now = forger.next_timer() or START_US
        forger.handle_timer(now)
        sent.append(forger.frames_to_send(now, 64))
    return sent


def test_every_so_many_heartbeats_an_advert_rides_in_them_and_a_note_follows() -> None:
    *plain, forged = beats(HEARTBEATS_PER_FORGERY)
    for frames in plain:
        assert [read_heartbeat(frame.data, CONFIG.heartbeat_bytes).riders for frame in frames] == [()] * 3
    assert [frame.destination for frame in forged] == PEERS * 2
    (rider,) = read_heartbeat(forged[0].data, CONFIG.heartbeat_bytes).riders
    assert isinstance(decode(rider), Advert)
    assert isinstance(decode(forged[-1].data), Notify)


def test_who_believes_the_advert_believes_and_reads_the_note_but_nobody_should() -> None:
    forged = beats(HEARTBEATS_PER_FORGERY)[-1]
    advert = decode(read_heartbeat(forged[0].data, CONFIG.heartbeat_bytes).riders[0])
    note = decode(forged[-1].data)
    assert isinstance(advert, Advert)
    assert isinstance(note, Notify)
    check_notify(note, [advert.certificate.leaf.subject])
    assert open_notify(KEYS, note).publication == FORGED
    assert advert.certificate.leaf.kind is CertificateKind.PUBLISHER
    with pytest.raises(ForgedError):
        check_advert(advert, role_keyrings()["forwarder"].root, EPOCH)
