"""The key's passage through one replica, in both profiles: what comes, and what then goes where.

A component without links: messages come in by `receive`, with who sent them, and go out by `outbox`; `handle` does what
is due. Raises a `RemoteError` for what is refused. Which way a key takes is the profile's: `redistributing` or
`resplitting`. Both ask routing for the readers of what is advertised, and take shares only from where the advertisement
came from. A reader that lacks a key asks for it the same way back, and the publisher deals it anew.
"""

from __future__ import annotations

from typing import Final

from veilcast.brokers.config import BrokerConfig
from veilcast.brokers.hop import quiet_us
from veilcast.brokers.redistributing import Redistributing
from veilcast.brokers.resplitting import Resplitting
from veilcast.brokers.routes import Outgoing, Peer, Routes, is_from, replicas
from veilcast.brokers.sharing.scheme import Place, Roster, Scheme
from veilcast.brokers.standing import Suspicions
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ExcessError, ForgedError
from veilcast.machine import Entropy
from veilcast.wire.brokers import Disputed, FirstShare, NextShare, Spoken, Taken, WantKey
from veilcast.wire.messages import Message


class Passing:
    """Of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        routes: Routes,
        roster: Roster,
        signing: SigningKey,
        entropy: Entropy,
        suspicions: Suspicions,
        now: int,
    ) -> None:
        self.outbox: list[Outgoing] = []
        self._routes = routes
        self._quiet_until = now + quiet_us(config.bound_us, max(place.scheme.tolerated for place in routes.places()))
        self._wants = _Wants(config.want_us)
        parts = (config, routes, roster, signing, entropy, suspicions)
        self._redistributing = Redistributing(*parts) if config.profile == "hardened" else None
        self._resplitting = Resplitting(*parts) if config.profile == "paper" else None

    def sizes(self) -> dict[str, int]:
        ways = [way.sizes() for way in (self._redistributing, self._resplitting) if way is not None]
        return {name: size for way in ways for name, size in way.items()} | {"keys wanted": len(self._wants)}

    def welcome(self) -> None:
        """All replicas around have said that they never met us: this is our first life, and we have forgotten nothing.

        Else we keep silent, for a while, on all keys that we see: they may have come to us before we were killed.
        """
        self._quiet_until = 0

    @property
    def quiet_us(self) -> int:
        """Until when."""
        return self._quiet_until

    def is_quiet(self, now: int) -> bool:
        return now < self._quiet_until or not self._routes.ready()

    def receive(self, message: Message, source: Peer, now: int) -> None:
        """Raises for what is refused; what is to be sent is in the outbox.

        What is due comes first: it must be said whatever becomes of the message.
        """
        self.handle(now)
        if isinstance(message, WantKey):
            self.outbox += self._wanted(message, source, now)
        elif self._resplitting is not None:
            if not isinstance(message, FirstShare | NextShare):
                raise ForgedError("not a message of this profile")
            self.outbox += self._resplitting.take(message, source, now, quiet=self.is_quiet(now))
        elif self._redistributing is not None:
            self.outbox += self._receive(self._redistributing, message, source, now)

    def _receive(self, way: Redistributing, message: Message, source: Peer, now: int) -> list[Outgoing]:
        if isinstance(message, FirstShare):
            return way.first(message, source, now, quiet=self.is_quiet(now))
        if not isinstance(source, Place):
            raise ForgedError("a client has no part in how brokers bring keys on")
        match message:
            case NextShare():
                return way.next(message, source, now, quiet=self.is_quiet(now))
            case Spoken():
                return way.spoken(message, source, now)
            case Disputed():
                return way.disputed(message, source, now)
            case Taken():
                return way.taken(message, source, now)
        raise ForgedError("not a message about keys")

    def advertised(self, advertisement: bytes, now: int) -> None:
        """An advertisement has become known: shares that came before it are taken up, after what is due."""
        self.handle(now)
        for way in (self._redistributing, self._resplitting):
            if way is not None:
                self.outbox += way.advertised(advertisement, now, quiet=self.is_quiet(now))

    def handle(self, now: int) -> None:
        if self._redistributing is not None:
            self.outbox += self._redistributing.handle(now)

    def next_us(self) -> int | None:
        return self._redistributing.next_us() if self._redistributing is not None else None

    def _wanted(self, message: WantKey, source: Peer, now: int) -> list[Outgoing]:
        """Toward the publisher, once in a while, whoever and how many ask."""
        if not any(is_from(source, branch) for branch in self._routes.readers(message.advertisement)):
            raise ForgedError("a key is wanted by who has no readers of it")
        before = self._routes.came_from(message.advertisement)
        if not self._wants.pass_on(message, source, now):
            return []
        return [Outgoing(to, message) for to in (replicas(before) if isinstance(before, Scheme) else [before])]


class _Wants:
    """Which keys were asked for lately; so many of one peer's, so that nobody asks for others' share.

    By their advertisements, too: who asks for a key where it is not to be had keeps nobody from asking where it is.
    """

    def __init__(self, keep_us: int) -> None:
        self._keep_us = keep_us
        self._asked: dict[tuple[bytes, bytes], tuple[Peer, int]] = {}

    def __len__(self) -> int:
        return len(self._asked)

    def pass_on(self, wanted: WantKey, source: Peer, now: int) -> bool:
        while self._asked and (first := next(iter(self._asked.items())))[1][1] <= now:
            del self._asked[first[0]]
        what = (wanted.advertisement, wanted.key)
        if what in self._asked:
            return False
        if sum(peer == source for peer, _ in self._asked.values()) >= _WANTS_EACH or len(self._asked) >= _WANTS_MAX:
            raise ExcessError("more keys are wanted than we ask for")
        self._asked[what] = (source, now + self._keep_us)
        return True


_WANTS_EACH: Final = 64
_WANTS_MAX: Final = 4096
