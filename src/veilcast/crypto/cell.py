"""Cells on the wire: one certificate for all meshes of a topic that is cut into cells, and a token for each.

A cell's name is a digest of its place under the topic's blind, 16 random bytes that holders of a grant know: others see
that two cells belong to one topic, since they show one certificate, but not which cells they are, nor which lie next to
each other. The token of a cell is a digest of the topic's token and the name. Whoever shows a certificate shows the
name too, so anybody can check that the token is one of the certificate's; to find a name that leads to another topic's
token is to invert the hash. A topic that is not cut has its own token, and no name.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from veilcast.crypto.certificate import LINEAGE, Chain
from veilcast.crypto.derive import digest
from veilcast.crypto.token import TOKEN


def cell_name(blind: bytes, place: Iterable[tuple[int, int]]) -> bytes:
    """The name of a cell, from its coordinates, each with its resolution in bits; neither is more than a byte."""
    return digest(blind + bytes(part for pair in place for part in pair), purpose=b"vc/cell", size=CELL_NAME)


def cell_token(scope: bytes, cell: bytes) -> bytes:
    """What a cell is called, of the topic whose token is `scope`."""
    return digest(scope + cell, purpose=b"vc/cell-token", size=TOKEN)


def scope_fits(scope: bytes, token: bytes, cell: bytes | None) -> bool:
    """Whether a certificate for `scope` is one for this token too."""
    return token == (scope if cell is None else cell_token(scope, cell))


def lineage_of(certificate: Chain, cell: bytes | None) -> bytes:
    """The name by which forwarders know a cell from epoch to epoch; without a cell, that of the topic."""
    return cell_lineage(certificate.leaf.lineage, cell)


@lru_cache(maxsize=4096)
def cell_lineage(lineage: bytes, cell: bytes | None) -> bytes:
    return lineage if cell is None else digest(lineage + cell, purpose=b"vc/cell-lineage", size=LINEAGE)


CELL_NAME: Final = 16
CELLS_MAX: Final = 256
"""Cells of one topic: no schema is cut into more."""
BLIND: Final = 16
NO_BLIND: Final = bytes(BLIND)
