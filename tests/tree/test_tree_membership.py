"""What a directory can do to a node that asks it, and what it can learn of it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from support.grove import DIRECTORY, QUICK, SECOND, START, Grove, keyring
from veilcast.errors import ForgedError
from veilcast.machine import Address
from veilcast.node.tree_member import hindrances
from veilcast.sim.chance import SeededEntropy
from veilcast.tree.listing import Edition, Listing, publish
from veilcast.tree.membership import Membership
from veilcast.wire.messages import Message
from veilcast.wire.tree import Code, Enrol, Enrolled, Fetch, Listed, Refused


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


def member() -> tuple[Membership, Asked]:
    streams: Any = Asked()
    mine, entropy = keyring(0, "hardened"), SeededEntropy(b"1")
    made = Membership(QUICK, mine, DIRECTORY, Address("n0:1"), streams, lambda now: None, Random(1), entropy, START)
    made.handle(START + SECOND)
    return made, streams


def edition(*places: str) -> Edition:
    nodes = [Listed(place, bytes([number]) * 32, 1, 2 * START) for number, place in enumerate(places)]
    return publish(Listing(nodes, START, START + 60 * SECOND), keyring(-1, "hardened"))


def test_a_directory_cannot_tell_who_fetches_by_the_stream_that_it_comes_on() -> None:
    """One that could would show whom it likes a listing of its own."""
    grove = Grove(4)
    grove.run(30)
    asked = [(source, message) for name, source, message in grove.seen if name == DIRECTORY]
    named = {source for source, message in asked if isinstance(message, Enrol)}
    rounds = [source for source, message in asked if isinstance(message, Fetch) and message.page is None]
    assert named.isdisjoint(rounds)
    assert len(rounds) == len(set(rounds)) > 12


def test_a_second_listing_under_the_name_of_the_first_is_refused() -> None:
    node, streams = member()
    true, false = edition("n0:1", "n1:1"), edition("n0:1", "n2:1")
    streams.last(Fetch)(true.head, START)
    streams.last(Fetch)(true.pages[0], START)
    assert node.listing.addresses.count(Address("n1:1")) == 1
    node.handle(START + 60 * SECOND)
    with pytest.raises(ForgedError, match="two listings"):
        streams.last(Fetch)(false.head, START + SECOND)
    assert Address("n1:1") in node.listing.addresses


@pytest.mark.parametrize("answer", [edition("n0:1").pages[0], Enrolled(0, START + SECOND)], ids=["page", "enrolled"])
def test_a_directory_that_answers_something_else_is_asked_again(answer: Any) -> None:
    node, streams = member()
    streams.last(Fetch)(answer, START)
    streams.asked.clear()
    node.handle(START + 60 * SECOND)
    assert any(isinstance(message, Fetch) for _, message, _ in streams.asked)


def test_a_node_that_is_not_listed_tells_its_operator_why() -> None:
    node, streams = member()
    seen = [node.refusal]
    streams.last(Enrol)(Refused(0, Code.MALFORMED), START)
    seen.append(node.refusal)
    node.handle(START + 60 * SECOND)
    streams.last(Enrol)(Enrolled(0, START + 60 * SECOND), START)
    assert [*seen, node.refusal] == [None, Code.MALFORMED, None]


@pytest.mark.parametrize("code", [None, *Code])
def test_every_refusal_has_words(code: Code | None) -> None:
    class Node:
        refusal = code

        def unreached(self) -> None:
            return None

    node: Any = Node()
    said = hindrances(node, START)
    assert len(said) == (code is not None)
    assert code is not Code.MALFORMED or "clock" in said[0]
