"""Tokens: the names of topics and of their cells on the wire. Only holders of a topic's key can link token and topic.

Paper (P1, section 2.1): t_a = enc(a, K_a), deterministic, so forwarders match by comparing bytes. Here AES-SIV encrypts
a 16-byte digest of the attribute, so that every token has one size; nobody ever decrypts a token. Such a token never
changes, and becomes a pseudonym of the topic.

Hardened: a pseudorandom function of attribute and epoch under the epoch's key. Tokens of two epochs cannot be linked
without the keys.

Cells. A topic may be cut into cells, each with a mesh of its own. One certificate serves all of them.

1. A cell's name is a digest of its place under the topic's blind, 16 random bytes that holders of a grant know. Others
   see that two cells belong to one topic, since both show one certificate, but not which cells they are, nor which lie
   next to each other.
2. A cell's token is a digest of the topic's token and the cell's name. A message that shows a certificate shows the
   name too, so every node can check that the token belongs to the certificate. To find a name that leads to another
   topic's token is to invert the hash.
3. A topic that is not cut has its own token, and no name.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from veilcast.crypto import _primitives as hazmat
from veilcast.crypto.certificate import LINEAGE, CertificateChain
from veilcast.crypto.derive import digest
from veilcast.crypto.secret import Secret


def paper_token(key: Secret, attribute: str) -> bytes:
    digest = hazmat.blake2b(attribute.encode(), size=TOKEN - _SIV, person=b"vc/paper-token")
    # AES-SIV wants two keys; the topic key is stretched for them, so that one 32-byte key serves both profiles.
    siv_key = hazmat.blake2b(b"", size=64, key=key.reveal(), person=b"vc/siv-key")
    return hazmat.siv_encrypt(siv_key, digest, b"token")


def epoch_token(key: Secret, attribute: str, epoch: int) -> bytes:
    message = epoch.to_bytes(8, "big") + attribute.encode()
    return hazmat.blake2b(message, size=TOKEN, key=key.reveal(), person=b"vc/epoch-token")


def cell_name(blind: bytes, place: Iterable[tuple[int, int]]) -> bytes:
    """The name of a cell, from its coordinates, each with its resolution in bits. Neither is more than a byte."""
    return digest(blind + bytes(part for pair in place for part in pair), purpose=b"vc/cell", size=CELL_NAME)


def cell_token(scope: bytes, cell: bytes) -> bytes:
    """The token of a cell of the topic whose token is `scope`."""
    return digest(scope + cell, purpose=b"vc/cell-token", size=TOKEN)


def scope_covers(scope: bytes, token: bytes, cell: bytes | None) -> bool:
    """True if a certificate for `scope` is one for this token too."""
    return token == (scope if cell is None else cell_token(scope, cell))


def lineage_of(certificate: CertificateChain, cell: bytes | None) -> bytes:
    """The name by which forwarders know a cell from epoch to epoch; without a cell, that of the topic."""
    return cell_lineage(certificate.leaf.lineage, cell)


@lru_cache(maxsize=4096)
def cell_lineage(lineage: bytes, cell: bytes | None) -> bytes:
    return lineage if cell is None else digest(lineage + cell, purpose=b"vc/cell-lineage", size=LINEAGE)


TOKEN: Final = 32
CELL_NAME: Final = 16
CELLS_MAX: Final = 256
"""Cells of one topic: no schema is cut into more."""
BLIND: Final = 16
NO_BLIND: Final = bytes(BLIND)
_SIV: Final = 16
