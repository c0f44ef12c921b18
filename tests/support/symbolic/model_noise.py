"""Noise on terms, as in the code: the symmetric state, and one side of a handshake.

The rules are those of `crypto/noise.py` (`_Symmetric`, `Handshake.write`, `Handshake.read`); the order of tokens is
read from the code's own table (`crypto/noise_patterns.PATTERNS`). `test_link_model.py` runs the code, records
every call of a primitive, and compares each message with the message of this model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from support.symbolic.intruder import Intruder
from support.symbolic.symbolic_terms import (
    EMPTY,
    Bindings,
    Term,
    aead,
    atom,
    digest,
    kdf,
    point,
    power,
    substitute,
    variable,
)


@dataclass(frozen=True)
class Weakness:
    """The part of the symmetric state that a planted flaw removes."""

    binds_transcript: bool = True
    counts_nonces: bool = True


SOUND = Weakness()


class Symmetric(NamedTuple):
    """`noise._Symmetric`: transcript hash, chaining key, message key and nonce."""

    hash: Term
    chain: Term
    key: Term | None = None
    nonce: int = 0
    weakness: Weakness = SOUND

    @classmethod
    def begin(cls, protocol: str, weakness: Weakness) -> Symmetric:
        name = atom(protocol, "bytes")
        return cls(digest(name), digest(name), weakness=weakness)

    def mix_hash(self, data: Term) -> Symmetric:
        return self._replace(hash=digest(self.hash, data))

    def mix_key(self, material: Term) -> Symmetric:
        chain, key = (kdf(self.chain, material, output) for output in (1, 2))
        return self._replace(chain=chain, key=key, nonce=0)

    def mix_key_and_hash(self, material: Term) -> Symmetric:
        chain, extra, key = (kdf(self.chain, material, output) for output in (1, 2, 3))
        return self._replace(chain=chain, key=key, nonce=0).mix_hash(extra)

    def sealed(self, plaintext: Term) -> Term:
        """The term that `encrypt` sends for this plaintext, and that `decrypt` expects."""
        if self.key is None:
            return plaintext
        context = self.hash if self.weakness.binds_transcript else EMPTY
        return aead(self.key, _counter(self.nonce if self.weakness.counts_nonces else 0), context, plaintext)

    def after(self, sealed: Term) -> Symmetric:
        counted = self if self.key is None else self._replace(nonce=self.nonce + 1)
        return counted.mix_hash(sealed)

    def split(self) -> tuple[Term, Term, Term]:
        first, second, third = (kdf(self.chain, EMPTY, output) for output in (1, 2, 3))
        return first, second, third


class HandshakeSide(NamedTuple):
    """`noise.Handshake`: one side, between two messages."""

    initiates: bool
    symmetric: Symmetric
    static: Term
    """Our private number; the ephemeral is `fresh`."""
    fresh: Term
    psk: Term | None
    remote_static: Term | None = None
    remote_fresh: Term | None = None

    def write(self, tokens: Iterable[str], payload: Term) -> tuple[HandshakeSide, tuple[Term, ...]]:
        """`Handshake.write`: the parts of the message."""
        side, parts = self, []
        for token in tokens:
            match token:
                case "e":
                    parts.append(point(side.fresh))
                    side = side._mix_fresh(parts[-1])
                case "s":
                    parts.append(side.symmetric.sealed(point(side.static)))
                    side = side._replace(symmetric=side.symmetric.after(parts[-1]))
                case _:
                    side = side._mix_secret(token)
        parts.append(side.symmetric.sealed(payload))
        return side._replace(symmetric=side.symmetric.after(parts[-1])), tuple(parts)

    def read(
        self, tokens: tuple[str, ...], intruder: Intruder, accepted: Accepts
    ) -> Iterator[tuple[HandshakeSide, Bindings]]:
        """`Handshake.read`: every message that the intruder can send; `accepted` gives the payloads that this side
        accepts."""
        if not tokens:
            for pattern in accepted(self):
                for found in intruder.instances(self.symmetric.sealed(pattern)):
                    payload = substitute(pattern, found)
                    after = self.symmetric.after(self.symmetric.sealed(payload))
                    yield self._replace(symmetric=after), found
            return
        token, *rest = tokens
        if token == "e":
            for found in intruder.instances(_FRESH):
                side = self._replace(remote_fresh=found[_FRESH])._mix_fresh(found[_FRESH])
                yield from side.read(tuple(rest), intruder, accepted)
        elif token == "s":
            for found in intruder.instances(self.symmetric.sealed(_STATIC)):
                after = self.symmetric.after(self.symmetric.sealed(found[_STATIC]))
                side = self._replace(remote_static=found[_STATIC], symmetric=after)
                yield from side.read(tuple(rest), intruder, accepted)
        else:
            yield from self._mix_secret(token).read(tuple(rest), intruder, accepted)

    def _mix_fresh(self, public: Term) -> HandshakeSide:
        symmetric = self.symmetric.mix_hash(public)
        return self._replace(symmetric=symmetric if self.psk is None else symmetric.mix_key(public))

    def _mix_secret(self, token: str) -> HandshakeSide:
        if token == "psk":
            assert self.psk is not None
            return self._replace(symmetric=self.symmetric.mix_key_and_hash(self.psk))
        mine, theirs = (token[0], token[1]) if self.initiates else (token[1], token[0])
        private = self.static if mine == "s" else self.fresh
        remote = self.remote_static if theirs == "s" else self.remote_fresh
        assert remote is not None
        return self._replace(symmetric=self.symmetric.mix_key(power(remote, private)))


Accepts = Callable[[HandshakeSide], Iterable[Term]]
"""The patterns of payloads that a side accepts, after it has read the rest of the message."""


def _counter(value: int) -> Term:
    return atom(str(value), "count")


_FRESH = variable("e", "point")
_STATIC = variable("s", "point")
