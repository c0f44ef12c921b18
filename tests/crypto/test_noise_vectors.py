"""Noise agrees with published vectors; `tests/vectors/noise/README.md` names their sources and gaps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from veilcast.crypto.noise import Handshake, HandshakeRole, Keypair, NoiseProtocol
from veilcast.crypto.noise_patterns import CIPHERS, HASHES, PATTERNS
from veilcast.crypto.secret import Secret
from veilcast.machine import Entropy

VECTORS = Path(__file__).parents[1] / "vectors" / "noise"
FLYNN: list[dict[str, str]] = json.loads((VECTORS / "flynn.json").read_text())
NOISE_C: dict[str, Any] = json.loads((VECTORS / "noise-c.json").read_text())
EVERY_NAME = [f"Noise_{p}_25519_{c}_{h}" for p in PATTERNS for c in CIPHERS for h in HASHES]


def once(hex_key: str) -> Entropy:
    """Entropy that gives this one key, once."""
    keys = [bytes.fromhex(hex_key)]

    def draw(size: int) -> bytes:
        key = keys.pop()
        assert len(key) == size
        return key

    return draw


def vector_pair(
    name: str, static: tuple[str, str], ephemeral: tuple[str, str], psk: str | None, prologue: str
) -> tuple[Handshake, Handshake]:
    protocol = NoiseProtocol(name)
    statics = [Keypair(Secret(bytes.fromhex(key))) for key in static]
    initiator, responder = (
        Handshake(
            protocol,
            role,
            static=statics[side],
            entropy=once(ephemeral[side]),
            remote_static=statics[1].public if protocol.pattern.responder_known and side == 0 else None,
            psk=None if psk is None else Secret(bytes.fromhex(psk)),
            prologue=bytes.fromhex(prologue),
        )
        for side, role in enumerate(HandshakeRole)
    )
    return initiator, responder


def test_the_flynn_vectors_cover_every_protocol_of_ours_twice() -> None:
    assert sorted(vector["handshake"] for vector in FLYNN) == sorted(EVERY_NAME * 2)


@pytest.mark.parametrize("vector", FLYNN, ids=lambda v: f"{v['handshake']}{'+prologue' * ('prologue' in v)}")
def test_every_byte_of_the_flynn_vectors_is_reproduced_and_read(vector: dict[str, str]) -> None:
    initiator, responder = vector_pair(
        vector["handshake"],
        (vector["init_static"], vector["resp_static"]),
        (vector["gen_init_ephemeral"], vector["gen_resp_ephemeral"]),
        vector.get("preshared_key"),
        vector.get("prologue", ""),
    )
    numbers = range(sum(key.endswith("_payload") for key in vector))
    messages = [
        (bytes.fromhex(vector[f"msg_{n}_payload"]), bytes.fromhex(vector[f"msg_{n}_ciphertext"])) for n in numbers
    ]
    in_handshake = len(initiator.protocol.pattern.messages)

    sides = [initiator, responder]
    for number, (payload, expected) in enumerate(messages[:in_handshake]):
        writer, reader = sides[number % 2], sides[1 - number % 2]
        assert writer.write(payload, to_anyone=True) == expected
        assert reader.read(expected) == payload
    assert initiator.is_finished
    assert responder.is_finished
    assert initiator.handshake_hash == responder.handshake_hash
    assert initiator.remote_static == Keypair(Secret(bytes.fromhex(vector["resp_static"]))).public
    assert responder.remote_static == Keypair(Secret(bytes.fromhex(vector["init_static"]))).public

    sessions = [initiator.split(), responder.split()]
    for number, (payload, expected) in enumerate(messages[in_handshake:]):  # Again the initiator's first.
        sender, receiver = sessions[number % 2][0], sessions[1 - number % 2][1]
        assert sender.encrypt(payload) == expected
        assert receiver.decrypt(expected) == payload


@pytest.mark.parametrize("name", NOISE_C["handshake_hash"])
def test_the_handshake_hash_is_that_of_the_noise_c_vectors(name: str) -> None:
    of = NOISE_C
    sides = vector_pair(
        name,
        (of["init_static"], of["resp_static"]),
        (of["init_ephemeral"], of["resp_ephemeral"]),
        None,
        of["prologue"],
    )
    for number in range(len(sides[0].protocol.pattern.messages)):
        message = sides[number % 2].write(bytes.fromhex(of["payloads"][number]), to_anyone=True)
        sides[1 - number % 2].read(message)
    for side in sides:
        assert side.handshake_hash.hex() == of["handshake_hash"][name]
