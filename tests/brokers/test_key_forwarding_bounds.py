"""Early, late, repeated and too many keys, also from Byzantine publishers, do no harm and fill no table."""

from __future__ import annotations

import itertools
import random

import msgspec
import pytest

from support.byzantine_scripts import BEHAVIOURS, combine, drop, follow_protocol
from support.key_transfer_chain import (
    ADVERT,
    CLIENT,
    PUBLISHER,
    QUIET,
    SECRET,
    START,
    ByzantineReplica,
    CoalitionKnowledge,
    TransferChain,
    U,
    key_arrived,
    run_chain,
    scheme,
    signing,
)
from veilcast.brokers.keys import forwarder_base
from veilcast.brokers.keys.agreement import PAYLOAD_MAX, AgreementMessage
from veilcast.brokers.keys.agreement import SignedBroadcast as Words
from veilcast.brokers.keys.bulk_key import make_key_id
from veilcast.brokers.keys.paper_split import split_key
from veilcast.brokers.keys.redistribution import accept_publisher_share, deal_key, redistribute_share
from veilcast.brokers.keys.scheme import KeyAttempt, ReplicaId, Scheme
from veilcast.brokers.routing.view import Outgoing, all_replicas
from veilcast.crypto.derive import digest
from veilcast.crypto.group import Scalar
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ExcessError, ForgedError, LocalError, RemoteError
from veilcast.machine import Address
from veilcast.wire import encode
from veilcast.wire.base import Message
from veilcast.wire.brokers import (
    AgreementWord,
    DisputeDealing,
    FirstShare,
    FloodKind,
    LastShare,
    NextShare,
    ShareReceived,
    WantKey,
)

LYING = SigningKey(Secret(b"l" * 32))
OTHERS = b"o" * 16
"""Advertisement of the Byzantine publisher."""

# --- early, late, again -----------------------------------------------------------------------------------------------


def test_shares_before_their_advertisement_wait_for_it() -> None:
    for profile in ("hardened", "paper"):
        world = TransferChain(2, profile=profile)
        late = [world.replicas[ReplicaId(scheme(2), index)] for index in (1, 2)]
        for replica in late:
            replica.routes.knows_advertisement = False
        origin = world.deal()
        world.run(2 * U)
        assert all(replica.key_forwarder.sizes()["early"] for replica in late)
        for replica in late:
            replica.routes.knows_advertisement = True
            replica.key_forwarder.on_advertisement(ADVERT, world.now)
        world.run()
        assert [reader.reassembled.get(origin) for reader in world.subscribers.values()] == [SECRET]
        assert all(not replica.key_forwarder.sizes()["early"] for replica in late)


def test_statements_before_any_share_are_kept_and_bounded() -> None:
    world = TransferChain(2, keys_max=32)
    world.extra_delay = lambda source, to, message: (
        U if isinstance(message, NextShare) and to == ReplicaId(scheme(2), 1) else 0
    )
    origin = world.deal()
    world.run()
    assert key_arrived(world, origin)
    one = world.replicas[ReplicaId(scheme(2), 1)]
    said = AgreementMessage(scheme(1), scheme(2)).encode()
    for number in range(600):
        spoken = AgreementWord(number.to_bytes(16, "big"), 0, scheme(1).node, FloodKind.ATTENDANCE, said)
        one.receive(spoken, ReplicaId(scheme(2), 2), world.now)
    assert one.key_forwarder.sizes()["early"] == 8 * 32
    world.run(QUIET)
    one.handle(world.now)
    assert one.key_forwarder.sizes()["early"] == 0


def test_early_byzantine_messages_do_not_make_a_replica_give_up_a_key() -> None:
    """A holder sends its share for an unknown advertisement, and far too many others after it."""
    world = TransferChain(2, byzantine={(1, 1): follow_protocol})
    spoilt = list(itertools.islice((bytes((n >> 8, n & 255)) * 8 for n in range(1, 3000)), 2000))

    def flood(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        if not isinstance(outgoing.message, NextShare):
            return [(0, outgoing)]
        return [
            (0, outgoing._replace(message=msgspec.structs.replace(outgoing.message, advertisement=label)))
            for label in spoilt
        ]

    faulty = world.replicas[ReplicaId(scheme(1), 1)]
    assert isinstance(faulty, ByzantineReplica)
    faulty.script = flood
    origin = world.deal()
    world.run(100 * U)
    assert key_arrived(world, origin)


def test_a_late_share_is_stale_while_the_dealing_is_not_erased() -> None:
    """Found by search: such a share started the transfer again, and honest replicas made two statements."""
    for index in (1, 2, 3):
        run_chain(
            3,
            {
                (1, index): BEHAVIOURS["delay long"],
                (2, index): BEHAVIOURS["delay long"],
                (3, index): BEHAVIOURS["delay long"],
            },
            270,
        )


def test_repeats_after_the_end_change_nothing() -> None:
    world = TransferChain(2)
    world.deal()
    world.run(60 * U)
    before = [dict(replica.key_forwarder.sizes()) for replica in world.honest]
    for message, source, to in list(world.shares):
        if isinstance(to, ReplicaId):
            world.replicas[to].receive(message, source, world.now)
    assert all(replica.sent(world.now) == [] for replica in world.honest)
    assert [dict(replica.key_forwarder.sizes()) for replica in world.honest] == before
    assert all(replica.refused["this is over here"] for replica in world.honest)
    assert world.proven_faulty() == []


def test_a_forgotten_key_that_is_replayed_causes_no_statement() -> None:
    """Byzantine replicas that kept old shares are fewer than a majority, and no other replica deals."""
    world = TransferChain(2, byzantine={(1, 1): follow_protocol}, hold_us=50 * U)
    world.deal()
    world.run(200 * U)
    old = [(m, s, t) for m, s, t in world.shares if s == ReplicaId(scheme(1), 1)]
    spoken = world.messages["AgreementWord"]
    for message, source, to in old:
        assert isinstance(to, ReplicaId)
        world.replicas[to].receive(message, source, world.now)
    world.run(200 * U)
    assert world.messages["AgreementWord"] == spoken
    assert all(replica.key_forwarder.sizes()["hops"] == 0 for replica in world.honest)


def dealt_by(faulty: ReplicaId, origin: KeyAttempt, publisher: SigningKey, to: Scheme) -> list[NextShare]:
    """A Byzantine holder's dealing of a Byzantine publisher's key."""
    entropy = random.Random(7).randbytes
    firsts = deal_key(Scalar.of(0xBAD), origin, faulty.scheme, publisher, entropy, START)
    holding = accept_publisher_share(firsts[faulty.index - 1], faulty, publisher.public)
    handed = redistribute_share(holding, to, signing(faulty.scheme.node[0], faulty.index), entropy)
    return [NextShare(OTHERS, portion.encode().reveal()) for portion in handed.shares]


def test_no_publisher_can_use_the_key_id_of_another() -> None:
    """A Byzantine publisher and a holder deal their key under the id of a key in transfer, before any other replica:
    the transfer would be theirs then, and honest shares and statements would be invalid."""
    world = TransferChain(3, byzantine={(2, 1): follow_protocol})
    faulty = ReplicaId(scheme(2), 1)
    for replica in world.honest:
        replica.routes.other_publishers[OTHERS] = LYING.public
    origin = world.deal()
    for place, share in zip(all_replicas(scheme(3)), dealt_by(faulty, origin, LYING, scheme(3)), strict=True):
        world.replicas[place].receive(share, faulty, world.now)
    world.run()
    assert key_arrived(world, origin)
    assert world.proven_faulty() == [(2, 1)]


@pytest.mark.parametrize("profile", ["paper", "hardened"])
def test_a_foreign_key_id_at_the_edge_does_not_end_a_later_attempt(profile: str) -> None:
    world = TransferChain(2, profile=profile)
    edge = [world.replicas[place] for place in all_replicas(scheme(1))]
    later = KeyAttempt(world.deal().key, 1)
    entropy = random.Random(7).randbytes
    dealt = (
        [part.encode() for part in split_key(Secret(b"b" * 32), later, scheme(1), LYING, entropy)]
        if profile == "paper"
        else [part.encode() for part in deal_key(Scalar.of(0xBAD), later, scheme(1), LYING, entropy, world.now)]
    )
    for replica, share in zip(edge, dealt, strict=True):
        replica.routes.other_publishers[OTHERS] = LYING.public
        replica.receive(FirstShare(OTHERS, share.reveal()), CLIENT, world.now)
    world.run(60 * U)
    world.deal(1)
    world.run(60 * U)
    assert [reader.reassembled.get(later) for reader in world.subscribers.values()] == [SECRET]
    assert world.proven_faulty() == []


def test_a_publisher_that_sends_a_key_to_two_nodes_of_one_path_frames_nobody() -> None:
    """The second node had it from the first, and from the publisher's other client, and dealt both."""
    for first in (0, 60):
        world = TransferChain(3)
        for place in all_replicas(scheme(2)):
            routes = world.replicas[place].routes
            routes.other_publishers[OTHERS] = PUBLISHER.public
            routes.sources[OTHERS] = CLIENT
        for place in all_replicas(scheme(3)):
            world.replicas[place].routes.other_publishers[OTHERS] = PUBLISHER.public
        origin = world.deal()
        world.run(first * U // 20)
        dealt = deal_key(Scalar.of(0xBAD), origin, scheme(2), PUBLISHER, random.Random(3).randbytes, world.now)
        for place, share in zip(all_replicas(scheme(2)), dealt, strict=True):
            world.replicas[place].receive(FirstShare(OTHERS, share.encode().reveal()), CLIENT, world.now)
        world.run(100 * U)
        assert world.proven_faulty() == []
        assert all(replica.key_forwarder.sizes()["keys dealt"] == 1 for replica in world.honest)
    world.run(300 * U)
    world.deal(1)
    world.run(100 * U)
    assert all(replica.key_forwarder.sizes()["keys dealt"] == 1 for replica in world.honest), (
        "it is not remembered for ever"
    )


def loud(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
    """Sends one replica a payload that just fits into a message, and others the expected one; and delivers nothing."""
    message = outgoing.message
    if isinstance(message, LastShare):
        return []
    if (
        isinstance(message, AgreementWord)
        and message.flood is FloodKind.ATTENDANCE
        and outgoing.to == ReplicaId(scheme(2), 2)
    ):
        said = AgreementMessage.decode(message.word)
        about = msgspec.msgpack.encode((KeyAttempt(message.key, message.attempt), said.old_scheme))
        words = Words(
            digest(about, purpose=b"vc/attend"),
            faulty.place,
            faulty.world.replica_keys,
            faulty.signing,
            payload_max=1 << 20,
        )
        long = msgspec.structs.replace(said, statements=(words.announce(bytes(PAYLOAD_MAX)),)).encode()
        return [(0, outgoing._replace(message=msgspec.structs.replace(message, word=long)))]
    return [(0, outgoing)]


def test_no_statement_is_too_long_for_honest_replicas_to_relay() -> None:
    """The relayed statement, with one more signature, was too long for a message, which ended the broker."""
    hides = drop(NextShare, only=(3,))

    def shows(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        return [(0, outgoing)] if faulty.memory.get("asked") else hides(faulty, outgoing, now)

    world = TransferChain(2, byzantine={(1, 1): shows, (2, 1): loud})

    def wire(source: object, to: object, message: Message) -> int:
        try:
            encode(message)
        except LocalError:
            assert source == ReplicaId(scheme(2), 1), "a liar's own"
            return 10**15
        if isinstance(message, DisputeDealing) and to == ReplicaId(scheme(1), 1):
            asked = world.replicas[ReplicaId(scheme(1), 1)]
            assert isinstance(asked, ByzantineReplica)
            asked.memory["asked"] = True
        return 0

    world.extra_delay = wire
    origin = world.deal()
    world.run(100 * U)
    assert key_arrived(world, origin)


def test_two_attempts_at_once_do_not_mix() -> None:
    world = TransferChain(3, byzantine={(2, 2): BEHAVIOURS["two words 1"]})
    first, again = world.deal(0), world.deal(1)
    world.run()
    assert key_arrived(world, first)
    assert key_arrived(world, again)


@pytest.mark.parametrize("after", [0, U // 2, U, 3 * U // 2, 2 * U, 4 * U])
@pytest.mark.parametrize("name", ["curious", "deny all", "two words 1"])
def test_keys_pass_under_two_schemes_of_a_node_at_once(after: int, name: str) -> None:
    """The replicas of node 2 change places while a key is in transfer; the next one uses the new scheme."""
    world = TransferChain(3, byzantine={(2, 3): BEHAVIOURS[name]})
    first = world.deal()
    world.run(after)
    newer = Scheme(scheme(2).node, 1, 3)
    order = [world.replicas[ReplicaId(scheme(2), index)] for index in (3, 1, 2)]
    world.replica_keys.add(newer, [replica.signing.public for replica in order])
    for index, replica in enumerate(order, 1):
        replica.routes.older_ids = [replica.place]
        replica.routes.place = ReplicaId(newer, index)
        world.replicas[ReplicaId(newer, index)] = replica
    for replica in world.replicas.values():
        if replica.place.scheme == scheme(1):
            replica.routes.branches = [newer]
    again = world.deal(1)
    world.run()
    for origin in (first, again):
        assert [reader.reassembled.get(origin) for reader in world.subscribers.values()] == [SECRET]
    assert not CoalitionKnowledge(world).has_key()
    assert [at for at in world.proven_faulty() if at not in ((2, 3), (2, 1))] == [], "replica 3 is now the first"


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_one_publisher_fills_only_its_quota() -> None:
    world = TransferChain(2, keys_max=16, done_max=64)
    world.extra_delay = lambda source, to, message: 10**15 if isinstance(message, NextShare | ShareReceived) else 0
    edge = world.replicas[ReplicaId(scheme(1), 1)]
    for number in range(40):
        world.deal(key=make_key_id(PUBLISHER.public, number.to_bytes(8, "big")))
    world.run(2 * U)
    assert edge.key_forwarder.sizes()["passages"] == 4
    assert sum(count for reason, count in edge.refused.items() if "no room" in reason) == 36


def test_a_publisher_that_overloads_one_holder_costs_nobody_a_share() -> None:
    """The share was refused for lack of room, so its replica announced that it lacked it, and the holder showed it to
    Byzantine replicas."""
    world = TransferChain(2, byzantine={(1, 1): follow_protocol, (2, 1): follow_protocol}, keys_max=4)
    holder, late = ReplicaId(scheme(1), 2), ReplicaId(scheme(2), 3)
    for replica in world.honest:
        replica.routes.other_publishers[OTHERS] = LYING.public
    for number in range(6):
        origin = KeyAttempt(make_key_id(LYING.public, number.to_bytes(8, "big")))
        for place, share in zip(all_replicas(scheme(2)), dealt_by(holder, origin, LYING, scheme(2)), strict=True):
            world.replicas[place].receive(share, holder, world.now)
        world.run(3 * U)
        sizes = world.replicas[late].key_forwarder.sizes()
        assert sizes["hops"] <= 4
        assert sizes["hops"] + sizes["early"] == number + 1, "what is not ready to begin is not lost"
    world.extra_delay = lambda source, to, message: (
        U if isinstance(message, NextShare) and to == late and source != holder else 0
    )
    origin = world.deal()
    world.run(100 * U)
    assert key_arrived(world, origin)
    assert world.messages["DisputeDealing"] == 0
    assert world.proven_faulty() == []


def test_remembered_transfers_are_bounded_and_expire() -> None:
    world = TransferChain(1, keys_max=16, done_max=64)
    edge = world.replicas[ReplicaId(scheme(1), 1)]
    for number in range(40):
        world.deal(key=make_key_id(PUBLISHER.public, number.to_bytes(8, "big")))
        world.run(U)
    assert edge.key_forwarder.sizes()["passages past"] == 16
    world.run(500 * U)
    world.deal(key=make_key_id(PUBLISHER.public, b"later on"))
    world.run(2 * U)
    assert edge.key_forwarder.sizes()["passages past"] == 1


def test_only_the_right_peers_send_shares_and_statements() -> None:
    world = TransferChain(2)
    world.deal()
    world.run()
    one = world.replicas[ReplicaId(scheme(2), 1)]
    portions = [(m, s, t) for m, s, t in world.shares if isinstance(m, NextShare) and t == one.place]
    message, source, _ = portions[0]
    assert isinstance(source, ReplicaId)
    with pytest.raises(ForgedError, match="another holder"):
        one.key_forwarder.receive(message, ReplicaId(scheme(1), source.index % 3 + 1), world.now)
    with pytest.raises(ForgedError, match="client"):
        one.key_forwarder.receive(message, Address("somebody"), world.now)
    with pytest.raises(ForgedError, match="another hop"):
        one.key_forwarder.receive(FirstShare(ADVERT, b"x"), Address("somebody"), world.now)
    with pytest.raises(RemoteError):
        world.replicas[ReplicaId(scheme(1), 1)].key_forwarder.receive(FirstShare(ADVERT, b"x"), CLIENT, world.now)
    said = AgreementMessage(scheme(1), scheme(2)).encode()
    with pytest.raises(ForgedError, match="takes no part"):
        one.key_forwarder.receive(
            AgreementWord(b"k" * 16, 0, scheme(1).node, FloodKind.ATTENDANCE, said), ReplicaId(scheme(1), 1), world.now
        )
    with pytest.raises(ForgedError, match="takes no part"):
        one.key_forwarder.receive(
            AgreementWord(b"k" * 16, 0, scheme(2).node, FloodKind.ATTENDANCE, said), ReplicaId(scheme(2), 2), world.now
        )
    paper = TransferChain(2, profile="paper").replicas[ReplicaId(scheme(2), 1)]
    with pytest.raises(ForgedError, match="profile"):
        paper.key_forwarder.receive(ShareReceived(b"k" * 16, 0), ReplicaId(scheme(1), 1), world.now)


# --- keys that are wanted ---------------------------------------------------------------------------------------------


def test_a_key_request_goes_back_to_the_publisher_once_in_a_while() -> None:
    world = TransferChain(3, want_us=10 * U)
    wanted = WantKey(ADVERT, b"k" * 16)
    for _ in range(3):
        for place in all_replicas(scheme(3)):
            world.send(Address("reader 3"), Outgoing(place, wanted))
        world.run(6 * U)
    assert world.wanted == [wanted] * 6
    with pytest.raises(ForgedError, match="without subscribers"):
        world.replicas[ReplicaId(scheme(1), 1)].key_forwarder.receive(wanted, Address("somebody"), world.now)


def test_key_requests_of_one_peer_are_bounded() -> None:
    world = TransferChain(2)
    replica = world.replicas[ReplicaId(scheme(2), 1)]
    for number in range(forwarder_base._REQUESTS_PER_PEER):
        replica.key_forwarder.receive(WantKey(ADVERT, number.to_bytes(16, "big")), Address("reader 2"), world.now)
    with pytest.raises(ExcessError):
        replica.key_forwarder.receive(WantKey(ADVERT, b"x" * 16), Address("reader 2"), world.now)
    assert replica.key_forwarder.sizes()["keys wanted"] == forwarder_base._REQUESTS_PER_PEER


# --- publishers that lie ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("others", [(1,), (2,), (3,), (1, 2), (1, 2, 3)])
def test_a_publisher_with_two_dealings_of_one_key_frames_nobody(others: tuple[int, ...]) -> None:
    """Replicas of the first node hold shares under two publisher headers; no honest replica is blamed for that."""
    for seed in range(3):
        world = TransferChain(3, byzantine={(2, 1): drop(AgreementWord), (3, 1): drop(AgreementWord)}, seed=seed)
        world.deal()
        other = TransferChain(3, seed=100 + seed)
        other.deal()
        for (message, source, to), _ in zip(list(other.shares), range(3), strict=False):
            assert isinstance(to, ReplicaId)
            if to.index in others:
                world.replicas[to].receive(message, source, world.now)
        world.run()
        assert world.proven_faulty() == []
        assert not CoalitionKnowledge(world).has_key()


# --- when the bound does not hold -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_with_stalled_links_no_honest_replica_is_blamed_and_the_next_attempt_arrives(seed: int) -> None:
    """And Byzantine replicas do not get the key: a share that was not acknowledged in time is not shown at first."""
    rng = random.Random(seed)
    byzantine = {(hop, rng.randint(1, 3)): BEHAVIOURS[rng.choice(list(BEHAVIOURS))] for hop in (1, 2, 3)}
    world = TransferChain(3, byzantine=byzantine, seed=seed)
    stalled: dict[tuple[object, object], int] = {}

    def slow(source: object, to: object, message: object) -> int:
        if rng.random() < 0.03:
            stalled[(source, to)] = world.now + rng.randint(2, 25) * U
        return max(0, stalled.get((source, to), 0) - world.now)

    world.extra_delay = slow
    world.deal()
    world.run(300 * U)
    assert not CoalitionKnowledge(world).has_key()
    named = [place for replica in world.honest for place in replica.evidence.proven_faulty()]
    assert [place for place in named if (place.scheme.node[0], place.index) not in byzantine] == []
    world.extra_delay = lambda source, to, message: 0
    again = world.deal(1)
    world.run(100 * U)
    assert all(reader.reassembled.get(again) == SECRET for reader in world.subscribers.values())


def test_a_replica_that_never_acknowledges_stops_a_key_at_most_twice() -> None:
    """It may be an honest one with a stalled link: its share is not shown, and the publisher tries again."""
    world = TransferChain(2, byzantine={(2, 1): combine(BEHAVIOURS["deny all"], drop(ShareReceived))})
    world.unacknowledging = [ReplicaId(scheme(2), 1)]
    came = []
    for attempt in range(4):
        origin = world.deal(attempt)
        world.run(100 * U)
        came.append(all(reader.reassembled.get(origin) == SECRET for reader in world.subscribers.values()))
    assert came == [False, False, True, True]
    assert not CoalitionKnowledge(world).has_key()
    world.run(5 * 200 * U)
    origin = world.deal(9)
    world.run(100 * U)
    assert not key_arrived(world, origin), "after a while it is given the benefit of the doubt again"
