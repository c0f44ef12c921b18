"""Facts that a broker reports about itself and others, signed with its key.

1. Property: nobody reports in the name of a replica, or changes its report on the way to the operator.
   Reason: the signature covers the report as canonical JSON, and is checked with the key that the signed overlay has
   for the replica. A signed report is as true as its broker: a Byzantine replica signs what it likes, and the plan
   believes what enough replicas report (`redeployment_plan`, property 1).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from veilcast.crypto.sign import SigningKey, verify
from veilcast.errors import ForgedError


def sign_facts(facts: Mapping[str, Any], signing: SigningKey) -> dict[str, Any]:
    """The facts with their signature, in hexadecimal digits."""
    return {**facts, _FIELD: signing.sign(_signed_bytes(facts), purpose=_PURPOSE).hex()}


def check_facts(facts: Mapping[str, Any], key: bytes) -> None:
    """Raise `ForgedError` unless the broker with this key has signed exactly these facts."""
    try:
        signature = bytes.fromhex(facts[_FIELD])
    except (KeyError, TypeError, ValueError) as error:
        raise ForgedError("facts without their broker's signature") from error
    verify(key, _signed_bytes(facts), signature, purpose=_PURPOSE)


def _signed_bytes(facts: Mapping[str, Any]) -> bytes:
    signed = {name: value for name, value in facts.items() if name != _FIELD}
    return json.dumps(signed, sort_keys=True, separators=(",", ":")).encode()


_FIELD: Final = "signature"
_PURPOSE: Final = b"veilcast/facts"
