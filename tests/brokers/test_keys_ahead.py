"""Keys are dealt ahead of need, and used once subscribers have confirmed that they have them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from support.edge_node_stub import EPOCH_US, QUICK, SECOND, EdgeNodeStub
from veilcast.brokers.content import publisher_keys
from veilcast.brokers.keys import bulk_key
from veilcast.brokers.keys.redistribution import DeliveredShare, PublisherShare
from veilcast.machine import Address
from veilcast.topics import Label
from veilcast.wire.base import Message
from veilcast.wire.brokers import FirstShare, ForwardContent, LastShare, WantKey


class StalledTransfers:
    """A publisher p and a subscriber s; the shares of all keys but the first are withheld while `stalled`."""

    def __init__(self, **changes: Any) -> None:
        self.stalled = True
        self._first: bytes | None = None
        world = self.world = EdgeNodeStub("hardened", msgspec.structs.replace(QUICK, refresh_messages=2, **changes))
        for replica in world.replicas.values():
            replica.rewrite = self._rewrite
        world.client("p")
        world.client("s", "subscriber")
        world.subscribe("s")
        world.run(1)

    def _rewrite(self, message: Message, to: Address) -> list[Message]:
        if isinstance(message, LastShare):
            key = DeliveredShare.decode(message.share).publisher_header.key_attempt.key
            self._first = self._first or key
            return [] if self.stalled and key != self._first else [message]
        return [message]

    def publish(self, count: int, apart_s: float = 0.1) -> None:
        for _ in range(count):
            self.world.publish("p", b"%d" % len(self.world.posts["p"].disk))
            self.world.run(apart_s)

    @property
    def heard(self) -> int:
        return len(self.world.heard)

    def keys_used(self) -> dict[bytes, set[int]]:
        """The numbers of contents sealed with each key, in the order of their first use."""
        used: dict[bytes, set[int]] = {}
        for carry in self.world.replicas["r1"].received(ForwardContent, "p"):
            used.setdefault(carry.routing.key, set()).add(carry.routing.number)
        return used

    def dealt(self) -> list[bytes]:
        firsts = self.world.replicas["r1"].received(FirstShare)
        return [PublisherShare.decode(first.share).publisher_header.key_attempt.key for first in firsts]


def test_a_publication_waits_for_no_transfer_once_a_key_is_confirmed() -> None:
    net = StalledTransfers()
    net.publish(30)
    assert net.heard == 30
    assert not net.world.posts["p"].disk
    first, successor = net.keys_used().values()
    assert (len(first), len(successor)) == (30, 1), "the trial, and nothing else"


def test_keys_that_are_dealt_when_needed_keep_publications_waiting() -> None:
    """The planted fault."""
    net = StalledTransfers(overtime_us=0)
    net.publish(30)
    assert net.heard == 2


def test_a_confirmed_successor_takes_over_when_its_turn_has_come() -> None:
    net = StalledTransfers()
    net.publish(5)
    net.stalled = False
    net.world.run(10)
    net.publish(8)
    assert net.heard == 13
    used = list(net.keys_used().values())
    assert len(used) >= 4
    assert [len(numbers) for numbers in used[1:-2]] == [3] * len(used[1:-2]), "a trial and two publications"


def test_a_key_serves_no_longer_than_the_overtime_for_want_of_a_successor() -> None:
    net = StalledTransfers(overtime_us=3 * SECOND)
    net.publish(60)
    first, successor = list(net.keys_used().values())[:2]
    assert 30 <= len(first) <= 34
    assert len(successor) > 1
    assert net.heard == len(first)
    net.stalled = False
    net.world.run(40)
    assert net.heard == 60


def test_a_key_serves_for_no_more_publications_than_subscribers_can_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_key, "BULK_MAX", 12)
    net = StalledTransfers()
    net.publish(20)
    first, successor = list(net.keys_used().values())[:2]
    assert (first, max(successor)) == (set(range(12)), 8)


def test_a_trial_is_confirmed_and_not_delivered_whatever_the_application_does() -> None:
    net = StalledTransfers()
    net.stalled = net.world.prompt = False
    net.publish(1)
    net.world.run(1)
    assert net.heard == 1
    client: Any = net.world.posts["p"].machine
    (successor,) = [bulk.successor for bulk in client._publisher._keys._bulks.values()]
    assert successor.is_confirmed


def test_the_first_key_is_dealt_before_the_first_publication() -> None:
    net = StalledTransfers()
    assert len(net.dealt()) == 2, "one for each topic of the publisher"
    assert net.world.posts["s"].machine.sizes()["keys"] == 1
    for replica in net.world.replicas.values():
        replica.rewrite = lambda message, to: [] if isinstance(message, LastShare) else [message]
    net.publish(1)
    assert net.heard == 1


def test_a_first_key_that_is_not_used_is_dealt_once_more_for_brokers_that_were_quiet() -> None:
    net = StalledTransfers(ahead_us=0)
    for replica in net.world.replicas.values():
        replica.rewrite = lambda message, to: [] if isinstance(message, LastShare) else [message]
    (key, other) = net.dealt()
    net.world.run(19)
    assert net.dealt() == [key, other]
    net.world.run(EPOCH_US / SECOND - 30)
    assert sorted(net.dealt()) == sorted([key, key, other, other])


def test_a_first_key_that_was_dealt_long_ago_is_dealt_again_for_those_who_came_later() -> None:
    net = StalledTransfers()
    net.world.client("late", "subscriber")
    net.world.subscribe("late")
    net.world.run(1)
    assert net.world.posts["late"].machine.sizes()["keys"] == 0
    net.publish(1)
    assert net.world.heard_by("late") == [b"0"]
    assert not net.world.replicas["r1"].received(WantKey)


def test_the_next_epoch_begins_with_a_key_that_subscribers_have_if_the_topic_is_in_use() -> None:
    for is_in_use in (True, False):
        net = StalledTransfers()
        net.stalled = False
        if is_in_use:
            net.publish(1)
        net.world.run(EPOCH_US / SECOND - 2 - net.world.now % EPOCH_US / SECOND)
        keys = len(net.dealt())
        adverts = {first.advertisement for first in net.world.replicas["r1"].received(FirstShare)}
        assert len(adverts) == (3 if is_in_use else 2)
        net.world.run(4)
        for replica in net.world.replicas.values():
            replica.rewrite = lambda message, to: [] if isinstance(message, LastShare) else [message]
        net.publish(1)
        assert net.heard == (2 if is_in_use else 0)
        assert len(net.dealt()) >= keys


def test_a_key_request_gets_the_key_and_its_successor_and_both_ever_less_often() -> None:
    net = StalledTransfers(again_us=2 * SECOND)
    net.stalled = False
    net.publish(1)
    net.world.run(8)
    before = net.dealt()
    (key,) = [key for key, numbers in net.keys_used().items() if 0 in numbers][:1]
    advertisement = net.world.replicas["r1"].received(FirstShare)[0].advertisement
    for _ in range(250):
        net.world.replicas["r2"].send_raw("p", WantKey(advertisement, key))
        net.world.run(0.1)
    dealt = [each for each in net.dealt()[len(before) :] if each in net.keys_used()]
    assert set(dealt) == set(net.keys_used())
    assert all(2 <= dealt.count(each) <= 5 for each in set(dealt))


def test_a_successor_whose_trial_fails_for_good_is_replaced() -> None:
    net = StalledTransfers(again_us=SECOND // 8)
    net.publish(1)
    net.world.run(40)
    net.publish(1)
    assert len(net.keys_used()) == 3
    net.stalled = False
    net.world.run(10)
    net.publish(3)
    net.world.run(10)
    assert net.heard == 5
    assert net.world.posts["p"].machine.sizes()["sealing"] == 4, "in use, next, and prepared ones"


def test_a_successor_that_was_dealt_too_often_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_keys, "KEY_ATTEMPTS_MAX", 2)
    net = StalledTransfers(again_us=SECOND // 8)
    net.publish(1)
    net.world.run(10)
    net.publish(20)
    assert net.heard == 21
    assert all(net.dealt().count(key) <= 3 for key in net.dealt())


def test_the_keys_of_a_publisher_are_bounded_by_its_topics() -> None:
    net = StalledTransfers()
    net.stalled = False
    for _ in range(12):
        net.publish(3, EPOCH_US / SECOND / 7)
    net.world.run(30)
    assert net.world.posts["p"].machine.sizes()["sealing"] <= 3 * 2


def test_the_paper_profile_deals_keys_when_they_are_needed() -> None:
    world = EdgeNodeStub("paper", msgspec.structs.replace(QUICK, refresh_messages=2))
    world.client("p")
    world.client("s", "subscriber")
    world.subscribe("s", Label("news/eu"))
    world.run(3)
    assert not world.replicas["r1"].received(FirstShare)
    world.publish("p", b"hello")
    world.run(1)
    assert len(world.replicas["r1"].received(FirstShare)) == 1
