"""A topic's signed record: its name, attributes and domains, how finely it is routed, and how much cover it gets.

Every holder of a grant gets the record with it, so all members route and cover alike. The record names the topic and is
therefore as confidential as the grant; it never travels in the clear.

Cover. `choose_cover_share` gives the share of other members that act as subscribers.

1. Covers act for life, and every holder of a grant acts, so insiders who watch for ever learn at most who acts. A
   subscriber always does, and another member with probability kappa. So the AUC of the best guess is at most
   1 - kappa / 2, after any number of epochs: .55 for the share `high`.
2. Lower shares rely on what insiders can see from their places, and so on their number. They were measured for fifty
   epochs.
3. Sending to all leaves nothing to tell. A notification then costs 4 % more messages than with `high` among 12 to 50
   members, and 5 % more among 500. So small groups send to all, and so do topics that many members read.
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


COVER_SHARES: Final[dict[Privacy, float]] = {"low": 0.25, "medium": 0.55, "high": 0.9}
"""For insiders that are a hundredth and a twentieth of the members; and for any, and for any time."""


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
    """The share of others that act as subscribers, by the sizes of the topic and of the network, where given."""
    if members is None and subscribers is None:
        return COVER_SHARES[privacy]
    if members is None:
        raise ConfigError("a number of subscribers says something only beside that of all members; give both")
    if members < 1 or not 0 <= (subscribers or 0) <= members:
        raise ConfigError("a topic has from none to all of the members as subscribers, and there is at least one")
    many = subscribers is not None and subscribers >= BROADCAST_SHARE * members
    return 1.0 if many or members <= SMALL_GROUP else COVER_SHARES[privacy]


TOPIC_MAX: Final = 200
BROADCAST_SHARE: Final = 0.2
"""The share of members that subscribe from which on every member acts as a subscriber."""
SMALL_GROUP: Final = 64
"""Members up to which every member acts as a subscriber of every topic. A multiple of the members that one node is
linked with: the mesh of such a group has nearly all members in it anyway."""
_PURPOSE: Final = b"veilcast/topic"
