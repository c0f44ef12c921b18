"""What records tell: each finding on a relay where it is large, and on one where it is not."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from support.relay_network import EPOCH_US, PROXY_CONFIG, TOPIC, RelayNetwork
from veilcast.machine import Address
from veilcast.relay.ledger_audit import audit_proxy, audit_server
from veilcast.sim.relay.population import SERVER
from veilcast.topics import All, Label, Range

ALL = Label(TOPIC)


class RecordedNetwork(RelayNetwork):
    """A relay whose records a test can read. Subscriptions go through p1."""

    def records(self, name: str) -> dict[int, bytes]:
        return dict(self.world._hosts[Address(name)].disk or {})

    def server(self) -> Any:
        return audit_server(self.records(SERVER))


def test_a_hardened_server_has_leases_that_share_nothing_but_interests_and_epochs() -> None:
    network = RecordedNetwork(clients=4)
    for name in network.names[:3]:
        network.subscribe(name, ALL)
    network.subscribe("c0", All(ALL, Range("level", 1, 14)))
    network.run(EPOCH_US / 1e6 + 3)
    found = network.server()
    assert found.leases == sum(found.leases_by_proxy.values()) >= 4 * 2
    assert len(found.leases_by_proxy) == 1
    assert found.expiries >= 2
    assert found.most_leases_of_one_name == 1
    assert found.tags_of_several_expiries == 0
    assert found.most_leases_with_equal_tags == 3, "three want the topic; the server sees that they want the same"
    assert found.widest_constraint > 1, "a range shows"


def test_a_server_of_the_paper_has_one_name_for_all_that_a_member_wants() -> None:
    network = RecordedNetwork("paper", clients=4)
    for name in network.names[:3]:
        for level in range(4):
            network.subscribe(name, All(ALL, Range("level", level, level)))
    network.run(3)
    found = network.server()
    assert (found.leases, found.interests) == (12, 4)
    assert found.most_leases_of_one_name == 4
    assert found.most_leases_with_equal_tags == 3


def test_waiting_publications_show_whose_interests_overlap() -> None:
    network = RecordedNetwork(clients=4, proxy=msgspec.structs.replace(PROXY_CONFIG, holds_presence=False))
    for name in network.names[:3]:
        network.subscribe(name, ALL)
    network.run(3)
    assert network.server().publications == 0
    for name in network.names[:3]:
        network.world.crash(name)
    for number in range(2):
        assert network.server().names_that_wait_together == 0
        network.publish("c3", b"%d" % number, level=1, size=0, kind="red")
        network.run(3)
    found = network.server()
    assert (found.publications, found.most_subscribers_waiting, found.names_that_wait_together) == (2, 3, 3)
    assert sum(found.publications_by_proxy.values()) == 2
    assert found.bytes_held > 0


def test_a_proxy_that_holds_deliveries_names_the_members_that_are_away() -> None:
    network = RecordedNetwork(clients=4)
    for name in network.names[:3]:
        network.subscribe(name, ALL)
    network.run(3)
    assert audit_proxy(network.records("p1")).deliveries_by_client == {}
    network.world.crash(network.names[0])
    network.publish("c3", b"here", level=1, size=0, kind="red")
    network.run(3)
    found = network.server()
    assert (found.publications, found.names_that_wait_together) == (0, 0)
    assert sum(
        (Counter(audit_proxy(network.records(name)).deliveries_by_client) for name in ("p0", "p1")), Counter()
    ) == {"c0": 1}


@pytest.mark.parametrize("profile", ["hardened", "paper"])
def test_a_proxy_names_its_members_and_counts_their_leases(profile: Any) -> None:
    network = RecordedNetwork(profile, clients=3)
    for level in range(4):
        network.subscribe("c0", All(ALL, Range("level", level, level)))
    network.run(3)
    found = audit_proxy(network.records("p1"))
    assert found.clients == 3
    assert set(found.leases_by_client) == set(network.names)
    if profile == "hardened":
        assert found.leases_by_client["c0"] >= 4 * 2
        assert found.leases == found.leases_by_client["c0"]
    else:
        assert found.leases_by_client == dict.fromkeys(network.names, 1), "one pseudonym each, for ever"


def test_empty_records_tell_nothing() -> None:
    assert audit_server({}).leases == audit_server({}).most_leases_of_one_name == 0
    assert audit_proxy({}).clients == 0
