"""Adversaries that speak the mesh's language; those that need not are in `adversaries`."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Final

import msgspec

from veilcast.authority.keyring import TopicKeys
from veilcast.core.publication import NumberedPublication, make_certified_notify, make_notify
from veilcast.crypto import hash_chain
from veilcast.crypto.certificate import CertificateChain, CertificateKind, certify
from veilcast.crypto.hash_chain import Anchor
from veilcast.crypto.sign import SigningKey
from veilcast.machine import Address, Entropy, Frame, Machine, Publication
from veilcast.mesh.advertisements import make_advert, replace_chain_value
from veilcast.mesh.heartbeat import NUMBERS, read_heartbeat
from veilcast.sim.wrappers import MachineWrapper
from veilcast.wire import decode, encode, pad
from veilcast.wire.mesh import Advert, Heartbeat


class Forger(MachineWrapper):
    """A member that may read a topic, and wants to publish on it.

    It certifies itself, puts its advert into heartbeats of its machine that carry nothing, and sends a note of its own
    behind them. All is as it should be but for the authority's signature, so who believes the advert delivers the note.
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


class ChainForger(MachineWrapper):
    """Starts fresh chains for the first advert it overhears: `count` of them to each neighbour, from `start_us` on.

    The signed parts are genuine, the values its own; an anchor gets the end of the forger's chain and keeps the
    signature of the one that was overheard. They leave `each` at a time with its node's own heartbeats, one to a
    heartbeat, all numbered in one row, so that none stands out by its number or its size.
    """

    def __init__(self, inner: Machine, rng: Random, *, count: int, each: int, start_us: int) -> None:
        super().__init__(inner)
        self._rng, self._count, self._each, self._start_us = rng, count, each, start_us
        self._overheard: Advert | None = None
        self._forged: dict[Address, int] = {}
        self._numbers: dict[Address, int] = {}
        self._out: deque[Frame] = deque()

    @property
    def done(self) -> bool:
        """Whether every neighbour has got all there was for it."""
        return bool(self._forged) and all(count == self._count for count in self._forged.values())

    def receive(self, data: bytes, source: Address, now: int) -> None:
        if self._overheard is None and data[:1] == b"\0":
            riders = [decode(rider) for rider in read_heartbeat(data, len(data)).riders]
            self._overheard = next((rider for rider in riders if isinstance(rider, Advert)), None)
        super().receive(data, source, now)

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        for frame in self._frames_of_inner(now, limit):
            if frame.data[:1] != b"\0":
                self._out.append(frame)
                continue
            size, name = len(frame.data), frame.destination
            self._say(name, read_heartbeat(frame.data, size).riders, size)
            if self._overheard is not None and now >= self._start_us:
                for _ in range(min(self._each, self._count - self._forged.get(name, 0))):
                    self._forged[name] = self._forged.get(name, 0) + 1
                    self._say(name, (encode(self._forge(self._overheard)),), size)
        return [self._out.popleft() for _ in range(min(limit, len(self._out)))]

    def _say(self, name: Address, riders: tuple[bytes, ...], size: int) -> None:
        self._numbers[name] = number = (self._numbers.get(name, 0) + 1) % NUMBERS
        self._out.append(Frame(name, pad(encode(Heartbeat(number, riders)), size)))

    def _forge(self, overheard: Advert) -> Advert:
        value, anchor = self._rng.randbytes(hash_chain.VALUE), overheard.anchor
        if anchor is None:
            return replace_chain_value(overheard, value)
        end = hash_chain.advance_chain(value, anchor.length)
        return msgspec.structs.replace(
            overheard, value=value, anchor=Anchor(end, anchor.length, anchor.expires_us, anchor.signature)
        )


def _add_rider(frame: Frame, rider: bytes) -> Frame:
    """The frame with this rider, if it is a heartbeat without any."""
    size = len(frame.data)
    if frame.data[:1] != b"\0" or (beat := read_heartbeat(frame.data, size)).riders:
        return frame
    return Frame(frame.destination, pad(encode(Heartbeat(beat.number, (rider,))), size))


HEARTBEATS_PER_FORGERY: Final = 5
"""Heartbeats from one forgery to the next."""
