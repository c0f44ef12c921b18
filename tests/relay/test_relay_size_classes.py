"""Groups of elements are padded to a few sizes and shuffled, and match as before."""

from __future__ import annotations

from random import Random
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from veilcast.authority.topic_record import TopicRecord
from veilcast.core.match_elements import ElementGroups, subscription_elements
from veilcast.core.outbox import PendingPublication
from veilcast.core.publication import NumberedPublication
from veilcast.core.size_classes import pad_groups
from veilcast.crypto.group import Scalar, multiply_each
from veilcast.machine import Publication
from veilcast.relay.hardened import HardenedClientProfile, HardenedProxyProfile, HardenedServerProfile
from veilcast.relay.profile import LeasePeriod
from veilcast.relay.transformation_key import ServerKeys
from veilcast.sim.engine import START_US
from veilcast.sim.keyrings import make_keyring
from veilcast.topics import All, Conjunction, Integers, Label, Range, Schema
from veilcast.topics.tag_index import TagIndex
from veilcast.wire.geometry import SUBJECTS_MAX
from veilcast.wire.relay import Lease

EPOCH_US: Final = 60_000_000
RECORD: Final = TopicRecord("t", Schema((Integers("level", 0, 255, 8), Integers("size", 0, 255, 8))))
KEYS: Final = ServerKeys.draw(Random("server").randbytes)
MASK: Final = Scalar.draw(Random("mask").randbytes)
KEY: Final = Scalar.draw(Random("client").randbytes)
SERVER: Final = HardenedServerProfile(KEYS, Random("at the server").randbytes, multiply_each)
PROXY: Final = HardenedProxyProfile(KEYS.public(), MASK, multiply_each)
groups_of_any = st.lists(st.integers(1, 40), min_size=1, max_size=6).map(
    lambda sizes: tuple(tuple(b"%d.%d" % (place, each) for each in range(size)) for place, size in enumerate(sizes))
)


def filler(place: int) -> bytes:
    return b"filler %d" % place


@given(groups_of_any)
def test_padded_groups_contain_every_group_and_have_one_of_a_few_sizes(groups: ElementGroups) -> None:
    if (total := sum(map(len, groups))) > SUBJECTS_MAX:
        groups, total = groups[:1], len(groups[0])
    full = pad_groups(groups, filler)
    own = sorted(tuple(sorted(each for each in group if b"filler" not in each)) for group in full)
    assert own == sorted(tuple(sorted(group)) for group in groups)
    flat = [element for group in full for element in group]
    assert len(set(flat)) == len(flat) <= SUBJECTS_MAX
    powers = all(len(group).bit_count() == 1 for group in full)
    assert powers or len(flat) == SUBJECTS_MAX
    assert len(flat) < 2 * total


def test_a_full_group_is_sent_without_padding() -> None:
    groups = (tuple(b"%d" % each for each in range(SUBJECTS_MAX)),)
    assert pad_groups(groups, filler) == (tuple(sorted(groups[0])),)


def client(number: int = 0) -> HardenedClientProfile:
    keyring = make_keyring((RECORD,), EPOCH_US, (("t", "publisher"),), number)
    return HardenedClientProfile(keyring, KEYS.public(), Random(number).randbytes, multiply_each)


def period_of(profile: HardenedClientProfile) -> LeasePeriod:
    return profile.lease_periods(START_US, 0)[0]


def leased(interest: Conjunction, number: int = 0) -> ElementGroups:
    """The tags of a lease at the server."""
    profile = client(number)
    period = period_of(profile)
    elements = profile.interest_elements(profile.topic_keys("t", period, START_US), interest)
    lease = profile.build_lease(1, bytes(16), period, elements, KEY, START_US)
    assert isinstance(lease, Lease)
    return SERVER.compute_tags(PROXY.move_subjects(lease.subjects, KEYS.k_r / KEY), SERVER.open_lease(lease).bond)


def published(number: int = 1, **pairs: int) -> tuple[bytes, ...]:
    profile = client()
    period = period_of(profile)
    pending = PendingPublication(
        "t", NumberedPublication(b"a stream", number, Publication((Label("t").pair, *pairs.items()), b"x"))
    )
    submit = profile.build_submit(1, period, profile.topic_keys("t", period, START_US), pending, KEY)
    (tags,) = SERVER.compute_tags(
        PROXY.move_subjects(submit.subjects, KEYS.k_r / KEY), SERVER.open_submission(submit).bond
    )
    return tags


def test_ranges_at_different_places_look_alike() -> None:
    interests = [All(Label("t"), Range("level", 1, high)) for high in (13, 14, 30)]
    assert [len(cover) for each in interests for cover in subscription_elements(each, RECORD)] == [5, 6, 8]
    assert [len(group) for each in interests for group in leased(each)] == [8, 8, 8]


def test_padding_changes_no_match() -> None:
    index, rng = TagIndex(capacity=64), Random(1)
    ends = [sorted(rng.choices(range(256), k=2)) for _ in range(6)]
    interests = [All(Label("t"), Range("level", low, high)) for low, high in ends]
    interests += [All(each, Range("size", 20, 99)) for each in interests]
    numbers = [int(index.insert(leased(each, place % 2), START_US + 1)) for place, each in enumerate(interests)]
    for note in range(1, 12):
        pairs = {"level": rng.randrange(256), "size": rng.randrange(256)}
        publication = Publication((Label("t").pair, *pairs.items()))
        met = [number for number, each in zip(numbers, interests, strict=True) if each.matches(publication)]
        assert index.match(published(note, **pairs)).tolist() == sorted(met)


def test_a_repetition_has_the_same_tags_in_the_same_order() -> None:
    """Changing fillers would be recognised."""
    interest = All(Label("t"), Range("level", 1, 11), Range("size", 3, 9))
    assert leased(interest) == leased(interest)
    assert published(level=3, size=4) == published(level=3, size=4)


def test_fillers_of_leases_are_unique_and_fillers_of_publications_recur() -> None:
    one, other = (
        {tag for group in leased(All(Label("t"), Range("level", *each))) for tag in group}
        for each in ((1, 11), (65, 75))
    )
    assert not one & other
    again = [set(published(number, level=9, size=9)) for number in (1, 2)]
    assert again[0] == again[1]
    assert len(again[0]) == 32


def test_the_position_of_a_tag_does_not_reveal_its_level() -> None:
    """Over many values, the common tag appears at every position."""
    rng = Random(2)
    notes = [published(number, level=rng.randrange(256), size=rng.randrange(256)) for number in range(1, 9)]
    (common,) = [{*first}.intersection(*map(set, notes)) for first in notes[:1]]
    places = {tag: {note.index(tag) for note in notes} for tag in common}
    assert all(len(at) > 1 for at in places.values())
