"""Lines with a checksum that people copy from one file into another: each line says what it is and detects a slip.

Lines are printed as they appear in a file, with a key and quotes, so some people copy these, too.
"""

from __future__ import annotations

import base64
import re
from typing import Final

from veilcast.crypto.derive import digest


def encode_line(kind: str, data: bytes) -> str:
    """Encode bytes as a line that begins with `kind`."""
    checked = data + digest(data, purpose=b"vc/relay-line", size=_CHECK)
    return kind + base64.urlsafe_b64encode(checked).decode().rstrip("=")


def decode_line(kind: str, text: str) -> bytes:
    """Decode a line. Raises `ValueError` if it is of another kind or was not copied completely."""
    line = strip_key(text)
    word = line.removeprefix(kind)
    data = base64.urlsafe_b64decode(word + "=" * (-len(word) % 4))[:-_CHECK]
    if encode_line(kind, data) != line:
        raise ValueError("a slip in copying")
    return data


def strip_key(text: str) -> str:
    """Return the line without the key and the quotes that it was printed with, if it has them."""
    found = _PRINTED.fullmatch(text)
    return text if found is None else found["line"]


_CHECK: Final = 4
_PRINTED: Final = re.compile(r"""\s*(?:[a-z_]+\s*=\s*)?(?P<quote>["']?)(?P<line>[\w-]*)(?P=quote)\s*""", re.ASCII)
