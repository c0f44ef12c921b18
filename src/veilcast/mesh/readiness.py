"""From when on each subscription of a mesh node gets what is published, told to the owner whenever it changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from veilcast.machine import Waiting

ReadyTime: TypeAlias = Callable[[str, int], int | None]
"""From a topic and the time now: when a subscription to the topic begins to get notes; None while that is unknown."""


class SubscriptionReadiness:
    """Holds the subscriptions that are not ready yet; the node bounds how many there are."""

    def __init__(self) -> None:
        self._told_us: dict[int, int | None] = {}
        self.news: list[Waiting] = []

    def add(self, number: int, until_us: int | None, now: int) -> None:
        """A subscription was taken. If it is not ready at once, the owner is told from when on it is."""
        if until_us is None or until_us > now:
            self._told_us[number] = until_us
            self.news.append(Waiting(number, until_us))

    def beat(self, topics: Mapping[int, str], ready_time: ReadyTime, now: int) -> None:
        """Look again; `topics` are those of all subscriptions that there are."""
        for number, told_us in list(self._told_us.items()):
            if number not in topics:
                del self._told_us[number]
                continue
            until_us = ready_time(topics[number], now)
            if until_us is not None and until_us <= now:
                del self._told_us[number]
                until_us = now if told_us is None or told_us > now else told_us
            else:
                self._told_us[number] = until_us
            if until_us != told_us:
                self.news.append(Waiting(number, until_us))
