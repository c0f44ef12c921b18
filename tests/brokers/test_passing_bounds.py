"""Keys that come early, late or again, from publishers that lie, or too many of them, do no harm and fill nothing."""

from __future__ import annotations

import itertools
import random

import msgspec
import pytest

from support.lies import LIES, both, curious, drop
from support.overlays import (
    ADVERT,
    CLIENT,
    PUBLISHER,
    QUIET,
    SECRET,
    START,
    Liar,
    Pool,
    U,
    World,
    passed,
    run,
    scheme,
    signing,
)
from veilcast.brokers import passing
from veilcast.brokers.routes import Outgoing, replicas
from veilcast.brokers.said import Said
from veilcast.brokers.sharing.bulk import key_id
from veilcast.brokers.sharing.flooding import WORD_MAX
from veilcast.brokers.sharing.flooding import Flood as Words
from veilcast.brokers.sharing.paper import Origin, split_key
from veilcast.brokers.sharing.redistribution import deal_key, hand_on, take_first
from veilcast.brokers.sharing.scheme import Place, Scheme
from veilcast.crypto.derive import digest
from veilcast.crypto.group import Scalar
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ExcessError, ForgedError, LocalError, RemoteError
from veilcast.machine import Address
from veilcast.wire import encode
from veilcast.wire.brokers import Disputed, FirstShare, Flood, LastShare, NextShare, Spoken, Taken, WantKey
from veilcast.wire.messages import Message

LYING = SigningKey(Secret(b"l" * 32))
OTHERS = b"o" * 16
"""Its advertisement."""

# --- early, late, again -----------------------------------------------------------------------------------------------


def test_what_comes_before_its_advertisement_waits_for_it() -> None:
    for profile in ("hardened", "paper"):
        world = World(2, profile=profile)
        late = [world.replicas[Place(scheme(2), index)] for index in (1, 2)]
        for replica in late:
            replica.routes.known = False
        origin = world.deal()
        world.run(2 * U)
        assert all(replica.passing.sizes()["early"] for replica in late)
        for replica in late:
            replica.routes.known = True
            replica.passing.advertised(ADVERT, world.now)
        world.run()
        assert [reader.got.get(origin) for reader in world.readers.values()] == [SECRET]
        assert all(not replica.passing.sizes()["early"] for replica in late)


def test_words_that_come_before_any_portion_are_kept_and_bounded() -> None:
    world = World(2, keys_max=32)
    world.slow = lambda source, to, message: U if isinstance(message, NextShare) and to == Place(scheme(2), 1) else 0
    origin = world.deal()
    world.run()
    assert passed(world, origin)
    one = world.replicas[Place(scheme(2), 1)]
    said = Said(scheme(1), scheme(2)).encode()
    for number in range(600):
        spoken = Spoken(number.to_bytes(16, "big"), 0, scheme(1).node, Flood.ATTENDANCE, said)
        one.receive(spoken, Place(scheme(2), 2), world.now)
    assert one.passing.sizes()["early"] == 8 * 32
    world.run(QUIET)
    one.handle(world.now)
    assert one.passing.sizes()["early"] == 0


def test_liars_do_not_make_us_give_up_a_key_by_what_they_send_early() -> None:
    """A holder sends its portion for an advertisement that nobody knows, and far too many others after it."""
    world = World(2, liars={(1, 1): curious})
    spoilt = list(itertools.islice((bytes((n >> 8, n & 255)) * 8 for n in range(1, 3000)), 2000))

    def flood(liar: Liar, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        if not isinstance(outgoing.message, NextShare):
            return [(0, outgoing)]
        return [
            (0, outgoing._replace(message=msgspec.structs.replace(outgoing.message, advertisement=label)))
            for label in spoilt
        ]

    liar = world.replicas[Place(scheme(1), 1)]
    assert isinstance(liar, Liar)
    liar.script = flood
    origin = world.deal()
    world.run(100 * U)
    assert passed(world, origin)


def test_a_portion_that_comes_when_the_hop_is_over_and_what_was_dealt_is_not_erased_yet_is_over_too() -> None:
    """Found by search: such a one began the hop anew, and honest replicas said two things."""
    for index in (1, 2, 3):
        run(3, {(1, index): LIES["delay long"], (2, index): LIES["delay long"], (3, index): LIES["delay long"]}, 270)


def test_what_comes_again_after_all_is_over_changes_nothing() -> None:
    world = World(2)
    world.deal()
    world.run(60 * U)
    before = [dict(replica.passing.sizes()) for replica in world.honest]
    for message, source, to in list(world.shares):
        if isinstance(to, Place):
            world.replicas[to].receive(message, source, world.now)
    assert all(replica.sent(world.now) == [] for replica in world.honest)
    assert [dict(replica.passing.sizes()) for replica in world.honest] == before
    assert all(replica.refused["this is over here"] for replica in world.honest)
    assert world.named() == []


def test_a_key_that_comes_again_after_it_was_forgotten_brings_nobody_to_speak() -> None:
    """Liars who kept portions from long ago are fewer than a majority, and nobody else deals."""
    world = World(2, liars={(1, 1): curious}, hold_us=50 * U)
    world.deal()
    world.run(200 * U)
    old = [(m, s, t) for m, s, t in world.shares if s == Place(scheme(1), 1)]
    spoken = world.messages["Spoken"]
    for message, source, to in old:
        assert isinstance(to, Place)
        world.replicas[to].receive(message, source, world.now)
    world.run(200 * U)
    assert world.messages["Spoken"] == spoken
    assert all(replica.passing.sizes()["hops"] == 0 for replica in world.honest)


def dealt_by(liar: Place, origin: Origin, publisher: SigningKey, to: Scheme) -> list[NextShare]:
    """What a holder that lies makes of a key of a publisher that does."""
    entropy = random.Random(7).randbytes
    firsts = deal_key(Scalar.of(0xBAD), origin, liar.scheme, publisher, entropy, START)
    holding = take_first(firsts[liar.index - 1], liar, publisher.public)
    handed = hand_on(holding, to, signing(liar.scheme.node[0], liar.index), entropy)
    return [NextShare(OTHERS, portion.encode().reveal()) for portion in handed.portions]


def test_nobody_can_call_a_key_what_another_publishers_is_called() -> None:
    """A publisher that lies, and a holder, deal theirs under the name of one that is on its way, before anybody else:
    its passage would be theirs then, and honest holders' portions and siblings' words would not hold."""
    world = World(3, liars={(2, 1): curious})
    liar = Place(scheme(2), 1)
    for replica in world.honest:
        replica.routes.others[OTHERS] = LYING.public
    origin = world.deal()
    for place, share in zip(replicas(scheme(3)), dealt_by(liar, origin, LYING, scheme(3)), strict=True):
        world.replicas[place].receive(share, liar, world.now)
    world.run()
    assert passed(world, origin)
    assert world.named() == [(2, 1)]


@pytest.mark.parametrize("profile", ["paper", "hardened"])
def test_nor_at_the_edge_so_another_attempt_is_not_over_before_it_comes(profile: str) -> None:
    world = World(2, profile=profile)
    edge = [world.replicas[place] for place in replicas(scheme(1))]
    later = Origin(world.deal().key, 1)
    entropy = random.Random(7).randbytes
    dealt = (
        [part.encode() for part in split_key(Secret(b"b" * 32), later, scheme(1), LYING, entropy)]
        if profile == "paper"
        else [part.encode() for part in deal_key(Scalar.of(0xBAD), later, scheme(1), LYING, entropy, world.now)]
    )
    for replica, share in zip(edge, dealt, strict=True):
        replica.routes.others[OTHERS] = LYING.public
        replica.receive(FirstShare(OTHERS, share.reveal()), CLIENT, world.now)
    world.run(60 * U)
    world.deal(1)
    world.run(60 * U)
    assert [reader.got.get(later) for reader in world.readers.values()] == [SECRET]
    assert world.named() == []


def test_a_publisher_that_brings_a_key_to_two_nodes_on_one_way_gets_nobody_named() -> None:
    """The second of them had it from the first, and from the publisher's other client, and dealt both."""
    for first in (0, 60):
        world = World(3)
        for place in replicas(scheme(2)):
            routes = world.replicas[place].routes
            routes.others[OTHERS] = PUBLISHER.public
            routes.sources[OTHERS] = CLIENT
        for place in replicas(scheme(3)):
            world.replicas[place].routes.others[OTHERS] = PUBLISHER.public
        origin = world.deal()
        world.run(first * U // 20)
        dealt = deal_key(Scalar.of(0xBAD), origin, scheme(2), PUBLISHER, random.Random(3).randbytes, world.now)
        for place, share in zip(replicas(scheme(2)), dealt, strict=True):
            world.replicas[place].receive(FirstShare(OTHERS, share.encode().reveal()), CLIENT, world.now)
        world.run(100 * U)
        assert world.named() == []
        assert all(replica.passing.sizes()["keys dealt"] == 1 for replica in world.honest)
    world.run(300 * U)
    world.deal(1)
    world.run(100 * U)
    assert all(replica.passing.sizes()["keys dealt"] == 1 for replica in world.honest), "it is not remembered for ever"


def loud(liar: Liar, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
    """Says to one replica what just fits into a message, to others what is expected; and delivers nothing."""
    message = outgoing.message
    if isinstance(message, LastShare):
        return []
    if isinstance(message, Spoken) and message.flood is Flood.ATTENDANCE and outgoing.to == Place(scheme(2), 2):
        said = Said.decode(message.word)
        about = msgspec.msgpack.encode((Origin(message.key, message.attempt), said.old))
        words = Words(digest(about, purpose=b"vc/attend"), liar.place, liar.world.roster, liar.signing, most=1 << 20)
        long = msgspec.structs.replace(said, words=(words.say(bytes(WORD_MAX)),)).encode()
        return [(0, outgoing._replace(message=msgspec.structs.replace(message, word=long)))]
    return [(0, outgoing)]


def test_no_word_is_so_long_that_honest_replicas_cannot_pass_it_on() -> None:
    """What was passed on, with one signature more, was no message any more: that ended the broker who tried."""
    hides = drop(NextShare, only=(3,))

    def shows(liar: Liar, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        return [(0, outgoing)] if liar.memory.get("asked") else hides(liar, outgoing, now)

    world = World(2, liars={(1, 1): shows, (2, 1): loud})

    def wire(source: object, to: object, message: Message) -> int:
        try:
            encode(message)
        except LocalError:
            assert source == Place(scheme(2), 1), "a liar's own"
            return 10**15
        if isinstance(message, Disputed) and to == Place(scheme(1), 1):
            asked = world.replicas[Place(scheme(1), 1)]
            assert isinstance(asked, Liar)
            asked.memory["asked"] = True
        return 0

    world.slow = wire
    origin = world.deal()
    world.run(100 * U)
    assert passed(world, origin)


def test_two_attempts_at_once_do_not_mix() -> None:
    world = World(3, liars={(2, 2): LIES["two words 1"]})
    first, again = world.deal(0), world.deal(1)
    world.run()
    assert passed(world, first)
    assert passed(world, again)


@pytest.mark.parametrize("after", [0, U // 2, U, 3 * U // 2, 2 * U, 4 * U])
@pytest.mark.parametrize("name", ["curious", "deny all", "two words 1"])
def test_keys_pass_under_two_schemes_of_a_node_at_once(after: int, name: str) -> None:
    """The replicas of node 2 change places while a key is on its way; the next one goes by the new scheme."""
    world = World(3, liars={(2, 3): LIES[name]})
    first = world.deal()
    world.run(after)
    newer = Scheme(scheme(2).node, 1, 3)
    order = [world.replicas[Place(scheme(2), index)] for index in (3, 1, 2)]
    world.roster.put(newer, [replica.signing.public for replica in order])
    for index, replica in enumerate(order, 1):
        replica.routes.older = [replica.place]
        replica.routes.place = Place(newer, index)
        world.replicas[Place(newer, index)] = replica
    for replica in world.replicas.values():
        if replica.place.scheme == scheme(1):
            replica.routes.branches = [newer]
    again = world.deal(1)
    world.run()
    for origin in (first, again):
        assert [reader.got.get(origin) for reader in world.readers.values()] == [SECRET]
    assert not Pool(world).reconstructs()
    assert [at for at in world.named() if at not in ((2, 3), (2, 1))] == [], "replica 3 is now the first"


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_one_publisher_fills_only_its_part_of_the_room() -> None:
    world = World(2, keys_max=16, done_max=64)
    world.slow = lambda source, to, message: 10**15 if isinstance(message, NextShare | Taken) else 0
    edge = world.replicas[Place(scheme(1), 1)]
    for number in range(40):
        world.deal(key=key_id(PUBLISHER.public, number.to_bytes(8, "big")))
    world.run(2 * U)
    assert edge.passing.sizes()["passages"] == 4
    assert sum(count for reason, count in edge.refused.items() if "no room" in reason) == 36


def test_a_publisher_that_has_one_holder_deal_too_much_costs_nobody_a_portion() -> None:
    """Which was refused for want of room, so its replica said that it lacked it, and the holder showed it to liars."""
    world = World(2, liars={(1, 1): curious, (2, 1): curious}, keys_max=4)
    holder, late = Place(scheme(1), 2), Place(scheme(2), 3)
    for replica in world.honest:
        replica.routes.others[OTHERS] = LYING.public
    for number in range(6):
        origin = Origin(key_id(LYING.public, number.to_bytes(8, "big")))
        for place, share in zip(replicas(scheme(2)), dealt_by(holder, origin, LYING, scheme(2)), strict=True):
            world.replicas[place].receive(share, holder, world.now)
        world.run(3 * U)
        sizes = world.replicas[late].passing.sizes()
        assert sizes["hops"] <= 4
        assert sizes["hops"] + sizes["early"] == number + 1, "what is not ready to begin is not lost"
    world.slow = lambda source, to, message: (
        U if isinstance(message, NextShare) and to == late and source != holder else 0
    )
    origin = world.deal()
    world.run(100 * U)
    assert passed(world, origin)
    assert world.messages["Disputed"] == 0
    assert world.named() == []


def test_of_passages_that_are_over_so_many_are_remembered_and_not_for_ever() -> None:
    world = World(1, keys_max=16, done_max=64)
    edge = world.replicas[Place(scheme(1), 1)]
    for number in range(40):
        world.deal(key=key_id(PUBLISHER.public, number.to_bytes(8, "big")))
        world.run(U)
    assert edge.passing.sizes()["passages past"] == 16
    world.run(500 * U)
    world.deal(key=key_id(PUBLISHER.public, b"later on"))
    world.run(2 * U)
    assert edge.passing.sizes()["passages past"] == 1


def test_nobody_but_who_should_brings_shares_or_words() -> None:
    world = World(2)
    world.deal()
    world.run()
    one = world.replicas[Place(scheme(2), 1)]
    portions = [(m, s, t) for m, s, t in world.shares if isinstance(m, NextShare) and t == one.place]
    message, source, _ = portions[0]
    assert isinstance(source, Place)
    with pytest.raises(ForgedError, match="another holder"):
        one.passing.receive(message, Place(scheme(1), source.index % 3 + 1), world.now)
    with pytest.raises(ForgedError, match="client"):
        one.passing.receive(message, Address("somebody"), world.now)
    with pytest.raises(ForgedError, match="another way"):
        one.passing.receive(FirstShare(ADVERT, b"x"), Address("somebody"), world.now)
    with pytest.raises(RemoteError):
        world.replicas[Place(scheme(1), 1)].passing.receive(FirstShare(ADVERT, b"x"), CLIENT, world.now)
    said = Said(scheme(1), scheme(2)).encode()
    with pytest.raises(ForgedError, match="nobody"):
        one.passing.receive(
            Spoken(b"k" * 16, 0, scheme(1).node, Flood.ATTENDANCE, said), Place(scheme(1), 1), world.now
        )
    with pytest.raises(ForgedError, match="nobody"):
        one.passing.receive(
            Spoken(b"k" * 16, 0, scheme(2).node, Flood.ATTENDANCE, said), Place(scheme(2), 2), world.now
        )
    paper = World(2, profile="paper").replicas[Place(scheme(2), 1)]
    with pytest.raises(ForgedError, match="profile"):
        paper.passing.receive(Taken(b"k" * 16, 0), Place(scheme(1), 1), world.now)


# --- keys that are wanted ---------------------------------------------------------------------------------------------


def test_a_reader_that_lacks_a_key_asks_for_it_all_the_way_back_once_in_a_while() -> None:
    world = World(3, want_us=10 * U)
    wanted = WantKey(ADVERT, b"k" * 16)
    for _ in range(3):
        for place in replicas(scheme(3)):
            world.send(Address("reader 3"), Outgoing(place, wanted))
        world.run(6 * U)
    assert world.wanted == [wanted] * 6
    with pytest.raises(ForgedError, match="no readers"):
        world.replicas[Place(scheme(1), 1)].passing.receive(wanted, Address("somebody"), world.now)


def test_a_peer_asks_for_so_many_keys_and_no_more() -> None:
    world = World(2)
    replica = world.replicas[Place(scheme(2), 1)]
    for number in range(passing._WANTS_EACH):
        replica.passing.receive(WantKey(ADVERT, number.to_bytes(16, "big")), Address("reader 2"), world.now)
    with pytest.raises(ExcessError):
        replica.passing.receive(WantKey(ADVERT, b"x" * 16), Address("reader 2"), world.now)
    assert replica.passing.sizes()["keys wanted"] == passing._WANTS_EACH


# --- publishers that lie ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("others", [(1,), (2,), (3,), (1, 2), (1, 2, 3)])
def test_a_publisher_that_deals_one_key_in_two_ways_frames_nobody(others: tuple[int, ...]) -> None:
    """Replicas of the first node hold shares under two words of the publisher; nobody honest is named for that."""
    for seed in range(3):
        world = World(3, liars={(2, 1): drop(Spoken), (3, 1): drop(Spoken)}, seed=seed)
        world.deal()
        other = World(3, seed=100 + seed)
        other.deal()
        for (message, source, to), _ in zip(list(other.shares), range(3), strict=False):
            assert isinstance(to, Place)
            if to.index in others:
                world.replicas[to].receive(message, source, world.now)
        world.run()
        assert world.named() == []
        assert not Pool(world).reconstructs()


# --- when the bound does not hold -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_where_links_stall_nobody_honest_is_named_and_the_next_attempt_arrives(seed: int) -> None:
    """And what liars get is not the key: a portion that was not acknowledged in time is not shown at first."""
    rng = random.Random(seed)
    liars = {(hop, rng.randint(1, 3)): LIES[rng.choice(list(LIES))] for hop in (1, 2, 3)}
    world = World(3, liars=liars, seed=seed)
    stalled: dict[tuple[object, object], int] = {}

    def slow(source: object, to: object, message: object) -> int:
        if rng.random() < 0.03:
            stalled[(source, to)] = world.now + rng.randint(2, 25) * U
        return max(0, stalled.get((source, to), 0) - world.now)

    world.slow = slow
    world.deal()
    world.run(300 * U)
    assert not Pool(world).reconstructs()
    named = [place for replica in world.honest for place in replica.suspicions.liars()]
    assert [place for place in named if (place.scheme.node[0], place.index) not in liars] == []
    world.slow = lambda source, to, message: 0
    again = world.deal(1)
    world.run(100 * U)
    assert all(reader.got.get(again) == SECRET for reader in world.readers.values())


def test_a_liar_that_acknowledges_nothing_stops_a_key_twice_and_no_more() -> None:
    """It may be an honest one whose link has stalled: its portion is not shown, and the publisher tries again."""
    world = World(2, liars={(2, 1): both(LIES["deny all"], drop(Taken))})
    world.deaf = [Place(scheme(2), 1)]
    came = []
    for attempt in range(4):
        origin = world.deal(attempt)
        world.run(100 * U)
        came.append(all(reader.got.get(origin) == SECRET for reader in world.readers.values()))
    assert came == [False, False, True, True]
    assert not Pool(world).reconstructs()
    world.run(5 * 200 * U)
    origin = world.deal(9)
    world.run(100 * U)
    assert not passed(world, origin), "after a while it is given the benefit of the doubt again"
