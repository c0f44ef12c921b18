"""The foiler of one topic: makes an event's candidates, the truth among them, attribute by attribute.

Each attribute has a generator of its own, and each generator its own slots. They are brought together so that the truth
is first in all of them, and what has stood in one slot stays in it: a fake goes its way in all attributes at once, as
the truth does. A pairing that changed would give the truth away, whose own never does.

What a generator needs to go on is handed out with the candidates, and is taken up (`keep`) when the event is: an event
that could not be written down has not moved anything.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np

from veilcast.crypto.derive import digest
from veilcast.errors import LocalError, TamperedError
from veilcast.foil.chance import SecretChance
from veilcast.foil.config import Attribute, FoilConfig
from veilcast.foil.generator import swapped
from veilcast.foil.making import generator_of
from veilcast.foil.naming import Coordinate, Place, place_of, resolution
from veilcast.foil.states import pack, unpack
from veilcast.machine import Entropy, Publication, Value
from veilcast.topics import Integers, Reals, Schema, Strings


class Drawn(NamedTuple):
    """Candidates, the truth first, and what the generators go on from after them."""

    places: tuple[Place, ...]
    states: tuple[Any, ...]


class Foiler:
    """`state` is what an earlier life packed; under other settings than ours it is of no use, and all begins anew."""

    def __init__(self, config: FoilConfig, schema: Schema, entropy: Entropy, state: bytes | None = None) -> None:
        self._config, self._schema, self._chance = config, schema, SecretChance(entropy)
        self._bits = resolution(schema)
        self._generators = [generator_of(domain, config) for domain in schema.domains]
        self._words = {
            domain.attribute: [str(word) for word in config.attributes[domain.attribute].values]
            for domain, generator in zip(schema.domains, self._generators, strict=True)
            if generator is not None and isinstance(domain, Strings)
        }
        self._settings = self._fingerprint()
        self._states = self._restored(state)

    @property
    def foiled(self) -> set[str]:
        """The attributes in which candidates differ for the broker."""
        every = zip(self._schema.domains, self._generators, strict=True)
        return {domain.attribute for domain, generator in every if generator is not None}

    def draw(self, publication: Publication) -> Drawn:
        """`LocalError` for a value that cannot be published, or that nobody declared."""
        true = place_of(publication, self._schema)
        values = dict(publication.pairs)
        columns, states = [], []
        every = zip(self._schema.domains, self._bits, self._generators, self._states, true, strict=True)
        for domain, bits, generator, state, coordinate in every:
            column, after = [coordinate] * (self._config.k_p + 1), state
            if generator is not None and coordinate is not None:
                value = self._number(domain, values[domain.attribute])
                after, candidates, position = generator.next(state, value, self._chance)
                first = swapped(candidates, position, np.zeros(1, dtype=np.int64))[0]
                column[1:] = [self._coordinate(domain, bits, candidate) for candidate in first[1:]]
            columns.append(column)
            states.append(after)
        places = tuple(zip(*columns, strict=True)) if columns else ((),) * (self._config.k_p + 1)
        return Drawn(places, tuple(states))

    def keep(self, drawn: Drawn) -> None:
        self._states = drawn.states

    def packed(self, drawn: Drawn) -> bytes:
        """What the next life goes on from, if this is the last event that it hears of."""
        return self._settings + pack(drawn.states)

    def _number(self, domain: Strings | Integers | Reals, value: Value) -> Any:
        """The value as its generator knows it."""
        if not isinstance(domain, Strings):
            return np.array([value], dtype=np.float64)
        words = self._words[domain.attribute]
        if value not in words:
            raise LocalError(f"{value!r} is not among the declared values of {domain.attribute!r}")
        return np.array([words.index(str(value))], dtype=np.int64)

    def _coordinate(self, domain: Strings | Integers | Reals, bits: int, candidate: Any) -> Coordinate:
        if isinstance(domain, Strings):
            return self._words[domain.attribute][int(candidate)]
        value = int(candidate) if isinstance(domain, Integers) else float(candidate)
        return domain.cell(value) >> (domain.bits - bits)

    def _restored(self, state: bytes | None) -> tuple[Any, ...]:
        begun = tuple(None if generator is None else generator.begin(1, self._chance) for generator in self._generators)
        if state is None or state[:_SETTINGS] != self._settings:
            return begun
        states = unpack(state[_SETTINGS:])
        if len(states) != len(begun) or any(type(one) is not type(two) for one, two in zip(states, begun, strict=True)):
            raise TamperedError("the state of a generator is of another topic")
        return states

    def _fingerprint(self) -> bytes:
        config = self._config
        told = [config.attributes.get(domain.attribute, Attribute()) for domain in self._schema.domains]
        settings = msgspec.msgpack.encode((self._schema, config.profile, config.generator, config.k_p, told))
        return digest(settings, purpose=b"vc/foil-settings", size=_SETTINGS)


_SETTINGS = 16
