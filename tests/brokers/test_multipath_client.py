"""A member of two overlays: as long as one of them works, every publication arrives, once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from support.broker_keyrings import EPOCH_US, OPERATOR, TOPIC, signing
from support.broker_network import BrokerNetwork
from veilcast.authority.topic_record import Profile
from veilcast.brokers.config import BrokerClientConfig
from veilcast.brokers.multipath_client import MultipathClient
from veilcast.core.outbox import PendingPublication
from veilcast.errors import LocalError
from veilcast.machine import Address, Connect, Event, Overdue, Publication, Settled
from veilcast.sim.brokers.adversaries import DroppingBroker, ReplicaView
from veilcast.topics import Label
from veilcast.wire import decode
from veilcast.wire.base import Message
from veilcast.wire.brokers import BringClaim, ForwardContent, LastShare, SessionItem

CLIENT = BrokerClientConfig(refresh_messages=8, records_max=32, connect_us=200_000, wait_us=20_000_000, ahead_us=0)
FIRST, SECOND = (("B1", "B2"),), (("C1", "C2"),)


class TwoPathNetwork:
    """A publisher at one end of both overlays, and a subscriber at the other."""

    def __init__(self, profile: Profile = "hardened", client: BrokerClientConfig = CLIENT) -> None:
        self.network = BrokerNetwork(profile, FIRST, client=client)
        self.second = self.network.second_overlay(SECOND)
        self.member("P", ("B1", "C1"), 0, "publisher")
        self.member("R", ("B2", "C2"), 1)
        self.network.run(1)
        self.reader.subscribe(Label(TOPIC), self.network.now)
        self.network.touch("R")
        self.network.run(4)
        self.sent = 0

    def member(self, name: str, edges: tuple[str, str], number: int, role: str = "subscriber") -> None:
        overlays = (self.network.overlay, self.second)
        self.network.member(name, tuple(zip(overlays, edges, strict=True)), number, role)

    @property
    def publisher(self) -> MultipathClient:
        machine: MultipathClient = self.network.places[Address("P")].machine
        return machine

    @property
    def reader(self) -> MultipathClient:
        machine: MultipathClient = self.network.places[Address("R")].machine
        return machine

    def publish(self, count: int = 1) -> None:
        for _ in range(count):
            body = str(self.sent).encode()
            self.publisher.publish(Publication((("topic", TOPIC),), body), self.network.now)
            self.sent += 1
            self.network.touch("P")

    def heard_all_once(self) -> bool:
        heard = [body for who, _, body in self.network.heard if who == "R"]
        return sorted(heard, key=int) == [str(number).encode() for number in range(self.sent)]

    def kill(self, letter: str) -> None:
        for name in self.brokers(letter):
            self.network.kill(name)

    def revive(self, letter: str) -> None:
        for name in self.brokers(letter):
            self.network.restart(name)

    def brokers(self, letter: str) -> list[Address]:
        return [name for name in self.network.places if name.startswith(letter) and "." in name]


@pytest.mark.parametrize("profile", ["hardened", "paper"])
def test_a_publication_over_two_paths_is_delivered_once(profile: Profile) -> None:
    network = TwoPathNetwork(profile)
    network.publish(20)
    network.network.run(5)
    assert network.heard_all_once()
    assert not network.publisher.sizes()["left"]
    assert [client.sizes()["inbox"] for client in network.reader.clients] == [0, 0]


@pytest.mark.parametrize("lost", ["B", "C"])
def test_one_working_path_delivers_all_and_the_lost_one_delays_nobody(lost: str) -> None:
    """Three times as many publications as may wait; their copies for the lost path would fill all queues."""
    network = TwoPathNetwork()
    network.kill(lost)
    for _ in range(12):
        network.publish(8)
        network.network.run(7)
    assert network.heard_all_once()
    network.network.run(60)
    assert not network.publisher.sizes()["left"]
    assert not network.network.places[Address("P")].disk


def test_a_recovered_path_delivers_again() -> None:
    network = TwoPathNetwork()
    network.kill("C")
    for _ in range(6):
        network.publish(8)
        network.network.run(7)
    network.revive("C")
    network.network.run(30)
    network.publish(16)
    network.network.run(20)
    network.kill("B")
    network.publish(8)
    network.network.run(40)
    assert network.heard_all_once()
    network.network.run(60)
    assert not network.publisher.sizes()["left"]


class StubPath:
    """A stub client: a path that reports what a test tells it. It has room for 32 publications."""

    def __init__(self) -> None:
        self.said: deque[Event] = deque()
        self.open: dict[int, None] = {}
        self._last = 0

    def draft(self, publication: Publication, now: int) -> list[PendingPublication]:
        return []

    def check_room(self) -> None:
        if len(self.open) >= 32:
            raise LocalError("full")

    def keep(self, letters: list[PendingPublication]) -> int:
        self._last += 1
        self.open[self._last] = None
        return self._last

    def through(self, record: int) -> None:
        del self.open[record]
        self.said.append(Settled(record))

    def withdraw(self, record: int, now: int) -> None:
        if record in self.open:
            self.through(record)

    def next_event(self) -> Event | None:
        return self.said.popleft() if self.said else None

    def next_timer(self) -> int | None:
        return None


def refused_by(helps: Callable[[bool], bool], ticks: int) -> list[int]:
    """The time at which a publisher with one publication per tick finds no room, with one path in time and one that is
    late after a hundred ticks. With `helps`, the late path confirms the last one whenever it is, or is not, behind."""
    good, bad = StubPath(), StubPath()
    paths = MultipathClient([good, bad], [], 16, 0)  # type: ignore[list-item]
    when: dict[int, int] = {}
    refused = []
    for now in range(ticks):
        try:
            when[paths.publish(Publication((), b""), now)] = now
        except LocalError:
            refused.append(now)
        for record in list(good.open):
            good.through(record)
        late = [record for record in bad.open if now - when[record] >= 100]
        bad.said.extend(Overdue(record, Publication((), b"")) for record in late)
        if bad.open and helps(bool(paths._behind)):
            bad.through(max(bad.open))
        paths.handle_timer(now)
    return refused


def test_a_path_that_recovers_only_while_behind_delays_others_ever_more_rarely() -> None:
    lost = refused_by(lambda behind: False, 4_000)
    assert max(lost) <= 101, "once, until it is behind"
    refused = refused_by(lambda behind: behind, 4_000)
    assert sum(at < 2_000 for at in refused) <= 6 * len(lost)
    assert sum(at >= 2_000 for at in refused) <= 2 * len(lost)


def test_a_path_is_waited_for_again_after_enough_confirmations_and_finally_forgiven() -> None:
    good, bad = StubPath(), StubPath()
    paths = MultipathClient([good, bad], [], 16, 0)  # type: ignore[list-item]

    def publish() -> int:
        record = paths.publish(Publication((), b""), 0)
        good.through(record)
        return record

    def falls_behind() -> int:
        """Fall behind; returns after how many timely confirmations the path is behind no more."""
        bad.said.append(Overdue(publish(), Publication((), b"")))
        paths.handle_timer(0)
        return next(count for count in range(1, 5_000) if not keeps_up())

    def keeps_up() -> bool:
        bad.through(publish())
        paths.handle_timer(0)
        return bool(paths._behind)

    assert [falls_behind() for _ in range(8)] == [16, 32, 64, 128, 256, 512, 1_024, 1_024]
    for _ in range(16 * 1_024):
        keeps_up()
    assert [falls_behind() for _ in range(2)] == [16, 32]


def confirm_everything(network: TwoPathNetwork, node: str) -> None:
    """All replicas of a node confirm everything, and forward nothing."""

    class Always(Random):
        def random(self) -> float:
            return 0.9

    for index in (1, 2, 3):
        place = network.network.places[Address(f"{node}.{index}")]
        at = network.second.verify(OPERATOR.public).node(node).replica_id(signing(node, index).public)
        assert at is not None
        view = ReplicaView(at, signing(node, index), {}, {}, Always(1), lambda size: bytes(size))
        place.machine = DroppingBroker(place.machine, view)


def test_false_confirmations_of_one_path_cost_the_other_nothing_even_if_the_publisher_dies() -> None:
    network = TwoPathNetwork()
    confirm_everything(network, "C1")
    network.network.wires[Address("P")] = lambda frame, source: None if frame.destination.startswith("B") else frame
    network.publish(32)
    network.network.run(3)
    with pytest.raises(LocalError, match="32 publications wait already"):
        network.publish()
    assert network.publisher.sizes()["left"] == 32
    network.network.kill("P")
    del network.network.wires[Address("P")]
    network.network.restart("P")
    network.network.run(20)
    assert network.heard_all_once()
    assert not network.publisher.sizes()["left"]


def test_a_killed_subscriber_and_a_killed_publisher_continue_on_both_paths() -> None:
    network = TwoPathNetwork()
    network.publish(4)
    network.network.run(1)
    for name in ("P", "R"):
        network.network.kill(name)
        network.network.run(1)
        network.network.restart(name)
    network.reader.subscribe(Label(TOPIC), network.network.now)
    network.network.touch("R")
    network.network.run(5)
    network.publish(4)
    network.network.run(10)
    assert {body for _, _, body in network.network.heard} == {str(number).encode() for number in range(8)}


def test_a_repeated_subscription_works_on_both_paths_after_a_restart_too() -> None:
    """The withdrawal count is one record for all paths; a withdrawn claim stays withdrawn."""
    network = TwoPathNetwork()
    network.reader.unsubscribe(1, network.network.now)
    network.network.touch("R")
    network.network.run(1)
    assert list(network.network.places[Address("R")].disk) == [1]
    network.network.kill("R")
    network.network.restart("R")
    network.reader.subscribe(Label(TOPIC), network.network.now)
    network.network.touch("R")
    network.network.run(4)
    network.kill("B")
    network.publish(2)
    network.network.run(10)
    network.revive("B")
    network.network.run(10)
    network.kill("C")
    network.publish(2)
    network.network.run(15)
    assert network.heard_all_once()


def test_a_withdrawn_publication_is_withdrawn_on_all_paths_and_settled_once() -> None:
    network = TwoPathNetwork()
    network.kill("B")
    network.kill("C")
    network.publish()
    network.network.run(1)
    (record,) = network.network.places[Address("P")].disk
    network.publisher.withdraw(record, network.network.now)
    events = []
    while (event := network.publisher.next_event()) is not None:
        events.append(event)
    assert events == [Settled(record)]
    assert [client.sizes()["pending"] for client in network.publisher.clients] == [0, 0]


def test_a_members_keys_in_two_overlays_have_nothing_in_common() -> None:
    """An observer of both recognizes a subscriber by its timing, and not by the keys of its claims."""
    network = TwoPathNetwork()
    holders: dict[str, set[bytes]] = {"B": set(), "C": set()}

    def look(frame: object, source: Address) -> object:
        message = decode(frame.data)  # type: ignore[attr-defined]
        if isinstance(message, SessionItem) and isinstance(brought := decode(message.cargo), BringClaim):
            holders[frame.destination[0]].add(brought.claim.holder)  # type: ignore[attr-defined]
        return frame

    network.network.wires[Address("R")] = look  # type: ignore[assignment]
    network.network.kill("R")
    network.network.restart("R")
    network.reader.subscribe(Label(TOPIC), network.network.now)
    network.network.touch("R")
    network.network.run(4)
    assert all(holders.values())
    assert holders["B"].isdisjoint(holders["C"])


def test_a_broker_moved_onto_a_second_path_is_used_by_the_first_alone() -> None:
    network = TwoPathNetwork()
    peer = Address("B1.1")
    network.publisher._on_event(1, Connect(peer), {}, network.network.now)
    assert network.publisher.next_event() is None
    network.publish(3)
    network.network.run(5)
    assert network.heard_all_once()


def test_remembered_notifications_are_bounded() -> None:
    network = TwoPathNetwork(client=BrokerClientConfig(refresh_messages=8, seen_max=5))
    for _ in range(10):
        network.publish()
        network.network.run(2)
    assert network.heard_all_once()
    assert network.reader.sizes()["read"] == 5


def test_copies_withheld_until_their_advertisement_expires_are_refused_even_if_forgotten() -> None:
    """A whole overlay is Byzantine. Before the expiry, it can replay what the subscriber has forgotten
    (docs/limitations.md)."""
    network = TwoPathNetwork(client=BrokerClientConfig(refresh_messages=8, seen_max=2))
    kept: list[Callable[[], None]] = []

    def keep(say: Callable[[Address, Message], None], peer: Address, message: Message) -> None:
        if peer == "R" and isinstance(message, ForwardContent | LastShare):
            kept.append(partial(say, peer, message))
        else:
            say(peer, message)

    byzantine = [Address(f"C2.{index}") for index in (1, 2, 3)]
    for name in byzantine:
        links = network.network.broker(name)._links
        links.send = partial(keep, links.send)  # type: ignore[method-assign]
    network.publish(6)
    network.network.run(5)
    assert kept
    assert network.heard_all_once()
    assert network.reader.sizes()["read"] == 2
    network.network.run(2 * EPOCH_US / 1_000_000)
    for bring in kept:
        bring()
    for name in byzantine:
        network.network.touch(name)
    network.network.run(5)
    assert network.heard_all_once()
    assert network.reader.refused["StaleError"] >= 6


def test_at_least_two_paths_are_required() -> None:
    network = BrokerNetwork("hardened", FIRST)
    with pytest.raises(LocalError, match="at least two"):
        network.member("P", ((network.overlay, "B1"),), 0, "publisher")
