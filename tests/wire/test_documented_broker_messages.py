"""The table of the brokers' messages in docs/wire-format.md, held to the messages and their largest encodings."""

from __future__ import annotations

import re
from pathlib import Path

from veilcast.crypto.certificate import COVER_MAX, EPOCH_MAX, Certificate, CertificateChain, CertificateKind
from veilcast.wire import encode
from veilcast.wire import geometry as g
from veilcast.wire.base import Message
from veilcast.wire.brokers import (
    TYPE_BYTES,
    AgreementWord,
    BringClaim,
    Claim,
    ClaimKind,
    ConfirmContent,
    CopyRouting,
    DisputeDealing,
    FirstShare,
    FloodKind,
    ForwardContent,
    Hello,
    ItemAck,
    LastShare,
    NextShare,
    OverlayOrder,
    PullShare,
    PushShare,
    RequestBlocks,
    Routing,
    RoutingCopied,
    SessionItem,
    ShareReceived,
    VersionAdopted,
    WantKey,
    WithdrawClaim,
)

DOCUMENT = Path(__file__).parents[2] / "docs" / "wire-format.md"
NUMBER, NAME, KEY, SIGNATURE = 2**32 - 1, bytes(16), bytes(32), bytes(64)
WORDS, SHARING = bytes(g.INTEREST_MAX), bytes(g.SHARING_MAX)
LEAF = Certificate(CertificateKind.PUBLISHER, KEY, KEY, 0xFFFF_FFFF, EPOCH_MAX, NAME, COVER_MAX, SIGNATURE)
DELEGATION = Certificate(CertificateKind.DELEGATE, KEY, KEY, 0xFFFF_FFFF, EPOCH_MAX, NAME, 0, SIGNATURE)
CLAIM = Claim(
    ClaimKind.SUBSCRIPTION, NAME, NUMBER, g.MOMENT_MAX, WORDS, KEY, CertificateChain(LEAF, DELEGATION), KEY, SIGNATURE
)
ROUTING = Routing(NAME, WORDS, NAME, NUMBER, bytes(8))
MANIFEST = 128
"""The size for a content of one block; a content of many blocks has smaller ones."""
INDICES = tuple(range(1, 256))
LARGEST: list[Message] = [
    Hello(NAME, NAME, NUMBER),
    SessionItem(NUMBER, bytes(g.ITEM_MAX)),
    ItemAck(NUMBER),
    CLAIM,
    WithdrawClaim(NAME, SIGNATURE),
    ForwardContent(ROUTING, bytes(MANIFEST), bytes(g.RELAYED_MAX), 255, 255),
    RequestBlocks(NAME, INDICES),
    ConfirmContent(NAME, 255),
    FirstShare(NAME, SHARING),
    NextShare(NAME, SHARING),
    AgreementWord(NAME, 255, NAME, FloodKind.SETTLING, SHARING),
    DisputeDealing(NAME, 255, KEY, INDICES),
    ShareReceived(NAME, 255),
    LastShare(NAME, SHARING),
    WantKey(NAME, NAME),
    OverlayOrder(SHARING),
    VersionAdopted(NUMBER, True),
    CopyRouting(NUMBER),
    PullShare(NAME, NAME, SIGNATURE),
    PushShare(NAME, NAME, SHARING),
    RoutingCopied(NUMBER),
    BringClaim(CLAIM, SIGNATURE),
]


def test_every_message_of_brokers_is_documented_with_its_byte_and_size() -> None:
    section = DOCUMENT.read_text().split("## Brokers", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| (\d+) \| (\w+) \| .* \| ([\d,]+) \|", section, re.MULTILINE)
    documented = {int(byte): (name, int(size.replace(",", ""))) for byte, name, size in rows}
    sizes = {type(message): len(encode(message)) for message in LARGEST}
    assert documented == {byte: (kind.__name__, sizes[kind]) for byte, kind in TYPE_BYTES.items()}


def test_all_that_is_said_in_an_item_fits_one() -> None:
    for message in LARGEST:
        if not isinstance(message, Hello | SessionItem | ItemAck):
            assert len(encode(message)) <= g.ITEM_MAX, type(message).__name__
