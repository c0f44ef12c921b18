"""Every behaviour of Byzantine replicas in one flood of `brokers/keys/agreement.py`, on the code itself.

The search is over the real `SignedBroadcast` objects, so there is no model to drift. Replicas move in rounds, as
`receiving` has
them. In every round the adversary sees what honest replicas send before it sends (it is rushing), and delivers to each
honest replica any set of the words of its authors, with all signatures that it has by then. Signatures of Byzantine
replicas it makes; those of honest replicas it has once a word that carries them was sent.

Bounds: one node of `size` replicas; Byzantine authors have two words between which they waver; a word that is delivered
carries all signatures that the adversary has. Fewer would be taken up no sooner, for a replica asks for at least as
many as the round has.

The shortcut of `receiving` (all say the same in round 1) is not part of the search.
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
"""For each honest replica the words that it has taken up, by author."""


@dataclass(frozen=True)
class FloodModel:
    """A virtual node whose last replicas are Byzantine; the first of those are authors of two words."""

    size: int
    byzantine: int
    authors: int = 1
    flood: type[SignedBroadcast] = SignedBroadcast

    def disagreement(self, own: Sequence[bytes]) -> Taken | None:
        """What honest replicas end up with where two of them differ, or lack an honest word; None if they never do."""
        floods = [self._flood(index) for index in range(1, self.honest + 1)]
        said = [flood.announce(word) for flood, word in zip(floods, own, strict=True)]
        states = [(floods, said)]
        for number in range(1, floods[0].rounds + 1):
            after: dict[Taken, tuple[list[SignedBroadcast], list[EndorsedStatement]]] = {}
            for floods, sent in states:
                for moved, relayed in self._rounds(floods, sent, number):
                    after.setdefault((*map(_taken, moved), *_names(relayed)), (moved, relayed))
            states = list(after.values())
        for floods, _ in states:
            words = [flood.sole_payloads() for flood in floods]
            kept = all(word == words[0].get(index) for index, word in enumerate(own, 1))
            if words[1:] != words[:-1] or not kept:
                return tuple(map(_taken, floods))
        return None

    @property
    def honest(self) -> int:
        return self.size - self.byzantine

    def _rounds(
        self, floods: Sequence[SignedBroadcast], sent: Sequence[EndorsedStatement], number: int
    ) -> Iterator[tuple[list[SignedBroadcast], list[EndorsedStatement]]]:
        """One round: what honest replicas send comes to all of them, and the adversary chooses what else does."""
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
        """The word with every signature that the adversary has on it."""
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


def _taken(flood: SignedBroadcast) -> tuple[tuple[int, bytes], ...]:
    return tuple((author, word) for author, taken in sorted(flood._accepted.items()) for word in sorted(taken))


def _names(relayed: Sequence[EndorsedStatement]) -> Taken:
    """What is on its way, as far as the next round depends on it: who has signed what."""
    return tuple(sorted(((each.author, each.payload), *((signer, b"") for signer in each.signers)) for each in relayed))


_WORDS = (b"one", b"other")
