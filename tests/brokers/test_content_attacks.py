"""Attacks on content, its confirmations and a subscriber's tables: all publications still arrive."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import msgspec
import pytest

from support.broker_keyrings import TOPIC
from support.broker_network import BrokerNetwork
from support.byzantine_scripts import change_roll, follow_protocol, without
from support.key_transfer_chain import CLIENT, PUBLISHER, TransferChain, U, scheme
from veilcast.brokers.config import BrokerClientConfig
from veilcast.brokers.content.blocks import ATTEMPTS_MAX, ContentManifest, Strategy, encode_content
from veilcast.brokers.evidence import FaultReason
from veilcast.brokers.keys.scheme import ReplicaId
from veilcast.brokers.routing.view import Outgoing, Peer
from veilcast.errors import MalformedError
from veilcast.machine import Address, Publication, Settled
from veilcast.topics import All, Label, Range
from veilcast.wire.base import Message
from veilcast.wire.brokers import AgreementWord, FloodKind, ForwardContent, NextShare, RequestBlocks, ShareReceived


class ThreeNodeNetwork:
    """A publisher at one end of a chain of three nodes, and a subscriber at the other."""

    def __init__(self, client: BrokerClientConfig | None = None) -> None:
        self.network = BrokerNetwork("hardened", client=client)
        self.publisher, self.reader = self.network.client("P", "B1", 0, "publisher"), self.network.client("R", "B3", 1)
        self.settled = 0
        self._act, self.network._act = self.network._act, self._watch  # type: ignore[method-assign]

    def subscribe(self, low: int = 0) -> None:
        self.network.run(1)
        reader = self.network.places[Address("R")].machine
        reader.subscribe(All(Label(TOPIC), Range("level", low, 15)), self.network.now)
        self.network.touch("R")
        self.network.run(4)

    def publish(self, body: bytes, level: int = 9) -> None:
        self.publisher.publish(Publication((("topic", TOPIC), ("level", level)), body), self.network.now)
        self.network.touch("P")

    def heard(self) -> list[bytes]:
        return [body for _, _, body in self.network.heard]

    def overhear(self, broker: str) -> dict[bytes, ForwardContent]:
        """Record the content that reaches this broker from now on."""
        seen: dict[bytes, ForwardContent] = {}
        carrying = self.network.broker(broker)._content_forwarder
        hear = carrying.receive

        def told(message: Message, source: Peer, now: int) -> None:
            if isinstance(message, ForwardContent):
                seen[message.routing.content] = message
            hear(message, source, now)

        carrying.receive = told  # type: ignore[method-assign]
        return seen

    def _watch(self, event: object, address: Address, place: object) -> None:
        self.settled += isinstance(event, Settled) and address == "P"
        self._act(event, address, place)  # type: ignore[arg-type]


def bare(carry: ForwardContent, **changes: object) -> ForwardContent:
    """Its manifest alone."""
    return msgspec.structs.replace(carry, block=None, index=0, **changes)


def other_bytes(manifest: bytes) -> bytes:
    """The same values, with the length of the list in three bytes."""
    assert manifest[0] == 0x95
    return b"\xdc\x00\x05" + manifest[1:]


def test_a_manifest_has_one_encoding() -> None:
    manifest, _ = encode_content(bytes(16), b"news", Strategy.COPIES, scheme(1), PUBLISHER)
    assert ContentManifest.decode(manifest.encode()) == manifest
    with pytest.raises(MalformedError, match="in other bytes"):
        ContentManifest.decode(other_bytes(manifest.encode()))


def test_an_early_manifest_in_other_bytes_keeps_no_subscriber_from_reading() -> None:
    network = ThreeNodeNetwork(BrokerClientConfig(overtime_us=0))
    network.subscribe()
    seen, faulty = network.overhear("B1.1"), network.network.broker("B3.1")
    say = faulty._links.send
    faulty._links.send = lambda peer, message: (  # type: ignore[method-assign]
        None if isinstance(message, ForwardContent) and peer == "R" else say(peer, message)
    )
    network.publish(b"news")
    while not seen:
        network.network.run(0.001)
    (carry,) = seen.values()
    say(Address("R"), bare(carry, manifest=other_bytes(carry.manifest)))
    network.network.touch("B3.1")
    network.network.run(10)
    assert network.heard() == [b"news"]


def test_naming_the_last_attempt_first_makes_no_honest_attempt_stale() -> None:
    network = ThreeNodeNetwork()
    network.subscribe()
    network.publish(b"first")
    network.network.run(3)
    faulty = network.network.broker("B2.1")
    say = faulty._links.send_to_replica

    def lie(key: bytes, message: Message) -> None:
        if isinstance(message, ForwardContent):
            message = msgspec.structs.replace(message, attempt=ATTEMPTS_MAX)
        say(key, message)

    faulty._links.send_to_replica = lie  # type: ignore[method-assign]
    network.network.kill("R")
    network.publish(b"while the reader is away")
    network.network.run(5)
    network.network.restart("R")
    network.subscribe()
    network.network.run(60)
    assert network.heard() == [b"first", b"while the reader is away"]
    assert network.settled == 2


def test_attempts_invented_by_one_replica_cause_no_messages() -> None:
    world = TransferChain(4, 3, {(1, 1): follow_protocol})
    for reader in world.subscribers.values():
        reader.receive = lambda message, source, now: []  # type: ignore[method-assign]
    content = world.publish(b"x" * 20_000)
    world.run(30 * U)
    herald, before = world.held[content][0], world.messages["ForwardContent"]
    for attempt in range(1, 256):
        lie = msgspec.structs.replace(herald, attempt=attempt)
        world.send(ReplicaId(scheme(1), 1), Outgoing(ReplicaId(scheme(2), 2), lie))
    world.run(60 * U)
    assert world.messages["ForwardContent"] == before + 255
    assert world.replicas[ReplicaId(scheme(2), 2)].refused["an attempt above the maximum"] == 255 - ATTEMPTS_MAX


def test_manifests_of_unwanted_content_fill_only_their_senders_quota() -> None:
    network = ThreeNodeNetwork(BrokerClientConfig(contents_max=16))
    network.subscribe(low=8)
    seen = network.overhear("B1.1")
    for number in range(16):
        network.publish(b"not wanted %d" % number, level=1)
        network.network.run(0.1)
    network.network.run(2)
    old, faulty = list(seen.values()), network.network.broker("B3.1")
    network.publish(b"wanted")
    for _ in range(20):
        for carry in old:
            faulty._links.send(Address("R"), bare(carry))
        network.network.touch("B3.1")
        network.network.run(0.2)
    assert network.heard() == [b"wanted"]
    assert network.reader.sizes()["contents"] <= 16 // 3


def test_replayed_old_publications_fill_only_their_senders_quota() -> None:
    """A Byzantine replica has them whole, with their blocks, and their keys are gone: they wait like new content."""
    network = ThreeNodeNetwork(BrokerClientConfig(contents_max=16, refresh_messages=1, overtime_us=0))
    other = network.network.client("S", "B3", 2)
    network.network.run(1)
    other.subscribe(Label(TOPIC), network.network.now)
    network.network.touch("S")
    network.network.run(4)
    seen, faulty = network.overhear("B3.1"), network.network.broker("B3.1")
    for number in range(24):
        network.publish(b"old %d" % number)
        network.network.run(0.2)
    network.network.run(2)
    old = [carry for carry in seen.values() if carry.block is not None]
    assert len(old) >= 12
    network.subscribe()
    network.network.heard.clear()
    for number in range(4):
        for carry in old:
            faulty._links.send(Address("R"), carry)
        network.network.touch("B3.1")
        network.network.run(0.3)
        network.publish(b"new %d" % number)
    network.network.run(2)
    assert [body for name, _, body in network.network.heard if name == "R"] == [
        b"new %d" % number for number in range(4)
    ]
    assert 0 < network.reader.sizes()["contents"] <= 16 // 3


def test_content_dropped_when_its_request_timer_fires_breaks_nothing() -> None:
    """Both timers fire at the same time by default."""
    network = ThreeNodeNetwork()
    network.subscribe(low=8)
    seen = network.overhear("B1.1")
    network.publish(b"not wanted", level=1)
    network.network.run(2)
    network.network.broker("B3.1")._links.send(Address("R"), bare(next(iter(seen.values()))))
    network.network.touch("B3.1")
    network.network.run(130)
    assert network.reader.sizes()["contents"] == 0
    network.publish(b"wanted")
    network.network.run(2)
    assert network.heard() == [b"wanted"]


def test_a_requesting_subscriber_is_not_abandoned_while_byzantine_replicas_delay_a_key() -> None:
    """A Byzantine replica at each node deals nothing, and denies the shares of the previous node without having
    acknowledged them, so its denials are excused."""
    network = ThreeNodeNetwork(BrokerClientConfig(missing_us=700_000))
    network.subscribe()
    for node, before in (("B1", None), ("B2", "B1"), ("B3", "B2")):
        mislead(network.network, node, before)
    network.publish(b"news")
    for _ in range(90):
        network.network.run(5)
        if network.settled:
            break
    assert network.heard() == [b"news"]
    assert network.settled == 1


def mislead(network: BrokerNetwork, node: str, before: str | None) -> None:
    faulty = network.broker(f"{node}.1")
    say, place = faulty._links.send_to_replica, faulty._deployment.ids_of(faulty.key)[0]
    attempts: list[tuple[bytes, int]] = []

    mouth = SimpleNamespace(place=place, world=faulty._deployment, signing=faulty.signing)

    def lie(key: bytes, message: Message) -> None:
        if isinstance(message, NextShare | ShareReceived):
            return
        if isinstance(message, AgreementWord) and message.flood is FloodKind.ATTENDANCE:
            name = (message.key, message.attempt)
            if name not in attempts:
                attempts.append(name)
            holder = 2 if attempts.index(name) < 2 else 3
            script = change_roll(lambda roll, to: roll._replace(table=without(roll.table, holder)))
            ((_, said),) = script(mouth, Outgoing(place, message), network.now)  # type: ignore[arg-type]
            message = said.message
        say(key, message)

    faulty._links.send_to_replica = lie  # type: ignore[method-assign]
    for index in (2, 3) if before else ():
        links = network.broker(f"{before}.{index}")._links
        links.is_unacknowledged = partial(unheard_by, faulty.key, links.is_unacknowledged)  # type: ignore[method-assign]


def unheard_by(faulty: bytes, known: Callable[[bytes, Message], bool], key: bytes, message: Message) -> bool:
    """The holder's view if that Byzantine replica acknowledges no share."""
    return (key == faulty and isinstance(message, NextShare)) or known(key, message)


def test_a_restarted_replica_learns_that_others_are_done_without_another_attempt() -> None:
    world = TransferChain(2)
    content = world.publish(b"news")
    world.run(60 * U)
    assert world.is_confirmed(content)
    world.kill(1, 2)
    revived = world.replicas[ReplicaId(scheme(1), 2)]
    revived.key_forwarder.end_quiet_period()
    herald, blocks = world.held[content]
    again = msgspec.structs.replace(herald, attempt=1, block=blocks[0].data, index=1)
    world.send(CLIENT, Outgoing(ReplicaId(scheme(1), 2), again))
    world.run(60 * U)
    assert revived.content_forwarder.sizes()["contents"] == 0
    assert revived.content_forwarder.sizes()["contents done"] == 1


class BlockRequestNetwork:
    """Two nodes without any block, and a subscriber that requests the first block from a replica of the second."""

    def __init__(self) -> None:
        self.world, self.carries = TransferChain(2, strategy=Strategy.CODED), dict[int, ForwardContent]()
        self.world.extra_delay = self._keep
        self.content = self.world.publish(b"x" * 20_000)
        self.world.run(3 * U)
        self.replica = self.world.replicas[ReplicaId(scheme(2), 1)]

    def ask(self, tries: int) -> list[ReplicaId]:
        """The replicas that are asked, round by round."""
        self.replica.receive(RequestBlocks(self.content, (1,)), Address("reader 2"), self.world.now)
        asked: list[ReplicaId] = []
        for _ in range(tries):
            sent = [out for _, out in self.replica.sent(self.world.now) if isinstance(out.message, RequestBlocks)]
            asked += [out.to for out in sent if isinstance(out.to, ReplicaId)]
            self.world.now += 4 * U
            self.replica.handle(self.world.now)
        return asked

    def _keep(self, source: object, to: object, message: object) -> int:
        if isinstance(message, ForwardContent) and message.block:
            self.carries[message.index] = message
            return 10**15
        return 0


def test_a_withheld_block_makes_no_replica_late_however_often_it_is_requested() -> None:
    scene = BlockRequestNetwork()
    for _ in range(4):
        assert len(scene.ask(7)) > 3
    assert not scene.replica.evidence.counts()


def test_a_replica_is_late_once_when_another_of_its_node_delivers_the_requested_block() -> None:
    scene = BlockRequestNetwork()
    places = scene.ask(2) + scene.ask(7)
    bearer = places[-1]
    for index in (1, 2):
        for _ in range(3):
            scene.replica.receive(scene.carries[index], bearer, scene.world.now)
    assert scene.replica.evidence.counts() == {place: {FaultReason.LATE: 1} for place in {*places} - {bearer}}
    assert len({*places}) == 3


def test_a_replica_before_its_deadline_is_not_late() -> None:
    scene = BlockRequestNetwork()
    scene.replica.receive(RequestBlocks(scene.content, (1,)), Address("reader 2"), scene.world.now)
    (first,) = [out.to for _, out in scene.replica.sent(scene.world.now) if isinstance(out.message, RequestBlocks)]
    bearer = next(place for index in (1, 2, 3) if (place := ReplicaId(scheme(1), index)) != first)
    scene.replica.receive(scene.carries[1], bearer, scene.world.now)
    assert not scene.replica.evidence.counts()


def test_one_content_makes_a_replica_late_once_whatever_blocks_it_lacked() -> None:
    scene = BlockRequestNetwork()
    for index in (1, 2):
        scene.replica.receive(RequestBlocks(scene.content, (index,)), Address("reader 2"), scene.world.now)
    scene.ask(7)
    for index in (1, 2):
        scene.replica.receive(scene.carries[index], ReplicaId(scheme(1), 3), scene.world.now)
    assert scene.replica.evidence.counts() == {ReplicaId(scheme(1), index): {FaultReason.LATE: 1} for index in (1, 2)}
