"""A single node: what it refuses, what it never does, and the one size of its heartbeats."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.mesh_network import LABEL, SMALL_CONFIG, TOKEN, SingleNode, advert, publication
from support.message_strategies import messages
from veilcast.authority import issuer
from veilcast.authority.epoch import HOUR_US, epoch_of
from veilcast.core.publication import NumberedPublication, make_notify
from veilcast.crypto import hash_chain
from veilcast.errors import LocalError, UnknownTopicError
from veilcast.machine import Address, Delivered, Publication
from veilcast.mesh import paper
from veilcast.mesh.advertisements import replace_chain_value
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.node import MeshNode
from veilcast.mesh.routes import AdvertisedOrigin, RouteTable
from veilcast.sim.engine import START_US
from veilcast.sim.mesh.population import TOPIC, role_keyrings
from veilcast.topics import Label, Range
from veilcast.wire import encode, pad
from veilcast.wire.mesh import Advert, Greet, Heartbeat, Notify, Subscribe, Unadvert, Unsubscribe


def genuine(body: bytes, number: int = 1, seed: int = 5) -> Notify:
    keys = role_keyrings()["publisher"].keys_at(epoch_of(START_US, HOUR_US)).topic(TOPIC)
    return make_notify(keys, NumberedPublication(b"stream 1", number, publication(body)), Random(seed).randbytes)


def reader() -> SingleNode:
    bench = SingleNode("subscriber", "a b c")
    bench.node.subscribe(LABEL, bench.now)
    bench.hear("a", advert())
    bench.hear("b", Subscribe(TOKEN))
    bench.tick()
    return bench


def deliveries(bench: SingleNode) -> list[bytes]:
    found = []
    for event in bench.events():
        assert isinstance(event, Delivered)
        found.append(event.note.publication.body)
    return found


# --- notes --------------------------------------------------------------------------------------------------


def test_a_notification_goes_to_all_mesh_neighbours_except_its_sender_and_to_no_other() -> None:
    bench = reader()
    data = encode(genuine(b"x"))
    bench.feed("a", data)
    assert [(frame.destination, frame.data) for frame in bench.frames()] == [("b", data)]
    assert deliveries(bench) == [b"x"]


def test_a_notification_is_forwarded_and_delivered_once() -> None:
    bench = reader()
    for source in ("a", "b", "a"):
        bench.feed(source, encode(genuine(b"x")))
    assert len(bench.frames()) == 1
    assert deliveries(bench) == [b"x"]


def test_a_forged_notification_is_neither_forwarded_nor_remembered() -> None:
    bench, right = reader(), genuine(b"x")
    bench.feed("a", encode(Notify(right.token, right.sealed, bytes(64))))
    assert (bench.frames(), deliveries(bench)) == ([], [])
    assert bench.node.refused == {"ForgedError": 1}
    bench.feed("a", encode(right))
    assert deliveries(bench) == [b"x"]


def test_a_note_of_a_mesh_we_are_not_in_is_refused() -> None:
    bench = SingleNode("forwarder", "a b")
    bench.hear("a", advert())
    bench.tick()
    bench.feed("a", encode(genuine(b"x")))
    assert bench.frames() == []
    assert bench.node.refused == {"StaleError": 1}


def test_a_forwarder_forwards_notifications_that_it_cannot_open() -> None:
    bench = SingleNode("forwarder", "a b")
    bench.hear("a", advert())
    bench.hear("b", Subscribe(TOKEN))
    bench.tick()
    bench.feed("a", encode(genuine(b"x")))
    assert len(bench.frames()) == 1
    assert deliveries(bench) == []


def test_notes_of_one_publisher_are_delivered_in_its_order() -> None:
    bench = reader()
    for number in (1, 3, 4, 2):
        bench.feed("a", encode(genuine(b"%d" % number, number, seed=number)))
    assert deliveries(bench) == [b"1", b"2", b"3", b"4"]


def test_a_notification_is_delivered_again_until_it_is_acknowledged() -> None:
    bench = reader()
    bench.feed("a", encode(genuine(b"x")))
    [event] = bench.events()
    assert isinstance(event, Delivered)
    bench.now += SMALL_CONFIG.deliver_again_us
    bench.tick()
    assert bench.events() == [event]
    bench.node.acknowledge(event.note.id, bench.now)
    bench.now += SMALL_CONFIG.deliver_again_us
    bench.tick()
    assert bench.events() == []


# --- adverts ------------------------------------------------------------------------------------------------


def forged_adverts() -> list[Advert]:
    right = advert()
    leaf = right.certificate.leaf
    certificate = msgspec.structs.replace(leaf, signature=bytes(64))
    return [
        msgspec.structs.replace(right, signature=bytes(64)),
        msgspec.structs.replace(right, token=bytes(32)),
        msgspec.structs.replace(right, certificate=msgspec.structs.replace(right.certificate, leaf=certificate)),
    ]


@pytest.mark.parametrize("which", range(3))
def test_an_advert_that_no_certified_publisher_signed_is_refused(which: int) -> None:
    bench = SingleNode("forwarder", "a b")
    bench.hear("a", forged_adverts()[which])
    assert bench.next_riders() == {}
    assert bench.node.overlay.routes.tokens() == []
    assert bench.node.refused == {"ForgedError": 1}


def test_the_planted_bug_of_an_accepted_unsigned_advertisement_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper, "check_advert", lambda *_: None)
    with pytest.raises(AssertionError):
        test_an_advert_that_no_certified_publisher_signed_is_refused(0)


# --- bounds -------------------------------------------------------------------------------------------------


TINY = MeshConfig(
    neighbours_max=4, address_bytes_max=8, tokens_max=2, origins_max=3, queue_max=5, seen_max=4, unread_max=3
)


def flood(bench: SingleNode) -> None:
    """More of everything than there is room for."""
    for seed in range(10):
        bench.hear("a", advert(seed))
        bench.hear("b", Subscribe(TOKEN), Subscribe(bytes([seed]) * 32))
    for number in range(1, 12):
        bench.feed("a", encode(genuine(b"%d" % number, 2 * number, seed=number)))


def test_every_table_is_bounded() -> None:
    bench = SingleNode("subscriber", "a b c", TINY)
    bench.node.subscribe(LABEL, bench.now)
    flood(bench)
    sizes = bench.node.sizes()
    assert (sizes["routes"], sizes["branches"], sizes["seen"]) == (3, 2, 4)
    assert sizes["inbox"] <= 2 * TINY.unread_max
    assert sizes["queued"] <= 3 * TINY.queue_max


def test_the_planted_bug_of_an_unbounded_table_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def boundless(self: RouteTable, message: Advert, via: Address | None) -> AdvertisedOrigin:
        origin = AdvertisedOrigin(message, via)
        self._origins.setdefault(message.token, []).append(origin)
        return origin

    monkeypatch.setattr(RouteTable, "add", boundless)
    with pytest.raises(AssertionError):
        test_every_table_is_bounded()


# --- strangers and nonsense ---------------------------------------------------------------------------------


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from("ab?"), st.binary(max_size=60) | messages().map(encode)), max_size=8))
def test_no_frame_makes_a_node_raise(frames: list[tuple[str, bytes]]) -> None:
    bench = SingleNode("forwarder", "a b")
    for source, data in frames:
        bench.feed(source, data)
        bench.feed(source, b"\0" + data)
        if len(data) < SMALL_CONFIG.heartbeat_bytes - 40:
            bench.feed(source, pad(encode(Heartbeat(7, (data,))), SMALL_CONFIG.heartbeat_bytes))
    bench.next_riders()
    assert bench.node.overlay.routes.tokens() == []
    assert bench.node.overlay.branches.size() == 0


def test_frames_of_a_stranger_are_refused() -> None:
    bench = SingleNode("forwarder", "a b")
    bench.feed("stranger", pad(encode(Heartbeat(1, (encode(advert()),))), SMALL_CONFIG.heartbeat_bytes))
    assert bench.node.overlay.routes.tokens() == []
    assert bench.node.refused == {"StaleError": 1}


def test_management_outside_a_heartbeat_and_heartbeats_of_another_size_are_refused() -> None:
    bench = SingleNode("forwarder", "a b")
    bench.feed("a", encode(advert()))
    bench.feed("a", pad(encode(Heartbeat(1, (encode(advert()),))), SMALL_CONFIG.heartbeat_bytes + 1))
    bench.feed("a", b"")
    bench.hear("a", genuine(b"x"))
    assert bench.node.overlay.routes.tokens() == []
    assert bench.node.refused == {"MalformedError": 4}


def test_a_bad_rider_spoils_only_itself() -> None:
    bench = SingleNode("forwarder", "a b")
    riders = (b"nonsense", encode(advert()))
    bench.feed("a", pad(encode(Heartbeat(2, riders)), SMALL_CONFIG.heartbeat_bytes))
    assert len(bench.node.overlay.routes.origins(TOKEN)) == 1


def test_messages_about_unknown_state_change_nothing() -> None:
    bench = SingleNode("forwarder", "a b")
    bench.hear("a", Unadvert(TOKEN, bytes(32)), Unsubscribe(TOKEN), Subscribe(TOKEN))
    assert bench.next_riders() == {}
    assert bench.node.sizes()["branches"] == 0


# --- one size -----------------------------------------------------------------------------------------------


def test_every_frame_except_notifications_has_one_size_and_none_is_sent_between_beats() -> None:
    bench = reader()
    bench.hear("c", Greet(), Subscribe(TOKEN))
    bench.hear("c", *[Unsubscribe(TOKEN), Subscribe(TOKEN)] * 5)
    assert bench.frames() == []
    for _ in range(5):
        frames = bench.tick()
        assert [frame.destination for frame in frames] == ["a", "b", "c"]
        assert {len(frame.data) for frame in frames} == {SMALL_CONFIG.heartbeat_bytes}


def test_a_silent_neighbour_still_gets_heartbeats() -> None:
    bench = SingleNode("forwarder", "a b")
    for _ in range(20):
        bench.hear("a")
        assert [frame.destination for frame in bench.tick()] == ["a", "b"]


# --- the owner ----------------------------------------------------------------------------------------------


def test_impossible_requests_raise_errors_for_the_owner() -> None:
    bench = SingleNode("subscriber", "a b")
    with pytest.raises(LocalError, match="label"):
        bench.node.subscribe(Range("temp", 1, 2), bench.now)
    with pytest.raises(UnknownTopicError):
        bench.node.subscribe(Label("nowhere"), bench.now)
    with pytest.raises(LocalError, match="label"):
        bench.node.publish(Publication((("temp", 3),)), bench.now)
    with pytest.raises(LocalError, match="publisher"):
        bench.node.publish(publication(b"x"), bench.now)
    bench.node.subscribe(LABEL, bench.now)
    bench.tick()
    with pytest.raises(LocalError, match="no subscription"):
        bench.node.unsubscribe(7, bench.now)
    with pytest.raises(LocalError, match="more than"):
        SingleNode("forwarder", " ".join(f"n{i}" for i in range(21)))


def test_a_hardened_topic_is_refused_by_the_papers_mesh() -> None:
    entropy = Random(1).randbytes
    state = issuer.declare_label(issuer.create(HOUR_US, entropy), "h", "hardened", entropy)
    epoch = epoch_of(START_US, HOUR_US)
    _, ring = issuer.grant_ready(state, "x", [("h", "subscriber")], epoch, 2, entropy)
    node = MeshNode(SMALL_CONFIG, ring, Random(1), entropy, [Address("a")], START_US)
    with pytest.raises(LocalError, match="hardened"):
        node.subscribe(Label("h"), START_US)


def test_two_subscriptions_of_one_topic_end_one_by_one() -> None:
    bench = reader()
    second = bench.node.subscribe(LABEL, bench.now)
    bench.feed("a", encode(genuine(b"x")))
    assert deliveries(bench) == [b"x", b"x"]
    bench.node.unsubscribe(1, bench.now)
    assert bench.inward() == ["a"]
    bench.hear("b", Unsubscribe(TOKEN))
    bench.node.unsubscribe(second, bench.now)
    assert bench.inward() == []
    assert bench.next_riders() == {"a": [Unsubscribe(TOKEN)]}


# --- moving


def test_with_an_overlap_the_old_way_is_kept_until_the_new_one_is_laid() -> None:
    right = advert()
    further, nearer = (replace_chain_value(right, hash_chain.advance_chain(right.value, hops)) for hops in (3, 1))
    for overlap, said in ((0, {"a": [Unsubscribe(TOKEN)], "b": [Subscribe(TOKEN)]}), (4, {"b": [Subscribe(TOKEN)]})):
        bench = SingleNode("subscriber", "a b c", msgspec.structs.replace(SMALL_CONFIG, overlap_periods=overlap))
        bench.node.subscribe(LABEL, bench.now)
        bench.hear("a", further)
        bench.next_riders()
        bench.hear("b", nearer)
        moved = {
            name: [m for m in messages if not isinstance(m, Advert)] for name, messages in bench.next_riders().items()
        }
        assert {name: messages for name, messages in moved.items() if messages} == said
        for _ in range(overlap):
            for name in "abc":
                bench.hear(name)
            bench.tick()
        assert bench.inward() == ["b"]
