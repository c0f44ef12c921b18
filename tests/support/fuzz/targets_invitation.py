"""Targets: the frames and contents of invitations, and the codes that people type."""

from __future__ import annotations

from typing import Any

from support.fuzz.fuzz_machine import RunningMachine, prepare, record_received
from support.fuzz.fuzz_target import Format, Group, Prepared
from support.invitation_pair import InvitationPair, make_offer
from support.rendezvous_network import RendezvousNetwork
from veilcast.cli.shared_network import parse_offer
from veilcast.decoding import read_toml
from veilcast.errors import ConfigError, MalformedError
from veilcast.invitation.code import parse_code
from veilcast.invitation.messages import (
    JoinReceipt,
    JoinRefusal,
    JoinReply,
    JoinRequest,
    decode_content,
    encode_content,
)

GROUP = Group()


@GROUP.target(
    "invitation-content", "contents of an invitation, inside their seal", "invitation.messages:decode_content"
)
def content() -> Prepared:
    contents = (make_offer(), JoinRequest(b"r" * 9, "[::1]:1"), JoinReply(b"k"), JoinRefusal("no"), JoinReceipt())
    return Prepared(
        decode_content, (MalformedError,), [encode_content(each) for each in contents], Format.MSGPACK, prefixes=(b"",)
    )


@GROUP.target("invitation-code", "codes of invitations, typed by people", "invitation.code:parse_code")
def code() -> Prepared:
    text = InvitationPair().code.format()
    examples = [text.encode(), f"veilcast:{text}".encode(), text.replace("-", " ").upper().encode()]
    return Prepared(lambda data: parse_code(data.decode("utf-8", "replace")), (ConfigError,), examples)


@GROUP.target("invitation-network", "the shared settings in an offer", "cli.shared_network:parse_offer")
def network() -> Prepared:
    """What is taken is written as TOML again, and read."""

    def check(data: bytes) -> object:
        taken = parse_offer(make_offer(network=data.decode("utf-8", "replace")[:4096]))
        return read_toml(taken.format().encode(), "again")

    texts = ('mode = "mesh"\npeers = ["127.0.0.1:1"]\n', 'mode = "relay"\n[relay]\nproxies = ["127.0.0.1:1"]\n')
    also = 'mode = "brokers"\n[brokers]\nedge = "a"\n[[brokers.also]]\nedge = "b"\n'
    return Prepared(check, (ConfigError,), [text.encode() for text in (*texts, also)], Format.TOML)


def _running(side: str) -> RunningMachine:
    """A machine in the middle of an invitation, and all that it hears until the end."""
    finished, pair = InvitationPair(2), InvitationPair(2, answers=False)
    guest = finished.guest()
    machine: Any = finished.inviter if side == "inviter" else guest.machine
    with record_received(machine) as heard:
        finished.run(guest)
    other = pair.guest()
    pair.run(other)
    return RunningMachine(pair.inviter if side == "inviter" else other.machine, pair.now, heard)


@GROUP.target("machine-inviter", "an inviter, from strangers that call it", "invitation.inviter:Inviter")
def inviter() -> Prepared:
    return prepare(lambda: _running("inviter"))


def _meeting_place() -> RunningMachine:
    network = RendezvousNetwork()
    machine: Any = network.place
    with record_received(machine) as heard:
        code, _ = network.invite()
        network.join(code)
        network.run()
    return RunningMachine(machine, network.now, heard)


@GROUP.target("machine-rendezvous", "a rendezvous, from strangers that call it", "invitation.rendezvous:Rendezvous")
def rendezvous() -> Prepared:
    return prepare(_meeting_place, skip=3)


@GROUP.target("machine-joiner", "a joiner, from the place of its code", "invitation.joiner:Joiner")
def joiner() -> Prepared:
    return prepare(lambda: _running("joiner"))
