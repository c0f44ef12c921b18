"""Dealt shares can be checked and redistributed to other holders, and faulty holders are named."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilcast.crypto.group import ORDER, Point, Scalar
from veilcast.crypto.secret import Secret
from veilcast.crypto.verifiable_sharing import (
    SHARE_SIZE,
    Commitments,
    Dealing,
    FaultyHoldersError,
    Subshare,
    VerifiableShare,
    agreement_digest,
    combine_subshares,
    deal_secret,
    key_of,
    merge_commitments,
    reconstruct,
    redistribute_share,
    verify_redistribution,
    verify_share,
)
from veilcast.errors import ForgedError, LocalError, MalformedError

few = settings(max_examples=25)
scalars = st.integers(1, ORDER - 1).map(Scalar.of)
seeds = st.integers(0, 2**32)
SECRET = Scalar.of(0xC0FFEE)


@st.composite
def schemes(draw: st.DrawFn) -> tuple[int, int]:
    n = draw(st.integers(1, 5))
    return draw(st.integers(1, n)), n


def dealt(k: int = 2, n: int = 3, seed: int = 1) -> Dealing:
    return deal_secret(SECRET, k, n, random.Random(seed).randbytes)


def spoilt(share: VerifiableShare) -> VerifiableShare:
    return VerifiableShare(share.index, share.value + Scalar.of(1), share.blinding)


def handed_on(dealing: Dealing, holders: Sequence[int], k: int, n: int, seed: int = 2) -> dict[int, Dealing]:
    entropy = random.Random(seed).randbytes
    return {a: redistribute_share(dealing.shares[a - 1], k, n, entropy) for a in holders}


def portions(dealings: dict[int, Dealing], receiver: int) -> list[Subshare]:
    return [Subshare(a, d.commitments, d.shares[receiver - 1]) for a, d in dealings.items()]


def combined(parts: Sequence[Subshare], old: Commitments, index: int, k: int) -> tuple[Commitments, VerifiableShare]:
    """Where all receivers were sent the same commitments."""
    return combine_subshares(parts, old, index, k, agreed=agreement_digest({p.holder: p.commitments for p in parts}))


# --- dealing


@few
@given(scalars, schemes(), seeds)
def test_every_dealt_share_verifies_and_any_k_reconstruct(secret: Scalar, scheme: tuple[int, int], seed: int) -> None:
    k, n = scheme
    dealing = deal_secret(secret, k, n, random.Random(seed).randbytes)
    assert dealing.commitments.threshold == k
    for share in dealing.shares:
        verify_share(share, dealing.commitments)
    chosen = random.Random(seed).sample(dealing.shares, k)
    assert reconstruct(chosen, dealing.commitments) == secret
    assert reconstruct(dealing.shares, dealing.commitments) == secret


@few
@given(seeds, st.integers(1, 3), st.integers(1, ORDER - 1))
def test_a_share_that_was_not_dealt_is_forged(seed: int, index: int, offset: int) -> None:
    dealing = dealt(seed=seed)
    share = dealing.shares[index - 1]
    for forged in (
        VerifiableShare(index, share.value + Scalar.of(offset), share.blinding),
        VerifiableShare(index, share.value, share.blinding + Scalar.of(offset)),
        VerifiableShare(index % 3 + 1, share.value, share.blinding),
    ):
        with pytest.raises(ForgedError):
            verify_share(forged, dealing.commitments)


def test_faulty_holders_are_named_and_the_others_give_the_secret() -> None:
    dealing = dealt(3, 5)
    mixed = [spoilt(s) if s.index in (2, 5) else s for s in dealing.shares]
    with pytest.raises(FaultyHoldersError) as caught:
        reconstruct(mixed, dealing.commitments)
    assert caught.value.holders == (2, 5)
    assert "2, 5" in str(caught.value)
    honest = [share for share in mixed if share.index not in caught.value.holders]
    assert reconstruct(honest, dealing.commitments) == SECRET


def test_shares_crafted_to_sum_to_zero_name_their_holders() -> None:
    dealing = dealt(2, 2)
    first = dealing.shares[0]
    # The weights at 0 of holders 1 and 2 are 2 and -1.
    crafted = VerifiableShare(2, first.value * Scalar.of(2), first.blinding * Scalar.of(2))
    with pytest.raises(FaultyHoldersError) as caught:
        reconstruct([first, crafted], dealing.commitments)
    assert caught.value.holders == (2,)


def test_a_dealer_with_another_secret_has_other_commitments() -> None:
    one, other = dealt(), deal_secret(Scalar.of(5), 2, 3, random.Random(1).randbytes)
    with pytest.raises(FaultyHoldersError) as caught:
        reconstruct(other.shares, one.commitments)
    assert caught.value.holders == (1, 2, 3)


def test_no_commitment_depends_on_the_secret_alone() -> None:
    first, second = (dealt(seed=seed).commitments.points for seed in (1, 2))
    assert not {*first, SECRET.public()} & {*second}
    assert SECRET.public() not in first


def test_commitments_to_the_same_values_differ_by_their_blinding() -> None:
    """An adversary that guesses the whole polynomial still cannot check the guess."""
    drawn = [random.Random(seed).randbytes(64) for seed in range(4)]
    blinding, slope, *blinding_slopes = drawn
    first, second = (deal_secret(SECRET, 2, 2, io.BytesIO(blinding + slope + last).read) for last in blinding_slopes)
    assert [s.value for s in first.shares] == [s.value for s in second.shares]
    assert all(s.value != s.blinding for s in first.shares)
    assert [s.blinding for s in first.shares] != [s.blinding for s in second.shares]
    assert first.commitments.points[0] == second.commitments.points[0]
    assert first.commitments.points[1] != second.commitments.points[1]


def polynomial_dealt(values: Sequence[Scalar], blindings: Sequence[Scalar], n: int) -> Dealing:
    """By a dealer who chooses the coefficients; computed apart from what is tested."""

    def at(x: int, coefficients: Sequence[Scalar]) -> Scalar:
        return Scalar.of(sum(int.from_bytes(c.reveal(), "little") * x**i for i, c in enumerate(coefficients)))

    second = Point.hash(b"the second generator of commitments", b"veilcast deal")
    points = tuple(f.public() + second * g for f, g in zip(values, blindings, strict=True))
    shares = tuple(VerifiableShare(x, at(x, values), at(x, blindings)) for x in range(1, n + 1))
    return Dealing(Commitments(points), shares)


def test_a_dealer_cannot_have_an_honest_holder_named() -> None:
    """The polynomials are such that the upper terms cancel at 2, where Horner's rule would pass zero."""
    f, g = Scalar.of(1234), Scalar.of(5678)
    minus_two = Scalar.of(-2)
    dealing = polynomial_dealt([SECRET, f * minus_two, f], [Scalar.of(99), g * minus_two, g], 4)
    for share in dealing.shares:
        verify_share(share, dealing.commitments)
    assert reconstruct(dealing.shares, dealing.commitments) == SECRET
    with pytest.raises(FaultyHoldersError) as caught:
        reconstruct([*dealing.shares[:2], spoilt(dealing.shares[2])], dealing.commitments)
    assert caught.value.holders == (3,)


def test_shares_whose_partial_sums_are_zero_still_give_the_secret() -> None:
    """The weights at 0 of holders 1, 2 and 3 are 3, -3 and 1: equal values at 1 and 2 cancel."""
    f, g = Scalar.of(1234), Scalar.of(5678)
    minus_three = Scalar.of(-3)
    dealing = polynomial_dealt([SECRET, f * minus_three, f], [Scalar.of(99), g * minus_three, g], 3)
    assert dealing.shares[0].value == dealing.shares[1].value
    assert reconstruct(dealing.shares, dealing.commitments) == SECRET


def test_a_dealer_of_zero_is_no_holders_lie() -> None:
    f, g = Scalar.of(1234), Scalar.of(5678)
    blindings = [Scalar.of(99), g]
    honest = polynomial_dealt([SECRET, f], blindings, 2)
    second = Point.hash(b"the second generator of commitments", b"veilcast deal")
    to_zero = Commitments((second * blindings[0], honest.commitments.points[1]))
    shares = [VerifiableShare(s.index, f * Scalar.of(s.index), s.blinding) for s in honest.shares]
    with pytest.raises(MalformedError):
        reconstruct(shares, to_zero)


def test_too_few_or_doubled_shares_are_refused() -> None:
    dealing = dealt()
    with pytest.raises(LocalError):
        reconstruct(dealing.shares[:1], dealing.commitments)
    with pytest.raises(MalformedError):
        reconstruct([dealing.shares[0]] * 2, dealing.commitments)


@pytest.mark.parametrize(("k", "n"), [(0, 3), (4, 3), (2, 256)])
def test_an_impossible_threshold_scheme_is_refused(k: int, n: int) -> None:
    with pytest.raises(LocalError):
        dealt(k, n)


def test_the_key_of_a_scalar_is_a_secret_of_its_own() -> None:
    key = key_of(SECRET)
    assert isinstance(key, Secret)
    assert len(key) == 32
    assert key.reveal() != SECRET.reveal()
    assert key != key_of(Scalar.of(5))


# --- redistribution


@few
@given(schemes(), schemes(), seeds)
def test_a_redistribution_keeps_the_secret_and_its_commitment(
    old_scheme: tuple[int, int], new_scheme: tuple[int, int], seed: int
) -> None:
    (k, n), (new_k, new_n) = old_scheme, new_scheme
    rng = random.Random(seed)
    dealing = deal_secret(SECRET, k, n, rng.randbytes)
    holders = rng.sample(range(1, n + 1), k)
    dealings = handed_on(dealing, holders, new_k, new_n, seed)
    outcomes = [combined(portions(dealings, c), dealing.commitments, c, new_k) for c in range(1, new_n + 1)]
    public = merge_commitments(dealing.commitments, {a: d.commitments for a, d in dealings.items()}, new_k)
    assert all(commitments == public for commitments, _ in outcomes)
    assert public.points[0] == dealing.commitments.points[0]
    new_shares = [share for _, share in outcomes]
    assert [share.index for share in new_shares] == list(range(1, new_n + 1))
    for share in new_shares:
        verify_share(share, public)
    assert reconstruct(rng.sample(new_shares, new_k), public) == SECRET


def test_old_and_new_shares_do_not_mix() -> None:
    dealing = dealt()
    dealings = handed_on(dealing, (1, 2), 2, 3)
    commitments, share = combined(portions(dealings, 3), dealing.commitments, 3, 2)
    with pytest.raises(ForgedError):
        verify_share(dealing.shares[0], commitments)
    with pytest.raises(FaultyHoldersError) as caught:
        reconstruct([dealing.shares[0], share], commitments)
    assert caught.value.holders == (1,)


@pytest.mark.parametrize("faulty", [(1,), (3,), (1, 4), (1, 3, 4)])
def test_every_receiver_names_a_holder_that_redistributes_a_wrong_value(faulty: tuple[int, ...]) -> None:
    """Its sub-shares all fit its own commitments; only the constant term gives it away."""
    dealing = dealt(3, 4)
    spoilt_dealing = Dealing(dealing.commitments, tuple(spoilt(s) if s.index in faulty else s for s in dealing.shares))
    dealings = handed_on(spoilt_dealing, (1, 3, 4), 2, 3)
    for a, sub_dealing in dealings.items():
        for share in sub_dealing.shares:
            verify_share(share, sub_dealing.commitments)
        if a in faulty:
            with pytest.raises(ForgedError):
                verify_redistribution(dealing.commitments, a, sub_dealing.commitments, 2)
        else:
            verify_redistribution(dealing.commitments, a, sub_dealing.commitments, 2)
    with pytest.raises(FaultyHoldersError) as caught:
        merge_commitments(dealing.commitments, {a: d.commitments for a, d in dealings.items()}, 2)
    assert caught.value.holders == faulty
    for receiver in (1, 2, 3):
        with pytest.raises(FaultyHoldersError) as caught:
            combined(portions(dealings, receiver), dealing.commitments, receiver, 2)
        assert caught.value.holders == faulty


def test_a_receiver_of_a_wrong_share_names_the_holder_that_sent_it() -> None:
    dealing = dealt()
    dealings = handed_on(dealing, (1, 3), 2, 3)
    cheated = portions(dealings, 2)
    cheated[1] = Subshare(3, cheated[1].commitments, spoilt(cheated[1].share))
    with pytest.raises(FaultyHoldersError) as caught:
        combined(cheated, dealing.commitments, 2, 2)
    assert caught.value.holders == (3,)
    combined(portions(dealings, 1), dealing.commitments, 1, 2)


def test_a_holder_that_redistributes_twice_cannot_split_the_receivers() -> None:
    """Each receiver alone finds nothing wrong; what they agreed on shows it."""
    dealing = dealt()
    one = handed_on(dealing, (1, 2), 2, 4)
    other = one | handed_on(dealing, (2,), 2, 4, seed=9)
    for dealings in (one, other):
        combined(portions(dealings, 3), dealing.commitments, 3, 2)
    agreed = agreement_digest({a: d.commitments for a, d in one.items()})
    assert agreed == agreement_digest({a: one[a].commitments for a in (2, 1)})
    combine_subshares(portions(one, 1), dealing.commitments, 1, 2, agreed=agreed)
    with pytest.raises(ForgedError, match="agreed"):
        combine_subshares(portions(other, 3), dealing.commitments, 3, 2, agreed=agreed)


def test_receivers_that_chose_different_holders_do_not_combine() -> None:
    dealing = dealt()
    dealings = handed_on(dealing, (1, 2, 3), 2, 3)
    agreed = agreement_digest({a: dealings[a].commitments for a in (1, 2)})
    anothers = [p for p in portions(dealings, 1) if p.holder != 2]
    renamed = {1: dealings[2].commitments, 2: dealings[1].commitments}
    assert agreement_digest(renamed) != agreed
    with pytest.raises(ForgedError, match="agreed"):
        combine_subshares(anothers, dealing.commitments, 1, 2, agreed=agreed)


def test_a_share_of_another_receiver_or_threshold_names_its_holder() -> None:
    dealing = dealt()
    dealings = handed_on(dealing, (1, 2), 2, 3)
    good = portions(dealings, 1)
    anothers = Subshare(2, good[1].commitments, dealings[2].shares[2])
    with pytest.raises(FaultyHoldersError) as caught:
        combined([good[0], anothers], dealing.commitments, 1, 2)
    assert caught.value.holders == (2,)
    steeper = redistribute_share(dealing.shares[1], 3, 3, random.Random(3).randbytes)
    with pytest.raises(FaultyHoldersError) as caught:
        combined([good[0], Subshare(2, steeper.commitments, steeper.shares[0])], dealing.commitments, 1, 2)
    assert caught.value.holders == (2,)


def test_any_honest_holder_can_replace_a_faulty_one() -> None:
    dealing = dealt(2, 4)
    lie = redistribute_share(spoilt(dealing.shares[3]), 2, 3, random.Random(4).randbytes)
    for honest, substitute in permutations((1, 2, 3), 2):
        dealings = handed_on(dealing, (honest,), 2, 3) | {4: lie}
        with pytest.raises(FaultyHoldersError) as caught:
            combined(portions(dealings, 1), dealing.commitments, 1, 2)
        assert caught.value.holders == (4,)
        dealings = handed_on(dealing, (honest, substitute), 2, 3)
        outcomes = [combined(portions(dealings, c), dealing.commitments, c, 2) for c in (1, 2)]
        assert reconstruct([share for _, share in outcomes], outcomes[0][0]) == SECRET


def test_wrong_values_whose_errors_cancel_do_no_harm() -> None:
    """The weights at 0 of holders 1 and 2 are 2 and -1, so errors of 1 and 2 cancel."""
    dealing = dealt()
    one, two = dealing.shares[:2]
    spoilt_dealing = Dealing(dealing.commitments, (spoilt(one), spoilt(spoilt(two))))
    dealings = handed_on(spoilt_dealing, (1, 2), 2, 3)
    outcomes = [combined(portions(dealings, c), dealing.commitments, c, 2) for c in (1, 2)]
    assert reconstruct([share for _, share in outcomes], outcomes[0][0]) == SECRET


def test_a_secret_survives_many_hops() -> None:
    entropy = random.Random(5).randbytes
    commitments, shares = dealt().commitments, dealt().shares
    first = commitments.points[0]
    for k, n in ((2, 3), (3, 5), (1, 1), (2, 3)):
        holders = shares[-commitments.threshold :]
        dealings = {share.index: redistribute_share(share, k, n, entropy) for share in holders}
        outcomes = [combined(portions(dealings, c), commitments, c, k) for c in range(1, n + 1)]
        commitments, shares = outcomes[0][0], tuple(share for _, share in outcomes)
    assert commitments.points[0] == first
    assert reconstruct(shares[1:], commitments) == SECRET


def test_too_few_or_doubled_holders_and_wrong_arguments_are_refused_without_naming_anyone() -> None:
    dealing = dealt()
    good = portions(handed_on(dealing, (1, 2), 2, 3), 1)
    third = portions(handed_on(dealing, (3,), 2, 3), 1)
    for count in (good[:1], good + third):
        with pytest.raises(LocalError):
            combined(count, dealing.commitments, 1, 2)
    with pytest.raises(LocalError):
        combined(good, dealing.commitments, 1, 0)
    for arguments in ((good[:1] * 2, 1), (good, 0), (good, 256)):
        with pytest.raises(MalformedError):
            combined(arguments[0], dealing.commitments, arguments[1], 2)
    for holder in (0, 256):
        with pytest.raises(MalformedError):
            Subshare(holder, good[0].commitments, good[0].share)


# --- encoding


@few
@given(schemes(), seeds)
def test_shares_and_commitments_survive_their_encoding(scheme: tuple[int, int], seed: int) -> None:
    dealing = dealt(*scheme, seed)
    assert Commitments.decode(dealing.commitments.encode()) == dealing.commitments
    for share in dealing.shares:
        encoded = share.encode()
        assert len(encoded) == SHARE_SIZE
        assert VerifiableShare.decode(encoded.reveal()) == share


def test_bytes_that_are_no_share_are_refused() -> None:
    good = dealt().shares[0].encode().reveal()
    zero, order = bytes(32), ORDER.to_bytes(32, "little")
    for data in (
        b"",
        good[:-1],
        good + b"\0",
        b"\2" + good[1:],
        b"\1\0" + good[2:],
        good[:2] + zero + good[34:],
        good[:34] + zero,
        good[:34] + order,
    ):
        with pytest.raises(MalformedError):
            VerifiableShare.decode(data)


def test_bytes_that_are_no_commitments_are_refused() -> None:
    good = dealt().commitments.encode()
    for data in (b"", b"\1", b"\1\0", good[:-1], good + b"\0", b"\2" + good[1:], good[:34] + bytes(32)):
        with pytest.raises(MalformedError):
            Commitments.decode(data)


def test_commitments_are_bounded() -> None:
    point = Point.hash(b"", b"test")
    assert Commitments.decode(Commitments((point,) * 255).encode()).threshold == 255
    for points in ((), (point,) * 256):
        with pytest.raises(MalformedError):
            Commitments(points)


@given(st.binary(max_size=100))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    for decode in (VerifiableShare.decode, Commitments.decode):
        with pytest.raises(MalformedError):
            decode(data)


def test_nothing_of_a_dealing_prints() -> None:
    dealing = dealt()
    shown = repr(dealing) + repr(portions(handed_on(dealing, (1, 2), 2, 3), 1)) + repr(key_of(SECRET))
    for share in dealing.shares:
        for secret in (share.value.reveal(), share.blinding.reveal(), key_of(SECRET).reveal()):
            assert secret.hex() not in shown
            assert str(secret)[2:-1] not in shown
