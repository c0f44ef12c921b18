"""Every behaviour of Byzantine replicas in one flood of `brokers/keys/agreement.py`, on the code itself.

The search runs the real `SignedBroadcast` objects, so no model can differ from the code. Replicas move in rounds, as in
`brokers/keys/transfer_receiver.py`. In every round the adversary is rushing: it sees the messages of honest replicas
before it sends its own. It delivers to each honest replica any set of its authors' statements, with all signatures that
it has by then. It makes the signatures of Byzantine replicas, and has an honest replica's signature once a statement
with it was sent.

Bounds: one virtual node of `size` replicas. A Byzantine author has two statements. A delivered statement carries all
signatures that the adversary has: with fewer it would be accepted no sooner, because a replica requires at least one
signature for each round.

The receiver's shortcut, in which all replicas agree in round 1, is not part of the search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from veilcast.brokers.keys.agreement import EndorsedStatement, SignedBroadcast
from veilcast.brokers.keys.scheme import ReplicaId, ReplicaKeys, Scheme
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey

Taken: TypeAlias = "tuple[tuple[tuple[int, bytes], ...], ...]"
"""For each honest replica, the statements that it has accepted, by author."""


@dataclass(frozen=True)
class FloodModel:
    """A virtual node whose last replicas are Byzantine; the first of these are authors of two statements."""

    size: int
    byzantine: int
    authors: int = 1
    flood: type[SignedBroadcast] = SignedBroadcast

    def disagreement(self, own: Sequence[bytes]) -> Taken | None:
        """The final statements of honest replicas, if two replicas differ or one lacks an honest statement; None if
        that never happens."""
        floods = [self._flood(index) for index in range(1, self.honest + 1)]
        said = [flood.announce(word) for flood, word in zip(floods, own, strict=True)]
        states = [(floods, said)]
        for number in range(1, floods[0].rounds + 1):
            after: dict[Taken, tuple[list[SignedBroadcast], list[EndorsedStatement]]] = {}
            for floods, sent in states:
                for moved, relayed in self._rounds(floods, sent, number):
                    after.setdefault((*map(_accepted_statements, moved), *_names(relayed)), (moved, relayed))
            states = list(after.values())
        for floods, _ in states:
            words = [flood.sole_payloads() for flood in floods]
            kept = all(word == words[0].get(index) for index, word in enumerate(own, 1))
            if words[1:] != words[:-1] or not kept:
                return tuple(map(_accepted_statements, floods))
        return None

    @property
    def honest(self) -> int:
        return self.size - self.byzantine

    def _rounds(
        self, floods: Sequence[SignedBroadcast], sent: Sequence[EndorsedStatement], number: int
    ) -> Iterator[tuple[list[SignedBroadcast], list[EndorsedStatement]]]:
        """One round: every honest replica receives the messages of all honest replicas, and those that the adversary
        chooses."""
        lies = [self._lie(author, word, sent, floods) for author in self._liars()[: self.authors] for word in _WORDS]
        for chosen in product((False, True), repeat=len(lies) * len(floods)):
            moved = [self._copy(flood) for flood in floods]
            choices = iter(chosen)
            for flood in moved:
                for vouched in sent:
                    flood.accept(vouched, number)
                for lie in lies:
                    if next(choices):
                        flood.accept(lie, number)
            yield moved, [vouched for flood in moved for vouched in flood.relay()]

    def _lie(
        self, author: int, word: bytes, sent: Sequence[EndorsedStatement], floods: Sequence[SignedBroadcast]
    ) -> EndorsedStatement:
        """The statement with every signature that the adversary has on it."""
        seen = [*sent, *(each for flood in floods for each in flood.statements_of(author))]
        vouchers = {
            index: by
            for each in seen
            if (each.author, each.payload) == (author, word)
            for index, by in each.endorsements
        }
        for liar in self._liars():
            own = self._flood(liar)
            if liar != author:
                own.accept(self._flood(author).announce(word), 1)
                vouchers |= dict(own.statements_of(author)[0].endorsements)
        said = self._flood(author).announce(word)
        return EndorsedStatement(author, word, said.signature, tuple(sorted(vouchers.items())))

    def _liars(self) -> list[int]:
        return list(range(self.honest + 1, self.size + 1))

    def _flood(self, index: int) -> SignedBroadcast:
        scheme = Scheme(bytes(16), 0, self.size)
        roster, keys = (
            ReplicaKeys(nodes=1),
            [SigningKey(Secret(bytes([each]) * 32)) for each in range(1, self.size + 1)],
        )
        roster.add(scheme, [key.public for key in keys])
        return self.flood(b"context", ReplicaId(scheme, index), roster, keys[index - 1])

    def _copy(self, flood: SignedBroadcast) -> SignedBroadcast:
        made = self._flood(flood._own_id.index)
        made._accepted = {author: dict(taken) for author, taken in flood._accepted.items()}
        made._fresh = list(flood._fresh)
        return made


def _accepted_statements(flood: SignedBroadcast) -> tuple[tuple[int, bytes], ...]:
    return tuple((author, word) for author, taken in sorted(flood._accepted.items()) for word in sorted(taken))


def _names(relayed: Sequence[EndorsedStatement]) -> Taken:
    """The signers of each statement in transit: all that the next round depends on."""
    return tuple(sorted(((each.author, each.payload), *((signer, b"") for signer in each.signers)) for each in relayed))


_WORDS = (b"one", b"other")
