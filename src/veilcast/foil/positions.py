"""Positions: which candidate of an event is the true one, told by a hash chain and to nobody else.

Pure. Events of a stream are numbered, and every hundred of them have a chain of secrets, each the hash of the one
before (P3, end of III.A). The secret of an event says in which slot the truth is, and opens its body. Whoever has one
knows all that follow in its chain, and none before: so a publisher who hands out the secret of the event that it is
asked for hands out nothing that was before.

- **hardened**: the first secret of each chain comes from the topic's key, so every reader of the topic has them all,
  and nobody has to ask for anything. To ask is to tell the broker what one reads.
- **paper**: it comes from a secret of the publisher's own, who tells those whom it likes (`confirmation`).

A slot is drawn without bias: of the numbers that a hash can be, those beyond the last whole multiple of n are passed
over.
"""

from __future__ import annotations

from typing import Final

from veilcast.authority.keyring import TopicKeys
from veilcast.crypto.derive import derive
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError


class PositionChain:
    """From the event `number` on, whose secret this is, to the end of its chain."""

    def __init__(self, number: int, secret: Secret) -> None:
        self.number, self._secrets = number, [secret]

    @property
    def secret(self) -> Secret:
        return self._secrets[0]

    def covers(self, number: int) -> bool:
        return self.number <= number and chain_number(number) == chain_number(self.number)

    def at(self, number: int) -> Secret:
        """The secret of an event; walked to once, and kept."""
        if not self.covers(number):
            raise LocalError("an event before the beginning of what is known of its chain, or of another")
        while len(self._secrets) <= number - self.number:
            self._secrets.append(derive(self._secrets[-1], b"vc/foil-chain"))
        return self._secrets[number - self.number]


def chain_number(number: int) -> int:
    return number // CHAIN_EVENTS


def derive_topic_chain(keys: TopicKeys, stream: bytes, chain: int) -> PositionChain:
    """Hardened: as every member of the topic can compute it."""
    return PositionChain(chain * CHAIN_EVENTS, derive(keys.content, b"vc/foil-seed", stream, chain.to_bytes(8, "big")))


def derive_publisher_chain(secret: Secret, stream: bytes, chain: int) -> PositionChain:
    """Paper: as the publisher alone can."""
    return PositionChain(chain * CHAIN_EVENTS, derive(secret, b"vc/foil-own", stream, chain.to_bytes(8, "big")))


def true_slot(secret: Secret, n: int) -> int:
    """Where the truth of the event with this secret stands among n candidates."""
    limit, tries = (1 << 64) - (1 << 64) % n, 0
    while True:
        drawn = int.from_bytes(derive(secret, b"vc/foil-slot", bytes((tries,)), size=8).reveal(), "big")
        if drawn < limit:
            return drawn % n
        tries += 1


CHAIN_EVENTS: Final = 100
"""Events of one chain (P3)."""
