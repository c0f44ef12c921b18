"""A hostile publisher: on the path of a node's interpreter, this poisons the publications whose body says so.

Only encoders of publications are changed, and none of what reads. The publication keeps its fields, and gets one more
under a key that nobody knows: a nest of arrays.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import msgspec

LEVELS = int(os.environ.get("POISON_LEVELS", "1500"))
ENCODERS = ("veilcast.core.publication", "veilcast.brokers.content.sealed_publication", "veilcast.relay.paper")
HEAD, BODY = b"\x82\xa5pairs", b"\xa4body\xc4\x06POISON"
NEST = b"\xa1z" + b"\x91" * LEVELS + b"\x90"

_Encoder: Any = msgspec.msgpack.Encoder


class Poisoner:
    def __init__(self, *given: Any, **named: Any) -> None:
        self._encoder = _Encoder(*given, **named)
        self._hostile = sys._getframe(1).f_globals.get("__name__") in ENCODERS

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoder, name)

    def encode(self, value: Any) -> bytes:
        data: bytes = self._encoder.encode(value)
        if not self._hostile or BODY not in data:
            return data
        head, _, rest = data.partition(HEAD)
        return head + b"\x83" + HEAD[1:] + rest.replace(BODY, BODY + NEST)


msgspec.msgpack.Encoder = Poisoner  # type: ignore[misc, assignment]
