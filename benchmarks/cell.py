"""What do cells cost beside the bare cipher, and letters and handshakes beside what they cannot do without?

A cell is sealed and opened by a `LinkSession`: header, mask, cipher, replay window. Its floor is the same cipher
(AES-256-GCM) over a body of the same size, sealed and opened with nothing around it, in the same run. A letter that was
made up is what a flood of strangers costs us, and a header what it costs to look whether a datagram from nowhere is of
a peer that moved; the floor of both is the cipher that refuses a forged body. That of handshakes is their X25519 work,
as in `noise.py`. Ratios are ours over the floor, so 1.00 would be free. Runs in some seconds:

    python benchmarks/cell.py [--json]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from noise import agreements, compare
from veilcast.authority import issuer
from veilcast.authority.epoch import HOUR_US
from veilcast.authority.keyring import Keyring
from veilcast.crypto.noise import IK, XX
from veilcast.errors import ForgedError
from veilcast.link.envelope import PacketSealer
from veilcast.link.handshake import HandshakeResult, InitiatorHandshake, ResponderHandshake
from veilcast.link.identity import LinkIdentity
from veilcast.link.session import LinkSession
from veilcast.wire.geometry import CELL, CELL_BODY


def main() -> None:
    parser = argparse.ArgumentParser(description="Cells, letters and handshakes against their floors.")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    as_json = parser.parse_args().json

    parties = [LinkIdentity(keyring, os.urandom) for keyring in keyrings()]
    ours, theirs = contacts(*parties, known=False)
    results = {
        "cell, sealed and opened": compare(cells(ours.session, theirs.session), bare(), count=20),
        "forged cell, refused": compare(forged_cell(theirs.session), bare_refusal(), count=20),
        "forged letter, refused": compare(forged_letter(parties[0]), bare_refusal(), count=20),
        "header, not recognised": compare(header(theirs.session), bare_refusal(), count=20),
        "first contact, both sides": compare(lambda: contacts(*parties, known=False), agreements(XX), count=1),
        "known peer, both sides": compare(lambda: contacts(*parties, known=True), agreements(IK), count=1),
    }
    if as_json:
        print(json.dumps(results))
        return
    print(f"{'':28}{'ours us':>10}{'floor us':>10}{'ours /s':>12}{'ratio':>8}")
    for name, result in results.items():
        ours_us, floor_us = 1e6 / result["ours"], 1e6 / result["floor"]
        print(f"{name:28}{ours_us:>10.2f}{floor_us:>10.2f}{result['ours']:>12,.0f}{result['ratio']:>8.2f}")


def cells(ours: LinkSession, theirs: LinkSession) -> Callable[[], None]:
    body = os.urandom(CELL_BODY)

    def work() -> None:
        assert theirs.open(ours.seal(body, NOW), NOW) == body

    return work


def bare() -> Callable[[], None]:
    cipher, body, number = AESGCM(os.urandom(32)), os.urandom(CELL_BODY), 0

    def work() -> None:
        nonlocal number
        number += 1
        nonce = number.to_bytes(12, "big")
        assert cipher.decrypt(nonce, cipher.encrypt(nonce, body, None), None) == body

    return work


def forged_cell(session: LinkSession) -> Callable[[], None]:
    datagram = os.urandom(CELL)

    def work() -> None:
        with contextlib.suppress(ForgedError):
            session.open(datagram, NOW)
            raise AssertionError("opened")

    return work


def forged_letter(party: LinkIdentity) -> Callable[[], None]:
    envelopes, datagram = PacketSealer(party.envelope, os.urandom), os.urandom(CELL)

    def work() -> None:
        with contextlib.suppress(ForgedError):
            envelopes.open(datagram)
            raise AssertionError("opened")

    return work


def bare_refusal() -> Callable[[], None]:
    cipher, nonce, datagram = AESGCM(os.urandom(32)), bytes(12), os.urandom(CELL - 8)

    def work() -> None:
        with contextlib.suppress(InvalidTag):
            cipher.decrypt(nonce, datagram, None)
            raise AssertionError("opened")

    return work


def header(session: LinkSession) -> Callable[[], None]:
    datagram = os.urandom(CELL)

    def work() -> None:
        assert not session.recognises(datagram)

    return work


def contacts(ours: LinkIdentity, theirs: LinkIdentity, *, known: bool) -> tuple[HandshakeResult, HandshakeResult]:
    initiation = InitiatorHandshake(ours, NOW, remote=theirs.static.public if known else None)
    response = ResponderHandshake(theirs, initiation.first_message, NOW, known=known)
    contact = initiation.read(response.answer, NOW)
    other = response.result or response.read(contact.last_message, NOW)
    assert (contact.remote_static, other.remote_static) == (theirs.static.public, ours.static.public)
    return contact, other


def keyrings() -> list[Keyring]:
    state = issuer.create(HOUR_US, os.urandom)
    state, first = issuer.grant_ready(state, "a", [], EPOCH, 1, os.urandom)
    state, second = issuer.grant_ready(state, "b", [], EPOCH, 1, os.urandom)
    return [first, second]


EPOCH = 500_000
NOW = EPOCH * HOUR_US

if __name__ == "__main__":
    main()
