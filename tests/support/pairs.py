"""Members of one network and of another, and handshakes between them, for the tests of this room."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

from veilcast.authority import issuer
from veilcast.authority.epoch import HOUR_US
from veilcast.authority.issuer import Authority
from veilcast.authority.keyring import Keyring
from veilcast.link.door import Door
from veilcast.link.doorkeeper import Doorkeeper
from veilcast.link.handshake import Contact, Initiation, Response
from veilcast.link.party import Party
from veilcast.machine import Address

EPOCH, EPOCHS = 100, 24
NOW = EPOCH * HOUR_US + 5_000_000
LATE = (EPOCH + EPOCHS) * HOUR_US
A, B, C = Address("10.0.0.1:4000"), Address("10.0.0.2:4000"), Address("[2001:db8::3]:4000")


@dataclass(frozen=True)
class Network:
    """Alice and Bob are of the root, Carol is of a sub-authority."""

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


def party(keyring: Keyring, seed: int = 0, *, uniform: bool = True) -> Party:
    return Party(keyring, random.Random(seed).randbytes, uniform=uniform)


def static(keyring: Keyring) -> bytes:
    return keyring.membership.certificate.leaf.subject


def met(ours: Party, theirs: Party, *, known: bool = False, generation: int = 0) -> tuple[Contact, Contact]:
    """Both ends of a handshake without losses, by messages alone."""
    remote = theirs.static.public if known else None
    initiation = Initiation(ours, NOW, remote=remote, generation=generation)
    response = Response(theirs, initiation.first, NOW, known=known, generation=generation)
    contact = initiation.read(response.answer, NOW)
    other = response.contact if known else response.read(contact.last, NOW)
    assert other is not None
    return contact, other


def pair(*, known: bool = False, uniform: bool = True, seed: int = 7) -> tuple[Contact, Contact]:
    people = network()
    return met(party(people.alice, seed, uniform=uniform), party(people.bob, seed + 1, uniform=uniform), known=known)


def door(keyring: Keyring, seed: int) -> Door:
    entropy = random.Random(seed).randbytes
    return Door(Party(keyring, entropy), Doorkeeper(entropy))
