"""A key's passage through one replica by redistribution (`hardened`): received, put together, handed on, erased.

Pure; `now` and randomness are handed in, and what is to be sent comes back. Each key and attempt passes once: it comes
from the publisher, or from the replicas of the node before (`hop`), and goes on to every next hop that has readers of
what is advertised (`handing`). What comes again, or late, finds that it is over, or was dealt too long ago for anybody
to know whether it is, and changes nothing.

A holder that lies may deal long before the others have anything to deal. So a hop that has not begun stays for as long
as its key is fresh (`opened`), and then goes without a trace, for nothing was said of it. Others' words wait outside
until it has.

A replica that has been killed and started again remembers nothing, and must not say of a hop that it lacks what it has
had: it would have a holder show an honest replica's portion, and would have said two things. So as long as `quiet` says
so, whatever is seen for the first time is left alone for good.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from veilcast.brokers.absences import Absences
from veilcast.brokers.config import BrokerConfig
from veilcast.brokers.early import Early
from veilcast.brokers.handing import Handing, Strikes
from veilcast.brokers.hop import Hop, quiet_us
from veilcast.brokers.opened import Kept, Opened
from veilcast.brokers.room import Room, Shunned
from veilcast.brokers.routes import Outgoing, Peer, Routes, is_from, replicas
from veilcast.brokers.said import Said
from veilcast.brokers.sharing.bulk import check_key_id
from veilcast.brokers.sharing.paper import Origin
from veilcast.brokers.sharing.redistribution import First, Holding, Portion, take_first
from veilcast.brokers.sharing.scheme import Place, Roster, Scheme
from veilcast.brokers.standing import Reason, Suspicions
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ExcessError, ForgedError, MalformedError, RemoteError, StaleError
from veilcast.machine import Entropy
from veilcast.parts.alarms import Alarms
from veilcast.wire.brokers import Disputed, FirstShare, NextShare, Spoken, Taken

Passage: TypeAlias = tuple[Origin, Scheme | None, Scheme]
"""A key and attempt, from this node (or its publisher) to ours."""


class Redistributing:
    """Bounded by `keys_max` and `done_max`, and of each publisher a quarter; what comes early, by its sender; hops that
    have not begun, and what came while we were quiet, by `done_max` for each holder."""

    def __init__(
        self,
        config: BrokerConfig,
        routes: Routes,
        roster: Roster,
        signing: SigningKey,
        entropy: Entropy,
        suspicions: Suspicions,
    ) -> None:
        self._config, self._routes, self._roster = config, routes, roster
        self._signing, self._entropy, self._suspicions = signing, entropy, suspicions
        # For longer than a key is fresh, by as much as clocks may differ.
        self._room: Room[Passage] = Room(config.keys_max, config.done_max, _REMEMBERED * config.hold_us)
        # What a holder brings while we are quiet: nobody honest brings more, for it remembers no more for so long.
        self._shunned: Shunned[Passage] = Shunned(config.done_max, _REMEMBERED * config.hold_us)
        self._hops: dict[Passage, Hop] = {}
        self._handing: dict[Passage, Handing] = {}
        self._by_origin: dict[Origin, dict[Passage, None]] = {}
        self._dealt: dict[tuple[Origin, Scheme], int] = {}
        """What we have dealt under which scheme of ours, and until when that is remembered."""
        self._absences = Absences(ABSENCES_MAX)
        self._strikes = Strikes(_STRIKES_KEPT * config.hold_us)
        self._alarms: Alarms[Passage] = Alarms()
        self._opened: Opened[Passage] = Opened(config.done_max, config.keys_max)
        self._until: dict[Passage, int] = {}
        """When a hop that has not begun is given up, and one that has is over."""
        # For longer than a holder would show what it has dealt: who loses what came early may then say so.
        tolerated = max(place.scheme.tolerated for place in routes.places())
        keep_us = quiet_us(config.bound_us, tolerated)
        # Nobody honest speaks of more than `keys_max` hops in that time. Who lost a word would think it was silent.
        most = (_WORDS + 2 * tolerated) * config.keys_max
        self._words: Early[Passage, Place, tuple[Spoken, Said]] = Early(
            count=most, size=most * _WORD, senders=512, keep_us=keep_us
        )
        # Nobody honest has more than `keys_max` out that we have not taken, each for nearly as long as it is kept here:
        # what has to go for others is a liar's, and need not be remembered.
        most = 2 * config.keys_max
        self._portions: Early[bytes, Place, tuple[Portion, bytes]] = Early(
            count=most, size=most * _PORTION_MAX, senders=512, keep_us=keep_us
        )

    def sizes(self) -> dict[str, int]:
        return {
            "passages": len(self._room),
            "passages past": self._room.remembered + len(self._shunned),
            "hops": len(self._hops),
            "handed": sum(map(len, self._handing.values())),
            "keys dealt": len(self._dealt),
            "early": len(self._words) + len(self._portions) + self._opened.folded,
            "absences": len(self._absences),
        }

    # --- shares -------------------------------------------------------------------------------------------------------

    def first(self, message: FirstShare, source: Peer, now: int, *, quiet: bool) -> list[Outgoing]:
        """From the publisher."""
        publisher = self._publisher(message.advertisement, source)
        first = First.decode(message.share)
        place = self._our_place(first.root.to)
        passage: Passage = (first.root.origin, None, place.scheme)
        check_key_id(first.root.origin.key, publisher)
        first.root.check_fresh(now, self._config.hold_us)
        holding = take_first(first, place, publisher)
        self._enter(passage, publisher, now, quiet=quiet)
        return self._hold(passage, holding, message.advertisement, now)

    def next(self, message: NextShare, source: Place, now: int, *, quiet: bool) -> list[Outgoing]:
        """From a holder of the node before: a portion of ours, or one that is in dispute."""
        try:
            portion = Portion.decode(message.share)
        except MalformedError:
            self._suspicions.accuse(source, Reason.PORTION)
            raise
        return self._portion(portion, message.advertisement, source, now, quiet=quiet)

    def advertised(self, advertisement: bytes, now: int, *, quiet: bool) -> list[Outgoing]:
        """What came before the advertisement is taken up."""
        sent: list[Outgoing] = []
        for source, (portion, label) in self._portions.take(advertisement):
            try:
                sent += self._portion(portion, label, source, now, quiet=quiet)
            except RemoteError:
                continue
        return sent

    def _portion(
        self, portion: Portion, advertisement: bytes, source: Place, now: int, *, quiet: bool
    ) -> list[Outgoing]:
        header = portion.header
        place = self._our_place(header.to)
        holder = Place(header.by, header.holder)
        passage: Passage = (header.origin, header.by, place.scheme)
        if self._roster.key(holder) != self._roster.key(source):
            raise ForgedError("a portion of another holder's")
        if self._is_over(passage, now) or (passage in self._handing and passage not in self._hops):
            raise StaleError("this is over here")
        if quiet:
            self._shunned.add(passage, self._roster.key(source), now)
            raise StaleError("we may have seen this before, in an earlier life")
        try:
            publisher = self._publisher(advertisement, source)
        except StaleError:
            size = len(portion.root.points) + len(header.old) + len(header.new) + _PORTION
            self._portions.put(advertisement, source, (portion, advertisement), size, now)
            return []
        known = self._hop(passage, now)
        if known is None:  # What has been taken up is taken whole: who refused the rest would say that it lacks it.
            portion.root.check_fresh(now, self._config.hold_us)
        hop = known or self._new(passage, publisher)
        opening = not hop.begun
        if opening:
            self._opened.check(passage, holder)
        try:
            check_key_id(header.origin.key, publisher)
            sent = hop.take(portion, advertisement, now)
        except (ForgedError, MalformedError):
            self._suspicions.accuse(holder, Reason.PORTION)
            raise
        if opening:
            self._hops[passage] = hop
            self._until.setdefault(passage, max(now, portion.root.dealt_us + self._config.hold_us))
            kept = Kept(portion.encode(), advertisement, publisher)
            self._fold(self._opened.put(passage, holder, header.name, kept))
        return sent + self._listen(passage, hop, now) + self._moved(passage, now)

    def _new(self, passage: Passage, publisher: bytes) -> Hop:
        origin, old, new = passage
        assert old is not None, "what comes from the publisher is no hop"
        place, bound_us = self._our_place(new), self._config.bound_us
        return Hop(origin, old, place, publisher, self._roster, self._signing, bound_us, self._absences)

    def _hop(self, passage: Passage, now: int) -> Hop | None:
        """Unfolded, if it was folded."""
        if passage in self._hops or passage not in self._opened:
            return self._hops.get(passage)
        dealt = self._opened.dealt(passage)
        hop = self._new(passage, dealt[0].publisher)
        for kept in dealt:
            hop.take(Portion.decode(kept.portion.reveal()), kept.advertisement, now)
        self._hops[passage] = hop
        self._fold(self._opened.unfold(passage))
        return hop

    def _fold(self, passages: list[Passage]) -> None:
        for passage in passages:
            del self._hops[passage]

    def _listen(self, passage: Passage, hop: Hop, now: int) -> list[Outgoing]:
        """To what was said before the hop had begun; first to what shows that it has."""
        sent: list[Outgoing] = []
        for author, (spoken, said) in sorted(self._words.take(passage), key=lambda kept: kept[1][1].root is None):
            if hop.begun or said.root is not None:
                sent += self._hear(hop, spoken, said, author, now, strict=False)
            else:
                self._words.put(passage, author, (spoken, said), len(spoken.word), now)
        return sent

    # --- words --------------------------------------------------------------------------------------------------------

    def spoken(self, message: Spoken, source: Place, now: int) -> list[Outgoing]:
        """From another replica of our node."""
        said = Said.decode(message.word)
        place, author = self._our_place(said.new), self._roster.find(said.new, self._roster.key(source))
        if author is None or author == place or said.old.node != message.node:
            raise ForgedError("a word of nobody who has one")
        passage: Passage = (Origin(message.key, message.attempt), said.old, said.new)
        hop = self._hops.get(passage) if said.root is None else self._hop(passage, now)
        if hop is not None and (hop.begun or said.root is not None):
            sent = self._hear(hop, message, said, author, now, strict=True)
            return sent + self._listen(passage, hop, now) + self._moved(passage, now)
        if not self._is_over(passage, now):
            self._words.put(passage, author, (message, said), len(message.word), now)
        return []

    def disputed(self, message: Disputed, source: Place, now: int) -> list[Outgoing]:
        """From a replica that we dealt to."""
        origin = Origin(message.key, message.attempt)
        return [
            outgoing
            for passage in list(self._by_origin.get(origin, ()))
            if passage in self._handing
            for outgoing in self._handing[passage].disputed(message, source, now)
        ]

    def taken(self, message: Taken, source: Place, now: int) -> list[Outgoing]:
        """From a replica that we dealt to: it has its share."""
        for passage in list(self._by_origin.get(Origin(message.key, message.attempt), ())):
            if passage in self._handing:
                self._handing[passage].taken(message, source)
                self._moved(passage, now)
        return []

    def _hear(self, hop: Hop, spoken: Spoken, said: Said, author: Place, now: int, *, strict: bool) -> list[Outgoing]:
        try:
            return hop.hear(spoken.flood, said, author, now)
        except (ForgedError, MalformedError):
            self._suspicions.accuse(author, Reason.WORD)
            if strict:
                # What came before it in the same message may have changed what is due.
                self._alarms.set((hop.origin, hop.old, hop.place.scheme), now)
                raise
            return []
        except RemoteError:
            if strict:
                raise
            return []  # Others may be waiting behind it.

    # --- time ---------------------------------------------------------------------------------------------------------

    def handle(self, now: int) -> list[Outgoing]:
        sent: list[Outgoing] = []
        for passage in self._alarms.due(now):
            if passage in self._hops:
                sent += self._hops[passage].handle(now)
            if passage in self._handing:
                self._handing[passage].handle(now)
            try:
                sent += self._moved(passage, now)
            except ExcessError:
                continue  # It is over, for want of room.
        self._portions.expire(now)
        self._words.expire(now)
        return sent

    def next_us(self) -> int | None:
        return self._alarms.next_us()

    def _moved(self, passage: Passage, now: int) -> list[Outgoing]:
        """Something has changed: hand on what is ours now, and set the next alarm, or none."""
        sent: list[Outgoing] = []
        hop, handing = self._hops.get(passage), self._handing.get(passage)
        if hop is None and passage in self._opened:
            self._alarms.set(passage, self._until[passage])
            if self._until[passage] <= now:
                self._forget(passage)
            return sent
        if hop is not None and hop.begun and passage in self._opened:
            self._opened.leave(passage)
            try:
                self._room.enter(passage, hop.publisher, now)
            except ExcessError:
                self._drop(passage, now)
                raise
        if hop is not None:
            if hop.holding is not None and handing is None and hop.advertisement is not None:
                taken = Taken(hop.origin.key, hop.origin.attempt)
                sent += [Outgoing(holder, taken) for holder in replicas(hop.old)]
                sent += self._hold(passage, hop.holding, hop.advertisement, now)
                hop.holding = None
                handing = self._handing.get(passage)
            if hop.over_us is not None:
                self._until[passage] = hop.over_us
            if self._until[passage] <= now and not hop.begun:
                self._forget(passage)
                return sent
            if self._until[passage] <= now:
                self._suspicions.accuse_all(hop.two_dealings, Reason.TWO_DEALINGS)
                self._suspicions.accuse_all(hop.two_words, Reason.TWO_WORDS)
                del self._hops[passage], self._until[passage]
                hop = None
        if handing is not None and not len(handing):
            del self._handing[passage]
            handing = None
        if hop is None and handing is None:
            self._drop(passage, now)
            return sent
        times = [handing.next_us() if handing else None]
        times += [hop.next_us(), self._until[passage]] if hop else []
        self._alarms.set(passage, min(time for time in times if time is not None))
        return sent

    # --- passages -----------------------------------------------------------------------------------------------------

    def _hold(self, passage: Passage, holding: Holding, advertisement: bytes, now: int) -> list[Outgoing]:
        """Our share is there: hand it on, and keep nothing of it."""
        handing = Handing(advertisement, self._routes, self._roster, self._strikes, self._config.bound_us)
        try:
            branches = self._routes.readers(advertisement) if self._is_news(passage, now) else ()
        except StaleError:
            branches = ()
        sent = handing.hand_on(holding, branches, self._signing, self._entropy, now)
        self._handing[passage] = handing
        self._by_origin.setdefault(passage[0], {})[passage] = None
        return sent + (self._moved(passage, now) if passage not in self._hops else [])

    def _is_news(self, passage: Passage, now: int) -> bool:
        """A key can come two ways: a publisher that lies brings it to us and to a node before us; or holders go over to
        another scheme, and with a liar both have enough. Who deals twice under one name looks like a liar."""
        while self._dealt and (first := next(iter(self._dealt.items())))[1] <= now:
            del self._dealt[first[0]]
        origin, _, ours = passage
        if (origin, ours) in self._dealt or len(self._dealt) >= 2 * self._config.done_max:
            return False
        # As long as what comes of it is on its way, or remembered, at the next node.
        self._dealt[origin, ours] = now + _REMEMBERED * self._config.hold_us
        return True

    def _is_over(self, passage: Passage, now: int) -> bool:
        return self._room.is_past(passage, now) or self._shunned.has(passage, now)

    def _enter(self, passage: Passage, publisher: bytes, now: int, *, quiet: bool) -> None:
        if quiet:
            self._room.shun(passage, publisher, now)
            raise StaleError("we may have seen this before, in an earlier life")
        if passage in self._handing:
            raise StaleError("this has been handed on already")
        self._room.enter(passage, publisher, now)

    def _forget(self, passage: Passage) -> None:
        """It has not begun, so we have said nothing of it: it may still come."""
        self._opened.leave(passage)
        self._hops.pop(passage, None)
        del self._until[passage]
        self._alarms.drop(passage)

    def _drop(self, passage: Passage, now: int) -> None:
        """It is over, whatever came of it."""
        hop = self._hops.pop(passage, None)
        self._until.pop(passage, None)
        self._alarms.drop(passage)
        self._room.leave(passage, now)
        self._room.shun(passage, hop.publisher if hop else b"", now)
        of_origin = self._by_origin.get(passage[0], {})
        of_origin.pop(passage, None)
        if not of_origin:
            self._by_origin.pop(passage[0], None)

    def _publisher(self, advertisement: bytes, source: Peer) -> bytes:
        if not is_from(source, self._routes.came_from(advertisement)):
            raise ForgedError("a share for an advertisement that came another way")
        return self._routes.publisher(advertisement)

    def _our_place(self, scheme: Scheme) -> Place:
        for place in self._routes.places():
            if place.scheme == scheme:
                return place
        raise StaleError("a share for a scheme of which we are none")


_REMEMBERED: Final = 2
_STRIKES_KEPT: Final = 5
"""Ten minutes, as a rule."""
ABSENCES_MAX: Final = 4_096
_WORDS: Final = 6
"""In a hop, besides what is passed on in each round but the first, of attendance and of settling."""
_WORD: Final = 1 << 11
"""What one of them takes, on average, in nodes of up to seven replicas, before portions are shown."""
_PORTION: Final = 512
"""More than the rest of a portion takes."""
_PORTION_MAX: Final = 1 << 12
"""More than all of it takes, between nodes of up to seventy replicas."""
