"""Routing tables: Figure 1, and an overlay that delivers by the definition, with fewer messages by covering."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilcast.brokers.routing import tables as tables_module
from veilcast.brokers.routing.claim_semantics import PlainPredicates
from veilcast.brokers.routing.covering import conforms, covers, overlaps
from veilcast.brokers.routing.tables import ID_MAX, RoutingTables, RoutingUpdate, TableEntry
from veilcast.errors import ExcessError, ForgedError, LocalError
from veilcast.machine import Address, Publication
from veilcast.topics import Conjunction, Label
from veilcast.topics.predicates import parse_predicates


def hop(name: object) -> Address:
    return Address(str(name))


class TableOverlay:
    """Brokers on a tree with their tables; their updates arrive at once, one after the other."""

    def __init__(self, links: list[tuple[str, str]]) -> None:
        ends: dict[str, list[Address]] = {}
        for one, other in links:
            ends.setdefault(one, []).append(hop(other))
            ends.setdefault(other, []).append(hop(one))
        self.brokers = {name: RoutingTables(neighbours, PlainPredicates()) for name, neighbours in ends.items()}
        self.sent = 0

    def do(self, broker: str, steps: list[RoutingUpdate[Conjunction]]) -> None:
        queue = deque((broker, step) for step in steps)
        while queue:
            at, (to, kind, id_, interest) = queue.popleft()
            self.sent += 1
            tables, source = self.brokers[to], hop(at)
            match kind:
                case "advertise" | "subscribe":
                    more = getattr(tables, kind)(id_, interest, source)
                case _:
                    more = getattr(tables, kind)(id_, source)
            queue.extend((to, step) for step in more)

    def publish(self, broker: str, client: str, publication: Publication) -> list[Address]:
        """The clients that it reaches, in order; each broker sees it once, as the overlay is a tree."""
        reached, waiting = [], [(broker, hop(client))]
        while waiting:
            at, source = waiting.pop()
            for to in self.brokers[at].route(publication, source):
                if to in self.brokers:
                    waiting.append((to, hop(at)))
                else:
                    reached.append(to)
        return sorted(reached)


M1 = parse_predicates("[class,=,bar],[price,>,0]")
M2 = parse_predicates("[class,=,bar],[price,>,50]")
M3 = Publication((("class", "bar"), ("price", 60)))


def test_fig_1_a_subscription_goes_back_along_the_advertisement_and_publications_along_the_subscription() -> None:
    overlay = TableOverlay([("B1", "B2"), ("B1", "B3")])
    overlay.do("B1", overlay.brokers["B1"].advertise(b"M1", M1, hop("P1")))
    assert {name: broker.srt for name, broker in overlay.brokers.items()} == {
        "B1": {b"M1": TableEntry(M1, hop("P1"))},
        "B2": {b"M1": TableEntry(M1, hop("B1"))},
        "B3": {b"M1": TableEntry(M1, hop("B1"))},
    }
    overlay.do("B3", overlay.brokers["B3"].subscribe(b"M2", M2, hop("S1")))
    assert {name: broker.prt for name, broker in overlay.brokers.items()} == {
        "B1": {b"M2": TableEntry(M2, hop("B3"))},
        "B2": {},
        "B3": {b"M2": TableEntry(M2, hop("S1"))},
    }
    assert overlay.brokers["B1"].route(M3, hop("P1")) == ["B3"]
    assert overlay.publish("B1", "P1", M3) == ["S1"]
    assert overlay.publish("B1", "P1", Publication((("class", "bar"), ("price", 40)))) == []


def test_a_subscription_before_the_advertisement_is_routed_too() -> None:
    overlay = TableOverlay([("B1", "B2"), ("B2", "B3")])
    overlay.do("B3", overlay.brokers["B3"].subscribe(b"M2", M2, hop("S1")))
    overlay.do("B1", overlay.brokers["B1"].advertise(b"M1", M1, hop("P1")))
    assert overlay.publish("B1", "P1", M3) == ["S1"]


def test_a_covered_claim_is_not_sent_until_its_cover_is_withdrawn() -> None:
    broker = RoutingTables([hop("up"), hop("down")], PlainPredicates())
    broker.advertise(b"a", M1, hop("up"))
    wide, narrow = parse_predicates("[price,>,10]"), parse_predicates("[price,>,50]")
    assert broker.subscribe(b"wide", wide, hop("c1")) == [RoutingUpdate(hop("up"), "subscribe", b"wide", wide)]
    assert broker.subscribe(b"narrow", narrow, hop("c2")) == []
    assert broker.unsubscribe(b"wide", hop("c1")) == [
        RoutingUpdate(hop("up"), "subscribe", b"narrow", narrow),
        RoutingUpdate(hop("up"), "unsubscribe", b"wide", wide),
    ]
    assert broker.subscribe(b"wide", wide, hop("c1")) == [
        RoutingUpdate(hop("up"), "subscribe", b"wide", wide),
        RoutingUpdate(hop("up"), "unsubscribe", b"narrow", narrow),
    ]


def test_equal_subscriptions_are_sent_once() -> None:
    broker = RoutingTables([hop("up")], PlainPredicates())
    broker.advertise(b"a", M1, hop("up"))
    assert len(broker.subscribe(b"one", M2, hop("c1"))) == 1
    assert broker.subscribe(b"two", M2, hop("c2")) == []
    assert broker.subscribe(b"two", M2, hop("c2")) == []
    assert [step.kind for step in broker.unsubscribe(b"one", hop("c1"))] == ["subscribe", "unsubscribe"]


def test_only_advertised_publications_are_routed() -> None:
    broker = RoutingTables([hop("up")], PlainPredicates())
    broker.advertise(b"a", M1, hop("up"))
    with pytest.raises(ForgedError):
        broker.route(M3, hop("elsewhere"))


def test_no_hop_ends_a_foreign_claim_or_takes_its_id() -> None:
    broker = RoutingTables([hop("up")], PlainPredicates())
    broker.subscribe(b"s", M2, hop("c1"))
    with pytest.raises(ForgedError):
        broker.unsubscribe(b"s", hop("c2"))
    with pytest.raises(ForgedError):
        broker.subscribe(b"s", M1, hop("c1"))
    assert broker.unsubscribe(b"unknown", hop("c1")) == []
    with pytest.raises(LocalError):
        broker.subscribe(b"s" * (ID_MAX + 1), M2, hop("c1"))


def test_tables_are_bounded_per_hop_and_in_total() -> None:
    broker = RoutingTables([hop("up")], PlainPredicates(), most=3, most_of_one=2)
    broker.subscribe(b"1", M2, hop("c1"))
    broker.subscribe(b"2", M2, hop("c1"))
    with pytest.raises(ExcessError):
        broker.subscribe(b"3", M2, hop("c1"))
    broker.subscribe(b"3", M2, hop("c2"))
    with pytest.raises(ExcessError):
        broker.subscribe(b"4", M2, hop("c2"))
    broker.drop_hop(hop("c1"))
    broker.subscribe(b"4", M2, hop("c2"))
    assert set(broker.prt) == {b"3", b"4"}
    with pytest.raises(LocalError):
        RoutingTables([], PlainPredicates(), most=1, most_of_one=2)


# --- random overlays against the definition ---------------------------------------------------------------------------

INTERESTS = [
    parse_predicates(text)
    for text in (
        "[a,=,x]", "[a,=,y]", "[p,>,0]", "[p,>,1]", "[p,>,2]", "[p,<,2]", "[p,>=,1],[p,<=,2]", "[a,=,x],[p,>,1]",
        "[a,=,x],[p,>,0]", "[a,=,y],[p,<,2]",
    )
]  # fmt: skip
PUBLICATIONS = [
    *(Publication((("a", a), ("p", p))) for a in "xy" for p in (0.5, 1, 1.5, 3)),
    Publication((("a", "x"),)),
    Publication((("p", 2),)),
]


class RandomClients:
    """Clients of random brokers come and go; the expected state is kept beside."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        names = [f"B{at}" for at in range(self.rng.randint(2, 7))]
        links = [(names[at], names[self.rng.randrange(at)]) for at in range(1, len(names))]
        self.overlay = TableOverlay(links)
        self.advertised: dict[bytes, tuple[str, Conjunction]] = {}
        self.wanted: dict[bytes, tuple[str, Conjunction]] = {}
        self.count = 0

    def step(self) -> None:
        broker = self.rng.choice(list(self.overlay.brokers))
        tables = self.overlay.brokers[broker]
        roll = self.rng.random()
        if roll < 0.35:
            self.count += 1
            id_, interest = b"s%d" % self.count, self.rng.choice(INTERESTS)
            self.wanted[id_] = (broker, interest)
            self.overlay.do(broker, tables.subscribe(id_, interest, hop(id_)))
        elif roll < 0.6:
            self.count += 1
            id_, interest = b"a%d" % self.count, self.rng.choice(INTERESTS)
            self.advertised[id_] = (broker, interest)
            self.overlay.do(broker, tables.advertise(id_, interest, hop(id_)))
        elif roll < 0.85 and self.wanted:
            id_ = self.rng.choice(list(self.wanted))
            broker, _ = self.wanted.pop(id_)
            self.overlay.do(broker, self.overlay.brokers[broker].unsubscribe(id_, hop(id_)))
        elif self.advertised:
            id_ = self.rng.choice(list(self.advertised))
            broker, _ = self.advertised.pop(id_)
            self.overlay.do(broker, self.overlay.brokers[broker].unadvertise(id_, hop(id_)))

    def check(self) -> None:
        for id_, (broker, advertisement) in self.advertised.items():
            for publication in PUBLICATIONS:
                if conforms(publication, advertisement):
                    expected = sorted(hop(s) for s, (_, wanted) in self.wanted.items() if wanted.matches(publication))
                    assert self.overlay.publish(broker, str(id_), publication) == expected

    def check_frontiers(self) -> None:
        """The sent claims cover all that a neighbour should know, and none of them covers another."""
        for tables in self.overlay.brokers.values():
            for to, frontier in tables._subscriptions_sent.items():
                sent = [tables.prt[id_].interest for id_ in frontier.sent]
                for entry in tables.prt.values():
                    drawn = any(overlaps(a.interest, entry.interest) for a in tables.srt.values() if a.hop == to)
                    if entry.hop != to and drawn:
                        assert any(covers(each, entry.interest) for each in sent)
                assert not any(covers(a, b) for a in sent for b in sent if a is not b and a != b)


@given(st.integers(0, 2**32))
@settings(max_examples=20)
def test_every_subscriber_gets_exactly_its_matches_while_others_come_and_go(seed: int) -> None:
    clients = RandomClients(seed)
    for _ in range(25):
        clients.step()
    clients.check()
    clients.check_frontiers()


@given(st.integers(0, 2**32))
@settings(max_examples=10)
def test_nothing_is_left_when_all_claims_have_ended(seed: int) -> None:
    clients = RandomClients(seed)
    for _ in range(20):
        clients.step()
    for id_, (broker, _) in [*clients.wanted.items(), *clients.advertised.items()]:
        clients.overlay.do(broker, clients.overlay.brokers[broker].drop_hop(hop(id_)))
    for tables in clients.overlay.brokers.values():
        assert tables.srt == tables.prt == {}
        assert not any(
            f._of or f._subjects for f in [*tables._subscriptions_sent.values(), *tables._advertisements_sent.values()]
        )


def test_covering_sends_less() -> None:
    def sent(interests: Sequence[Conjunction]) -> int:
        overlay = TableOverlay(list(pairwise([f"B{at}" for at in range(6)])))
        overlay.do("B0", overlay.brokers["B0"].advertise(b"a", M1, hop("P")))
        overlay.sent = 0
        for at, interest in enumerate(interests):
            overlay.do("B5", overlay.brokers["B5"].subscribe(b"%d" % at, interest, hop(at)))
        return overlay.sent

    nested = [parse_predicates(f"[price,>,{low}]") for low in range(10)]
    assert sent(nested) == 5
    assert sent([parse_predicates(f"[price,=,{value}]") for value in range(1, 11)]) == 50


@pytest.mark.parametrize("bug", ["covers_all", "withdraw_first"])
def test_the_check_catches_a_planted_bug(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if bug == "covers_all":
        monkeypatch.setattr(PlainPredicates, "covers", lambda self, s, t: True)
    else:
        monkeypatch.setattr(tables_module._Frontier, "remove", forgetful(tables_module._Frontier.remove))
    with pytest.raises(AssertionError):
        live_through(range(30))


def live_through(seeds: range) -> None:
    for seed in seeds:
        clients = RandomClients(seed)
        for _ in range(25):
            clients.step()
        clients.check()


def forgetful(remove: Callable[..., list[tuple[bool, bytes, Conjunction]]]) -> Callable[..., object]:
    """A broker that withdraws an ended claim without sending what it covered."""
    return lambda frontier, id_: [move for move in remove(frontier, id_) if not move[0]]


def test_a_label_is_an_ordinary_subscription() -> None:
    overlay = TableOverlay([("B1", "B2")])
    overlay.do("B1", overlay.brokers["B1"].advertise(b"a", Label("news"), hop("P")))
    overlay.do("B2", overlay.brokers["B2"].subscribe(b"s", Label("news"), hop("S")))
    assert overlay.publish("B1", "P", Publication((Label("news").pair,))) == ["S"]
