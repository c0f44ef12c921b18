"""A sealed publication in transit over replicas, some of which drop or corrupt it (P4, "Propagation of Encrypted
Content").

The content is sealed, so forwarders learn nothing. The questions are whether it arrives, and at what cost. There are
three strategies:

- `copies`: every replica that has the content sends it to f + 1 replicas of the next node, one of which is honest. It
  arrives at the first attempt, for r (f + 1) copies per hop. (One copy per replica, as the paper counts, is not enough:
  a Byzantine replica at each hop stops one row, and over r hops all of them.)
- `one`: a single copy by one replica of each node. A replica that misses it asks again, and it takes another path.
- `coded`: n blocks, any k of which reconstruct the content. Each takes its own path, and only missing blocks are
  requested. The code is a systematic Reed-Solomon code: block x is the value at x of the polynomials whose values at 1
  to k are the content. For a node of n replicas k is a majority, so f lost blocks do no harm.

Paths are chosen by hashing the block, attempt and node, so no Byzantine replica is on all of them. After a
few attempts copies are sent, whatever the strategy: then the rest arrives for certain. The publisher signs a manifest,
the list of the blocks' digests. It is small, travels in copies, and lets every forwarder tell a corrupt block from a
good one.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from veilcast.brokers.keys.scheme import ReplicaId, Scheme, majority
from veilcast.crypto.derive import digest
from veilcast.crypto.shamir import MAX_SHARES, interpolate_many
from veilcast.crypto.sign import SIGNATURE, SigningKey, verify
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import ForgedError, LocalError, MalformedError


class Strategy(enum.StrEnum):
    COPIES = "copies"
    ONE = "one"
    CODED = "coded"


Id = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
Digest = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]


class ContentManifest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The size of the content, the number of blocks needed, and a digest of each block."""

    id: Id
    size: Annotated[int, msgspec.Meta(ge=1, le=1 << 26)]
    needed: Annotated[int, msgspec.Meta(ge=1, le=MAX_SHARES)]
    digests: Annotated[tuple[Digest, ...], msgspec.Meta(min_length=1, max_length=MAX_SHARES)]
    signature: Annotated[bytes, msgspec.Meta(min_length=SIGNATURE, max_length=SIGNATURE)]

    def __post_init__(self) -> None:
        if not 1 <= self.size <= CONTENT_MAX or not 1 <= self.needed <= len(self.digests) <= MAX_SHARES:
            raise MalformedError("a manifest is out of bounds")

    @property
    def block_size(self) -> int:
        return _block_size(self.size, self.needed)

    def encode(self) -> bytes:
        return _ENCODER.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> ContentManifest:
        """`MalformedError` unless `encode` makes these bytes: with other bytes, the same manifest would look like a
        second one."""
        manifest = _DECODER.decode(data)
        if manifest.encode() != data:
            raise MalformedError("a manifest in other bytes than it was made in")
        return manifest

    def check(self, publisher: bytes) -> None:
        verify(publisher, _signed_bytes(self), self.signature, purpose=_PURPOSE)

    def check_block(self, block: ContentBlock) -> None:
        """Raise unless it is an unchanged block of this content."""
        if block.id != self.id or block.index > len(self.digests) or len(block.data) != self.block_size:
            raise ForgedError("a block of something else")
        if _digest(block) != self.digests[block.index - 1]:
            raise ForgedError("a block that was corrupted on its way")


class ContentBlock(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`index` is from 1."""

    id: Id
    index: Annotated[int, msgspec.Meta(ge=1, le=MAX_SHARES)]
    data: Annotated[bytes, msgspec.Meta(min_length=1, max_length=1 << 26)]


def encode_content(
    content_id: bytes, content: bytes, strategy: Strategy, first: Scheme, signing: SigningKey
) -> tuple[ContentManifest, list[ContentBlock]]:
    """The publisher's step. The code is made for the first node; other nodes forward it unchanged."""
    if not 1 <= len(content) <= CONTENT_MAX:
        raise LocalError(f"content has 1 to {CONTENT_MAX} bytes")
    needed, count = (majority(first.size), first.size) if strategy is Strategy.CODED else (1, 1)
    blocks = [ContentBlock(content_id, at, data) for at, data in enumerate(_encode(content, needed, count), 1)]
    unsigned = ContentManifest(content_id, len(content), needed, tuple(map(_digest, blocks)), bytes(SIGNATURE))
    signature = signing.sign(_signed_bytes(unsigned), purpose=_PURPOSE)
    return msgspec.structs.replace(unsigned, signature=signature), blocks


def choose_carriers(
    strategy: Strategy, content_id: bytes, index: int, to: Scheme, attempt: int, sender: int = 0
) -> list[int]:
    """The indices of the next node's replicas that `sender`, or the publisher (0), sends a block to."""
    if strategy is Strategy.COPIES or attempt >= SINGLE_PATH_ATTEMPTS:
        return [(sender + step) % to.size + 1 for step in range(to.max_faulty + 1)]
    drawn = digest(_ENCODER.encode((content_id, index, to.node, attempt)), purpose=b"vc/block-way", size=8)
    return [int.from_bytes(drawn, "big") % to.size + 1]


class ContentAssembly:
    """The valid blocks of a content at a subscriber or broker, the missing ones, and the senders of corrupt ones."""

    def __init__(self, manifest: ContentManifest, publisher: bytes) -> None:
        manifest.check(publisher)
        self._manifest = manifest
        self._blocks: dict[int, bytes] = {}
        self._faulty: dict[ReplicaId, None] = {}

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def faulty(self) -> list[ReplicaId]:
        """Replicas that sent a corrupt block. No honest broker forwards one."""
        return list(self._faulty)

    @property
    def is_complete(self) -> bool:
        return len(self._blocks) >= self._manifest.needed

    def add(self, block: ContentBlock, sender: ReplicaId) -> None:
        """Add a block. Raises for an invalid one and records its sender, which the caller identifies by its link."""
        try:
            self._manifest.check_block(block)
        except ForgedError:
            self._faulty[sender] = None
            raise
        self._blocks.setdefault(block.index, block.data)

    def missing(self) -> list[int]:
        """The blocks to request: of the absent ones, as many as are still needed."""
        missing_count = max(0, self._manifest.needed - len(self._blocks))
        absent = (index for index in range(1, len(self._manifest.digests) + 1) if index not in self._blocks)
        return [index for index, _ in zip(absent, range(missing_count), strict=False)]

    def content(self) -> bytes:
        if not self.is_complete:
            raise LocalError(f"{len(self.missing())} blocks are missing still")
        return _decode(self._blocks, self._manifest.needed, self._manifest.size)


def _encode(content: bytes, needed: int, count: int) -> list[bytes]:
    size = _block_size(len(content), needed)
    padded = content.ljust(size * needed, b"\0")
    parts = [padded[at : at + size] for at in range(0, len(padded), size)]
    if count == needed:
        return parts
    import numpy as np  # Only coded content needs arrays.

    rows = [np.frombuffer(part, dtype=np.uint8) for part in parts]
    more = interpolate_many(rows, range(1, needed + 1), range(needed + 1, count + 1))
    return parts + [row.tobytes() for row in more]


def _decode(blocks: dict[int, bytes], needed: int, size: int) -> bytes:
    known: Sequence[int] = sorted(blocks)[:needed]
    lost = [at for at in range(1, needed + 1) if at not in known]
    parts = {at: blocks[at] for at in known}
    if lost:
        import numpy as np

        rows = [np.frombuffer(blocks[at], dtype=np.uint8) for at in known]
        parts |= {at: row.tobytes() for at, row in zip(lost, interpolate_many(rows, known, lost), strict=True)}
    return b"".join(parts[at] for at in range(1, needed + 1))[:size]


def _block_size(size: int, needed: int) -> int:
    return -(-size // needed)


def _digest(block: ContentBlock) -> bytes:
    return digest(_ENCODER.encode(block), purpose=b"vc/block")


def _signed_bytes(manifest: ContentManifest) -> bytes:
    return _ENCODER.encode(msgspec.structs.replace(manifest, signature=bytes(SIGNATURE)))


CONTENT_MAX: Final = 1 << 26
ATTEMPTS_MAX: Final = 7
"""Largest number of an attempt of one sealing, from 0; then the publication is sealed again. `SINGLE_PATH_ATTEMPTS` of
the attempts use a single path."""
SINGLE_PATH_ATTEMPTS: Final = 4
"""Attempts to send a block over a single path before copies are sent."""

_PURPOSE: Final = b"veilcast/content"
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = MsgpackDecoder(ContentManifest, MalformedError, "not a manifest")
