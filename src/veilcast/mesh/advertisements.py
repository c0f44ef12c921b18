"""Advertisements: how a topic's origin is announced, and when a forwarder accepts it.

P1 2.1: (t_a, sig, cert_a, h). The certificate binds the signing key to the token, the signature covers the token, and
the chain value is unsigned, because it changes at every hop. So one check holds for all copies of an advertisement. The
results of checks are cached within bounds, because a signature costs a hundred times more than everything else. The
cache is of a pure function, so nodes in one process may share it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from veilcast.authority.keyring import TopicKeys
from veilcast.crypto import hash_chain
from veilcast.crypto.certificate import CertificateChain, CertificateKind
from veilcast.crypto.sign import verify
from veilcast.crypto.topic_token import scope_covers
from veilcast.errors import ForgedError, LocalError, StaleError
from veilcast.machine import Entropy
from veilcast.wire.mesh import Advert, Call


def make_advert(keys: TopicKeys, entropy: Entropy) -> Advert:
    """A publisher's advertisement with a fresh chain."""
    if keys.signing is None or keys.certificate is None:
        raise LocalError(f"only a publisher of {keys.record.topic!r} can publish on it")
    signature = keys.signing.sign(keys.token, purpose=_PURPOSE)
    return Advert(keys.token, hash_chain.start_chain(entropy), None, keys.certificate, signature, cell=keys.cell)


def replace_chain_value(advert: Advert, value: bytes) -> Advert:
    """The advertisement with the value that this node advertises."""
    return Advert(advert.token, value, advert.anchor, advert.certificate, advert.signature, advert.root, advert.cell)


def make_call(keys: TopicKeys) -> Call:
    """A publisher's call for a root."""
    if keys.signing is None or keys.certificate is None:
        raise LocalError(f"only a publisher of {keys.record.topic!r} can publish on it")
    return Call(keys.token, keys.certificate, keys.signing.sign(keys.token, purpose=_PURPOSE), keys.cell)


def check_call(call: Call, root: bytes, first: int, last: int) -> None:
    """Raise unless a publisher that the root certified for this token signed the call, for an epoch from `first` to
    `last`.

    A call of the past must not return: a node that has forgotten it would take it for new and forward it.
    """
    named = call.certificate.leaf.first
    if not first <= named <= last:
        raise StaleError("a call for another time")
    _check(call.token, call.cell, call.certificate, call.signature, root, named)


def check_advert(advert: Advert, root: bytes, epoch: int) -> None:
    """Raise unless a publisher that the root certified for this token in this epoch signed the advertisement."""
    _check(advert.token, advert.cell, advert.certificate, advert.signature, root, epoch)


@lru_cache(maxsize=4096)
def _check(
    token: bytes, cell: bytes | None, certificate: CertificateChain, signature: bytes, root: bytes, epoch: int
) -> None:
    if not scope_covers(certificate.leaf.scope, token, cell):
        raise ForgedError("the certificate is for another token")
    certificate.verify(root, CertificateKind.PUBLISHER, epoch)
    verify(certificate.leaf.subject, token, signature, purpose=_PURPOSE)


_PURPOSE: Final = b"veilcast/advert"
