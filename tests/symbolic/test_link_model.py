"""The link handshake, searched: sentences of docs/threat-model.md against an intruder that owns the network."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from support.link_pair import NOW, network
from support.symbolic.intruder import Intruder, Shapes
from support.symbolic.model_link import (
    EPOCH,
    LINK_PATTERNS,
    PSK,
    LinkModel,
    admits_only,
    certificate,
    static,
    tokens_of,
)
from support.symbolic.model_noise import Weakness
from support.symbolic.noise_tracer import Tracer
from support.symbolic.symbolic_search import Found, Instance, hides
from support.symbolic.symbolic_terms import Term, atom, point
from veilcast.authority.keyring import Keyring
from veilcast.crypto import noise
from veilcast.link import handshake
from veilcast.link.handshake import InitiatorHandshake, ResponderHandshake
from veilcast.link.identity import LinkIdentity
from veilcast.link.session import generation_bytes

XX, IK = LinkModel("XXpsk3"), LinkModel("IKpsk2")
INSIDER = pytest.mark.parametrize("link", [XX, IK], ids=["XXpsk3", "IKpsk2"])


def peers(link: LinkModel) -> tuple[Instance, ...]:
    """A calls B; a second responder takes what the first was sent."""
    remote = "B" if link.knows else None
    second = link.responder("B", "2") if link.knows else link.responder("A")
    return link.initiator("A", remote=remote), link.responder("B"), second


def is_complete(found: Found, *instances: Instance) -> bool:
    """The model is not vacuous: in some run each of these instances takes all its steps."""
    return {each.name for each in instances} <= found.finished


# --- sentences ----------------------------------------------------------------------------------------------


@INSIDER
def test_an_insider_on_the_wire_neither_reads_nor_joins_a_link_of_two_others(link: LinkModel) -> None:
    """Local observer, cannot: "change a bit of what is sent, and not be noticed". The intruder holds a keyring."""
    found = link.search(*peers(link))
    assert not found, found
    assert is_complete(found, *peers(link))


@INSIDER
def test_a_first_message_sent_again_makes_no_second_link(link: LinkModel) -> None:
    """Local observer, cannot: "have anything happen a second time by sending it again"."""
    remote = "B" if link.knows else None
    instances = link.initiator("A", remote=remote), link.responder("B"), link.responder("B", "2")
    found = link.search(*instances)
    assert not found, found
    assert is_complete(found, *instances)


@INSIDER
@pytest.mark.parametrize("member", ["A", "B"])
def test_a_thief_of_a_link_key_cannot_pose_as_others_to_its_owner(link: LinkModel, member: str) -> None:
    """Thief of a keyring, can: "be that member"; it cannot be another member to the owner (key compromise)."""
    other = "B" if member == "A" else "A"
    stolen = replace(link, stolen=("C", member), honest=(other,))
    found = stolen.search(*peers(stolen))
    assert not found, found


@INSIDER
def test_recorded_traffic_stays_closed_when_all_link_keys_are_stolen_later(link: LinkModel) -> None:
    """Local observer: "whether recorded traffic stays closed when the link keys of both sides are stolen later"."""
    later = replace(link, leaks=("A", "B", "C"))
    found = later.search(*peers(later))
    assert not found, found


@INSIDER
def test_a_stolen_link_key_without_the_network_key_gets_no_link(link: LinkModel) -> None:
    """Sybils and strangers, cannot: "get a link without a certificate of this authority and its key"."""
    outside = replace(link, network_key=False)
    found = outside.search(*peers(outside), properties=[admits_only("A", "B")])
    assert not found, found


@INSIDER
def test_a_member_of_a_past_epoch_gets_no_link(link: LinkModel) -> None:
    """Sybils and strangers, cannot: "get a link without a certificate of this authority and its key"."""
    late = replace(link, stolen=(), expired=("C",), public=("A", "B"))
    found = late.search(*peers(late), properties=[admits_only("A", "B")])
    assert not found, found


def test_who_calls_shows_itself_to_nobody_who_has_the_network_key_alone() -> None:
    """Insiders who watch, can: open letters and ask addresses for certificates; the caller's they do not get."""
    thief = replace(XX, stolen=(), public=())
    instances = thief.initiator("A"), thief.responder("B")
    found = thief.search(*instances, properties=[hides(point(static("A")))])
    assert not found, found
    assert thief.search(*instances, properties=[hides(point(static("B")))]), "who is called shows itself to callers"


def test_the_first_message_to_a_known_peer_opens_with_its_key_later() -> None:
    """Local observer: "What named the caller in a first message to a known peer does open with that peer's key"."""
    shown = replace(IK, stolen=(), public=("B",))
    assert not shown.search(shown.initiator("A", remote="B"), properties=[hides(point(static("A")))])
    robbed = replace(shown, stolen=("B",))
    assert robbed.search(robbed.initiator("A", remote="B"), properties=[hides(point(static("A")))])


@pytest.mark.all_only
@pytest.mark.parametrize("factors", [0, 1])
@INSIDER
def test_two_instances_of_each_role_and_points_of_the_intruders_making(link: LinkModel, factors: int) -> None:
    """The same with wider bounds: both members call and answer, and the intruder multiplies points."""
    wide = replace(link, factors=factors)
    first, second = ("B", "A") if link.knows else (None, None)
    instances = [wide.initiator("A", remote=first), wide.responder("B")]
    instances += [wide.initiator("B", remote=second)] if factors else [wide.responder("A"), wide.responder("B", "2")]
    found = wide.search(*instances, states_max=2_000_000)
    assert not found, found


# --- planted flaws ------------------------------------------------------------------------------------------

FLAWS = {
    "no pre-shared key": (LinkModel("XX", network_key=False), admits_only("A", "B")),
    "no certificate": (LinkModel(checks_certificate=False), None),
    "another's certificate": (LinkModel(checks_subject=False), None),
    "a certificate of a past epoch": (
        LinkModel(stolen=(), expired=("C",), public=("A", "B"), checks_epoch=False),
        admits_only("A", "B"),
    ),
    "the initiator's key is not proven": (LinkModel(tokens=(("e",), ("e", "ee", "s", "es"), ("s", "psk"))), None),
    "the responder's key is not proven": (LinkModel(tokens=(("e",), ("e", "ee", "s"), ("s", "se", "psk"))), None),
    "no fresh keys in the agreement": (
        LinkModel(tokens=(("e",), ("e", "s", "es"), ("s", "se", "psk")), leaks=("A", "B", "C")),
        None,
    ),
    "a first message is relied on": (LinkModel("IKpsk2", confirms=False), None),
    "a first message is relied on by a robbed responder": (
        LinkModel("IKpsk2", confirms=False, stolen=("C", "B"), honest=("A",)),
        None,
    ),
    "no nonce is counted": (
        LinkModel(stolen=(), public=(), weakness=Weakness(counts_nonces=False)),
        hides(point(static("A"))),
    ),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_each_planted_flaw_is_found(flaw: str) -> None:
    link, broken = FLAWS[flaw]
    instances = peers(link)[:2] if link.stolen == () else peers(link)
    found = link.search(*instances, properties=[] if broken is None else [broken])
    assert found
    assert found.trace


@INSIDER
def test_a_handshake_that_is_not_bound_to_its_transcript_is_found(link: LinkModel) -> None:
    """Two sides that mean different generations of keys must not end up with one session."""

    def mixed(link: LinkModel) -> Found:
        remote = "B" if link.knows else None
        return link.search(link.initiator("A", remote=remote), link.responder("B", generation="1"))

    assert mixed(replace(link, weakness=Weakness(binds_transcript=False)))
    assert not mixed(link)


# --- the model is the code ----------------------------------------------------------------------------------


def traced(known: bool) -> tuple[list[bytes], Tracer]:
    """One run of the code, and what its bytes are. A's and B's secrets have the model's names."""
    people, tracer = network(), Tracer()
    with tracer.watching():
        parties = [traced_party(tracer, people.alice, "A", "i"), traced_party(tracer, people.bob, "B", "r")]
        for protocol in LINK_PATTERNS:
            tracer.name(protocol.name.encode(), atom(protocol.name.split("_")[1], "bytes"))
        prologue = handshake._PROLOGUE + b"\1" + generation_bytes(0)
        tracer.name(prologue, atom("link 1, generation 0"))
        ours = InitiatorHandshake(parties[0], NOW, remote=parties[1].static.public if known else None)
        theirs = ResponderHandshake(parties[1], ours.first_message, NOW, known=known)
        contact = ours.read(theirs.answer, NOW)
        if not known:
            theirs.read(contact.last_message, NOW)
    return [ours.first_message, theirs.answer, *([] if known else [contact.last_message])], tracer


def traced_party(tracer: Tracer, keyring: Keyring, member: str, role: str) -> LinkIdentity:
    tracer.name(keyring.membership.link.reveal(), static(member))
    party = LinkIdentity(keyring, tracer.entropy(ord(member), f"e_{member}{role}1"))
    tracer.name(party.psk.reveal(), PSK)
    tracer.name(msgspec.msgpack.encode(keyring.membership.certificate), certificate(point(static(member)), EPOCH))
    return party


def honest_messages(link: LinkModel) -> list[tuple[Term, ...]]:
    """What the model's two sides send, when nobody interferes."""
    remote = "B" if link.knows else None
    initiator, responder = link.initiator("A", remote=remote), link.responder("B")
    sent, wire = [initiator.start.sends], Intruder(Shapes()).hear(*initiator.start.sends)
    for instance, message in zip((responder, initiator), link.messages[1:], strict=False):
        (outcome,) = instance.steps[0](instance.start.local, wire)
        sent.append(outcome.sends[: len(_fields(message))])
        wire = wire.hear(*outcome.sends)
    return sent


def is_alike(link: LinkModel) -> bool:
    """Whether each field of each message of the code is the model's term."""
    messages, tracer = traced(link.knows)
    sent = zip(messages, link.messages, honest_messages(link), strict=True)
    return all(tuple(map(tracer.term, _cut(message, tokens, parts))) == parts for message, tokens, parts in sent)


@INSIDER
def test_every_message_of_the_code_is_the_term_that_the_model_sends(link: LinkModel) -> None:
    """The tracer sees each primitive that the code calls; so a change of the handshake fails here."""
    assert is_alike(link)


@INSIDER
def test_a_changed_handshake_is_no_longer_the_model(link: LinkModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted in the code: the pre-shared key is not part of the transcript."""
    monkeypatch.setattr(noise._Symmetric, "mix_key_and_hash", noise._Symmetric.mix_key)
    assert not is_alike(link)


def test_the_model_speaks_the_patterns_that_the_link_speaks() -> None:
    assert [protocol.name.split("_")[1] for protocol in LINK_PATTERNS] == [XX.pattern, IK.pattern]
    for protocol, link in zip(LINK_PATTERNS, (XX, IK), strict=True):
        assert (
            tuple(message.tokens for message in protocol.pattern.messages) == link.messages == tokens_of(link.pattern)
        )
        assert protocol.pattern.responder_known == link.knows


def _fields(tokens: tuple[str, ...]) -> list[str]:
    return [token for token in tokens if token in ("e", "s")] + ["payload"]


def _cut(message: bytes, tokens: tuple[str, ...], parts: tuple[Term, ...]) -> list[bytes]:
    """The fields of a message: a key has 32 bytes, 48 when it is sealed; the payload is the rest."""
    fields, at = [], 0
    for part, name in zip(parts, _fields(tokens), strict=True):
        size = len(message) - at if name == "payload" else 48 if part.head == "aead" else 32
        fields.append(message[at : at + size])
        at += size
    return fields
