"""Epoch tokens: topics whose token changes at every epoch edge (the switch `epoch_tokens`).

A topic of the `hardened` profile has another token in each epoch, and only members with its keys can link the tokens.
So there is no list of successors. A publisher advertises the next token some time before the edge (`lead`). Its
subscribers know that token too and subscribe to it, and every forwarder learns of it from a neighbour, like a new
topic. Notifications use the new token from the edge on. The old token is used by subscribers for a while (`grace`), for
messages in flight and for slow clocks. Then each node forgets it by itself, because certificates name their epoch.

`EpochTokens` tells for the owner's topics which keys are in use at a moment, and for all nodes which certificates
count. The order of a publisher's notifications continues over the edge: its numbers and streams belong to the topic,
and not to the token.
"""

from __future__ import annotations

from typing import Final

from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import EpochKeyCache, EpochKeys, Keyring, TopicKeys
from veilcast.crypto.certificate import CertificateChain
from veilcast.errors import AuthorityError, ConfigError, LocalError
from veilcast.mesh.config import MeshConfig


class EpochTokens:
    """The tokens of one keyring. Bounded: the keys of at most four epochs, those used last, are cached."""

    def __init__(self, config: MeshConfig, keyring: Keyring) -> None:
        defences = config.defences
        self._keyring, self._on = keyring, defences.epoch_tokens
        self._lead_us = defences.lead_us if self._on else 0
        self._grace_us = defences.grace_us if self._on else 0
        if self._lead_us + self._grace_us >= keyring.epoch_us:
            raise ConfigError("defences.lead_us and defences.grace_us must fit into an epoch together")
        self._cache = EpochKeyCache(keyring, CACHED_EPOCHS_MAX)
        self._last_seen: tuple[int, ...] = ()

    def current_keys(self, topic: str, now: int) -> TopicKeys:
        """The keys of this epoch; raises `LocalError` if this mesh has no key that it can use."""
        epoch = self._epoch(now)
        return self._usable((self._hold(epoch) or self._keyring.keys_at(epoch)).topic(topic))

    def subscription_keys(self, topic: str, now: int) -> list[TopicKeys]:
        """The keys for subscriptions to the topic now, oldest epoch first; empty without a grant."""
        return self._keys(topic, self._epochs(now))

    def advertising_keys(self, topic: str, now: int) -> list[TopicKeys]:
        """The keys for advertising the topic now: this epoch's, and before an edge also the next one's."""
        epochs = tuple(epoch for epoch in self._epochs(now) if epoch >= self._epoch(now))
        return [keys for keys in self._keys(topic, epochs) if keys.signing is not None]

    def has_changed(self, now: int) -> bool:
        """True if other keys are in use than at the last call."""
        seen, self._last_seen = self._last_seen, self._epochs(now)
        return self._on and seen != self._last_seen

    def oldest_epoch(self, now: int) -> int:
        """Certificates that end before this epoch are over."""
        return self._oldest(now)

    def verification_epoch(self, certificate: CertificateChain, now: int) -> int:
        """The epoch in which to check a certificate: this one, or a near one if the certificate is for that.

        A grace time is allowed at both ends: an advertisement comes once, and an early one from a fast clock must not
        be lost.
        """
        leaf, this = certificate.leaf, self._epoch(now)
        near = (this, self._epoch(now + self._lead_us + self._grace_us), self._oldest(now))
        return next((epoch for epoch in near if leaf.first <= epoch <= leaf.last), this)

    def _epoch(self, now: int) -> int:
        return epoch_of(now, self._keyring.epoch_us)

    def _oldest(self, now: int) -> int:
        return self._epoch(now - self._grace_us)

    def _epochs(self, now: int) -> tuple[int, ...]:
        """The epochs in use, in order: the last within its grace, this one, the next within its lead."""
        return tuple(range(self._oldest(now), self._epoch(now + self._lead_us) + 1))

    def _keys(self, topic: str, epochs: tuple[int, ...]) -> list[TopicKeys]:
        found: dict[bytes, TopicKeys] = {}
        for epoch in epochs:
            held = self._hold(epoch)
            if held is not None and topic in held.topics:
                keys = self._usable(held.topics[topic])
                found[keys.token] = keys
        return list(found.values())

    def _hold(self, epoch: int) -> EpochKeys | None:
        try:
            return self._cache.at(epoch)
        except AuthorityError:
            return None  # The membership of this node ends before that epoch.

    def _usable(self, keys: TopicKeys) -> TopicKeys:
        profile = keys.record.profile
        if profile != "paper" and not self._on:
            raise LocalError(
                f"{keys.record.topic!r} is a topic of the {profile} profile; this node has the paper profile"
            )
        return keys


CACHED_EPOCHS_MAX: Final = 4
