"""The paper's way: each replica splits what it has for the replicas of the next hop (P4, Algorithm 2, corrected).

Pure; randomness is handed in. The publisher splits the key for the first node. Each replica there splits its share for
the second node, and so on: a share is known by its path, the index it got at every hop, and after h hops there are r^h.
Replicas of one node together lack most sub-shares of whatever an honest replica before them split, so all Byzantine
replicas of all hops together know no more than those of the first hop, which is nothing.

Three corrections. Algorithm 2 splits with (|V_f| - |Byz(V_f)|, |V_f|), which nobody can know and which fits the wrong
node: a share is split for the receivers, with their majority. A split that goes out twice, on two branches or again to
other replicas, would let one Byzantine replica on each branch put two shares of one polynomial together: every call
draws afresh, and a repeat is another attempt from the publisher on. And the publisher cannot sign what brokers make:
whoever splits signs a commitment to each piece, and a parcel carries these statements from the publisher down.

A statement names the one above it by its digest, so nobody can put a piece under another's word. Commitments are
hashes keyed with the piece: who lacks the piece would have to guess a whole key to learn anything from one.
"""

from __future__ import annotations

from typing import Annotated, Final, Self

import msgspec

from veilcast.brokers.sharing.scheme import Place, Roster, Scheme
from veilcast.crypto import shares
from veilcast.crypto.derive import derive, digest
from veilcast.crypto.secret import Secret
from veilcast.crypto.shares import MAX_SIZE, Share
from veilcast.crypto.sign import SIGNATURE, SigningKey, verify
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import ForgedError, LocalError, MalformedError
from veilcast.machine import Entropy

Digest = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Index = Annotated[int, msgspec.Meta(ge=1, le=shares.MAX_SHARES)]


class Origin(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Which key, and which attempt to bring it over: pieces of two attempts never mix."""

    key: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
    attempt: Annotated[int, msgspec.Meta(ge=0, le=255)] = 0


class Statement(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What was split (by its path; the key itself has none), for whom, and a commitment to each piece."""

    origin: Origin
    above: Annotated[bytes, msgspec.Meta(max_length=32)]
    path: Annotated[tuple[Index, ...], msgspec.Meta(max_length=63)]
    to: Scheme
    digests: Annotated[tuple[Digest, ...], msgspec.Meta(min_length=1, max_length=shares.MAX_SHARES)]
    signature: Annotated[bytes, msgspec.Meta(min_length=SIGNATURE, max_length=SIGNATURE)]

    def __post_init__(self) -> None:
        if len(self.digests) != self.to.size:
            raise MalformedError("a statement has one commitment for each replica")
        if len(self.path) >= HOPS_MAX or bool(self.path) != bool(self.above):
            raise MalformedError("a statement stands under another, unless it is the publisher's")

    @property
    def name(self) -> bytes:
        return digest(_ENCODER.encode(self), purpose=b"vc/statement")

    def commits_to(self, index: int, data: Secret) -> bool:
        """Whether the piece for this replica is this one."""
        return self.digests[index - 1] == _commitment(self.origin, (*self.path, index), data)


class Parcel(msgspec.Struct, frozen=True):
    """A piece of the key, and the statements that lead to it: hop count, replicas and thresholds stand in these."""

    trail: tuple[Statement, ...]
    index: int
    data: Secret

    def __post_init__(self) -> None:
        if not 1 <= len(self.trail) <= HOPS_MAX:
            raise MalformedError(f"a parcel has come 1 to {HOPS_MAX} hops")
        self.trail[-1].to.check_index(self.index)
        if len(self.data) > MAX_SIZE:
            raise MalformedError(f"a piece of a key has at most {MAX_SIZE} bytes")

    @property
    def origin(self) -> Origin:
        return self.trail[-1].origin

    @property
    def path(self) -> tuple[int, ...]:
        return (*self.trail[-1].path, self.index)

    @property
    def hops(self) -> int:
        return len(self.trail)

    @property
    def holder(self) -> Place:
        return Place(self.trail[-1].to, self.index)

    def encode(self) -> Secret:
        return Secret(_ENCODER.encode((self.trail, self.index, self.data.reveal())))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        trail, index, piece = _DECODER.decode(data)
        return cls(trail, index, Secret(piece))


def split_key(key: Secret, origin: Origin, to: Scheme, signing: SigningKey, entropy: Entropy) -> list[Parcel]:
    """The publisher's step: a parcel for each replica of the first node. Once for each of several disjoint paths."""
    return _split(key, origin, (), (), to, signing, entropy)


def resplit(parcel: Parcel, to: Scheme, signing: SigningKey, entropy: Entropy) -> list[Parcel]:
    """A broker's step: its piece, split afresh for the replicas of a next node. Once for each branch."""
    return _split(parcel.data, parcel.origin, parcel.trail, parcel.path, to, signing, entropy)


class Trails:
    """Checks parcels of one publisher. Remembers which of the last `kept` statements hold, for most recur."""

    def __init__(self, publisher: bytes, roster: Roster, *, kept: int = 1024) -> None:
        if kept < 1:
            raise LocalError("there is something to remember")
        self._publisher, self._roster, self._kept = publisher, roster, kept
        self._held: dict[bytes, None] = {}

    def __len__(self) -> int:
        return len(self._held)

    def check(self, parcel: Parcel) -> None:
        """Raise unless every statement is its splitter's and stands below the last, and the piece is as committed."""
        above: Statement | None = None
        for statement in parcel.trail:
            self._check(statement, above)
            above = statement
        if not parcel.trail[-1].commits_to(parcel.index, parcel.data):
            raise ForgedError("the piece is not the one committed to")

    def _check(self, statement: Statement, above: Statement | None) -> None:
        if above is None:
            if statement.path:
                raise ForgedError("a trail begins with the publisher")
        elif (
            statement.origin != above.origin
            or statement.above != above.name
            or statement.path[:-1] != above.path
            or len(statement.path) != len(above.path) + 1
        ):
            raise ForgedError("a statement stands under another than the one it names")
        name = statement.name
        if name in self._held:
            return
        signer = self._publisher if above is None else self._roster.key(Place(above.to, statement.path[-1]))
        verify(signer, _signed(statement), statement.signature, purpose=_PURPOSE)
        self._held[name] = None
        if len(self._held) > self._kept:
            del self._held[next(iter(self._held))]


def _split(
    data: Secret,
    origin: Origin,
    trail: tuple[Statement, ...],
    path: tuple[int, ...],
    to: Scheme,
    signing: SigningKey,
    entropy: Entropy,
) -> list[Parcel]:
    if len(trail) >= HOPS_MAX:
        raise LocalError(f"a key goes over {HOPS_MAX} hops at most")
    pieces: tuple[Share, ...] = shares.split(data, to.threshold, to.size, entropy)
    digests = tuple([_commitment(origin, (*path, piece.index), piece.data) for piece in pieces])
    unsigned = Statement(origin, trail[-1].name if trail else b"", path, to, digests, bytes(SIGNATURE))
    signature = signing.sign(_signed(unsigned), purpose=_PURPOSE)
    statement = msgspec.structs.replace(unsigned, signature=signature)
    return [Parcel((*trail, statement), piece.index, piece.data) for piece in pieces]


def _commitment(origin: Origin, path: tuple[int, ...], data: Secret) -> bytes:
    return derive(data, b"vc/piece", _ENCODER.encode((origin, path))).reveal()


def _signed(statement: Statement) -> bytes:
    return _ENCODER.encode(msgspec.structs.replace(statement, signature=bytes(SIGNATURE)))


HOPS_MAX: Final = 64
_PURPOSE: Final = b"veilcast/split"
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = MsgpackDecoder(
    tuple[tuple[Statement, ...], int, Annotated[bytes, msgspec.Meta(min_length=1, max_length=MAX_SIZE)]],
    MalformedError,
    "not a parcel",
)
