"""A handshake that has finished or failed keeps nothing from which its keys could be computed again."""

from __future__ import annotations

import random

import pytest

from veilcast.crypto.noise import IK, IK_PSK2, XX, XX_PSK3, Handshake, HandshakeRole, Keypair, NoiseProtocol
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError, RemoteError

PROTOCOLS = pytest.mark.parametrize("protocol", [XX, XX_PSK3, IK, IK_PSK2], ids=lambda p: p.name)
ALICE, BOB = (Keypair.draw(random.Random(seed).randbytes) for seed in (1, 2))


def after(protocol: NoiseProtocol, messages: int) -> tuple[Handshake, Handshake]:
    """The initiator and the responder after this number of messages."""
    pattern, draw = protocol.pattern, random.Random(3).randbytes
    known = BOB.public if pattern.responder_known else None
    psk = Secret(b"p" * 32) if pattern.psk else None
    sides = (
        Handshake(protocol, HandshakeRole.INITIATOR, static=ALICE, entropy=draw, remote_static=known, psk=psk),
        Handshake(protocol, HandshakeRole.RESPONDER, static=BOB, entropy=draw, psk=psk),
    )
    for number in range(messages):
        sides[1 - number % 2].read(sides[number % 2].write())
    return sides


def secrets_of(side: Handshake) -> list[str]:
    held = {"keys": side._mine, "psk": side._psk, "chain": side._symmetric._chain, "cipher": side._symmetric._cipher}
    return [name for name, secret in held.items() if secret]


@PROTOCOLS
def test_a_finished_handshake_keeps_no_secrets(protocol: NoiseProtocol) -> None:
    last = len(protocol.pattern.messages)
    for side, before in zip(after(protocol, last), after(protocol, last - 1), strict=True):
        assert {"keys", "chain", "cipher", *(["psk"] if protocol.pattern.psk else [])} <= {*secrets_of(before)}
        assert secrets_of(side) == []
        side.split()
        side.export()
        assert side._sessions is None
        assert side._exported is None


@PROTOCOLS
def test_both_sides_export_one_secret_once_and_another_in_every_handshake(protocol: NoiseProtocol) -> None:
    last = len(protocol.pattern.messages)
    (ours, theirs), unfinished = after(protocol, last), after(protocol, last - 1)
    exported = ours.export()
    assert exported == theirs.export()
    ciphers = [direction._cipher._key for direction in ours.split()]
    assert len({secret.reveal() for secret in (exported, *ciphers)}) == 3
    for side in (ours, *unfinished):
        with pytest.raises(LocalError, match="once"):
            side.export()


@PROTOCOLS
def test_a_failed_handshake_keeps_no_secrets(protocol: NoiseProtocol) -> None:
    for number in range(len(protocol.pattern.messages)):
        for keep in (slice(0, -1), slice(32, None)):
            sides = after(protocol, number)
            writer, reader = sides[number % 2], sides[1 - number % 2]
            assert {"keys", "chain"} <= {*secrets_of(reader)}
            with pytest.raises(RemoteError):
                reader.read(bytes(keep.start) + writer.write()[keep])
            assert secrets_of(reader) == []


def test_a_handshake_whose_entropy_fails_keeps_no_secrets() -> None:
    initiator = Handshake(XX, HandshakeRole.INITIATOR, static=ALICE, entropy=lambda size: bytes(size - 1))
    with pytest.raises(LocalError):
        initiator.write()
    assert "failed" in repr(initiator)
    assert secrets_of(initiator) == []
