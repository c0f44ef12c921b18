"""The topics that a member has keys for, epoch by epoch, as long as they are of its profile."""

from __future__ import annotations

from typing import Final

from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import EpochKeys, Keyring, TopicKeys
from veilcast.authority.topic_record import Profile
from veilcast.errors import LocalError


class MemberTopics:
    """Bounded: the keys of `CACHED_EPOCHS_MAX` epochs."""

    def __init__(self, profile: Profile, keyring: Keyring) -> None:
        self._profile, self._keyring = profile, keyring
        self._at_hand: dict[int, EpochKeys] = {}

    def epoch(self, now: int) -> int:
        return epoch_of(now, self._keyring.epoch_us)

    def keys(self, topic: str, epoch: int) -> TopicKeys:
        """`LocalError` where no grant reaches so far, or the topic is of another profile."""
        keys = self._at(epoch).topic(topic)
        if keys.record.profile != self._profile:
            raise LocalError(f"{topic!r} is a topic of the {keys.record.profile} profile; this node is of the other")
        return keys

    def readable(self, epoch: int) -> list[str]:
        """The topics that this member can read; `LocalError` where its membership does not reach so far."""
        return [topic for topic, keys in self._at(epoch).topics.items() if keys.record.profile == self._profile]

    def publishable(self, epoch: int) -> list[str]:
        """Those that it can publish on."""
        return [topic for topic in self.readable(epoch) if self._at(epoch).topic(topic).role == "publisher"]

    def _at(self, epoch: int) -> EpochKeys:
        if epoch not in self._at_hand:
            while len(self._at_hand) >= CACHED_EPOCHS_MAX:
                del self._at_hand[next(iter(self._at_hand))]
            self._at_hand[epoch] = self._keyring.keys_at(epoch)
        return self._at_hand[epoch]


CACHED_EPOCHS_MAX: Final = 16
"""Epochs whose keys are kept at hand: to look them up checks the signature of every grant."""
