"""One member installs many entries with one tag at one node, and offers a publication there: the copies are bounded."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from support.tree_instructions import BODY, GROUPS, N0, PROVER, UNTIL, ask, entries, install, quiet, token, told
from support.tree_network import SECOND, TreeNetwork
from veilcast.errors import ConfigError
from veilcast.tree.config import TreeConfig
from veilcast.tree.hardened_forwarder import COPIES_LEAST
from veilcast.wire.tree import Offer, RefusalCode, RequestAck, RequestRefused

NODES, ENTRIES = 3, 400


def offer(number: int) -> Offer:
    return PROVER.prove(Offer(7, token(number), GROUPS, None, BODY))


def flooded(**changes: Any) -> TreeNetwork:
    """A node in which one member has installed many entries with one tag, for all other nodes."""
    network = quiet(NODES, messages_burst=2 * ENTRIES, holds_each=4 * ENTRIES, **changes)
    for number in range(ENTRIES):
        ask(network, N0, install(0, told(number, 1 + number % 2, number)))
    assert entries(network, N0) == ENTRIES
    return network


def copies(network: TreeNetwork, number: int, source: str = "in:publisher") -> tuple[list[Any], int]:
    """The answer to one offer, and the number of copies that the node has to forward."""
    machine = network.machine(N0)
    before = machine.sizes()["held"] + machine.dropped
    heard_dropped = machine.dropped
    answers = ask(network, N0, offer(number), source)
    sizes = machine.sizes()
    return answers, sizes["held"] + heard_dropped - before


def test_the_copies_of_one_offer_are_bounded_by_the_listing() -> None:
    network = flooded()
    answers, made = copies(network, 1)
    assert answers == [RequestAck(7)]
    assert made == max(COPIES_LEAST, NODES * TreeConfig().trees_each) == 64
    assert network.machine(N0).dropped == ENTRIES - made


def test_the_bound_on_copies_grows_with_the_listing() -> None:
    assert copies(flooded(trees_each=50), 1)[1] == 50 * NODES


def test_each_offer_draws_the_served_entries_independently() -> None:
    """Otherwise the installer of the first entries would shut out all later ones."""
    network = flooded()
    served: list[set[bytes]] = []
    for number in (1, 2):
        before = set(network.machine(N0)._hop_queue._under)
        copies(network, number)
        served.append(set(network.machine(N0)._hop_queue._under) - before)
    assert served[0] != served[1]
    assert all(len(each) > COPIES_LEAST // 2 for each in served)


def test_the_copies_of_all_offers_are_rate_limited_and_the_publisher_tries_elsewhere() -> None:
    network = flooded(copies_burst=2 * COPIES_LEAST, copies_every_us=SECOND)
    assert [copies(network, number, f"in:{number}") for number in (1, 2, 3)] == [
        ([RequestAck(7)], COPIES_LEAST),
        ([RequestAck(7)], COPIES_LEAST),
        ([RequestRefused(7, RefusalCode.FULL)], 0),
    ]


def test_a_stream_is_charged_for_the_copies_of_its_offers() -> None:
    network = flooded(messages_every_us=SECOND)
    network.machine(N0)._limits.forget("in:publisher")
    heard = [copies(network, number)[0] for number in range(1, 30)]
    assert heard.count([RequestAck(7)]) == 2 * ENTRIES // (COPIES_LEAST + 1) + 1
    assert heard[-1] == []
    assert copies(network, 99, "in:another")[0] == [RequestAck(7)]


def turn(network: TreeNetwork, number: int) -> None:
    """The installer redirects the first entry to the next node, which does not know it: so messages wait."""
    message = install(0, told(1, 1 + number % 5, ENTRIES + number), until_us=UNTIL + number)
    assert ask(network, N0, message, f"in:{number}") == [RequestAck(7)]


def test_a_repeatedly_redirected_entry_makes_one_copy_for_each_node() -> None:
    network = quiet(6)
    turn(network, 0)
    assert copies(network, 1) == ([RequestAck(7)], 1)
    held = []
    for number in range(1, 21):
        turn(network, number)
        held.append(network.machine(N0).sizes()["held"])
    assert held == [2, 3, 4] + [5] * 17


def test_copies_for_redirected_entries_count_toward_the_rate() -> None:
    network = quiet(6, copies_burst=COPIES_LEAST, copies_every_us=SECOND)
    turn(network, 0)
    for number in range(20):
        assert copies(network, number) == ([RequestAck(7)], 1)
    for number in range(1, 6):
        turn(network, number)
    assert network.machine(N0).sizes()["held"] == 60
    assert network.machine(N0).dropped > 0


def test_all_honest_subscribers_of_a_small_network_get_a_copy() -> None:
    network = TreeNetwork(8)
    for number in range(1, 8):
        for _ in range(2):
            network.subscribe(f"n{number}:1")
    network.run(40)
    network.publish(N0, b"hello")
    network.run(20)
    assert all(b"hello" in network.heard_by(f"n{number}:1") for number in range(1, 8))


@pytest.mark.parametrize("name", ["trees_each", "copies_every_us", "copies_burst"])
def test_every_bound_must_be_positive(name: str) -> None:
    with pytest.raises(ConfigError):
        msgspec.convert({name: 0}, TreeConfig)
