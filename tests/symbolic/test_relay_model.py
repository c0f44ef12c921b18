"""The relay's enrolment and lease, searched: sentences of docs/threat-model.md against a hostile server or proxy."""

from __future__ import annotations

import random

import pytest

from support.link_pair import network
from support.symbolic.model_relay import K_R, RelayModel
from support.symbolic.symbolic_search import Found, agrees, hides, never
from support.symbolic.symbolic_terms import number
from veilcast.crypto.group import multiply_each
from veilcast.relay.hardened import HardenedClientProfile, HardenedServerProfile, opening_proof
from veilcast.relay.profile import LeasePeriod
from veilcast.relay.transformation_key import ServerKeys
from veilcast.wire.relay import Blind, Blinded, EnrolClient, Lease, RequestReply

STANDS = agrees("commits", "runs")


def joins(relay: RelayModel) -> Found:
    """Two users join at one proxy, under a server that answers what it likes."""
    instances = relay.user("1"), relay.proxy("1"), relay.user("2"), relay.proxy("2")
    return relay.search(*instances, properties=(never("of its own"), hides(number("k_1"), number("k_2"))))


def leases(relay: RelayModel) -> Found:
    """A user leases in two epochs, at a proxy that answers and repeats what it likes."""
    return relay.search(relay.leasing(1, 2), relay.server(leases=2), properties=(STANDS,))


# --- sentences ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hostile_user", [False, True], ids=["alone", "with a member"])
def test_a_server_neither_learns_a_members_key_nor_gives_it_one_of_its_own(hostile_user: bool) -> None:
    """Server of a relay, cannot: "get a member's key out of a join"; "give one member a key of its own"."""
    found = joins(RelayModel(hostile_user=hostile_user))
    assert not found, found
    assert {"proxy of 1", "proxy of 2"} <= found.finished


def test_a_proxy_says_in_nobodys_place_that_a_lease_stands() -> None:
    """Proxy of a relay, cannot: "say in the server's place that a subscription stands"."""
    found = leases(RelayModel("proxy"))
    assert not found, found
    assert {"leasing", "server"} <= found.finished


def test_a_proxy_that_is_a_member_too_has_every_key() -> None:
    """Proxy of a relay, can: "with any one member's keys compute the server's k_r and every member's k_u"."""
    relay = RelayModel("proxy", factors=0)
    instances = relay.user("1"), relay.server(blinds=2)
    assert relay.search(*instances, properties=(hides(K_R),))
    assert relay.search(*instances, properties=(hides(number("k_1")),))
    quiet = relay.search(relay.user("1"), properties=(hides(K_R, number("k_1")),))
    assert not quiet, "before the server answers"


# --- planted flaws ------------------------------------------------------------------------------------------


def test_an_enrolment_without_the_proof_of_the_key_is_found() -> None:
    assert joins(RelayModel(checks_key=False))


@pytest.mark.parametrize(
    "flaw",
    [RelayModel("proxy", asks_for_proof=False), RelayModel("proxy", names_epoch=False)],
    ids=["no proof of the lease", "a lease repeated in another epoch"],
)
def test_each_planted_flaw_of_the_lease_is_found(flaw: RelayModel) -> None:
    found = leases(flaw)
    assert found
    assert found.trace


# --- the model is the code ----------------------------------------------------------------------------------


def test_the_messages_have_the_fields_of_the_model() -> None:
    """A field that is added fails here: the model must say what it means."""
    assert EnrolClient.__struct_fields__ == ("number", "ratio", "claim", "sealed")
    assert Blind.__struct_fields__ == ("number", "sealed")
    assert Blinded.__struct_fields__ == ("number", "share")
    assert Lease.__struct_fields__ == ("number", "name", "until_us", "subjects", "sealed")
    assert RequestReply.__struct_fields__ == ("number", "code", "proof")


def test_names_delivery_keys_and_proofs_are_functions_of_what_the_model_says() -> None:
    """A name of the interest and the epoch; a delivery key of the name; a proof of the delivery key."""
    entropy = random.Random(3).randbytes
    keys = ServerKeys.draw(entropy)
    client = HardenedClientProfile(network().alice, keys.public(), entropy, multiply_each)
    server = HardenedServerProfile(keys, entropy, multiply_each)
    spans = [LeasePeriod(epoch, 0, 10) for epoch in (1, 2)]
    names = [client.lease_name(interest, span) for interest in (b"a", b"b") for span in spans]
    assert len(set(names)) == len(names)
    assert names == [client.lease_name(interest, span) for interest in (b"a", b"b") for span in spans]
    proofs = []
    for name in names:
        lease = client.build_lease(1, name, spans[0], ((b"element",),), keys.k_r, 1)
        assert isinstance(lease, Lease)
        opened = server.open_lease(lease)
        assert opening_proof(client._delivery_key(name).reveal()) == client.lease_proof(name) == opened.proof
        proofs.append(opened.proof)
    assert len(set(proofs)) == len(proofs)
