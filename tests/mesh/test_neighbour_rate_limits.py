"""A burst, then a sustained rate, for each neighbour separately. Honest neighbours never notice."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from support.mesh_network import SMALL_CONFIG, TOKEN, SingleNode, advert
from veilcast.authority import issuer
from veilcast.authority.epoch import HOUR_US, epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.authority.topic_keys import TopicRole
from veilcast.errors import ConfigError, ExcessError
from veilcast.machine import Address
from veilcast.mesh.config import Defences, MeshConfig, MessageRate
from veilcast.mesh.limits import NeighbourRateLimits
from veilcast.mesh.node import MeshNode
from veilcast.sim.engine import START_US
from veilcast.sim.host import Birth
from veilcast.sim.links import LinkDelays, Weather
from veilcast.sim.world import World
from veilcast.topics import Label
from veilcast.wire import encode, pad
from veilcast.wire.base import Message
from veilcast.wire.mesh import Greet, Subscribe, SwapAsk, SwapLock, Unadvert, Unsubscribe

ON = msgspec.structs.replace(SMALL_CONFIG, defences=Defences(buckets=True))


# --- in a node ----------------------------------------------------------------------------------------------


KINDS: list[tuple[str, Message]] = [
    ("adverts", advert()),
    ("adverts", Unadvert(TOKEN, bytes(32))),
    ("subscriptions", Subscribe(TOKEN)),
    ("subscriptions", Unsubscribe(TOKEN)),
    ("swaps", SwapAsk(bytes(16), TOKEN, (), ())),
    ("swaps", SwapLock(bytes(16), TOKEN, True)),
    ("greetings", Greet()),
]


def excess_of(config: MeshConfig, message: Message) -> int:
    """Number of refused messages of 600 at once."""
    bench = SingleNode("forwarder", "a b", config)
    bench.hear("a", advert(7))
    before = bench.node.refused["ExcessError"]
    for _ in range(600):
        bench.hear("a", message)
    return bench.node.refused["ExcessError"] - before


@pytest.mark.parametrize(("kind", "message"), KINDS, ids=lambda value: type(value).__name__)
def test_messages_over_the_burst_are_refused_only_with_the_switch(kind: str, message: Message) -> None:
    burst = getattr(ON.defences, kind).burst
    assert excess_of(ON, message) in (600 - burst, 600 - burst + 1), "one may have been taken before"
    assert excess_of(SMALL_CONFIG, message) == 0


def test_one_neighbours_excess_costs_another_nothing_and_time_heals_it() -> None:
    buckets = NeighbourRateLimits(ON)
    a, b, now = Address("a"), Address("b"), START_US
    for _ in range(16):
        buckets.charge(Greet(), a, now)
    with pytest.raises(ExcessError, match="greetings"):
        buckets.charge(Greet(), a, now)
    buckets.charge(Greet(), b, now)
    buckets.charge(Subscribe(TOKEN), a, now)
    buckets.charge(Greet(), a, now + ON.heartbeat_us // 2)


def test_numbers_that_jump_with_every_heartbeat_do_not_make_us_tell_everything_again_and_again() -> None:
    bench = SingleNode("forwarder", "a b", ON)
    bench.hear("b", advert())
    told = bench.node.sent["Advert"]
    for number in range(600):
        bench.feed("a", pad(encode(bench.beat(5_000_000 + 10 * number)), ON.heartbeat_bytes))
    assert bench.node.sent["Advert"] - told <= ON.defences.greetings.burst
    assert bench.node.refused["ExcessError"] >= 600 - ON.defences.greetings.burst


def test_buckets_are_bounded_and_those_in_use_stay() -> None:
    buckets, steady = NeighbourRateLimits(ON), Address("steady")
    for _ in range(16):
        buckets.charge(Greet(), steady, START_US)
    for number in range(100):
        buckets.charge(Subscribe(TOKEN), steady, START_US)
        buckets.charge(Greet(), Address(f"n{number}"), START_US)
    assert len(buckets) == 4 * ON.neighbours_max
    with pytest.raises(ExcessError):
        buckets.charge(Greet(), steady, START_US)


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError):
        MessageRate(0, 1)
    with pytest.raises(ConfigError):
        MessageRate(1, 0)


# --- honest neighbours --------------------------------------------------------------------------------------


def ring_of(topics: list[str]) -> Keyring:
    entropy = Random(1).randbytes
    state = issuer.create(HOUR_US, entropy)
    for topic in topics:
        state = issuer.declare_label(state, topic, "paper", entropy)
    wanted: list[tuple[str, TopicRole]] = [(topic, "publisher") for topic in topics]
    return issuer.grant_ready(state, "x", wanted, epoch_of(START_US, HOUR_US), 2, entropy)[1]


def test_fifty_topics_are_introduced_to_newcomers_over_bad_links_and_nothing_is_refused() -> None:
    topics = [f"t{number}" for number in range(50)]
    keyring, names = ring_of(topics), [Address(name) for name in "abcd"]
    world = World(seed=3, links=LinkDelays(latency_us=(10_000, 50_000)))

    def start(birth: Birth) -> MeshNode:
        others = [name for name in names if name != birth.address]
        node = MeshNode(
            MeshConfig(defences=Defences(buckets=True)), keyring, birth.rng, birth.entropy, others, birth.now
        )
        for place, topic in enumerate(topics):
            if names[place % 4] == birth.address:
                node.advertise(topic, birth.now)
            else:
                node.subscribe(Label(topic), birth.now)
        return node

    for name in names:
        world.add(name, start)
    for place, name in enumerate(names):
        for other in names[place + 1 :]:
            world.connect(name, other)
    world.run(20_000_000)
    world.set_weather(Weather(loss_ppm=200_000))
    world.run(20_000_000)
    world.set_weather(Weather())
    world.crash(names[0])
    world.run(10_000_000)
    world.restart(names[0])
    world.run(20_000_000)
    for name in names:
        node = world.machine(name)
        assert node.refused["ExcessError"] == 0
        assert all(node.overlay.reachable_origins(token) for token in node.overlay.routes.tokens())
        assert len(node.overlay.routes.tokens()) == 50
