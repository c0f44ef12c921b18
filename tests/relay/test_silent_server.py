"""A relay whose server is down while its proxies are up: members know it from the answers that do not come."""

from __future__ import annotations

from itertools import pairwise

import pytest

from support.relay_network import CLIENT_CONFIG, TOPIC, RelayNetwork
from veilcast.authority.topic_record import Profile
from veilcast.machine import Address
from veilcast.node.relay_member import hindrances
from veilcast.sim.relay.population import SERVER
from veilcast.topics import Label
from veilcast.wire import encode
from veilcast.wire.geometry import TICKET
from veilcast.wire.mesh import Message
from veilcast.wire.relay import RelayDelivery, ReplyCode, RequestReply, Submit


def told(exchange: RelayNetwork, name: str) -> list[str]:
    return hindrances(exchange.machine(name), exchange.world.now)


@pytest.mark.parametrize("profile", ["hardened", "paper"])
def test_a_publisher_is_told_that_the_server_does_not_answer_until_it_answers_again(profile: Profile) -> None:
    exchange = RelayNetwork(profile)
    exchange.subscribe("c1", Label(TOPIC))
    exchange.run(3)
    exchange.world.crash(SERVER)
    exchange.publish("c0", b"waits")
    exchange.run(3 * CLIENT_CONFIG.retry_us / 1e6 - 0.5)
    assert told(exchange, "c0") == [], "an answer may take a while"
    exchange.run(2)
    (hindrance,) = told(exchange, "c0")
    assert "the relay has not answered for 4 s although its proxy is up" in hindrance
    assert "waits in the outbox" in hindrance
    delay = exchange.machine("c0").delay(exchange.world.now)
    assert (delay.reason, delay.until_us) == ("the relay does not answer", None)
    exchange.world.restart(SERVER)
    exchange.run(20)
    assert exchange.heard_by("c1") == [b"waits"]
    assert told(exchange, "c0") == []
    assert exchange.machine("c0").delay(exchange.world.now) is None


@pytest.mark.parametrize("profile", ["hardened", "paper"])
def test_one_answer_of_the_server_lets_older_publications_go_out_soon(profile: Profile) -> None:
    """Pauses between tries have grown while the server was down; an answer shows that it is up again."""
    exchange = RelayNetwork(profile)
    exchange.subscribe("c1", Label(TOPIC))
    exchange.run(3)
    exchange.world.crash(SERVER)
    exchange.publish("c0", b"older")
    exchange.run(0.25)
    (request,) = exchange.machine("c0")._out._flying.values()
    while request.tries < 6:
        exchange.run(0.25)
    exchange.publish("c0", b"newer")
    exchange.world.restart(SERVER)
    while b"newer" not in exchange.heard_by("c1"):
        exchange.run(0.25)
    exchange.run(1.5 * CLIENT_CONFIG.retry_us / 1e6)
    assert sorted(exchange.heard_by("c1")) == [b"newer", b"older"]
    assert told(exchange, "c0") == []


def test_a_publication_that_a_proxy_drops_is_not_sent_again_with_each_answer_to_another() -> None:
    """It leaves at most once in `retry_us`, however many others the server confirms."""
    exchange = RelayNetwork()
    exchange.run(3)
    way = exchange.machine("c0")._out
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
    exchange.publish("c0", b"dropped")
    for _ in range(80):
        exchange.publish("c0", b"confirmed")
        exchange.run(0.25)
    assert exchange.machine("c0").sizes()["pending"] == 1
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert min(pauses) >= CLIENT_CONFIG.retry_us // 2
    assert max(pauses) <= 2 * CLIENT_CONFIG.retry_us


def test_a_subscriber_is_told_too_because_it_renews_its_leases() -> None:
    exchange = RelayNetwork()
    exchange.subscribe("c1", Label(TOPIC))
    exchange.run(3)
    exchange.world.crash(SERVER)
    exchange.run(30)
    assert any("although its proxy is up" in each for each in told(exchange, "c1"))


def test_a_member_that_asks_for_nothing_is_not_told_anything() -> None:
    exchange = RelayNetwork()
    exchange.run(3)
    exchange.world.crash(SERVER)
    exchange.run(60)
    assert told(exchange, "c0") == []


def test_a_new_member_whom_the_server_never_enrols_is_told() -> None:
    exchange = RelayNetwork()
    exchange.world.crash(SERVER)
    exchange.world.crash(Address("c0"))
    for proxy in ("p0", "p1"):  # A proxy without its disk knows no member.
        exchange.world.crash(Address(proxy))
        exchange.world.restart(Address(proxy))
    exchange.world.restart(Address("c0"))
    exchange.run(20)
    assert any("although its proxy is up" in each for each in told(exchange, "c0"))


@pytest.mark.parametrize("profile", ["hardened", "paper"])
def test_a_proxy_that_cuts_its_streams_does_not_hide_that_the_server_is_silent(profile: Profile) -> None:
    exchange = RelayNetwork(profile)
    exchange.run(3)
    exchange.world.crash(SERVER)
    exchange.publish("c0", b"waits")
    way, found = exchange.machine("c0")._out, list[str]()
    for _ in range(20):
        exchange.run(CLIENT_CONFIG.retry_us / 1e6)
        found += told(exchange, "c0")
        way.peer_lost(exchange.world.now)
        way.peer_up(exchange.world.now)
    assert any("although its proxy is up" in each for each in found)


def test_a_proxy_that_is_gone_is_another_matter() -> None:
    """The driver tells of a proxy that does not answer; the server behind it is not blamed."""
    exchange = RelayNetwork()
    exchange.run(3)
    exchange.world.crash(Address("p0"))
    exchange.publish("c0", b"waits")
    exchange.run(30)
    assert told(exchange, "c0") == []
    assert exchange.machine("c0").delay(exchange.world.now).reason == "no stream to the relay's proxy is up"


@pytest.mark.parametrize("code", [ReplyCode.DONE, ReplyCode.UNKNOWN])
def test_a_proxy_that_drops_a_publication_cannot_hide_it_behind_forged_answers(code: ReplyCode) -> None:
    """It enrols the member by itself, says that all is done or that the member is unknown, and makes up deliveries.

    None of it counts as the server's answer to the publication.
    """
    exchange = RelayNetwork()
    exchange.subscribe("c0", Label(TOPIC))
    exchange.run(3)
    exchange.world.crash(SERVER)
    exchange.publish("c0", b"dropped")
    client = exchange.machine("c0")
    names = [term.name for terms in client._leasing._under.values() for term in terms]

    def forge(proxy: Address, data: bytes) -> None:
        exchange.do("c0", lambda machine, now: machine.receive(data, proxy, now))

    for _ in range(20):
        exchange.run(0.5)
        for proxy, way in client._ways.items():
            for number in list(way._flying):
                forge(proxy, encode(RequestReply(number, code, bytes(TICKET))))
            if way._enrolling is not None:
                forge(proxy, encode(RequestReply(way._enrolling[0], ReplyCode.DONE)))
            for name in names:
                forge(proxy, encode(RelayDelivery((name,), bytes(TICKET), None, b"made up")))
    assert any("although its proxy is up" in each for each in told(exchange, "c0"))


def test_the_wire_is_the_same_whether_or_not_the_owner_looks() -> None:
    """What a member knows of a silent server it knows from what it was going to say anyway."""

    def sent(*, looks: bool) -> str:
        exchange = RelayNetwork()
        exchange.subscribe("c1", Label(TOPIC))
        exchange.run(3)
        exchange.world.crash(SERVER)
        exchange.publish("c0", b"waits")
        for _ in range(20):
            exchange.run(1)
            if looks:
                told(exchange, "c0")
                exchange.machine("c0").delay(exchange.world.now)
        return exchange.world.trace_hash

    assert sent(looks=True) == sent(looks=False)
