"""Duplicates: which notes were here before. The oldest are forgotten first."""

from __future__ import annotations


class Duplicates:
    """Remembers the last `memory` ids."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._seen: dict[bytes, None] = {}

    def __contains__(self, name: bytes) -> bool:
        return name in self._seen

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, name: bytes) -> None:
        if len(self._seen) >= self._memory:
            del self._seen[next(iter(self._seen))]
        self._seen[name] = None
