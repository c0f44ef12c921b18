"""Epochs in the mesh: a topic whose token changes at every edge, and goes on (the switch `epoch_tokens`).

A topic of the `hardened` profile has another token in each epoch, and only who holds its keys can tell that two belong
together. So there is no list of what follows what: a publisher advertises the next token some time before the edge
(`lead`), its readers know it too and subscribe to it, and every forwarder learns of it from a neighbour as it would of
a new topic. Notes take the new token from the edge on. The old one is read on for a while (`grace`), for what is under
way and for clocks that are behind; then each node forgets it by itself, since certificates name their epoch.

`EpochTokens` says for an owner's topics which keys are to be in use at a moment, and for everybody which certificates
count.
The order of a publisher's notes goes on over the edge: its numbers and streams are those of the topic, not the token.
"""

from __future__ import annotations

from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import EpochKeys, Keyring, TopicKeys
from veilcast.crypto.certificate import CertificateChain
from veilcast.errors import AuthorityError, ConfigError, LocalError
from veilcast.mesh.config import MeshConfig


class EpochTokens:
    """For one keyring. Bounded: the keys of the epochs that were last in use, at most four, are kept at hand."""

    def __init__(self, config: MeshConfig, keyring: Keyring) -> None:
        defences = config.defences
        self._keyring, self._on = keyring, defences.epoch_tokens
        self._lead_us = defences.lead_us if self._on else 0
        self._grace_us = defences.grace_us if self._on else 0
        if self._lead_us + self._grace_us >= keyring.epoch_us:
            raise ConfigError("defences.lead_us and defences.grace_us must fit into an epoch together")
        self._at_hand: dict[int, EpochKeys | None] = {}
        self._last_seen: tuple[int, ...] = ()

    def current_keys(self, topic: str, now: int) -> TopicKeys:
        """The keys of this epoch; `LocalError` if there are none, or none that this mesh can use."""
        epoch = self._epoch(now)
        return self._usable((self._hold(epoch) or self._keyring.keys_at(epoch)).topic(topic))

    def subscription_keys(self, topic: str, now: int) -> list[TopicKeys]:
        """The keys by which the topic is read now, those of the oldest epoch first; none for what we may not read."""
        return self._keys(topic, self._epochs(now))

    def advertising_keys(self, topic: str, now: int) -> list[TopicKeys]:
        """The keys by which the topic is advertised now: this epoch's, and before an edge the next one's too."""
        epochs = tuple(epoch for epoch in self._epochs(now) if epoch >= self._epoch(now))
        return [keys for keys in self._keys(topic, epochs) if keys.signing is not None]

    def has_changed(self, now: int) -> bool:
        """Whether other keys are to be in use than when this was last asked."""
        seen, self._last_seen = self._last_seen, self._epochs(now)
        return self._on and seen != self._last_seen

    def oldest_epoch(self, now: int) -> int:
        """What was certified only for epochs before this one is over."""
        return self._oldest(now)

    def verification_epoch(self, certificate: CertificateChain, now: int) -> int:
        """The epoch in which to check a certificate: this one, or one that is near enough if it is for that.

        A grace is allowed at both ends: an advert comes once, and one that a fast clock sends early must not be lost.
        """
        leaf, this = certificate.leaf, self._epoch(now)
        near = (this, self._epoch(now + self._lead_us + self._grace_us), self._oldest(now))
        return next((epoch for epoch in near if leaf.first <= epoch <= leaf.last), this)

    def _epoch(self, now: int) -> int:
        return epoch_of(now, self._keyring.epoch_us)

    def _oldest(self, now: int) -> int:
        return self._epoch(now - self._grace_us)

    def _epochs(self, now: int) -> tuple[int, ...]:
        """Those in use, in order: the last within its grace, this one, the next within its lead."""
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
        if epoch not in self._at_hand:
            try:
                keys = self._keyring.keys_at(epoch)
            except AuthorityError:
                keys = None  # Our membership does not reach that far.
            if len(self._at_hand) >= 4:
                del self._at_hand[min(self._at_hand)]
            self._at_hand[epoch] = keys
        return self._at_hand[epoch]

    def _usable(self, keys: TopicKeys) -> TopicKeys:
        profile = keys.record.profile
        if profile != "paper" and not self._on:
            raise LocalError(f"{keys.record.topic!r} is a topic of the {profile} profile; this node is a paper's")
        return keys
