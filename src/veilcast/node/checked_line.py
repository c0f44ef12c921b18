"""Lines that people copy from one file into another: each says what it is, and notices a slip.

They are printed as they stand in a file, with a key and quotes, so some copy these along.
"""

from __future__ import annotations

import base64
import re
from typing import Final

from veilcast.crypto.derive import digest


def encode_line(kind: str, data: bytes) -> str:
    """`kind` is what the line begins with."""
    checked = data + digest(data, purpose=b"vc/relay-line", size=_CHECK)
    return kind + base64.urlsafe_b64encode(checked).decode().rstrip("=")


def decode_line(kind: str, text: str) -> bytes:
    """`ValueError` if it is no such line, or was not copied whole."""
    line = strip_key(text)
    word = line.removeprefix(kind)
    data = base64.urlsafe_b64decode(word + "=" * (-len(word) % 4))[:-_CHECK]
    if encode_line(kind, data) != line:
        raise ValueError("a slip in copying")
    return data


def strip_key(text: str) -> str:
    """Without the key and the quotes that it was printed with, if it has them."""
    found = _PRINTED.fullmatch(text)
    return text if found is None else found["line"]


_CHECK: Final = 4
_PRINTED: Final = re.compile(r"""\s*(?:[a-z_]+\s*=\s*)?(?P<quote>["']?)(?P<line>[\w-]*)(?P=quote)\s*""", re.ASCII)
