"""The overlay as its operator describes it: virtual nodes, the links between them, and the replicas of each node.

All machines start from one description, signed with the operator's key, and accept a newer one only with the same
signature. So no replica can add replicas to a node or exclude any. A replica is identified by its public key. It has an
address where it accepts connections, and a name under which it appears as a caller (on TLS, the name in its
certificate).

The version of a node's scheme changes exactly when its replicas change. A description that changes replicas under the
same version is refused, because shares of two schemes must not mix.

An operator may run several overlays, at once or one after another. Each has an origin, a random value drawn at the
first signature. Without it, anyone could replay an order of one overlay, old or of a second path, to the brokers of
another.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated, Final

import msgspec

from veilcast.authority.topic_record import Profile
from veilcast.brokers.keys.scheme import NODE_ID_BYTES, ReplicaId, ReplicaKeys, Scheme, check_hardened
from veilcast.brokers.topology import NODES_MAX, OverlayTree
from veilcast.crypto.derive import digest
from veilcast.crypto.shamir import MAX_SHARES
from veilcast.crypto.sign import PUBLIC, SIGNATURE, SigningKey, verify
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import ConfigError, LocalError, MalformedError, StaleError
from veilcast.machine import Address
from veilcast.wire import geometry as g

ORIGIN_BYTES: Final = 16
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
PeerName = Annotated[str, msgspec.Meta(min_length=1, max_length=g.ADDRESS_MAX)]
Version = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]


class Replica(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`address` is where it accepts connections; `caller` is its name as a caller."""

    key: Annotated[bytes, msgspec.Meta(min_length=PUBLIC, max_length=PUBLIC)]
    address: PeerName
    caller: PeerName


class NodeEntry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A virtual node. Replica i is the i-th entry, from 1."""

    name: Name
    version: Version
    replicas: Annotated[tuple[Replica, ...], msgspec.Meta(min_length=1, max_length=MAX_SHARES)]

    @property
    def id(self) -> bytes:
        return node_id(self.name)

    @property
    def scheme(self) -> Scheme:
        return Scheme(self.id, self.version, len(self.replicas))

    def replica_id(self, key: bytes) -> ReplicaId | None:
        for index, replica in enumerate(self.replicas, 1):
            if replica.key == key:
                return ReplicaId(self.scheme, index)
        return None


class BrokerOverlay(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The whole overlay in one version."""

    version: Version
    nodes: Annotated[tuple[NodeEntry, ...], msgspec.Meta(min_length=1, max_length=NODES_MAX)]
    links: Annotated[tuple[tuple[Name, Name], ...], msgspec.Meta(max_length=NODES_MAX)] = ()
    repository: NodeEntry | None = None
    """Replicas that store keys out of band (`operations.key_repository`), outside the tree."""
    profile: Profile = "hardened"
    """Profile of all brokers and members. Machines of the other profile could not understand them, and no error would
    be reported."""
    origin: Annotated[bytes, msgspec.Meta(min_length=ORIGIN_BYTES, max_length=ORIGIN_BYTES)] = bytes(ORIGIN_BYTES)
    """The same in all successive versions of the overlay."""

    @property
    def all_nodes(self) -> tuple[NodeEntry, ...]:
        """All nodes, and the repository."""
        return self.nodes if self.repository is None else (*self.nodes, self.repository)

    def check(self, profile: Profile) -> OverlayTree:
        """`ConfigError` unless the overlay is a tree of distinct replicas and, in `hardened`, each node can keep a
        secret."""
        names = [node.name for node in self.all_nodes]
        if len(set(names)) != len(names):
            raise ConfigError("two virtual nodes have one name")
        topology = OverlayTree.build({node.name: len(node.replicas) for node in self.nodes}, self.links)
        for what in ("key", "address", "caller"):
            values = [getattr(replica, what) for node in self.all_nodes for replica in node.replicas]
            if len(set(values)) != len(values):
                raise ConfigError(f"two replicas have one {what}")
        if profile == "hardened":
            topology.check_hardened()
            if self.repository is not None:
                check_hardened(len(self.repository.replicas), "the repository")
        return topology

    def node(self, name: str | bytes) -> NodeEntry:
        """Find a node by its name or its id."""
        id_ = node_id(name) if isinstance(name, str) else name
        for node in self.nodes:
            if node.id == id_:
                return node
        raise LocalError("the overlay has no such virtual node")

    def neighbours(self, name: str | bytes) -> tuple[NodeEntry, ...]:
        """The neighbours in the order of the links, which is the same for all machines."""
        here = self.node(name).name
        ends = [other if one == here else one for one, other in self.links if here in (one, other)]
        return tuple(self.node(end) for end in ends)

    def directions(self, home: bytes) -> dict[bytes, bytes]:
        """For every other node, the neighbour that the path to it begins with."""
        toward = {node.id: node.id for node in self.neighbours(home)}
        reached = list(toward)
        while reached:
            here = reached.pop()
            for node in self.neighbours(here):
                if node.id != home and node.id not in toward:
                    toward[node.id] = toward[here]
                    reached.append(node.id)
        return toward

    def replica_id(self, key: bytes) -> ReplicaId | None:
        """The replica with this key; None if the overlay has none."""
        return next((replica_id for node in self.nodes if (replica_id := node.replica_id(key)) is not None), None)

    def replica(self, replica_id: ReplicaId) -> Replica:
        node = self.node(replica_id.scheme.node)
        if node.scheme != replica_id.scheme:
            raise StaleError("the scheme is not known here")
        return node.replicas[replica_id.index - 1]

    def check_successor(self, newer: BrokerOverlay) -> None:
        """Raise unless `newer` may follow this overlay: the same tree, and a newer scheme wherever replicas differ.

        `newer` need not be the next version: a machine that was offline has missed some. But within one step no replica
        moves from node to node, because it would hold shares of both.
        """
        if newer.origin != self.origin:
            raise StaleError("an order for another overlay of this operator")
        if newer.version <= self.version:
            raise StaleError("an overlay that is not newer")
        if newer.links != self.links or [node.name for node in newer.nodes] != [node.name for node in self.nodes]:
            raise MalformedError("an order changes replicas, and not the tree")
        if (self.repository is None) != (newer.repository is None):
            raise MalformedError("an order changes replicas of the repository, and not whether there is one")
        if newer.profile != self.profile:
            raise MalformedError("an order changes replicas, and not the profile")
        for old, new in zip(self.all_nodes, newer.all_nodes, strict=True):
            if new.version < old.version or (new.version == old.version and new.replicas != old.replicas):
                raise StaleError("a node's replicas change without a newer scheme")
            if newer.version == self.version + 1 and any(
                (replica_id := self.replica_id(replica.key)) is not None and replica_id.scheme.node != new.id
                for replica in new.replicas
            ):
                raise MalformedError("a replica leaves its node before it comes to another")


class SignedOverlay(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The encoding of an overlay, and the operator's signature over it."""

    body: Annotated[bytes, msgspec.Meta(min_length=1, max_length=g.SHARING_MAX - SIGNATURE - 16)]
    signature: Annotated[bytes, msgspec.Meta(min_length=SIGNATURE, max_length=SIGNATURE)]

    def verify(self, operator: bytes) -> BrokerOverlay:
        """Decode the overlay; raises unless the operator signed it."""
        verify(operator, self.body, self.signature, purpose=_PURPOSE)
        return _DECODER.decode(self.body)

    def encode(self) -> bytes:
        return _ENCODER.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> SignedOverlay:
        return _SIGNED.decode(data)


def sign_overlay(overlay: BrokerOverlay, operator: SigningKey) -> SignedOverlay:
    """`ConfigError` if the description is too long for one message."""
    body = _ENCODER.encode(overlay)
    if len(body) > g.SHARING_MAX - SIGNATURE - 16:
        raise ConfigError(f"the overlay's description has {len(body)} bytes, which is more than one message carries")
    signed = SignedOverlay(body, operator.sign(body, purpose=_PURPOSE))
    signed.verify(operator.public)
    return signed


@lru_cache(maxsize=NODES_MAX)
def node_id(name: str) -> bytes:
    """The id of a virtual node in messages."""
    return digest(name.encode(), purpose=b"vc/virtual-node", size=NODE_ID_BYTES)


def hop_of_node(node: bytes) -> Address:
    """A neighbouring node as a hop of routing tables. A client's hop is its link's address."""
    return Address(_HOP + node.hex())


def node_of_hop(hop: Address) -> bytes | None:
    """The node that this hop stands for; None for a client's hop."""
    return bytes.fromhex(hop[len(_HOP) :]) if hop.startswith(_HOP) else None


def overlay_replica_keys(overlays: Iterable[BrokerOverlay]) -> ReplicaKeys:
    """The keys of all replicas under the schemes of these overlays, the oldest first."""
    all_overlays = list(overlays)
    replica_keys = ReplicaKeys(nodes=NODES_MAX + 1)
    for overlay in all_overlays:
        add_overlay_keys(replica_keys, overlay)
    return replica_keys


def add_overlay_keys(replica_keys: ReplicaKeys, overlay: BrokerOverlay) -> None:
    for node in overlay.all_nodes:
        replica_keys.add(node.scheme, [replica.key for replica in node.replicas])


def is_caller(own: bytes, other: bytes) -> bool:
    """Of two brokers, the one with the smaller key connects to the other."""
    return own < other


_HOP: Final = "node:"
_PURPOSE: Final = b"veilcast/overlay"
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = MsgpackDecoder(BrokerOverlay, MalformedError, "not an overlay", g.SHARING_MAX)
_SIGNED: Final = MsgpackDecoder(SignedOverlay, MalformedError, "not a signed overlay", g.SHARING_MAX)
