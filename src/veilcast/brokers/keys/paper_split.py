"""The paper's transfer: each replica splits its share for the replicas of the next hop (P4, Algorithm 2, corrected),
and the subscriber reassembles the key.

The publisher splits the key for the first node. Each replica there splits its share for the second node, and so on. A
share is named by its path, the index it got at every hop. After h hops there are r^h shares.

Property: all Byzantine replicas of all hops together know no more than those of the first hop, which is nothing.
Reason: the Byzantine replicas of one node are fewer than its threshold. So their sub-shares of whatever an honest
replica before them split tell them nothing, and they hold nothing else that comes from its share.

Three corrections of Algorithm 2:

1. It splits with (|V_f| - |Byz(V_f)|, |V_f|), which nobody can know and which belongs to the wrong node. Here a share
   is split for the receivers, with their majority.
2. If one split went out twice, on two branches or again to other replicas, one Byzantine replica on each branch would
   give them two shares of one polynomial. Here every call draws fresh randomness, and a repeat is another attempt, from
   the publisher on.
3. The publisher cannot sign what brokers make. Here each splitter signs a commitment to each sub-share, and a share
   carries these statements from the publisher down.

A statement names its parent statement by a digest, so nobody can attach a share to another splitter's statement.
Commitments are hashes keyed with the share: without the share, an adversary would have to guess a whole key to learn
anything from one.

Reassembly (`SplitKeyCollector`): shares arrive with the statements that lead to them. As soon as a majority of the
shares of one statement are there, the split value is computed and compared with the commitment one level up, and so on
up to the key. The signatures show who is to blame; n = 2f + 1 shares are too few to correct errors, and enough to find
them:

- a share that does not match its commitment is its sender's fault, because no honest broker accepts or forwards one;
- shares that match their commitments, and together do not match the commitment one level up, are the splitter's fault:
  it signed for all of them and had seen the commitment to its own share;
- two statements of one broker on the same share for the same receivers prove that it is Byzantine.

Property: no honest replica is blamed, whatever the others do.
Reason: an honest one causes none of these three.

Property: the key is reconstructed without any share that a Byzantine replica touched.
Reason: honest replicas are a majority at every hop, so a majority of the shares of every honest statement is theirs.
"""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple, Self

import msgspec

from veilcast.brokers.keys.scheme import KeyAttempt, ReplicaId, ReplicaKeys, Scheme
from veilcast.crypto import shamir
from veilcast.crypto.derive import derive, digest
from veilcast.crypto.secret import Secret
from veilcast.crypto.shamir import MAX_SIZE, ShamirShare
from veilcast.crypto.sign import SIGNATURE, SigningKey, verify
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import ExcessError, ForgedError, LocalError, MalformedError, StaleError
from veilcast.machine import Entropy

Digest = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Index = Annotated[int, msgspec.Meta(ge=1, le=shamir.MAX_SHARES)]


class SplitStatement(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The split value (by its path; the key itself has none), its receivers, and a commitment to each share."""

    key_attempt: KeyAttempt
    parent_name: Annotated[bytes, msgspec.Meta(max_length=32)]
    path: Annotated[tuple[Index, ...], msgspec.Meta(max_length=63)]
    to: Scheme
    digests: Annotated[tuple[Digest, ...], msgspec.Meta(min_length=1, max_length=shamir.MAX_SHARES)]
    signature: Annotated[bytes, msgspec.Meta(min_length=SIGNATURE, max_length=SIGNATURE)]

    def __post_init__(self) -> None:
        if len(self.digests) != self.to.size:
            raise MalformedError("a statement has one commitment for each replica")
        if len(self.path) >= HOPS_MAX or bool(self.path) != bool(self.parent_name):
            raise MalformedError("a statement stands under another, unless it is the publisher's")

    @property
    def name(self) -> bytes:
        return digest(_ENCODER.encode(self), purpose=b"vc/statement")

    def commits_to(self, index: int, data: Secret) -> bool:
        """True if this is the committed share of this replica."""
        return self.digests[index - 1] == _commitment(self.key_attempt, (*self.path, index), data)


class SplitShare(msgspec.Struct, frozen=True):
    """A share of the key, and the statements that lead to it. These contain the hop count, the replicas and the
    thresholds."""

    trail: tuple[SplitStatement, ...]
    index: int
    data: Secret

    def __post_init__(self) -> None:
        if not 1 <= len(self.trail) <= HOPS_MAX:
            raise MalformedError(f"a split share has come 1 to {HOPS_MAX} hops")
        self.trail[-1].to.check_index(self.index)
        if len(self.data) > MAX_SIZE:
            raise MalformedError(f"a share of a key has at most {MAX_SIZE} bytes")

    @property
    def key_attempt(self) -> KeyAttempt:
        return self.trail[-1].key_attempt

    @property
    def path(self) -> tuple[int, ...]:
        return (*self.trail[-1].path, self.index)

    @property
    def hops(self) -> int:
        return len(self.trail)

    @property
    def holder(self) -> ReplicaId:
        return ReplicaId(self.trail[-1].to, self.index)

    def encode(self) -> Secret:
        return Secret(_ENCODER.encode((self.trail, self.index, self.data.reveal())))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        trail, index, part = _DECODER.decode(data)
        return cls(trail, index, Secret(part))


def split_key(
    key: Secret, key_attempt: KeyAttempt, to: Scheme, signing: SigningKey, entropy: Entropy
) -> list[SplitShare]:
    """The publisher's step: a share for each replica of the first node. Call it once for each disjoint path."""
    return _split(key, key_attempt, (), (), to, signing, entropy)


def split_again(share: SplitShare, to: Scheme, signing: SigningKey, entropy: Entropy) -> list[SplitShare]:
    """A broker's step: split its share for the replicas of a next node. Call it once for each branch."""
    return _split(share.data, share.key_attempt, share.trail, share.path, to, signing, entropy)


class TrailVerifier:
    """Verifies the shares of one publisher. Remembers the last `kept` valid statements, because most recur."""

    def __init__(self, publisher: bytes, replica_keys: ReplicaKeys, *, kept: int = 1024) -> None:
        if kept < 1:
            raise LocalError("at least one statement must be remembered")
        self._publisher, self._replica_keys, self._kept_max = publisher, replica_keys, kept
        self._verified: dict[bytes, None] = {}

    def __len__(self) -> int:
        return len(self._verified)

    def check(self, share: SplitShare) -> None:
        """Raise unless every statement is its splitter's and follows its parent, and the share matches its
        commitment."""
        parent: SplitStatement | None = None
        for statement in share.trail:
            self._check(statement, parent)
            parent = statement
        if not share.trail[-1].commits_to(share.index, share.data):
            raise ForgedError("the share does not match its commitment")

    def _check(self, statement: SplitStatement, parent: SplitStatement | None) -> None:
        if parent is None:
            if statement.path:
                raise ForgedError("a trail begins with the publisher")
        elif (
            statement.key_attempt != parent.key_attempt
            or statement.parent_name != parent.name
            or statement.path[:-1] != parent.path
            or len(statement.path) != len(parent.path) + 1
        ):
            raise ForgedError("a statement stands under another than the one it names")
        name = statement.name
        if name in self._verified:
            return
        signer = (
            self._publisher if parent is None else self._replica_keys.key_of(ReplicaId(parent.to, statement.path[-1]))
        )
        verify(signer, _signed_bytes(statement), statement.signature, purpose=_PURPOSE)
        self._verified[name] = None
        if len(self._verified) > self._kept_max:
            del self._verified[next(iter(self._verified))]


def _split(
    data: Secret,
    key_attempt: KeyAttempt,
    trail: tuple[SplitStatement, ...],
    path: tuple[int, ...],
    to: Scheme,
    signing: SigningKey,
    entropy: Entropy,
) -> list[SplitShare]:
    if len(trail) >= HOPS_MAX:
        raise LocalError(f"a key goes over {HOPS_MAX} hops at most")
    shares: tuple[ShamirShare, ...] = shamir.split(data, to.threshold, to.size, entropy)
    digests = tuple([_commitment(key_attempt, (*path, part.index), part.data) for part in shares])
    unsigned = SplitStatement(key_attempt, trail[-1].name if trail else b"", path, to, digests, bytes(SIGNATURE))
    signature = signing.sign(_signed_bytes(unsigned), purpose=_PURPOSE)
    statement = msgspec.structs.replace(unsigned, signature=signature)
    return [SplitShare((*trail, statement), part.index, part.data) for part in shares]


def _commitment(key_attempt: KeyAttempt, path: tuple[int, ...], data: Secret) -> bytes:
    return derive(data, b"vc/piece", _ENCODER.encode((key_attempt, path))).reveal()


def _signed_bytes(statement: SplitStatement) -> bytes:
    return _ENCODER.encode(msgspec.structs.replace(statement, signature=bytes(SIGNATURE)))


class SplitKeyCollector:
    """Reassembles one key and attempt. All p disjoint paths lead here, and any of them is enough."""

    def __init__(self, key_attempt: KeyAttempt, verifier: TrailVerifier, *, most: int = 1 << 17) -> None:
        if most < 1:
            raise LocalError("there must be room for at least one share")
        self._key_attempt, self._verifier, self._shares_max = key_attempt, verifier, most
        self._splits: dict[bytes, _Split] = {}
        self._statements: dict[tuple[bytes, tuple[int, ...], Scheme], bytes] = {}
        self._faulty: dict[ReplicaId, str] = {}
        self._share_count = 0
        self._key: Secret | None = None

    def __len__(self) -> int:
        return self._share_count

    @property
    def key(self) -> Secret | None:
        """The key, once there are enough shares."""
        return self._key

    @property
    def faulty(self) -> dict[ReplicaId, str]:
        """The replicas that are proven Byzantine, and how."""
        return dict(self._faulty)

    def add(self, share: SplitShare, sender: ReplicaId) -> Secret | None:
        """Add the share that this replica of the last node sends. Returns the key once it is complete. Raises for an
        invalid share.

        The caller identifies the sender by its link, and is responsible for that.
        """
        if share.key_attempt != self._key_attempt:
            raise StaleError("a share of another key or attempt")
        if self._share_count >= self._shares_max:
            raise ExcessError("more shares than a key has")
        try:
            if share.holder != sender:
                raise ForgedError("a share that another replica should send")
            self._verifier.check(share)
        except ForgedError:
            self._faulty.setdefault(sender, BAD_SHARE)
            raise
        parent: _Split | None = None
        for statement in share.trail:
            parent = self._add_statement(statement, parent)
        assert parent is not None, "a split share has a trail"
        if share.index not in parent.shares:
            self._share_count += 1
            self._add_value(parent, share.index, share.data)
        return self._key

    def _add_statement(self, statement: SplitStatement, parent: _Split | None) -> _Split:
        name = statement.name
        if name in self._splits:
            return self._splits[name]
        if parent is not None:
            split = (statement.parent_name, statement.path, statement.to)
            if self._statements.setdefault(split, name) != name:
                self._faulty.setdefault(ReplicaId(parent.statement.to, statement.path[-1]), TWO_STATEMENTS)
                raise ForgedError("a second statement on the same share")
        return self._splits.setdefault(name, _Split(statement, parent, {}))

    def _add_value(self, split: _Split | None, index: int, data: Secret) -> None:
        """Add a valid share, and climb as long as each value completes a majority."""
        while split is not None:
            split.shares[index] = data
            threshold = split.statement.to.threshold
            if len(split.shares) != threshold:
                return
            whole = shamir.reconstruct([ShamirShare(at, part) for at, part in split.shares.items()], threshold)
            parent = split.parent
            if parent is None:
                self._key = whole
                return
            index, data = split.statement.path[-1], whole
            if not parent.statement.commits_to(index, whole):
                self._faulty.setdefault(ReplicaId(parent.statement.to, index), BAD_SPLIT)
                return
            if index in parent.shares:
                return
            split = parent


class _Split(NamedTuple):
    statement: SplitStatement
    parent: _Split | None
    shares: dict[int, Secret]


BAD_SHARE: Final = "sent a share that does not match its commitment"
BAD_SPLIT: Final = "split another value than its share"
TWO_STATEMENTS: Final = "signed two statements on one share"

HOPS_MAX: Final = 64
_PURPOSE: Final = b"veilcast/split"
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = MsgpackDecoder(
    tuple[tuple[SplitStatement, ...], int, Annotated[bytes, msgspec.Meta(min_length=1, max_length=MAX_SIZE)]],
    MalformedError,
    "not a split share",
)
