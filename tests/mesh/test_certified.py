"""Certified membership: which peers get a link, by which proof, and what strangers cannot do."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from support.neighbourhood_network import CertifiedNetwork
from veilcast.authority import issuer
from veilcast.authority.epoch import BATCH_MAX, HOUR_US, epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.errors import ConfigError, ForgedError, LocalError, StaleError
from veilcast.machine import Address, Record
from veilcast.mesh.certified import FAILED_MAX, ISOLATION_PERIODS, PATIENCE_PERIODS, TRIES_MAX, CertifiedNeighbourhood
from veilcast.mesh.config import CertifiedConfig as Rules
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.credentials import ProofContext
from veilcast.mesh.link_admission import CertifiedLink
from veilcast.mesh.neighbour_links import NEIGHBOUR_RECORD
from veilcast.mesh.node import MeshNode
from veilcast.sim.engine import START_US
from veilcast.sim.mesh.population import address_prefix, make_own_keyring, role_keyrings
from veilcast.wire import encode
from veilcast.wire.mesh import Admit, Answer, Join, Knock, Replace, Show

NONCE = bytes(16)


def pair() -> CertifiedNetwork:
    """Two nodes, the second of which joined through the first."""
    network = CertifiedNetwork()
    network.add("a")
    network.add("b", "a")
    network.beat()
    return network


def show_of(network: CertifiedNetwork, name: str, target: str, keyring: Keyring | None = None) -> Show:
    """A valid third message, after the first two."""
    network.tell(name, target, Knock(NONCE))
    answer = network.messages(target, name)[-1]
    assert isinstance(answer, Answer)
    credentials = network.credentials(name, keyring)
    epoch = credentials.epoch(network.now)
    meeting = ProofContext(Address(name), Address(target), NONCE, answer.cookie, epoch)
    proof = credentials.prove(answer.certificate, meeting, network.now).knocker.reveal()
    return Show(NONCE, answer.cookie, epoch, credentials.certificate(network.now), proof, True)


def test_a_link_opens_with_four_messages_on_both_sides() -> None:
    network = pair()
    assert [type(word) for _, _, word in network.sent] == [Knock, Answer, Show, Admit]
    assert network.linked("a") == ["b"]
    assert network.linked("b") == ["a"]
    assert network.nodes[Address("b")].slots.chosen() == ["a"]
    assert network.nodes[Address("a")].slots.chosen() == []
    assert network.contexts[Address("a")].opened == ["b"]
    assert network.refused == []


def test_nodes_that_knock_at_each_other_at_once_are_own_links_of_both() -> None:
    """Each has drawn the other from its contacts. That the other came too changes nothing."""
    network = CertifiedNetwork()
    network.add("a", "b")
    network.add("b", "a")
    network.beat()
    for name, peer in (("a", "b"), ("b", "a")):
        node = network.nodes[Address(name)]
        assert node.slots.chosen() == [peer]
        assert node.sizes()["tries"] == 0
        assert peer in node.book.proven


def test_a_peer_that_comes_while_it_is_only_probed_is_no_own_link() -> None:
    network = CertifiedNetwork()
    node = network.add("a")
    network.add("b", "a")
    node._knock(Address("b"), network.now, stay=False)
    network.beat()
    assert network.linked("a") == ["b"]
    assert node.slots.links[Address("b")].chosen is False


def test_a_certificate_without_its_key_is_worth_nothing() -> None:
    network = CertifiedNetwork()
    network.add("a")
    genuine = show_of(network, "b", "a")
    for wrong in (
        msgspec.structs.replace(genuine, proof=bytes(32)),
        msgspec.structs.replace(genuine, certificate=make_own_keyring("forwarder", "c").membership.certificate),
    ):
        network.tell("b", "a", wrong)
    assert network.linked("a") == []
    assert "without its key" in network.refused[0]


def test_a_certificate_of_another_authority_is_refused() -> None:
    entropy = Random(5).randbytes
    other, epoch = issuer.create(HOUR_US, entropy), epoch_of(START_US, HOUR_US)
    _, ring = issuer.grant_ready(other, "b", [], epoch, BATCH_MAX, entropy)
    network = CertifiedNetwork()
    network.add("a")
    network.tell("b", "a", show_of(network, "b", "a", ring))
    assert network.linked("a") == []
    network.add("b", "a", keyring=ring)
    network.beat(3)
    assert network.linked("a") == network.linked("b") == []


def test_a_proof_is_for_one_address_one_meeting_and_one_side() -> None:
    network = CertifiedNetwork()
    network.add("a")
    network.add("c")
    genuine = show_of(network, "b", "a")
    network.tell("mallory", "a", genuine)
    network.tell("b", "c", genuine)
    assert network.linked("a") == network.linked("c") == []
    credentials = network.credentials("b")
    answer = network.messages("a", "b")[-1]
    assert isinstance(answer, Answer)
    meeting = ProofContext(Address("b"), Address("a"), NONCE, answer.cookie, genuine.epoch)
    reflected = credentials.prove(answer.certificate, meeting, network.now).answerer.reveal()
    network.tell("b", "a", msgspec.structs.replace(genuine, proof=reflected))
    assert network.linked("a") == []
    network.now += 33 * 1_000_000
    network.tell("b", "a", genuine)
    assert network.linked("a") == []
    assert "cookie" in network.refused[-1]


def test_a_proof_of_another_epoch_is_refused() -> None:
    network = CertifiedNetwork()
    network.add("a")
    genuine = show_of(network, "b", "a")
    network.tell("b", "a", msgspec.structs.replace(genuine, epoch=genuine.epoch + 2))
    assert "another epoch" in network.refused[-1]


def test_before_a_cookie_comes_back_nothing_is_checked_or_remembered() -> None:
    network = CertifiedNetwork()
    node = network.add("a")
    before = node.sizes()
    for number in range(50):
        network.tell(f"x{number}", "a", Knock(NONCE))
    after = node.sizes()
    assert {name: size for name, size in after.items() if name != "prefixes"} == {
        name: size for name, size in before.items() if name != "prefixes"
    }
    assert (
        len([word for _, _, word in network.sent if isinstance(word, Answer)]) == network.config.neighbours_max * 3 // 4
    )


def test_a_stolen_certificate_with_its_key_counts_as_one_member() -> None:
    network = CertifiedNetwork()
    network.add("a")
    stolen = make_own_keyring("forwarder", "victim")
    network.tell("x.1", "a", show_of(network, "x.1", "a", stolen))
    network.tell("y.1", "a", show_of(network, "y.1", "a", stolen))
    assert network.linked("a") == ["x.1"]
    assert "another address" in network.refused[-1]
    network.add("z", "a", "x.1")
    network.add("x.1", keyring=stolen)
    network.add("y.1", keyring=stolen)
    network.nodes[Address("z")].book.mark_reached(Address("y.1"))
    network.beat(4)
    assert len([name for name in network.linked("z") if name in ("x.1", "y.1")]) == 1


def test_our_own_certificate_in_somebody_elses_hand_is_refused() -> None:
    network = CertifiedNetwork()
    network.add("a")
    network.tell("x", "a", show_of(network, "x", "a", make_own_keyring("forwarder", "a")))
    assert network.linked("a") == []


def test_a_peer_that_has_not_shown_its_certificate_is_not_admitted() -> None:
    network = CertifiedNetwork()
    node = network.add("a", "b")
    node.beat(network.now)
    (knock,) = [word for _, _, word in network.sent]
    assert isinstance(knock, Knock)
    network.mail.clear()
    for word in (
        Admit(knock.nonce, bytes(32), True, ("evil",)),
        Admit(NONCE, bytes(32), True, ("evil",)),
        Answer(NONCE, NONCE, make_own_keyring("forwarder", "b").membership.certificate),
        Join("b", 1, True, 1),
        Replace("evil"),
    ):
        network.tell("b", "a", word)
    assert len(network.refused) == 5
    assert network.linked("a") == []
    assert len(node.book) == 0


def test_an_answerer_with_a_certificate_but_no_key_adds_no_addresses() -> None:
    network = CertifiedNetwork()
    node = network.add("a", "b")
    node.beat(network.now)
    network.mail.clear()
    (knock,) = [word for _, _, word in network.sent if isinstance(word, Knock)]
    network.tell("b", "a", Answer(knock.nonce, NONCE, make_own_keyring("forwarder", "b").membership.certificate))
    network.tell("b", "a", Admit(knock.nonce, bytes(32), True, ("evil",)))
    assert "without its key" in network.refused[-1]
    assert network.linked("a") == []
    assert len(node.book) == 0


def test_a_network_grows_from_one_contact_that_has_few_slots() -> None:
    network = CertifiedNetwork(Rules(knock_burst=100))
    network.grow(60)
    network.beat(60)
    assert network.is_connected()
    assert max(len(node.slots.links) for node in network.nodes.values()) <= network.config.neighbours_max
    chosen = [len(node.slots.chosen()) for node in network.nodes.values()]
    assert sum(chosen) / len(chosen) > 7


def test_a_flood_of_strangers_never_takes_chosen_links() -> None:
    network = CertifiedNetwork(Rules(knock_burst=1000))
    network.grow(30)
    network.beat(10)
    node = network.nodes[Address("n5")]
    before = node.slots.chosen()
    for number in range(60):
        thief = f"s{number}.{number}"
        network.tell(thief, "n5", show_of(network, thief, "n5"))
        network.beat()
    assert node.slots.chosen()[: len(before)] == before
    assert len(node.slots.links) - len(node.slots.chosen()) == 8


def test_a_flood_from_one_prefix_leaves_room_for_others() -> None:
    network = CertifiedNetwork()
    network.add("a")
    for number in range(100):
        network.tell(f"s.{number}", "a", Knock(NONCE))
    answered = [to for _, to, word in network.sent if isinstance(word, Answer)]
    assert len(answered) == Rules().knock_burst
    network.tell("x", "a", Knock(NONCE))
    assert isinstance(network.messages("a", "x")[-1], Answer)


def test_simultaneous_tries_are_bounded_and_failed_ones_end() -> None:
    network = CertifiedNetwork()
    node = network.add("a")
    for number in range(20):
        node.book.add_hearsay(Address(f"x{number}"), Address(f"y{number}"))
    network.beat()
    assert node.sizes()["tries"] == TRIES_MAX
    network.beat(PATIENCE_PERIODS)
    assert len({to for _, to, word in network.sent if isinstance(word, Knock)}) > TRIES_MAX
    assert node.sizes()["tries"] == TRIES_MAX


def test_probes_keep_to_the_bound_however_often_they_are_due() -> None:
    network = CertifiedNetwork(Rules(probe_periods=1, book_max=128))
    node = network.add("a")
    for number in range(60):
        node.book.add_hearsay(Address(f"x{number}"), Address(f"y{number}"))
    tries = []
    for _ in range(2 * PATIENCE_PERIODS):
        network.beat()
        tries.append(node.sizes()["tries"])
    assert max(tries) == TRIES_MAX + 1


def test_addresses_too_long_for_a_heartbeat_are_not_stored() -> None:
    network = pair()
    node = network.nodes[Address("a")]
    node._hear_of(Address("x" * 13), Address("b"))
    node._hear_of(Address("a"), Address("b"))
    assert list(node.book.unproven) == ["b"]


def test_contacts_and_anchors_too_long_for_a_heartbeat_are_never_told() -> None:
    network = CertifiedNetwork()
    with pytest.raises(LocalError, match="12 bytes"):
        network.add("a", "x" * 13)
    network.add("b", anchors=("", "y" * 200, "c"))
    network.beat()
    assert [to for _, to, word in network.sent if isinstance(word, Knock)] == ["c"]


def test_anchors_are_the_oldest_chosen_peers_and_are_tried_first_after_a_restart() -> None:
    network = CertifiedNetwork(Rules(knock_burst=100))
    network.grow(20)
    network.beat(20)
    recorded = network.contexts[Address("n9")].records[-1]
    assert recorded == network.nodes[Address("n9")].slots.chosen()[: Rules().anchors]
    network.kill("n9")
    network.sent.clear()
    network.add("n9", "n0", anchors=tuple(recorded))
    network.beat()
    knocked = [to for by, to, word in network.sent if by == "n9" and isinstance(word, Knock)]
    assert knocked[: len(recorded)] == recorded


def test_anchors_are_not_forgotten_when_all_neighbours_fail() -> None:
    network = pair()
    network.beat()
    context = network.contexts[Address("b")]
    assert len(context.records) == 1
    network.kill("a")
    network.beat(3)
    assert len(context.records) == 1


def test_links_end_with_their_certificates() -> None:
    state = issuer.create(HOUR_US, Random(6).randbytes)
    epoch = epoch_of(START_US, HOUR_US)
    rings = [issuer.grant_ready(state, name, [], epoch, 2, Random(name).randbytes)[1] for name in "ab"]
    network = CertifiedNetwork()
    network.add("a", keyring=rings[0])
    node = network.add("b", "a", keyring=rings[1])
    network.beat()
    assert network.linked("a") == ["b"]
    network.now += HOUR_US
    network.beat()
    assert network.linked("a") == ["b"]
    network.now += HOUR_US
    network.beat()
    assert network.linked("a") == network.linked("b") == []
    network.tell("x", "b", Knock(NONCE))
    assert "no member" in network.refused[-1]
    assert node.sizes()["tries"] == 0


def test_a_node_that_hears_no_neighbour_begins_again() -> None:
    network = CertifiedNetwork(Rules(knock_burst=100))
    network.grow(12)
    network.beat(10)
    lonely = network.nodes[Address("n7")]
    network.beat(ISOLATION_PERIODS)
    network.contexts[Address("n7")].silent_us = 1 << 40
    lonely.beat(network.now)
    assert network.linked("n7") == []
    network.deliver()
    network.beat(ISOLATION_PERIODS // 2)
    assert network.linked("n7")
    network.beat(ISOLATION_PERIODS // 2)
    assert len(network.contexts[Address("n7")].closed) > len(network.linked("n7"))


def test_failed_peers_are_bounded_and_a_probe_brings_one_back_beyond_the_quota() -> None:
    network = CertifiedNetwork(Rules(knock_burst=100, probe_periods=2))
    network.grow(24)
    network.beat(20)
    node = network.nodes[Address("n5")]
    lost = node.slots.chosen()[0]
    network.cut[lost] = None
    node.on_neighbour_lost(lost, network.now)
    network.nodes[lost].on_neighbour_lost(Address("n5"), network.now)
    network.beat(20)
    assert len(node.slots.chosen()) == Rules().outbound
    assert lost not in node.slots
    network.cut.clear()
    network.beat(20)
    assert lost in node.slots
    for number in range(2 * FAILED_MAX):
        name = Address(f"x{number}")
        node.slots.choose(
            name, CertifiedLink.to_member(name, make_own_keyring("forwarder", "n6").membership.certificate, chosen=True)
        )
        node.on_neighbour_lost(name, network.now)
    assert node.sizes()["failed"] == FAILED_MAX


def test_a_leaving_node_says_so_and_takes_no_further_part() -> None:
    network = pair()
    network.nodes[Address("b")].leave(network.now)
    network.deliver()
    assert network.linked("a") == []
    network.tell("a", "b", Knock(NONCE))
    assert "no member" in network.refused[-1]
    network.sent.clear()
    network.nodes[Address("b")].beat(network.now)
    assert network.sent == []


def test_a_full_node_tells_the_evicted_peer_and_gives_addresses_to_the_refused_one() -> None:
    network = CertifiedNetwork(Rules(knock_burst=1000), neighbours_max=14)
    node = network.add("a")
    for number in range(6):
        network.tell(f"p{number}", "a", show_of(network, f"p{number}", "a"))
    assert len(node.slots.links) == 2
    answers = [word for _, _, word in network.sent if isinstance(word, Admit)]
    assert [word.linked for word in answers][:2] == [True, True]
    assert len(answers[-1].names) > 0


def test_a_node_among_certified_members_must_know_its_name_and_sane_rules() -> None:
    config = MeshConfig(membership="certified", neighbours_max=20, address_bytes_max=8)
    rng = Random(1)
    with pytest.raises(LocalError):
        MeshNode(config, role_keyrings()["forwarder"], rng, rng.randbytes, [], START_US)
    records = {NEIGHBOUR_RECORD: msgspec.msgpack.encode([Address("b")])}
    node = MeshNode(
        config, role_keyrings()["forwarder"], rng, rng.randbytes, [], START_US, Address("a"), address_prefix, records
    )
    assert isinstance(node.neighbourhood, CertifiedNeighbourhood)
    node.handle_timer(node.next_timer() or 0)
    assert node.next_event() is None
    assert [frame.destination for frame in node.frames_to_send(0, 9)] == ["b"]
    for wrong in (
        {"outbound": 0},
        {"prefix_max": 0},
        {"source_max": 0},
        {"knock_periods": 0},
        {"knock_burst": 0},
        {"probe_periods": 0},
        {"reunions": -1},
        {"anchors": -1},
        {"book_max": 1},
        {"shared": 9},
    ):
        with pytest.raises(ConfigError):
            Rules(**wrong)
    with pytest.raises(ConfigError):
        MeshConfig(membership="certified", neighbours_max=13)


def test_every_message_fits_the_smallest_heartbeat_that_certified_membership_allows() -> None:
    config = MeshConfig(membership="certified", neighbours_max=14)
    longest = Admit(NONCE, bytes(32), True, ("x" * 128,) * 8)
    certificate = make_own_keyring("forwarder", "a").membership.certificate
    delegated = msgspec.structs.replace(certificate, delegation=certificate.leaf)
    for word in (longest, Show(NONCE, NONCE, 1 << 31, delegated, bytes(32), True), Answer(NONCE, NONCE, delegated)):
        assert len(encode(word)) < config.heartbeat_bytes - 40


def test_the_record_of_anchors_is_the_nodes_own() -> None:
    assert Record(NEIGHBOUR_RECORD, b"").record == 1


def test_errors_of_credentials_are_of_strangers() -> None:
    credentials = CertifiedNetwork().credentials("a")
    with pytest.raises(StaleError):
        credentials.check_cookie(Address("x"), NONCE, NONCE, START_US)
    with pytest.raises(ForgedError):
        credentials.check_member(make_own_keyring("publisher", "a").membership.certificate, START_US)
