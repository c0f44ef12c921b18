"""The table of the tree's messages in docs/wire-format.md, held to the messages and their largest encodings."""

from __future__ import annotations

import re
from pathlib import Path

from veilcast.wire import encode
from veilcast.wire import geometry as g
from veilcast.wire.base import Message
from veilcast.wire.tree import (
    TYPE_BYTES,
    DirectorySignature,
    EnrolNode,
    FetchListing,
    ForwardPublication,
    Install,
    ListedNode,
    ListingHead,
    ListingPage,
    ListingStage,
    NodeEnrolled,
    Offer,
    RefusalCode,
    RequestAck,
    RequestRefused,
)

DOCUMENT = Path(__file__).parents[2] / "docs" / "wire-format.md"
NUMBER, NAME, KEY, MOMENT, PAGE = 2**32 - 1, bytes(16), bytes(32), g.MOMENT_MAX, g.PAGES_MAX - 1
ADDRESS = "a" * g.ADDRESS_MAX
SIGNED = ((bytes(g.CERTIFICATE_MAX),) * 2, bytes(g.SIGNATURE))
TAGS = ((bytes(g.TAG),) * g.SUBJECTS_MAX, *[()] * (g.GROUPS_MAX - 1))
LARGEST: list[Message] = [
    EnrolNode(NUMBER, ADDRESS, KEY, MOMENT, MOMENT, *SIGNED, bytes(g.SIGNATURE), bytes(g.PROOF)),
    NodeEnrolled(NUMBER, MOMENT),
    FetchListing(NUMBER, MOMENT, PAGE, bytes(g.PROOF), max(ListingStage)),
    ListingHead(
        NUMBER, MOMENT, MOMENT, g.LISTED_MAX, (KEY,) * g.PAGES_MAX, (DirectorySignature(*SIGNED),) * g.DIRECTORIES_MAX
    ),
    ListingPage(NUMBER, MOMENT, PAGE, (ListedNode(ADDRESS, KEY, MOMENT, MOMENT),) * g.PAGE_NODES),
    Install(NUMBER, MOMENT, TAGS, bytes(g.INSTALL_BLOCK), bytes(g.PROOF)),
    Offer(NUMBER, NAME, TAGS, None, bytes(g.RELAYED_MAX), bytes(g.PROOF)),
    ForwardPublication(NUMBER, NAME, NAME, bytes(g.RELAYED_MAX)),
    RequestAck(NUMBER),
    RequestRefused(NUMBER, max(RefusalCode)),
]


def test_every_message_of_the_tree_is_documented_with_its_byte_and_size() -> None:
    section = DOCUMENT.read_text().split("## The tree", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| (\d+) \| (\w+) \| .* \| ([\d,]+) \|", section, re.MULTILINE)
    documented = {int(byte): (name, int(size.replace(",", ""))) for byte, name, size in rows}
    sizes = {type(message): len(encode(message)) for message in LARGEST}
    assert documented == {byte: (kind.__name__, sizes[kind]) for byte, kind in TYPE_BYTES.items()}
    for code in RefusalCode:
        assert f"{int(code)} {code.name.lower()}" in section


def test_a_full_listing_of_the_longest_addresses_fits_its_messages() -> None:
    assert g.PAGES_MAX * g.PAGE_NODES >= g.LISTED_MAX
    assert all(len(encode(message)) <= g.MESSAGE_MAX for message in LARGEST)
