"""Positions: which candidate of an event is true, derived from a hash chain.

Pure. Events of a stream are numbered, and every hundred of them have a chain of secrets, each the hash of the one
before (P3, end of III.A). The secret of an event gives the slot of the truth, and opens its body. With one secret, a
member knows all later ones of its chain, and none before: so a publisher that hands out the secret of the requested
event reveals no earlier event.

- **hardened**: the first secret of each chain is derived from the topic's key, so every subscriber of the topic can
  compute them all and asks for nothing. A question would tell the broker what the subscriber reads.
- **paper**: it is derived from the publisher's own secret, and the publisher tells it to members of its choice
  (`confirmation`).

A slot is drawn without bias: hash values beyond the last whole multiple of n are skipped.
"""

from __future__ import annotations

from typing import Final

from veilcast.authority.keyring import TopicKeys
from veilcast.crypto.derive import derive
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError


class PositionChain:
    """The secrets from the event `number` on, to the end of its chain."""

    def __init__(self, number: int, secret: Secret) -> None:
        self.number, self._secrets = number, [secret]

    @property
    def secret(self) -> Secret:
        return self._secrets[0]

    def covers(self, number: int) -> bool:
        return self.number <= number and chain_number(number) == chain_number(self.number)

    def at(self, number: int) -> Secret:
        """The secret of an event; computed once, and cached."""
        if not self.covers(number):
            raise LocalError("the event precedes the known part of its chain, or belongs to another chain")
        while len(self._secrets) <= number - self.number:
            self._secrets.append(derive(self._secrets[-1], b"vc/foil-chain"))
        return self._secrets[number - self.number]


def chain_number(number: int) -> int:
    return number // CHAIN_EVENTS


def derive_topic_chain(keys: TopicKeys, stream: bytes, chain: int) -> PositionChain:
    """Hardened: any member of the topic can compute it."""
    return PositionChain(chain * CHAIN_EVENTS, derive(keys.content, b"vc/foil-seed", stream, chain.to_bytes(8, "big")))


def derive_publisher_chain(secret: Secret, stream: bytes, chain: int) -> PositionChain:
    """Paper: only the publisher can compute it."""
    return PositionChain(chain * CHAIN_EVENTS, derive(secret, b"vc/foil-own", stream, chain.to_bytes(8, "big")))


def true_slot(secret: Secret, n: int) -> int:
    """The slot of the truth among n candidates, for the event with this secret."""
    limit, tries = (1 << 64) - (1 << 64) % n, 0
    while True:
        drawn = int.from_bytes(derive(secret, b"vc/foil-slot", bytes((tries,)), size=8).reveal(), "big")
        if drawn < limit:
            return drawn % n
        tries += 1


CHAIN_EVENTS: Final = 100
"""Events of one chain (P3)."""
