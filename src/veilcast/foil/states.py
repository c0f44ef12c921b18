"""States of generators as bytes and back, so that fakes go on from where they were when a publisher starts anew.

Pure. A publisher that forgot its fakes would have to start them all at its next value, which thereby is known for the
truth; and where all candidates jump but one, that one is true. So states are kept on the disk.

Only what a generator of this room can have comes back, and only for the settings that it was written under: under
others the fakes begin anew, and the next value is public.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, Final

import msgspec
import numpy as np

from veilcast.decoding import MsgpackDecoder
from veilcast.errors import TamperedError
from veilcast.foil.recall import Past
from veilcast.foil.signflip import Coins
from veilcast.foil.trajectory import Lineages


def pack(states: tuple[Any, ...]) -> bytes:
    return _ENCODER.encode(_plain(states))


def unpack(data: bytes) -> tuple[Any, ...]:
    """`TamperedError` for what was not packed here."""
    plain = _DECODER.decode(data)
    try:
        return tuple(map(_whole, plain))
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise TamperedError(_DAMAGED) from error


def _plain(value: Any) -> Any:
    match value:
        case None | int():
            return value
        case np.ndarray():
            return {"array": value.dtype.str, "shape": value.shape, "bytes": value.tobytes()}
        case tuple() | list():
            return [_plain(each) for each in value]
        case _ if is_dataclass(value) and type(value) in _KINDS.values():
            names = [field.name for field in fields(value)]
            return {"kind": type(value).__name__, "fields": [_plain(getattr(value, name)) for name in names]}
        case _:
            raise TypeError(f"no generator has a state of type {type(value).__name__}")


def _whole(value: Any) -> Any:
    match value:
        case None | int():
            return value
        case {"array": str(kind), "shape": shape, "bytes": bytes(data)}:
            if kind not in _ARRAYS:
                raise ValueError("not an array of a state")
            return np.frombuffer(data, dtype=kind).reshape(shape).copy()
        case {"kind": str(kind), "fields": list(values)}:
            return _KINDS[kind](*map(_whole, values))
        case list():
            return tuple(map(_whole, value))
        case _:
            raise ValueError("not a state")


_KINDS: Final[dict[str, Any]] = {kind.__name__: kind for kind in (Past, Lineages, Coins)}
_ARRAYS: Final = ("<f8", "<i8")
_DAMAGED: Final = "the state of a generator is damaged"
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = MsgpackDecoder(list[Any], TamperedError, _DAMAGED)
