"""Decoys: fake interests of the same shape as a true one, at random places of the domain (P3, step 1).

Pure. A range keeps its width, one that reaches to an end of the domain keeps reaching there, a word becomes another
word. What is not asked for stays unasked. So the number of filters tells no more than it must, and where a broker sees
k + 1 such areas, any of them might be meant, as far as it does not know beforehand what people ask for.

The same interest has the same decoys, in every epoch and every life of its owner: were they drawn anew, the true one
would be what all sets have in common. So they are drawn with a key of the member's own.
"""

from __future__ import annotations

from itertools import count
from typing import Final

import msgspec

from veilcast.crypto.derive import derive
from veilcast.crypto.secret import Secret
from veilcast.foil.chance import SecretChance, pick
from veilcast.foil.config import Attribute, FoilConfig
from veilcast.foil.naming import Area, Side, resolution
from veilcast.machine import Entropy
from veilcast.topics import Schema, Strings


def decoys_of(area: Area, topic: str, schema: Schema, config: FoilConfig, key: Secret) -> list[Area]:
    """Up to `k_s` areas, all different; fewer where there are no more of this shape."""
    chance = SecretChance(_stream(key, topic.encode(), msgspec.msgpack.encode(area)))
    found: dict[Area, None] = {area: None}
    for _ in range(_TRIES * config.k_s):
        if len(found) > config.k_s:
            break
        found[tuple(_moved(side, place, schema, config, chance) for place, side in enumerate(area))] = None
    return list(found)[1:]


def _moved(side: Side, place: int, schema: Schema, config: FoilConfig, chance: SecretChance) -> Side:
    if side is None:
        return None
    domain = schema.domains[place]
    if isinstance(side, str):
        told = config.attributes.get(domain.attribute, Attribute())
        # Where nobody said what words there are, one that nobody has said will do: to the broker all are tags.
        words = [str(word) for word in told.values] or [f"{side}{number}" for number in range(config.k_s + 1)]
        return words[_below(len(words), chance)]
    first, last = side
    assert not isinstance(domain, Strings), "a side of two cells is of a number"
    top, width = domain.cell(domain.high) >> (domain.bits - resolution(schema)[place]), last - first
    if first == 0 and last >= top:
        return side
    if first == 0:
        return 0, _below(top, chance)
    if last >= top:
        return top - _below(top, chance), top
    start = 1 + _below(max(1, top - width - 1), chance)
    return start, start + width


def _below(n: int, chance: SecretChance) -> int:
    return int(pick(chance, n, (1,))[0])


def _stream(key: Secret, *parts: bytes) -> Entropy:
    """Bytes without end, from a key and what they are for."""
    blocks = count()

    def drawn(size: int) -> bytes:
        return derive(key, b"vc/foil-decoy", *parts, next(blocks).to_bytes(8, "big"), size=size).reveal()

    return drawn


_TRIES: Final = 16
