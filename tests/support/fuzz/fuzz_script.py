"""Scripts: several records for one machine in one input.

A record is a step (1 byte), a length (2 bytes) and content. The step says from which peer the content comes and how far
the clock moves before; what exactly it means is the target's. Bytes that are no whole record are the last record.
"""

from __future__ import annotations

HEAD = 3
RECORDS_MAX = 32
"""A machine is shown at most so many records of one input."""


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
