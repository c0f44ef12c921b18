"""Targets: links. Bodies and chunks, letters in envelopes, handshakes of Noise with their certificates."""

from __future__ import annotations

import random

from support.fuzz.fuzz_target import Format, Group, Prepared
from support.link_pair import NOW, A, admission, identity, network, static
from veilcast.errors import LocalError, MalformedError, RemoteError
from veilcast.link.chunks import read_chunks, write_chunk
from veilcast.link.envelope import HandshakePacket, HandshakePacketKind, PacketSealer
from veilcast.link.handshake import InitiatorHandshake, ResponderHandshake
from veilcast.link.transfer import TIMEOUT_CELLS, Transfer
from veilcast.wire.geometry import ACKNOWLEDGEMENTS, CELL

GROUP = Group()
ROOM = 1176


@GROUP.target("link-bodies", "bodies of cells, from the member at the other end", "link.chunks:read_chunks")
def bodies() -> Prepared:
    def check(data: bytes) -> object:
        transfer = Transfer(timeout_us=TIMEOUT_CELLS * 250_000)
        transfer.put(b"ours" * 500)
        transfer.fill(ROOM, NOW)
        chunks = read_chunks(data)
        arrived = transfer.take(data, NOW + 1)
        transfer.fill(ROOM, NOW + 2)
        return len(chunks), len(list(arrived))

    other = Transfer(timeout_us=TIMEOUT_CELLS * 250_000)
    for message in (b"short", bytes(3000), b"x" * 3000, b"control"):
        other.put(message, message == b"control")
    examples = [other.fill(ROOM, NOW + at) for at in range(6)]
    bare = bytes(ACKNOWLEDGEMENTS)
    examples += [
        (bare + write_chunk(lane, 0, b"a", zeros)).ljust(ROOM, b"\0") for lane in (0, 1, 2) for zeros in (0, 9)
    ]
    return Prepared(check, (MalformedError, RemoteError), examples, prefixes=(bare,), max_len=ROOM + 24)


@GROUP.target("link-letters", "letters at the door, from members and strangers", "link.envelope:Envelopes.open")
def letters() -> Prepared:
    """The first byte chooses: bytes as they came, or the inside of an envelope that a member has sealed."""
    people = network()
    entropy = random.Random(10).randbytes
    envelopes = PacketSealer(identity(people.alice).envelope, entropy)
    veil = envelopes._veil

    def check(data: bytes) -> object:
        choice, inside = data[0] if data else 0, data[1:]
        entry = admission(people.bob, 3)
        datagram = inside
        if choice:
            sealed = veil.seal(inside[: CELL - 8 - 16 - 12].ljust(_PLAIN, b"\0")[:_PLAIN], entropy=entropy)
            datagram = envelopes._stamp_of(sealed) + sealed
        step = entry.receive(datagram, A, NOW)
        return step.reply is not None, step.result is not None

    first = InitiatorHandshake(identity(people.alice), NOW).first_message
    known = InitiatorHandshake(identity(people.alice), NOW, remote=static(people.bob)).first_message
    examples = []
    for kind, content in (
        (HandshakePacketKind.HELLO, first),
        (HandshakePacketKind.RETURN, known),
        (HandshakePacketKind.COOKIE, b""),
        (HandshakePacketKind.ANSWER, b"x" * 80),
    ):
        plain = bytes((kind,)) + bytes(8) + bytes(16) + len(content).to_bytes(2, "big") + content
        examples += [b"\1" + plain, b"\0" + envelopes.seal(HandshakePacket(kind, bytes(8), content))]
    return Prepared(check, (RemoteError, LocalError), examples, prefixes=(b"\0", b"\1"))


_PLAIN = len(PacketSealer(identity(network().alice).envelope, bytes)._veil.open(
    PacketSealer(identity(network().alice).envelope,
    random.Random(1).randbytes).seal(HandshakePacket(HandshakePacketKind.HELLO, bytes(8)))[8:]
))  # fmt: skip


@GROUP.target(
    "noise-handshake",
    "messages of a handshake and the certificates inside, both roles",
    "link.handshake:ResponderHandshake",
    "link.handshake:InitiatorHandshake",
    "link.identity:LinkIdentity.check_certificate",
    "crypto.noise:Handshake",
)
def handshake() -> Prepared:
    """The first byte chooses the message to replace, or a valid message whose certificate is replaced."""
    people = network()
    ours, theirs = identity(people.alice, 1), identity(people.bob, 2)

    def check(data: bytes) -> object:
        choice, content = (data[0] if data else 0) % 6, data[1:]
        if choice == 0:
            return len(ResponderHandshake(theirs, content, NOW).answer)
        if choice == 1:
            return len(ResponderHandshake(theirs, content, NOW, known=True).answer)
        if choice == 2:
            return InitiatorHandshake(ours, NOW).read(content, NOW).is_initiator
        if choice == 3:
            return InitiatorHandshake(ours, NOW, remote=theirs.static.public).read(content, NOW).is_initiator
        initiation = InitiatorHandshake(ours, NOW)
        response = ResponderHandshake(theirs, initiation.first_message, NOW)
        if choice == 4:
            return response.read(content, NOW).is_initiator
        return theirs.check_certificate(content, ours.static.public, NOW)

    initiation, known = InitiatorHandshake(ours, NOW), InitiatorHandshake(ours, NOW, remote=theirs.static.public)
    answer, brief = (
        ResponderHandshake(theirs, initiation.first_message, NOW),
        ResponderHandshake(theirs, known.first_message, NOW, known=True),
    )
    last = initiation.read(answer.answer, NOW).last_message
    messages = [
        initiation.first_message,
        known.first_message,
        answer.answer,
        brief.answer,
        last,
        ours.own_certificate(NOW),
    ]
    examples = [bytes((at,)) + message for at, message in enumerate(messages)]
    examples.append(b"\5" + identity(people.carol).own_certificate(NOW))
    prefixes = [bytes((choice,)) for choice in range(6)]
    return Prepared(check, (RemoteError,), examples, Format.MSGPACK, prefixes=prefixes, skip=1)
