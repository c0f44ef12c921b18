"""Handshakes between members, and with strangers and impostors."""

from __future__ import annotations

import random

import msgspec
import pytest

from support.link_pair import EPOCH, EPOCHS, LATE, NOW, identity, network, shake_hands, static
from veilcast.authority import issuer
from veilcast.authority.epoch import HOUR_US
from veilcast.authority.keyring import Keyring
from veilcast.authority.revocation import RevokedKeys
from veilcast.crypto.certificate import CertificateChain, CertificateKind, certify
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ExpiredError, ForgedError, LocalError, MalformedError, RemoteError, StaleError
from veilcast.link.handshake import InitiatorHandshake, ResponderHandshake
from veilcast.link.identity import LinkIdentity
from veilcast.wire.geometry import CELL_BODY, HANDSHAKE_PAYLOAD_MAX

PEOPLE = network()
ALICE, BOB, CAROL = identity(PEOPLE.alice, 1), identity(PEOPLE.bob, 2), identity(PEOPLE.carol, 3)
BODY = bytes(CELL_BODY)


def with_certificate(keyring: Keyring, chain: CertificateChain) -> Keyring:
    return msgspec.structs.replace(keyring, membership=msgspec.structs.replace(keyring.membership, certificate=chain))


def begin(ours: LinkIdentity, theirs: LinkIdentity, known: bool) -> InitiatorHandshake:
    return InitiatorHandshake(ours, NOW, remote=theirs.static.public if known else None)


# --- members ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("theirs", [BOB, CAROL], ids=["of the root", "of a sub-authority"])
def test_members_learn_each_others_identity_and_share_a_session(theirs: LinkIdentity, known: bool) -> None:
    ours, other = shake_hands(ALICE, theirs, known=known)
    assert (ours.remote_static, other.remote_static) == (theirs.static.public, ALICE.static.public)
    assert (ours.certificate.leaf.subject, other.certificate.leaf.subject) == (ours.remote_static, other.remote_static)
    assert (ours.is_initiator, other.is_initiator) == (True, False)
    assert bool(ours.last_message) is not known
    assert other.session.open(ours.session.seal(BODY, NOW), NOW) == BODY


def test_every_message_fits_a_packet_even_with_the_largest_certificates() -> None:
    """Certificates of a sub-authority, with the longest epoch numbers."""
    entropy, epoch = random.Random(8).randbytes, 2**32 - 30
    _, child = issuer.delegate(issuer.create(1, entropy), "sports", epoch, 20, entropy)
    parties = []
    for name in ("a", "b"):
        child, keyring = issuer.grant_ready(child, name, [], epoch, 20, entropy)
        parties.append(LinkIdentity(keyring, entropy))
    for known in (False, True):
        initiation = InitiatorHandshake(parties[0], epoch, remote=parties[1].static.public if known else None)
        response = ResponderHandshake(parties[1], initiation.first_message, epoch, known=known)
        contact = initiation.read(response.answer, epoch)
        assert (
            max(len(initiation.first_message), len(response.answer), len(contact.last_message))
            <= HANDSHAKE_PAYLOAD_MAX // 2
        )


def test_two_handshakes_of_the_same_two_share_no_key() -> None:
    first, second = shake_hands(ALICE, BOB), shake_hands(ALICE, BOB)
    with pytest.raises(ForgedError):
        second[1].session.open(first[0].session.seal(BODY, NOW), NOW)


def test_a_link_renews_its_keys_with_plain_messages_of_the_next_generation() -> None:
    ours, theirs = shake_hands(ALICE, BOB)
    generation = ours.session.next_generation
    initiation = InitiatorHandshake(ALICE, NOW, remote=ours.remote_static, generation=generation)
    response = ResponderHandshake(
        BOB, initiation.first_message, NOW, known=True, generation=generation, expected=theirs.remote_static
    )
    renewed = initiation.read(response.answer, NOW)
    assert response.result is not None
    assert renewed.session.generation == response.result.session.generation == 1
    assert response.result.session.open(renewed.session.seal(BODY, NOW), NOW) == BODY


def test_the_keys_of_a_link_are_not_renewed_by_another_member() -> None:
    _, theirs = shake_hands(ALICE, BOB)
    foreign = InitiatorHandshake(CAROL, NOW, remote=BOB.static.public, generation=1)
    with pytest.raises(ForgedError, match="another peer"):
        ResponderHandshake(BOB, foreign.first_message, NOW, known=True, generation=1, expected=theirs.remote_static)
    with pytest.raises(LocalError, match="expected"):
        ResponderHandshake(BOB, foreign.first_message, NOW, generation=1, expected=theirs.remote_static)


# --- those who disagree -------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [False, True])
def test_both_sides_must_mean_the_same_generation_and_kind_of_session(known: bool) -> None:
    first = begin(ALICE, BOB, known).first_message
    with pytest.raises(RemoteError):
        ResponderHandshake(BOB, first, NOW, known=known, generation=1)
    with pytest.raises(RemoteError):
        ResponderHandshake(identity(PEOPLE.bob, uniform=False), first, NOW, known=known)
    with pytest.raises(RemoteError):
        ResponderHandshake(BOB, first, NOW, known=not known)


@pytest.mark.parametrize("known", [False, True])
def test_a_peer_with_another_network_key_gets_no_session(known: bool) -> None:
    membership = msgspec.structs.replace(PEOPLE.alice.membership, network=Secret(bytes(32)))
    stranger = identity(msgspec.structs.replace(PEOPLE.alice, membership=membership))
    initiation = begin(stranger, BOB, known)
    response = ResponderHandshake(BOB, initiation.first_message, NOW, known=known)
    if known:
        with pytest.raises(ForgedError):
            initiation.read(response.answer, NOW)
        assert response.result is not None
        assert not response.result.session.is_confirmed
    else:
        contact = initiation.read(response.answer, NOW)
        with pytest.raises(ForgedError):
            response.read(contact.last_message, NOW)


# --- certificates -------------------------------------------------------------------------------------------


def refused_both_ways(
    liar: LinkIdentity, honest: LinkIdentity, error: type[RemoteError], match: str, now: int = NOW
) -> None:
    """The peer is refused as initiator, with and without the other's key, and as responder."""
    with pytest.raises(error, match=match):
        ResponderHandshake(
            honest, InitiatorHandshake(liar, now, remote=honest.static.public).first_message, now, known=True
        )
    first = InitiatorHandshake(liar, now)
    response = ResponderHandshake(honest, first.first_message, now)
    with pytest.raises(error, match=match):
        response.read(first.read(response.answer, now).last_message, now)
    for remote in (None, liar.static.public):
        ours = InitiatorHandshake(honest, now, remote=remote)
        theirs = ResponderHandshake(liar, ours.first_message, now, known=remote is not None)
        with pytest.raises(error, match=match):
            ours.read(theirs.answer, now)


class Liar(LinkIdentity):
    """Shows any certificate, and accepts every peer."""

    def __init__(self, keyring: Keyring, shown: bytes) -> None:
        super().__init__(keyring, random.Random(9).randbytes)
        self._lie = shown

    def own_certificate(self, now: int) -> bytes:
        return self._lie

    def check_certificate(self, shown: bytes, static: bytes, now: int) -> CertificateChain:
        return PEOPLE.alice.membership.certificate


def encoded(chain: CertificateChain) -> bytes:
    return msgspec.msgpack.encode(chain)


def test_the_certificate_of_another_is_refused() -> None:
    liar = Liar(PEOPLE.carol, encoded(PEOPLE.alice.membership.certificate))
    refused_both_ways(liar, BOB, ForgedError, "another key")


def test_our_own_certificate_shown_to_us_is_refused() -> None:
    liar = Liar(PEOPLE.carol, encoded(PEOPLE.bob.membership.certificate))
    refused_both_ways(liar, BOB, ForgedError, "another key")


def test_a_peer_with_our_own_key_is_refused_too() -> None:
    refused_both_ways(Liar(PEOPLE.bob, BOB.own_certificate(NOW)), BOB, ForgedError, "our own key")


def test_a_handshake_reflected_to_its_initiator_is_refused() -> None:
    for known in (False, True):
        first = InitiatorHandshake(BOB, NOW, remote=ALICE.static.public if known else None)
        with pytest.raises(RemoteError):
            first.read(first.first_message, NOW)
    itself = InitiatorHandshake(BOB, NOW, remote=BOB.static.public)
    with pytest.raises(ForgedError, match="our own key"):
        ResponderHandshake(BOB, itself.first_message, NOW, known=True)


@pytest.mark.parametrize(
    "shown", [b"", b"\xc0", b"\x92", b"\x91" * 600, encoded(PEOPLE.alice.membership.certificate)[:-1]]
)
def test_an_invalid_certificate_is_refused(shown: bytes) -> None:
    refused_both_ways(Liar(PEOPLE.alice, shown), BOB, MalformedError, "certificate")


def test_certificates_of_another_authority_or_kind_are_refused() -> None:
    mallory = SigningKey.generate(random.Random(4).randbytes)
    subject, scope = static(PEOPLE.alice), PEOPLE.alice.membership.certificate.leaf.scope
    forged = certify(mallory, CertificateKind.MEMBER, subject, scope, EPOCH, EPOCH + EPOCHS)
    refused_both_ways(Liar(PEOPLE.alice, encoded(CertificateChain(forged))), BOB, ForgedError, "signature")
    publisher = certify(PEOPLE.root.key, CertificateKind.PUBLISHER, subject, scope, EPOCH, EPOCH + EPOCHS)
    refused_both_ways(Liar(PEOPLE.alice, encoded(CertificateChain(publisher))), BOB, ForgedError, "kind")
    borrowed = CertificateChain(forged, PEOPLE.child.delegation)
    refused_both_ways(Liar(PEOPLE.alice, encoded(borrowed)), BOB, ForgedError, "signature")


def test_a_certificate_that_is_over_or_has_not_begun_is_refused() -> None:
    subject, scope = static(PEOPLE.alice), PEOPLE.alice.membership.certificate.leaf.scope
    for first, last in ((EPOCH - 2, EPOCH - 1), (EPOCH + 1, EPOCH + 2)):
        stale = CertificateChain(certify(PEOPLE.root.key, CertificateKind.MEMBER, subject, scope, first, last))
        refused_both_ways(Liar(PEOPLE.alice, encoded(stale)), BOB, StaleError, "epoch")


def test_a_revoked_member_is_refused_from_the_epoch_that_the_bulletin_names() -> None:
    entropy = random.Random(5).randbytes
    state = issuer.revoke(PEOPLE.root, "alice", None, EPOCH, entropy)
    assert state.bulletin is not None
    revoked = RevokedKeys(PEOPLE.root.root, 10)
    revoked.add(state.bulletin, EPOCH)
    bob = LinkIdentity(PEOPLE.bob, entropy, revoked=revoked)
    shake_hands(ALICE, bob)
    refused_both_ways(Liar(PEOPLE.alice, ALICE.own_certificate(NOW)), bob, ForgedError, "revoked", NOW + HOUR_US)


def test_members_of_an_ended_sub_authority_are_refused() -> None:
    assert PEOPLE.child.delegation is not None
    void = {PEOPLE.child.delegation.subject: EPOCH}
    bob = identity(msgspec.structs.replace(PEOPLE.bob, void=void))
    refused_both_ways(Liar(PEOPLE.carol, CAROL.own_certificate(NOW)), bob, ForgedError, "sub-authority")


def test_a_former_member_neither_begins_nor_answers_a_handshake() -> None:
    with pytest.raises(ExpiredError):
        InitiatorHandshake(ALICE, LATE, remote=BOB.static.public)
    with pytest.raises(ExpiredError):
        ResponderHandshake(BOB, InitiatorHandshake(ALICE, NOW).first_message, LATE)


# --- changed and repeated messages --------------------------------------------------------------------------


def flips(data: bytes) -> list[bytes]:
    """The data with one bit changed, for every bit."""
    number = int.from_bytes(data, "big")
    return [(number ^ 1 << bit).to_bytes(len(data), "big") for bit in range(len(data) * 8)]


@pytest.mark.parametrize("known", [False, True])
def test_every_single_changed_bit_of_a_first_message_is_refused(known: bool) -> None:
    """Also in XX, where the first message is nearly in clear: the tag covers the ephemeral key itself."""
    for changed in flips(begin(ALICE, BOB, known).first_message):
        with pytest.raises(RemoteError):
            ResponderHandshake(BOB, changed, NOW, known=known)


def test_a_changed_answer_or_last_message_is_refused() -> None:
    """A handshake ends with the first wrong message, so each bit needs a new handshake: a sample of bits."""
    rng = random.Random(6)
    for _ in range(60):
        for known in (False, True):
            initiation = begin(ALICE, BOB, known)
            response = ResponderHandshake(BOB, initiation.first_message, NOW, known=known)
            with pytest.raises(RemoteError):
                initiation.read(rng.choice(flips(response.answer)), NOW)
        initiation = begin(ALICE, BOB, known=False)
        response = ResponderHandshake(BOB, initiation.first_message, NOW)
        contact = initiation.read(response.answer, NOW)
        with pytest.raises(RemoteError):
            response.read(rng.choice(flips(contact.last_message)), NOW)


def test_a_recorded_first_message_gives_a_session_that_the_adversary_cannot_confirm() -> None:
    first = begin(ALICE, BOB, known=True).first_message
    recorded = ResponderHandshake(BOB, first, NOW, known=True)
    again = ResponderHandshake(BOB, first, NOW, known=True)
    assert recorded.answer != again.answer
    assert again.result is not None
    ours, _ = shake_hands(ALICE, BOB, known=True)
    with pytest.raises(ForgedError):
        again.result.session.open(ours.session.seal(BODY, NOW), NOW)
    assert not again.result.session.is_confirmed


def test_an_answer_is_read_once() -> None:
    initiation = begin(ALICE, BOB, known=True)
    response = ResponderHandshake(BOB, initiation.first_message, NOW, known=True)
    initiation.read(response.answer, NOW)
    with pytest.raises(LocalError):
        initiation.read(response.answer, NOW)
