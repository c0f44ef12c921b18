"""The semantics of claims: how predicates are encoded, and when one claim covers, overlaps or matches another.

Two codecs encode claims and publications for brokers:

- `PlainPredicates` (`paper`), as in PADRES: attributes, operators and values in clear. Every broker can read who
  subscribes to what (P4 leaves that to future work).
- `TagPredicates` (`hardened`): elements of labels, equalities and dyadic prefixes, each under the topic's key of the
  epoch, padded and sorted. Brokers compare the tags and cannot tell what they stand for.

Tags are less precise in two places, both on the safe side. An advertisement names only its topic, so a subscription
goes to all publishers of the topic. And a subscription is known to cover another only where tags show it: one for the
whole topic, or the very same elements. Any other covering is missed, and costs a message.

In `hardened` a topic's name is a digest of its token, which the publisher's certificate is for. So brokers check that
an advertisement is for the topic that its publisher was granted. They cannot check that with plain predicates.

`ClaimSemantics` combines a codec with subscriber keys and expiry times; it is the `MatchRules` of the routing tables.
Whether one claim covers another depends only on the two claims, not on the order of arrival. So replicas of a node that
know the same claims forward the same ones to a neighbour.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from veilcast.authority.keyring import TopicKeys
from veilcast.authority.topic_record import Profile
from veilcast.brokers.routing import covering
from veilcast.core.match_elements import (
    ElementGroups,
    derive_element_key,
    key_element,
    key_groups,
    publication_elements,
    subscription_elements,
)
from veilcast.core.size_classes import pad_groups
from veilcast.crypto.derive import digest
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import ForgedError, LocalError, MalformedError
from veilcast.machine import Publication, Value
from veilcast.topics import TOPIC, Conjunction, Constraint, Equal
from veilcast.topics.interests import check_count
from veilcast.wire import geometry as g
from veilcast.wire.brokers import Claim

I_contra = TypeVar("I_contra", contravariant=True)
P_contra = TypeVar("P_contra", contravariant=True)
I = TypeVar("I")  # noqa: E741 - interests
P = TypeVar("P")
T = TypeVar("T")


class MatchRules(Protocol[I_contra, P_contra]):
    """Comparisons of interests and publications, for the routing tables."""

    def subject(self, what: I_contra | P_contra) -> Hashable:
        """Two values with different subjects never cover, overlap or match one another."""

    def covers(self, s: I_contra, t: I_contra) -> bool:
        """True if s matches everything that t matches; False where that cannot be decided."""

    def covers_advertisement(self, a: I_contra, b: I_contra) -> bool:
        """True if everything that conforms to b conforms to a."""

    def overlaps(self, advertisement: I_contra, subscription: I_contra) -> bool:
        """True if a publication that conforms can match."""

    def conforms(self, publication: P_contra, advertisement: I_contra) -> bool:
        """True if the publication was advertised."""

    def matches(self, publication: P_contra, subscription: I_contra) -> bool: ...


class PredicateCodec(MatchRules[I, P], Protocol[I, P]):
    """Match rules with an encoding: members encode, brokers decode. `MalformedError` for invalid bytes."""

    def encode_advertisement(self, keys: TopicKeys) -> bytes:
        """Everything that may be published on this topic."""

    def encode_subscription(self, keys: TopicKeys, interest: Conjunction) -> bytes: ...

    def encode_publication(self, keys: TopicKeys, publication: Publication) -> bytes: ...

    def decode_advertisement(self, claim: Claim) -> I: ...

    def decode_subscription(self, claim: Claim) -> I: ...

    def decode_publication(self, says: bytes) -> P: ...


# --- paper ------------------------------------------------------------------------------------------------------------


class PlainInterest(Conjunction, msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Constraints. An advertisement also lists free attributes, on which any value may be published, or none."""

    constraints: tuple[Constraint, ...]
    free_attributes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_count(self.constraints)


class PlainPredicates:
    """P4, Fig. 1. Any interest is accepted; only a `PlainInterest` has free attributes."""

    def subject(self, what: Conjunction | Publication) -> Hashable:
        """Always None: any two values may be related."""
        return None

    def covers(self, s: Conjunction, t: Conjunction) -> bool:
        return covering.covers(s, t)

    def covers_advertisement(self, a: Conjunction, b: Conjunction) -> bool:
        return a == b or (not _free_attributes(b) and covering.covers_advertisement(a, b))

    def overlaps(self, advertisement: Conjunction, subscription: Conjunction) -> bool:
        others, advertised = _free_attributes(advertisement), advertisement.constraints
        return all(
            constraint.attribute in others or any(covering.intersects(constraint, each) for each in advertised)
            for constraint in subscription.constraints
        )

    def conforms(self, publication: Publication, advertisement: Conjunction) -> bool:
        others = _free_attributes(advertisement)
        pairs = tuple(pair for pair in publication.pairs if pair[0] not in others) if others else publication.pairs
        return covering.conforms(Publication(pairs), advertisement)

    def matches(self, publication: Publication, subscription: Conjunction) -> bool:
        return subscription.matches(publication)

    def encode_advertisement(self, keys: TopicKeys) -> bytes:
        others = tuple(domain.attribute for domain in keys.record.schema.domains)
        return _encode_bounded(PlainInterest((Equal(TOPIC, keys.record.topic),), others))

    def encode_subscription(self, keys: TopicKeys, interest: Conjunction) -> bytes:
        label = Equal(TOPIC, keys.record.topic)
        rest = tuple(constraint for constraint in interest.constraints if constraint != label)
        return _encode_bounded(PlainInterest((label, *rest)))

    def encode_publication(self, keys: TopicKeys, publication: Publication) -> bytes:
        """The advertised part of the publication. Other labels and undeclared attributes are for subscribers alone."""
        declared = {domain.attribute for domain in keys.record.schema.domains}
        label = (TOPIC, keys.record.topic)
        return _encode_bounded((label, *(pair for pair in publication.pairs if pair[0] in declared)))

    def decode_advertisement(self, claim: Claim) -> PlainInterest:
        return _PLAIN_DECODER.decode(claim.interest)

    def decode_subscription(self, claim: Claim) -> PlainInterest:
        clear = _PLAIN_DECODER.decode(claim.interest)
        if clear.free_attributes:
            raise MalformedError("a subscription has constraints, and nothing else")
        return clear

    def decode_publication(self, says: bytes) -> Publication:
        return Publication(_PAIRS_DECODER.decode(says))


# --- hardened ---------------------------------------------------------------------------------------------------------


class TagGroups(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A topic, and groups of tags: a subscription has one group per constraint, a publication has one group."""

    topic: Annotated[bytes, msgspec.Meta(min_length=g.TAG, max_length=g.TAG)]
    groups: Annotated[
        tuple[
            Annotated[
                frozenset[Annotated[bytes, msgspec.Meta(min_length=g.TAG, max_length=g.TAG)]],
                msgspec.Meta(min_length=1, max_length=g.SUBJECTS_MAX),
            ],
            ...,
        ],
        msgspec.Meta(max_length=g.GROUPS_MAX),
    ] = ()


class TagPredicates:
    """Predicates as keyed tags."""

    def subject(self, what: TagGroups) -> Hashable:
        return what.topic

    def covers(self, s: TagGroups, t: TagGroups) -> bool:
        return s.topic == t.topic and all(any(inner <= outer for inner in t.groups) for outer in s.groups)

    def covers_advertisement(self, a: TagGroups, b: TagGroups) -> bool:
        return a.topic == b.topic

    def overlaps(self, advertisement: TagGroups, subscription: TagGroups) -> bool:
        return advertisement.topic == subscription.topic

    def conforms(self, publication: TagGroups, advertisement: TagGroups) -> bool:
        return publication.topic == advertisement.topic

    def matches(self, publication: TagGroups, subscription: TagGroups) -> bool:
        if publication.topic != subscription.topic:
            return False
        (tags,) = publication.groups
        return all(not group.isdisjoint(tags) for group in subscription.groups)

    def encode_advertisement(self, keys: TopicKeys) -> bytes:
        return _encode_bounded((topic_tag(keys.token), ()))

    def encode_subscription(self, keys: TopicKeys, interest: Conjunction) -> bytes:
        if all(constraint == Equal(TOPIC, keys.record.topic) for constraint in interest.constraints):
            return _encode_bounded((topic_tag(keys.token), ()))  # The topic's tag is the whole predicate.
        return self._encode_tags(keys, subscription_elements(interest, keys.record), b"wanted")

    def encode_publication(self, keys: TopicKeys, publication: Publication) -> bytes:
        return self._encode_tags(keys, publication_elements(publication, keys.record), b"said")

    def decode_advertisement(self, claim: Claim) -> TagGroups:
        tagged = _TAGS_DECODER.decode(claim.interest)
        if claim.chain is None or tagged.topic != topic_tag(claim.chain.leaf.scope):
            raise ForgedError("an advertisement of another topic than its publisher was granted")
        if tagged.groups:
            raise MalformedError("an advertisement is of a whole topic")
        return tagged

    def decode_subscription(self, claim: Claim) -> TagGroups:
        return _TAGS_DECODER.decode(claim.interest)

    def decode_publication(self, says: bytes) -> TagGroups:
        tagged = _TAGS_DECODER.decode(says)
        if len(tagged.groups) != 1:
            raise MalformedError("a publication has one group of tags")
        return tagged

    def _encode_tags(self, keys: TopicKeys, elements: ElementGroups, kind: bytes) -> bytes:
        """Deterministic encoding, padding included: two equal subscriptions have equal bytes, and one of them is
        forwarded."""
        key = derive_element_key(keys, b"p4")
        groups = key_groups(key, elements, size=g.TAG)
        seed = digest(_ENCODER.encode((kind, groups)), purpose=b"vc/filler")
        full = pad_groups(groups, lambda number: key_element(key, seed + number.to_bytes(2, "big"), size=g.TAG))
        return _encode_bounded((topic_tag(keys.token), full))


def topic_tag(token: bytes) -> bytes:
    """The topic's name for brokers, in the epoch of its token."""
    return digest(token, purpose=b"vc/brokers-topic", size=g.TAG)


def predicate_codec(profile: Profile) -> PlainPredicates | TagPredicates:
    return TagPredicates() if profile == "hardened" else PlainPredicates()


def _free_attributes(advertisement: Conjunction) -> tuple[str, ...]:
    return advertisement.free_attributes if isinstance(advertisement, PlainInterest) else ()


def _encode_bounded(what: object) -> bytes:
    data = _ENCODER.encode(what)
    if len(data) > g.INTEREST_MAX:
        raise LocalError(f"in the words of brokers this has {len(data)} bytes; they take {g.INTEREST_MAX}")
    return data


_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")
_FOREIGN: Final = "not in the language of these brokers"
_PLAIN_DECODER: Final = MsgpackDecoder(PlainInterest, MalformedError, _FOREIGN, g.INTEREST_MAX)
_PAIRS_DECODER: Final = MsgpackDecoder(
    Annotated[tuple[tuple[str, Value], ...], msgspec.Meta(min_length=1, max_length=g.SUBJECTS_MAX)],
    MalformedError,
    _FOREIGN,
    g.INTEREST_MAX,
)
_TAGS_DECODER: Final = MsgpackDecoder(TagGroups, MalformedError, _FOREIGN, g.INTEREST_MAX)


class ActiveClaim(msgspec.Struct, frozen=True):
    """A claim as the routing tables store it. `subscriber_key` is the key that the topic's subscribers sign with."""

    id: bytes
    until_us: int
    subscriber_key: bytes
    predicate: Any
    """Decoded by the profile's codec."""


class PublicationQuery(NamedTuple):
    """A publication as the routing tables are queried for it."""

    advertisement: bytes
    subscriber_key: bytes
    predicate: Any


class ClaimSemantics:
    """The match rules of a codec, for claims with a subscriber key and an expiry time."""

    def __init__(self, codec: PredicateCodec[Any, Any]) -> None:
        self._codec = codec

    def subject(self, what: ActiveClaim | PublicationQuery) -> Hashable:
        """The subscriber key: claims with different keys are unrelated."""
        return what.subscriber_key

    def covers(self, s: ActiveClaim, t: ActiveClaim) -> bool:
        """Of two equal subscriptions, the one that expires later covers the other; ties go to the larger id."""
        if (
            s.subscriber_key != t.subscriber_key
            or s.until_us < t.until_us
            or not self._codec.covers(s.predicate, t.predicate)
        ):
            return False
        return (s.until_us, s.id) > (t.until_us, t.id) or not self._codec.covers(t.predicate, s.predicate)

    def covers_advertisement(self, a: ActiveClaim, b: ActiveClaim) -> bool:
        """Never: subscribers need the key of each publisher."""
        return False

    def overlaps(self, advertisement: ActiveClaim, subscription: ActiveClaim) -> bool:
        return advertisement.subscriber_key == subscription.subscriber_key and self._codec.overlaps(
            advertisement.predicate, subscription.predicate
        )

    def conforms(self, publication: PublicationQuery, advertisement: ActiveClaim) -> bool:
        return publication.advertisement == advertisement.id and self._codec.conforms(
            publication.predicate, advertisement.predicate
        )

    def matches(self, publication: PublicationQuery, subscription: ActiveClaim) -> bool:
        return publication.subscriber_key == subscription.subscriber_key and self._codec.matches(
            publication.predicate, subscription.predicate
        )
