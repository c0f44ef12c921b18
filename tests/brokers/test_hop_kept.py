"""Nodes of five: what has come for a hop before it begins, portions or words, is kept until it does."""

from __future__ import annotations

import random
from functools import cache

import pytest

from support.forging import Steady, root_of, unpicked
from support.lies import both, curious, drop, say, without
from support.overlays import ADVERT, Script, U, World, passed, scheme, signing
from veilcast.brokers.redistributing import Redistributing
from veilcast.brokers.routes import Outgoing, Peer
from veilcast.brokers.said import Said
from veilcast.brokers.sharing.flooding import Vouched
from veilcast.brokers.sharing.redistribution import Holding, Portion, Root, hand_on
from veilcast.brokers.sharing.scheme import Place
from veilcast.crypto import dealing
from veilcast.crypto.dealing import Commitments, Share
from veilcast.crypto.group import Scalar
from veilcast.wire.brokers import Flood, NextShare, Spoken
from veilcast.wire.messages import Message

DENY: Script = say(lambda table, to: without(table, 3))
"""Says that it lacks what an honest holder dealt, so that the hop takes as long as it can."""


def at(hop: int, index: int) -> Place:
    return Place(scheme(hop, 5), index)


EARLY, LATE, HELD = at(3, 1), at(4, 5), at(3, 3)


def forged(root: Root, holder: Place, to: Place) -> Outgoing:
    """A dealing that holds, of a share of a sharing that never was; for a node of five."""
    entropy = random.Random(f"{holder} {root.origin}").randbytes
    value, blinding, third = (Scalar.draw(entropy) for _ in range(3))
    first, square = root.commitments.points[0], Scalar.of(holder.index * holder.index)
    last = dealing._commit(third, third)
    second = (dealing._commit(value, blinding) - first - last * square) / Scalar.of(holder.index)
    held = Holding(root, holder, Commitments((first, second, last)), Share(holder.index, value, blinding))
    portion = hand_on(held, to.scheme, signing(holder.scheme.node[0], holder.index), entropy).portion(to.index)
    return Outgoing(to, NextShare(ADVERT, portion.encode().reveal()))


def build() -> tuple[World, list[int]]:
    """Two liars at each node; one of them holds up its hop, and of node 3 deals nothing. Told is when others do."""
    liars: dict[tuple[int, int], Script] = {(hop, index): curious for hop in (1, 2, 3, 4) for index in (1, 2)}
    world = World(4, 5, liars | {(2, 1): DENY, (3, 1): both(DENY, drop(NextShare))})
    world.rng = Steady()  # type: ignore[assignment]
    dealt: list[int] = []

    def slow(source: Peer, to: Peer, message: Message) -> int:
        """Within the bound: to one replica the portion of one holder comes sooner than the others'."""
        if not isinstance(message, NextShare) or to != LATE or source == EARLY:
            return 0
        dealt.append(world.now)
        return 0 if source == HELD else U * 6 // 10

    world.slow = slow
    return world, dealt


@cache
def honest_deal_us() -> int:
    """How long after the publisher."""
    world, dealt = build()
    (key,) = unpicked(1)
    begun = world.now
    world.deal(key=key)
    world.run(80 * U)
    return dealt[0] - begun


@pytest.mark.parametrize("early", [197, 237, 277, 557])
def test_a_hop_that_a_liar_opened_early_stays_while_its_key_is_fresh(early: int) -> None:
    """The liar deals to one replica so long before the others, in tenths of a unit, that what it opened could be given
    up between what comes from honest ones: after as long as holders show what they dealt, as a started replica keeps
    silent, as a hop takes, or two. Who had lost an honest portion would say that it lacks it, the holder would show it,
    and with what they have besides, two liars at each node would have the key."""
    world, dealt = build()
    (key,) = unpicked(1)
    origin = world.deal(key=key)
    world.run(honest_deal_us() - early * U // 10)
    world.send(EARLY, forged(root_of(world, origin), EARLY, LATE))
    world.run(U // 5)
    way = world.replicas[LATE].passing._redistributing
    assert way is not None
    (hop,) = way._hops.values()
    assert hop.holders == 1
    assert not hop.begun
    world.run(150 * U)
    assert dealt
    assert passed(world, origin)
    assert not any(
        isinstance(message, NextShare) and source == HELD and Portion.decode(message.share).share.index != to.index
        for message, source, to in world.shares
        if isinstance(to, Place)
    ), "what an honest holder dealt to an honest replica is shown to nobody"


def waiting(liars: dict[tuple[int, int], Script] | None = None) -> tuple[World, Redistributing, Place]:
    """One replica of node 2 gets its portions when all others have spoken, and have shown that the hop has begun."""
    world, late = World(2, 5, liars, keys_max=16), at(2, 5)
    world.rng = Steady()  # type: ignore[assignment]

    def slow(source: Peer, to: Peer, message: Message) -> int:
        if not isinstance(message, NextShare) or to != late:
            return 0
        return 2 * U if source == at(1, 1) else 3 * U

    world.slow = slow
    way = world.replicas[late].passing._redistributing
    assert way is not None
    return world, way, late


def test_words_that_waited_for_a_hop_are_all_heard_if_one_of_them_shows_that_it_has_begun() -> None:
    """Whichever came first: one portion has come, which begins nothing, and no other word may follow."""
    world, way, _ = waiting()
    (key,) = unpicked(1)
    origin = world.deal(key=key)
    world.run(2 * U)
    waits = [kept.what[1] for kept in way._words._entries.values()]
    assert not way._hops
    assert [said.root is None for said in waits] == [True] * 4 + [False] * 4, "those that show it came last"
    assert all(said.words for said in waits[:4])
    while not way._hops:
        world.run(U // 20)
    (hop,) = way._hops.values()
    assert hop.holders == 1
    assert hop.begun
    assert len(way._words) == 0
    assert hop._spoken_to == {1, 2, 3, 4}, "who has spoken is not absent"
    world.run(60 * U)
    assert passed(world, origin)


def test_words_that_wait_are_crowded_out_by_nobody_else_s() -> None:
    """Two liars say as much as they can before, of this hop and of others that never come."""
    world, way, late = waiting({(2, 1): curious, (2, 2): curious})
    (key,) = unpicked(1)
    for liar in (at(2, 1), at(2, 2)):
        for number in range(600):
            name = key if number % 2 else number.to_bytes(len(key), "big")
            word = Said(scheme(1, 5), scheme(2, 5), (Vouched(liar.index, bytes(2_000), bytes(64)),)).encode()
            world.send(liar, Outgoing(late, Spoken(name, 0, scheme(1, 5).node, Flood.ATTENDANCE, word)))
    world.run(U)
    assert 0 < len(way._words) <= 2 * 10 * 16, "of each so much and no more"
    origin = world.deal(key=key)
    world.run(2 * U)
    authors = [kept.sender.index for kept in way._words._entries.values()]
    assert authors.count(3) == authors.count(4) == 2
    while not way._hops:
        world.run(U // 20)
    (hop,) = way._hops.values()
    assert hop.begun
    assert {3, 4} <= hop._spoken_to
    world.run(60 * U)
    assert passed(world, origin)
