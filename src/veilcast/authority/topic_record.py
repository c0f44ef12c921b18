"""A topic's signed record: its name, attributes and domains, how finely it is routed, and how much cover it gets.

Every holder of a grant gets the record with it, so all members route and cover alike. The record names the topic and is
therefore as confidential as the grant; it never travels in the clear.

Cover. `choose_cover_share` is a rule of thumb with measured numbers behind it: the share of other members that must act
as subscribers, so that insiders who watch for fifty epochs tell subscribers from others hardly better than by guessing
(AUC at most 0.55). The share grows with the share of members that may be insiders. Where many members subscribe,
sending to all costs little more and leaves nothing to tell.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from veilcast.authority.struct_codec import decode_struct, encode_struct
from veilcast.crypto.certificate import COVER_MAX, EVERY_TOPIC, LINEAGE, NO_LINEAGE, Certificate, signer_of
from veilcast.crypto.derive import digest
from veilcast.crypto.sign import SigningKey, verify
from veilcast.crypto.topic_token import BLIND, NO_BLIND
from veilcast.errors import ConfigError, ForgedError
from veilcast.topics import Schema

Privacy: TypeAlias = Literal["low", "medium", "high"]


COVER_SHARES: Final[dict[Privacy, float]] = {"low": 0.25, "medium": 0.55, "high": 0.78}
"""For insiders that are a hundredth, a twentieth and a tenth of the members."""


Profile: TypeAlias = Literal["hardened", "paper"]


class TopicRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The authority's declaration of a topic. `cover_share` is kappa: the share of others that act as subscribers.

    `edition` counts the declarations of one topic; the highest one holds. `lineage` is the name by which forwarders
    know the topic from epoch to epoch; the issuer draws it, once, and only in `hardened`. `blind` hides which of the
    topic's cells is which; it is drawn with the first declaration, too.
    """

    topic: str
    schema: Schema
    cover_share: float = COVER_SHARES["high"]
    profile: Profile = "hardened"
    edition: int = 1
    lineage: bytes = NO_LINEAGE
    blind: bytes = NO_BLIND

    def __post_init__(self) -> None:
        check_topic(self.topic)
        if not 0 <= self.cover_share <= 1:
            raise ConfigError("the cover share is a number from 0 to 1")
        if len(self.lineage) != LINEAGE:
            raise ConfigError(f"a topic's lineage has {LINEAGE} bytes")
        if len(self.blind) != BLIND:
            raise ConfigError(f"a topic's blind has {BLIND} bytes")

    @property
    def cover(self) -> int:
        """The cover share as certificates state it; 0 in `paper`, where publishers do not state it."""
        return 0 if self.profile == "paper" else round(COVER_MAX * self.cover_share)


class SignedRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record's bytes with the authority's signature, and the delegation if a sub-authority signed."""

    body: bytes
    signature: bytes
    delegation: Certificate | None = None

    def verify(self, root: bytes, epoch: int) -> TopicRecord:
        """The record, if the root or the topic's own sub-authority signed it."""
        verify(signer_of(root, self.delegation, epoch), self.body, self.signature, purpose=_PURPOSE)
        record = decode_struct(self.body, TopicRecord, ForgedError)
        if self.delegation is not None and not in_group(record.topic, self.delegation.scope):
            raise ForgedError("a sub-authority declared a topic outside its group")
        return record


def sign_record(record: TopicRecord, key: SigningKey, delegation: Certificate | None) -> SignedRecord:
    body = encode_struct(record)
    return SignedRecord(body, key.sign(body, purpose=_PURPOSE), delegation)


def group_scope(group: str) -> bytes:
    """The digest by which a delegation names a group of topics: forwarders see it and learn no topic."""
    return digest(group.encode(), purpose=b"vc/group") if group else EVERY_TOPIC


def in_group(topic: str, scope: bytes) -> bool:
    """True if one of the topic's own prefixes (news, news/eu, ...) is the group of this scope."""
    parts = topic.split("/")
    prefixes = ["/".join(parts[:length]) for length in range(len(parts) + 1)]
    return any(group_scope(prefix) == scope for prefix in prefixes)


def check_topic(topic: str) -> None:
    """Raise `ConfigError` unless this is one or more words with slashes between.

    The words are the groups of the topic.
    """
    if not topic.isprintable() or not 1 <= len(topic.encode()) <= TOPIC_MAX:
        raise ConfigError(f"a topic has 1 to {TOPIC_MAX} printable bytes")
    if not all(topic.split("/")):
        raise ConfigError(f"a topic is words with single slashes between them, not {topic!r}")


def choose_cover_share(privacy: Privacy, *, subscribers: int | None = None, members: int | None = None) -> float:
    """The share of others that act as subscribers. The sizes of topic and network count if both are given."""
    if subscribers is None and members is None:
        return COVER_SHARES[privacy]
    if subscribers is None or members is None:
        raise ConfigError("a topic's size is the number of its subscribers and that of all members; give both")
    if members < 1 or not 0 <= subscribers <= members:
        raise ConfigError("a topic has from none to all of the members as subscribers, and there is at least one")
    return 1.0 if subscribers >= BROADCAST_SHARE * members else COVER_SHARES[privacy]


TOPIC_MAX: Final = 200
BROADCAST_SHARE: Final = 0.2
"""The share of members that subscribe from which on every member acts as a subscriber."""
_PURPOSE: Final = b"veilcast/topic"
