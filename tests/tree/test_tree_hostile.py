"""What outsiders, Byzantine members and a Byzantine directory can do to a node; and the bound of every table."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.message_strategies import messages
from support.tree_instructions import (
    BODY,
    GROUPS,
    N0,
    N1,
    N2,
    OTHER,
    PROVER,
    TAG,
    UNTIL,
    ask,
    entries,
    install,
    quiet,
    token,
    told,
)
from support.tree_network import (
    DIRECTORY,
    EPOCH_US,
    QUICK_CONFIG,
    SECOND,
    START_US,
    TOPIC,
    TreeNetwork,
    keyring_of,
    name_of,
    profile_of,
)
from veilcast.errors import ConfigError, LocalError
from veilcast.machine import Address, Publication
from veilcast.topics import Label
from veilcast.tree.config import TreeConfig
from veilcast.tree.instruction_bundles import Instruction
from veilcast.tree.listing import Listing, sign_listing
from veilcast.tree.routing_table import entry_name
from veilcast.wire import encode
from veilcast.wire.geometry import MOMENT_MAX
from veilcast.wire.tree import (
    ForwardPublication,
    ListedNode,
    ListingHead,
    ListingPage,
    Offer,
    RefusalCode,
    RequestAck,
    RequestRefused,
)

# --- instructions -----------------------------------------------------------------------------------------------------


def test_instructions_of_an_outsider_are_not_answered() -> None:
    network = quiet()
    good = install(0, told(1, 1, 2))
    for bad in (
        install(0, told(1, 1, 2), proven=False),
        msgspec.structs.replace(good, until_us=good.until_us - 1),
        msgspec.structs.replace(good, groups=((OTHER,),)),
        msgspec.structs.replace(good, proof=bytes(32)),
    ):
        assert ask(network, N0, bad) == []
    assert entries(network, N0) == 0
    assert ask(network, N0, good) == [RequestAck(7)]
    assert entries(network, N0) == 1


def test_a_node_cannot_change_the_context_of_instructions_that_it_passes_on() -> None:
    """A member can prove anything; but the layers are bound to the tags and the end time."""
    network = quiet()
    good = install(0, told(1, 1, 2))
    for changed in (
        msgspec.structs.replace(good, until_us=good.until_us - 1),
        msgspec.structs.replace(good, groups=((OTHER,),)),
    ):
        assert ask(network, N0, PROVER.prove(changed)) == []
    assert entries(network, N0) == 0


@pytest.mark.parametrize("until_us", [START_US - 1, START_US + 5 * EPOCH_US, MOMENT_MAX])
def test_instructions_for_another_time_are_refused(until_us: int) -> None:
    network = quiet()
    assert ask(network, N0, install(0, told(1, 1, 2), until_us)) == [RequestRefused(7, RefusalCode.MALFORMED)]
    assert entries(network, N0) == 0


def test_instructions_without_valid_tags_are_refused() -> None:
    network = quiet()
    for groups in ((), ((),), ((b"short",),), ((TAG,), ())):
        assert ask(network, N0, install(0, told(1, 1, 2), groups=groups)) == [RequestRefused(7, RefusalCode.MALFORMED)]
    assert entries(network, N0) == 0


def test_a_child_cannot_redirect_its_parent_and_replayed_instructions_change_nothing() -> None:
    """A child knows the entry name and not the token; the holder of the token sends a later end time."""
    network = quiet(4)
    name = entry_name(token(1))
    assert ask(network, N0, install(0, told(1, 1, 2))) == [RequestAck(7)]
    child = Instruction(name, name_of(3, "hardened"), entry_name(token(9)))
    ask(network, N0, install(0, child))
    table = profile_of(network, N0)._forwarder._entries
    assert table.get(name).parent == name_of(1, "hardened")
    ask(network, N0, install(0, told(1, 2, 3), UNTIL + 1))
    assert table.get(name).parent == name_of(2, "hardened")
    for old in (install(0, told(1, 1, 2)), install(0, told(1, 2, 3), UNTIL + 1)):
        assert ask(network, N0, old) == [RequestAck(7)]
    assert table.get(name).parent == name_of(2, "hardened")
    assert entries(network, N0) == 2


def test_a_flood_of_instructions_stays_within_the_routing_table() -> None:
    network = quiet(entries_max=8, messages_burst=1_000)
    answers = [ask(network, N0, install(0, told(number, 1, 2)))[0] for number in range(1, 13)]
    assert answers == [RequestAck(7)] * 8 + [RequestRefused(7, RefusalCode.FULL)] * 4
    assert entries(network, N0) == 8
    assert ask(network, N0, install(0, told(1, 2, 3), UNTIL + 1)) == [
        RequestAck(7)
    ]  # What is there can still be turned.
    network.run(2.1 * EPOCH_US / SECOND)
    assert entries(network, N0) == 0


def test_constraints_are_bounded_separately() -> None:
    network = quiet(columns_max=4)
    wide = tuple((token(number),) for number in range(3))
    assert ask(network, N0, install(0, told(1, 1, 2), groups=wide)) == [RequestAck(7)]
    assert ask(network, N0, install(0, told(2, 1, 2), groups=wide)) == [RequestRefused(7, RefusalCode.FULL)]
    assert entries(network, N0) == 1


def test_instructions_are_limited_in_total_and_messages_for_each_stream() -> None:
    network = quiet(installs_burst=5, installs_every_us=SECOND)
    answers = [ask(network, N0, install(0, told(n, 1, 2)), f"in:stranger {n}")[0] for n in range(1, 9)]
    assert answers == [RequestAck(7)] * 5 + [RequestRefused(7, RefusalCode.FULL)] * 3
    network.run(1)
    assert ask(network, N0, install(0, told(9, 1, 2))) == [RequestAck(7)]
    network = quiet(messages_burst=4, messages_every_us=SECOND)
    sent = [ask(network, N0, ForwardPublication(7, bytes(16), token(number), BODY)) for number in range(8)]
    assert sent == [[RequestRefused(7, RefusalCode.UNKNOWN)]] * 4 + [[]] * 4
    assert ask(network, N0, ForwardPublication(7, bytes(16), token(9), BODY), "in:another") == [
        RequestRefused(7, RefusalCode.UNKNOWN)
    ]


# --- messages ---------------------------------------------------------------------------------------------------------


def test_a_repeated_message_is_acknowledged_and_not_forwarded() -> None:
    network = quiet()
    ask(network, N0, install(0, told(1, 1, 2)))
    ask(network, N1, install(1, told(2, 2, 3)))
    ask(network, N2, install(2, told(3, 0, 1)))
    before = len(network.seen)
    for _ in range(3):
        assert ask(network, N0, ForwardPublication(7, entry_name(token(1)), bytes(16), BODY)) == [RequestAck(7)]
    network.run(3)
    carried = [name for name, _, message in network.seen[before:] if isinstance(message, ForwardPublication)]
    assert carried == [N1, N2, N0]  # Three who are told to send round and round do it once.


def test_an_offer_is_matched_once_and_only_from_a_member() -> None:
    network = quiet()
    ask(network, N0, install(0, told(1, 1, 2)))
    ask(network, N1, install(1, told(2, 2, 3)))
    offer = Offer(7, bytes(16), GROUPS, None, BODY)
    assert ask(network, N0, offer) == []
    before = len(network.seen)
    for _ in range(2):
        assert ask(network, N0, PROVER.prove(offer)) == [RequestAck(7)]
    network.run(1)
    assert [name for name, _, m in network.seen[before:] if isinstance(m, ForwardPublication)].count(N1) == 1
    labelled = msgspec.structs.replace(offer, labels=bytes(16))
    assert ask(network, N0, PROVER.prove(labelled)) == [RequestRefused(7, RefusalCode.MALFORMED)]


def test_a_node_that_is_its_own_parent_forwards_by_timer_without_recursion() -> None:
    deep = sys.getrecursionlimit() // 2
    network = quiet(messages_burst=10 * deep, installs_burst=10 * deep)
    for number in range(1, deep + 1):
        assert ask(network, N0, install(0, told(number, 0, number + 1))) == [RequestAck(7)]
    assert ask(network, N0, ForwardPublication(7, entry_name(token(1)), bytes(16), BODY)) == [RequestAck(7)]
    network.run(1)
    assert network.machine(N0).sizes()["held"] == 1  # The last leads nowhere, and waits.


def test_waiting_messages_are_bounded_for_each_parent_for_all_and_for_unlisted_nodes() -> None:
    network = quiet(holds_each=5, holds_max=16, messages_burst=1_000)
    network.kill(N1)
    network.kill(N2)
    for parent in (1, 2):
        ask(network, N0, install(0, told(parent, parent, 9)))
    ask(network, N0, install(0, Instruction(token(3), b"nobody is listed", bytes(16))))

    def send(entry: int, count: int) -> list[Any]:
        names = [entry.to_bytes(8, "big") + number.to_bytes(8, "big") for number in range(count)]
        return [ask(network, N0, ForwardPublication(7, entry_name(token(entry)), name, BODY))[0] for name in names]

    assert send(3, 4) == [RequestAck(7)] * 2 + [RequestRefused(7, RefusalCode.FULL)] * 2
    assert send(1, 7) == [RequestAck(7)] * 5 + [RequestRefused(7, RefusalCode.FULL)] * 2
    assert send(2, 7) == [RequestAck(7)] * 5 + [RequestRefused(7, RefusalCode.FULL)] * 2
    sizes = network.machine(N0).sizes()
    assert (sizes["held"], sizes["held each"]) == (12, 5)
    network.run(70)
    assert network.machine(N0).sizes()["held"] == 0
    assert network.machine(N0).dropped >= 12


def test_the_number_of_remembered_messages_is_bounded() -> None:
    network = quiet(seen_max=10, messages_burst=1_000)
    ask(network, N0, install(0, told(1, 1, 2)))
    for number in range(30):
        ask(network, N0, PROVER.prove(Offer(7, token(number), GROUPS, None, BODY)))
    assert network.machine(N0).sizes()["seen"] == 10


@given(st.lists(messages() | st.binary(max_size=60), max_size=6))
def test_no_input_of_an_outsider_faults_a_node(sent: list[Any]) -> None:
    for each in sent:
        data = each if isinstance(each, bytes) else encode(each)
        for source in ("in:stranger", f"directory@{DIRECTORY}", f"hop@{N1}"):
            QUIET.machine(N0).receive(data, Address(source), QUIET.now)
    QUIET.machine(N0).frames_to_send(QUIET.now, 1 << 20)


QUIET = quiet(2)


# --- streams ----------------------------------------------------------------------------------------------------------


def test_streams_are_bounded_and_idle_ones_are_replaced() -> None:
    network = quiet(8, streams_max=3)
    for number in range(1, 8):
        ask(network, N0, install(0, told(number, number, 9)))
        ask(network, N0, ForwardPublication(7, entry_name(token(number)), bytes(16), BODY))
        network.run(0.3)
        assert network.machine(N0).sizes()["streams"] <= 3
    network.run(20)
    reached = {name for name, _, message in network.seen if isinstance(message, ForwardPublication)}
    assert len(reached - {N0}) == 7


def test_an_unrequested_answer_has_no_effect() -> None:
    network = quiet()
    before = dict(network.machine(N0).sizes())
    for peer in (f"hop@{N1}", f"directory@{DIRECTORY}", "in:9"):
        for answer in (RequestAck(1), RequestRefused(1, 1)):
            network.machine(N0).receive(encode(answer), Address(peer), network.now)
    assert dict(network.machine(N0).sizes()) | {"callers": 0} == before | {"callers": 0}
    assert network.machine(N0).refused.total() == 6


def test_the_table_of_inbound_streams_is_bounded() -> None:
    network = quiet(callers_max=5)
    for number in range(20):
        ask(network, N0, ForwardPublication(7, bytes(16), bytes(16), BODY), f"in:{number}")
        assert network.machine(N0).sizes()["callers"] <= 5


# --- a directory that lies --------------------------------------------------------------------------------------------


class Liar:
    """Replaces the directory, with or without its keys: every head and page goes through `change`."""

    def __init__(self, network: TreeNetwork, change: Any) -> None:
        self.network, self.change = network, change
        network.rewrite = self

    def __call__(self, source: str, message: Any) -> Any:
        return (
            self.change(message)
            if source.startswith("fetch-") and isinstance(message, ListingHead | ListingPage)
            else message
        )


def editions(network: TreeNetwork, nodes: list[ListedNode], version: int, until_us: int, number: int = -1) -> Any:
    return sign_listing(Listing(nodes, version, until_us), keyring_of(number, "hardened"))


LIES = {
    "a page with somebody else's address": lambda m: (
        msgspec.structs.replace(m, nodes=(msgspec.structs.replace(m.nodes[0], address="evil:1"), *m.nodes[1:]))
        if isinstance(m, ListingPage)
        else m
    ),
    "a page without a node": lambda m: (
        msgspec.structs.replace(m, nodes=m.nodes[1:]) if isinstance(m, ListingPage) else m
    ),
    "a head that was changed": lambda m: (
        msgspec.structs.replace(m, until_us=m.until_us + 1) if isinstance(m, ListingHead) else m
    ),
    "a version far ahead": lambda m: (
        msgspec.structs.replace(m, version=m.version + 10**12) if isinstance(m, ListingHead) else m
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_altered_listing_is_discarded_and_the_last_valid_one_kept(lie: str) -> None:
    network = quiet()
    before = network.machine(N0)._directory_client.listing
    Liar(network, LIES[lie])
    network.run(30)
    assert network.machine(N0)._directory_client.listing.ids == before.ids
    assert "evil:1" not in network.machine(N0)._directory_client.listing.addresses
    assert network.machine(N0).refused.total() > 0


def test_a_listing_is_accepted_only_from_a_directory_and_never_an_older_one() -> None:
    network = quiet()
    listing = network.machine(N0)._directory_client.listing
    evil = [msgspec.structs.replace(listing.nodes[0], address="evil:1")]
    posed = editions(network, evil, network.now, network.now + 60 * SECOND, number=1)
    old = editions(network, evil, listing.version - 1, network.now + 60 * SECOND)
    over = editions(network, evil, network.now, network.now - 1)
    for edition in (posed, old, over):
        Liar(
            network,
            lambda m, edition=edition: msgspec.structs.replace(
                edition.head if isinstance(m, ListingHead) else edition.pages[0], number=m.number
            ),
        )
        network.run(15)
        assert "evil:1" not in network.machine(N0)._directory_client.listing.addresses
        assert len(network.machine(N0)._directory_client.listing) == 3


def test_a_listing_that_is_too_long_is_refused() -> None:
    network = TreeNetwork(4, config=msgspec.structs.replace(QUICK_CONFIG, listed_max=3))
    network.run(10)
    assert len(network.machine(N0)._directory_client.listing) <= 3
    assert network.machine(N0).refused.total() > 0


def test_a_directory_cannot_list_a_node_under_another_key() -> None:
    """The name of a node is the name of its key: with another key it is another node."""
    listed = ListedNode("a:1", b"k" * 32, 0, 1)
    assert msgspec.structs.replace(listed, box=b"m" * 32).node != listed.node
    assert msgspec.structs.replace(listed, address="evil:1").node == listed.node


# --- what an owner can ask for ----------------------------------------------------------------------------------------


def test_subscriptions_and_publications_are_bounded() -> None:
    network = TreeNetwork(1, config=msgspec.structs.replace(QUICK_CONFIG, subscriptions_max=2, records_max=2))
    for _ in range(2):
        network.subscribe(N0)
        network.publish(N0, b"waits")
    with pytest.raises(LocalError):
        network.machine(N0).subscribe(Label(TOPIC), network.now)
    with pytest.raises(LocalError):
        network.machine(N0).publish(Publication((Label(TOPIC).pair, ("level", 1), ("kind", "red")), b""), network.now)
    assert network.machine(N0).sizes()["subscriptions"] == network.machine(N0).sizes()["pending"] == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"group": 33},
        {"chain": 17},
        {"chain": 0},
        {"depth": 0},
        {"ready_share": 0.0},
        {"listed_max": 100_001},
        {"streams_max": 0},
        {"filter_bound": 2.0},
    ],
)
def test_a_configuration_that_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        TreeConfig(**wrong)
