"""Members of networks, and handshakes between two of them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

from veilcast.authority import issuer
from veilcast.authority.epoch import HOUR_US
from veilcast.authority.issuer import Authority
from veilcast.authority.keyring import Keyring
from veilcast.link.admission import AdmissionLimits, LinkAdmission
from veilcast.link.handshake import HandshakeResult, InitiatorHandshake, ResponderHandshake
from veilcast.link.identity import LinkIdentity
from veilcast.machine import Address

EPOCH, EPOCHS = 100, 24
NOW = EPOCH * HOUR_US + 5_000_000
LATE = (EPOCH + EPOCHS) * HOUR_US
A, B, C = Address("10.0.0.1:4000"), Address("10.0.0.2:4000"), Address("[2001:db8::3]:4000")


@dataclass(frozen=True)
class Network:
    """The root certified Alice and Bob, a sub-authority certified Carol."""

    root: Authority
    child: Authority
    alice: Keyring
    bob: Keyring
    carol: Keyring


@cache
def network(seed: int = 1) -> Network:
    entropy = random.Random(seed).randbytes
    root, child = issuer.delegate(issuer.create(HOUR_US, entropy), "sports", EPOCH, EPOCHS, entropy)
    root, alice = issuer.grant_ready(root, "alice", [], EPOCH, EPOCHS, entropy)
    root, bob = issuer.grant_ready(root, "bob", [], EPOCH, EPOCHS, entropy)
    child, carol = issuer.grant_ready(child, "carol", [], EPOCH, EPOCHS, entropy)
    return Network(root, child, alice, bob, carol)


def identity(keyring: Keyring, seed: int = 0, *, uniform: bool = True) -> LinkIdentity:
    return LinkIdentity(keyring, random.Random(seed).randbytes, uniform=uniform)


def static(keyring: Keyring) -> bytes:
    return keyring.membership.certificate.leaf.subject


def shake_hands(
    ours: LinkIdentity, theirs: LinkIdentity, *, known: bool = False, generation: int = 0
) -> tuple[HandshakeResult, HandshakeResult]:
    """The results of both ends of a handshake without losses."""
    remote = theirs.static.public if known else None
    initiation = InitiatorHandshake(ours, NOW, remote=remote, generation=generation)
    response = ResponderHandshake(theirs, initiation.first_message, NOW, known=known, generation=generation)
    contact = initiation.read(response.answer, NOW)
    other = response.result if known else response.read(contact.last_message, NOW)
    assert other is not None
    return contact, other


def handshake_pair(
    *, known: bool = False, uniform: bool = True, seed: int = 7
) -> tuple[HandshakeResult, HandshakeResult]:
    people = network()
    return shake_hands(
        identity(people.alice, seed, uniform=uniform), identity(people.bob, seed + 1, uniform=uniform), known=known
    )


def admission(keyring: Keyring, seed: int) -> LinkAdmission:
    entropy = random.Random(seed).randbytes
    return LinkAdmission(LinkIdentity(keyring, entropy), AdmissionLimits(entropy))
