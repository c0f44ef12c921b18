"""What the authority has on record: its topics, its members, and what it granted to each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from veilcast.authority.record import TopicRecord
from veilcast.authority.topickeys import Bridge, Role
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import PUBLIC
from veilcast.machine import Entropy


class Topic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A declared topic with the key that all its epoch keys come from, and the bridges laid since."""

    record: TopicRecord
    master: Secret
    bridges: tuple[Bridge, ...] = ()


class Given(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a member holds of one topic. A publisher's public keys stand one after the other, one per epoch.

    The member has the topic's record as of then; its certificates go by the cover share in that one, until the next
    grant.
    """

    topic: str
    role: Role
    first: int
    last: int
    wrap: Secret
    cover_share: float
    publisher_keys: bytes = b""

    def entries(self, effective: int) -> int:
        """The number of entries in a bulletin of epoch `effective`: a bridge, and a signature per key to come."""
        end = self.first + len(self.publisher_keys) // PUBLIC
        return 1 + max(0, end - max(self.first, effective))


class Issued(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A certified key: its fingerprint, its topic ("" for a link key), and the last epoch of its certificate."""

    name: bytes
    topic: str
    last: int


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One member, by the name only the authority knows it under.

    `ended` has the grants that were revoked before their time. Bulletins have decoys in their place.
    """

    given: tuple[Given, ...] = ()
    issued: tuple[Issued, ...] = ()
    revoked: bool = False
    ended: tuple[Given, ...] = ()


def entries_of_some_topic(
    members: Mapping[str, Member], topics: Iterable[str], effective: int, entropy: Entropy
) -> int:
    """The number of entries in a bulletin that revokes a member with a grant, drawn among the grants of these topics.

    A bulletin without entries, or with fewer, would say that the revoked member holds no grant. The grants of members
    that were revoked before leave decoys in every bulletin of their topic, so these count here, too.
    """
    names = set(topics)
    held = [given for member in members.values() for given in (*member.given, *member.ended)]
    held = [given for given in held if given.last >= effective and given.topic in names]
    if not held:
        return 0
    topic = held[int.from_bytes(entropy(4), "big") % len(held)].topic
    return sum(given.entries(effective) for given in held if given.topic == topic)
