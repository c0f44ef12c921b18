"""What a directory can do to a node that asks it, and what it can learn of it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from support.tree_network import DIRECTORY, QUICK_CONFIG, SECOND, START_US, TreeNetwork, keyring_of
from veilcast.errors import ForgedError
from veilcast.machine import Address
from veilcast.node.tree_member import hindrances
from veilcast.sim.rng import SeededEntropy
from veilcast.tree.directory_client import DirectoryClient
from veilcast.tree.listing import Listing, SignedListing, sign_listing
from veilcast.wire.mesh import Message
from veilcast.wire.tree import EnrolNode, FetchListing, ListedNode, NodeEnrolled, RefusalCode, RequestRefused


class Asked:
    """In the place of streams: keeps what was asked, to be answered by hand."""

    patience_us = SECOND

    def __init__(self) -> None:
        self.asked: list[tuple[Address, Message, Any]] = []

    def ask(self, peer: Address, build: Any, then: Any, **_: Any) -> bool:
        self.asked.append((peer, build(0), then))
        return True

    def last(self, kind: type[Message]) -> Any:
        return next(then for _, message, then in reversed(self.asked) if isinstance(message, kind))


def member() -> tuple[DirectoryClient, Asked]:
    streams: Any = Asked()
    mine, entropy = keyring_of(0, "hardened"), SeededEntropy(b"1")
    made = DirectoryClient(
        QUICK_CONFIG, mine, DIRECTORY, Address("n0:1"), streams, lambda now: None, Random(1), entropy, START_US
    )
    made.handle(START_US + SECOND)
    return made, streams


def edition(*places: str) -> SignedListing:
    nodes = [ListedNode(place, bytes([number]) * 32, 1, 2 * START_US) for number, place in enumerate(places)]
    return sign_listing(Listing(nodes, START_US, START_US + 60 * SECOND), keyring_of(-1, "hardened"))


def test_a_directory_cannot_tell_who_fetches_by_the_stream_that_it_comes_on() -> None:
    """One that could would show whom it likes a listing of its own."""
    grove = TreeNetwork(4)
    grove.run(30)
    asked = [(source, message) for name, source, message in grove.seen if name == DIRECTORY]
    named = {source for source, message in asked if isinstance(message, EnrolNode)}
    rounds = [source for source, message in asked if isinstance(message, FetchListing) and message.page is None]
    assert named.isdisjoint(rounds)
    assert len(rounds) == len(set(rounds)) > 12


def test_a_second_listing_under_the_name_of_the_first_is_refused() -> None:
    node, streams = member()
    true, false = edition("n0:1", "n1:1"), edition("n0:1", "n2:1")
    streams.last(FetchListing)(true.head, START_US)
    streams.last(FetchListing)(true.pages[0], START_US)
    assert node.listing.addresses.count(Address("n1:1")) == 1
    node.handle(START_US + 60 * SECOND)
    with pytest.raises(ForgedError, match="two listings"):
        streams.last(FetchListing)(false.head, START_US + SECOND)
    assert Address("n1:1") in node.listing.addresses


@pytest.mark.parametrize(
    "answer", [edition("n0:1").pages[0], NodeEnrolled(0, START_US + SECOND)], ids=["page", "enrolled"]
)
def test_a_directory_that_answers_something_else_is_asked_again(answer: Any) -> None:
    node, streams = member()
    streams.last(FetchListing)(answer, START_US)
    streams.asked.clear()
    node.handle(START_US + 60 * SECOND)
    assert any(isinstance(message, FetchListing) for _, message, _ in streams.asked)


def test_a_node_that_is_not_listed_tells_its_operator_why() -> None:
    node, streams = member()
    seen = [node.refusal]
    streams.last(EnrolNode)(RequestRefused(0, RefusalCode.MALFORMED), START_US)
    seen.append(node.refusal)
    node.handle(START_US + 60 * SECOND)
    streams.last(EnrolNode)(NodeEnrolled(0, START_US + 60 * SECOND), START_US)
    assert [*seen, node.refusal] == [None, RefusalCode.MALFORMED, None]


@pytest.mark.parametrize("code", [None, *RefusalCode])
def test_every_refusal_has_words(code: RefusalCode | None) -> None:
    class Node:
        refusal = code

        def unreached(self) -> None:
            return None

    node: Any = Node()
    said = hindrances(node, START_US)
    assert len(said) == (code is not None)
    assert code is not RefusalCode.MALFORMED or "clock" in said[0]
