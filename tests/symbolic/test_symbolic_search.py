"""The search itself, on protocols whose attacks are known: it finds those, and nothing in the repaired protocols."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.symbolic.group_knowledge import base
from support.symbolic.intruder import Intruder, Shapes
from support.symbolic.symbolic_search import (
    BoundExceeded,
    Event,
    Found,
    Instance,
    Outcome,
    agrees,
    hides,
    keeps_secrets,
    never,
    search,
)
from support.symbolic.symbolic_terms import (
    EMPTY,
    Term,
    aead,
    atom,
    box,
    digest,
    mac,
    number,
    point,
    power,
    sign,
    sum_term,
    tup,
    variable,
)

KEY, NONCE, TEXT = atom("key", "key"), atom("0", "count"), atom("text", "body")
SEALED = aead(KEY, NONCE, EMPTY, TEXT)


def knowing(*terms: Term, factors: int = 0) -> Intruder:
    return Intruder(Shapes(factors=factors)).hear(*terms)


# --- what follows from what is held -------------------------------------------------------------------------


def test_a_ciphertext_opens_with_its_key_whichever_came_first() -> None:
    assert not knowing(SEALED).derives(TEXT)
    assert knowing(SEALED, KEY).derives(TEXT)
    assert knowing(SEALED).hear(tup(atom("x"), KEY)).derives(TEXT)
    assert knowing(
        aead(KEY, NONCE, EMPTY, atom("k2", "key")), KEY, aead(atom("k2", "key"), NONCE, EMPTY, TEXT)
    ).derives(TEXT)


def test_a_nonce_that_comes_twice_gives_the_key_away() -> None:
    other = aead(KEY, NONCE, EMPTY, atom("other", "body"))
    assert knowing(SEALED, other).derives(TEXT)
    assert not knowing(SEALED, aead(KEY, atom("1", "count"), EMPTY, TEXT)).derives(TEXT)


def test_one_way_functions_are_one_way() -> None:
    for made in (digest(TEXT), mac(KEY, TEXT), sign(KEY, TEXT)):
        assert not knowing(made).derives(TEXT)
        assert not knowing(made).derives(KEY)
        assert knowing(KEY, TEXT).derives(made)


def test_a_key_agreement_follows_from_either_private_half_and_from_no_public_ones() -> None:
    x, y = number("x"), number("y")
    shared = power(point(x), y)
    assert shared is power(point(y), x)
    assert not knowing(point(x), point(y)).derives(shared)
    assert knowing(x, point(y)).derives(shared)
    assert knowing(shared, x).derives(point(y)), "who has the exponent takes it away again"
    assert not knowing(point(x)).derives(x)


def test_a_box_opens_with_the_number_behind_its_point() -> None:
    closed = box(point(number("y")), atom("coin", "coin"), TEXT)
    assert not knowing(closed, point(number("y"))).derives(TEXT)
    assert knowing(closed, number("y")).derives(TEXT)


def test_a_veiled_subject_follows_when_its_veil_does() -> None:
    """The relay's uploads: k H + rho G. Sums go by the rank of what is held (`group_knowledge`)."""
    subject, k, rho = base("H(news)"), number("k"), number("rho")
    covered = sum_term(subject * k.number + point(rho).sum)
    assert not knowing(covered, k).derives(point(k, subject))
    assert knowing(covered, rho).derives(point(k, subject))


def test_the_intruder_multiplies_points_as_often_as_it_is_given() -> None:
    seen = variable("seen", "point")
    x, own = number("x"), number("i")
    blinded = power(point(x), own)

    def points(factors: int) -> list[Term]:
        return [found[seen] for found in knowing(point(x), own, factors=factors).instances(seen)]

    assert blinded not in points(0)
    assert blinded in points(1)
    assert len(points(2)) > len(points(1))


# --- known attacks ------------------------------------------------------------------------------------------


def needham_schroeder(repaired: bool) -> Found:
    """The public-key protocol; Lowe's repair names the responder in message two. A calls the intruder's I, too."""
    agents = {name: number(f"private {name}") for name in "ABI"}
    keys = {name: point(private) for name, private in agents.items()}
    nonce, name = variable("nonce", "nonce"), variable("name", "agent")
    mine, coin = {each: atom(f"N{each}", "nonce") for each in "AB"}, atom("coin", "coin")
    any_coin = variable("coin", "coin")

    def opened(who: str, *parts: Term) -> Term:
        return box(keys[who], any_coin, tup(*parts))

    def initiator(peer: str) -> Instance:
        def answer(local: object, intruder: Intruder) -> Iterator[Outcome]:
            named = (atom(peer, "agent"),) if repaired else ()
            for found in intruder.instances(opened("A", mine["A"], nonce, *named)):
                runs = Event("runs", (atom("A", "agent"), atom(peer, "agent"), found[nonce]))
                yield Outcome(found[nonce], (box(keys[peer], coin, found[nonce]),), (runs,))

        first = box(keys[peer], coin, tup(mine["A"], atom("A", "agent")))
        return Instance(f"A to {peer}", Outcome(None, (first,)), (answer,))

    def called(local: object, intruder: Intruder) -> Iterator[Outcome]:
        for found in intruder.instances(opened("B", nonce, name)):
            caller = str(found[name].value)
            named = (atom("B", "agent"),) if repaired else ()
            yield Outcome(caller, (box(keys[caller], coin, tup(found[nonce], mine["B"], *named)),))

    def ended(local: object, intruder: Intruder) -> Iterator[Outcome]:
        caller = atom(str(local), "agent")
        if next(intruder.instances(box(keys["B"], any_coin, mine["B"])), None) is not None and caller.value == "A":
            yield Outcome(local, (), (Event("commits", (caller, atom("B", "agent"), mine["B"])),))

    responder = Instance("B", Outcome(None), (called, ended))
    held = [agents["I"], *keys.values(), coin, *(atom(each, "agent") for each in "ABI"), atom("NI", "nonce")]
    return search([initiator("I"), initiator("B"), responder], [agrees("commits", "runs")], held)


def test_the_attack_on_needham_and_schroeders_protocol_is_found_and_lowes_repair_holds() -> None:
    found = needham_schroeder(repaired=False)
    assert found
    assert len(found.trace) == 3, found.trace
    repaired = needham_schroeder(repaired=True)
    assert not repaired
    assert repaired.finished >= {"A to B", "B"}


def diffie_hellman(leaks: bool = False) -> Found:
    """Two fresh keys that nobody signed; or agreed on with a long-term key alone, which leaks later."""
    seen = variable("seen", "point")

    def party(name: str) -> Instance:
        private = number("long-term" if leaks else f"fresh {name}")

        def agree(local: object, intruder: Intruder) -> Iterator[Outcome]:
            for found in intruder.instances(seen):
                shared = power(found[seen], private)
                yield Outcome(shared, (), (Event("secret", (shared,)),))

        return Instance(name, Outcome(None, (point(private),)), (agree,))

    held = [] if leaks else [number("own"), point(number("own"))]
    long_term = [number("long-term")] if leaks else []
    return search([party("A"), party("B")], [keeps_secrets], held, leaks=long_term)


def test_somebody_in_the_middle_of_an_agreement_that_nobody_signed_is_found() -> None:
    assert diffie_hellman()


def test_a_key_that_rests_on_a_long_term_key_alone_is_lost_when_that_leaks() -> None:
    found = diffie_hellman(leaks=True)
    assert found
    assert found.trace[-1] == "long-term keys leak"


# --- properties and bounds ----------------------------------------------------------------------------------


def counting(limit: int) -> Instance:
    def step(local: object, intruder: Intruder) -> Iterator[Outcome]:
        for value in range(limit):
            yield Outcome(value, (), (Event("counted", (atom(str(value)),)),))

    return Instance("counter", Outcome(None), (step,))


def test_more_states_than_there_is_room_for_show_nothing() -> None:
    with pytest.raises(BoundExceeded):
        search([counting(11)], [], [], states_max=10)
    assert search([counting(9)], [], [], states_max=10).states == 10


def test_an_event_or_a_term_that_must_not_be_is_found() -> None:
    assert search([counting(1)], [never("counted")], [])
    assert not search([counting(1)], [never("other")], [])
    assert search([], [hides(TEXT)], [tup(TEXT)])


def test_an_injective_agreement_asks_for_a_partner_for_each_commitment() -> None:
    def committed(times: int, injective: bool) -> Found:
        def step(local: object, intruder: Intruder) -> Iterator[Outcome]:
            yield Outcome(1, (), (Event("commits", (TEXT,)),))

        ran = Instance("ran", Outcome(None, (), (Event("runs", (TEXT,)),)), ())
        others = [Instance(str(number), Outcome(None), (step,)) for number in range(times)]
        return search([ran, *others], [agrees("commits", "runs", injective=injective)], [])

    assert not committed(1, True)
    assert committed(2, True)
    assert not committed(2, False)
