"""Every size on the wire, in bytes unless the name says otherwise. Nothing else in the package writes one down.

A cell is what an observer sees: one size, always. Its payload carries whole small messages or fragments of long ones;
the rest of the datagram is header, counter and tag of the link. `docs/wire-format.md` draws it.
"""

from __future__ import annotations

from typing import Final

from veilcast.crypto import chain, derive, seal, sign, token

TOKEN: Final = token.TOKEN
CHAIN: Final = chain.VALUE
SIGNATURE: Final = sign.SIGNATURE
PUBLIC_KEY: Final = sign.PUBLIC
FINGERPRINT: Final = derive.FINGERPRINT

CELL: Final = 1200
"""One datagram on the wire: below the IPv6 minimum MTU of 1,280 with every header."""

CELL_PAYLOAD: Final = 1024

ADDRESS_MAX: Final = 128
"""An address as text: an onion name with its port has 68 characters, an IPv6 literal with zone fewer."""

NEIGHBOURS_MAX: Final = 64
"""How many addresses one message may hand over."""

BODY_MAX: Final = 32 * 1024
"""A publication's content before sealing."""

SEALED_BODY_MAX: Final = BODY_MAX + seal.OVERHEAD

PART_MAX: Final = 16 * 1024
"""One part of something too long for a message."""

PARTS_MAX: Final = 1024

HEARTBEAT_MAX: Final = 32
"""How many messages one heartbeat may carry."""

MANAGEMENT_MAX: Final = NEIGHBOURS_MAX * (ADDRESS_MAX + 2) * 2 + 256
"""The largest management message that a heartbeat must have room for (P0 4.1): a swap that hands over two full sets."""

MESSAGE_MAX: Final = 48 * 1024
"""No message is longer; nothing longer is even looked at."""

LENGTH_PREFIX: Final = 4
"""Before the content of a padded block."""
