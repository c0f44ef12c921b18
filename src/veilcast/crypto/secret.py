"""Bytes that must not be shown: keys, and whatever opens like a key.

A `Secret` has a repr without content, compares in constant time, and cannot be pickled or hashed. So it does not slip
into a log, a traceback, a dictionary key or a Spark task by accident. Python cannot reliably wipe memory;
`docs/limitations.md` says so.
"""

from __future__ import annotations

import hmac
from typing import NoReturn

from veilcast.errors import LocalError


class Secret:
    """Secret bytes. `reveal()` is the only way to see them, and easy to search the code for."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        if not data:
            raise LocalError("a secret cannot be empty")
        self._data = bytes(data)

    def reveal(self) -> bytes:
        return self._data

    def __len__(self) -> int:
        return len(self._data)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._data, other._data)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Secret of {len(self._data)} bytes>"

    def __reduce__(self) -> NoReturn:
        raise LocalError("a secret cannot be pickled")
