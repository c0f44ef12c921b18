"""Cookies of the door, searched: an intruder that does not receive where it says that it sends from.

    rule here          in the code
    cookie             link/cookies.Cookies._of
    door               link/door.Door._greet, link/doorkeeper.Doorkeeper.admit

The intruder has the network key, so envelopes hide nothing from it. It writes any source on its letters, and receives
at its own address W alone. It received at V in the stretch before this one, and kept the cookie that it got there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import pytest

from support.symbolic.intruder import Intruder
from support.symbolic.symbolic_search import Event, Found, Instance, Outcome, never, search
from support.symbolic.symbolic_terms import Term, atom, digest, mac, variable
from veilcast.link.cookies import Cookies
from veilcast.machine import Address
from veilcast.wire.geometry import COOKIE


@dataclass(frozen=True)
class Door:
    """The rules in force; a planted flaw is another value of one field."""

    keyed: bool = True
    names_source: bool = True
    names_stretch: bool = True

    def cookie(self, source: Term, thread: Term, stretch: Term) -> Term:
        parts = ((source,) if self.names_source else ()) + ((stretch,) if self.names_stretch else ())
        return mac(_KEY, thread, *parts) if self.keyed else digest(thread, *parts)

    def search(self, source: str) -> Found:
        """Whether the door spends a handshake on a letter from this address."""

        def greet(local: object, intruder: Intruder) -> Iterator[Outcome]:
            for found in intruder.instances(_THREAD):
                for claimed in (V, W):
                    made = self.cookie(claimed, found[_THREAD], NOW)
                    yield Outcome(claimed, (made,) if claimed is W else (), told=f"a letter from {claimed!r}")

        def admit(local: object, intruder: Intruder) -> Iterator[Outcome]:
            for found in intruder.instances(_THREAD):
                for claimed in (V, W):
                    if intruder.derives(self.cookie(claimed, found[_THREAD], NOW)):
                        yield Outcome(claimed, (), (Event(f"admits {claimed!r}", ()),), f"a cookie from {claimed!r}")

        held = [V, W, NOW, PAST, atom("thread 1", "thread"), atom("thread 2", "thread")]
        held += [self.cookie(V, atom("thread 1", "thread"), PAST)]
        return search([Instance("door", Outcome(None), (greet, admit))], [never(f"admits {source}")], held)


def test_a_handshake_is_spent_on_those_alone_who_receive_where_they_send_from() -> None:
    """Strangers, cannot: "make a node spend a curve operation before they have shown that they receive"."""
    assert not Door().search("V")
    assert Door().search("W"), "who receives its cookie is let in"


@pytest.mark.parametrize("flaw", [Door(keyed=False), Door(names_source=False), Door(names_stretch=False)])
def test_each_planted_flaw_of_cookies_is_found(flaw: Door) -> None:
    assert flaw.search("V")


def test_the_code_makes_a_cookie_of_just_these_parts() -> None:
    """Another key, source, thread or stretch is another cookie; nothing else is."""
    doors = [Cookies(random.Random(seed).randbytes, 10) for seed in (1, 2)]
    sources, threads = (Address("10.0.0.1:1"), Address("10.0.0.1:2")), (bytes(8), bytes(7) + b"\1")
    made = [door.make(*parts) for door in doors for parts in product(sources, threads, (0, 10))]
    assert len(set(made)) == len(made)
    assert doors[0].make(sources[0], threads[0], 9) == made[0]
    assert {len(cookie) for cookie in made} == {COOKIE}


V, W = atom("V", "address"), atom("W", "address")
NOW, PAST = atom("this stretch", "stretch"), atom("the stretch before", "stretch")
_KEY, _THREAD = atom("cookie key", "key"), variable("thread", "thread")
