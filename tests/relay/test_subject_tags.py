"""Subjects reach the server as one tag per element, for any sender, and as fresh bytes everywhere before."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilcast.crypto.group import Ciphertext, Point, Scalar
from veilcast.errors import MalformedError
from veilcast.machine import Entropy
from veilcast.relay import subject_tags
from veilcast.relay.transformation_key import ServerKeys, answer_enrolment, begin_enrolment, combine_shares

seeds = st.integers(0, 2**32)
elements = st.lists(st.binary(max_size=40), min_size=1, max_size=4, unique=True)


class Stage(NamedTuple):
    """One server, the proxies' mask, and two clients' keys with their transformation keys."""

    keys: ServerKeys
    mask: Scalar
    clients: list[tuple[Scalar, Scalar]]


def stage(entropy: Entropy) -> Stage:
    keys, mask = ServerKeys.draw(entropy), Scalar.draw(entropy)
    begun = [begin_enrolment(keys.public(), entropy) for _ in range(2)]
    return Stage(
        keys, mask, [(each.key, combine_shares(each.ratio, answer_enrolment(keys, each.sealed))) for each in begun]
    )


@given(elements, seeds)
def test_in_paper_equal_elements_of_two_clients_have_equal_tags(wanted: list[bytes], seed: int) -> None:
    _, _, clients = stage(random.Random(seed).randbytes)
    mine, theirs = (
        [
            subject_tags.tag_of(subject_tags.move_element(subject_tags.blind_element(element, key), moves))
            for element in wanted
        ]
        for key, moves in clients
    )
    assert mine == theirs
    assert len(set(mine)) == len(wanted)


@given(elements, seeds)
def test_veiled_equal_elements_of_two_clients_have_equal_tags(wanted: list[bytes], seed: int) -> None:
    entropy = random.Random(seed).randbytes
    keys, mask, clients = stage(entropy)
    mine, theirs = (
        [
            subject_tags.tag_veiled(
                subject_tags.move_veiled_element(
                    subject_tags.veil_element(each, key, keys.public().subject, entropy), moves, mask
                ),
                keys.unveil,
            )
            for each in wanted
        ]
        for key, moves in clients
    )
    assert mine == theirs
    assert len(set(mine)) == len(wanted)
    assert mine[0] == subject_tags.tag_of(Point.hash(wanted[0], b"vc/relay-point") * (keys.k_r * mask))


@given(elements, seeds)
@settings(max_examples=30)
def test_bulk_operations_equal_single_ones(wanted: list[bytes], seed: int) -> None:
    entropy = random.Random(seed).randbytes
    keys, mask, [(key, moves), _] = stage(entropy)
    subject, bond = keys.public().subject, Scalar.draw(entropy)
    asked: list[int] = []

    def counting(pairs: object) -> list[Point]:
        assert isinstance(pairs, list)
        asked.append(len(pairs))
        return [point * scalar for point, scalar in pairs]

    hidden = subject_tags.blind_many(wanted, key, counting)
    uploaded = subject_tags.veil_many(hidden, subject, bond, random.Random(seed).randbytes, counting)
    moved = subject_tags.move_many(uploaded, moves, mask, counting)
    unveil = subject_tags.unveiling_key(keys, bond)
    tags = subject_tags.tag_many(moved, unveil, counting)
    assert asked == [len(wanted), len(wanted), 2 * len(wanted), len(wanted)]
    assert moved == [subject_tags.move_veiled_element(each, moves, mask) for each in uploaded]
    assert tags == [subject_tags.tag_veiled(each, unveil) for each in moved]
    alone = [
        subject_tags.veil_element(each, key, subject_tags.bind_subject_key(subject, bond), entropy) for each in wanted
    ]
    assert tags == [
        subject_tags.tag_veiled(subject_tags.move_veiled_element(each, moves, mask), unveil) for each in alone
    ]


def test_nothing_of_an_upload_repeats(entropy: Entropy) -> None:
    keys, mask, [(key, moves), _] = stage(entropy)
    uploads = [subject_tags.veil_element(b"one", key, keys.public().subject, entropy) for _ in range(3)]
    moved = [subject_tags.move_veiled_element(each, moves, mask) for each in uploads]
    parts = [profile for each in (*uploads, *moved) for profile in (each.body, each.key_part)]
    assert len(set(parts)) == len(parts)
    assert len({subject_tags.tag_veiled(each, keys.unveil) for each in moved}) == 1


def test_an_upload_bound_to_one_box_has_another_tag_with_any_other(entropy: Entropy) -> None:
    keys, mask, [(key, moves), _] = stage(entropy)
    bonds = [Scalar.draw(entropy) for _ in range(2)]
    moved = [
        subject_tags.move_veiled_element(
            subject_tags.veil_element(b"one", key, subject_tags.bind_subject_key(keys.public().subject, bond), entropy),
            moves,
            mask,
        )
        for bond in bonds
    ]
    tags = [subject_tags.tag_veiled(each, subject_tags.unveiling_key(keys, bond)) for each in moved for bond in bonds]
    assert tags[0] == tags[3] == subject_tags.tag_of(Point.hash(b"one", b"vc/relay-point") * (keys.k_r * mask))
    assert len(set(tags)) == 3


def test_an_upload_of_the_identity_is_refused(entropy: Entropy) -> None:
    keys, mask, [(_, moves), _] = stage(entropy)
    rho = Scalar.draw(entropy)
    crafted = Ciphertext(rho.public(), keys.public().subject * rho)
    with pytest.raises(MalformedError):
        subject_tags.tag_veiled(subject_tags.move_veiled_element(crafted, moves, mask), keys.unveil)
    with pytest.raises(MalformedError):
        subject_tags.tag_many([crafted], keys.unveil)
