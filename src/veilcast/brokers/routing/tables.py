"""Routing tables of one broker: where a subscription goes, and where a publication goes (P4, Fig. 1).

Advertisements flow to every broker and form the subscription routing table: (advertisement, last hop). Subscriptions
flow back along it, to the last hops of the advertisements that they overlap, and form the publication routing table:
(subscription, last hop). A publication goes to the last hop of every subscription that it matches.

Covering, as in PADRES, saves messages: a neighbour gets only the subscriptions that no subscription sent to it covers,
and the same for advertisements. Covered claims are known here and not there.

Property: a neighbour never knows less than it needs.
Reason: when a covering claim ends, all claims that only it covered are sent before its withdrawal. A new claim is sent
before the claims that it covers are withdrawn.

The `MatchRules` define interests, publications and covering (`claim_semantics`), and the subject: only claims of one
subject are compared. Methods return the updates to send, in this order. The tables are bounded, per hop and in total.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, Literal, NamedTuple, TypeAlias

from veilcast.brokers.routing.claim_semantics import I, MatchRules, P
from veilcast.errors import ExcessError, ForgedError, LocalError
from veilcast.machine import Address

UpdateKind: TypeAlias = Literal["advertise", "unadvertise", "subscribe", "unsubscribe"]


class RoutingUpdate(NamedTuple, Generic[I]):
    """A message for a neighbour."""

    to: Address
    kind: UpdateKind
    id: bytes
    interest: I


class TableEntry(NamedTuple, Generic[I]):
    """A row: a claim, and the hop it came from."""

    interest: I
    hop: Address


class RoutingTables(Generic[I, P]):
    """The tables of a broker with these neighbours. Every other hop is a client's."""

    def __init__(
        self,
        neighbours: Sequence[Address],
        rules: MatchRules[I, P],
        *,
        most: int = 1 << 16,
        most_of_one: int = 1 << 14,
    ) -> None:
        if not 1 <= most_of_one <= most:
            raise LocalError("tables have room for something, and for no more of one hop than in all")
        self._neighbours, self._rules = tuple(neighbours), rules
        self._advertisements: _HopTable[I] = _HopTable(rules.subject, most, most_of_one)
        self._subscriptions: _HopTable[I] = _HopTable(rules.subject, most, most_of_one)
        covers_published, covers_subscribed = rules.covers_advertisement, rules.covers
        self._advertisements_sent: dict[Address, _Frontiers[I]] = {
            hop: _Frontiers(rules.subject, covers_published) for hop in neighbours
        }
        self._subscriptions_sent: dict[Address, _Frontiers[I]] = {
            hop: _Frontiers(rules.subject, covers_subscribed) for hop in neighbours
        }

    @property
    def srt(self) -> dict[bytes, TableEntry[I]]:
        """The subscription routing table: advertisements and their last hops."""
        return dict(self._advertisements.rows)

    @property
    def prt(self) -> dict[bytes, TableEntry[I]]:
        """The publication routing table: subscriptions and their last hops."""
        return dict(self._subscriptions.rows)

    def advertise(self, id_: bytes, advertisement: I, hop: Address) -> list[RoutingUpdate[I]]:
        """Forward to all other neighbours, and forward overlapping subscriptions to this hop."""
        if not self._advertisements.add(id_, TableEntry(advertisement, hop)):
            return []
        steps = [
            step
            for to in self._neighbours
            if to != hop
            for step in _make_updates(
                to, "advertise", "unadvertise", self._advertisements_sent[to].add(id_, advertisement)
            )
        ]
        for number, entry in self._subscriptions.rows_of_subject(advertisement).items():
            if (
                entry.hop != hop
                and hop in self._subscriptions_sent
                and self._rules.overlaps(advertisement, entry.interest)
            ):
                steps += _make_updates(
                    hop, "subscribe", "unsubscribe", self._subscriptions_sent[hop].add(number, entry.interest)
                )
        return steps

    def unadvertise(self, id_: bytes, hop: Address) -> list[RoutingUpdate[I]]:
        """Forward to the others. Subscriptions that went to this hop for this advertisement alone are withdrawn."""
        advertisement = self._advertisements.remove(id_, hop)
        if advertisement is None:
            return []
        steps = []
        if hop in self._subscriptions_sent:
            for number in self._subscriptions_sent[hop].wanted(advertisement):
                if not self._is_advertised(hop, self._subscriptions.rows[number].interest):
                    steps += _make_updates(
                        hop, "subscribe", "unsubscribe", self._subscriptions_sent[hop].remove(number)
                    )
        for to in self._neighbours:
            if to != hop:
                steps += _make_updates(to, "advertise", "unadvertise", self._advertisements_sent[to].remove(id_))
        return steps

    def subscribe(self, id_: bytes, subscription: I, hop: Address) -> list[RoutingUpdate[I]]:
        """Forward to the last hops of all overlapping advertisements, unless a covering subscription was sent there."""
        if not self._subscriptions.add(id_, TableEntry(subscription, hop)):
            return []
        return [
            step
            for to in self._neighbours
            if to != hop and self._is_advertised(to, subscription)
            for step in _make_updates(
                to, "subscribe", "unsubscribe", self._subscriptions_sent[to].add(id_, subscription)
            )
        ]

    def unsubscribe(self, id_: bytes, hop: Address) -> list[RoutingUpdate[I]]:
        """Send the subscriptions that only this one covered, then withdraw this one."""
        if self._subscriptions.remove(id_, hop) is None:
            return []
        return [
            step
            for to in self._neighbours
            for step in _make_updates(to, "subscribe", "unsubscribe", self._subscriptions_sent[to].remove(id_))
        ]

    def route(self, publication: P, hop: Address) -> list[Address]:
        """The hops that a publication from `hop` goes to, each once.

        `ForgedError` if it was not advertised on that hop: such a publication could not reach all subscribers anyway.
        """
        advertised = self._advertisements.rows_of_subject(publication).values()
        if not any(entry.hop == hop and self._rules.conforms(publication, entry.interest) for entry in advertised):
            raise ForgedError("a publication that was not advertised here")
        return self._matching_hops(publication, hop, lambda interest: self._rules.matches(publication, interest))

    def interested_hops(self, id_: bytes) -> list[Address]:
        """The hops with a subscription that overlaps this advertisement."""
        advertisement, hop = self._advertisements.rows[id_]
        return self._matching_hops(advertisement, hop, lambda interest: self._rules.overlaps(advertisement, interest))

    def overlapping_advertisements(self, id_: bytes) -> list[bytes]:
        """The advertisements that this subscription overlaps, except those of its own hop."""
        subscription, hop = self._subscriptions.rows[id_]
        return [
            number
            for number, entry in self._advertisements.rows_of_subject(subscription).items()
            if entry.hop != hop and self._rules.overlaps(entry.interest, subscription)
        ]

    def sent_to(self, hop: Address) -> list[bytes]:
        """The claims that a neighbour should know: advertisements first, then subscriptions."""
        return [*self._advertisements_sent[hop].sent, *self._subscriptions_sent[hop].sent]

    def drop_hop(self, hop: Address) -> list[RoutingUpdate[I]]:
        """End all claims of a hop: a client that is gone."""
        steps = []
        for id_, entry in self.prt.items():
            if entry.hop == hop:
                steps += self.unsubscribe(id_, hop)
        for id_, entry in self.srt.items():
            if entry.hop == hop:
                steps += self.unadvertise(id_, hop)
        return steps

    def _matching_hops(self, what: I | P, source: Address, is_wanted: Callable[[I], bool]) -> list[Address]:
        rows = self._subscriptions.rows_of_subject(what).values()
        return list(dict.fromkeys(entry.hop for entry in rows if entry.hop != source and is_wanted(entry.interest)))

    def _is_advertised(self, hop: Address, subscription: I) -> bool:
        return any(
            entry.hop == hop and self._rules.overlaps(entry.interest, subscription)
            for entry in self._advertisements.rows_of_subject(subscription).values()
        )


class _HopTable(Generic[I]):
    """Rows by id, bounded in total and per hop."""

    def __init__(self, subject: Callable[[Any], Hashable], most: int, most_of_one: int) -> None:
        self.rows: dict[bytes, TableEntry[I]] = {}
        self._subject = subject
        self._about: dict[Hashable, dict[bytes, TableEntry[I]]] = {}
        self._most, self._most_of_one = most, most_of_one
        self._of_hop: Counter[Address] = Counter()

    def add(self, id_: bytes, entry: TableEntry[I]) -> bool:
        """True if the row is new. A repeated row is ignored; a different row under the same id is an error."""
        if not 1 <= len(id_) <= ID_MAX:
            raise LocalError(f"an id has 1 to {ID_MAX} bytes")
        if id_ in self.rows:
            if self.rows[id_] != entry:
                raise ForgedError("something else has this id")
            return False
        if len(self.rows) >= self._most or self._of_hop[entry.hop] >= self._most_of_one:
            raise ExcessError("no more room in the table, or no more for this hop")
        self.rows[id_] = entry
        self._about.setdefault(self._subject(entry.interest), {})[id_] = entry
        self._of_hop[entry.hop] += 1
        return True

    def remove(self, id_: bytes, hop: Address) -> I | None:
        """Remove and return the claim, if it exists and belongs to this hop."""
        entry = self.rows.get(id_)
        if entry is None:
            return None
        if entry.hop != hop:
            raise ForgedError("another hop's, and not this one's to end")
        del self.rows[id_]
        subject = self._subject(entry.interest)
        del self._about[subject][id_]
        if not self._about[subject]:
            del self._about[subject]
        self._of_hop[hop] -= 1
        if not self._of_hop[hop]:
            del self._of_hop[hop]
        return entry.interest

    def rows_of_subject(self, what: object) -> Mapping[bytes, TableEntry[I]]:
        """All rows that can be related to this interest or publication."""
        return self._about.get(self._subject(what), {})


class _Frontiers(Generic[I]):
    """The claims that one neighbour should know, by subject."""

    def __init__(self, subject: Callable[[Any], Hashable], covering: Callable[[I, I], bool]) -> None:
        self._subject, self._covers = subject, covering
        self._of: dict[Hashable, _Frontier[I]] = {}
        self._subjects: dict[bytes, Hashable] = {}

    @property
    def sent(self) -> list[bytes]:
        return [id_ for frontier in self._of.values() for id_ in frontier.sent]

    def wanted(self, what: I) -> list[bytes]:
        """The claims with the same subject."""
        frontier = self._of.get(self._subject(what))
        return [] if frontier is None else frontier.wanted

    def add(self, id_: bytes, interest: I) -> list[tuple[bool, bytes, I]]:
        subject = self._subjects.setdefault(id_, self._subject(interest))
        if subject not in self._of:
            self._of[subject] = _Frontier(self._covers)
        return self._of[subject].add(id_, interest)

    def remove(self, id_: bytes) -> list[tuple[bool, bytes, I]]:
        if id_ not in self._subjects:
            return []
        subject = self._subjects.pop(id_)
        frontier = self._of[subject]
        moves = frontier.remove(id_)
        if not frontier.wanted:
            del self._of[subject]
        return moves


class _Frontier(Generic[I]):
    """The claims of a subject that one neighbour should know, and the sent part of them, which covers the rest."""

    def __init__(self, covering: Callable[[I, I], bool]) -> None:
        self._covers = covering
        self._claims: dict[bytes, I] = {}
        self._sent: dict[bytes, None] = {}

    @property
    def wanted(self) -> list[bytes]:
        return list(self._claims)

    @property
    def sent(self) -> list[bytes]:
        return list(self._sent)

    def add(self, id_: bytes, interest: I) -> list[tuple[bool, bytes, I]]:
        """The claims to send (True), then to withdraw (False)."""
        if id_ in self._claims:
            return []
        self._claims[id_] = interest
        return self._raise([id_])

    def remove(self, id_: bytes) -> list[tuple[bool, bytes, I]]:
        interest = self._claims.pop(id_, None)
        if interest is None or id_ not in self._sent:
            return []
        del self._sent[id_]
        bared = [
            other
            for other, wanted in self._claims.items()
            if other not in self._sent and self._covers(interest, wanted)
        ]
        return [*self._raise(bared), (False, id_, interest)]

    def _raise(self, candidates: Iterable[bytes]) -> list[tuple[bool, bytes, I]]:
        """Send the candidates that no sent claim covers; withdraw what they cover. Send nothing that would be withdrawn
        at once."""
        before = dict(self._sent)
        for id_ in candidates:
            interest = self._claims[id_]
            if not any(self._covers(self._claims[other], interest) for other in self._sent):
                self._sent = {other: None for other in self._sent if not self._covers(interest, self._claims[other])}
                self._sent[id_] = None
        return [(True, id_, self._claims[id_]) for id_ in self._sent if id_ not in before] + [
            (False, id_, self._claims[id_]) for id_ in before if id_ not in self._sent
        ]


def _make_updates(
    to: Address, send: UpdateKind, withdraw: UpdateKind, moves: Iterable[tuple[bool, bytes, I]]
) -> list[RoutingUpdate[I]]:
    return [RoutingUpdate(to, send if sent else withdraw, id_, interest) for sent, id_, interest in moves]


ID_MAX: Final = 64
