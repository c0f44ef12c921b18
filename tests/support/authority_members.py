"""A small authority with a few members, for the tests of this room."""

from __future__ import annotations

import random
from dataclasses import dataclass

from veilcast.authority import issuer
from veilcast.authority.bulletin import Bulletin
from veilcast.authority.issuer import Authority
from veilcast.authority.keyring import Keyring
from veilcast.authority.topic_keys import TopicRole
from veilcast.authority.topic_record import Profile
from veilcast.machine import Entropy

NOW, EPOCHS = 100, 24
HOUR_US = 3_600_000_000
TOPIC, OTHER = "news/eu", "chat"


@dataclass
class AuthorityMembers:
    """One publisher and two subscribers of news/eu; bob also reads chat; mallory publishes news/eu until revoked."""

    entropy: Entropy
    authority: Authority
    alice: Keyring
    bob: Keyring
    carol: Keyring
    mallory: Keyring


def bulletin_of(state: Authority) -> Bulletin:
    """The bulletin that a decision left in the state."""
    assert state.bulletin is not None
    return state.bulletin


def make_authority_members(profile: Profile = "hardened", seed: int = 7) -> AuthorityMembers:
    entropy = random.Random(seed).randbytes
    state = issuer.create(HOUR_US, entropy)
    for topic in (TOPIC, OTHER):
        state = issuer.declare_label(state, topic, profile, entropy)
    state, alice = issuer.grant_ready(state, "alice", [(TOPIC, "publisher")], NOW, EPOCHS, entropy)
    wanted: list[tuple[str, TopicRole]] = [(TOPIC, "subscriber"), (OTHER, "subscriber")]
    state, bob = issuer.grant_ready(state, "bob", wanted, NOW, EPOCHS, entropy)
    state, carol = issuer.grant_ready(state, "carol", [(TOPIC, "subscriber")], NOW, EPOCHS, entropy)
    state, mallory = issuer.grant_ready(state, "mallory", [(TOPIC, "publisher")], NOW, EPOCHS, entropy)
    return AuthorityMembers(entropy, state, alice, bob, carol, mallory)
