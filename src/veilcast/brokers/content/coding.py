"""Content: a sealed publication on its way over replicas, some of which drop or spoil it (P4, "Propagation of Encrypted
Content").

Pure. It is sealed, so whoever carries it learns nothing; what is at stake is that it arrives, and at what price. Three
strategies, behind one switch:

- `copies`: every replica that has it sends it to f + 1 replicas of the next node, one of whom is honest. It arrives at
  once, for r (f + 1) copies a hop. (One copy for each replica, as the paper counts, is not enough: a liar at each hop
  stops one row, and over r hops all of them.)
- `one`: a single copy by one replica of each node; who misses it asks again, and it goes another way.
- `coded`: n blocks, any k of which give the content back; each goes a way of its own, and only missing ones are asked
  for again. A systematic Reed-Solomon code: block x is the value at x of the polynomials whose values at 1 to k are the
  content. For a node of n replicas k is a majority, so f lost blocks do no harm.

Ways are drawn anew by hashing for every block, attempt and node, so no liar stands on all of them; after a few attempts
copies are sent, whatever the strategy: then what is left arrives for certain. The publisher signs a manifest, a list of
the blocks' digests. It is small, goes along in copies, and lets everybody on the way tell a spoilt block from a good
one.
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
    """What the content is made of: its size, how many of its blocks are needed, and a digest of each."""

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
        """`MalformedError` unless it is what `encode` makes: in other bytes the same would look like a second one."""
        manifest = _DECODER.decode(data)
        if manifest.encode() != data:
            raise MalformedError("a manifest in other bytes than it was made in")
        return manifest

    def check(self, publisher: bytes) -> None:
        verify(publisher, _signed(self), self.signature, purpose=_PURPOSE)

    def check_block(self, block: ContentBlock) -> None:
        """Raise unless it is a block of this content, as it was made."""
        if block.id != self.id or block.index > len(self.digests) or len(block.data) != self.block_size:
            raise ForgedError("a block of something else")
        if _digest(block) != self.digests[block.index - 1]:
            raise ForgedError("a block that was spoilt on its way")


class ContentBlock(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`index` is from 1."""

    id: Id
    index: Annotated[int, msgspec.Meta(ge=1, le=MAX_SHARES)]
    data: Annotated[bytes, msgspec.Meta(min_length=1, max_length=1 << 26)]


def encode_content(
    content_id: bytes, content: bytes, strategy: Strategy, first: Scheme, signing: SigningKey
) -> tuple[ContentManifest, list[ContentBlock]]:
    """The publisher's step. The code is made for the first node; others carry it as it is."""
    if not 1 <= len(content) <= CONTENT_MAX:
        raise LocalError(f"content has 1 to {CONTENT_MAX} bytes")
    needed, count = (majority(first.size), first.size) if strategy is Strategy.CODED else (1, 1)
    blocks = [ContentBlock(content_id, at, data) for at, data in enumerate(_encode(content, needed, count), 1)]
    unsigned = ContentManifest(content_id, len(content), needed, tuple(map(_digest, blocks)), bytes(SIGNATURE))
    signature = signing.sign(_signed(unsigned), purpose=_PURPOSE)
    return msgspec.structs.replace(unsigned, signature=signature), blocks


def choose_carriers(
    strategy: Strategy, content_id: bytes, index: int, to: Scheme, attempt: int, sender: int = 0
) -> list[int]:
    """The replicas of the next node that this one, or the publisher (0), sends a block to."""
    if strategy is Strategy.COPIES or attempt >= SINGLE_PATH_ATTEMPTS:
        return [(sender + step) % to.size + 1 for step in range(to.max_faulty + 1)]
    way = digest(_ENCODER.encode((content_id, index, to.node, attempt)), purpose=b"vc/block-way", size=8)
    return [int.from_bytes(way, "big") % to.size + 1]


class ContentAssembly:
    """A subscriber's end, or a broker's: blocks that hold, what is missing, and who brought spoilt ones."""

    def __init__(self, manifest: ContentManifest, publisher: bytes) -> None:
        manifest.check(publisher)
        self._manifest = manifest
        self._blocks: dict[int, bytes] = {}
        self._liars: dict[ReplicaId, None] = {}

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def faulty(self) -> list[ReplicaId]:
        """Who brought a spoilt block, which no honest broker hands on."""
        return list(self._liars)

    @property
    def is_complete(self) -> bool:
        return len(self._blocks) >= self._manifest.needed

    def add(self, block: ContentBlock, bearer: ReplicaId) -> None:
        """Raises for what does not hold, and names the bearer, whom the caller knows by its link."""
        try:
            self._manifest.check_block(block)
        except ForgedError:
            self._liars[bearer] = None
            raise
        self._blocks.setdefault(block.index, block.data)

    def missing(self) -> list[int]:
        """What to ask for again: as many blocks as are needed still, of those that are not there."""
        lacking = max(0, self._manifest.needed - len(self._blocks))
        absent = (index for index in range(1, len(self._manifest.digests) + 1) if index not in self._blocks)
        return [index for index, _ in zip(absent, range(lacking), strict=False)]

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


def _signed(manifest: ContentManifest) -> bytes:
    return _ENCODER.encode(msgspec.structs.replace(manifest, signature=bytes(SIGNATURE)))


CONTENT_MAX: Final = 1 << 26
ATTEMPTS_MAX: Final = 7
"""Of one sealing, from 0; then it is sealed anew. `SINGLE_PATH_ATTEMPTS` of them go by a single way."""
SINGLE_PATH_ATTEMPTS: Final = 4
"""Attempts to get a block over a single way, before copies go out."""

_PURPOSE: Final = b"veilcast/content"
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = MsgpackDecoder(ContentManifest, MalformedError, "not a manifest")
