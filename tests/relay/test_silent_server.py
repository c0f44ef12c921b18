"""A relay whose server is down while its proxies are up: members notice the missing answers."""

from __future__ import annotations

from itertools import pairwise

import pytest

from support.relay_network import CLIENT_CONFIG, TOPIC, RelayNetwork
from veilcast.authority.topic_record import Profile
from veilcast.machine import Address
from veilcast.node.relay import hindrances
from veilcast.sim.relay.population import SERVER
from veilcast.topics import Label
from veilcast.wire import encode
from veilcast.wire.base import Message
from veilcast.wire.geometry import TICKET
from veilcast.wire.relay import RelayDelivery, ReplyCode, RequestReply, Submit


def told(network: RelayNetwork, name: str) -> list[str]:
    return hindrances(network.machine(name), network.world.now)


@pytest.mark.parametrize("profile", ["hardened", "paper"])
def test_a_publisher_is_told_that_the_server_is_silent_until_it_answers(profile: Profile) -> None:
    network = RelayNetwork(profile)
    network.subscribe("c1", Label(TOPIC))
    network.run(3)
    network.world.crash(SERVER)
    network.publish("c0", b"waits")
    network.run(3 * CLIENT_CONFIG.retry_us / 1e6 - 0.5)
    assert told(network, "c0") == [], "an answer may take a while"
    network.run(2)
    (hindrance,) = told(network, "c0")
    assert "the relay has not answered for 4 s although its proxy is up" in hindrance
    assert "waits in the outbox" in hindrance
    delay = network.machine("c0").delay(network.world.now)
    assert (delay.reason, delay.until_us) == ("the relay does not answer", None)
    network.world.restart(SERVER)
    network.run(20)
    assert network.heard_by("c1") == [b"waits"]
    assert told(network, "c0") == []
    assert network.machine("c0").delay(network.world.now) is None


@pytest.mark.parametrize("profile", ["hardened", "paper"])
def test_an_answer_of_the_server_hastens_older_publications(profile: Profile) -> None:
    """Pauses between attempts have grown while the server was down; an answer shows that it is up again."""
    network = RelayNetwork(profile)
    network.subscribe("c1", Label(TOPIC))
    network.run(3)
    network.world.crash(SERVER)
    network.publish("c0", b"older")
    network.run(0.25)
    (request,) = network.machine("c0")._publish_connection._in_flight.values()
    while request.tries < 6:
        network.run(0.25)
    network.publish("c0", b"newer")
    network.world.restart(SERVER)
    while b"newer" not in network.heard_by("c1"):
        network.run(0.25)
    network.run(1.5 * CLIENT_CONFIG.retry_us / 1e6)
    assert sorted(network.heard_by("c1")) == [b"newer", b"older"]
    assert told(network, "c0") == []


def test_a_dropped_publication_is_not_repeated_with_every_other_answer() -> None:
    """It leaves at most once in `retry_us`, however many others the server confirms."""
    network = RelayNetwork()
    network.run(3)
    way = network.machine("c0")._publish_connection
    post = way._post
    times: list[int] = []
    dropped: list[int] = []

    def post_others(peer: Address, message: Message, now: int) -> None:
        assert isinstance(message, Submit)
        dropped[:] = dropped or [message.number]
        if message.number == dropped[0]:
            times.append(now)
        else:
            post(peer, message, now)

    way._post = post_others
    network.publish("c0", b"dropped")
    for _ in range(80):
        network.publish("c0", b"confirmed")
        network.run(0.25)
    assert network.machine("c0").sizes()["pending"] == 1
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert min(pauses) >= CLIENT_CONFIG.retry_us // 2
    assert max(pauses) <= 2 * CLIENT_CONFIG.retry_us


def test_a_subscriber_notices_a_silent_server_by_its_renewals() -> None:
    network = RelayNetwork()
    network.subscribe("c1", Label(TOPIC))
    network.run(3)
    network.world.crash(SERVER)
    network.run(30)
    assert any("although its proxy is up" in each for each in told(network, "c1"))


def test_a_member_without_requests_sees_no_silence() -> None:
    network = RelayNetwork()
    network.run(3)
    network.world.crash(SERVER)
    network.run(60)
    assert told(network, "c0") == []


def test_a_member_that_is_never_enrolled_is_told() -> None:
    network = RelayNetwork()
    network.world.crash(SERVER)
    network.world.crash(Address("c0"))
    for proxy in ("p0", "p1"):  # A proxy without its disk knows no member.
        network.world.crash(Address(proxy))
        network.world.restart(Address(proxy))
    network.world.restart(Address("c0"))
    network.run(20)
    assert any("although its proxy is up" in each for each in told(network, "c0"))


@pytest.mark.parametrize("profile", ["hardened", "paper"])
def test_a_proxy_that_cuts_its_streams_does_not_hide_a_silent_server(profile: Profile) -> None:
    network = RelayNetwork(profile)
    network.run(3)
    network.world.crash(SERVER)
    network.publish("c0", b"waits")
    way, found = network.machine("c0")._publish_connection, list[str]()
    for _ in range(20):
        network.run(CLIENT_CONFIG.retry_us / 1e6)
        found += told(network, "c0")
        way.peer_lost(network.world.now)
        way.peer_up(network.world.now)
    assert any("although its proxy is up" in each for each in found)


def test_an_absent_proxy_does_not_count_as_a_silent_server() -> None:
    """The driver reports an unreachable proxy; the server behind it is not blamed."""
    network = RelayNetwork()
    network.run(3)
    network.world.crash(Address("p0"))
    network.publish("c0", b"waits")
    network.run(30)
    assert told(network, "c0") == []
    assert network.machine("c0").delay(network.world.now).reason == "no stream to the relay's proxy is up"


@pytest.mark.parametrize("code", [ReplyCode.DONE, ReplyCode.UNKNOWN])
def test_a_proxy_that_drops_a_publication_cannot_hide_it_behind_forged_answers(code: ReplyCode) -> None:
    """The proxy enrols the member by itself, claims that requests are confirmed or that the member is unknown, and
    invents deliveries. None of it counts as the server's answer to the publication."""
    network = RelayNetwork()
    network.subscribe("c0", Label(TOPIC))
    network.run(3)
    network.world.crash(SERVER)
    network.publish("c0", b"dropped")
    client = network.machine("c0")
    names = [lease.name for at in client._leases.values() for leases in at._by_name.values() for lease in leases]

    def forge(proxy: Address, data: bytes) -> None:
        network.do("c0", lambda machine, now: machine.receive(data, proxy, now))

    for _ in range(20):
        network.run(0.5)
        for proxy, connection in client._connections.items():
            for number in list(connection._in_flight):
                forge(proxy, encode(RequestReply(number, code, bytes(TICKET))))
            if connection._enrolling is not None:
                forge(proxy, encode(RequestReply(connection._enrolling[0], ReplyCode.DONE)))
            for name in names:
                forge(proxy, encode(RelayDelivery((name,), bytes(TICKET), None, b"made up")))
    assert any("although its proxy is up" in each for each in told(network, "c0"))


def test_status_queries_do_not_change_the_wire() -> None:
    """A member detects a silent server from requests that it sends in any case."""

    def sent(*, looks: bool) -> str:
        network = RelayNetwork()
        network.subscribe("c1", Label(TOPIC))
        network.run(3)
        network.world.crash(SERVER)
        network.publish("c0", b"waits")
        for _ in range(20):
            network.run(1)
            if looks:
                told(network, "c0")
                network.machine("c0").delay(network.world.now)
        return network.world.trace_hash

    assert sent(looks=True) == sent(looks=False)
