"""A publication is durable before it leaves, is sent until it is confirmed, and has one number in one stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.hardened_mesh_network import (
    EPOCH_US,
    HARDENED_CONFIG,
    PERIOD_US,
    HardenedMeshNetwork,
    SingleHardenedNode,
    acknowledgement_by,
    root_advert,
    topic_keys,
    with_rules,
)
from support.mesh_network import LABEL, SMALL_CONFIG, TOKEN, MeshNetwork, SingleNode, publication
from veilcast.core.outbox import Outbox, PendingPublication, decode_record
from veilcast.core.publication import NumberedPublication, open_notify, stream_place_id
from veilcast.errors import LocalError, TamperedError
from veilcast.machine import Address, Delivered, Event, Overdue, Publication, Record, Settled
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.neighbour_links import NEIGHBOUR_RECORD
from veilcast.mesh.paper import RetainedPublications
from veilcast.mesh.stem import cargo_id
from veilcast.sim.checkers import Checker
from veilcast.sim.mesh.population import TOPIC, role_keyrings
from veilcast.sim.world import World
from veilcast.topics import Label
from veilcast.wire import decode
from veilcast.wire.mesh import Notify, Stem, Subscribe

LINGER = SMALL_CONFIG.linger_periods


def drained(source: Outbox) -> list[Event]:
    found = []
    while (event := source.next_event()) is not None:
        found.append(event)
    return found


def keep(records: Outbox, *bodies: bytes) -> list[int]:
    return [records.keep([records.draft(TOPIC, None, publication(body))]) for body in bodies]


# --- the table ----------------------------------------------------------------------------------------------


def test_numbers_go_up_from_one_in_each_stream_and_a_draft_takes_none() -> None:
    records = Outbox(Random(1).randbytes, {}, 10, NEIGHBOUR_RECORD)
    for _ in range(3):
        assert records.draft(TOPIC, None, publication(b"x")).content.number == 1
    keep(records, b"1", b"2")
    assert records.draft(TOPIC, None, publication(b"3")).content.number == 3
    assert records.draft(TOPIC, b"cell", publication(b"1")).content.number == 1
    assert records.draft("other", None, publication(b"1")).content.number == 1


def test_a_record_leaves_once_and_only_after_it_is_stored() -> None:
    records = Outbox(Random(1).randbytes, {}, 10, NEIGHBOUR_RECORD)
    [number] = keep(records, b"x")
    assert [pending.content.publication for pending in records.stored(number)] == [publication(b"x")]
    assert records.stored(number) == ()
    assert records.stored(99) == ()


def test_a_record_is_settled_when_all_its_publications_are() -> None:
    records = Outbox(Random(1).randbytes, {}, 10, NEIGHBOUR_RECORD)
    drafts = [records.draft(topic, None, publication(b"x")) for topic in ("a", "b")]
    number = records.keep(drafts)
    records.stored(number)
    records.settle(number, drafts[0])
    assert Settled(number) not in drained(records)
    records.settle(number, drafts[1])
    records.settle(number, drafts[1])
    assert drained(records) == [Settled(number)]
    assert len(records) == 0


def test_a_full_table_refuses_and_says_so() -> None:
    records = Outbox(Random(1).randbytes, {}, 2, NEIGHBOUR_RECORD)
    keep(records, b"1", b"2")
    with pytest.raises(LocalError, match="2 publications wait already"):
        keep(records, b"3")
    records.drop(2)
    keep(records, b"3")


def test_a_damaged_record_is_detected() -> None:
    with pytest.raises(TamperedError):
        Outbox(Random(1).randbytes, {2: b"\xc1"}, 10)


@given(lives=st.lists(st.lists(st.sampled_from(["publish", "stored", "settle"]), max_size=12), max_size=5))
def test_over_any_restarts_no_number_is_used_twice_and_no_stored_record_is_forgotten(lives: list[list[str]]) -> None:
    disk: dict[int, bytes] = {NEIGHBOUR_RECORD: b"not for us"}
    places: dict[tuple[bytes, int], bytes] = {}
    safe: dict[bytes, None] = {}
    for life, acts in enumerate(lives):
        records = Outbox(Random(life).randbytes, disk, 1000, NEIGHBOUR_RECORD)
        asked: list[Record] = []
        for step, act in enumerate(acts):
            if act == "publish":
                keep(records, b"%d.%d" % (life, step))
            elif act == "stored" and asked:
                record = asked.pop(0)
                disk[record.record] = record.data
                safe |= {pending.content.publication.body: None for pending in records.stored(record.record)}
            elif act == "settle" and (kept := list(records.unsettled())):
                del safe[kept[0][1].content.publication.body]
                records.settle(*kept[0])
            for event in drained(records):
                if isinstance(event, Record):
                    asked.append(event)
                elif isinstance(event, Settled):
                    disk.pop(event.record)
        drafts = [pending for _, pending in records.unsettled()] + [*read_publications(asked)]
        for content in (pending.content for pending in drafts):
            body = content.publication.body
            assert places.setdefault((content.stream, content.number), body) == body
        assert [pending.content.publication.body for _, pending in records.unsettled()] == list(safe)


def read_publications(asked: Sequence[Record]) -> list[PendingPublication]:
    return [pending for record in asked for pending in decode_record(record.data)]


def test_retained_publications_are_settled_after_their_time_or_earlier_if_the_records_are_full() -> None:
    records = Outbox(Random(1).randbytes, {}, 2, NEIGHBOUR_RECORD)
    retained = RetainedPublications(10, records)
    first, second = keep(records, b"1", b"2")
    for number, out in ((first, False), (second, True)):
        [pending] = records.stored(number)
        retained.add(number, pending, 0, is_sent=out)
    drained(records)
    retained.make_room()
    assert drained(records) == [Settled(second)]
    retained.make_room()
    assert [stay.record for stay in retained.pop_due(10)] == [first]
    assert drained(records) == []


# --- one node -----------------------------------------------------------------------------------------------


def paper(records: dict[int, bytes] | None = None, seed: int = 3, config: MeshConfig = SMALL_CONFIG) -> SingleNode:
    """A publisher with a child in its mesh."""
    bench = SingleNode("publisher", "a b", config, seed=seed, records=records)
    bench.node.advertise(TOPIC, bench.now)
    bench.tick()
    bench.hear("a", Subscribe(TOKEN))
    return bench


def contents(bench: SingleNode) -> list[NumberedPublication]:
    keys = role_keyrings()["publisher"].keys_at(bench.now // role_keyrings()["publisher"].epoch_us).topic(TOPIC)
    notes = [decode(frame.data) for frame in bench.frames() if frame.data[:1] != b"\0"]
    return [open_notify(keys, message) for message in notes if isinstance(message, Notify)]


def cargo_of(single: SingleHardenedNode, periods: int) -> list[tuple[str, bytes]]:
    said = [*single.sort(single.frames()), *single.run(periods)]
    stems = [(name, message.cargo) for _, name, message in said if isinstance(message, Stem)]
    return [(name, cargo) for name, cargo in stems if isinstance(decode(cargo), Notify)]


def hardened(records: dict[int, bytes] | None = None, seed: int = 3, **changed: object) -> SingleHardenedNode:
    """A publisher that knows a root."""
    single = SingleHardenedNode("publisher", config=with_rules(**changed), seed=seed, records=records)
    single.node.advertise(TOPIC, single.now)
    for name in single.names:
        single.hear(name, root_advert())
    single.run(2)
    return single


@pytest.mark.parametrize("make", [paper, hardened])
def test_nothing_leaves_before_it_is_stored(make: Callable[[], SingleNode]) -> None:
    bench = make()
    number = bench.node.publish(publication(b"x"), bench.now)
    assert all(frame.data[:1] == b"\0" for frame in bench.node.frames_to_send(bench.now, 1000))
    assert [event.record for event in [bench.node.next_event()] if isinstance(event, Record)] == [number]
    bench.node.stored(number, bench.now)
    [frame] = bench.node.frames_to_send(bench.now, 1000)
    assert isinstance(decode(frame.data), Notify | Stem)
    bench.node.stored(number, bench.now)
    assert bench.node.frames_to_send(bench.now, 1000) == []


@pytest.mark.parametrize("make", [paper, hardened])
def test_a_publication_on_two_topics_is_accepted_for_both_or_for_none(make: Callable[[], SingleNode]) -> None:
    bench = make()
    both = Publication((LABEL.pair, Label("not granted").pair), b"x")
    with pytest.raises(LocalError):
        bench.node.publish(both, bench.now)
    assert bench.node.sizes()["pending"] == 0
    bench.node.publish(publication(b"y"), bench.now)
    bench.frames()
    [pending] = decode_record(bench.records[2])
    assert pending.content.number == 1


def test_a_paper_publication_is_settled_after_its_retention() -> None:
    bench = paper()
    bench.node.publish(publication(b"x"), bench.now)
    assert len(contents(bench)) == 1
    for _ in range(LINGER - 1):
        bench.tick()
    assert list(bench.records) == [2]
    bench.tick()
    bench.tick()
    assert bench.records == {}


def test_a_paper_publisher_never_waits_for_room() -> None:
    bench = paper(config=msgspec.structs.replace(SMALL_CONFIG, lingering_max=3))
    for number in range(10):
        bench.node.publish(publication(b"%d" % number), bench.now)
        assert len(contents(bench)) == 1
    assert bench.node.sizes()["pending"] == len(bench.records) == 3


def test_records_that_are_not_stored_yet_are_not_settled_to_make_room() -> None:
    bench = paper(config=msgspec.structs.replace(SMALL_CONFIG, lingering_max=3))
    for number in range(3):
        bench.node.publish(publication(b"%d" % number), bench.now)
    with pytest.raises(LocalError, match="3 publications wait already"):
        bench.node.publish(publication(b"x"), bench.now)


def test_a_restarted_paper_publisher_sends_unsettled_publications_with_the_same_number() -> None:
    bench = paper()
    bench.node.publish(publication(b"x"), bench.now)
    [before] = contents(bench)
    again = paper(bench.records, seed=4)
    again.node.publish(publication(b"y"), again.now)
    [fresh] = contents(again)
    assert fresh.stream != before.stream
    after = []
    for _ in range(LINGER + 2):
        again.hear("a")
        again.now = max(again.now, again.node.next_timer() or 0)
        again.node.handle_timer(again.now)
        after += contents(again)
    assert after == [before]
    for _ in range(LINGER + 2):
        again.tick()
    assert again.records == {}


def test_a_restarted_hardened_publisher_sends_until_the_root_has_the_publication() -> None:
    single = hardened()
    single.node.publish(publication(b"x"), single.now)
    [(_, before)] = cargo_of(single, 1)
    again = hardened(single.records, seed=4)
    name, after = cargo_of(again, 12)[0]
    sealed = [message for message in map(decode, (before, after)) if isinstance(message, Notify)]
    assert before != after
    assert len({repr(open_notify(topic_keys(), message)) for message in sealed}) == 1
    again.send(name, acknowledgement_by(50, cargo_id(after)))
    again.events()
    assert again.records == {}


def test_without_a_grant_a_restarted_publisher_keeps_unsendable_publications_and_tells_the_owner() -> None:
    single = hardened()
    single.node.publish(publication(b"x"), single.now)
    single.frames()
    reader = SingleHardenedNode("subscriber", config=with_rules(wait_epochs=1), records=single.records)
    for name in reader.names:
        reader.hear(name, root_advert())
    assert not any(isinstance(message, Stem) for _, _, message in reader.run(1.5 * EPOCH_US / PERIOD_US))
    assert reader.events() == [Overdue(2, publication(b"x"))]
    assert list(reader.records) == [2]


def test_without_a_grant_a_restarted_paper_publisher_keeps_publications_until_there_is_a_grant() -> None:
    bench = paper()
    bench.node.publish(publication(b"x"), bench.now)
    bench.frames()
    reader = SingleNode("subscriber", "a b", records=bench.records)
    for _ in range(3 * LINGER):
        assert all(frame.data[:1] == b"\0" for frame in reader.tick())
    assert list(reader.records) == [2]


@pytest.mark.parametrize("make", [paper, hardened])
def test_a_withdrawn_publication_is_not_sent_again(make: Callable[[], SingleNode]) -> None:
    bench = make()
    number = bench.node.publish(publication(b"x"), bench.now)
    bench.frames()
    bench.node.withdraw(number, bench.now)
    bench.node.withdraw(number, bench.now)
    bench.events()
    assert bench.records == {}
    assert bench.node.sizes()["pending"] == 0
    for _ in range(LINGER + 2):
        for frame in bench.tick():
            assert frame.data[:1] == b"\0" or not isinstance(decode(frame.data), Notify)


def test_the_id_of_a_notification_depends_on_its_number_and_not_on_its_sealing() -> None:
    content = NumberedPublication(b"stream 1", 1, publication(b"x"))
    assert stream_place_id(TOPIC, content) == stream_place_id(
        TOPIC, NumberedPublication(b"stream 1", 1, publication(b"y"))
    )
    places = [("b", b"stream 1", 1), (TOPIC, b"stream 2", 1), (TOPIC, b"stream 1", 2), (TOPIC, b"stream 1", 1)]
    ids = {
        stream_place_id(topic, NumberedPublication(stream, number, publication(b"x")))
        for topic, stream, number in places
    }
    assert len(ids) == len(places)


# --- whole networks -----------------------------------------------------------------------------------------


class Ids(Checker):
    """The ids that each address received, over all its runs."""

    def __init__(self) -> None:
        self.given: list[tuple[Address, bytes]] = []

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if isinstance(event, Delivered):
            self.given.append((address, event.note.id))


def test_a_paper_publisher_that_crashes_after_publishing_is_heard_after_its_restart() -> None:
    """Its way is blocked, so no node has the notification when it crashes."""
    network = MeshNetwork("p-f f-s").run(20)
    network.world.block(Address("p"), Address("f"))
    network.publish(b"x", wait=0.1)
    network.world.crash(Address("p"))
    network.world.unblock(Address("p"), Address("f"))
    network.world.restart(Address("p"))
    network.run(2 * LINGER)
    assert network.delivered("s") == [b"x"]


def test_a_crashed_hardened_publisher_is_heard_after_an_edge_and_subscribers_recognise_the_repetition() -> None:
    """The receipt does not come back, so the next run sends what its subscriber has. The subscriber restarted too."""
    ids = Ids()
    network = HardenedMeshNetwork("p-a a-b b-c c-s s-d d-a", cover=1, config=HARDENED_CONFIG, checkers=[ids]).run_until(
        0.5
    )
    network.world.block(Address("a"), Address("p"))
    network.publish(b"x", wait=6)
    assert network.delivered("s") == [b"x"]
    for name in "ps":
        network.world.crash(Address(name))
    network.world.unblock(Address("a"), Address("p"))
    for name in "ps":
        network.world.restart(Address(name))
    network.run_until(2.5)
    assert network.node("p").sizes()["pending"] == 0
    assert set(network.delivered("s")) == {b"x"}
    assert len({note for name, note in ids.given if name == "s"}) == 1


def test_a_publication_not_stored_before_the_crash_never_left() -> None:
    network = MeshNetwork("p-f f-s").run(20)
    network.world.call(Address("p"), lambda machine, now: machine.publish(publication(b"x"), now))
    network.world.run(500)
    network.world.crash(Address("p"))
    network.world.restart(Address("p"))
    network.run(3 * LINGER)
    assert network.delivered("s") == []
