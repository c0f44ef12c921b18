"""Byzantine participants that fill the quota for others' shares get no share shown, and no honest share refused."""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Any

import msgspec
import pytest

from support.byzantine_scripts import ANY, drop, follow_protocol
from support.forged_dealings import FixedRandom, unpicked_keys
from support.key_transfer_chain import (
    ADVERT,
    CLIENT,
    KEY,
    ByzantineReplica,
    ChainReplica,
    CoalitionKnowledge,
    Script,
    TransferChain,
    U,
    key_arrived,
    scheme,
    signing,
)
from veilcast.brokers.keys.agreement import AgreementMessage
from veilcast.brokers.keys.bulk_key import make_key_id
from veilcast.brokers.keys.hardened_forwarder import HardenedKeyForwarder
from veilcast.brokers.keys.redistribution import DealtShare, accept_publisher_share, deal_key, redistribute_share
from veilcast.brokers.keys.scheme import KeyAttempt, ReplicaId
from veilcast.brokers.routing.view import Outgoing, Peer
from veilcast.crypto.group import Scalar
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ExcessError
from veilcast.wire.base import Message
from veilcast.wire.brokers import AgreementWord, FirstShare, FloodKind, NextShare, WantKey

BYZANTINE_PUBLISHER = SigningKey(Secret(b"l" * 32))
BYZANTINE_ADVERT = b"o" * 16
"""Advertisement of the Byzantine publisher."""


def late(victim: ReplicaId, units: int) -> Script:
    """Deals this much later to one replica; and the Byzantine publisher's keys to no other."""

    def script(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        message = outgoing.message
        if not isinstance(message, NextShare) or outgoing.to == victim:
            return [(units * U if isinstance(message, NextShare) else 0, outgoing)]
        return [] if message.advertisement == BYZANTINE_ADVERT else [(0, outgoing)]

    return script


def network(size: int, byzantine: dict[tuple[int, int], Script], **config: Any) -> TransferChain:
    """A network in which a Byzantine publisher has advertised."""
    world = TransferChain(2, size, byzantine, **config)
    world.rng = FixedRandom()  # type: ignore[assignment]
    for replica in world.replicas.values():
        replica.routes.other_publishers[BYZANTINE_ADVERT] = BYZANTINE_PUBLISHER.public
    return world


def forwarder_of(world: TransferChain, place: ReplicaId) -> HardenedKeyForwarder:
    return world.replicas[place].hardened_forwarder


def deal_to(world: TransferChain, number: int, indices: Collection[int]) -> None:
    """The Byzantine publisher deals a key to these replicas of the first node alone."""
    first = world.schemes[0]
    origin = KeyAttempt(make_key_id(BYZANTINE_PUBLISHER.public, number.to_bytes(8, "big")))
    shares = deal_key(
        Scalar.of(number + 7), origin, first, BYZANTINE_PUBLISHER, random.Random(number).randbytes, world.now
    )
    for index in indices:
        share = FirstShare(BYZANTINE_ADVERT, shares[index - 1].encode().reveal())
        world.send(CLIENT, Outgoing(ReplicaId(first, index), share))


def dealt(world: TransferChain, number: int, holder: ReplicaId, to: ReplicaId) -> NextShare:
    """This holder's dealing of a key that the Byzantine publisher has dealt."""
    entropy = random.Random(number).randbytes
    origin = KeyAttempt(make_key_id(BYZANTINE_PUBLISHER.public, number.to_bytes(8, "big")))
    firsts = deal_key(Scalar.of(0xBAD), origin, holder.scheme, BYZANTINE_PUBLISHER, entropy, world.now)
    held = accept_publisher_share(firsts[holder.index - 1], holder, BYZANTINE_PUBLISHER.public)
    portion = redistribute_share(held, to.scheme, signing(holder.scheme.node[0], holder.index), entropy).share_for(
        to.index
    )
    return NextShare(BYZANTINE_ADVERT, portion.encode().reveal())


def test_a_publisher_that_makes_a_few_holders_deal_gets_no_other_shares_shown() -> None:
    """Nodes of five: of each of its keys, an honest holder and a Byzantine one deal. If that filled a replica's quota,
    it would lack what honest holders deal next, and they would show it."""
    victim = ReplicaId(scheme(2, 5), 5)
    deals = late(victim, 2)
    world = network(5, {(1, 1): deals, (1, 2): deals, (2, 1): follow_protocol, (2, 2): follow_protocol}, keys_max=16)
    for number in range(12):
        deal_to(world, number, (3 + number // 4, 1 + number % 2))
    world.run(30 * U)
    (key,) = unpicked_keys(1)
    origin = world.deal(key=key)
    world.run(100 * U)
    assert not world.replicas[victim].refused
    assert world.messages["DisputeDealing"] == 0
    assert key_arrived(world, origin)


def test_a_publisher_that_makes_honest_holders_deal_their_maximum_gets_no_shares_shown() -> None:
    victim, other = ReplicaId(scheme(2), 3), ReplicaId(scheme(2), 2)
    world = network(3, {(1, 1): late(victim, 2), (2, 1): follow_protocol}, keys_max=16)

    def slow(source: Peer, to: Peer, message: Message) -> int:
        """Within the bound."""
        honest = isinstance(message, NextShare) and to == other and source != ReplicaId(scheme(1), 1)
        return U * 3 // 10 if honest else 0

    world.extra_delay = slow
    for number in range(8):
        deal_to(world, number, (2 + number // 4,))
    world.run(U)
    (key,) = unpicked_keys(1)
    origin = world.deal(key=key)
    world.run(100 * U)
    assert not world.replicas[victim].refused
    assert world.messages["DisputeDealing"] == 0
    assert key_arrived(world, origin)


@pytest.mark.parametrize("later", [2, 4, 5])
def test_honest_dealings_are_available_whenever_byzantine_holders_start_the_transfer(later: int) -> None:
    """Nodes of five: the publisher's link to one honest holder has stalled, so a majority needs a Byzantine holder.
    Before one
    deals this key, it deals so many others that an evicting replica would have lost the two other dealings."""
    victim, faulty = ReplicaId(scheme(2, 5), 5), ReplicaId(scheme(1, 5), 1)

    def waits(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        return [(later * U if isinstance(outgoing.message, NextShare) else 0, outgoing)]

    world = network(5, {(1, 1): waits, (1, 2): waits, (2, 1): follow_protocol, (2, 2): follow_protocol}, keys_max=8)
    world.extra_delay = lambda source, to, message: (
        10**15 if source == CLIENT and to == ReplicaId(scheme(1, 5), 5) else 0
    )
    (key,) = unpicked_keys(1)
    origin = world.deal(key=key)
    world.run(U)
    for number in range(20):
        world.send(faulty, Outgoing(victim, dealt(world, number, faulty, victim)))
    world.run((later - 1) * U)
    forwarder = forwarder_of(world, victim)
    assert forwarder._unstarted.inactive_count
    assert origin not in [hop.key_attempt for hop in forwarder._receivers.values()]
    world.run(U // 2)
    (hop,) = [hop for hop in forwarder._receivers.values() if hop.key_attempt == origin]
    assert hop.has_begun
    assert hop.holder_count == 4
    world.run(100 * U)
    assert world.messages["DisputeDealing"] == 0
    assert key_arrived(world, origin)


def test_a_start_proof_finds_the_earlier_dealings() -> None:
    """A Byzantine holder deals many other keys, so that the transfer is inactive."""
    victim, faulty, soon = (ReplicaId(scheme(2), 3), ReplicaId(scheme(1), 1), ReplicaId(scheme(1), 2))
    world = network(3, {(1, 1): follow_protocol, (2, 1): follow_protocol}, keys_max=4)
    world.extra_delay = lambda source, to, message: (
        3 * U
        if isinstance(message, NextShare) and to == victim and source != soon and message.advertisement == ADVERT
        else 0
    )
    (key,) = unpicked_keys(1)
    origin = world.deal(key=key)
    world.run(U // 2)
    for number in range(9):
        world.replicas[victim].receive(dealt(world, number, faulty, victim), faulty, world.now)
    forwarder = forwarder_of(world, victim)
    assert origin not in [hop.key_attempt for hop in forwarder._receivers.values()]
    world.run(U)
    (hop,) = [hop for hop in forwarder._receivers.values() if hop.key_attempt == origin]
    assert hop.has_begun
    assert hop.holder_count == 1
    world.run(100 * U)
    assert world.messages["DisputeDealing"] == 0
    assert key_arrived(world, origin)


def test_only_a_holder_that_deals_more_than_an_honest_one_can_is_refused() -> None:
    world = network(3, {}, keys_max=2, done_max=6)
    victim, faulty, other = ReplicaId(scheme(2), 3), ReplicaId(scheme(1), 1), ReplicaId(scheme(1), 2)
    forwarder = forwarder_of(world, victim)
    for number in range(6):
        forwarder._on_next_share(dealt(world, number, faulty, victim), faulty, world.now)
    with pytest.raises(ExcessError, match="an honest holder"):
        forwarder._on_next_share(dealt(world, 6, faulty, victim), faulty, world.now)
    assert forwarder.sizes()["hops"] == 2
    assert forwarder.sizes()["early"] == 4
    forwarder._on_next_share(dealt(world, 6, other, victim), other, world.now)
    forwarder._on_next_share(dealt(world, 0, other, victim), other, world.now)
    assert forwarder.sizes()["passages"] == 1, "with the second of three holders the hop has begun"
    forwarder._on_next_share(dealt(world, 7, faulty, victim), faulty, world.now)


def test_unstarted_transfers_are_kept_exactly_while_their_keys_are_fresh() -> None:
    world = network(3, {}, keys_max=2, hold_us=50 * U)
    victim, holder = ReplicaId(scheme(2), 3), ReplicaId(scheme(1), 2)
    for number in range(5):
        world.replicas[victim].receive(dealt(world, number, holder, victim), holder, world.now)
    world.run(49 * U)
    sizes = world.replicas[victim].key_forwarder.sizes()
    assert (sizes["hops"], sizes["early"]) == (2, 3)
    world.run(2 * U)
    forwarder = forwarder_of(world, victim)
    assert not any(
        (
            forwarder._receivers,
            forwarder._deadlines,
            len(forwarder._timers),
            forwarder._unstarted._dealings,
            forwarder._unstarted._counts,
        )
    )
    assert forwarder.sizes()["passages past"] == 0
    assert not CoalitionKnowledge(world).has_key()


# --- portions that wait for an advertisement --------------------------------------------------------------------------


def invent_share(portion: DealtShare, number: int, holder: ReplicaId) -> NextShare:
    """Something like a share of another key, dealt by this holder, with nothing behind it."""
    origin = KeyAttempt(number.to_bytes(16, "big"))
    header = msgspec.structs.replace(
        portion.holder_header, key_attempt=origin, old_scheme=holder.scheme, holder=holder.index
    )
    return NextShare(BYZANTINE_ADVERT, DealtShare(portion.publisher_header, header, portion.share).encode().reveal())


def portions_for(world: TransferChain, place: ReplicaId) -> list[DealtShare]:
    return [
        DealtShare.decode(message.share)
        for message, _, to in world.shares
        if isinstance(message, NextShare) and to == place
    ]


def test_shares_that_wait_for_an_advertisement_are_not_evicted_by_induced_dealings() -> None:
    """A replica learns of the advertisement last. Until then an honest holder deals it a thousand more keys, of a
    publisher whose advertisement is not known here."""
    victim, holder = ReplicaId(scheme(2), 3), ReplicaId(scheme(1), 2)
    world = TransferChain(2, 3, {(1, 1): follow_protocol, (2, 1): follow_protocol})
    world.rng = FixedRandom()  # type: ignore[assignment]
    replica = world.replicas[victim]
    replica.routes.knows_advertisement = False

    def slow(source: Peer, to: Peer, message: Message) -> int:
        """Within the bound."""
        return U * 6 // 10 if isinstance(message, NextShare) and to == victim and source != holder else 0

    world.extra_delay = slow
    (key,) = unpicked_keys(1)
    origin = world.deal(key=key)
    world.run(U * 3 // 10)
    for number in range(1024):
        replica.receive(invent_share(portions_for(world, victim)[0], number, holder), holder, world.now)
    world.run(U * 45 // 100)
    assert replica.key_forwarder.sizes()["early"] > 1024
    replica.routes.knows_advertisement = True
    replica.key_forwarder.on_advertisement(ADVERT, world.now)
    world.run(100 * U)
    assert world.messages["DisputeDealing"] == 0
    assert key_arrived(world, origin)


def test_waiting_shares_per_holder_are_bounded_by_what_an_honest_holder_can_deal() -> None:
    world = TransferChain(2, 3, keys_max=4)
    world.deal()
    world.run(100 * U)
    victim = ReplicaId(scheme(2), 3)
    replica, (portion, *_) = world.replicas[victim], portions_for(world, victim)
    replica.routes.knows_advertisement = False
    for index, most in ((1, 8), (2, 16)):
        for number in range(20):
            replica.receive(
                invent_share(portion, number, ReplicaId(scheme(1), index)), ReplicaId(scheme(1), index), world.now
            )
        assert replica.key_forwarder.sizes()["early"] == most


# --- words that wait for a hop ----------------------------------------------------------------------------------------


def test_honest_statements_are_not_evicted_by_statements_on_a_byzantine_publishers_keys() -> None:
    """The other Byzantine replica is silent, so each honest replica is needed. To one of them shares take as long as
    they may, and all statements of the other come before: on one key, and then on three hundred that a publisher deals
    at once."""
    victim, other = ReplicaId(scheme(2), 3), ReplicaId(scheme(2), 2)
    world = TransferChain(2, 3, {(1, 1): follow_protocol, (2, 1): drop(*ANY)})
    world.rng = FixedRandom()  # type: ignore[assignment]
    world.extra_delay = lambda source, to, message: (
        U * 7 // 10 if isinstance(message, NextShare) and to == victim else 0
    )
    (key,) = unpicked_keys(1)
    origin = world.deal(key=key)
    world.run(U // 2)
    forwarder = forwarder_of(world, victim)
    assert len(forwarder._early_messages) == 1, "the word is there, and no portion"
    word = AgreementMessage(scheme(1), scheme(2)).encode()
    for number in range(300):
        spoken = AgreementWord(number.to_bytes(16, "big"), 0, scheme(1).node, FloodKind.ATTENDANCE, word)
        world.replicas[victim].receive(spoken, other, world.now)
    world.run(60 * U)
    assert key_arrived(world, origin)


# --- a replica that was started again ---------------------------------------------------------------------------------


def restart_replica() -> tuple[TransferChain, ChainReplica, DealtShare]:
    """Nodes of five, two Byzantine replicas each: those of node 2 are silent, so that each honest replica of it is
    needed, and one of these was killed and restarted. And a share of an earlier key."""
    byzantine: dict[tuple[int, int], Script] = {(hop, index): follow_protocol for hop in (1, 3) for index in (1, 2)}
    world = TransferChain(3, 5, byzantine | {(2, index): drop(*ANY) for index in (1, 2)}, done_max=32)
    world.rng = FixedRandom()  # type: ignore[assignment]
    world.deal()
    world.run(60 * U)
    victim = ReplicaId(scheme(2, 5), 5)
    world.kill(2, 5)
    return world, world.replicas[victim], portions_for(world, victim)[0]


def test_byzantine_neighbours_of_a_restarted_replica_do_not_fill_the_entries_of_others() -> None:
    """They send it invented transfers during its quiet period."""
    world, victim, portion = restart_replica()
    for number in range(40):
        for at, faulty in enumerate(ReplicaId(scheme(hop, 5), index) for hop in (1, 3) for index in (1, 2)):
            world.send(faulty, Outgoing(victim.place, invent_share(portion, 100 * at + number, faulty)))
    world.run(2 * U)
    assert victim.key_forwarder.is_quiet(world.now)
    assert victim.key_forwarder.sizes()["passages past"] == 4 * 32, "of each so much and no more"
    (key,) = unpicked_keys(1)
    world.run(40 * U)
    origin = world.deal(key=key)
    world.run(60 * U)
    assert key_arrived(world, origin)


def test_transfers_seen_in_the_quiet_period_are_ignored_for_good_and_then_forgotten() -> None:
    world, victim, portion = restart_replica()
    faulty, honest = ReplicaId(scheme(1, 5), 1), ReplicaId(scheme(1, 5), 3)
    for number in range(40):
        victim.receive(invent_share(portion, number, faulty), faulty, world.now)
    victim.receive(invent_share(portion, 99, honest), honest, world.now)
    assert victim.refused["this may have been seen before, in an earlier run"] == 41
    world.run(40 * U)
    assert not victim.key_forwarder.is_quiet(world.now)
    victim.receive(invent_share(portion, 99, honest), honest, world.now)
    assert victim.refused["this is over here"] == 1
    world.run(2 * world.config.hold_us)
    victim.receive(invent_share(portion, 99, honest), honest, world.now)
    assert victim.refused["this is over here"] == 1
    assert victim.key_forwarder.sizes()["passages past"] == 0


# --- keys that are wanted ---------------------------------------------------------------------------------------------


def test_a_key_request_under_another_advertisement_blocks_no_request() -> None:
    """The Byzantine replica of the next node asks first, every time, under an unrelated advertisement of the Byzantine
    publisher."""
    world = TransferChain(3, want_us=10 * U)
    replica, faulty, honest = world.replicas[ReplicaId(scheme(2), 2)], ReplicaId(scheme(3), 1), ReplicaId(scheme(3), 2)
    replica.routes.other_publishers[BYZANTINE_ADVERT] = BYZANTINE_PUBLISHER.public
    for moment in (0, 10, 20):
        replica.receive(WantKey(BYZANTINE_ADVERT, KEY), faulty, world.now + moment * U)
        replica.key_forwarder.outbox.clear()
        for again in (1, 5, 9):
            replica.receive(WantKey(ADVERT, KEY), honest, world.now + (moment + again) * U)
        wanted = [outgoing.message for outgoing in replica.key_forwarder.outbox]
        assert wanted == [WantKey(ADVERT, KEY)] * 3, "of all replicas of the node before, once in a while"
    assert not replica.refused
