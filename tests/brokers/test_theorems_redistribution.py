"""Theorems 1 to 3 for redistribution, by search over all largest minorities and all choices of contributors.

The view of each broker is traced through the code itself: the dealt scalars carry, beside their value, the linear form
over all random values (`Traced`), and every operation of `crypto.verifiable_sharing` acts on both. Contributors are
forced by withholding the other holders' shares, so each choice is one that the replicas make themselves.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
from typing import Self

import pytest

from support.share_algebra import is_determined_modulo
from veilcast.brokers.keys.redistribution import (
    HeldShare,
    RedistributedKeyCollector,
    accept_publisher_share,
    deal_key,
    redistribute_share,
)
from veilcast.brokers.keys.scheme import KeyAttempt, ReplicaId, ReplicaKeys, Scheme, majority, max_faulty
from veilcast.brokers.keys.share_reception import ShareReception
from veilcast.crypto import verifiable_sharing
from veilcast.crypto.group import ORDER, Point, Scalar
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.crypto.verifiable_sharing import VerifiableShare
from veilcast.machine import Entropy

Form = dict[int, int]
Broker = tuple[int, int]
"""(hop, index), both from 1."""


class Traced(Scalar):
    """A scalar and its form: unknown -> coefficient. Public numbers have none."""

    __slots__ = ("form",)
    form: Form
    drawn = 0

    @classmethod
    def of_form(cls, data: bytes, form: Form) -> Self:
        made = cls(data)
        made.form = form
        return made

    @classmethod
    def draw(cls, entropy: Entropy) -> Self:
        cls.drawn += 1
        return cls.of_form(Scalar.draw(entropy).reveal(), {cls.drawn: 1})

    @classmethod
    def of(cls, number: int) -> Self:
        return cls.of_form(Scalar.of(number).reveal(), {})

    @classmethod
    def sum(cls, terms: Iterable[Scalar]) -> Self:
        listed = list(terms)
        total: Form = {}
        for term in listed:
            assert isinstance(term, Traced)
            for unknown, coefficient in term.form.items():
                total[unknown] = (total.get(unknown, 0) + coefficient) % ORDER
        return cls.of_form(Scalar.sum(Scalar(term.reveal()) for term in listed).reveal(), total)

    def __mul__(self, other: Scalar) -> Scalar:
        """Multiply by a public number, the only product that occurs."""
        assert isinstance(other, Traced)
        assert other.form == {}
        number = int.from_bytes(other.reveal(), "little")
        form = {unknown: coefficient * number % ORDER for unknown, coefficient in self.form.items()}
        return Traced.of_form(Scalar.__mul__(self, other).reveal(), form)


class Trace:
    """One run over nodes of these sizes, with these contributors at each hop: which broker saw which forms."""

    def __init__(self, sizes: Sequence[int], chosen: Sequence[Sequence[int]]) -> None:
        Traced.drawn = 0
        self.seen: list[tuple[frozenset[Broker], Form]] = []
        self.blinded: list[tuple[frozenset[Broker], Form]] = []
        self.commitments: dict[bytes, tuple[Form, Form]] = {}
        entropy = random.Random(4).randbytes
        roster = ReplicaKeys(nodes=len(sizes))
        schemes = [Scheme(bytes((hop,)) * 16, 0, size) for hop, size in enumerate(sizes, 1)]
        for scheme in schemes:
            roster.add(scheme, [signing(ReplicaId(scheme, at)).public for at in range(1, scheme.size + 1)])
        secret = Traced.draw(entropy)
        assert list(secret.form) == [SECRET]
        self.secret = Scalar(secret.reveal())
        parts = deal_key(secret, ORIGIN, schemes[0], PUBLISHER, entropy)
        for part in parts:
            self.note({(1, part.share.index)}, part.share)
        holdings = [
            accept_publisher_share(part, ReplicaId(schemes[0], at), PUBLISHER.public)
            for at, part in enumerate(parts, 1)
        ]
        for hop, (to, contributors) in enumerate(zip(schemes[1:], chosen, strict=True), 2):
            receivings = [
                ShareReception(
                    ORIGIN, schemes[hop - 2], ReplicaId(to, at), PUBLISHER.public, roster, signing(ReplicaId(to, at))
                )
                for at in range(1, to.size + 1)
            ]
            for holding in holdings:
                dealt = redistribute_share(holding, to, signing(holding.holder_id), entropy)
                for receiving, portion in zip(receivings, dealt.shares, strict=True):
                    # All portions are seen by whoever gets them; only some count.
                    self.note({(hop - 1, holding.holder_id.index), (hop, portion.share.index)}, portion.share)
                    if holding.holder_id.index in contributors:
                        receiving.accept_share(portion)
            words = [receiving.announce() for receiving in receivings]
            for at, receiving in enumerate(receivings):
                for author, word in enumerate(words):
                    if author != at:
                        receiving.accept_statement(word, 1)
                assert receiving.choose_holders() == tuple(contributors)
            holdings = [receiving.combine() for receiving in receivings]
            for holding in holdings:
                self.note({(hop, holding.holder_id.index)}, holding.share)
        self.last = holdings

    def note(self, who: set[Broker], share: VerifiableShare) -> None:
        assert isinstance(share.value, Traced)
        assert isinstance(share.blinding, Traced)
        self.seen.append((frozenset(who), share.value.form))
        self.blinded.append((frozenset(who), share.blinding.form))

    def view(self, byzantine: frozenset[Broker]) -> list[Form]:
        return [form for who, form in self.seen if who & byzantine]

    def whole_view(self, byzantine: frozenset[Broker]) -> list[Form]:
        """With blindings, and with what all commitments of all dealings reveal to an adversary that computes discrete
        logarithms."""
        rows = self.view(byzantine) + [form for who, form in self.blinded if who & byzantine]
        for value, blinding in self.commitments.values():
            row = dict(value)
            for unknown, coefficient in blinding.items():
                row[unknown] = (row.get(unknown, 0) + LOGARITHM * coefficient) % ORDER
            rows.append(row)
        return rows


def knows(forms: Sequence[Form]) -> bool:
    unknowns = sorted({SECRET, *(unknown for form in forms for unknown in form)})
    rows = [[form.get(unknown, 0) for unknown in unknowns] for form in forms]
    return is_determined_modulo(rows, [int(unknown == SECRET) for unknown in unknowns], ORDER)


def signing(place: ReplicaId) -> SigningKey:
    return SigningKey(Secret(place.scheme.node + bytes((place.index, place.scheme.size)) * 8))


def largest_minorities(sizes: Sequence[int]) -> Iterator[frozenset[Broker]]:
    hops = [
        [[(hop, at) for at in chosen] for chosen in combinations(range(1, size + 1), max_faulty(size))]
        for hop, size in enumerate(sizes, 1)
    ]
    for each in product(*hops):
        yield frozenset(broker for brokers in each for broker in brokers)


def choices(sizes: Sequence[int]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Every majority of the holders, at every hop but the last."""
    yield from product(*(combinations(range(1, size + 1), majority(size)) for size in sizes[:-1]))


@pytest.fixture(autouse=True)
def trace_scalar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifiable_sharing, "Scalar", Traced)


ORIGIN = KeyAttempt(bytes(16))
PUBLISHER = SigningKey(Secret(b"p" * 32))
SECRET = 1
"""The first random value."""
LOGARITHM = random.Random(9).randrange(1, ORDER)
SIZES = [(3, 3), (3, 3, 3), (5, 5), (3, 5, 3)]


def search(sizes: Sequence[int]) -> int:
    """The number of cases; asserts that no key is read and every key is delivered."""
    cases = 0
    minorities = list(largest_minorities(sizes))
    for chosen in choices(sizes):
        trace = Trace(sizes, chosen)
        assert not [byzantine for byzantine in minorities if knows(trace.view(byzantine))]
        cases += len(minorities)
        for honest in combinations(trace.last, majority(sizes[-1])):
            is_delivered(trace, honest)
    return cases


def is_delivered(trace: Trace, holdings: Sequence[HeldShare]) -> None:
    collecting = RedistributedKeyCollector(ORIGIN, PUBLISHER.public)
    for holding in holdings:
        collecting.add(holding.make_delivery(), holding.holder_id)
    assert collecting.secret == trace.secret


@pytest.mark.parametrize(("sizes", "cases"), [((3, 3), 27), ((3, 3, 3), 243)], ids=str)
def test_redistribution_keeps_and_delivers_the_secret(sizes: tuple[int, ...], cases: int) -> None:
    assert search(sizes) == cases


@pytest.mark.all_only
@pytest.mark.parametrize(("sizes", "cases"), [((5, 5), 1000), ((3, 5, 3), 2700)], ids=str)
def test_redistribution_keeps_and_delivers_the_secret_over_nodes_of_five(sizes: tuple[int, ...], cases: int) -> None:
    assert search(sizes) == cases


def test_the_search_covers_3970_cases() -> None:
    assert sum(len(list(choices(sizes))) * len(list(largest_minorities(sizes))) for sizes in SIZES) == 3970


def test_with_one_more_broker_the_search_finds_the_secret() -> None:
    trace = Trace((3, 3), [(1, 2)])
    for hop in (1, 2):
        assert knows(trace.view(frozenset({(hop, 1), (hop, 2)})))
    assert knows(trace.view(frozenset({(1, 1), (1, 2)}))[:2])


def test_blindings_and_commitments_add_nothing_even_with_discrete_logarithms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commit, forms = verifiable_sharing._commit, {}

    def recorded(value: Scalar, blinding: Scalar) -> Point:
        point = commit(value, blinding)
        assert isinstance(value, Traced)
        assert isinstance(blinding, Traced)
        forms[point.encode()] = (value.form, blinding.form)
        return point

    monkeypatch.setattr(verifiable_sharing, "_commit", recorded)
    for sizes, step in (((3, 3), 1), ((3, 3, 3), 4)):
        for chosen in list(choices(sizes))[::step]:
            forms.clear()
            trace = Trace(sizes, chosen)
            trace.commitments = dict(forms)
            assert not [byzantine for byzantine in largest_minorities(sizes) if knows(trace.whole_view(byzantine))]
        assert knows(trace.whole_view(frozenset({(1, 1), (1, 2)})))


def test_a_polynomial_reused_for_another_branch_would_break_it_too() -> None:
    """The planted bug: one dealing sent to two nodes; one Byzantine replica in each has both shares of every holder."""
    trace = Trace((3, 3), [(1, 2)])
    on_both = [form for who, form in trace.seen if (2, 1) in who or (2, 2) in who]
    assert knows(on_both)
