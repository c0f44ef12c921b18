"""The Dolev-Yao intruder: the terms it can derive from the messages it has seen, and the messages it can send.

The intruder holds every message that was sent, opens those that it has the keys of (`Intruder.hear`), and composes
new terms (`Intruder.derives`). Cryptography is perfect with two exceptions, which are attacks on real
ciphers: two plaintexts under one key and one nonce reveal the key; and in a group the intruder computes as in the
generic group model (`group_knowledge`).

`Intruder.instances` gives every way to fill a receiver's pattern with something that the intruder can send. It is
complete for these bounds:

1. Fields have the sorts of the pattern: a receiver that parses a point is not sent a certificate.
2. A variable takes a term of its sort that the intruder holds, or one that it makes by a `shape` of the sort. Its own
   fresh values are those that it was given at the beginning.
3. A point is one that the intruder holds, times at most `factors` numbers that it holds; a number is a product of at
   most `factors` of those that it holds, or of their inverses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import combinations_with_replacement

from support.symbolic.group_knowledge import G, GroupView, Number, Sum
from support.symbolic.symbolic_terms import Bindings, Term, matches, number, substitute, sum_term, variable


class Shapes:
    """How the intruder makes terms of a sort that it does not hold, and the bound on products in the group."""

    def __init__(self, shapes: Mapping[str, Iterable[Term]] | None = None, factors: int = 0) -> None:
        self.of = {sort: tuple(patterns) for sort, patterns in (shapes or {}).items()}
        self.factors = factors


class Intruder:
    """Immutable: `hear` gives the intruder that knows more."""

    def __init__(self, shapes: Shapes, held: frozenset[Term] = frozenset()) -> None:
        self._shapes, self.held = shapes, held
        self._derived: dict[Term, bool] = {}
        self._by_head: dict[str, list[Term]] = {}
        for term in sorted(held, key=lambda each: each.serial):
            self._by_head.setdefault(term.head, []).append(term)
        self.view = GroupView(
            tuple(term.number for term in self._by_head.get("number", ())),
            tuple(term.sum for term in self._by_head.get("point", ())),
        )

    def hear(self, *messages: Term) -> Intruder:
        """The intruder that also holds these messages, and everything that it can open then."""
        fresh = [message for message in messages if message not in self.held]
        if not fresh:
            return self
        now = Intruder(self._shapes, self.held.union(fresh))
        opened = [part for term in now.held for part in now._opened(term) if part not in now.held]
        return now.hear(*opened) if opened else now

    def derives(self, term: Term) -> bool:
        """True if the intruder can make this term."""
        if term in self.held:
            return True
        known = self._derived.get(term)
        if known is None:
            match term.kind:
                case "function":
                    known = all(map(self.derives, term.args))
                case "number":
                    known = _number_follows(self.view.numbers, term.number)
                case "point":
                    known = _point_follows(self.view, term.sum)
                case _:
                    known = False
            self._derived[term] = known
        return known

    def instances(self, pattern: Term, bindings: Bindings | None = None) -> Iterator[Bindings]:
        """All bindings, within the bounds, under which the intruder can send the pattern."""
        seen: set[tuple[tuple[Term, Term], ...]] = set()
        for found in self._instances(pattern, bindings or {}):
            name = tuple(sorted(found.items(), key=lambda each: each[0].serial))
            if name not in seen:
                seen.add(name)
                yield found

    def _instances(self, pattern: Term, bindings: Bindings) -> Iterator[Bindings]:
        pattern = substitute(pattern, bindings)
        if pattern.ground:
            if self.derives(pattern):
                yield bindings
            return
        if pattern.kind == "variable":
            for term in self._of_sort(pattern.head):
                yield {**bindings, pattern: term}
            return
        for term in self._by_head.get(pattern.head, ()):
            yield from matches(pattern, term, bindings)
        yield from self._made(pattern.args, bindings)

    def _made(self, parts: tuple[Term, ...], bindings: Bindings) -> Iterator[Bindings]:
        """Ground parts first, then keyed ones: a term whose key the intruder lacks binds variables before other terms
        do."""
        if not parts:
            yield bindings
            return
        filled = tuple(substitute(part, bindings) for part in parts)
        first = min(range(len(filled)), key=lambda place: _freedom(filled[place]))
        rest = filled[:first] + filled[first + 1 :]
        for found in self._instances(filled[first], bindings):
            yield from self._made(rest, found)

    def _of_sort(self, sort: str) -> Iterator[Term]:
        yield from self._by_head.get(sort, ()) if sort != "any" else sorted(self.held, key=lambda each: each.serial)
        if sort == "point":
            for products in self._products(positive=True):
                yield from (sum_term(known * products) for known in (G, *self.view.points))
        if sort == "number":
            yield from (number(product) for product in self._products(positive=False))
        for place, shape in enumerate(self._shapes.of.get(sort, ())):
            own = _rename_variables(shape, f"{sort}.{place}")
            yield from (substitute(own, found) for found in self._instances(own, {}))

    def _products(self, *, positive: bool) -> Iterator[Number]:
        factors = list(self.view.numbers)
        if not positive:
            factors += [Number() / each for each in self.view.numbers]
        for count in range(1, self._shapes.factors + 1):
            for chosen in combinations_with_replacement(factors, count):
                product = Number()
                for each in chosen:
                    product *= each
                yield product

    def _opened(self, term: Term) -> Iterator[Term]:
        match term.head:
            case "tuple":
                yield from term.args
            case "aead":
                key, nonce, _, plaintext = term.args
                if self.derives(key):
                    yield plaintext
                elif any(other.args[:2] == (key, nonce) and other is not term for other in self._by_head["aead"]):
                    yield key
            case "box":
                reader, _, plaintext = term.args
                ((base, private),) = reader.sum.terms
                if base == "G" and self.derives(number(private)):
                    yield plaintext


@lru_cache(maxsize=200_000)
def _number_follows(held: tuple[Number, ...], wanted: Number) -> bool:
    """If the intruder holds the single secrets, their names decide; otherwise the rank of the exponents does."""
    if all(len(each.powers) == 1 for each in held):
        names = {each.powers[0][0] for each in held}
        return all(name in names for name, _ in wanted.powers)
    return GroupView(held).knows(wanted)


@lru_cache(maxsize=200_000)
def _point_follows(view: GroupView, wanted: Sum) -> bool:
    points = (G, *view.points)
    if any(len(each.terms) != 1 for each in (*points, wanted)):
        return view.knows(wanted)
    ((base, by),) = wanted.terms
    ratios = (by / known for each in points for name, known in each.terms if name == base)
    return any(_number_follows(view.numbers, ratio) for ratio in ratios)


@lru_cache(maxsize=200_000)
def _freedom(pattern: Term) -> int:
    """A rough measure of how much a part of a pattern leaves open; the part with the smallest measure is filled
    first."""
    if pattern.ground:
        return 0
    if pattern.kind == "variable":
        return 3
    return 1 if pattern.head in _KEYED else min((_freedom(part) for part in pattern.args if not part.ground), default=2)


def _rename_variables(shape: Term, place: str) -> Term:
    """The shape with new variables, so that two uses of it share none."""
    variables = {each: variable(f"{each.value}@{place}", each.head) for each in _variables(shape)}
    return substitute(shape, variables)


def _variables(term: Term) -> Iterator[Term]:
    if term.kind == "variable":
        yield term
    for part in term.args:
        yield from _variables(part)


_KEYED = frozenset({"aead", "box", "mac", "sign"})
