"""More than two proxies: the first publishes, and each subscription goes through one or several of the others."""

from __future__ import annotations

import msgspec
import pytest

from support.relay_network import CLIENT_CONFIG, TOPIC, RelayNetwork
from veilcast.authority.topic_record import Profile
from veilcast.errors import LocalError
from veilcast.machine import Address, Waiting
from veilcast.topics import All, Label, Range

ALL = Label(TOPIC)
PROFILES: tuple[Profile, ...] = ("hardened", "paper")
each_profile = pytest.mark.parametrize("profile", PROFILES)
TWICE = msgspec.structs.replace(CLIENT_CONFIG, copies=2)


def leases_at(network: RelayNetwork) -> list[int]:
    return [network.machine(proxy).sizes()["leases"] for proxy in network.proxies]


def chosen(network: RelayNetwork) -> dict[Address, list[int]]:
    """The subscriptions that go through each proxy."""
    return {proxy: sorted(leases) for proxy, leases in network.machine("c0")._leases.items()}


def subscribe_to_levels(network: RelayNetwork, count: int) -> list[int]:
    return [network.subscribe("c0", All(ALL, Range("level", level, level))) for level in range(count)]


def publish_levels(network: RelayNetwork, count: int, word: bytes) -> None:
    for level in range(count):
        network.publish("c1", b"%s %d" % (word, level), level=level, size=0, kind="red")


def test_subscriptions_are_divided_among_all_proxies_but_the_one_for_publishing() -> None:
    network = RelayNetwork(proxies=4)
    subscribe_to_levels(network, 12)
    network.run(3)
    assert leases_at(network)[0] == 0
    before = chosen(network)
    assert all(before.values()), "with a key of this client; with another, a proxy may have none"
    assert sorted(number for numbers in before.values() for number in numbers) == sorted(range(1, 13)), (
        "each through one proxy"
    )
    network.world.crash(Address("c0"))
    network.world.restart(Address("c0"))
    network.run(3)
    assert chosen(network) == before, "the same proxies in the next life"
    publish_levels(network, 12, b"to")
    network.run(3)
    assert sorted(network.heard_by("c0")) == sorted(b"to %d" % level for level in range(12))


@each_profile
def test_with_two_copies_any_proxy_may_be_down_and_each_notification_comes_once(profile: Profile) -> None:
    for down in ("p1", "p2", "p3"):
        network = RelayNetwork(profile, proxies=4, client=TWICE)
        numbers = subscribe_to_levels(network, 8)
        network.run(3)
        network.world.crash(Address(down))
        publish_levels(network, 8, b"while one is down")
        network.run(5)
        expected = [b"while one is down %d" % level for level in range(8)]
        assert sorted(network.heard_by("c0")) == sorted(expected)
        network.world.restart(Address(down))
        network.run(20)
        assert sorted(network.heard_by("c0")) == sorted(expected), "no second time, when the proxy is back"
        assert network.machine("server").sizes()["held"] == 0, "both copies are acknowledged"
        network.unsubscribe("c0", numbers[0])
        network.run(3)
        publish_levels(network, 8, b"after")
        network.run(3)
        assert len(network.heard_by("c0")) == 8 + 7
        with pytest.raises(LocalError, match="no subscription"):
            network.machine("c0").unsubscribe(numbers[0], network.world.now)


@each_profile
def test_with_one_copy_notifications_wait_until_the_proxy_is_back(profile: Profile) -> None:
    network = RelayNetwork(profile, proxies=3)
    subscribe_to_levels(network, 8)
    network.run(3)
    network.world.crash(Address("p1"))
    publish_levels(network, 8, b"to")
    network.run(3)
    assert 0 < len(network.heard_by("c0")) < 8
    network.world.restart(Address("p1"))
    network.run(20)
    assert sorted(network.heard_by("c0")) == sorted(b"to %d" % level for level in range(8))


def test_a_subscription_is_ready_as_soon_as_one_of_its_proxies_has_it() -> None:
    network = RelayNetwork(proxies=4, client=TWICE)
    network.world.crash(Address("p1"))
    numbers = subscribe_to_levels(network, 8)
    network.run(3)
    ready = {event.number for _, event in network.events if isinstance(event, Waiting) and event.until_us is not None}
    assert ready == set(numbers)
    last = {event.number: event.until_us for _, event in network.events if isinstance(event, Waiting)}
    assert None not in last.values(), "none is taken back"


def test_a_client_has_at_least_one_proxy_and_no_more_than_eight() -> None:
    for count in (0, 9):
        with pytest.raises(LocalError, match="1 to 8 proxies"):
            RelayNetwork(proxies=count)
