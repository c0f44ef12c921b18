"""Liars cannot make use of whom others do without, be it honest and back, or one of theirs."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from support.forging import Steady, unpicked
from support.lies import call, curious, drop, without
from support.overlays import QUIET, SECRET, Liar, Script, U, World, passed, scheme
from veilcast.brokers.routes import Outgoing, Peer
from veilcast.brokers.sharing.attendance import Dealt, Roll
from veilcast.brokers.sharing.redistribution import Portion
from veilcast.brokers.sharing.scheme import Place
from veilcast.wire.brokers import LastShare, NextShare, Spoken, Taken
from veilcast.wire.messages import Message


def after_a_while(script: Script) -> tuple[Script, list[bool]]:
    lying: list[bool] = []

    def moody(liar: Liar, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        return script(liar, outgoing, now) if lying else [(0, outgoing)]

    return moody, lying


def back(world: World, *places: tuple[int, int]) -> None:
    """These were away while a key passed, and are here again."""
    key, _ = unpicked(2)
    for hop, index in places:
        world.kill(hop, index)
    origin = world.deal(key=key)
    world.run(3 * QUIET)
    assert all(reader.got.get(origin) == SECRET for reader in world.readers.values())


def test_who_is_back_and_late_for_it_shows_nothing_of_honest_replicas() -> None:
    """Replica 3 of node 2 is waited for by nobody there, and by everybody at node 3, where all were away since. A liar
    has it deal so late that one honest replica of node 3 has said what it lacks, and another has not."""

    def late(liar: Liar, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        held = isinstance(outgoing.message, NextShare) and outgoing.to == Place(scheme(2), 3)
        return [(U * 385 // 100 if held else 0, outgoing)]

    def slow(source: Peer, to: Peer, message: Message) -> int:
        """Within the bound."""
        if not isinstance(message, NextShare) or not isinstance(source, Place) or not isinstance(to, Place):
            return 0
        held = to.index == 2 if source == Place(scheme(2), 3) else to.index != 2
        return U * 7 // 10 if held and to.scheme == scheme(3) else 0

    script, lying = after_a_while(late)
    world = World(3, 3, {(1, 1): script, (2, 1): curious, (3, 1): curious})
    world.rng = Steady()  # type: ignore[assignment]
    back(world, (2, 3))
    for at in (1, 2, 3):
        world.kill(3, at)
        world.run(3 * QUIET)
    world.slow = slow
    lying.append(True)
    origin = world.deal(key=unpicked(2)[1])
    world.run(100 * U)
    assert passed(world, origin)


def test_who_is_back_is_shown_what_others_agree_on_whatever_liars_told_it() -> None:
    """Else it would have another sharing than the others, and be named for it."""

    def two_words(liar: Liar, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        if outgoing.to != Place(scheme(2), 3) or not isinstance(outgoing.message, Spoken):
            return [(0, outgoing)]
        made_up = {1: Dealt(b"x" * 32, b"y" * 32)}
        said = [call(lambda roll, to: roll._replace(table={}))]
        said += [call(lambda roll, to: roll._replace(table=made_up, aside=()))]
        said += [call(lambda roll, to: Roll(without(roll.table, 1)))]
        return [sent for script in said for sent in script(liar, outgoing, now)]

    script, lying = after_a_while(two_words)
    leaves_out, lying_too = after_a_while(drop(NextShare, only=(3,)))
    world = World(2, 3, {(1, 1): leaves_out, (2, 1): script})
    back(world, (2, 3))
    lying.append(True)
    lying_too.append(True)
    origin = world.deal(key=unpicked(2)[1])
    world.run(100 * U)
    assert passed(world, origin)


@pytest.mark.heavy
def test_who_is_back_in_a_large_node_is_shown_all_of_that() -> None:
    """It comes before it has said what it has itself, and liars have told it nothing."""
    silent, lying = after_a_while(drop(Spoken, only=(15,)))
    leaves_out, lying_too = after_a_while(drop(NextShare, only=(15,)))
    liars = {(1, 1): leaves_out} | {(2, at): silent for at in range(8, 15)}
    world = World(2, 15, liars)
    back(world, (2, 15))
    lying.append(True)
    lying_too.append(True)
    origin = world.deal(key=unpicked(2)[1])
    world.run(100 * U)
    assert passed(world, origin)


def deals_to_two(keys: Collection[bytes], silent: Collection[bytes] = ()) -> Script:
    """Leaves out replica 3 with these keys, and shows nothing; deals nothing at all of others."""

    def script(liar: Liar, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        if not isinstance(outgoing.message, NextShare) or not isinstance(outgoing.to, Place):
            return [(0, outgoing)]
        portion = Portion.decode(outgoing.message.share)
        key, other = portion.header.origin.key, portion.share.index != outgoing.to.index
        left_out = key in keys and (other or outgoing.to.index == 3)
        return [] if left_out or key in silent else [(0, outgoing)]

    return script


def test_a_liar_is_not_put_aside_by_one_and_gone_on_with_by_others() -> None:
    """It is missed with one key while the next is under way: replica 2 has said what it has, replica 3 waits for it
    until it is known as absent. Nobody honest was ever away."""
    first, second = unpicked(2)

    def script(liar: Liar, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        message = outgoing.message
        slow = isinstance(message, Spoken) and message.key == first
        return [] if slow or isinstance(message, LastShare) else [(0, outgoing)]

    world = World(2, 3, {(1, 1): deals_to_two([second], silent=[first]), (2, 1): script})
    liar = world.replicas[Place(scheme(2), 1)].passing._redistributing
    assert liar is not None
    liar._absences.waived = lambda *_: False  # type: ignore[method-assign]
    one = world.deal(key=first)
    world.run(9 * U)
    two = world.deal(key=second)
    world.run(100 * U)
    assert passed(world, one)
    assert passed(world, two)


def test_an_honest_holder_that_was_put_out_by_a_liar_is_not_lost_for_the_next_keys() -> None:
    """Replica 1 acknowledges nothing, once, and denies what holder 2 dealt, so that it is missed; then holder 1 leaves
    out replica 3. Nobody honest was ever away."""
    first, *others = unpicked(4)

    def script(liar: Liar, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        if isinstance(outgoing.message, Taken):
            return []
        return call(lambda roll, to: roll._replace(table=without(roll.table, 2)))(liar, outgoing, now)

    world = World(2, 3, {(1, 1): deals_to_two(others), (2, 1): script})
    world.deaf = [Place(scheme(2), 1)]
    assert after(world, first)
    world.deaf = []
    for key in others:
        assert after(world, key)


def after(world: World, key: bytes) -> bool:
    origin = world.deal(key=key)
    world.run(60 * U)
    return passed(world, origin)
