"""The topics that a member's keyring has keys for, by epoch, as far as they are of the member's profile."""

from __future__ import annotations

from typing import Final

from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import EpochKeyCache, Keyring, TopicKeys
from veilcast.authority.topic_record import Profile
from veilcast.errors import LocalError


class MemberTopics:
    """Looks keys up, and keeps those of `CACHED_EPOCHS_MAX` epochs."""

    def __init__(self, profile: Profile, keyring: Keyring) -> None:
        self._profile, self._keyring = profile, keyring
        self._cache = EpochKeyCache(keyring, CACHED_EPOCHS_MAX)

    def epoch(self, now: int) -> int:
        return epoch_of(now, self._keyring.epoch_us)

    def keys(self, topic: str, epoch: int) -> TopicKeys:
        """The keys of a topic. Raises `LocalError` if no grant covers the epoch, or the topic is of another profile."""
        keys = self._cache.at(epoch).topic(topic)
        if keys.record.profile != self._profile:
            raise LocalError(f"{topic!r} is a topic of the {keys.record.profile} profile; this node is of the other")
        return keys

    def readable(self, epoch: int) -> list[str]:
        """The topics that this member can read. Raises `LocalError` if its membership does not cover the epoch."""
        return [topic for topic, keys in self._cache.at(epoch).topics.items() if keys.record.profile == self._profile]

    def publishable(self, epoch: int) -> list[str]:
        """The topics that this member can publish on. Raises as `readable` does."""
        return [topic for topic in self.readable(epoch) if self._cache.at(epoch).topic(topic).role == "publisher"]


CACHED_EPOCHS_MAX: Final = 16
"""Epochs whose keys are cached."""
