"""The format of a body: acknowledgements, then chunks of messages, then zeros.

    body   = acknowledgement of each lane | chunk ... | zeros
    chunk  = lane, flags and length (2 bytes) | number (4) | zeros cut off (2, if flagged) | content (1 to 1,024)

Path frames may stand before the first chunk: `0x0008` (2) | kind (4) | token (8). A path frame belongs to one cell and
one address: it is never numbered, acknowledged or repeated.

An acknowledgement is the number of the next expected chunk, and one bit for each of the 64 numbers after it. Lanes
count from 1, so two zero bytes in place of a chunk mean that no chunk follows. Numbers are written modulo 2**32: far
more than the chunks of all bodies that the replay window lets pass late, so no old chunk is taken for a new one. A
message comes as consecutive chunks; the last is flagged. Padded messages end in many zeros, as every heartbeat does.
Those zeros are cut off, and only their number travels.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, TypeAlias

from veilcast.errors import MalformedError
from veilcast.wire.geometry import ACKNOWLEDGEMENTS, CHUNK_HEAD, CHUNK_MAX, ZEROS_FIELD

CONTROL, SHORT, LONG = 0, 1, 2
"""The lanes. A message too long for two cells uses the long lane, and delays only other long messages."""

Chunk: TypeAlias = tuple[int, int, bytes, int | None]
"""Lane, number as written, content, and the zeros to restore if a message ends here. A tuple, because there are many.
"""


def write_chunk(lane: int, number: int, content: bytes, zeros: int | None) -> bytes:
    flags = (lane + 1) << _LANE_SHIFT
    if zeros is None:
        return _HEAD.pack(flags | len(content), number & _MASK) + content
    if zeros == 0:
        return _HEAD.pack(flags | _LAST | len(content), number & _MASK) + content
    return _HEAD_ZEROS.pack(flags | _LAST | _ZEROS | len(content), number & _MASK, zeros) + content


def read_chunks(body: bytes) -> list[Chunk]:
    """All chunks of a body. Raises `MalformedError`."""
    chunks: list[Chunk] = []
    at, end = ACKNOWLEDGEMENTS, len(body)
    while end - at >= CHUNK_HEAD:
        head, number = _read_head(body, at)
        if head == 0:
            break
        lane, length = (head >> _LANE_SHIFT) - 1, head & _LENGTH
        at += CHUNK_HEAD
        zeros = 0 if head & _LAST else None
        if head & _ZEROS:
            zeros = int.from_bytes(body[at : at + ZEROS_FIELD], "big")
            at += ZEROS_FIELD
            if not head & _LAST or zeros == 0:
                raise MalformedError("zeros to restore where no message ends, or none")
        if lane < 0 or not 0 < length <= CHUNK_MAX or length > end - at:
            raise MalformedError("a chunk of no lane or of impossible length")
        chunks.append((lane, number, body[at : at + length], zeros))
        at += length
    if body[at:] != _NOTHING[: end - at]:
        raise MalformedError("something behind the last chunk")
    return chunks


PathFrame: TypeAlias = tuple[int, bytes]
"""Kind and token."""


def write_path_frame(kind: int, token: bytes) -> bytes:
    return _HEAD.pack(TOKEN, kind) + token


def insert_path_frames(body: bytes, frames: bytes) -> bytes:
    return body[:ACKNOWLEDGEMENTS] + frames + body[ACKNOWLEDGEMENTS:] if frames else body


def split_path_frames(body: bytes) -> tuple[Sequence[PathFrame], bytes]:
    """The path frames of a body, and the body without them. An incomplete path frame stays in the body."""
    if body[ACKNOWLEDGEMENTS:_TOKEN_HEAD_END] != _TOKEN_HEAD:
        return (), body
    frames: list[PathFrame] = []
    at = ACKNOWLEDGEMENTS
    while len(frames) < PATH_FRAMES_MAX and len(body) - at >= CHUNK_HEAD + TOKEN:
        head, kind = _read_head(body, at)
        if head != TOKEN or kind not in (CHALLENGE, RESPONSE):
            break
        frames.append((kind, body[at + CHUNK_HEAD : at + CHUNK_HEAD + TOKEN]))
        at += CHUNK_HEAD + TOKEN
    return frames, body[:ACKNOWLEDGEMENTS] + body[at:]


def distance(wire: int, number: int) -> int:
    """How far a number as written lies after `number`; negative if before it."""
    return ((wire - number + _HALF) & _MASK) - _HALF


NUMBERS: Final = 1 << 32
_MASK: Final = NUMBERS - 1
_HALF: Final = NUMBERS >> 1

_LANE_SHIFT: Final = 14
_LAST: Final = 1 << 13
_ZEROS: Final = 1 << 12
_LENGTH: Final = _ZEROS - 1

TOKEN: Final = 8
CHALLENGE, RESPONSE = 1, 2
"""Kinds of path frames."""
PATH_FRAMES_MAX: Final = 3
"""Path frames in one cell: a challenge, and responses to two."""

_HEAD: Final = struct.Struct(">HI")
_HEAD_ZEROS: Final = struct.Struct(">HIH")
_read_head: Final = _HEAD.unpack_from

_TOKEN_HEAD: Final = TOKEN.to_bytes(2, "big")
"""Lane 0, which no chunk uses, and the length of a token."""
_TOKEN_HEAD_END: Final = ACKNOWLEDGEMENTS + len(_TOKEN_HEAD)

_NOTHING: Final = bytes(1 << 16)
"""Zeros to compare with: no datagram is longer."""
