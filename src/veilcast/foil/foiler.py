"""The foiler of one topic: makes an event's candidates, the truth among them, attribute by attribute.

Each attribute has its own generator, and each generator its own slots. The foiler aligns them so that the truth is
first in all of them, and the content of a slot stays in it: a fake moves in all attributes at once, as the truth does.
A changing pairing would reveal the truth, whose pairing never changes. A dependent attribute has no generator: its
fakes are drawn given those of its primary, candidate by candidate (`generators.factory`).

`draw` returns the generators' next state with the candidates, and `commit` adopts it once the event is accepted: a
rejected event has moved nothing.

The state is stored on disk (`pack_states`), so that fakes continue after a restart. A publisher that lost its fakes
would have to start them all at its next value, which is thereby revealed as the truth; and if all candidates but one
jump, that one is true. Only states of this room's generators can be read back, and only under the settings that they
were written under: under other settings the fakes start afresh, and the next value is public.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from veilcast.crypto.derive import digest
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import LocalError, TamperedError
from veilcast.foil.config import AttributeConfig, FoilConfig
from veilcast.foil.generators.base import swap_candidates
from veilcast.foil.generators.categories import PastVectors
from veilcast.foil.generators.factory import generator_name, make_dependent, make_generator
from veilcast.foil.generators.forecast_moves import ForecastState
from veilcast.foil.generators.movers import SignFlipState
from veilcast.foil.generators.trajectory import Lineages
from veilcast.foil.random_source import SecretRandom
from veilcast.foil.topic_names import Coordinate, EventCell, levels_per_attribute, locate_publication
from veilcast.machine import Entropy, Publication, Value
from veilcast.topics import Integers, Reals, Schema, Strings


class DrawnCandidates(NamedTuple):
    """Candidates, the truth first, and the generators' state after them."""

    places: tuple[EventCell, ...]
    states: tuple[Any, ...]


class Foiler:
    """`state` is the packed state of an earlier run; under other settings it is ignored, and the fakes start afresh."""

    def __init__(self, config: FoilConfig, schema: Schema, entropy: Entropy, state: bytes | None = None) -> None:
        self._config, self._schema, self._random = config, schema, SecretRandom(entropy)
        self._bits = levels_per_attribute(schema)
        self._generators = [make_generator(domain, config) for domain in schema.domains]
        self._dependents = [make_dependent(domain, schema, config) for domain in schema.domains]
        self._words = {
            domain.attribute: [str(word) for word in config.attributes[domain.attribute].values]
            for domain in schema.domains
            if domain.attribute in self.foiled_attributes and isinstance(domain, Strings)
        }
        self._settings = self._fingerprint()
        self._states = self._restore(state)

    @property
    def foiled_attributes(self) -> set[str]:
        """The attributes in which candidates differ for the broker."""
        every = zip(self._schema.domains, self._generators, self._dependents, strict=True)
        return {domain.attribute for domain, *makers in every if makers != [None, None]}

    def draw(self, publication: Publication) -> DrawnCandidates:
        """`LocalError` for a value that cannot be published or was not declared."""
        true = locate_publication(publication, self._schema)
        declared = dict(publication.pairs)
        values: list[Any] = [
            self._to_number(domain, declared[domain.attribute])
            if coordinate is not None and domain.attribute in self.foiled_attributes
            else None
            for domain, coordinate in zip(self._schema.domains, true, strict=True)
        ]
        states, numbers = list(self._states), [_NOTHING] * len(values)
        for at, generator in enumerate(self._generators):
            if generator is not None and values[at] is not None:
                states[at], candidates, position = generator.next(states[at], values[at], self._random)
                numbers[at] = swap_candidates(candidates, position, np.zeros(1, dtype=np.int64))[0]
        for at in range(len(values)):
            if self._dependents[at] is not None and values[at] is not None:
                numbers[at] = self._draw_dependent(at, values, numbers)
        columns = []
        for domain, bits, coordinate, found in zip(self._schema.domains, self._bits, true, numbers, strict=True):
            column = [coordinate] * (self._config.k_p + 1)
            if found is not None:
                column[1:] = [self._to_coordinate(domain, bits, candidate) for candidate in found[1:]]
            columns.append(column)
        places = tuple(zip(*columns, strict=True)) if columns else ((),) * (self._config.k_p + 1)
        return DrawnCandidates(places, tuple(states))

    def commit(self, drawn: DrawnCandidates) -> None:
        self._states = drawn.states

    def pack_state(self, drawn: DrawnCandidates) -> bytes:
        """The state from which a next run continues, if this is its last event."""
        return self._settings + pack_states(drawn.states)

    def _draw_dependent(self, at: int, values: list[Any], numbers: list[Any]) -> Any:
        """The candidates of a dependent attribute, given those of its primary."""
        dependent = self._dependents[at]
        assert dependent is not None
        primaries = numbers[dependent.primary]
        if primaries is None:
            own, primary = (self._schema.domains[place].attribute for place in (at, dependent.primary))
            raise LocalError(f"{own!r} depends on {primary!r}, and the event has none")
        dependent.law.check(values[dependent.primary], values[at])
        return dependent.law.draw(primaries, self._random)

    def _to_number(self, domain: Strings | Integers | Reals, value: Value) -> Any:
        """The value in the generator's representation."""
        if not isinstance(domain, Strings):
            return np.array([value], dtype=np.float64)
        words = self._words[domain.attribute]
        if value not in words:
            raise LocalError(f"{value!r} is not among the declared values of {domain.attribute!r}")
        return np.array([words.index(str(value))], dtype=np.int64)

    def _to_coordinate(self, domain: Strings | Integers | Reals, bits: int, candidate: Any) -> Coordinate:
        if isinstance(domain, Strings):
            return self._words[domain.attribute][int(candidate)]
        value = int(candidate) if isinstance(domain, Integers) else float(candidate)
        return domain.cell(value) >> (domain.bits - bits)

    def _restore(self, state: bytes | None) -> tuple[Any, ...]:
        initial = tuple(
            None if generator is None else generator.begin(1, self._random) for generator in self._generators
        )
        if state is None or state[:_SETTINGS] != self._settings:
            return initial
        states = unpack_states(state[_SETTINGS:])
        if len(states) != len(initial) or any(
            type(one) is not type(two) for one, two in zip(states, initial, strict=True)
        ):
            raise TamperedError("the state of a generator is of another topic")
        return states

    def _fingerprint(self) -> bytes:
        config = self._config
        attributes = [config.attributes.get(domain.attribute, AttributeConfig()) for domain in self._schema.domains]
        declared = [_settings_to_compare(attribute, generator_name(attribute, config)) for attribute in attributes]
        settings = msgspec.msgpack.encode((self._schema, config.profile, config.generator, config.k_p, declared))
        return digest(settings, purpose=b"vc/foil-settings", size=_SETTINGS)


def _settings_to_compare(attribute: AttributeConfig, generator: str) -> dict[str, Any]:
    """The settings of an attribute under their first names and without later ones that are not used, so that stored
    states stay valid; and the generator, where the history decides."""
    settings = msgspec.structs.asdict(attribute)
    del settings["primary"]
    for field in msgspec.structs.fields(AttributeConfig):
        if field.name in _LATER and settings[field.name] == field.default:
            del settings[field.name]
    later = {"fitted": generator} if generator in _FITTED else {}
    return settings | {"master": attribute.depends_on} | later


def pack_states(states: tuple[Any, ...]) -> bytes:
    return _ENCODER.encode(_encode_value(states))


def unpack_states(data: bytes) -> tuple[Any, ...]:
    """`TamperedError` for data that `pack_states` did not write."""
    decoded = _DECODER.decode(data)
    try:
        return tuple(map(_decode_value, decoded))
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise TamperedError(_DAMAGED) from error


def _encode_value(value: Any) -> Any:
    match value:
        case None | int():
            return value
        case np.ndarray():
            return {"array": value.dtype.str, "shape": value.shape, "bytes": value.tobytes()}
        case tuple() | list():
            return [_encode_value(each) for each in value]
        case _ if is_dataclass(value) and type(value) in _NAMES:
            names = [field.name for field in fields(value)]
            return {"kind": _NAMES[type(value)], "fields": [_encode_value(getattr(value, name)) for name in names]}
        case _:
            raise TypeError(f"no generator has a state of type {type(value).__name__}")


def _decode_value(value: Any) -> Any:
    match value:
        case None | int():
            return value
        case {"array": str(kind), "shape": shape, "bytes": bytes(data)}:
            if kind not in _ARRAYS:
                raise ValueError("not an array of a state")
            return np.frombuffer(data, dtype=kind).reshape(shape).copy()
        case {"kind": str(kind), "fields": list(values)}:
            return _KINDS[kind](*map(_decode_value, values))
        case list():
            return tuple(map(_decode_value, value))
        case _:
            raise ValueError("not a state")


_KINDS: Final[dict[str, Any]] = {
    "Past": PastVectors,
    "Lineages": Lineages,
    "Coins": SignFlipState,
    "Forecast": ForecastState,
}
"""State classes by the names that they have in stored records."""
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}
_ARRAYS: Final = ("<f8", "<i8")
_DAMAGED: Final = "the state of a generator is damaged"
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = MsgpackDecoder(list[Any], TamperedError, _DAMAGED)
_LATER: Final = ("period", "phase", "buckets", "cache", "match")
_FITTED: Final = ("forecast", "counter", "jumps")
_SETTINGS: Final = 16
"""Bytes of the fingerprint of the settings, in front of a packed state."""
_NOTHING: Any = None
"""Marks an attribute that is not foiled, or missing."""
