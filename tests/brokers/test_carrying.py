"""Content passes from node to node by each strategy, is repaired where liars spoil it, and its end comes back."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec
import pytest

from support.lies import babble, delay, drop, misroute, replay, spoil
from support.overlays import ADVERT, CLIENT, Script, U, World, scheme
from veilcast.brokers.content import Strategy
from veilcast.brokers.routes import Branch
from veilcast.brokers.sharing.scheme import Place
from veilcast.brokers.standing import Reason
from veilcast.errors import ForgedError, RemoteError, StaleError
from veilcast.machine import Address
from veilcast.wire.brokers import Carry, Done, Missing, Routing

TEXT = b"what is to be told " * 40
LIES: dict[str, Script] = {
    "drop all": drop(Carry, Done, Missing),
    "drop content": drop(Carry),
    "drop the end": drop(Done),
    "drop repairs": drop(Missing),
    "spoil": spoil(Carry),
    "delay": delay(9, Carry, Done),
    "replay": replay,
    "misroute": misroute,
    "babble": babble,
}


def check(world: World, content: bytes) -> None:
    assert all(reader.opened == {content: TEXT} for reader in world.readers.values())
    assert world.finished(content)
    assert all(at in world.liars for at in world.named())


def publish(world: World, attempts: int = 4) -> bytes:
    """As a publisher does: again, until enough edge replicas say that it is through."""
    content = world.publish(TEXT)
    for attempt in range(1, attempts + 1):
        world.run(80 * U)
        if world.finished(content):
            break
        world.publish(TEXT, attempt)
    return content


# --- without liars ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", Strategy)
def test_content_passes_and_the_echo_ends_it_everywhere(strategy: Strategy) -> None:
    world = World(3, side=True, strategy=strategy)
    content = publish(world)
    check(world, content)
    for replica in world.honest:
        sizes = replica.carrying.sizes()
        assert sizes == {
            "contents": 0,
            "content bytes": 0,
            "contents done": 1,
            "contents early": 0,
            "contents asked for": 0,
        }
    assert world.messages["Missing"] == 0


def bytes_of(strategy: Strategy) -> int:
    world = World(3, strategy=strategy)
    sent = 0

    def count(source: object, to: object, message: object) -> int:
        nonlocal sent
        if isinstance(message, Carry) and isinstance(to, Place):
            sent += len(message.block or b"")
        return 0

    world.slow = count
    check(world, publish(world))
    return sent


def test_one_copy_costs_least_and_coded_blocks_less_than_copies() -> None:
    one, coded, copies = map(bytes_of, (Strategy.ONE, Strategy.CODED, Strategy.COPIES))
    assert one == 3 * len(TEXT)
    assert one < coded < 2 * one < copies
    assert copies == (3 + 6 + 6) * len(TEXT)


# --- with liars -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("name", LIES)
def test_a_liar_at_each_hop_is_borne(name: str, strategy: Strategy) -> None:
    for at in [(1, 2, 3), (3, 1, 1), (2, 2, 2)]:
        liars = dict.fromkeys(enumerate(at, 1), LIES[name])
        world = World(3, liars=liars, strategy=strategy)
        check(world, publish(world, 8))


@pytest.mark.heavy
@pytest.mark.parametrize("strategy", Strategy)
def test_every_behaviour_in_every_position_is_borne(strategy: Strategy) -> None:
    for seed, (name, at) in enumerate(itertools.product(LIES, itertools.product((1, 2, 3), repeat=3))):
        liars = dict.fromkeys(enumerate(at, 1), LIES[name])
        world = World(3, liars=liars, strategy=strategy, seed=seed)
        check(world, publish(world, 8))


def test_copies_arrive_at_once_whatever_a_liar_at_each_hop_drops() -> None:
    for at in itertools.product((1, 2, 3), repeat=3):
        world = World(3, liars={(hop, index): drop(Carry) for hop, index in enumerate(at, 1)})
        content = world.publish(TEXT)
        world.run(4 * U)
        assert world.readers[Address("reader 3")].opened == {content: TEXT}


def test_who_spoils_a_block_is_named_and_gets_no_more() -> None:
    world = World(2, liars={(1, 1): spoil(Carry)})
    publish(world)
    assert world.named() == [(1, 1)]
    assert any(replica.suspicions.marks().get(Place(scheme(1), 1)) == {Reason.BLOCK: 1} for replica in world.honest)


def test_proven_liars_are_left_out_where_others_are_left() -> None:
    world = World(2, strategy=Strategy.ONE)
    for replica in world.honest[:3]:
        replica.suspicions.accuse(Place(scheme(2), 1), Reason.BLOCK)
    carried: list[Place] = []

    def see(source: object, to: object, message: object) -> int:
        if isinstance(message, Carry) and isinstance(to, Place) and to.scheme == scheme(2):
            carried.append(to)
        return 0

    world.slow = see
    for number in range(6):
        world.publish(bytes((number,)) * 100)
    world.run()
    assert Place(scheme(2), 1) not in carried


def test_a_replica_that_is_asked_for_what_it_lacks_asks_one_then_some_then_all() -> None:
    world = World(2, strategy=Strategy.ONE)
    world.slow = lambda source, to, message: 10**15 if isinstance(message, Carry) and message.block else 0
    content = world.publish(TEXT)
    world.run(3 * U)
    one = world.replicas[Place(scheme(2), 1)]
    one.receive(Missing(content, (1,)), Address("reader 2"), world.now)
    asked = []
    for _ in range(4):
        asked.append([out.to for _, out in one.sent(world.now) if isinstance(out.message, Missing)])
        world.now += 4 * U
        one.handle(world.now)
    assert [len(each) for each in asked] == [1, 2, 3, 3]
    assert world.named() == []
    assert not one.suspicions.marks(), "nobody brings it, so perhaps nobody has it"


# --- the echo ---------------------------------------------------------------------------------------------------------


def test_nothing_is_through_while_a_reader_has_not_said_so() -> None:
    world = World(2)
    world.slow = lambda source, to, message: (
        10**15 if isinstance(message, Done) and source == Address("reader 2") else 0
    )
    content = world.publish(TEXT)
    world.run(50 * U)
    assert not world.finished(content)
    assert world.done == {}


def test_the_end_of_what_has_not_come_yet_is_remembered_and_bounded() -> None:
    """A replica that has content last hears that all readers have it from others, first."""
    world = World(2)
    late = Place(scheme(2), 1)
    world.slow = lambda source, to, message: 20 * U if isinstance(message, Carry) and to == late else 0
    content = world.publish(TEXT)
    world.run(12 * U)
    assert world.replicas[late].carrying.sizes()["contents early"] >= 1
    carried = world.messages["Carry"]
    world.run(60 * U)
    assert world.finished(content)
    sizes = world.replicas[late].carrying.sizes()
    assert sizes == {
        "contents": 0,
        "content bytes": 0,
        "contents done": 1,
        "contents early": 0,
        "contents asked for": 0,
    }
    assert world.messages["Carry"] == carried, "it goes out again to nobody who has it"
    for number in range(1000):
        world.replicas[late].receive(Done(number.to_bytes(16, "big"), 0), Address("reader 2"), world.now)
    assert world.replicas[late].carrying.sizes()["contents early"] == 256


def test_liars_alone_end_nothing() -> None:
    """One replica of each node says that all is done: that is fewer than it takes."""
    world = World(2, liars={(2, 1): babble, (1, 1): babble})
    world.slow = lambda source, to, message: 10**15 if isinstance(message, Carry) and to == Address("reader 2") else 0
    content = world.publish(TEXT)
    world.run(50 * U)
    assert not world.finished(content)


def test_a_reader_that_is_gone_is_not_waited_for() -> None:
    world = World(2)
    world.slow = lambda source, to, message: 10**15 if to == Address("reader 2") else 0
    content = world.publish(TEXT)
    world.run(20 * U)
    assert not world.finished(content)
    for replica in world.honest[3:]:
        replica.routes.branches.clear()
        replica.carrying.ended({Address("reader 2")}, world.now)
    world.run(20 * U)
    assert world.finished(content)


def test_what_ends_elsewhere_is_not_asked_of_every_publication() -> None:
    """Else who withdraws claims as fast as it may has a broker route everything again and again."""
    world = World(1)
    world.slow = lambda source, to, message: 10**15 if to == Address("reader 1") else 0
    for number in range(5):
        world.publish(b"%d" % number)
    world.run(5 * U)
    replica, asked = world.honest[0], list[Routing]()
    wanting = replica.routes.wanting

    def noted(routing: Routing) -> Sequence[Branch]:
        asked.append(routing)
        return wanting(routing)

    replica.routes.wanting = noted  # type: ignore[method-assign]
    replica.carrying.ended({Address("reader 2"), b"b" * 16}, world.now)
    assert asked == []
    replica.carrying.ended({ADVERT}, world.now)
    assert len(asked) == 5


@pytest.mark.parametrize("hops", [1, 3])
def test_a_reader_that_never_says_so_is_given_up_in_time_and_the_next_attempt_is_through(hops: int) -> None:
    world = World(hops)
    mute = Address(f"reader {hops}")
    world.slow = lambda source, to, message: 10**15 if source == mute else 0
    content = world.publish(TEXT)
    world.run(190 * U)
    assert not world.finished(content)
    world.run(30 * U)
    assert sum(replica.carrying.given_up for replica in world.honest) == 3
    world.publish(TEXT, 1)
    world.run(30 * U)
    assert world.finished(content)
    assert all(replica.carrying.sizes()["contents"] == 0 for replica in world.honest)


def test_a_repeat_of_what_is_through_is_answered_and_not_carried() -> None:
    world = World(2)
    content = publish(world)
    carried = world.messages["Carry"]
    world.done.clear()
    world.publish(TEXT, 1)
    world.run(10 * U)
    assert world.done[content] == {Place(scheme(1), at): 1 for at in (1, 2, 3)}
    assert world.messages["Carry"] == carried + 3
    assert [reader.opened for reader in world.readers.values()] == [{content: TEXT}]


def test_where_nobody_wants_it_content_is_through_at_once() -> None:
    world = World(1)
    for replica in world.honest:
        replica.routes.branches.clear()
    content = world.publish(TEXT)
    world.run(3 * U)
    assert world.finished(content)
    assert all(replica.carrying.sizes()["contents"] == 0 for replica in world.honest)


# --- bounds and strangers ---------------------------------------------------------------------------------------------


def test_one_publisher_fills_only_its_part_of_the_room_and_what_is_not_through_is_given_up() -> None:
    world = World(1, contents_max=16)
    edge = world.replicas[Place(scheme(1), 1)]
    world.slow = lambda source, to, message: 10**15 if isinstance(to, str) else 0
    for number in range(10):
        world.publish(bytes((number,)) * 100)
    world.run(5 * U)
    assert edge.carrying.sizes()["contents"] == 4
    assert sum(count for reason, count in edge.refused.items() if "no room" in reason) == 6
    world.run(300 * U)
    assert edge.carrying.sizes()["contents"] == edge.carrying.sizes()["content bytes"] == 0


def test_bytes_are_bounded_too() -> None:
    world = World(1, contents_bytes=1000)
    edge = world.replicas[Place(scheme(1), 1)]
    world.slow = lambda source, to, message: 10**15 if isinstance(to, str) else 0
    for number in range(4):
        world.publish(bytes((number,)) * 100)
    world.run(5 * U)
    assert edge.carrying.sizes()["content bytes"] == 200
    assert edge.carrying.sizes()["contents"] == 2


def test_of_contents_that_are_through_so_many_are_remembered() -> None:
    world = World(1, done_max=3)
    for number in range(5):
        world.publish(bytes((number,)) * 100)
    world.run()
    assert all(replica.carrying.sizes()["contents done"] == 3 for replica in world.honest)


def test_content_that_comes_before_its_advertisement_waits_for_it() -> None:
    world = World(1)
    for replica in world.honest:
        replica.routes.known = False
    content = world.publish(TEXT)
    world.run(3 * U)
    assert all(replica.carrying.sizes()["contents early"] == 1 for replica in world.honest)
    for replica in world.honest:
        replica.routes.known = True
        replica.carrying.advertised(ADVERT, world.now)
    world.run()
    check(world, content)


def test_a_replica_that_does_not_know_all_claims_carries_nothing() -> None:
    world = World(2)
    world.honest[0].routes.is_ready = False
    check(world, publish(world))
    assert world.honest[0].refused["we do not know all claims yet"]


def test_strangers_and_what_does_not_hold_are_refused() -> None:
    world = World(2)
    seen: list[tuple[object, Carry]] = []

    def see(source: object, to: object, message: object) -> int:
        if isinstance(message, Carry) and to == Place(scheme(2), 1):
            seen.append((source, message))
        return 10**15 if to == Address("reader 2") else 0

    world.slow = see
    content = world.publish(TEXT)
    world.run(10 * U)
    one = world.replicas[Place(scheme(2), 1)].carrying
    source, carry = seen[0]
    assert isinstance(source, Place)
    replace = msgspec.structs.replace
    for bad in (
        replace(carry, manifest=b"\xc0"),
        replace(carry, block=b""),
        replace(carry, index=0),
        replace(carry, routing=Routing(ADVERT, b"x", b"k" * 16, 0, b"s" * 8)),
    ):
        with pytest.raises(RemoteError):
            one.receive(bad, source, world.now)
    with pytest.raises(ForgedError, match="another way"):
        one.receive(carry, CLIENT, world.now)
    with pytest.raises(ForgedError, match="nobody wants"):
        one.receive(Missing(content, (1,)), Address("somebody"), world.now)
    with pytest.raises(ForgedError, match="does not have"):
        one.receive(Missing(content, (9,)), Address("reader 2"), world.now)
    with pytest.raises(StaleError):
        one.receive(Missing(b"x" * 16, (1,)), Address("reader 2"), world.now)
    one.outbox.clear()
    for _ in range(5):
        one.receive(Missing(content, (1,)), Address("reader 2"), world.now)
    assert len(one.outbox) == 2, "a peer is sent the same block twice at most"
