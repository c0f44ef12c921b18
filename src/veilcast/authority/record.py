"""A topic's signed record: its name, attributes and domains, how finely it is routed, and how much cover it gets.

Every holder of a grant gets the record with it, so all members route and cover alike. The record names the topic and is
therefore as confidential as the grant; it never travels in the clear.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from veilcast.authority.plain import from_bytes, to_bytes
from veilcast.authority.privacy import SHARES
from veilcast.crypto.cell import BLIND, NO_BLIND
from veilcast.crypto.certificate import COVER_MAX, EVERY_TOPIC, LINEAGE, NO_LINEAGE, Certificate, signer_of
from veilcast.crypto.derive import digest
from veilcast.crypto.sign import SigningKey, verify
from veilcast.errors import ConfigError, ForgedError
from veilcast.topics import Schema

Profile: TypeAlias = Literal["hardened", "paper"]


class TopicRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the authority declared of a topic. `cover_share` is kappa: the share of others that act as subscribers.

    `edition` counts the declarations of one topic; the highest is the one that holds. `lineage` is the name by which
    forwarders know the topic from epoch to epoch; the issuer draws it, once, and only in `hardened`. `blind` hides
    which of the topic's cells is which; it is drawn with the first declaration, too.
    """

    topic: str
    schema: Schema
    cover_share: float = SHARES["high"]
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
        """The cover share as certificates tell it; none in `paper`, where publishers do not say."""
        return 0 if self.profile == "paper" else round(COVER_MAX * self.cover_share)


class SignedRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record's bytes with the authority's signature, and the delegation behind it if a sub-authority signed."""

    body: bytes
    signature: bytes
    delegation: Certificate | None = None

    def verify(self, root: bytes, epoch: int) -> TopicRecord:
        """The record, if the root or the topic's own sub-authority declared it."""
        verify(signer_of(root, self.delegation, epoch), self.body, self.signature, purpose=_PURPOSE)
        record = from_bytes(self.body, TopicRecord, ForgedError)
        if self.delegation is not None and not in_group(record.topic, self.delegation.scope):
            raise ForgedError("a sub-authority declared a topic outside its group")
        return record


def sign_record(record: TopicRecord, key: SigningKey, delegation: Certificate | None) -> SignedRecord:
    body = to_bytes(record)
    return SignedRecord(body, key.sign(body, purpose=_PURPOSE), delegation)


def group_scope(group: str) -> bytes:
    """What a delegation names a group of topics by: forwarders see it and learn no topic."""
    return digest(group.encode(), purpose=b"vc/group") if group else EVERY_TOPIC


def in_group(topic: str, scope: bytes) -> bool:
    """Whether one of the topic's own prefixes (news, news/eu, ...) is the group of this scope."""
    parts = topic.split("/")
    prefixes = ["/".join(parts[:length]) for length in range(len(parts) + 1)]
    return any(group_scope(prefix) == scope for prefix in prefixes)


def check_topic(topic: str) -> None:
    """A topic is one or more words with slashes between; the words are the groups it belongs to."""
    if not topic.isprintable() or not 1 <= len(topic.encode()) <= TOPIC_MAX:
        raise ConfigError(f"a topic has 1 to {TOPIC_MAX} printable bytes")
    if not all(topic.split("/")):
        raise ConfigError(f"a topic is words with single slashes between them, not {topic!r}")


TOPIC_MAX: Final = 200
_PURPOSE: Final = b"veilcast/topic"
