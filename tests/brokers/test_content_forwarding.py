"""Content passes from node to node by each strategy, is repaired where replicas corrupt it, and its confirmation
returns."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec
import pytest

from support.byzantine_scripts import delay, drop, misroute, replay, send_garbage, spoil
from support.key_transfer_chain import ADVERT, CLIENT, Script, TransferChain, U, scheme
from veilcast.brokers.content.blocks import Strategy
from veilcast.brokers.evidence import FaultReason
from veilcast.brokers.keys.scheme import ReplicaId
from veilcast.brokers.routing.view import Branch
from veilcast.errors import ForgedError, RemoteError, StaleError
from veilcast.machine import Address
from veilcast.wire.brokers import ConfirmContent, ForwardContent, RequestBlocks, Routing

TEXT = b"what is to be told " * 40
BEHAVIOURS: dict[str, Script] = {
    "drop all": drop(ForwardContent, ConfirmContent, RequestBlocks),
    "drop content": drop(ForwardContent),
    "drop the end": drop(ConfirmContent),
    "drop repairs": drop(RequestBlocks),
    "spoil": spoil(ForwardContent),
    "delay": delay(9, ForwardContent, ConfirmContent),
    "replay": replay,
    "misroute": misroute,
    "babble": send_garbage,
}


def check(world: TransferChain, content: bytes) -> None:
    assert all(reader.opened == {content: TEXT} for reader in world.subscribers.values())
    assert world.is_confirmed(content)
    assert all(at in world.scripts for at in world.proven_faulty())


def publish(world: TransferChain, attempts: int = 4) -> bytes:
    """Publish like a publisher: again, until enough edge replicas confirm."""
    content = world.publish(TEXT)
    for attempt in range(1, attempts + 1):
        world.run(80 * U)
        if world.is_confirmed(content):
            break
        world.publish(TEXT, attempt)
    return content


# --- without liars ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", Strategy)
def test_content_passes_and_the_confirmation_ends_it_everywhere(strategy: Strategy) -> None:
    world = TransferChain(3, side=True, strategy=strategy)
    content = publish(world)
    check(world, content)
    for replica in world.honest:
        sizes = replica.content_forwarder.sizes()
        assert sizes == {
            "contents": 0,
            "content bytes": 0,
            "contents done": 1,
            "contents early": 0,
            "contents asked for": 0,
        }
    assert world.messages["RequestBlocks"] == 0


def bytes_of(strategy: Strategy) -> int:
    world = TransferChain(3, strategy=strategy)
    sent = 0

    def count(source: object, to: object, message: object) -> int:
        nonlocal sent
        if isinstance(message, ForwardContent) and isinstance(to, ReplicaId):
            sent += len(message.block or b"")
        return 0

    world.extra_delay = count
    check(world, publish(world))
    return sent


def test_one_copy_costs_least_and_coded_blocks_less_than_copies() -> None:
    one, coded, copies = map(bytes_of, (Strategy.ONE, Strategy.CODED, Strategy.COPIES))
    assert one == 3 * len(TEXT)
    assert one < coded < 2 * one < copies
    assert copies == (3 + 6 + 6) * len(TEXT)


# --- with liars -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("name", BEHAVIOURS)
def test_a_byzantine_replica_at_each_hop_is_tolerated(name: str, strategy: Strategy) -> None:
    for at in [(1, 2, 3), (3, 1, 1), (2, 2, 2)]:
        byzantine = dict.fromkeys(enumerate(at, 1), BEHAVIOURS[name])
        world = TransferChain(3, byzantine=byzantine, strategy=strategy)
        check(world, publish(world, 8))


@pytest.mark.heavy
@pytest.mark.parametrize("strategy", Strategy)
def test_every_behaviour_in_every_position_is_tolerated(strategy: Strategy) -> None:
    for seed, (name, at) in enumerate(itertools.product(BEHAVIOURS, itertools.product((1, 2, 3), repeat=3))):
        byzantine = dict.fromkeys(enumerate(at, 1), BEHAVIOURS[name])
        world = TransferChain(3, byzantine=byzantine, strategy=strategy, seed=seed)
        check(world, publish(world, 8))


def test_copies_arrive_at_once_whatever_a_byzantine_replica_at_each_hop_drops() -> None:
    for at in itertools.product((1, 2, 3), repeat=3):
        world = TransferChain(3, byzantine={(hop, index): drop(ForwardContent) for hop, index in enumerate(at, 1)})
        content = world.publish(TEXT)
        world.run(4 * U)
        assert world.subscribers[Address("reader 3")].opened == {content: TEXT}


def test_a_replica_that_corrupts_a_block_is_proven_and_gets_no_more() -> None:
    world = TransferChain(2, byzantine={(1, 1): spoil(ForwardContent)})
    publish(world)
    assert world.proven_faulty() == [(1, 1)]
    assert any(
        replica.evidence.counts().get(ReplicaId(scheme(1), 1)) == {FaultReason.BAD_BLOCK: 1} for replica in world.honest
    )


def test_proven_replicas_are_avoided_where_others_are_left() -> None:
    world = TransferChain(2, strategy=Strategy.ONE)
    for replica in world.honest[:3]:
        replica.evidence.record(ReplicaId(scheme(2), 1), FaultReason.BAD_BLOCK)
    carried: list[ReplicaId] = []

    def see(source: object, to: object, message: object) -> int:
        if isinstance(message, ForwardContent) and isinstance(to, ReplicaId) and to.scheme == scheme(2):
            carried.append(to)
        return 0

    world.extra_delay = see
    for number in range(6):
        world.publish(bytes((number,)) * 100)
    world.run()
    assert ReplicaId(scheme(2), 1) not in carried


def test_a_replica_requests_missing_blocks_from_one_then_some_then_all() -> None:
    world = TransferChain(2, strategy=Strategy.ONE)
    world.extra_delay = lambda source, to, message: (
        10**15 if isinstance(message, ForwardContent) and message.block else 0
    )
    content = world.publish(TEXT)
    world.run(3 * U)
    one = world.replicas[ReplicaId(scheme(2), 1)]
    one.receive(RequestBlocks(content, (1,)), Address("reader 2"), world.now)
    asked = []
    for _ in range(4):
        asked.append([out.to for _, out in one.sent(world.now) if isinstance(out.message, RequestBlocks)])
        world.now += 4 * U
        one.handle(world.now)
    assert [len(each) for each in asked] == [1, 2, 3, 3]
    assert world.proven_faulty() == []
    assert not one.evidence.counts(), "nobody brings it, so perhaps nobody has it"


# --- the echo ---------------------------------------------------------------------------------------------------------


def test_nothing_is_confirmed_before_the_subscriber_confirms() -> None:
    world = TransferChain(2)
    world.extra_delay = lambda source, to, message: (
        10**15 if isinstance(message, ConfirmContent) and source == Address("reader 2") else 0
    )
    content = world.publish(TEXT)
    world.run(50 * U)
    assert not world.is_confirmed(content)
    assert world.done == {}


def test_early_confirmations_are_kept_and_bounded() -> None:
    """The last replica to get the content hears first that all subscribers have it from others."""
    world = TransferChain(2)
    late = ReplicaId(scheme(2), 1)
    world.extra_delay = lambda source, to, message: 20 * U if isinstance(message, ForwardContent) and to == late else 0
    content = world.publish(TEXT)
    world.run(12 * U)
    assert world.replicas[late].content_forwarder.sizes()["contents early"] >= 1
    carried = world.messages["ForwardContent"]
    world.run(60 * U)
    assert world.is_confirmed(content)
    sizes = world.replicas[late].content_forwarder.sizes()
    assert sizes == {
        "contents": 0,
        "content bytes": 0,
        "contents done": 1,
        "contents early": 0,
        "contents asked for": 0,
    }
    assert world.messages["ForwardContent"] == carried, "it goes out again to nobody who has it"
    for number in range(1000):
        world.replicas[late].receive(ConfirmContent(number.to_bytes(16, "big"), 0), Address("reader 2"), world.now)
    assert world.replicas[late].content_forwarder.sizes()["contents early"] == 256


def test_byzantine_confirmations_alone_end_nothing() -> None:
    """One replica of each node confirms everything: too few."""
    world = TransferChain(2, byzantine={(2, 1): send_garbage, (1, 1): send_garbage})
    world.extra_delay = lambda source, to, message: (
        10**15 if isinstance(message, ForwardContent) and to == Address("reader 2") else 0
    )
    content = world.publish(TEXT)
    world.run(50 * U)
    assert not world.is_confirmed(content)


def test_a_subscriber_without_claims_is_not_waited_for() -> None:
    world = TransferChain(2)
    world.extra_delay = lambda source, to, message: 10**15 if to == Address("reader 2") else 0
    content = world.publish(TEXT)
    world.run(20 * U)
    assert not world.is_confirmed(content)
    for replica in world.honest[3:]:
        replica.routes.branches.clear()
        replica.content_forwarder.on_claims_ended({Address("reader 2")}, world.now)
    world.run(20 * U)
    assert world.is_confirmed(content)


def test_claims_that_end_elsewhere_are_not_checked_for_every_publication() -> None:
    """Otherwise a client that withdraws claims at its full rate would make a broker route everything again and
    again."""
    world = TransferChain(1)
    world.extra_delay = lambda source, to, message: 10**15 if to == Address("reader 1") else 0
    for number in range(5):
        world.publish(b"%d" % number)
    world.run(5 * U)
    replica, asked = world.honest[0], list[Routing]()
    wanting = replica.routes.matching_branches

    def noted(routing: Routing) -> Sequence[Branch]:
        asked.append(routing)
        return wanting(routing)

    replica.routes.matching_branches = noted  # type: ignore[method-assign]
    replica.content_forwarder.on_claims_ended({Address("reader 2"), b"b" * 16}, world.now)
    assert asked == []
    replica.content_forwarder.on_claims_ended({ADVERT}, world.now)
    assert len(asked) == 5


@pytest.mark.parametrize("hops", [1, 3])
def test_a_subscriber_that_never_confirms_is_abandoned_and_the_next_attempt_is_confirmed(hops: int) -> None:
    world = TransferChain(hops)
    mute = Address(f"reader {hops}")
    world.extra_delay = lambda source, to, message: 10**15 if source == mute else 0
    content = world.publish(TEXT)
    world.run(190 * U)
    assert not world.is_confirmed(content)
    world.run(30 * U)
    assert sum(replica.content_forwarder.abandoned for replica in world.honest) == 3
    world.publish(TEXT, 1)
    world.run(30 * U)
    assert world.is_confirmed(content)
    assert all(replica.content_forwarder.sizes()["contents"] == 0 for replica in world.honest)


def test_a_repeat_of_completed_content_is_answered_and_not_forwarded() -> None:
    world = TransferChain(2)
    content = publish(world)
    carried = world.messages["ForwardContent"]
    world.done.clear()
    world.publish(TEXT, 1)
    world.run(10 * U)
    assert world.done[content] == {ReplicaId(scheme(1), at): 1 for at in (1, 2, 3)}
    assert world.messages["ForwardContent"] == carried + 3
    assert [reader.opened for reader in world.subscribers.values()] == [{content: TEXT}]


def test_content_without_subscribers_is_confirmed_at_once() -> None:
    world = TransferChain(1)
    for replica in world.honest:
        replica.routes.branches.clear()
    content = world.publish(TEXT)
    world.run(3 * U)
    assert world.is_confirmed(content)
    assert all(replica.content_forwarder.sizes()["contents"] == 0 for replica in world.honest)


# --- bounds and strangers ---------------------------------------------------------------------------------------------


def test_one_publisher_fills_only_its_quota_and_unconfirmed_content_is_abandoned() -> None:
    world = TransferChain(1, contents_max=16)
    edge = world.replicas[ReplicaId(scheme(1), 1)]
    world.extra_delay = lambda source, to, message: 10**15 if isinstance(to, str) else 0
    for number in range(10):
        world.publish(bytes((number,)) * 100)
    world.run(5 * U)
    assert edge.content_forwarder.sizes()["contents"] == 4
    assert sum(count for reason, count in edge.refused.items() if "no room" in reason) == 6
    world.run(300 * U)
    assert edge.content_forwarder.sizes()["contents"] == edge.content_forwarder.sizes()["content bytes"] == 0


def test_bytes_are_bounded_too() -> None:
    world = TransferChain(1, contents_bytes=1000)
    edge = world.replicas[ReplicaId(scheme(1), 1)]
    world.extra_delay = lambda source, to, message: 10**15 if isinstance(to, str) else 0
    for number in range(4):
        world.publish(bytes((number,)) * 100)
    world.run(5 * U)
    assert edge.content_forwarder.sizes()["content bytes"] == 200
    assert edge.content_forwarder.sizes()["contents"] == 2


def test_remembered_completed_contents_are_bounded() -> None:
    world = TransferChain(1, done_max=3)
    for number in range(5):
        world.publish(bytes((number,)) * 100)
    world.run()
    assert all(replica.content_forwarder.sizes()["contents done"] == 3 for replica in world.honest)


def test_content_that_comes_before_its_advertisement_waits_for_it() -> None:
    world = TransferChain(1)
    for replica in world.honest:
        replica.routes.knows_advertisement = False
    content = world.publish(TEXT)
    world.run(3 * U)
    assert all(replica.content_forwarder.sizes()["contents early"] == 1 for replica in world.honest)
    for replica in world.honest:
        replica.routes.knows_advertisement = True
        replica.content_forwarder.on_advertisement(ADVERT, world.now)
    world.run()
    check(world, content)


def test_a_replica_without_all_claims_forwards_nothing() -> None:
    world = TransferChain(2)
    world.honest[0].routes.is_ready = False
    check(world, publish(world))
    assert world.honest[0].refused["this broker does not know all claims yet"]


def test_strangers_and_invalid_messages_are_refused() -> None:
    world = TransferChain(2)
    seen: list[tuple[object, ForwardContent]] = []

    def see(source: object, to: object, message: object) -> int:
        if isinstance(message, ForwardContent) and to == ReplicaId(scheme(2), 1):
            seen.append((source, message))
        return 10**15 if to == Address("reader 2") else 0

    world.extra_delay = see
    content = world.publish(TEXT)
    world.run(10 * U)
    one = world.replicas[ReplicaId(scheme(2), 1)].content_forwarder
    source, carry = seen[0]
    assert isinstance(source, ReplicaId)
    replace = msgspec.structs.replace
    for bad in (
        replace(carry, manifest=b"\xc0"),
        replace(carry, block=b""),
        replace(carry, index=0),
        replace(carry, routing=Routing(ADVERT, b"x", b"k" * 16, 0, b"s" * 8)),
    ):
        with pytest.raises(RemoteError):
            one.receive(bad, source, world.now)
    with pytest.raises(ForgedError, match="another hop"):
        one.receive(carry, CLIENT, world.now)
    with pytest.raises(ForgedError, match="without subscribers"):
        one.receive(RequestBlocks(content, (1,)), Address("somebody"), world.now)
    with pytest.raises(ForgedError, match="does not have"):
        one.receive(RequestBlocks(content, (9,)), Address("reader 2"), world.now)
    with pytest.raises(StaleError):
        one.receive(RequestBlocks(b"x" * 16, (1,)), Address("reader 2"), world.now)
    one.outbox.clear()
    for _ in range(5):
        one.receive(RequestBlocks(content, (1,)), Address("reader 2"), world.now)
    assert len(one.outbox) == 2, "a peer is sent the same block twice at most"
