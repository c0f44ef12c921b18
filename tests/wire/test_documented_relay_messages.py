"""The table of the relay's messages in docs/wire-format.md, held to the messages and their largest encodings."""

from __future__ import annotations

import re
from pathlib import Path

from veilcast.crypto.sealed_box import OVERHEAD
from veilcast.wire import encode
from veilcast.wire import geometry as g
from veilcast.wire.base import Message
from veilcast.wire.relay import (
    TYPE_BYTES,
    Blind,
    Blinded,
    EnrolClient,
    Lease,
    LeaseAhead,
    Receipt,
    RelayDelivery,
    Release,
    ReplyCode,
    RequestReply,
    Resume,
    Submit,
)

DOCUMENT = Path(__file__).parents[2] / "docs" / "wire-format.md"
NUMBER, NAME, BOXED_KEYS = 2**32 - 1, bytes(16), bytes(64 + OVERHEAD)
SUBJECTS = ((bytes(g.SUBJECT_MAX),) * g.SUBJECTS_MAX, *[()] * (g.GROUPS_MAX - 1))
LARGEST: list[Message] = [
    EnrolClient(NUMBER, bytes(32), bytes(32), bytes(g.BOXED_SCALAR_MAX)),
    Blind(NUMBER, bytes(g.BOXED_SCALAR_MAX)),
    Blinded(NUMBER, bytes(32)),
    Lease(NUMBER, NAME, g.MOMENT_MAX, SUBJECTS, BOXED_KEYS),
    Release(NUMBER, NAME, SUBJECTS),
    Resume(NUMBER, NAME),
    Submit(NUMBER, SUBJECTS, None, bytes(g.RELAYED_MAX)),
    RequestReply(NUMBER, max(ReplyCode), bytes(g.TICKET)),
    RelayDelivery((NAME,) * g.ADDRESSEES_MAX, NAME, bytes(g.CIPHERTEXT), bytes(g.RELAYED_MAX)),
    Receipt(NAME, NAME),
    LeaseAhead(NUMBER, NAME, *(g.MOMENT_MAX,) * 3, SUBJECTS, BOXED_KEYS),
]


def test_every_message_of_the_relay_is_documented_with_its_byte_and_size() -> None:
    section = DOCUMENT.read_text().split("## The relay", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| (\d+) \| (\w+) \| .* \| ([\d,]+) \|", section, re.MULTILINE)
    documented = {int(byte): (name, int(size.replace(",", ""))) for byte, name, size in rows}
    sizes = {type(message): len(encode(message)) for message in LARGEST}
    assert documented == {byte: (kind.__name__, sizes[kind]) for byte, kind in TYPE_BYTES.items()}
    for code in ReplyCode:
        assert f"{int(code)} {code.name.lower()}" in section
