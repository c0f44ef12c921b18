"""The table of the brokers' messages in docs/wire-format.md, held to the messages and their largest encodings."""

from __future__ import annotations

import re
from pathlib import Path

from veilcast.crypto.certificate import COVER_MAX, EPOCH_MAX, Certificate, Chain, Kind
from veilcast.wire import encode
from veilcast.wire import geometry as g
from veilcast.wire.brokers import (
    TYPE_BYTES,
    Bring,
    Carry,
    Claim,
    ClaimKind,
    Copied,
    CopyRouting,
    Disputed,
    Done,
    FirstShare,
    Flood,
    Heard,
    Hello,
    Item,
    LastShare,
    Missing,
    NextShare,
    Order,
    Pull,
    Push,
    Routing,
    Spoken,
    Stands,
    Taken,
    WantKey,
    Withdraw,
)
from veilcast.wire.messages import Message

DOCUMENT = Path(__file__).parents[2] / "docs" / "wire-format.md"
NUMBER, NAME, KEY, SIGNATURE = 2**32 - 1, bytes(16), bytes(32), bytes(64)
WORDS, SHARING = bytes(g.INTEREST_MAX), bytes(g.SHARING_MAX)
LEAF = Certificate(Kind.PUBLISHER, KEY, KEY, 0xFFFF_FFFF, EPOCH_MAX, NAME, COVER_MAX, SIGNATURE)
DELEGATION = Certificate(Kind.DELEGATE, KEY, KEY, 0xFFFF_FFFF, EPOCH_MAX, NAME, 0, SIGNATURE)
CLAIM = Claim(ClaimKind.SUBSCRIPTION, NAME, NUMBER, g.MOMENT_MAX, WORDS, KEY, Chain(LEAF, DELEGATION), KEY, SIGNATURE)
ROUTING = Routing(NAME, WORDS, NAME, NUMBER, bytes(8))
MANIFEST = 128
"""Of a content of one block; one of many blocks has smaller ones."""
INDICES = tuple(range(1, 256))
LARGEST: list[Message] = [
    Hello(NAME, NAME, NUMBER),
    Item(NUMBER, bytes(g.ITEM_MAX)),
    Heard(NUMBER),
    CLAIM,
    Withdraw(NAME, SIGNATURE),
    Carry(ROUTING, bytes(MANIFEST), bytes(g.RELAYED_MAX), 255, 255),
    Missing(NAME, INDICES),
    Done(NAME, 255),
    FirstShare(NAME, SHARING),
    NextShare(NAME, SHARING),
    Spoken(NAME, 255, NAME, Flood.SETTLING, SHARING),
    Disputed(NAME, 255, KEY, INDICES),
    Taken(NAME, 255),
    LastShare(NAME, SHARING),
    WantKey(NAME, NAME),
    Order(SHARING),
    Stands(NUMBER, True),
    CopyRouting(NUMBER),
    Pull(NAME, NAME, SIGNATURE),
    Push(NAME, NAME, SHARING),
    Copied(NUMBER),
    Bring(CLAIM, SIGNATURE),
]


def test_every_message_of_brokers_is_documented_with_its_byte_and_size() -> None:
    section = DOCUMENT.read_text().split("## Brokers", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| (\d+) \| (\w+) \| .* \| ([\d,]+) \|", section, re.MULTILINE)
    documented = {int(byte): (name, int(size.replace(",", ""))) for byte, name, size in rows}
    sizes = {type(message): len(encode(message)) for message in LARGEST}
    assert documented == {byte: (kind.__name__, sizes[kind]) for byte, kind in TYPE_BYTES.items()}


def test_all_that_is_said_in_an_item_fits_one() -> None:
    for message in LARGEST:
        if not isinstance(message, Hello | Item | Heard):
            assert len(encode(message)) <= g.ITEM_MAX, type(message).__name__
