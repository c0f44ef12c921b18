"""How much do our Noise handshakes cost over the key agreements they cannot do without?

The floor of a handshake is its X25519 work, done straight with `cryptography` in the same run: a fresh key
for each side, and every agreement of the pattern on both sides. The floor of a transport message is the bare
cipher, sealing and opening the same 1200 bytes. Ratios are ours over the floor, so 1.00 would be free. Runs
in some seconds:

    python benchmarks/noise.py [--json]
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from veilcast.crypto.noise import IK, IK_PSK2, XX, Handshake, HandshakeRole, Keypair, NoiseProtocol, Receiver, Sender
from veilcast.crypto.secret import Secret


def main() -> None:
    parser = argparse.ArgumentParser(description="Noise handshakes and messages against their floors.")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    as_json = parser.parse_args().json

    results = {}
    for protocol in (XX, IK, IK_PSK2):
        results[f"handshake {protocol.name}"] = compare(partial(handshake, protocol), agreements(protocol), count=50)
    for name, cipher in (("ChaChaPoly", ChaCha20Poly1305), ("AESGCM", AESGCM)):
        initiator, responder = handshake(NoiseProtocol(f"Noise_XX_25519_{name}_BLAKE2s"))
        results[f"seal + open {SIZE} B, {name}"] = compare(
            messages(initiator.split()[0], responder.split()[1]), bare(cipher(os.urandom(32))), count=1_000
        )

    if as_json:
        print(json.dumps(results))
        return
    print(f"{'':48}{'ours /s':>12}{'floor /s':>12}{'ratio':>8}")
    for name, result in results.items():
        print(f"{name:48}{result['ours']:>12,.0f}{result['floor']:>12,.0f}{result['ratio']:>8.2f}")


def compare(ours: Callable[[], object], floor: Callable[[], object], *, count: int) -> dict[str, float]:
    """Medians over short alternating rounds: a busy moment of the machine hits both alike, or few rounds."""
    rounds = [(rate(ours, count), rate(floor, count)) for _ in range(ROUNDS)]
    return {
        "ours": median(of_ours for of_ours, _ in rounds),
        "floor": median(of_floor for _, of_floor in rounds),
        "ratio": median(of_floor / of_ours for of_ours, of_floor in rounds),
    }


def rate(work: Callable[[], object], count: int) -> float:
    start = perf_counter()
    for _ in range(count):
        work()
    return count / (perf_counter() - start)


def handshake(protocol: NoiseProtocol) -> tuple[Handshake, Handshake]:
    pattern = protocol.pattern
    psk = PSK if pattern.psk else None
    known = BOB.public if pattern.responder_known else None
    initiator = Handshake(
        protocol, HandshakeRole.INITIATOR, static=ALICE, entropy=os.urandom, remote_static=known, psk=psk
    )
    responder = Handshake(protocol, HandshakeRole.RESPONDER, static=BOB, entropy=os.urandom, psk=psk)
    writer, reader = initiator, responder
    for _ in pattern.messages:
        reader.read(writer.write())
        writer, reader = reader, writer
    assert initiator.handshake_hash == responder.handshake_hash
    return initiator, responder


def agreements(protocol: NoiseProtocol) -> Callable[[], None]:
    tokens = [token for message in protocol.pattern.messages for token in message.tokens]
    exchanges = 2 * sum(token in ("ee", "es", "se", "ss") for token in tokens)
    assert exchanges == {"XX": 6, "IK": 8, "IKpsk2": 8}[protocol.name.split("_")[1]]
    peer = X25519PrivateKey.generate().public_key()

    def work() -> None:
        for _ in HandshakeRole:
            private = X25519PrivateKey.generate()
        for _ in range(exchanges):
            private.exchange(peer)

    return work


def messages(sender: Sender, receiver: Receiver) -> Callable[[], None]:
    plaintext = os.urandom(SIZE)

    def work() -> None:
        assert receiver.decrypt(sender.encrypt(plaintext)) == plaintext

    return work


def bare(cipher: ChaCha20Poly1305 | AESGCM) -> Callable[[], None]:
    plaintext, nonce = os.urandom(SIZE), bytes(12)

    def work() -> None:
        assert cipher.decrypt(nonce, cipher.encrypt(nonce, plaintext, b""), b"") == plaintext

    return work


SIZE = 1200
ROUNDS = 25
ALICE, BOB = Keypair.draw(os.urandom), Keypair.draw(os.urandom)
PSK = Secret(os.urandom(32))

if __name__ == "__main__":
    main()
