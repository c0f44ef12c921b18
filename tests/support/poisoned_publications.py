"""A hostile publisher: its machine routes its publications correctly, and their sealed content is poison.

Its keys are good, so every subscriber opens what it sealed. `Raw` fields are encoded as the bytes that they hold, so
the publishing machine is the honest one.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import msgspec

from veilcast.errors import LocalError
from veilcast.machine import Address, Publication
from veilcast.sim.world import World
from veilcast.sim.wrappers import unwrap


def make_poisons(publication: Publication) -> dict[str, Publication]:
    """Variants of a publication, by what is wrong with what readers find in them."""
    encoded, label = msgspec.msgpack.encode(publication.pairs), publication.pairs[0]
    attributes = [name for name, _ in publication.pairs[1:]] or ["level"]
    made: dict[str, Publication] = {
        f"{levels:,} levels under an unknown key": ExtendedPublication(
            publication.pairs, b"", msgspec.Raw(encode_nested(levels))
        )
        for levels in _LEVELS
    }
    made["an unknown key"] = ExtendedPublication(publication.pairs, b"", msgspec.Raw(b"\x01"))
    bodies = {
        "levels": encode_nested(1_500),
        "text that is no UTF-8": b"\xa2\xff\xfe",
        "a number": b"\xcf" + b"\xff" * 8,
    }
    made |= {f"a body of {what}": _twist(publication, encoded, body) for what, body in bodies.items()}
    for what, value in _VALUES.items():
        pairs = [msgspec.msgpack.encode(label)]
        pairs += [b"\x92" + msgspec.msgpack.encode(name) + value for name in attributes]
        made[f"attributes that are {what}"] = _twist(publication, _array(pairs), b"\xc4\x00")
    many = {"no pairs": [], "the same pair 1,000 times": [msgspec.msgpack.encode(label)] * 1_000}
    many["a name of 10,000 letters"] = [msgspec.msgpack.encode(("a" * 10_000, 1)), msgspec.msgpack.encode(label)]
    return made | {what: _twist(publication, _array(pairs), b"\xc4\x00") for what, pairs in many.items()}


def publish_poison(world: World, publication: Publication, addresses: tuple[Address, ...], at_us: int) -> None:
    """Let every publisher among these send every variant, one each 100 ms from then on."""
    for number, poison in enumerate(make_poisons(publication).values()):
        for address in addresses:
            world.after(at_us + number * _EVERY_US, partial(_send, world, address, poison))


def _send(world: World, address: Address, poison: Publication) -> None:
    def publish(machine: Any, now: int) -> None:
        member = unwrap(machine)
        if hasattr(member, "publish"):
            try:
                member.publish(poison, now)
            except LocalError:
                return  # No publisher, or one with too much under way.

    if world.machine(address) is not None:
        world.call(address, publish)


class ExtendedPublication(Publication, frozen=True):
    """A publication with one more field, under a key that nobody knows."""

    z: msgspec.Raw = msgspec.Raw()


def _twist(publication: Publication, pairs: bytes, body: bytes) -> Publication:
    """A publication that is routed by the pairs of another, and encoded with these."""
    fields: list[Any] = [
        ("pairs", Any, publication.pairs),
        ("body", bytes, b""),
        ("sealed_pairs", msgspec.Raw, msgspec.Raw()),
        ("sealed_body", msgspec.Raw, msgspec.Raw()),
    ]
    names = {"pairs": "hidden", "body": "hidden too", "sealed_pairs": "pairs", "sealed_body": "body"}
    kind = msgspec.defstruct("Twisted", fields, rename=names, omit_defaults=True, frozen=True)
    made: Any = kind(sealed_pairs=msgspec.Raw(pairs), sealed_body=msgspec.Raw(body))
    return made  # type: ignore[no-any-return]


def encode_nested(levels: int) -> bytes:
    return b"\x91" * levels + b"\x90"


def _array(elements: list[bytes]) -> bytes:
    return b"\xdc" + len(elements).to_bytes(2, "big") + b"".join(elements)


_LEVELS: Final = (40, 1_500, 30_000)
_EVERY_US: Final = 100_000
_VALUES: Final = {
    "no number": b"\xcb\x7f\xf8" + bytes(6),
    "infinite": b"\xcb\xff\xf0" + bytes(6),
    "as large as they get": b"\xcf" + b"\xff" * 8,
    "as small as they get": b"\xd3\x80" + bytes(7),
    "text": b"\xa5hello",
    "text that is no UTF-8": b"\xa2\xff\xfe",
    "nothing": b"\xc0",
    "bytes": b"\xc4\x01x",
    "levels": encode_nested(1_500),
    "of an unknown extension": b"\xd4\x7f\x00",
    "times": b"\xd6\xff\xff\xff\xff\xff",
}
