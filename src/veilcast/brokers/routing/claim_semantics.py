"""What claims mean to one another: as their words do, among readers of one topic, and for as long as they last.

Pure; the `Meaning` that tables of claims are built with. Which claim covers which depends on the two of them alone, and
not on who came first: so replicas of a node that know the same claims tell a neighbour the same ones.


Languages: in which words claims and publications speak to brokers, and what brokers can make of them.

Pure. `PlainPredicates` is the paper's, as PADRES has it: attributes, operators and values in the clear, and so every
broker
reads who wants what (P4 leaves it to future work to change that). `TagPredicates` is `hardened`: elements of labels,
equalities
and dyadic prefixes, each under the topic's key of the epoch (`authority.subjects`), filled up and sorted. Brokers
compare them, and cannot tell what they stand for.

Tags lose precision in two places, and each is on the safe side. An advertisement says only which topic it is of, so a
subscription goes to all who publish on the topic. And a subscription is known to cover another only where tags show it:
one for the whole topic, or the very same elements; other covering is missed, and costs a message.

What the hardened topic is called here is a digest of its token, which the publisher's certificate is for. So brokers
check that an advertisement is of the topic that its publisher was granted; in clear words they cannot."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from veilcast.authority.keyring import TopicKeys
from veilcast.authority.topic_record import Profile
from veilcast.brokers.routing import predicates
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
    """What tables ask of interests and publications."""

    def subject(self, what: I_contra | P_contra) -> Hashable:
        """The subject: what differs in that neither covers, overlaps nor matches."""

    def covers(self, s: I_contra, t: I_contra) -> bool:
        """Whether s matches whatever t matches; False where one cannot tell."""

    def covers_advertisement(self, a: I_contra, b: I_contra) -> bool:
        """Whether whatever conforms to b conforms to a."""

    def overlaps(self, advertisement: I_contra, subscription: I_contra) -> bool:
        """Whether something that conforms can match."""

    def conforms(self, publication: P_contra, advertisement: I_contra) -> bool:
        """Whether this is something that was advertised."""

    def matches(self, publication: P_contra, subscription: I_contra) -> bool: ...


class PredicateCodec(MatchRules[I, P], Protocol[I, P]):
    """A meaning with words for it: members write them, brokers read them. `MalformedError` for what is no such word."""

    def encode_advertisement(self, keys: TopicKeys) -> bytes:
        """All that may be published on this topic."""

    def encode_subscription(self, keys: TopicKeys, interest: Conjunction) -> bytes: ...

    def encode_publication(self, keys: TopicKeys, publication: Publication) -> bytes: ...

    def decode_advertisement(self, claim: Claim) -> I: ...

    def decode_subscription(self, claim: Claim) -> I: ...

    def decode_publication(self, says: bytes) -> P: ...


# --- paper ------------------------------------------------------------------------------------------------------------


class PlainInterest(Conjunction, msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Constraints; and in an advertisement other attributes, on which anything may be published, or nothing."""

    constraints: tuple[Constraint, ...]
    free_attributes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_count(self.constraints)


class PlainPredicates:
    """P4, Fig. 1. Any interest will do; only a `PlainInterest` one has other attributes."""

    def subject(self, what: Conjunction | Publication) -> Hashable:
        """Anything may have to do with anything."""
        return None

    def covers(self, s: Conjunction, t: Conjunction) -> bool:
        return predicates.covers(s, t)

    def covers_advertisement(self, a: Conjunction, b: Conjunction) -> bool:
        return a == b or (not _others(b) and predicates.covers_advertisement(a, b))

    def overlaps(self, advertisement: Conjunction, subscription: Conjunction) -> bool:
        others, said = _others(advertisement), advertisement.constraints
        return all(
            constraint.attribute in others or any(predicates.intersects(constraint, each) for each in said)
            for constraint in subscription.constraints
        )

    def conforms(self, publication: Publication, advertisement: Conjunction) -> bool:
        others = _others(advertisement)
        pairs = tuple(pair for pair in publication.pairs if pair[0] not in others) if others else publication.pairs
        return predicates.conforms(Publication(pairs), advertisement)

    def matches(self, publication: Publication, subscription: Conjunction) -> bool:
        return subscription.matches(publication)

    def encode_advertisement(self, keys: TopicKeys) -> bytes:
        others = tuple(domain.attribute for domain in keys.record.schema.domains)
        return _write(PlainInterest((Equal(TOPIC, keys.record.topic),), others))

    def encode_subscription(self, keys: TopicKeys, interest: Conjunction) -> bytes:
        label = Equal(TOPIC, keys.record.topic)
        rest = tuple(constraint for constraint in interest.constraints if constraint != label)
        return _write(PlainInterest((label, *rest)))

    def encode_publication(self, keys: TopicKeys, publication: Publication) -> bytes:
        """What was advertised of it: other labels, and attributes that are not declared, are for readers alone."""
        declared = {domain.attribute for domain in keys.record.schema.domains}
        label = (TOPIC, keys.record.topic)
        return _write((label, *(pair for pair in publication.pairs if pair[0] in declared)))

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
    """A topic, and groups of tags: of a subscription one for each constraint, of a publication one in all."""

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
    """Keyed elements."""

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
        (said,) = publication.groups
        return all(not group.isdisjoint(said) for group in subscription.groups)

    def encode_advertisement(self, keys: TopicKeys) -> bytes:
        return _write((topic_tag(keys.token), ()))

    def encode_subscription(self, keys: TopicKeys, interest: Conjunction) -> bytes:
        if all(constraint == Equal(TOPIC, keys.record.topic) for constraint in interest.constraints):
            return _write((topic_tag(keys.token), ()))  # The topic's tag says it all.
        return self._spell(keys, subscription_elements(interest, keys.record), b"wanted")

    def encode_publication(self, keys: TopicKeys, publication: Publication) -> bytes:
        return self._spell(keys, publication_elements(publication, keys.record), b"said")

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

    def _spell(self, keys: TopicKeys, elements: ElementGroups, whose: bytes) -> bytes:
        """The same words each time, fillers too: so two who want the same are known to, and one is sent for both."""
        key = derive_element_key(keys, b"p4")
        groups = key_groups(key, elements, size=g.TAG)
        seed = digest(_ENCODER.encode((whose, groups)), purpose=b"vc/filler")
        full = pad_groups(groups, lambda number: key_element(key, seed + number.to_bytes(2, "big"), size=g.TAG))
        return _write((topic_tag(keys.token), full))


def topic_tag(token: bytes) -> bytes:
    """What brokers know a topic by, in the epoch of its token."""
    return digest(token, purpose=b"vc/brokers-topic", size=g.TAG)


def predicate_codec(profile: Profile) -> PlainPredicates | TagPredicates:
    return TagPredicates() if profile == "hardened" else PlainPredicates()


def _others(advertisement: Conjunction) -> tuple[str, ...]:
    return advertisement.free_attributes if isinstance(advertisement, PlainInterest) else ()


def _write(what: object) -> bytes:
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
    """A claim, as tables have it: `subscriber_key` is the key that its topic's readers prove themselves with."""

    id: bytes
    until_us: int
    subscriber_key: bytes
    predicate: Any
    """In the language of the profile."""


class PublicationQuery(NamedTuple):
    """A publication, as tables are asked for it."""

    advertisement: bytes
    subscriber_key: bytes
    predicate: Any


class ClaimSemantics:
    """Words of a language, said for a time."""

    def __init__(self, language: PredicateCodec[Any, Any]) -> None:
        self._language = language

    def subject(self, what: ActiveClaim | PublicationQuery) -> Hashable:
        """What has other readers has nothing to do with it."""
        return what.subscriber_key

    def covers(self, s: ActiveClaim, t: ActiveClaim) -> bool:
        """Of two that want the same the longer one does, or that with the larger id."""
        if (
            s.subscriber_key != t.subscriber_key
            or s.until_us < t.until_us
            or not self._language.covers(s.predicate, t.predicate)
        ):
            return False
        return (s.until_us, s.id) > (t.until_us, t.id) or not self._language.covers(t.predicate, s.predicate)

    def covers_advertisement(self, a: ActiveClaim, b: ActiveClaim) -> bool:
        """Never: each is a publisher's, whose key its readers need."""
        return False

    def overlaps(self, advertisement: ActiveClaim, subscription: ActiveClaim) -> bool:
        return advertisement.subscriber_key == subscription.subscriber_key and self._language.overlaps(
            advertisement.predicate, subscription.predicate
        )

    def conforms(self, publication: PublicationQuery, advertisement: ActiveClaim) -> bool:
        return publication.advertisement == advertisement.id and self._language.conforms(
            publication.predicate, advertisement.predicate
        )

    def matches(self, publication: PublicationQuery, subscription: ActiveClaim) -> bool:
        return publication.subscriber_key == subscription.subscriber_key and self._language.matches(
            publication.predicate, subscription.predicate
        )
