"""Certified membership: which peers get a link, by which proof, and what strangers cannot do."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from support.certified_network import CertifiedNetwork
from veilcast.authority import issuer
from veilcast.authority.epoch import BATCH_MAX, HOUR_US, epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.errors import ConfigError, ForgedError, LocalError, StaleError
from veilcast.machine import Address, Record
from veilcast.mesh.certified import CertifiedNeighbourhood
from veilcast.mesh.config import CertifiedConfig as Rules
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.credentials import ProofContext
from veilcast.mesh.knock_limits import FAILED_MAX, ISOLATION_PERIODS, PATIENCE_PERIODS, TRIES_MAX
from veilcast.mesh.link_slots import CertifiedLink
from veilcast.mesh.neighbour_links import NEIGHBOUR_RECORD
from veilcast.mesh.node import MeshNode
from veilcast.sim.engine import START_US
from veilcast.sim.mesh.population import address_prefix, make_own_keyring, role_keyrings
from veilcast.wire import encode
from veilcast.wire.mesh import Admit, Answer, Join, Knock, Replace, Show

NONCE = bytes(16)


def pair() -> CertifiedNetwork:
    """Two nodes, the second of which joined through the first."""
    street = CertifiedNetwork()
    street.add("a")
    street.add("b", "a")
    street.beat()
    return street


def show_of(street: CertifiedNetwork, name: str, target: str, keyring: Keyring | None = None) -> Show:
    """A valid third message, after the first two."""
    street.tell(name, target, Knock(NONCE))
    answer = street.messages(target, name)[-1]
    assert isinstance(answer, Answer)
    credentials = street.credentials(name, keyring)
    epoch = credentials.epoch(street.now)
    meeting = ProofContext(Address(name), Address(target), NONCE, answer.cookie, epoch)
    proof = credentials.prove(answer.certificate, meeting, street.now).knocker.reveal()
    return Show(NONCE, answer.cookie, epoch, credentials.certificate(street.now), proof, True)


def test_a_link_opens_by_four_words_on_both_sides() -> None:
    street = pair()
    assert [type(word) for _, _, word in street.sent] == [Knock, Answer, Show, Admit]
    assert street.linked("a") == ["b"]
    assert street.linked("b") == ["a"]
    assert street.nodes[Address("b")].slots.chosen() == ["a"]
    assert street.nodes[Address("a")].slots.chosen() == []
    assert street.contexts[Address("a")].opened == ["b"]
    assert street.refused == []


def test_nodes_that_knock_at_each_other_at_once_are_own_links_of_both() -> None:
    """Each has drawn the other from its contacts. That the other came too changes nothing."""
    street = CertifiedNetwork()
    street.add("a", "b")
    street.add("b", "a")
    street.beat()
    for name, peer in (("a", "b"), ("b", "a")):
        node = street.nodes[Address(name)]
        assert node.slots.chosen() == [peer]
        assert node.sizes()["tries"] == 0
        assert peer in node.book.proven


def test_a_peer_that_comes_while_it_is_only_probed_is_no_own_link() -> None:
    street = CertifiedNetwork()
    node = street.add("a")
    street.add("b", "a")
    node._knock(Address("b"), street.now, stay=False)
    street.beat()
    assert street.linked("a") == ["b"]
    assert node.slots.links[Address("b")].chosen is False


def test_a_certificate_without_its_key_is_worth_nothing() -> None:
    street = CertifiedNetwork()
    street.add("a")
    genuine = show_of(street, "b", "a")
    for wrong in (
        msgspec.structs.replace(genuine, proof=bytes(32)),
        msgspec.structs.replace(genuine, certificate=make_own_keyring("forwarder", "c").membership.certificate),
    ):
        street.tell("b", "a", wrong)
    assert street.linked("a") == []
    assert "without its key" in street.refused[0]


def test_a_certificate_of_another_authority_is_none() -> None:
    entropy = Random(5).randbytes
    other, epoch = issuer.create(HOUR_US, entropy), epoch_of(START_US, HOUR_US)
    _, ring = issuer.grant_ready(other, "b", [], epoch, BATCH_MAX, entropy)
    street = CertifiedNetwork()
    street.add("a")
    street.tell("b", "a", show_of(street, "b", "a", ring))
    assert street.linked("a") == []
    street.add("b", "a", keyring=ring)
    street.beat(3)
    assert street.linked("a") == street.linked("b") == []


def test_a_proof_is_for_one_address_one_meeting_and_one_side() -> None:
    street = CertifiedNetwork()
    street.add("a")
    street.add("c")
    genuine = show_of(street, "b", "a")
    street.tell("mallory", "a", genuine)
    street.tell("b", "c", genuine)
    assert street.linked("a") == street.linked("c") == []
    credentials = street.credentials("b")
    answer = street.messages("a", "b")[-1]
    assert isinstance(answer, Answer)
    meeting = ProofContext(Address("b"), Address("a"), NONCE, answer.cookie, genuine.epoch)
    reflected = credentials.prove(answer.certificate, meeting, street.now).answerer.reveal()
    street.tell("b", "a", msgspec.structs.replace(genuine, proof=reflected))
    assert street.linked("a") == []
    street.now += 33 * 1_000_000
    street.tell("b", "a", genuine)
    assert street.linked("a") == []
    assert "cookie" in street.refused[-1]


def test_a_proof_of_another_epoch_is_refused() -> None:
    street = CertifiedNetwork()
    street.add("a")
    genuine = show_of(street, "b", "a")
    street.tell("b", "a", msgspec.structs.replace(genuine, epoch=genuine.epoch + 2))
    assert "another epoch" in street.refused[-1]


def test_before_a_cookie_comes_back_nothing_is_checked_or_remembered() -> None:
    street = CertifiedNetwork()
    node = street.add("a")
    before = node.sizes()
    for number in range(50):
        street.tell(f"x{number}", "a", Knock(NONCE))
    after = node.sizes()
    assert {name: size for name, size in after.items() if name != "prefixes"} == {
        name: size for name, size in before.items() if name != "prefixes"
    }
    assert (
        len([word for _, _, word in street.sent if isinstance(word, Answer)]) == street.config.neighbours_max * 3 // 4
    )


def test_a_stolen_certificate_with_its_key_counts_as_one_member() -> None:
    street = CertifiedNetwork()
    street.add("a")
    stolen = make_own_keyring("forwarder", "victim")
    street.tell("x.1", "a", show_of(street, "x.1", "a", stolen))
    street.tell("y.1", "a", show_of(street, "y.1", "a", stolen))
    assert street.linked("a") == ["x.1"]
    assert "another address" in street.refused[-1]
    street.add("z", "a", "x.1")
    street.add("x.1", keyring=stolen)
    street.add("y.1", keyring=stolen)
    street.nodes[Address("z")].book.mark_reached(Address("y.1"))
    street.beat(4)
    assert len([name for name in street.linked("z") if name in ("x.1", "y.1")]) == 1


def test_our_own_certificate_in_somebody_elses_hand_is_refused() -> None:
    street = CertifiedNetwork()
    street.add("a")
    street.tell("x", "a", show_of(street, "x", "a", make_own_keyring("forwarder", "a")))
    assert street.linked("a") == []


def test_nobody_is_admitted_without_having_shown_itself() -> None:
    street = CertifiedNetwork()
    node = street.add("a", "b")
    node.beat(street.now)
    (knock,) = [word for _, _, word in street.sent]
    assert isinstance(knock, Knock)
    street.mail.clear()
    for word in (
        Admit(knock.nonce, bytes(32), True, ("evil",)),
        Admit(NONCE, bytes(32), True, ("evil",)),
        Answer(NONCE, NONCE, make_own_keyring("forwarder", "b").membership.certificate),
        Join("b", 1, True, 1),
        Replace("evil"),
    ):
        street.tell("b", "a", word)
    assert len(street.refused) == 5
    assert street.linked("a") == []
    assert len(node.book) == 0


def test_who_answers_with_a_certificate_but_no_key_gets_nothing_in() -> None:
    street = CertifiedNetwork()
    node = street.add("a", "b")
    node.beat(street.now)
    street.mail.clear()
    (knock,) = [word for _, _, word in street.sent if isinstance(word, Knock)]
    street.tell("b", "a", Answer(knock.nonce, NONCE, make_own_keyring("forwarder", "b").membership.certificate))
    street.tell("b", "a", Admit(knock.nonce, bytes(32), True, ("evil",)))
    assert "without its key" in street.refused[-1]
    assert street.linked("a") == []
    assert len(node.book) == 0


def test_a_network_grows_from_one_contact_that_has_few_slots() -> None:
    street = CertifiedNetwork(Rules(knock_burst=100))
    street.grow(60)
    street.beat(60)
    assert street.is_connected()
    assert max(len(node.slots.links) for node in street.nodes.values()) <= street.config.neighbours_max
    chosen = [len(node.slots.chosen()) for node in street.nodes.values()]
    assert sum(chosen) / len(chosen) > 7


def test_strangers_that_flood_never_take_the_links_that_we_choose() -> None:
    street = CertifiedNetwork(Rules(knock_burst=1000))
    street.grow(30)
    street.beat(10)
    node = street.nodes[Address("n5")]
    before = node.slots.chosen()
    for number in range(60):
        thief = f"s{number}.{number}"
        street.tell(thief, "n5", show_of(street, thief, "n5"))
        street.beat()
    assert node.slots.chosen()[: len(before)] == before
    assert len(node.slots.links) - len(node.slots.chosen()) == 8


def test_a_flood_from_one_prefix_leaves_room_for_others() -> None:
    street = CertifiedNetwork()
    street.add("a")
    for number in range(100):
        street.tell(f"s.{number}", "a", Knock(NONCE))
    answered = [to for _, to, word in street.sent if isinstance(word, Answer)]
    assert len(answered) == Rules().knock_burst
    street.tell("x", "a", Knock(NONCE))
    assert isinstance(street.messages("a", "x")[-1], Answer)


def test_no_more_tries_at_once_than_the_bound_and_those_in_vain_end() -> None:
    street = CertifiedNetwork()
    node = street.add("a")
    for number in range(20):
        node.book.add_hearsay(Address(f"x{number}"), Address(f"y{number}"))
    street.beat()
    assert node.sizes()["tries"] == TRIES_MAX
    street.beat(PATIENCE_PERIODS)
    assert len({to for _, to, word in street.sent if isinstance(word, Knock)}) > TRIES_MAX
    assert node.sizes()["tries"] == TRIES_MAX


def test_probes_keep_to_the_bound_however_often_they_are_due() -> None:
    street = CertifiedNetwork(Rules(probe_periods=1, book_max=128))
    node = street.add("a")
    for number in range(60):
        node.book.add_hearsay(Address(f"x{number}"), Address(f"y{number}"))
    tries = []
    for _ in range(2 * PATIENCE_PERIODS):
        street.beat()
        tries.append(node.sizes()["tries"])
    assert max(tries) == TRIES_MAX + 1


def test_addresses_too_long_for_a_heartbeat_are_not_taken() -> None:
    street = pair()
    node = street.nodes[Address("a")]
    node._hear_of(Address("x" * 13), Address("b"))
    node._hear_of(Address("a"), Address("b"))
    assert list(node.book.unproven) == ["b"]


def test_contacts_and_anchors_too_long_for_a_heartbeat_never_come_to_be_told() -> None:
    street = CertifiedNetwork()
    with pytest.raises(LocalError, match="12 bytes"):
        street.add("a", "x" * 13)
    street.add("b", anchors=("", "y" * 200, "c"))
    street.beat()
    assert [to for _, to, word in street.sent if isinstance(word, Knock)] == ["c"]


def test_anchors_are_the_oldest_that_we_chose_and_are_tried_first_in_the_next_life() -> None:
    street = CertifiedNetwork(Rules(knock_burst=100))
    street.grow(20)
    street.beat(20)
    recorded = street.contexts[Address("n9")].records[-1]
    assert recorded == street.nodes[Address("n9")].slots.chosen()[: Rules().anchors]
    street.kill("n9")
    street.sent.clear()
    street.add("n9", "n0", anchors=tuple(recorded))
    street.beat()
    knocked = [to for by, to, word in street.sent if by == "n9" and isinstance(word, Knock)]
    assert knocked[: len(recorded)] == recorded


def test_anchors_are_not_forgotten_when_everybody_fails() -> None:
    street = pair()
    street.beat()
    door = street.contexts[Address("b")]
    assert len(door.records) == 1
    street.kill("a")
    street.beat(3)
    assert len(door.records) == 1


def test_links_end_with_their_certificates() -> None:
    state = issuer.create(HOUR_US, Random(6).randbytes)
    epoch = epoch_of(START_US, HOUR_US)
    rings = [issuer.grant_ready(state, name, [], epoch, 2, Random(name).randbytes)[1] for name in "ab"]
    street = CertifiedNetwork()
    street.add("a", keyring=rings[0])
    node = street.add("b", "a", keyring=rings[1])
    street.beat()
    assert street.linked("a") == ["b"]
    street.now += HOUR_US
    street.beat()
    assert street.linked("a") == ["b"]
    street.now += HOUR_US
    street.beat()
    assert street.linked("a") == street.linked("b") == []
    street.tell("x", "b", Knock(NONCE))
    assert "no member" in street.refused[-1]
    assert node.sizes()["tries"] == 0


def test_who_hears_nobody_begins_anew() -> None:
    street = CertifiedNetwork(Rules(knock_burst=100))
    street.grow(12)
    street.beat(10)
    lonely = street.nodes[Address("n7")]
    street.beat(ISOLATION_PERIODS)
    street.contexts[Address("n7")].silent_us = 1 << 40
    lonely.beat(street.now)
    assert street.linked("n7") == []
    street.deliver()
    street.beat(ISOLATION_PERIODS // 2)
    assert street.linked("n7")
    street.beat(ISOLATION_PERIODS // 2)
    assert len(street.contexts[Address("n7")].closed) > len(street.linked("n7"))


def test_those_that_failed_are_bounded_and_a_probe_brings_one_back_beyond_the_quota() -> None:
    street = CertifiedNetwork(Rules(knock_burst=100, probe_periods=2))
    street.grow(24)
    street.beat(20)
    node = street.nodes[Address("n5")]
    lost = node.slots.chosen()[0]
    street.cut[lost] = None
    node.on_neighbour_lost(lost, street.now)
    street.nodes[lost].on_neighbour_lost(Address("n5"), street.now)
    street.beat(20)
    assert len(node.slots.chosen()) == Rules().outbound
    assert lost not in node.slots
    street.cut.clear()
    street.beat(20)
    assert lost in node.slots
    for number in range(2 * FAILED_MAX):
        name = Address(f"x{number}")
        node.slots.choose(
            name, CertifiedLink.to_member(name, make_own_keyring("forwarder", "n6").membership.certificate, chosen=True)
        )
        node.on_neighbour_lost(name, street.now)
    assert node.sizes()["failed"] == FAILED_MAX


def test_who_leaves_says_so_and_takes_no_part_any_more() -> None:
    street = pair()
    street.nodes[Address("b")].leave(street.now)
    street.deliver()
    assert street.linked("a") == []
    street.tell("a", "b", Knock(NONCE))
    assert "no member" in street.refused[-1]
    street.sent.clear()
    street.nodes[Address("b")].beat(street.now)
    assert street.sent == []


def test_a_full_node_tells_who_must_go_and_gives_addresses_to_who_is_turned_away() -> None:
    street = CertifiedNetwork(Rules(knock_burst=1000), neighbours_max=14)
    node = street.add("a")
    for number in range(6):
        street.tell(f"p{number}", "a", show_of(street, f"p{number}", "a"))
    assert len(node.slots.links) == 2
    answers = [word for _, _, word in street.sent if isinstance(word, Admit)]
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


def test_every_word_fits_the_smallest_heartbeat_that_certified_membership_allows() -> None:
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
