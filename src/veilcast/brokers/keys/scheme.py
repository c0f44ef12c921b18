"""Schemes: the number of replicas of a virtual node, the threshold of shares, and the replicas' keys.

The threshold is a majority, floor(n / 2) + 1. With fewer than half of the replicas Byzantine, the Byzantine ones cannot
reconstruct a secret and the others can (P4, "Initial Key Split"; where the evaluation says n = floor(k / 2) + 1, k and
n are swapped). A node's replicas change at run time. So a scheme has a version, every split names it, and shares of two
versions never mix.

A node of even size is worse than the odd one below it: four replicas tolerate one Byzantine replica, as three do, and
one more replica may turn Byzantine. A node of one or two replicas shares nothing at all. `hardened` refuses both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from veilcast.crypto.shamir import MAX_SHARES
from veilcast.crypto.sign import PUBLIC
from veilcast.errors import ConfigError, LocalError, MalformedError, StaleError

NODE_ID_BYTES: Final = 16


def majority(size: int) -> int:
    """The threshold of a node of this size."""
    return size // 2 + 1


def max_faulty(size: int) -> int:
    """The number of Byzantine replicas that a node of this size tolerates."""
    return (size - 1) // 2


def check_hardened(size: int, what: str) -> None:
    """Refuse a node that would hide nothing, or less than a smaller one."""
    if size < 3:
        raise ConfigError(
            f"{what} has {size} of at least 3 replicas: with fewer, one Byzantine replica reads or stops everything"
        )
    if size % 2 == 0:
        raise ConfigError(
            f"{what} has {size} replicas: an even node tolerates no more Byzantine replicas than one of {size - 1}, "
            f"and has one more that may become Byzantine; give it {size - 1} or {size + 1}"
        )


class Scheme(msgspec.Struct, frozen=True, order=True, array_like=True, forbid_unknown_fields=True):
    """A virtual node, from this version on."""

    node: Annotated[bytes, msgspec.Meta(min_length=NODE_ID_BYTES, max_length=NODE_ID_BYTES)]
    version: Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
    size: Annotated[int, msgspec.Meta(ge=1, le=MAX_SHARES)]

    def __post_init__(self) -> None:
        if len(self.node) != NODE_ID_BYTES:
            raise MalformedError(f"the name of a virtual node has {NODE_ID_BYTES} bytes")
        if not 0 <= self.version < 1 << 32 or not 1 <= self.size <= MAX_SHARES:
            raise MalformedError("a scheme's version or size is out of bounds")

    @property
    def threshold(self) -> int:
        return majority(self.size)

    @property
    def max_faulty(self) -> int:
        return max_faulty(self.size)

    def check_index(self, index: int) -> None:
        if not 1 <= index <= self.size:
            raise MalformedError("no replica of the node has this index")


class ReplicaId(msgspec.Struct, frozen=True, order=True):
    """One replica: the one with this index (from 1) under this scheme."""

    scheme: Scheme
    index: int

    def __post_init__(self) -> None:
        self.scheme.check_index(self.index)


class KeyAttempt(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A key, and an attempt to transfer it. Shares of two attempts never mix."""

    key: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
    attempt: Annotated[int, msgspec.Meta(ge=0, le=255)] = 0


class ReplicaKeys:
    """The public keys of replicas by scheme; the newest `kept` versions of each node."""

    def __init__(self, *, nodes: int, kept: int = 2) -> None:
        if nodes < 1 or kept < 1:
            raise LocalError("a roster has room for at least one node and one version")
        self._nodes, self._versions_kept = nodes, kept
        self._keys: dict[bytes, dict[int, tuple[bytes, ...]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._keys.values()))

    def add(self, scheme: Scheme, keys: Sequence[bytes]) -> None:
        """The keys of replicas 1 to n, all different: one broker in two places would have two shares."""
        if len(keys) != scheme.size or len(set(keys)) != len(keys) or any(len(key) != PUBLIC for key in keys):
            raise LocalError("a scheme has one public key for each replica, and no two alike")
        if scheme.node not in self._keys and len(self._keys) >= self._nodes:
            raise LocalError(f"a roster of {self._nodes} nodes has no room for another")
        versions = self._keys.setdefault(scheme.node, {})
        if versions.get(scheme.version, tuple(keys)) != tuple(keys):
            raise LocalError("a version of a node's scheme does not change")
        versions[scheme.version] = tuple(keys)
        while len(versions) > self._versions_kept:
            del versions[min(versions)]

    def drop(self, node: bytes) -> None:
        self._keys.pop(node, None)

    def key_of(self, replica: ReplicaId) -> bytes:
        """`StaleError` if the scheme is not known (any more): the replica cannot be identified then."""
        keys = self._keys.get(replica.scheme.node, {}).get(replica.scheme.version, ())
        if len(keys) != replica.scheme.size:
            raise StaleError("the scheme is not known here")
        return keys[replica.index - 1]

    def current_id(self, key: bytes) -> ReplicaId | None:
        """The replica with this key under the newest schemes; None if it has left."""
        for node, versions in self._keys.items():
            keys = versions[version := max(versions)]
            if key in keys:
                return ReplicaId(Scheme(node, version, len(keys)), keys.index(key) + 1)
        return None

    def id_of(self, scheme: Scheme, key: bytes) -> ReplicaId | None:
        """The replica with this key under this scheme; None if the node has no such replica or the scheme is
        unknown."""
        keys = self._keys.get(scheme.node, {}).get(scheme.version, ())
        return ReplicaId(scheme, keys.index(key) + 1) if len(keys) == scheme.size and key in keys else None
