"""The directory client: what a hostile directory can do to a node, and what it can learn about the node."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from support.tree_network import DIRECTORY, QUICK_CONFIG, SECOND, START_US, TreeNetwork, keyring_of
from veilcast.errors import ForgedError
from veilcast.machine import Address
from veilcast.node.tree import hindrances
from veilcast.sim.rng import SeededEntropy
from veilcast.tree.directory_client import DirectoryClient
from veilcast.tree.listing import Listing, SignedListing, sign_listing
from veilcast.wire.base import Message
from veilcast.wire.tree import EnrolNode, FetchListing, ListedNode, NodeEnrolled, RefusalCode, RequestRefused


class RecordedRequests:
    """Replaces the streams: records requests, to be answered by hand."""

    patience_us = SECOND

    def __init__(self) -> None:
        self.asked: list[tuple[Address, Message, Any]] = []

    def request(self, peer: Address, build: Any, on_answer: Any, **_: Any) -> bool:
        self.asked.append((peer, build(0), on_answer))
        return True

    def last(self, kind: type[Message]) -> Any:
        return next(on_answer for _, message, on_answer in reversed(self.asked) if isinstance(message, kind))


def make_client() -> tuple[DirectoryClient, RecordedRequests]:
    streams: Any = RecordedRequests()
    mine, entropy = keyring_of(0, "hardened"), SeededEntropy(b"1")
    made = DirectoryClient(
        QUICK_CONFIG, mine, (DIRECTORY,), Address("n0:1"), streams, lambda now: None, Random(1), entropy, START_US
    )
    made.handle(START_US + SECOND)
    return made, streams


def sign_places(*places: str) -> SignedListing:
    nodes = [ListedNode(place, bytes([number]) * 32, 1, 2 * START_US) for number, place in enumerate(places)]
    return sign_listing(Listing(nodes, START_US, START_US + 60 * SECOND), keyring_of(-1, "hardened"))


def test_a_directory_cannot_link_downloads_by_their_streams() -> None:
    """Otherwise the directory could show a chosen node its own listing."""
    network = TreeNetwork(4)
    network.run(30)
    asked = [(source, message) for name, source, message in network.seen if name == DIRECTORY]
    named = {source for source, message in asked if isinstance(message, EnrolNode)}
    rounds = [source for source, message in asked if isinstance(message, FetchListing) and message.page is None]
    assert named.isdisjoint(rounds)
    assert len(rounds) == len(set(rounds)) > 12


def test_a_second_listing_with_the_same_version_is_refused() -> None:
    node, streams = make_client()
    true, false = sign_places("n0:1", "n1:1"), sign_places("n0:1", "n2:1")
    streams.last(FetchListing)(true.head, START_US)
    streams.last(FetchListing)(true.pages[0], START_US)
    assert node.listing.addresses.count(Address("n1:1")) == 1
    node.handle(START_US + 60 * SECOND)
    with pytest.raises(ForgedError, match="two listings"):
        streams.last(FetchListing)(false.head, START_US + SECOND)
    assert Address("n1:1") in node.listing.addresses


@pytest.mark.parametrize(
    "answer", [sign_places("n0:1").pages[0], NodeEnrolled(0, START_US + SECOND)], ids=["page", "enrolled"]
)
def test_a_node_asks_again_after_a_wrong_answer_of_the_directory(answer: Any) -> None:
    node, streams = make_client()
    streams.last(FetchListing)(answer, START_US)
    streams.asked.clear()
    node.handle(START_US + 60 * SECOND)
    assert any(isinstance(message, FetchListing) for _, message, _ in streams.asked)


def test_an_unlisted_node_tells_its_operator_the_reason() -> None:
    node, streams = make_client()
    seen = [node.refusal]
    streams.last(EnrolNode)(RequestRefused(0, RefusalCode.MALFORMED), START_US)
    seen.append(node.refusal)
    node.handle(START_US + 60 * SECOND)
    streams.last(EnrolNode)(NodeEnrolled(0, START_US + 60 * SECOND), START_US)
    assert [*seen, node.refusal] == [None, RefusalCode.MALFORMED, None]


@pytest.mark.parametrize("code", [None, *RefusalCode])
def test_every_refusal_has_a_text(code: RefusalCode | None) -> None:
    class Node:
        refusal = code

        def silent_directories(self) -> list[Address]:
            return []

    node: Any = Node()
    said = hindrances(node, START_US)
    assert len(said) == (code is not None)
    assert code is not RefusalCode.MALFORMED or "clock" in said[0]
