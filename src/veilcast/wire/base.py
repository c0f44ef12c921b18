"""The base of every message, and the bounded field types that messages of several modes share.

A message is an immutable value. No message whose fields break a bound can be sent or received (`codec` checks both
ways). Sizes come from `geometry`.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from veilcast.wire import geometry as g


class Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The base of every message. Its fields are a MessagePack array, so their names are not on the wire."""


Signature: TypeAlias = Annotated[bytes, Meta(min_length=g.SIGNATURE, max_length=g.SIGNATURE)]
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=g.ADDRESS_MAX)]
"""An address as text."""
Proof: TypeAlias = Annotated[bytes, Meta(min_length=g.PROOF, max_length=g.PROOF)]
Counter: TypeAlias = Annotated[int, Meta(ge=0, le=0xFFFF_FFFF)]
Moment: TypeAlias = Annotated[int, Meta(ge=0, le=g.MOMENT_MAX)]
"""Unix time in microseconds."""
