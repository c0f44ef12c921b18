"""Languages: in which words claims and publications speak to brokers, and what brokers can make of them.

Pure. `Predicates` is the paper's, as PADRES has it: attributes, operators and values in the clear, and so every broker
reads who wants what (P4 leaves it to future work to change that). `Tags` is `hardened`: elements of labels, equalities
and dyadic prefixes, each under the topic's key of the epoch (`authority.subjects`), filled up and sorted. Brokers
compare them, and cannot tell what they stand for.

Tags lose precision in two places, and each is on the safe side. An advertisement says only which topic it is of, so a
subscription goes to all who publish on the topic. And a subscription is known to cover another only where tags show it:
one for the whole topic, or the very same elements; other covering is missed, and costs a message.

What the hardened topic is called here is a digest of its token, which the publisher's certificate is for. So brokers
check that an advertisement is of the topic that its publisher was granted; in clear words they cannot.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, Final, Protocol, TypeVar

import msgspec

from veilcast.authority.filling import filled
from veilcast.authority.keyring import TopicKeys
from veilcast.authority.record import Profile
from veilcast.authority.subjects import Groups, keyed, keyed_groups, said, subject_key, wanted
from veilcast.brokers import predicates
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


class Meaning(Protocol[I_contra, P_contra]):
    """What tables ask of interests and publications."""

    def about(self, what: I_contra | P_contra) -> Hashable:
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


class Language(Meaning[I, P], Protocol[I, P]):
    """A meaning with words for it: members write them, brokers read them. `MalformedError` for what is no such word."""

    def advertisement(self, keys: TopicKeys) -> bytes:
        """All that may be published on this topic."""

    def subscription(self, keys: TopicKeys, interest: Conjunction) -> bytes: ...

    def says(self, keys: TopicKeys, publication: Publication) -> bytes: ...

    def read_advertisement(self, claim: Claim) -> I: ...

    def read_subscription(self, claim: Claim) -> I: ...

    def read_says(self, says: bytes) -> P: ...


# --- paper ------------------------------------------------------------------------------------------------------------


class Clear(Conjunction, msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Constraints; and in an advertisement other attributes, on which anything may be published, or nothing."""

    constraints: tuple[Constraint, ...]
    others: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_count(self.constraints)


class Predicates:
    """P4, Fig. 1. Any interest will do; only a `Clear` one has other attributes."""

    def about(self, what: Conjunction | Publication) -> Hashable:
        """Anything may have to do with anything."""
        return None

    def covers(self, s: Conjunction, t: Conjunction) -> bool:
        return predicates.covers(s, t)

    def covers_advertisement(self, a: Conjunction, b: Conjunction) -> bool:
        return a == b or (not _others(b) and predicates.covers_advertisement(a, b))

    def overlaps(self, advertisement: Conjunction, subscription: Conjunction) -> bool:
        others, said = _others(advertisement), advertisement.constraints
        return all(
            constraint.attribute in others or any(predicates.meet(constraint, each) for each in said)
            for constraint in subscription.constraints
        )

    def conforms(self, publication: Publication, advertisement: Conjunction) -> bool:
        others = _others(advertisement)
        pairs = tuple(pair for pair in publication.pairs if pair[0] not in others) if others else publication.pairs
        return predicates.conforms(Publication(pairs), advertisement)

    def matches(self, publication: Publication, subscription: Conjunction) -> bool:
        return subscription.matches(publication)

    def advertisement(self, keys: TopicKeys) -> bytes:
        others = tuple(domain.attribute for domain in keys.record.schema.domains)
        return _write(Clear((Equal(TOPIC, keys.record.topic),), others))

    def subscription(self, keys: TopicKeys, interest: Conjunction) -> bytes:
        label = Equal(TOPIC, keys.record.topic)
        rest = tuple(constraint for constraint in interest.constraints if constraint != label)
        return _write(Clear((label, *rest)))

    def says(self, keys: TopicKeys, publication: Publication) -> bytes:
        """What was advertised of it: other labels, and attributes that are not declared, are for readers alone."""
        declared = {domain.attribute for domain in keys.record.schema.domains}
        label = (TOPIC, keys.record.topic)
        return _write((label, *(pair for pair in publication.pairs if pair[0] in declared)))

    def read_advertisement(self, claim: Claim) -> Clear:
        return _CLEAR.decode(claim.interest)

    def read_subscription(self, claim: Claim) -> Clear:
        clear = _CLEAR.decode(claim.interest)
        if clear.others:
            raise MalformedError("a subscription has constraints, and nothing else")
        return clear

    def read_says(self, says: bytes) -> Publication:
        return Publication(_PAIRS.decode(says))


# --- hardened ---------------------------------------------------------------------------------------------------------


class Tagged(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
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


class Tags:
    """Keyed elements."""

    def about(self, what: Tagged) -> Hashable:
        return what.topic

    def covers(self, s: Tagged, t: Tagged) -> bool:
        return s.topic == t.topic and all(any(inner <= outer for inner in t.groups) for outer in s.groups)

    def covers_advertisement(self, a: Tagged, b: Tagged) -> bool:
        return a.topic == b.topic

    def overlaps(self, advertisement: Tagged, subscription: Tagged) -> bool:
        return advertisement.topic == subscription.topic

    def conforms(self, publication: Tagged, advertisement: Tagged) -> bool:
        return publication.topic == advertisement.topic

    def matches(self, publication: Tagged, subscription: Tagged) -> bool:
        if publication.topic != subscription.topic:
            return False
        (said,) = publication.groups
        return all(not group.isdisjoint(said) for group in subscription.groups)

    def advertisement(self, keys: TopicKeys) -> bytes:
        return _write((topic_tag(keys.token), ()))

    def subscription(self, keys: TopicKeys, interest: Conjunction) -> bytes:
        if all(constraint == Equal(TOPIC, keys.record.topic) for constraint in interest.constraints):
            return _write((topic_tag(keys.token), ()))  # The topic's tag says it all.
        return self._spell(keys, wanted(interest, keys.record), b"wanted")

    def says(self, keys: TopicKeys, publication: Publication) -> bytes:
        return self._spell(keys, said(publication, keys.record), b"said")

    def read_advertisement(self, claim: Claim) -> Tagged:
        tagged = _TAGGED.decode(claim.interest)
        if claim.chain is None or tagged.topic != topic_tag(claim.chain.leaf.scope):
            raise ForgedError("an advertisement of another topic than its publisher was granted")
        if tagged.groups:
            raise MalformedError("an advertisement is of a whole topic")
        return tagged

    def read_subscription(self, claim: Claim) -> Tagged:
        return _TAGGED.decode(claim.interest)

    def read_says(self, says: bytes) -> Tagged:
        tagged = _TAGGED.decode(says)
        if len(tagged.groups) != 1:
            raise MalformedError("a publication has one group of tags")
        return tagged

    def _spell(self, keys: TopicKeys, elements: Groups, whose: bytes) -> bytes:
        """The same words each time, fillers too: so two who want the same are known to, and one is sent for both."""
        key = subject_key(keys, b"p4")
        groups = keyed_groups(key, elements, size=g.TAG)
        seed = digest(_ENCODER.encode((whose, groups)), purpose=b"vc/filler")
        full = filled(groups, lambda number: keyed(key, seed + number.to_bytes(2, "big"), size=g.TAG))
        return _write((topic_tag(keys.token), full))


def topic_tag(token: bytes) -> bytes:
    """What brokers know a topic by, in the epoch of its token."""
    return digest(token, purpose=b"vc/brokers-topic", size=g.TAG)


def language_of(profile: Profile) -> Predicates | Tags:
    return Tags() if profile == "hardened" else Predicates()


def _others(advertisement: Conjunction) -> tuple[str, ...]:
    return advertisement.others if isinstance(advertisement, Clear) else ()


def _write(what: object) -> bytes:
    data = _ENCODER.encode(what)
    if len(data) > g.INTEREST_MAX:
        raise LocalError(f"in the words of brokers this has {len(data)} bytes; they take {g.INTEREST_MAX}")
    return data


_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")
_FOREIGN: Final = "not in the language of these brokers"
_CLEAR: Final = MsgpackDecoder(Clear, MalformedError, _FOREIGN, g.INTEREST_MAX)
_PAIRS: Final = MsgpackDecoder(
    Annotated[tuple[tuple[str, Value], ...], msgspec.Meta(min_length=1, max_length=g.SUBJECTS_MAX)],
    MalformedError,
    _FOREIGN,
    g.INTEREST_MAX,
)
_TAGGED: Final = MsgpackDecoder(Tagged, MalformedError, _FOREIGN, g.INTEREST_MAX)
