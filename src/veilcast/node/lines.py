"""Lines that people copy from one file into another: each says what it is, and notices a slip."""

from __future__ import annotations

import base64
from typing import Final

from veilcast.crypto.derive import digest


def spell(kind: str, data: bytes) -> str:
    """`kind` is what the line begins with."""
    checked = data + digest(data, purpose=b"vc/relay-line", size=_CHECK)
    return kind + base64.urlsafe_b64encode(checked).decode().rstrip("=")


def read(kind: str, text: str) -> bytes:
    """`ValueError` if it is no such line, or was not copied whole."""
    word = text.removeprefix(kind)
    data = base64.urlsafe_b64decode(word + "=" * (-len(word) % 4))[:-_CHECK]
    if spell(kind, data) != text:
        raise ValueError("a slip in copying")
    return data


_CHECK: Final = 4
