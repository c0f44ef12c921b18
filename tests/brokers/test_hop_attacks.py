"""Liars, one at every node, who know all rules of a hop: no key is stopped or read, and nobody honest is named."""

from __future__ import annotations

from heapq import heappush

import msgspec
import pytest

from support.forging import Steady, brief, forged_share, level, root_of, unpicked
from support.lies import ANY, curious, drop, say, without
from support.overlays import ADVERT, PUBLISHER, Liar, Pool, Script, U, World, passed, scheme, signing
from veilcast.brokers.routes import Outgoing, Peer
from veilcast.brokers.said import Said
from veilcast.brokers.sharing.flooding import Vouched
from veilcast.brokers.sharing.redistribution import Header, Portion
from veilcast.brokers.sharing.scheme import Place
from veilcast.crypto.dealing import Share
from veilcast.crypto.group import Scalar
from veilcast.wire.brokers import Flood, LastShare, NextShare, Spoken, Taken
from veilcast.wire.messages import Message


def at(hop: int, index: int) -> Place:
    return Place(scheme(hop), index)


def headers_of(liar: Liar, key: bytes) -> list[Header]:
    """What holders signed that it was dealt of this key."""
    dealt = [Portion.decode(message.share).header for message, _ in liar.heard if isinstance(message, NextShare)]
    return list({header.holder: header for header in dealt if header.origin.key == key}.values())


def passes_on_nothing(liar: Liar, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
    """Says its own words, and none of others."""
    message = outgoing.message
    others = isinstance(message, Spoken) and any(word.author != 1 for word in Said.decode(message.word).words)
    return [] if others else [(0, outgoing)]


LATER = b"l" * 16
"""An advertisement that is not known at first."""

DENY = say(lambda table, to: without(table, 2))
"""Says that it lacks what holder 2 dealt, so that the hop takes as long as it can."""


@pytest.mark.parametrize("attempts", [3])
def test_who_deals_long_before_all_others_makes_nobody_give_up(attempts: int) -> None:
    """The last liar but one needs no share for it: the publisher's word is enough. The liars before it hold up every
    hop, and the last one is silent, so that each honest replica of its node is needed."""
    world = World(5, 3, {(1, 1): curious} | {(hop, 1): DENY for hop in (2, 3, 4)} | {(5, 1): drop(*ANY)})
    (key,) = unpicked(1)
    for attempt in range(attempts):
        origin = world.deal(attempt, key=key)
        world.send(at(4, 1), forged_share(root_of(world, origin), at(4, 1), at(5, 3)))
        world.run(150 * U)
        assert passed(world, origin)
    assert (5, 2) not in world.named()
    assert (5, 3) not in world.named()
    assert not level(world, (5, 2), (5, 3))


def repeat(world: World, key: bytes, victim: Place) -> None:
    """The liar of node 1 deals again what it dealt once, and that of node 2 shows that the hop had begun."""
    dealt = [m for m, *ends in world.shares if isinstance(m, NextShare) and ends == [at(1, 1), victim]]
    again = next(message for message in dealt if Portion.decode(message.share).header.origin.key == key)
    world.send(at(1, 1), Outgoing(victim, again))
    liar = world.replicas[at(2, 1)]
    assert isinstance(liar, Liar)
    headers = headers_of(liar, key)
    root = Portion.decode(again.share).root
    said = Said(scheme(1), scheme(2), (), root, tuple(headers), True)
    world.send(at(2, 1), Outgoing(victim, Spoken(key, 0, scheme(1).node, Flood.ATTENDANCE, said.encode())), U)


def test_what_was_dealt_long_ago_begins_nothing_so_nobody_says_two_things_of_it() -> None:
    world = World(2, 3, {(1, 1): curious, (2, 1): curious})
    origin = world.deal()
    world.run(450 * U)
    assert passed(world, origin)
    liar = world.replicas[at(2, 1)]
    assert isinstance(liar, Liar)
    old = [message for message, source in liar.heard if isinstance(message, Spoken) and source == at(2, 2)]
    repeat(world, origin.key, at(2, 2))
    repeat(world, origin.key, at(2, 3))
    for message in old:
        world.send(at(2, 1), Outgoing(at(2, 3), message))
    world.run(100 * U)
    assert world.named() == []
    assert all(replica.passing.sizes()["hops"] == 0 for replica in world.honest)


def test_old_keys_that_are_repeated_fill_no_room() -> None:
    world = World(2, 3, {(1, 1): curious, (2, 1): curious}, keys_max=16)
    *old, new = unpicked(5)
    for key in old:
        world.deal(key=key)
        world.run(60 * U)
    world.run(450 * U)
    for key in old:
        repeat(world, key, at(2, 3))
    world.run(3 * U)
    assert world.replicas[at(2, 3)].passing.sizes()["passages"] == 0
    origin = world.deal(key=new)
    world.run(100 * U)
    assert passed(world, origin)
    assert not level(world, (2, 2), (2, 3))


def test_a_key_is_fresh_while_its_passage_is_remembered() -> None:
    """Else there would be a time in which it could pass again."""
    world = World(2, 3, {(1, 1): curious, (2, 1): curious})
    origin = world.deal()
    for _ in range(60):
        world.run(10 * U)
        repeat(world, origin.key, at(2, 2))
    world.run(100 * U)
    assert world.named() == []
    assert world.messages["Disputed"] == 0


def test_what_is_due_is_said_although_a_word_comes_that_does_not_hold() -> None:
    """Holder 1 leaves out replica 2, and shows nothing to replica 3, to which its own liar says nothing of others. A
    spoilt word comes to replica 2 just when it has to say what it has."""

    def leaves_out(liar: Liar, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        if isinstance(outgoing.message, NextShare) and isinstance(outgoing.to, Place):
            index = Portion.decode(outgoing.message.share).share.index
            return [] if outgoing.to == at(2, 2) or index != outgoing.to.index else [(0, outgoing)]
        return [(0, outgoing)]

    world = World(2, 3, {(1, 1): leaves_out, (2, 1): passes_on_nothing})
    world.rng = Steady()  # type: ignore[assignment]
    (key,) = unpicked(1)
    origin = world.deal(key=key)
    world.run(U)
    way = world.replicas[at(2, 2)].passing._redistributing
    assert way is not None
    (hop,) = way._hops.values()
    assert hop._begun is not None
    spoilt = Said(scheme(1), scheme(2), (Vouched(1, b"x", bytes(64)),)).encode()
    word = Spoken(key, 0, scheme(1).node, Flood.ATTENDANCE, spoilt)
    heappush(world._queue, (hop._begun + 4 * U, -1, at(2, 1), at(2, 2), word))
    world.run(60 * U)
    assert passed(world, origin)
    assert set(world.named()) <= {(1, 1), (2, 1)}
    assert not level(world, (2, 3), (2, 2))


def test_what_is_due_is_said_although_an_advertisement_comes_for_a_portion_that_does_not_hold() -> None:
    """Holder 1 has left a spoilt portion with replica 2, for an advertisement that becomes known just when the replica
    has to say what it has. Its word must not be lost with the portion: the node's own liar says nothing."""

    def spoils(liar: Liar, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        if not isinstance(outgoing.message, NextShare):
            return [(0, outgoing)]
        if outgoing.to != at(2, 2):
            return []
        portion = Portion.decode(outgoing.message.share)
        share = Share(portion.share.index, portion.share.value + Scalar.of(1), portion.share.blinding)
        spoilt = Portion(portion.root, portion.header, share).encode().reveal()
        return [(0, Outgoing(at(2, 2), NextShare(LATER, spoilt)))]

    world = World(2, 3, {(1, 1): spoils, (2, 1): drop(*ANY)})
    world.rng = Steady()  # type: ignore[assignment]
    (key,) = unpicked(1)
    origin = world.deal(key=key)
    world.run(U)
    replica = world.replicas[at(2, 2)]
    way = replica.passing._redistributing
    assert way is not None
    (hop,) = way._hops.values()
    assert hop._begun is not None
    due = hop._begun + 4 * U
    world.run(due - 1 - world.now)
    world.now = due
    replica.routes.others[LATER] = PUBLISHER.public
    replica.passing.advertised(LATER, due)
    assert any(isinstance(outgoing.message, Spoken) for outgoing in replica.passing.outbox)
    world.run(60 * U)
    assert passed(world, origin)
    assert world.named() == [(1, 1)]


def test_who_does_without_an_honest_holder_still_has_enough_to_go_on_with() -> None:
    """The liar of node 2 acknowledged nothing once, and denied what holder 2 dealt, who got the benefit of the doubt;
    since then all do without holder 2. The liar of node 1 deals shares of a sharing that never was."""
    lying: list[bool] = []

    def denies(liar: Liar, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        if lying:
            return [(0, outgoing)]
        return [] if isinstance(outgoing.message, Taken | LastShare) else DENY(liar, outgoing, now)

    def forges(liar: Liar, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        if not lying or not isinstance(outgoing.message, NextShare) or not isinstance(outgoing.to, Place):
            return [(0, outgoing)]
        root = Portion.decode(outgoing.message.share).root
        return [(0, forged_share(root, at(1, 1), outgoing.to))]

    world = World(2, 3, {(1, 1): forges, (2, 1): denies})
    world.deaf = [at(2, 1)]
    first, *later = unpicked(6)
    world.deal(key=first)
    world.run(60 * U)
    assert level(world, (2, 2), (1, 2)) == level(world, (2, 3), (1, 2)) == 1
    does_without(world, at(2, 1), signing(1, 2).public)
    world.deaf = []
    lying.append(True)
    for key in later:
        origin = world.deal(key=key)
        world.run(40 * U)
        assert passed(world, origin)


def test_two_honest_replicas_that_missed_one_another_once_are_not_played_off_against_each_other() -> None:
    """The link between them stalled, with one key. With the next, liars have one of them done by what it says without
    the other so late that its portion is asked for at the next node, when it has come to one honest replica there."""
    one, other, liar_between = at(2, 2), at(2, 3), at(2, 1)
    lying: list[bytes] = []

    def late(liar: Liar, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        held = lying and isinstance(outgoing.message, NextShare) and outgoing.to == other
        return [(U * 385 // 100 if held else 0, outgoing)]

    def two_sided(liar: Liar, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        if not lying:
            return passes_on_nothing(liar, outgoing, now)
        sent = [] if isinstance(outgoing.message, Spoken) and outgoing.to == other else [(0, outgoing)]
        headers = headers_of(liar, lying[0])
        if len(headers) == 3 and "said" not in liar.memory:
            liar.memory["said"] = True
            sent.append((0, Outgoing(other, brief(liar.world, liar_between, headers[0].origin, headers, (2,)))))
        return sent

    world = World(3, 3, {(1, 1): late, (2, 1): two_sided, (3, 1): curious})
    world.rng = Steady()  # type: ignore[assignment]
    first, second, third = unpicked(3)
    world.slow = lambda source, to, message: (
        40 * U if isinstance(message, Spoken) and {source, to} == {one, other} else 0
    )
    assert passed_by(world, first, 60)
    assert level(world, (2, 2), (2, 3)) == level(world, (2, 3), (2, 2)) == 1

    def slow(source: Peer, to: Peer, message: Message) -> int:
        """Within the bound."""
        if not isinstance(message, NextShare) or not isinstance(source, Place) or not isinstance(to, Place):
            return 0
        held = to.index == 2 if source == other else to.index != 2
        return U * 7 // 10 if held and to.scheme == scheme(3) else 0

    world.slow = slow
    does_without(world, liar_between, signing(2, 3).public)
    lying.append(second)
    assert passed_by(world, second, 100)
    assert not Pool(world).reconstructs()
    assert set(world.named()) <= {(2, 1)}
    assert passed_by(world, third, 100)
    assert level(world, (2, 2), (2, 3)) == level(world, (2, 3), (2, 2)) == 0, "who speaks in time is waited for again"


def does_without(world: World, liar: Place, whom: bytes) -> None:
    """A liar goes along with those who do."""
    way = world.replicas[liar].passing._redistributing
    assert way is not None
    way._absences.missed(PUBLISHER.public, whom, 0)


def passed_by(world: World, key: bytes, units: int) -> bool:
    origin = world.deal(key=key)
    world.run(units * U)
    return passed(world, origin)


@pytest.mark.parametrize("known", [False, True])
def test_a_hop_that_outlives_its_scheme_ends_nobody(known: bool) -> None:
    """Two orders for one node, one soon after the other."""
    silent: Script = drop(*ANY)
    world = World(2, 3, {(1, 1): silent})
    first, second = unpicked(2)
    if known:
        assert passed_by(world, first, 60)
    world.deal(key=second)
    world.run(U // 4)
    for version in (1, 2):
        world.roster.put(scheme(1, 3, version), [signing(1, index, version).public for index in (1, 2, 3)])
    world.run(60 * U)
    assert world.named() == []


def test_portions_that_are_shown_before_they_are_asked_for_are_checked_before_they_are_kept() -> None:
    world = World(2, 3, {(1, 1): drop(NextShare), (2, 1): drop(Spoken)})
    world.rng = Steady()  # type: ignore[assignment]
    (key,) = unpicked(1)
    origin = world.deal(key=key)
    world.run(5 * U)
    replica = world.replicas[at(2, 2)]
    way = replica.passing._redistributing
    assert way is not None
    (hop,) = way._hops.values()
    assert hop._receiving.attended
    long = bytes((1, 254)) + bytes(32 * 254)
    root = msgspec.structs.replace(root_of(world, origin), points=long)
    header = Header(origin, scheme(1), 1, scheme(2), long, long, bytes(64))
    for index in (1, 3, 4, 255):
        portion = Portion(root, header, Share(index, Scalar.of(1), Scalar.of(1)))
        replica.receive(NextShare(ADVERT, portion.encode().reveal()), at(1, 1), world.now)
    assert not hop._shown
    assert sum(replica.refused.values()) == 4


@pytest.mark.parametrize("early", [415, 420, 425])
def test_what_honest_ones_send_into_a_hop_that_a_liar_opened_early_is_not_lost_with_it(early: int) -> None:
    """The liar of node 4 deals to replica 3 of node 5 so long before the others, in tenths of a unit, that what it
    opened would be given up between what comes from honest ones; the liar of node 5 is silent."""

    def build() -> tuple[World, list[int]]:
        world = World(5, 3, {(1, 1): curious} | {(hop, 1): DENY for hop in (2, 3, 4)} | {(5, 1): drop(*ANY)})
        world.rng = Steady()  # type: ignore[assignment]
        dealt: list[int] = []

        def slow(source: Peer, to: Peer, message: Message) -> int:
            if not isinstance(message, NextShare) or not isinstance(to, Place) or to.scheme != scheme(5):
                return 0
            if source != at(4, 1):
                dealt.append(world.now)
            return U * 7 // 10 if to == at(5, 3) else 0

        world.slow = slow
        return world, dealt

    (key,) = unpicked(1)
    world, dealt = build()
    begun = world.now
    world.deal(key=key)
    world.run(150 * U)
    took = dealt[0] - begun
    world, _ = build()
    origin = world.deal(key=key)
    world.run(took - early * U // 10)
    world.send(at(4, 1), forged_share(root_of(world, origin), at(4, 1), at(5, 3)))
    world.run(150 * U)
    assert passed(world, origin)
    assert not level(world, (5, 2), (5, 3))


def test_a_key_that_grows_old_while_a_node_takes_it_is_taken_whole() -> None:
    """The publisher's clock is slow. Who refused one honest portion of what it had begun would say that it lacks it."""
    late, holder = at(3, 3), at(2, 2)
    (key,) = unpicked(1)
    for age in [U * tenths // 10 for tenths in range(2, 14)]:
        world = World(3, 3, {(hop, 1): curious for hop in (1, 2, 3)})
        world.rng = Steady()  # type: ignore[assignment]
        world.slow = lambda source, to, message: (
            U * 7 // 10 if isinstance(message, NextShare) and (source, to) == (holder, late) else 0
        )
        clock, world.now = world.now, world.now - world.config.hold_us + age
        world.deal(key=key)
        world._queue = [(when + clock - world.now, *rest) for when, *rest in world._queue]  # type: ignore[misc]
        world._last.clear()
        world.now = clock
        world.run(100 * U)
        assert not Pool(world).reconstructs()
        assert world.messages["Disputed"] == 0
        assert world.named() == []


def test_what_was_said_before_a_hop_had_begun_is_heard_as_soon_as_it_has() -> None:
    """One word waits, and the next one, of another, shows that the hop has begun."""
    world = World(2, 5)
    world.rng = Steady()  # type: ignore[assignment]
    late = Place(scheme(2, 5), 5)
    world.slow = lambda source, to, message: (
        3 * U if isinstance(message, NextShare) and to == late and source != Place(scheme(1, 5), 1) else 0
    )
    (key,) = unpicked(1)
    world.deal(key=key)
    way = world.replicas[late].passing._redistributing
    assert way is not None
    while not way._words:
        world.run(U // 20)
    (hop,) = way._hops.values()
    while hop._begun is None:
        world.run(U // 20)
    assert len(way._words) == 0
    world.run(60 * U)
    assert world.named() == []
