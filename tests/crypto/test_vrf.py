"""A key has one lot for each subject, and only the key's holder can prove it or sign with it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.crypto import vrf
from veilcast.crypto.derive import derive
from veilcast.crypto.group import ORDER, Point, Scalar
from veilcast.crypto.secret import Secret
from veilcast.crypto.vrf import check_lot, derive_lot_key, draw_lot, prove_lot, public_of, rank_lot
from veilcast.errors import ForgedError, MalformedError, RemoteError
from veilcast.machine import Entropy

keys = st.binary(min_size=32, max_size=32).map(lambda link: derive_lot_key(Secret(link)))
texts = st.binary(max_size=80)
seeds = st.integers(0, 2**32).map(lambda seed: random.Random(seed).randbytes)

KEY, OTHER = derive_lot_key(Secret(b"k" * 32)), derive_lot_key(Secret(b"o" * 32))
PUBLIC, SUBJECT, SAID = public_of(KEY), b"lineage", b"I am the root"
LOT = draw_lot(KEY, SUBJECT)
PROOF = prove_lot(KEY, SUBJECT, SAID, random.Random(1).randbytes)

NO_POINTS = [
    bytes(32),  # the identity
    bytes.fromhex("ed" + "ff" * 30 + "7f"),  # the field's order: the identity, written in another way
    b"\xff" * 32,  # not canonical
    b"\x01" + bytes(31),  # negative
    PUBLIC[:-1],
    PUBLIC + b"\0",
    b"",
]


@given(keys, texts, texts, seeds)
def test_the_lot_and_proof_of_a_key_holder_verify(
    key: Scalar, subject: bytes, statement: bytes, entropy: Entropy
) -> None:
    lot, proof = draw_lot(key, subject), prove_lot(key, subject, statement, entropy)
    check_lot(public_of(key), subject, lot, statement, proof)
    assert (len(public_of(key)), len(lot), len(proof)) == (vrf.PUBLIC, vrf.LOT, vrf.PROOF)


def test_a_lot_is_the_same_every_time_and_differs_by_key_and_subject() -> None:
    assert draw_lot(KEY, SUBJECT) == LOT == (Point.hash(SUBJECT, b"vc/lot") * KEY).encode()
    assert len({LOT, draw_lot(OTHER, SUBJECT), draw_lot(KEY, SUBJECT + b"\0"), draw_lot(KEY, b"")}) == 4


def test_the_key_comes_from_the_link_key_alone_and_tells_nothing_of_it() -> None:
    link = Secret(b"k" * 32)
    assert derive_lot_key(link) == KEY != OTHER
    assert KEY.reveal() != link.reveal()
    wide = derive(link, b"vc/lot-key", size=64).reveal()
    assert int.from_bytes(KEY.reveal(), "little") == int.from_bytes(wide, "little") % ORDER


@pytest.mark.parametrize(
    ("public", "subject", "lot", "statement"),
    [
        (public_of(OTHER), SUBJECT, LOT, SAID),
        (PUBLIC, b"lineagf", LOT, SAID),
        (PUBLIC, b"", LOT, SAID),
        (PUBLIC, SUBJECT, draw_lot(OTHER, SUBJECT), SAID),
        (PUBLIC, SUBJECT, draw_lot(KEY, b"another"), SAID),
        (PUBLIC, SUBJECT, PUBLIC, SAID),
        (LOT, SUBJECT, PUBLIC, SAID),
        (PUBLIC, SUBJECT, LOT, b"I am the root, too"),
        (PUBLIC, SUBJECT, LOT, b""),
        # What moves from the subject to the statement makes another message, though their bytes follow one another.
        (PUBLIC, SUBJECT[:-1], LOT, SUBJECT[-1:] + SAID),
        (PUBLIC, SUBJECT + SAID[:1], LOT, SAID[1:]),
    ],
)
def test_a_proof_holds_for_its_own_key_subject_lot_and_statement_only(
    public: bytes, subject: bytes, lot: bytes, statement: bytes
) -> None:
    with pytest.raises(ForgedError):
        check_lot(public, subject, lot, statement, PROOF)


@given(st.integers(0, 8 * (32 + 32 + 64) - 1))
def test_no_bit_can_be_flipped(bit: int) -> None:
    shown = bytearray(PUBLIC + LOT + PROOF)
    shown[bit // 8] ^= 1 << bit % 8
    with pytest.raises(RemoteError):
        check_lot(bytes(shown[:32]), SUBJECT, bytes(shown[32:64]), SAID, bytes(shown[64:]))


@pytest.mark.parametrize("bad", NO_POINTS)
def test_bytes_that_are_no_point_are_refused_as_key_and_as_lot(bad: bytes) -> None:
    for public, lot in ((bad, LOT), (PUBLIC, bad), (bad, bad)):
        with pytest.raises(MalformedError):
            check_lot(public, SUBJECT, lot, SAID, PROOF)


@pytest.mark.parametrize(
    "proof",
    [
        b"",
        PROOF[:-1],
        PROOF + b"\0",
        bytes(64),
        PROOF[:32] + bytes(32),
        bytes(32) + PROOF[32:],
        # The same numbers plus the order: equal in the group, but a second way to write one proof.
        PROOF[:32] + (int.from_bytes(PROOF[32:], "little") + ORDER).to_bytes(32, "little"),
        (int.from_bytes(PROOF[:32], "little") + ORDER).to_bytes(32, "little") + PROOF[32:],
    ],
)
def test_a_proof_is_written_in_one_way_only(proof: bytes) -> None:
    with pytest.raises(MalformedError):
        check_lot(PUBLIC, SUBJECT, LOT, SAID, proof)


def cheat(key: Scalar, lot: Point, nonce: Scalar, on_base: Point) -> bytes:
    """The prover, with a lot and a second commitment that the adversary chooses."""
    challenge = vrf._challenge(key.public(), SUBJECT, lot, nonce.public(), on_base, SAID)
    return challenge.reveal() + (nonce + challenge * key).reveal()


@given(st.integers(1, ORDER - 1).map(Scalar.of), st.integers(1, ORDER - 1).map(Scalar.of), st.booleans())
def test_a_holder_cannot_show_a_second_lot(nonce: Scalar, other: Scalar, on_lot: bool) -> None:
    base = Point.hash(SUBJECT, b"vc/lot")
    for lot in (base * other, Point.decode(LOT) + base, Point.decode(LOT) * other, other.public()):
        if lot.encode() == LOT:
            continue
        on_base = lot * (nonce / KEY) if on_lot else base * nonce
        with pytest.raises(ForgedError):
            check_lot(PUBLIC, SUBJECT, lot.encode(), SAID, cheat(KEY, lot, nonce, on_base))


def test_the_cheat_is_stopped_by_its_lot_alone() -> None:
    nonce = Scalar.of(12345)
    base = Point.hash(SUBJECT, b"vc/lot")
    check_lot(PUBLIC, SUBJECT, LOT, SAID, cheat(KEY, Point.decode(LOT), nonce, base * nonce))


def backwards(key: Scalar, nonce: Scalar, on_base: Point) -> tuple[bytes, bytes]:
    """A holder that picks commitments and answer first, and then computes the lot they would be right for."""
    guess = Point.decode(LOT)
    challenge = vrf._challenge(key.public(), SUBJECT, guess, nonce.public(), on_base, SAID)
    response = nonce + challenge * key
    lot = (Point.hash(SUBJECT, b"vc/lot") * response - on_base) / challenge
    return lot.encode(), challenge.reveal() + response.reveal()


def test_a_lot_cannot_be_fitted_to_a_proof_since_the_challenge_hashes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(2)
    nonce, on_base, real = Scalar.draw(rng.randbytes), Point.draw(rng.randbytes), vrf._challenge
    lot, proof = backwards(KEY, nonce, on_base)
    with pytest.raises(ForgedError):
        check_lot(PUBLIC, SUBJECT, lot, SAID, proof)

    def careless(key: Point, subject: bytes, lot: Point, commitment: Point, on_base: Point, said: bytes) -> Scalar:
        return real(key, subject, key, commitment, on_base, said)

    # The planted mistake, a challenge without the lot: the same attack shows a second lot, and it passes.
    monkeypatch.setattr(vrf, "_challenge", careless)
    lot, proof = backwards(KEY, nonce, on_base)
    assert lot != LOT
    check_lot(PUBLIC, SUBJECT, lot, SAID, proof)


def test_a_stranger_cannot_make_a_proof_of_a_lot_it_was_shown() -> None:
    """It knows lot and public key, and any number of proofs; it picks challenge and response, or answers its own."""
    rng = random.Random(3)
    for _ in range(50):
        made = Scalar.draw(rng.randbytes).reveal() + Scalar.draw(rng.randbytes).reveal()
        with pytest.raises(ForgedError):
            check_lot(PUBLIC, SUBJECT, LOT, SAID, made)
    with pytest.raises(ForgedError):
        check_lot(PUBLIC, SUBJECT, LOT, SAID, prove_lot(OTHER, SUBJECT, SAID, rng.randbytes))


def nonce_of(key: Scalar, proof: bytes) -> int:
    challenge, response = (int.from_bytes(half, "little") for half in (proof[:32], proof[32:]))
    return (response - challenge * int.from_bytes(key.reveal(), "little")) % ORDER


def test_bad_randomness_gives_no_key_away() -> None:
    """One nonce under two challenges is two equations for two unknowns; no two proofs share one, whatever is drawn."""

    def stuck(size: int) -> bytes:
        return bytes(size)

    proven = [(key, subject, said) for key in (KEY, OTHER) for subject in (b"a", b"ab") for said in (b"c", b"bc")]
    assert len({nonce_of(key, prove_lot(key, subject, said, stuck)) for key, subject, said in proven}) == len(proven)
    assert prove_lot(KEY, b"a", b"c", stuck) == prove_lot(KEY, b"a", b"c", stuck)
    rng = random.Random(4)
    assert prove_lot(KEY, b"a", b"c", rng.randbytes) != prove_lot(KEY, b"a", b"c", rng.randbytes)


def test_a_rank_is_even_and_takes_lot_and_seal() -> None:
    seal = b"s" * 64
    assert rank_lot(LOT, seal) == rank_lot(LOT, seal)
    assert len({rank_lot(LOT, seal), rank_lot(draw_lot(OTHER, SUBJECT), seal), rank_lot(LOT, b"t" * 64)}) == 3
    ranks = [rank_lot(LOT, bytes((i, j)) * 32) for i in range(32) for j in range(32)]
    assert all(0 <= one < 2**64 for one in ranks)
    assert 0.45 < sum(ranks) / len(ranks) / 2**64 < 0.55


def test_a_key_chosen_for_its_lots_wins_no_more_often_once_it_is_certified() -> None:
    """The attacker takes the best of 64 keys by lot alone; against one honest lot it should win half of the time."""
    rng = random.Random(5)
    wins = 0
    for _ in range(60):
        chosen = min(
            (draw_lot(Scalar.draw(rng.randbytes), SUBJECT) for _ in range(64)), key=lambda lot: rank_lot(lot, b"")
        )
        wins += rank_lot(chosen, rng.randbytes(64)) < rank_lot(LOT, rng.randbytes(64))
    assert 18 <= wins <= 42
