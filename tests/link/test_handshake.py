"""Handshakes between members, and against everybody who is none, or pretends to be another."""

from __future__ import annotations

import random

import msgspec
import pytest

from support.pairs import EPOCH, EPOCHS, LATE, NOW, met, network, party, static
from veilcast.authority import issuer
from veilcast.authority.epoch import HOUR_US
from veilcast.authority.keyring import Keyring
from veilcast.authority.revoked import Revoked
from veilcast.crypto.certificate import Chain, Kind, certify
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ExpiredError, ForgedError, LocalError, MalformedError, RemoteError, StaleError
from veilcast.link.handshake import Initiation, Response
from veilcast.link.party import Party
from veilcast.wire.geometry import CELL_BODY, LETTER_ROOM

PEOPLE = network()
ALICE, BOB, CAROL = party(PEOPLE.alice, 1), party(PEOPLE.bob, 2), party(PEOPLE.carol, 3)
BODY = bytes(CELL_BODY)


def with_certificate(keyring: Keyring, chain: Chain) -> Keyring:
    return msgspec.structs.replace(keyring, membership=msgspec.structs.replace(keyring.membership, certificate=chain))


def begin(ours: Party, theirs: Party, known: bool) -> Initiation:
    return Initiation(ours, NOW, remote=theirs.static.public if known else None)


# --- members ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("theirs", [BOB, CAROL], ids=["of the root", "of a sub-authority"])
def test_members_learn_who_the_other_is_and_share_a_session(theirs: Party, known: bool) -> None:
    ours, other = met(ALICE, theirs, known=known)
    assert (ours.remote, other.remote) == (theirs.static.public, ALICE.static.public)
    assert (ours.certificate.leaf.subject, other.certificate.leaf.subject) == (ours.remote, other.remote)
    assert (ours.began, other.began) == (True, False)
    assert bool(ours.last) is not known
    assert other.session.open(ours.session.seal(BODY, NOW), NOW) == BODY


def test_every_message_fits_a_letter_even_with_the_largest_certificates() -> None:
    """Of a sub-authority, with epochs whose numbers are as long as they come."""
    entropy, epoch = random.Random(8).randbytes, 2**32 - 30
    _, child = issuer.delegate(issuer.create(1, entropy), "sports", epoch, 20, entropy)
    parties = []
    for name in ("a", "b"):
        child, keyring = issuer.grant_ready(child, name, [], epoch, 20, entropy)
        parties.append(Party(keyring, entropy))
    for known in (False, True):
        initiation = Initiation(parties[0], epoch, remote=parties[1].static.public if known else None)
        response = Response(parties[1], initiation.first, epoch, known=known)
        contact = initiation.read(response.answer, epoch)
        assert max(len(initiation.first), len(response.answer), len(contact.last)) <= LETTER_ROOM // 2


def test_two_handshakes_of_the_same_two_share_no_key() -> None:
    first, second = met(ALICE, BOB), met(ALICE, BOB)
    with pytest.raises(ForgedError):
        second[1].session.open(first[0].session.seal(BODY, NOW), NOW)


def test_a_link_renews_its_keys_with_plain_messages_of_the_next_generation() -> None:
    ours, theirs = met(ALICE, BOB)
    generation = ours.session.next_generation
    initiation = Initiation(ALICE, NOW, remote=ours.remote, generation=generation)
    response = Response(BOB, initiation.first, NOW, known=True, generation=generation, expected=theirs.remote)
    renewed = initiation.read(response.answer, NOW)
    assert response.contact is not None
    assert renewed.session.generation == response.contact.session.generation == 1
    assert response.contact.session.open(renewed.session.seal(BODY, NOW), NOW) == BODY


def test_the_keys_of_a_link_are_not_renewed_by_another_member() -> None:
    _, theirs = met(ALICE, BOB)
    foreign = Initiation(CAROL, NOW, remote=BOB.static.public, generation=1)
    with pytest.raises(ForgedError, match="another peer"):
        Response(BOB, foreign.first, NOW, known=True, generation=1, expected=theirs.remote)
    with pytest.raises(LocalError, match="expected"):
        Response(BOB, foreign.first, NOW, generation=1, expected=theirs.remote)


# --- those who disagree -------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [False, True])
def test_both_sides_must_mean_the_same_generation_and_kind_of_session(known: bool) -> None:
    first = begin(ALICE, BOB, known).first
    with pytest.raises(RemoteError):
        Response(BOB, first, NOW, known=known, generation=1)
    with pytest.raises(RemoteError):
        Response(party(PEOPLE.bob, uniform=False), first, NOW, known=known)
    with pytest.raises(RemoteError):
        Response(BOB, first, NOW, known=not known)


@pytest.mark.parametrize("known", [False, True])
def test_who_has_another_network_key_gets_no_session(known: bool) -> None:
    membership = msgspec.structs.replace(PEOPLE.alice.membership, network=Secret(bytes(32)))
    stranger = party(msgspec.structs.replace(PEOPLE.alice, membership=membership))
    initiation = begin(stranger, BOB, known)
    response = Response(BOB, initiation.first, NOW, known=known)
    if known:
        with pytest.raises(ForgedError):
            initiation.read(response.answer, NOW)
        assert response.contact is not None
        assert not response.contact.session.confirmed
    else:
        contact = initiation.read(response.answer, NOW)
        with pytest.raises(ForgedError):
            response.read(contact.last, NOW)


# --- certificates -------------------------------------------------------------------------------------------


def refused_both_ways(liar: Party, honest: Party, error: type[RemoteError], match: str, now: int = NOW) -> None:
    """As who begins, with and without the other's key, and as who is asked."""
    with pytest.raises(error, match=match):
        Response(honest, Initiation(liar, now, remote=honest.static.public).first, now, known=True)
    first = Initiation(liar, now)
    response = Response(honest, first.first, now)
    with pytest.raises(error, match=match):
        response.read(first.read(response.answer, now).last, now)
    for remote in (None, liar.static.public):
        ours = Initiation(honest, now, remote=remote)
        theirs = Response(liar, ours.first, now, known=remote is not None)
        with pytest.raises(error, match=match):
            ours.read(theirs.answer, now)


class Liar(Party):
    """Shows whatever it likes, and believes everybody."""

    def __init__(self, keyring: Keyring, shown: bytes) -> None:
        super().__init__(keyring, random.Random(9).randbytes)
        self._lie = shown

    def shown(self, now: int) -> bytes:
        return self._lie

    def judge(self, shown: bytes, static: bytes, now: int) -> Chain:
        return PEOPLE.alice.membership.certificate


def encoded(chain: Chain) -> bytes:
    return msgspec.msgpack.encode(chain)


def test_the_certificate_of_another_is_refused() -> None:
    liar = Liar(PEOPLE.carol, encoded(PEOPLE.alice.membership.certificate))
    refused_both_ways(liar, BOB, ForgedError, "another's")


def test_our_own_certificate_shown_to_us_is_refused() -> None:
    liar = Liar(PEOPLE.carol, encoded(PEOPLE.bob.membership.certificate))
    refused_both_ways(liar, BOB, ForgedError, "another's")


def test_who_holds_our_own_key_is_refused_too() -> None:
    refused_both_ways(Liar(PEOPLE.bob, BOB.shown(NOW)), BOB, ForgedError, "our own key")


def test_a_handshake_that_comes_back_to_who_began_it_is_refused() -> None:
    for known in (False, True):
        first = Initiation(BOB, NOW, remote=ALICE.static.public if known else None)
        with pytest.raises(RemoteError):
            first.read(first.first, NOW)
    itself = Initiation(BOB, NOW, remote=BOB.static.public)
    with pytest.raises(ForgedError, match="our own key"):
        Response(BOB, itself.first, NOW, known=True)


@pytest.mark.parametrize(
    "shown", [b"", b"\xc0", b"\x92", b"\x91" * 600, encoded(PEOPLE.alice.membership.certificate)[:-1]]
)
def test_what_is_no_certificate_is_refused(shown: bytes) -> None:
    refused_both_ways(Liar(PEOPLE.alice, shown), BOB, MalformedError, "certificate")


def test_certificates_of_another_authority_or_kind_are_refused() -> None:
    mallory = SigningKey.generate(random.Random(4).randbytes)
    subject, scope = static(PEOPLE.alice), PEOPLE.alice.membership.certificate.leaf.scope
    forged = certify(mallory, Kind.MEMBER, subject, scope, EPOCH, EPOCH + EPOCHS)
    refused_both_ways(Liar(PEOPLE.alice, encoded(Chain(forged))), BOB, ForgedError, "signature")
    publisher = certify(PEOPLE.root.key, Kind.PUBLISHER, subject, scope, EPOCH, EPOCH + EPOCHS)
    refused_both_ways(Liar(PEOPLE.alice, encoded(Chain(publisher))), BOB, ForgedError, "kind")
    borrowed = Chain(forged, PEOPLE.child.delegation)
    refused_both_ways(Liar(PEOPLE.alice, encoded(borrowed)), BOB, ForgedError, "signature")


def test_a_certificate_that_is_over_or_has_not_begun_is_refused() -> None:
    subject, scope = static(PEOPLE.alice), PEOPLE.alice.membership.certificate.leaf.scope
    for first, last in ((EPOCH - 2, EPOCH - 1), (EPOCH + 1, EPOCH + 2)):
        stale = Chain(certify(PEOPLE.root.key, Kind.MEMBER, subject, scope, first, last))
        refused_both_ways(Liar(PEOPLE.alice, encoded(stale)), BOB, StaleError, "epoch")


def test_a_revoked_member_is_refused_from_the_epoch_that_the_bulletin_names() -> None:
    entropy = random.Random(5).randbytes
    state = issuer.revoke(PEOPLE.root, "alice", None, EPOCH, entropy)
    assert state.bulletin is not None
    revoked = Revoked(PEOPLE.root.root, 10)
    revoked.add(state.bulletin, EPOCH)
    bob = Party(PEOPLE.bob, entropy, revoked=revoked)
    met(ALICE, bob)
    refused_both_ways(Liar(PEOPLE.alice, ALICE.shown(NOW)), bob, ForgedError, "revoked", NOW + HOUR_US)


def test_members_of_an_ended_sub_authority_are_refused() -> None:
    assert PEOPLE.child.delegation is not None
    void = {PEOPLE.child.delegation.subject: EPOCH}
    bob = party(msgspec.structs.replace(PEOPLE.bob, void=void))
    refused_both_ways(Liar(PEOPLE.carol, CAROL.shown(NOW)), bob, ForgedError, "sub-authority")


def test_whose_own_membership_is_over_begins_nothing_and_answers_nobody() -> None:
    with pytest.raises(ExpiredError):
        Initiation(ALICE, LATE, remote=BOB.static.public)
    with pytest.raises(ExpiredError):
        Response(BOB, Initiation(ALICE, NOW).first, LATE)


# --- changed and repeated messages --------------------------------------------------------------------------


def flips(data: bytes) -> list[bytes]:
    """The data with one bit changed, for every bit of it."""
    number = int.from_bytes(data, "big")
    return [(number ^ 1 << bit).to_bytes(len(data), "big") for bit in range(len(data) * 8)]


@pytest.mark.parametrize("known", [False, True])
def test_every_single_changed_bit_of_a_first_message_is_refused(known: bool) -> None:
    """Also in XX, where the first message is all but in clear: the tag is of the fresh key itself."""
    for changed in flips(begin(ALICE, BOB, known).first):
        with pytest.raises(RemoteError):
            Response(BOB, changed, NOW, known=known)


def test_a_changed_answer_or_last_message_is_refused() -> None:
    """A handshake ends with the first wrong message, so each bit needs a new one: a sample of them."""
    rng = random.Random(6)
    for _ in range(60):
        for known in (False, True):
            initiation = begin(ALICE, BOB, known)
            response = Response(BOB, initiation.first, NOW, known=known)
            with pytest.raises(RemoteError):
                initiation.read(rng.choice(flips(response.answer)), NOW)
        initiation = begin(ALICE, BOB, known=False)
        response = Response(BOB, initiation.first, NOW)
        contact = initiation.read(response.answer, NOW)
        with pytest.raises(RemoteError):
            response.read(rng.choice(flips(contact.last)), NOW)


def test_a_recorded_first_message_gives_a_session_that_nobody_can_confirm() -> None:
    first = begin(ALICE, BOB, known=True).first
    recorded = Response(BOB, first, NOW, known=True)
    again = Response(BOB, first, NOW, known=True)
    assert recorded.answer != again.answer
    assert again.contact is not None
    ours, _ = met(ALICE, BOB, known=True)
    with pytest.raises(ForgedError):
        again.contact.session.open(ours.session.seal(BODY, NOW), NOW)
    assert not again.contact.session.confirmed


def test_an_answer_is_read_once() -> None:
    initiation = begin(ALICE, BOB, known=True)
    response = Response(BOB, initiation.first, NOW, known=True)
    initiation.read(response.answer, NOW)
    with pytest.raises(LocalError):
        initiation.read(response.answer, NOW)
