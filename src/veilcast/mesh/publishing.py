"""Publishing: which chains of ours there are, and when a fresh one is due.

A chain that somebody lost cannot lead back to them (see `routes`); its origin starts another. Not more often than every
`pause_us`: anybody can claim to have lost a chain. Where chains expire, a fresh one is due every `renew_us` anyway.
"""

from __future__ import annotations

from collections.abc import Iterable

from veilcast.authority.keyring import TopicKeys


class Publishing:
    """Bounded by the topics that the owner advertises."""

    def __init__(self, pause_us: int, renew_us: int | None = None) -> None:
        self._pause_us, self._renew_us = pause_us, renew_us
        self._started: dict[bytes, tuple[TopicKeys, int]] = {}
        self._wanted: dict[bytes, None] = {}

    def started(self, keys: TopicKeys, now: int) -> None:
        """A chain for this topic begins."""
        self._started[keys.token] = (keys, now)
        self._wanted.pop(keys.token, None)

    def stopped(self, token: bytes) -> None:
        self._started.pop(token, None)
        self._wanted.pop(token, None)

    def advertised(self) -> list[TopicKeys]:
        """The keys of all that has been started and not stopped."""
        return [keys for keys, _ in self._started.values()]

    def want(self, tokens: Iterable[bytes]) -> None:
        """The chains of these topics of ours are to be started again."""
        self._wanted |= {token: None for token in tokens if token in self._started}

    def want_all(self) -> None:
        self.want(list(self._started))

    def due(self, now: int) -> list[TopicKeys]:
        """The topics whose time has come for that."""
        started = [self._started[token] for token in self._wanted]
        wanted = {keys.token: keys for keys, since in started if now - since >= self._pause_us}
        if self._renew_us is not None:
            aged = [keys for keys, since in self._started.values() if now - since >= self._renew_us]
            wanted |= {keys.token: keys for keys in aged}
        return list(wanted.values())
