"""The cost of each cryptographic recipe beside the bare library call it rests on (ratio 1.0 = no cost of ours).

./run bench recipes
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV, AESSIV
from nacl.signing import SigningKey as NaclKey

from veilcast.authority import issuer
from veilcast.crypto import hash_chain
from veilcast.crypto.certificate import CertificateChain, CertificateKind, certify
from veilcast.crypto.passphrase import PassphraseCost, lock_bytes, unlock_bytes
from veilcast.crypto.seal import seal, unseal
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey, verify
from veilcast.crypto.topic_token import epoch_token, paper_token
from veilcast.wire import decode, encode
from veilcast.wire.mesh import Advert, Notify


def measure(call: Callable[[], object], *, seconds: float = 0.15, turns: int = 5) -> float:
    """Microseconds a call: the best of a few turns, for the machine is shared."""
    best, count = float("inf"), 1
    while True:
        start = time.perf_counter()
        for _ in range(count):
            call()
        spent = time.perf_counter() - start
        if spent > seconds / turns:
            break
        count *= 2
    for _ in range(turns):
        start = time.perf_counter()
        for _ in range(count):
            call()
        best = min(best, time.perf_counter() - start)
    return best / count * 1e6


def rows() -> list[tuple[str, float, str, float | None]]:
    key, text = Secret(os.urandom(32)), os.urandom(1200)
    siv, aes_siv, nonce = AESGCMSIV(key.reveal()), AESSIV(os.urandom(64)), os.urandom(12)
    sealed = seal(key, text, context=b"c", entropy=os.urandom)
    assert unseal(key, sealed, context=b"c") == text
    ours, nacl, theirs = SigningKey.generate(os.urandom), NaclKey.generate(), Ed25519PrivateKey.generate()
    signature, nacl_signed, their_signature = ours.sign(text, purpose=b"p"), nacl.sign(text), theirs.sign(text)
    verify(ours.public, text, signature, purpose=b"p")
    first = hash_chain.start_chain(os.urandom)
    far = hash_chain.advance_chain(first, 16)
    anchor = hash_chain.sign_anchor(first, 16, bytes(32), 1 << 60, ours)
    assert anchor.hops_from_origin(first) == 0
    certificate = certify(ours, CertificateKind.PUBLISHER, ours.public, bytes(32), 1, 1)
    advert = Advert(bytes(32), first, anchor, CertificateChain(certificate), signature)
    notify = Notify(bytes(32), sealed, signature)
    frames = encode(advert), encode(notify)
    assert decode(frames[0]) == advert
    locked = lock_bytes(text, key, purpose=b"p", cost=PassphraseCost(), entropy=os.urandom)
    state = issuer.declare_label(issuer.create(3_600_000_000, os.urandom), "t", "hardened", os.urandom)

    def grant() -> None:
        issuer.grant_ready(state, "m", [("t", "publisher")], 0, 720, os.urandom)

    public = theirs.public_key()
    boxed = siv.encrypt(nonce, text, b"c")
    gcm_siv = measure(lambda: siv.encrypt(nonce, text, b"c"))
    gcm_siv_opening = measure(lambda: siv.decrypt(nonce, boxed, b"c"))
    return [
        ("seal 1200 B", measure(lambda: seal(key, text, context=b"c", entropy=os.urandom)), "AESGCMSIV", gcm_siv),
        ("unseal 1200 B", measure(lambda: unseal(key, sealed, context=b"c")), "AESGCMSIV", gcm_siv_opening),
        ("sign 1200 B", measure(lambda: ours.sign(text, purpose=b"p")), "PyNaCl", measure(lambda: nacl.sign(text))),
        (
            "verify 1200 B",
            measure(lambda: verify(ours.public, text, signature, purpose=b"p")),
            "PyNaCl",
            measure(lambda: nacl.verify_key.verify(nacl_signed)),
        ),
        (
            "verify 1200 B",
            measure(lambda: verify(ours.public, text, signature, purpose=b"p")),
            "cryptography",
            measure(lambda: public.verify(their_signature, text)),
        ),
        (
            "paper token",
            measure(lambda: paper_token(key, "news/eu")),
            "AESSIV",
            measure(lambda: aes_siv.encrypt(bytes(16), [b"token"])),
        ),
        ("epoch token", measure(lambda: epoch_token(key, "news/eu", 7)), "", None),
        ("chain: advance", measure(lambda: hash_chain.advance_chain(first)), "", None),
        ("chain: same_chain, 16 apart", measure(lambda: hash_chain.hops_between(first, far, 16)), "", None),
        ("chain: hops to the anchor, 16", measure(lambda: anchor.hops_from_origin(first)), "", None),
        ("chain: verify the anchor", measure(lambda: anchor.verify(ours.public, bytes(32), 0)), "", None),
        (
            "certificate: make",
            measure(lambda: certify(ours, CertificateKind.MEMBER, ours.public, bytes(32), 1, 1)),
            "",
            None,
        ),
        (
            "certificate: verify",
            measure(lambda: certificate.verify(ours.public, CertificateKind.PUBLISHER, 1)),
            "",
            None,
        ),
        ("wire: encode an advert", measure(lambda: encode(advert)), "", None),
        ("wire: decode an advert", measure(lambda: decode(frames[0])), "", None),
        ("wire: decode a 1200 B notify", measure(lambda: decode(frames[1])), "", None),
        ("passphrase: unlock", measure(lambda: unlock_bytes(locked, key, purpose=b"p"), turns=3), "", None),
        ("authority: publisher grant, 720 epochs", measure(grant, turns=3), "", None),
    ]


def main() -> None:
    table = rows()
    if "--json" in sys.argv[1:]:
        print(json.dumps([{"recipe": r, "us": us, "peer": p, "peer_us": q} for r, us, p, q in table]))
        return
    print(f"{'recipe':40} {'us':>10} {'per second':>12}   beside")
    for name, us, peer, peer_us in table:
        beside = f"{peer} {peer_us:.1f} us, ratio {us / peer_us:.2f}" if peer_us else ""
        print(f"{name:40} {us:10.1f} {1e6 / us:12,.0f}   {beside}")


if __name__ == "__main__":
    main()
