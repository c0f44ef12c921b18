"""Terms of the symbolic models: messages as trees, with perfect cryptography.

A term is an atom, an application of a public function, a number or a point of a group (`group_knowledge`), or a
variable of a pattern. Equal terms are one object, so a comparison costs nothing and long chains of hashes share their
parts.

    aead(key, nonce, context, plaintext)   opens with the key; the context is authenticated and not sent
    digest(...)  kdf(chain, input, number)  mac(key, ...)   one-way
    public(key)  sign(key, message)        a signature does not contain its message, which is sent beside it
    box(point, coin, plaintext)            opens with the number behind the point; the coin makes each box different
    number(...)  point(...)                products of powers of secrets, and base points times those

Functions on terms are total and injective except where the group identifies two terms: g^(xy) is g^(yx).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from support.symbolic.group_knowledge import G, Number, Sum, secret

Payload: TypeAlias = "str | Number | Sum"


class Term:
    """Made only by the functions below, which return the same object for the same arguments."""

    __slots__ = ("args", "ground", "head", "kind", "serial", "value")

    def __init__(self, kind: str, head: str, args: tuple[Term, ...], value: Payload, serial: int) -> None:
        self.kind, self.head, self.args, self.value, self.serial = kind, head, args, value, serial
        self.ground: bool = kind != "variable" and all(part.ground for part in args)

    def __hash__(self) -> int:
        """The sequence number of the term, so that sets iterate in the same order in every run."""
        return self.serial

    def __repr__(self) -> str:
        return self.told(3)

    def told(self, depth: int) -> str:
        """The term as text, up to this depth: transcripts are long."""
        match self.kind:
            case "atom":
                return str(self.value)
            case "variable":
                return f"?{self.value}"
            case "number":
                return _product(self.value)
            case "point":
                return " + ".join(f"{base}*{_product(by)}" for base, by in _terms(self.value))
        return f"{self.head}({', '.join(each.told(depth - 1) for each in self.args) if depth else '...'})"

    @property
    def number(self) -> Number:
        assert isinstance(self.value, Number)
        return self.value

    @property
    def sum(self) -> Sum:
        assert isinstance(self.value, Sum)
        return self.value


Bindings: TypeAlias = Mapping[Term, Term]


def atom(name: str, sort: str = "name") -> Term:
    """A constant. Its sort decides which places of a pattern it fits."""
    return _made("atom", sort, (), name)


def variable(name: str, sort: str) -> Term:
    """A place of a pattern for terms of one sort: that of an atom, a function's name, "number" or "point"."""
    return _made("variable", sort, (), name)


def apply(head: str, *args: Term) -> Term:
    return _made("function", head, args, "")


def tup(*parts: Term) -> Term:
    return apply("tuple", *parts)


def aead(key: Term, nonce: Term, context: Term, plaintext: Term) -> Term:
    return apply("aead", key, nonce, context, plaintext)


def digest(*parts: Term) -> Term:
    return apply("digest", *parts)


def kdf(chain: Term, material: Term, output: int) -> Term:
    return apply("kdf", chain, material, atom(str(output), "count"))


def mac(key: Term, *parts: Term) -> Term:
    return apply("mac", key, *parts)


def public(key: Term) -> Term:
    """The public half of a signing key."""
    return apply("public", key)


def sign(key: Term, message: Term) -> Term:
    return apply("sign", key, message)


def box(reader: Term, coin: Term, plaintext: Term) -> Term:
    return apply("box", reader, coin, plaintext)


def number(name: str | Number) -> Term:
    return _made("number", "number", (), secret(name) if isinstance(name, str) else name)


def point(by: Term | Number, base: Sum = G) -> Term:
    """The base times this number."""
    return sum_term(base * (by.number if isinstance(by, Term) else by))


def sum_term(value: Sum) -> Term:
    ordered = Sum(tuple(sorted(value.terms, key=lambda each: (each[0], each[1].powers))))
    return _made("point", "point", (), ordered)


def power(base: Term, by: Term) -> Term:
    """A point times a number: the result of a key agreement."""
    return sum_term(base.sum * by.number)


def substitute(term: Term, bindings: Bindings) -> Term:
    """The term with its bound variables replaced."""
    if term.ground:
        return term
    if term.kind == "variable":
        return bindings.get(term, term)
    return apply(term.head, *(substitute(part, bindings) for part in term.args))


def has_sort(term: Term, sort: str) -> bool:
    return sort in ("any", term.head)


def matches(pattern: Term, term: Term, bindings: Bindings) -> Iterator[Bindings]:
    """The bindings under which the pattern is this ground term: none or one, as functions are injective."""
    pattern = substitute(pattern, bindings)
    if pattern.ground:
        if pattern is term:
            yield bindings
    elif pattern.kind == "variable":
        if has_sort(term, pattern.head):
            yield {**bindings, pattern: term}
    elif pattern.kind == term.kind and pattern.head == term.head and len(pattern.args) == len(term.args):
        found: list[Bindings] = [bindings]
        for mine, other in zip(pattern.args, term.args, strict=True):
            found = [each for before in found for each in matches(mine, other, before)]
        yield from found


def _made(kind: str, head: str, args: tuple[Term, ...], value: Payload) -> Term:
    name = (kind, head, tuple(part.serial for part in args), value)
    known = _TERMS.get(name)
    if known is None:
        known = _TERMS[name] = Term(kind, head, args, value, len(_TERMS))
    return known


def _terms(value: Payload) -> tuple[tuple[str, Number], ...]:
    assert isinstance(value, Sum)
    return value.terms


def _product(value: Payload) -> str:
    assert isinstance(value, Number)
    return ".".join(name if exponent == 1 else f"{name}^{exponent}" for name, exponent in value.powers) or "1"


_TERMS: dict[tuple[str, str, tuple[int, ...], Payload], Term] = {}
EMPTY = atom("empty", "bytes")
