"""One member installs many entries with one tag at one node, and offers a publication there: the copies are bounded."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from support.tree_instructions import BODY, GROUPS, N0, PROVER, UNTIL, ask, entries, install, quiet, token, told
from support.tree_network import SECOND, TreeNetwork
from veilcast.errors import ConfigError
from veilcast.tree.config import TreeConfig
from veilcast.tree.forwarder import COPIES_LEAST
from veilcast.wire.tree import Offer, RefusalCode, RequestAck, RequestRefused

NODES, ENTRIES = 3, 400


def offer(number: int) -> Offer:
    return PROVER.prove(Offer(7, token(number), GROUPS, None, BODY))


def flooded(**changes: Any) -> TreeNetwork:
    """A node in which one member has installed many entries with one tag, for all other nodes."""
    grove = quiet(NODES, messages_burst=2 * ENTRIES, holds_each=4 * ENTRIES, **changes)
    for number in range(ENTRIES):
        ask(grove, N0, install(0, told(number, 1 + number % 2, number)))
    assert entries(grove, N0) == ENTRIES
    return grove


def copies(grove: TreeNetwork, number: int, source: str = "in:publisher") -> tuple[list[Any], int]:
    """The answer to one offer, and how many copies of it the node has to hand on."""
    machine = grove.machine(N0)
    before = machine.sizes()["held"] + machine.dropped
    heard_dropped = machine.dropped
    answers = ask(grove, N0, offer(number), source)
    sizes = machine.sizes()
    return answers, sizes["held"] + heard_dropped - before


def test_one_offer_makes_no_more_copies_than_the_listing_can_want() -> None:
    grove = flooded()
    answers, made = copies(grove, 1)
    assert answers == [RequestAck(7)]
    assert made == max(COPIES_LEAST, NODES * TreeConfig().trees_each) == 64
    assert grove.machine(N0).dropped == ENTRIES - made


def test_the_bound_grows_with_the_listing() -> None:
    assert copies(flooded(trees_each=50), 1)[1] == 50 * NODES


def test_which_entries_are_served_is_drawn_anew_for_each_offer() -> None:
    """Otherwise the installer of the first entries would shut out all later ones."""
    grove = flooded()
    served: list[set[bytes]] = []
    for number in (1, 2):
        before = set(grove.machine(N0)._hops._under)
        copies(grove, number)
        served.append(set(grove.machine(N0)._hops._under) - before)
    assert served[0] != served[1]
    assert all(len(each) > COPIES_LEAST // 2 for each in served)


def test_all_offers_together_make_only_so_many_copies_and_the_publisher_is_sent_elsewhere() -> None:
    grove = flooded(copies_burst=2 * COPIES_LEAST, copies_every_us=SECOND)
    assert [copies(grove, number, f"in:{number}") for number in (1, 2, 3)] == [
        ([RequestAck(7)], COPIES_LEAST),
        ([RequestAck(7)], COPIES_LEAST),
        ([RequestRefused(7, RefusalCode.FULL)], 0),
    ]


def test_a_stream_pays_for_the_copies_that_its_offers_make() -> None:
    grove = flooded(messages_every_us=SECOND)
    grove.machine(N0)._limits.gone("in:publisher")
    heard = [copies(grove, number)[0] for number in range(1, 30)]
    assert heard.count([RequestAck(7)]) == 2 * ENTRIES // (COPIES_LEAST + 1) + 1
    assert heard[-1] == []
    assert copies(grove, 99, "in:another")[0] == [RequestAck(7)]


def turn(grove: TreeNetwork, number: int) -> None:
    """The installer of the first entry turns it to the next node, where nothing is known of it: so messages wait."""
    message = install(0, told(1, 1 + number % 5, ENTRIES + number), until_us=UNTIL + number)
    assert ask(grove, N0, message, f"in:{number}") == [RequestAck(7)]


def test_an_entry_that_is_turned_again_and_again_makes_one_copy_for_each_node() -> None:
    grove = quiet(6)
    turn(grove, 0)
    assert copies(grove, 1) == ([RequestAck(7)], 1)
    held = []
    for number in range(1, 21):
        turn(grove, number)
        held.append(grove.machine(N0).sizes()["held"])
    assert held == [2, 3, 4] + [5] * 17


def test_the_copies_for_entries_that_are_turned_count_toward_the_rate_of_all() -> None:
    grove = quiet(6, copies_burst=COPIES_LEAST, copies_every_us=SECOND)
    turn(grove, 0)
    for number in range(20):
        assert copies(grove, number) == ([RequestAck(7)], 1)
    for number in range(1, 6):
        turn(grove, number)
    assert grove.machine(N0).sizes()["held"] == 60
    assert grove.machine(N0).dropped > 0


def test_honest_readers_of_a_small_network_all_get_their_copy() -> None:
    grove = TreeNetwork(8)
    for number in range(1, 8):
        for _ in range(2):
            grove.subscribe(f"n{number}:1")
    grove.run(40)
    grove.publish(N0, b"hello")
    grove.run(20)
    assert all(b"hello" in grove.heard_by(f"n{number}:1") for number in range(1, 8))


@pytest.mark.parametrize("name", ["trees_each", "copies_every_us", "copies_burst"])
def test_no_bound_is_nothing(name: str) -> None:
    with pytest.raises(ConfigError):
        msgspec.convert({name: 0}, TreeConfig)
