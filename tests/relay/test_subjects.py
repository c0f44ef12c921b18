"""Subjects reach the server as one tag for one element, whoever sent it, and as fresh bytes everywhere before."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilcast.crypto.group import Ciphertext, Point, Scalar
from veilcast.errors import MalformedError
from veilcast.machine import Entropy
from veilcast.relay import subjects
from veilcast.relay.joining import ServerKeys, answer, begin, finish

seeds = st.integers(0, 2**32)
elements = st.lists(st.binary(max_size=40), min_size=1, max_size=4, unique=True)


class Stage(NamedTuple):
    """One server, the proxies' mask, and two clients' keys with their transformation keys."""

    keys: ServerKeys
    mask: Scalar
    clients: list[tuple[Scalar, Scalar]]


def stage(entropy: Entropy) -> Stage:
    keys, mask = ServerKeys.draw(entropy), Scalar.draw(entropy)
    begun = [begin(keys.public(), entropy) for _ in range(2)]
    return Stage(keys, mask, [(each.key, finish(each.ratio, answer(keys, each.sealed))) for each in begun])


@given(elements, seeds)
def test_in_paper_the_same_element_of_two_clients_has_one_tag_and_others_have_others(
    wanted: list[bytes], seed: int
) -> None:
    _, _, clients = stage(random.Random(seed).randbytes)
    mine, theirs = (
        [subjects.tag(subjects.move(subjects.upload(element, key), moves)) for element in wanted]
        for key, moves in clients
    )
    assert mine == theirs
    assert len(set(mine)) == len(wanted)


@given(elements, seeds)
def test_veiled_the_same_element_of_two_clients_has_one_tag_and_others_have_others(
    wanted: list[bytes], seed: int
) -> None:
    entropy = random.Random(seed).randbytes
    keys, mask, clients = stage(entropy)
    mine, theirs = (
        [
            subjects.tag_veiled(
                subjects.move_veiled(subjects.upload_veiled(each, key, keys.public().subject, entropy), moves, mask),
                keys.unveil,
            )
            for each in wanted
        ]
        for key, moves in clients
    )
    assert mine == theirs
    assert len(set(mine)) == len(wanted)
    assert mine[0] == subjects.tag(Point.hash(wanted[0], b"vc/relay-point") * (keys.k_r * mask))


@given(elements, seeds)
@settings(max_examples=30)
def test_many_at_once_are_what_each_alone_would_be(wanted: list[bytes], seed: int) -> None:
    entropy = random.Random(seed).randbytes
    keys, mask, [(key, moves), _] = stage(entropy)
    subject, bond = keys.public().subject, Scalar.draw(entropy)
    asked: list[int] = []

    def counting(pairs: object) -> list[Point]:
        assert isinstance(pairs, list)
        asked.append(len(pairs))
        return [point * scalar for point, scalar in pairs]

    hidden = subjects.hidden_many(wanted, key, counting)
    uploaded = subjects.veil_many(hidden, subject, bond, random.Random(seed).randbytes, counting)
    moved = subjects.move_many(uploaded, moves, mask, counting)
    unveil = subjects.unveil(keys, bond)
    tags = subjects.tag_many(moved, unveil, counting)
    assert asked == [len(wanted), len(wanted), 2 * len(wanted), len(wanted)]
    assert moved == [subjects.move_veiled(each, moves, mask) for each in uploaded]
    assert tags == [subjects.tag_veiled(each, unveil) for each in moved]
    alone = [subjects.upload_veiled(each, key, subjects.bound(subject, bond), entropy) for each in wanted]
    assert tags == [subjects.tag_veiled(subjects.move_veiled(each, moves, mask), unveil) for each in alone]


def test_nothing_of_an_upload_repeats(entropy: Entropy) -> None:
    keys, mask, [(key, moves), _] = stage(entropy)
    uploads = [subjects.upload_veiled(b"one", key, keys.public().subject, entropy) for _ in range(3)]
    moved = [subjects.move_veiled(each, moves, mask) for each in uploads]
    parts = [part for each in (*uploads, *moved) for part in (each.body, each.key_part)]
    assert len(set(parts)) == len(parts)
    assert len({subjects.tag_veiled(each, keys.unveil) for each in moved}) == 1


def test_what_is_bound_to_one_box_has_another_tag_with_every_other(entropy: Entropy) -> None:
    keys, mask, [(key, moves), _] = stage(entropy)
    bonds = [Scalar.draw(entropy) for _ in range(2)]
    moved = [
        subjects.move_veiled(
            subjects.upload_veiled(b"one", key, subjects.bound(keys.public().subject, bond), entropy), moves, mask
        )
        for bond in bonds
    ]
    tags = [subjects.tag_veiled(each, subjects.unveil(keys, bond)) for each in moved for bond in bonds]
    assert tags[0] == tags[3] == subjects.tag(Point.hash(b"one", b"vc/relay-point") * (keys.k_r * mask))
    assert len(set(tags)) == 3


def test_an_upload_crafted_to_hold_nothing_is_refused(entropy: Entropy) -> None:
    keys, mask, [(_, moves), _] = stage(entropy)
    rho = Scalar.draw(entropy)
    crafted = Ciphertext(rho.public(), keys.public().subject * rho)
    with pytest.raises(MalformedError):
        subjects.tag_veiled(subjects.move_veiled(crafted, moves, mask), keys.unveil)
    with pytest.raises(MalformedError):
        subjects.tag_many([crafted], keys.unveil)
