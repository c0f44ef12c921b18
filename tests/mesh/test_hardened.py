"""The hardened profile as a whole: several roles and topics in one node, and hostile input."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.dictionary_attack import keyless_names
from support.hardened_mesh_network import (
    EPOCH_US,
    FIRST,
    HARDENED_CONFIG,
    PERIOD_US,
    RULES,
    HardenedMeshNetwork,
    SingleHardenedNode,
    call,
    certified_notify,
    only,
    root_advert,
    token,
    with_rules,
)
from support.mesh_network import LABEL
from support.mesh_network import publication as note
from support.message_strategies import messages
from veilcast.authority import issuer
from veilcast.authority.keyring import Keyring
from veilcast.authority.topic_record import TopicRecord
from veilcast.errors import ConfigError, LocalError
from veilcast.machine import Address, Delivered, Event, Publication
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.node import MeshNode
from veilcast.sim.engine import START_US, OwnerCall
from veilcast.sim.links import LinkDelays
from veilcast.sim.mesh.population import TOPIC, role_keyrings
from veilcast.sim.rng import SeededEntropy, derive_bytes
from veilcast.sim.world import World
from veilcast.topics import Label, Schema
from veilcast.wire import decode, encode, pad
from veilcast.wire.base import Message
from veilcast.wire.mesh import Heartbeat, Notify, Stem, StemReceipt, Subscribe

WORLD = "p-a a-b b-c c-d d-s s-e e-p a-d b-e"


# --- roles --------------------------------------------------------------------------------------------------


def with_root(name: str, edges: str = WORLD) -> HardenedMeshNetwork:
    """A hardened network in which this node, and no other, would be the root."""

    class Chosen(HardenedMeshNetwork):
        def _add(self, added: str, config: MeshConfig) -> None:
            super()._add(added, with_rules(volunteer=added == name))

    return Chosen(edges, cover=0.5)


@pytest.mark.parametrize("root", ["a", "p", "s", "d"])
def test_three_epochs_pass_without_loss_with_any_root(root: str) -> None:
    mesh = with_root(root).run_until(0.7)
    bodies = [b"%d" % number for number in range(100)]
    for body in bodies:
        mesh.publish(body, wait=2.5)
        assert root in mesh.roots() or mesh.world.now % EPOCH_US < PERIOD_US
    mesh.run(10)
    assert mesh.world.now > START_US + 2.5 * EPOCH_US
    assert mesh.roots() == [root]
    assert mesh.delivered("s") == bodies
    assert not any(mesh.node(name).refused["ForgedError"] for name in mesh.neighbours)


def test_a_publisher_that_subscribes_to_its_own_topic_gets_each_publication_once() -> None:
    mesh = HardenedMeshNetwork(WORLD, cover=0.5)
    mesh.world.call(Address("p"), lambda machine, now: machine.subscribe(LABEL, now))
    mesh.run_until(0.7)
    for number in range(10):
        mesh.publish(b"%d" % number, wait=1)
    mesh.run(5)
    assert mesh.delivered("p") == mesh.delivered("s") == [b"%d" % number for number in range(10)]


def test_two_publishers_of_one_topic_share_a_root_and_keep_their_orders() -> None:
    mesh = HardenedMeshNetwork("p-a a-b b-q q-c c-s s-a p2-b p2-c", cover=0.5).run_until(0.7)
    for number in range(10):
        mesh.publish(b"p %d" % number, wait=0.5)
        mesh.publish(b"p2 %d" % number, by="p2", wait=0.5)
    mesh.run(5)
    assert len(mesh.roots()) == 1
    for name in (b"p ", b"p2 "):
        assert [body for body in mesh.delivered("s") if body.startswith(name)] == [name + b"%d" % n for n in range(10)]


# --- topics -------------------------------------------------------------------------------------------------


@cache
def two_topics() -> dict[str, Keyring]:
    entropy = SeededEntropy(derive_bytes(7, "topics"))
    state = issuer.create(EPOCH_US, entropy)
    for name in ("news", "sport"):
        state = issuer.declare(state, TopicRecord(name, Schema(), cover_share=0.5, profile="hardened"), entropy)
    state = issuer.declare_label(state, "old", "paper", entropy)
    rings = {}
    for member, wanted in {
        "both": [("news", "publisher"), ("sport", "subscriber")],
        "other": [("sport", "publisher"), ("news", "subscriber"), ("old", "publisher")],
        "between": [],
    }.items():
        state, rings[member] = issuer.grant_ready(state, member, wanted, FIRST, 8, entropy)  # type: ignore[arg-type]
    return rings


def publishing(topic: str) -> OwnerCall:
    publication = Publication((Label(topic).pair,), topic.encode())
    return lambda machine, now: machine.publish(publication, now)


def test_two_topics_live_in_one_node() -> None:
    """Each of two members publishes on one topic and subscribes to the other."""
    got: list[tuple[str, bytes]] = []

    def delivered(address: Address, event: Event, now: int) -> None:
        if isinstance(event, Delivered):
            got.append((address, event.note.publication.body))
            world.call(address, lambda machine, now: machine.acknowledge(event.note.id, now))

    world = World(seed=1, links=LinkDelays(latency_us=(10_000, 50_000)), on_event=delivered)
    names = {"both": ("news", "sport"), "between": (), "other": ("sport", "news")}
    line = [Address(name) for name in names]
    for place, (name, topics) in enumerate(names.items()):
        near = [line[other] for other in (place - 1, place + 1) if 0 <= other < len(line)]

        def start(
            birth: object, name: str = name, topics: tuple[str, ...] = topics, near: list[Address] = near
        ) -> MeshNode:
            rng = Random(name)
            node = MeshNode(HARDENED_CONFIG, two_topics()[name], rng, rng.randbytes, near, world.now)
            if topics:
                node.advertise(topics[0], world.now)
                node.subscribe(Label(topics[1]), world.now)
            return node

        world.add(Address(name), start)
    world.connect(line[0], line[1])
    world.connect(line[1], line[2])
    world.run(EPOCH_US // 2)
    for name, topic in (("both", "news"), ("other", "sport")):
        world.call(Address(name), publishing(topic))
    world.run(EPOCH_US // 3)
    assert sorted(got) == [("both", b"sport"), ("other", b"news")]


def test_a_topic_of_the_papers_is_refused_by_a_hardened_node_and_the_reverse() -> None:
    rng = Random(1)
    node = MeshNode(HARDENED_CONFIG, two_topics()["other"], rng, rng.randbytes, [], START_US)
    with pytest.raises(LocalError, match="'old' is a topic of the paper profile; this node is hardened"):
        node.publish(Publication((Label("old").pair,), b"x"), START_US)
    with pytest.raises(LocalError, match="'old' is a topic of the paper profile"):
        node.subscribe(Label("old"), START_US)
    paper = MeshNode(MeshConfig(), two_topics()["other"], rng, rng.randbytes, [], START_US)
    with pytest.raises(LocalError, match="'news' is a topic of the hardened profile; this node has the paper profile"):
        paper.subscribe(Label("news"), START_US)
    hardened = MeshNode(HARDENED_CONFIG, role_keyrings()["publisher"], rng, rng.randbytes, [], START_US)
    with pytest.raises(LocalError, match="paper profile"):
        hardened.advertise(TOPIC, START_US)


def test_an_epoch_too_short_for_the_lead_is_refused() -> None:
    with pytest.raises(ConfigError, match="lead_periods"):
        SingleHardenedNode(config=with_rules(lead_periods=50))


# --- what is on the wire ------------------------------------------------------------------------------------


def test_no_message_names_the_topic_or_a_role() -> None:
    """Over two epochs of a publisher, a subscriber, covers and a root. Addresses are in no message either."""
    mesh = HardenedMeshNetwork(WORLD, cover=0.5)
    frames: list[bytes] = []
    receive = MeshNode.receive

    def listening(self: MeshNode, data: bytes, source: Address, now: int) -> None:
        frames.append(data)
        receive(self, data, source, now)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MeshNode, "receive", listening)
        mesh.run_until(0.7)
        for number in range(20):
            mesh.publish(b"a secret %d" % number, wait=3)
    assert len(mesh.delivered("s")) == 20
    for word in (TOPIC.encode(), b"publisher", b"subscriber", b"root", b"cover", b"secret"):
        assert not any(word in data for data in frames)
    heard = b"\n".join(frames)
    insider = role_keyrings()["forwarder"].membership
    assert not [name for name in keyless_names(TOPIC, [insider.network, insider.link]) if name in heard]
    sizes = {len(data) for data in frames if data[:1] == b"\0"}
    assert sizes == {HARDENED_CONFIG.heartbeat_bytes}


def test_a_subscriber_and_a_cover_send_the_same() -> None:
    """Byte for byte, over two epochs, with a child that asks and a notification that comes."""
    said = []
    for role in ("subscriber", "forwarder"):
        bench = SingleHardenedNode(role, cover=1)
        # One member in two roles: what differs is the grant alone.
        if role == "subscriber":
            bench.node.subscribe(LABEL, bench.now)
        bench.hear("a", root_advert(cover=1))
        told = bench.run(RULES.window_periods + 2)
        bench.hear("b", Subscribe(token()))
        told += bench.run(5)
        told += bench.send("a", certified_notify(b"x"))
        bench.run_until(START_US + EPOCH_US - RULES.lead_periods * PERIOD_US)
        bench.hear("a", root_advert(later=1, cover=1))
        told += bench.run_until(START_US + EPOCH_US)
        said.append(told)
    assert said[0] == said[1]


# --- strangers and nonsense ---------------------------------------------------------------------------------


def busy(role: str) -> SingleHardenedNode:
    """A node with every table in use."""
    bench = SingleHardenedNode(role)
    if role == "subscriber":
        bench.node.subscribe(LABEL, bench.now)
    if role == "publisher":
        bench.node.publish(note(b"x"), bench.now)
    bench.hear("a", root_advert(), call(1))
    bench.hear("b", Subscribe(token()))
    bench.run(4)
    return bench


@settings(max_examples=60)
@given(
    st.sampled_from(["forwarder", "subscriber", "publisher"]),
    st.lists(st.tuples(st.sampled_from("ab?"), st.binary(max_size=60) | messages().map(encode)), max_size=6),
)
def test_no_frame_makes_a_hardened_node_raise(role: str, frames: list[tuple[str, bytes]]) -> None:
    bench = busy(role)
    for source, data in frames:
        bench.feed(source, data)
        bench.feed(source, b"\0" + data)
        bench.feed(source, encode(Stem(True, data or b"x")))
        if source != "?":
            beat = bench.beat(bench._numbers[Address(source)] + 1, decode_or_greet(data))
            bench._numbers[Address(source)] += 1
            bench.feed(source, pad(encode(beat), HARDENED_CONFIG.heartbeat_bytes))
    bench.run(2)


def decode_or_greet(data: bytes) -> Message:
    try:
        message = decode(data)
    except Exception:
        return Subscribe(token())
    return Subscribe(token()) if isinstance(message, Heartbeat) or len(data) > 900 else message


def genuine() -> list[Message]:
    """Every message that a valid member could send, at any time."""
    return [
        *(call(later) for later in range(3)),
        *(root_advert(number, later) for number in (50, 51) for later in range(3)),
        *(certified_notify(b"x", later=later) for later in range(3)),
        *(Stem(climbs, encode(certified_notify(b"y", 2, later))) for climbs in (False, True) for later in range(3)),
        *(Stem(climbs, encode(call(later))) for climbs in (False, True) for later in range(3)),
        StemReceipt(bytes(16), bytes(64)),
        *(Subscribe(token(later)) for later in range(3)),
    ]


@pytest.mark.parametrize("role", ["forwarder", "subscriber", "publisher"])
def test_no_authentic_message_at_a_wrong_time_makes_a_node_raise(role: str) -> None:
    rng = Random(5)
    for _ in range(6):
        bench = busy(role)
        for message in rng.choices(genuine(), k=30):
            source = rng.choice("abc")
            bench.feed(source, encode(message))
            bench.hear(source, message)
            bench.run(rng.choice((1, 1, 1, 40)))
        assert bench.node.sizes()["calls"] <= 3


def test_a_neighbour_that_floods_stems_or_notifications_is_limited_and_others_are_not() -> None:
    """Each costs the check of a signature, and a copy for another node."""
    bench = SingleHardenedNode("forwarder", "a b m")
    bench.hear("a", root_advert())
    bench.hear("b", Subscribe(token()))
    bench.run(RULES.follow_periods + 2)
    burst = HARDENED_CONFIG.defences.stems.burst
    flood = encode(Stem(True, encode(call(1))))
    for _ in range(burst + 500):
        bench.feed("m", flood)
    assert bench.node.refused == {"StaleError": burst - 1, "ExcessError": 500}
    note_again = encode(certified_notify(b"x"))
    for _ in range(HARDENED_CONFIG.defences.notes.burst + 500):
        bench.feed("m", note_again)
    assert bench.node.refused["ExcessError"] == 1000
    assert len(bench.frames()) <= 3
    assert len(only(bench.send("a", certified_notify(b"y", 2, seed=2)), Notify)) == 1
    assert len(only(bench.send("b", Stem(True, encode(certified_notify(b"z", 3, seed=3)))), Stem)) == 1


def test_a_backlog_that_leaves_at_once_is_no_flood() -> None:
    """A full outbox that is sent at once when the way opens passes every relay."""
    count = 100
    assert HARDENED_CONFIG.defences.stems.burst >= 2 * RULES.pending_max
    mesh = HardenedMeshNetwork("p-a a-b b-s", cover=1)
    for number in range(count):
        mesh.publish(b"%d" % number, wait=0)
    mesh.run_until(0.9)
    assert len(mesh.delivered("s")) == count
    assert not any(mesh.node(name).refused["ExcessError"] for name in mesh.neighbours)
