"""Scripts: several records for one machine in one input.

A record is a step (1 byte), a length (2 bytes) and content. The step decides which peer sends the content and how far
the clock moves before; each target defines its exact meaning. Bytes that are no whole record are the last record.
"""

from __future__ import annotations

HEAD = 3
RECORDS_MAX = 32
"""Most records of one input that a machine receives."""


def record(content: bytes, step: int) -> bytes:
    content = content[:0xFFFF]
    return bytes((step,)) + len(content).to_bytes(2, "big") + content


def script(records: list[tuple[int, bytes]]) -> bytes:
    return b"".join(record(content, step) for step, content in records)


def read_script(data: bytes) -> list[tuple[int, bytes]]:
    """Step and content of each record, in order."""
    records: list[tuple[int, bytes]] = []
    at = 0
    while at + HEAD <= len(data) and len(records) < RECORDS_MAX:
        length = int.from_bytes(data[at + 1 : at + HEAD], "big")
        records.append((data[at], data[at + HEAD : at + HEAD + length]))
        at += HEAD + length
    return records
