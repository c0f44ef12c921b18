"""The foiler of one topic: makes an event's candidates, the truth among them, attribute by attribute.

Each attribute has a generator of its own, and each generator its own slots. They are brought together so that the truth
is first in all of them, and what has stood in one slot stays in it: a fake goes its way in all attributes at once, as
the truth does. A pairing that changed would give the truth away, whose own never does. An attribute that depends on
another has no generator: its fakes are drawn given those of its master, candidate by candidate (`slaves`).

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
from veilcast.foil.slaves import slave_of
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
        self._slaves = [slave_of(domain, schema, config) for domain in schema.domains]
        self._words = {
            domain.attribute: [str(word) for word in config.attributes[domain.attribute].values]
            for domain in schema.domains
            if domain.attribute in self.foiled and isinstance(domain, Strings)
        }
        self._settings = self._fingerprint()
        self._states = self._restored(state)

    @property
    def foiled(self) -> set[str]:
        """The attributes in which candidates differ for the broker."""
        every = zip(self._schema.domains, self._generators, self._slaves, strict=True)
        return {domain.attribute for domain, *makers in every if makers != [None, None]}

    def draw(self, publication: Publication) -> Drawn:
        """`LocalError` for a value that cannot be published, or that nobody declared."""
        true = place_of(publication, self._schema)
        told = dict(publication.pairs)
        values: list[Any] = [
            self._number(domain, told[domain.attribute])
            if coordinate is not None and domain.attribute in self.foiled
            else None
            for domain, coordinate in zip(self._schema.domains, true, strict=True)
        ]
        states, numbers = list(self._states), [_NOTHING] * len(values)
        for at, generator in enumerate(self._generators):
            if generator is not None and values[at] is not None:
                states[at], candidates, position = generator.next(states[at], values[at], self._chance)
                numbers[at] = swapped(candidates, position, np.zeros(1, dtype=np.int64))[0]
        for at in range(len(values)):
            if self._slaves[at] is not None and values[at] is not None:
                numbers[at] = self._given(at, values, numbers)
        columns = []
        for domain, bits, coordinate, found in zip(self._schema.domains, self._bits, true, numbers, strict=True):
            column = [coordinate] * (self._config.k_p + 1)
            if found is not None:
                column[1:] = [self._coordinate(domain, bits, candidate) for candidate in found[1:]]
            columns.append(column)
        places = tuple(zip(*columns, strict=True)) if columns else ((),) * (self._config.k_p + 1)
        return Drawn(places, tuple(states))

    def keep(self, drawn: Drawn) -> None:
        self._states = drawn.states

    def packed(self, drawn: Drawn) -> bytes:
        """What the next life goes on from, if this is the last event that it hears of."""
        return self._settings + pack(drawn.states)

    def _given(self, at: int, values: list[Any], numbers: list[Any]) -> Any:
        """The candidates of a slave, by those of its master."""
        slave = self._slaves[at]
        assert slave is not None
        masters = numbers[slave.master]
        if masters is None:
            own, master = (self._schema.domains[place].attribute for place in (at, slave.master))
            raise LocalError(f"{own!r} depends on {master!r}, and the event has none")
        slave.law.check(values[slave.master], values[at])
        return slave.law.drawn(masters, self._chance)

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
_NOTHING: Any = None
"""Of an attribute that is not foiled, or not there."""
