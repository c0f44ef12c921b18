"""Adversaries that speak the mesh's protocol."""

from __future__ import annotations

from typing import Final

import msgspec

from veilcast.authority.keyring import TopicKeys
from veilcast.core.publication import NumberedPublication, make_certified_notify, make_notify
from veilcast.crypto.certificate import CertificateChain, CertificateKind, certify
from veilcast.crypto.sign import SigningKey
from veilcast.machine import Entropy, Frame, Machine, Publication
from veilcast.mesh.advertisements import make_advert
from veilcast.mesh.heartbeat import read_heartbeat
from veilcast.sim.wrappers import MachineWrapper
from veilcast.wire import encode, pad
from veilcast.wire.mesh import Heartbeat


class Forger(MachineWrapper):
    """A member with a subscriber's grant that tries to publish.

    It certifies itself, adds its advertisement to its machine's empty heartbeats, and sends a note after them. Only the
    authority's signature is missing, so a node that believes the advertisement delivers the note.
    """

    def __init__(self, inner: Machine, keys: TopicKeys, epoch: int, publication: Publication, entropy: Entropy) -> None:
        super().__init__(inner)
        key = SigningKey.generate(entropy)
        certificate = CertificateChain(certify(key, CertificateKind.PUBLISHER, key.public, keys.token, epoch, epoch))
        self._keys = msgspec.structs.replace(keys, signing=key, certificate=certificate)
        self._publication, self._entropy, self._stream = publication, entropy, entropy(8)
        self._beats = self._number = 0
        self._waiting: list[Frame] = []

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        frames = self._frames_of_inner(now, limit)
        beats = [frame for frame in frames if frame.data[:1] == b"\0"]
        if beats:
            self._beats += 1
            if self._beats % HEARTBEATS_PER_FORGERY == 0:
                frames = self._forged(frames, beats)
        self._waiting += frames
        sent, self._waiting = self._waiting[:limit], self._waiting[limit:]
        return sent

    def _forged(self, frames: list[Frame], beats: list[Frame]) -> list[Frame]:
        self._number += 1
        advert = encode(make_advert(self._keys, self._entropy))
        content = NumberedPublication(self._stream, self._number, self._publication)
        hardened = self._keys.record.profile == "hardened"
        make = make_certified_notify if hardened else make_notify
        note = encode(make(self._keys, content, self._entropy))
        return [_add_rider(frame, advert) for frame in frames] + [Frame(frame.destination, note) for frame in beats]


def _add_rider(frame: Frame, rider: bytes) -> Frame:
    """The frame with this rider, if it is a heartbeat without riders."""
    size = len(frame.data)
    if frame.data[:1] != b"\0" or (beat := read_heartbeat(frame.data, size)).riders:
        return frame
    return Frame(frame.destination, pad(encode(Heartbeat(beat.number, (rider,))), size))


HEARTBEATS_PER_FORGERY: Final = 5
