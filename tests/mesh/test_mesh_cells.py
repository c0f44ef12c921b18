"""Ranges and boxes over the mesh: one mesh for each coarse cell, and deliveries match the definition."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.hardened_mesh_network import EPOCH_US, FIRST, HARDENED_CONFIG, SingleHardenedNode, with_rules
from support.mesh_network import LABEL, SMALL_CONFIG, MeshNetwork, SingleNode
from veilcast.authority.epoch import HOUR_US
from veilcast.authority.keyring import Keyring, TopicKeys
from veilcast.authority.topic_record import Profile, TopicRecord
from veilcast.core.publication import NumberedPublication, check_certified_notify, make_certified_notify
from veilcast.crypto.topic_token import CELLS_MAX, cell_token
from veilcast.errors import AuthorityError, ForgedError, LocalError
from veilcast.machine import Publication
from veilcast.mesh import roots
from veilcast.mesh.advertisements import check_advert, check_call, make_advert, make_call
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.roots import check_root_advert, make_root_advert
from veilcast.sim.engine import START_US
from veilcast.sim.keyrings import make_keyring
from veilcast.sim.mesh.population import TOPIC
from veilcast.topics import All, Box, Conjunction, Integers, Range, Reals, Schema, cell_of, cells_of
from veilcast.topics.domain import MAX_ROUTING
from veilcast.wire import decode
from veilcast.wire.mesh import Call, Stem

HOUSE = Schema((Integers("floor", 0, 31, 5, routing=1), Reals("temp", -40, 60, 12, routing=2)))
EIGHTHS = Schema((Integers("at", 0, 63, 6, routing=3),))


def ring(role: str, schema: Schema = EIGHTHS, profile: Profile = "hardened", number: int = 0) -> Keyring:
    """Keys of one of two topics, the first of which is divided as the schema says."""
    topics = tuple(TopicRecord(name, schema, cover_share=0, profile=profile) for name in (TOPIC, "other"))
    wanted = () if role == "forwarder" else ((TOPIC, role),) if role != "stranger" else (("other", "publisher"),)
    return make_keyring(topics, EPOCH_US if profile == "hardened" else HOUR_US, wanted, number)


def published(body: bytes, **values: float) -> Publication:
    return Publication((LABEL.pair, *values.items()), body)


class CellNetwork(MeshNetwork):
    """A network for a topic that is divided into cells. A name with r is a reader that subscribes when a test tells
    it to."""

    def __init__(self, edges: str, schema: Schema, config: MeshConfig = SMALL_CONFIG) -> None:
        self.schema, self.profile = schema, config.profile
        super().__init__(edges, config=config)
        self.run(0.5)

    def keyring(self, name: str, role: str) -> Keyring:
        role = "subscriber" if name[0] == "r" else role
        return ring(role, self.schema, self.profile, list(self.neighbours).index(name))

    def subscribe(self, name: str, interest: Conjunction) -> int:
        return self.node(name).subscribe(All(LABEL, interest), self.world.now)

    def send(self, publications: Sequence[Publication], by: str = "p") -> None:
        for publication in publications:
            self.node(by).publish(publication, self.world.now)
        self.world.run(0)
        self.run(20)

    def keys(self, name: str) -> TopicKeys:
        keyring = self.keyring(name, "publisher" if name == "p" else "subscriber")
        return keyring.keys_at(self.world.now // keyring.epoch_us).topic(TOPIC)

    def carries(self, name: str) -> int:
        """In how many of the topic's meshes this node is."""
        overlay = self.node(name).overlay
        return sum(overlay.is_in_mesh(keys.token) for keys in self.keys("p").for_all())


FLOORS, TEMPS = st.integers(0, 31), st.floats(-40, 60)
SCHEMAS = st.builds(
    lambda floors, temps: Schema((Integers("floor", 0, 31, 5, floors), Reals("temp", -40, 60, 12, temps))),
    st.integers(0, 2),
    st.integers(0, 2),
)
INTERESTS = st.one_of(
    st.just(LABEL),
    st.builds(lambda ends: Range("floor", min(ends), max(ends)), st.tuples(FLOORS, FLOORS)),
    st.builds(lambda low: Range("temp", low, None, low_open=True), st.floats(-40, 59)),
    st.builds(
        lambda ends, floor: Box({"temp": (min(ends), max(ends)), "floor": (None, floor)}),
        st.tuples(TEMPS, TEMPS),
        FLOORS,
    ),
)
PLACES = st.lists(st.tuples(FLOORS, TEMPS), min_size=1, max_size=6)


@settings(max_examples=30)
@given(SCHEMAS, st.lists(INTERESTS, min_size=3, max_size=3), PLACES)
def test_deliveries_match_the_definition(
    schema: Schema, interests: list[Conjunction], places: list[tuple[int, float]]
) -> None:
    network = CellNetwork("p-f f-r1 f-r2 r2-r3", schema)
    check_by_definition(network, dict(zip(("r1", "r2", "r3"), interests, strict=True)), places, 12)
    # And r1, which is a leaf, is sent nothing but what lies in the cells that it touches.
    touched = cells_of(interests[0], schema)
    load = network.node("r1").load
    assert load.others.notes == 0
    assert load.own.notes == sum(cell_of(at(*place), schema) in touched for place in places)
    assert network.carries("r1") == len(touched)


@settings(max_examples=3)
@given(st.lists(INTERESTS, min_size=3, max_size=3), PLACES)
def test_deliveries_match_the_definition_in_the_hardened_mesh(
    interests: list[Conjunction], places: list[tuple[int, float]]
) -> None:
    network = CellNetwork("p-f f-r1 f-r2 r2-r3", HOUSE, HARDENED_CONFIG)
    check_by_definition(network, dict(zip(("r1", "r2", "r3"), interests, strict=True)), places, 70)


def at(floor: int, temp: float) -> Publication:
    return published(b"%d %r" % (floor, temp), floor=floor, temp=temp)


def check_by_definition(
    network: CellNetwork, readers: dict[str, Conjunction], places: list[tuple[int, float]], periods: int
) -> None:
    for name, interest in readers.items():
        network.subscribe(name, interest)
    network.run(periods)
    publications = [at(*place) for place in places]
    network.send(publications)
    for name, interest in readers.items():
        wanted = [publication.body for publication in publications if interest.matches(publication)]
        assert sorted(network.delivered(name)) == sorted(wanted)


def test_two_subscriptions_share_cells_and_unneeded_cells_are_dropped() -> None:
    network = CellNetwork("p-f f-r", EIGHTHS)
    first, second = (network.subscribe("r", Range("at", low, low + 20)) for low in (0, 16))
    network.run(8)
    assert network.carries("r") == network.carries("f") == 5
    network.node("r").unsubscribe(first, network.world.now)
    network.run(4)
    assert network.carries("r") == network.carries("f") == 3
    network.send([published(b"no", at=1), published(b"yes", at=20)])
    assert network.delivered("r") == [b"yes"]
    network.node("r").unsubscribe(second, network.world.now)
    network.run(4)
    assert network.carries("f") == 0


@pytest.mark.parametrize("config", [SMALL_CONFIG, HARDENED_CONFIG], ids=["paper", "hardened"])
def test_a_subscription_can_be_ended_after_its_grant(config: MeshConfig) -> None:
    bench = SingleNode("", "a", config, ring("subscriber", profile=config.profile))
    numbers = [bench.node.subscribe(All(LABEL, Range("at", low, None)), bench.now) for low in (0, 50)]
    later = bench.now + 100 * HOUR_US
    with pytest.raises(AuthorityError):
        bench.node.subscribe(LABEL, later)
    for number in numbers:
        bench.node.unsubscribe(number, later)


def test_notifications_of_other_cells_do_not_delay_a_subscriber() -> None:
    network = CellNetwork("p-r", EIGHTHS)
    network.subscribe("r", Range("at", 0, 7))
    network.run(6)
    for number in range(6):
        network.node("p").publish(published(b"%d" % number, at=63 if number % 2 else number), network.world.now)
    network.world.run(0)
    network.run(1)
    assert network.delivered("r") == [b"0", b"2", b"4"], "at once, and in order"


def test_a_publication_without_a_cell_is_refused_and_leaves_no_gap() -> None:
    for config in (SMALL_CONFIG, HARDENED_CONFIG):
        network = CellNetwork("p-r", EIGHTHS, config)
        with pytest.raises(LocalError, match="'at'"):
            network.node("p").publish(published(b"x"), network.world.now)
        with pytest.raises(LocalError, match="'at'"):
            network.subscribe("r", Range("at", 64, None))


def test_the_hardened_mesh_has_a_root_for_each_cell_and_delivers_by_cells() -> None:
    network = CellNetwork("p-f f-r1 f-r2 p-r2", EIGHTHS, HARDENED_CONFIG)
    network.subscribe("r1", Range("at", 10, 20))
    network.subscribe("r2", LABEL)
    network.run(70)
    tokens = [keys.token for keys in network.keys("p").for_all()]
    roots = [name for token in tokens for name in network.neighbours if network.node(name).overlay.originates(token)]
    assert len(roots) == 8
    assert len(set(roots)) > 1, "drawn for each cell"
    publications = [published(b"%d" % at, at=at) for at in (5, 10, 15, 20, 25, 60)]
    network.send(publications)
    assert sorted(network.delivered("r1")) == [b"10", b"15", b"20"]
    assert len(network.delivered("r2")) == 6
    joined = [keys for keys in network.keys("p").for_all() if network.node("r1").overlay.is_subscribed(keys.token)]
    assert len(joined) == 2
    # Over the edge, in the meshes of the next epoch.
    network.run(EPOCH_US / 1e6 + 20 - (network.world.now - START_US) / 1e6)
    network.send([published(b"later", at=11), published(b"not", at=60)])
    assert network.delivered("r1")[-1] == b"later"
    assert sorted(network.delivered("r2")[-2:]) == [b"later", b"not"], "in order within each cell only"


# --- the attacker's side


def stranger() -> TopicKeys:
    """A publisher of another topic."""
    return ring("stranger", number=7).keys_at(FIRST).topic("other")


def cell_keys(place: int = 0) -> TopicKeys:
    return ring("publisher").keys_at(FIRST).topic(TOPIC).for_all()[place]


def disguised(keys: TopicKeys) -> list[TopicKeys]:
    """All ways to claim the victim's token with the stranger's certificate and key."""
    victim = cell_keys()
    return [msgspec.structs.replace(keys, token=victim.token, cell=cell) for cell in (None, victim.cell, keys.cell)]


def test_the_publisher_of_one_topic_cannot_speak_for_a_cell_of_another() -> None:
    root, entropy = ring("forwarder").root, Random(1).randbytes
    content = NumberedPublication(b"stream 1", 1, published(b"x", at=1))
    honest = cell_keys()
    member = ring("forwarder", number=3).keys_at(FIRST)
    check_call(make_call(honest), root, FIRST, FIRST)
    check_advert(make_advert(honest, entropy), root, FIRST)
    check_certified_notify(make_certified_notify(honest, content, entropy), root, FIRST, FIRST)
    check_root_advert(make_root_advert(make_call(honest), member, 16, START_US + 1, entropy), root, FIRST, FIRST)
    for keys in disguised(stranger()) + disguised(stranger().for_all()[0]):
        with pytest.raises(ForgedError):
            check_call(make_call(keys), root, FIRST, FIRST)
        with pytest.raises(ForgedError):
            check_advert(make_advert(keys, entropy), root, FIRST)
        with pytest.raises(ForgedError):
            check_certified_notify(make_certified_notify(keys, content, entropy), root, FIRST, FIRST)
        advert = make_root_advert(make_call(keys), member, 16, START_US + 1, entropy)
        with pytest.raises(ForgedError):
            check_root_advert(advert, root, FIRST, FIRST)


def test_a_cell_cannot_be_passed_off_as_another_or_as_the_whole_topic() -> None:
    root = ring("forwarder").root
    call = make_call(cell_keys(0))
    for cell in (None, cell_keys(1).cell):
        with pytest.raises(ForgedError):
            check_call(msgspec.structs.replace(call, cell=cell), root, FIRST, FIRST)
    moved = msgspec.structs.replace(call, token=cell_keys(1).token, cell=cell_keys(1).cell)
    with pytest.raises(ForgedError):
        check_call(moved, root, FIRST, FIRST)


def test_a_lot_that_was_drawn_for_one_cell_does_not_count_for_another() -> None:
    root, entropy = ring("forwarder").root, Random(1).randbytes
    first, second = (
        make_root_advert(
            make_call(cell_keys(place)), ring("forwarder", number=3).keys_at(FIRST), 16, START_US + 1, entropy
        )
        for place in (0, 1)
    )
    with pytest.raises(ForgedError):
        check_root_advert(msgspec.structs.replace(second, root=first.root), root, FIRST, FIRST)


def test_one_certificate_opens_no_more_meshes_than_a_topic_has_cells() -> None:
    assert CELLS_MAX == 1 << MAX_ROUTING
    single = SingleHardenedNode(keyring=ring("forwarder"))
    whole = ring("publisher").keys_at(FIRST).topic(TOPIC)
    calls = [make_call(whole.for_cell(number.to_bytes(16, "big"))) for number in range(CELLS_MAX + 40)]
    for call in calls:
        single.hear("a", call)
        single.now += 40_000
    assert single.node.sizes()["calls"] == CELLS_MAX
    member = ring("forwarder", number=3).keys_at(FIRST)
    late = make_root_advert(calls[-1], member, HARDENED_CONFIG.d_max, single.now + EPOCH_US, Random(1).randbytes)
    before = single.node.refused["StaleError"]
    single.hear("a", late)
    assert single.node.refused["StaleError"] == before + 1
    assert single.node.overlay.routes.origins(late.token) == []


def test_forwarders_are_shown_names_of_cells_that_hang_on_the_topics_blind() -> None:
    keys = ring("publisher").keys_at(FIRST).topic(TOPIC)
    other = ring("stranger").keys_at(FIRST).topic("other")
    names = [part.cell for part in keys.for_all()]
    assert len(set(names)) == 8
    assert not set(names) & {part.cell for part in other.for_all()}, "the same places under another blind"
    assert [part.token for part in keys.for_all()] == [cell_token(keys.token, name) for name in names if name]
    later = ring("publisher").keys_at(FIRST + 1).topic(TOPIC)
    assert [part.cell for part in later.for_all()] == names
    assert not {part.token for part in later.for_all()} & {part.token for part in keys.for_all()}


def test_a_publisher_calls_for_a_root_of_every_cell() -> None:
    single = SingleHardenedNode(keyring=ring("publisher"))
    single.node.advertise(TOPIC, single.now)
    cargoes = [decode(stem.cargo) for _, _, stem in single.run(2) if isinstance(stem, Stem)]
    named = [call.cell for call in cargoes if isinstance(call, Call) and call.certificate.leaf.first == FIRST]
    assert named == [keys.cell for keys in ring("publisher").keys_at(FIRST).topic(TOPIC).for_all()]


@pytest.mark.parametrize("departure_epochs", [0, 4])
def test_no_topic_takes_the_whole_table_by_calls_for_epochs_to_come(
    monkeypatch: pytest.MonkeyPatch, departure_epochs: int
) -> None:
    """Without send slots two epochs are called for, and that is never too many."""
    monkeypatch.setattr(roots, "CELLS_MAX", 4)
    config = msgspec.structs.replace(with_rules(departure_epochs=departure_epochs), tokens_max=48)
    single = SingleHardenedNode(config=config, keyring=ring("forwarder"))
    for later in range(9):
        whole = ring("publisher").keys_at(FIRST + later).topic(TOPIC)
        for number in range(6):
            single.hear("a", make_call(whole.for_cell(number.to_bytes(16, "big"))))
            single.now += 40_000
    assert single.node.sizes()["calls"] == (12 if departure_epochs else 8)
    single.hear("a", make_call(ring("stranger").keys_at(FIRST).topic("other").for_cell(bytes(16))))
    single.run(1)
    assert single.node.sizes()["calls"] == (13 if departure_epochs else 9)
