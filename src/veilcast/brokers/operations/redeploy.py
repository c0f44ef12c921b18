"""Redeployment: replicas join and leave while publications flow (P4, Algorithms 3 to 5, corrected).

Inputs come by method call, outputs go to `outbox`; `handle(now, work)` and `next_us()` keep the time. A broker and a
client each have one `Deployment`. They ask it by which scheme to send to a node, whose statements count for it, and
with which replicas to link.

In the paper a replica announces by itself that it joins or leaves, so a Byzantine one can exclude honest ones until it
is alone. Here only an order counts: a newer description of the whole overlay, signed by its operator. Orders spread
from peer to peer: a peer that names an older version is shown the newest order.

A node's scheme changes in two phases:

1. From the order on, everyone accepts messages addressed by either scheme, new replicas copy the claims that they lack
   (`state_transfer`), and all report when they are ready.
2. A sender switches to the new scheme when all its replicas are ready, or after `prepare_us` when a majority is. By the
   bound on delay the honest ones are ready by then, and a Byzantine one can delay nobody. (In the paper an attaching
   replica counts toward the threshold at once, with empty tables.) After the switch, the sender tells the leaving
   replicas, behind its last messages to them. They leave when their remaining work is done (`detach`).

Transfers under the old scheme end under it; shares of two schemes never mix. If two senders of one hop switch at
different times, neither scheme may get enough shares of a key: at the publisher's next attempt they agree.

One order is carried out at a time. A newer one waits, and of several only the newest.

Neighbour state (`NeighbourNode`, `NearbyReplicas`): what follows from the current schemes is looked up at every message
and changes only with an order. So it is computed once, and again when the deployment changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import msgspec

from veilcast.authority.topic_record import Profile
from veilcast.brokers.keys.scheme import ReplicaId, ReplicaKeys, Scheme, max_faulty
from veilcast.brokers.operations.detach import Detachment, DetachRule, RemainingWork
from veilcast.brokers.operations.state_transfer import RoutingStateTransfer
from veilcast.brokers.overlay import (
    BrokerOverlay,
    NodeEntry,
    Replica,
    SignedOverlay,
    add_overlay_keys,
    overlay_replica_keys,
)
from veilcast.core.settings import check_minimum
from veilcast.core.timers import earliest
from veilcast.errors import ConfigError, ForgedError, LocalError, MalformedError, StaleError
from veilcast.machine import Address
from veilcast.wire.brokers import CopyRouting, OverlayOrder, VersionAdopted
from veilcast.wire.mesh import Message


@dataclass(slots=True)
class NeighbourNode:
    """A nearby node: the entry to send by, the next one, and the one that ends."""

    entry: NodeEntry
    next_entry: NodeEntry | None = None
    old_entry: NodeEntry | None = None
    prepare_deadline_us: int | None = None
    settled_us: int = 0
    linger_deadline_us: int = 0

    @property
    def is_settled(self) -> bool:
        return self.next_entry is None and self.old_entry is None

    def entries(self) -> list[NodeEntry]:
        return [entry for entry in (self.entry, self.next_entry, self.old_entry) if entry is not None]


class NearbyReplicas(NamedTuple):
    """By key: the replicas to link with, and the ids of all, the one to send by first."""

    linked: dict[bytes, Replica]
    ids: dict[bytes, list[ReplicaId]]
    is_settled: bool


def collect_nearby(nodes: Collection[NeighbourNode], without: Collection[bytes | None]) -> NearbyReplicas:
    """Collect the replicas of these nodes. Replicas with the keys in `without` are not linked."""
    made = NearbyReplicas({}, {}, all(node.is_settled for node in nodes))
    for node in nodes:
        for entry in node.entries():
            scheme = entry.scheme
            for index, replica in enumerate(entry.replicas, 1):
                made.ids.setdefault(replica.key, []).append(ReplicaId(scheme, index))
        for entry in reversed(node.entries()):
            made.linked.update((replica.key, replica) for replica in entry.replicas if replica.key not in without)
    return made


PeerId: TypeAlias = bytes | Address
"""A replica by its key, or a client by its link."""


class RedeployTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Durations of the steps of a redeployment, in microseconds."""

    prepare_us: int = 30_000_000
    """Time after which a new scheme is used although not all of its replicas are ready."""
    settle_us: int = 3_000_000
    """Longest time between the first and the last honest switch; messages sent before have arrived by then."""
    linger_us: int = 60_000_000
    """Longest time that a leaving replica and its links stay."""
    copy_us: int = 2_000_000
    """Time after which replicas that did not answer are asked for their claims again."""

    def __post_init__(self) -> None:
        check_minimum(self, "redeployment", 1, *self.__struct_fields__)


class Deployment:
    """The overlay as seen by a replica (`me` is its key) of node `at`, or by a client whose edge node is `at`.

    Bounded by the overlay: two descriptions of each nearby node, and one waiting order.
    """

    def __init__(
        self,
        signed: SignedOverlay,
        operator: bytes,
        at: bytes,
        me: bytes | None,
        *,
        profile: Profile,
        pace: RedeployTimes,
        now: int,
        rule: DetachRule = "corrected",
    ) -> None:
        overlay = signed.verify(operator)
        overlay.check(profile)
        here = overlay.node(at)
        if me is not None and here.replica_id(me) is None:
            raise LocalError(f"no replica of {here.name!r} has this key")
        self._operator, self._at, self._me = operator, at, me
        self._profile, self._pace, self._rule = profile, pace, rule
        self._overlay, self._signed = overlay, signed
        self._newest, self._order = overlay, OverlayOrder(signed.encode())
        self._waiting: SignedOverlay | None = None
        self.replica_keys: ReplicaKeys = overlay_replica_keys([overlay])
        near = (here,) if me is None else (here, *overlay.neighbours(at))
        self._nodes = {entry.id: NeighbourNode(entry) for entry in near}
        self._made: NearbyReplicas | None = None
        self._ready: dict[bytes, int] = {}
        self._quiet_us = 0
        self._shown: set[PeerId] = set()
        self._gone: set[bytes] = set()
        self._leaving: Detachment | None = None
        self._copying: RoutingStateTransfer | None = None
        if me is not None:
            asked = {node: self._keys(state.entry) for node, state in self._nodes.items()}
            self._copying = RoutingStateTransfer(asked, at, copy_us=pace.copy_us, linger_us=pace.linger_us, now=now)
        self._farewell_us: int | None = None
        self.has_left = False
        """For a replica that the operator has detached: True if it may close its streams."""
        self.outbox: list[tuple[PeerId | None, Message]] = []
        """Messages to send; None as receiver means every client."""
        self.handle(now, RemainingWork())

    # --- what others ask

    @property
    def version(self) -> int:
        return self._overlay.version

    @property
    def overlay(self) -> BrokerOverlay:
        """The newest overlay that is carried out."""
        return self._overlay

    @property
    def signed(self) -> SignedOverlay:
        return self._signed

    @property
    def has_routing_state(self) -> bool:
        """True if the routing state is complete. Before, a replica forwards nothing and announces no rolls."""
        return self._copying is None or self._copying.is_complete

    @property
    def is_leaving(self) -> bool:
        return self._leaving is not None

    @property
    def may_leave(self) -> bool:
        """True if the replica is leaving, or a waiting order may say so. Only then does its remaining work matter."""
        return self.is_leaving or self._waiting is not None

    @property
    def is_settled(self) -> bool:
        """True if there is nothing to do but wait for messages: `handle` need not be called."""
        return self._around.is_settled and self._is_ready and not self.is_leaving

    def scheme(self, node: bytes) -> Scheme:
        """The scheme to send to the node by."""
        return self._near(node).entry.scheme

    def schemes(self, node: bytes) -> list[Scheme]:
        """All schemes by which messages to or from the node are accepted, the one to send by first."""
        return [entry.scheme for entry in self._near(node).entries()]

    def replicas(self, scheme: Scheme) -> tuple[Replica, ...]:
        """`StaleError` if the scheme does not count now."""
        for entry in self._near(scheme.node).entries():
            if entry.scheme == scheme:
                return entry.replicas
        raise StaleError("the scheme is not one that counts now")

    def replica_id(self, key: bytes, scheme: Scheme) -> ReplicaId | None:
        """The id of the replica with this key under that scheme."""
        for index, replica in enumerate(self.replicas(scheme), 1):
            if replica.key == key:
                return ReplicaId(scheme, index)
        return None

    def ids_of(self, key: bytes) -> Sequence[ReplicaId]:
        """All ids of a nearby replica under schemes that count now."""
        return self._around.ids.get(key, ())

    def node_of(self, key: bytes) -> bytes | None:
        """The nearby node that the replica belongs to."""
        return next((place.scheme.node for place in self.ids_of(key)), None)

    def nearby_nodes(self) -> list[bytes]:
        """This node and, for a replica, its neighbours."""
        return list(self._nodes)

    def includes_honest(self, node: bytes, keys: Collection[bytes]) -> bool:
        """True if an honest replica of that node must be among these keys, by one of its schemes."""
        return any(
            sum(replica.key in keys for replica in entry.replicas) > max_faulty(len(entry.replicas))
            for entry in self._near(node).entries()
        )

    def linked_replicas(self) -> Mapping[bytes, Replica]:
        """All replicas to link with now; the same mapping object until it changes."""
        return self._around.linked

    # --- what happens

    def make_greeting(self, peer: PeerId) -> VersionAdopted:
        """The first message on every new stream: the version that is followed here. A peer with an older one is shown
        the order."""
        self._shown.discard(peer)
        return VersionAdopted(self.version, self._is_ready and not self.is_leaving and self._is_told(peer))

    def on_peer_lost(self, peer: PeerId) -> None:
        self._shown.discard(peer)

    def accept_order(self, order: OverlayOrder, now: int) -> bool:
        """Accept an order from any peer. True if it is new and was forwarded. Raises for an invalid order."""
        if order == self._order:
            return False
        signed = SignedOverlay.decode(order.order)
        overlay = signed.verify(self._operator)
        if overlay.version == self._newest.version:
            raise ForgedError("two orders of one version")
        self._newest.check_successor(overlay)
        try:
            overlay.check(self._profile)
        except ConfigError as error:
            raise MalformedError("an order for an overlay that could not be") from error
        self._newest, self._order, self._waiting = overlay, order, signed
        self._shown.clear()
        taken_up = self._take_up(now)
        if self._me is not None:
            self.outbox += [(key, order) for key in self.linked_replicas()]
            self.outbox.append((None, order))
        if taken_up:
            self._say_ready(now)
        return True

    def accept_status(self, stands: VersionAdopted, peer: PeerId, now: int) -> None:
        """The status of a replica, or of a client, which counts for nothing but is shown the order."""
        if stands.version < self._newest.version and peer not in self._shown:
            self._shown.add(peer)
            self.outbox.append((peer, self._order))
        if isinstance(peer, str):
            return
        if peer not in self.linked_replicas():
            raise StaleError("a replica that we are not linked with")
        if not stands.ready or stands.version < self.version:
            self._ready.pop(peer, None)
            return
        self._ready[peer] = stands.version
        if self._leaving is not None:
            self._leaving.record_moved(peer)
        if self._is_leaving(peer):
            self._gone.add(peer)
            self._made = None

    def record_state_answer(self, key: bytes) -> None:
        """A replica has sent all claims that it was asked for."""
        if self._copying is not None:
            self._copying.record_answer(key)

    def handle(self, now: int, work: RemainingWork) -> None:
        if self.has_left:
            return
        self._quiet_us = work.quiet_us
        if self._copying is not None and not self._copying.is_complete:
            self.outbox += [(key, CopyRouting(self.version)) for key in self._copying.handle(now, work)]
        self._say_ready(now)
        for state in self._nodes.values():
            self._go_over(state, now)
            self._end_old(state, now)
        if self._take_up(now):
            self._say_ready(now)
        if self._leaving is None:
            return
        if self._farewell_us is not None:
            self.has_left = not work.lagging or now >= self._farewell_us
        elif self._leaving.handle(now, work):
            self._farewell_us = now + self._pace.settle_us
            self.outbox += [(key, VersionAdopted(self.version, True)) for key in self.linked_replicas()]

    def next_us(self) -> int | None:
        if self.has_left:
            return None
        moments = [self._farewell_us]
        if self._copying is not None:
            moments.append(self._copying.next_us())
            if self._copying.is_complete and not self._is_ready and not self.is_leaving:
                moments.append(self._quiet_us)
        if self._leaving is not None and self._farewell_us is None:
            moments.append(self._leaving.next_us())
        for state in self._nodes.values():
            moments.append(state.prepare_deadline_us)
            if state.old_entry is not None and not self.is_leaving:
                moments.append(state.settled_us if self._all_gone(state.old_entry) else state.linger_deadline_us)
        return earliest(*moments)

    # --- the two phases

    def _take_up(self, now: int) -> bool:
        """Start the waiting order once the previous one is carried out. True if there was one."""
        if self._waiting is None or self.is_leaving or not self._around.is_settled:
            return False
        self._signed, self._overlay, self._waiting = self._waiting, self._newest, None
        add_overlay_keys(self.replica_keys, self._overlay)
        if self._me is not None and self._overlay.node(self._at).replica_id(self._me) is None:
            # It stays with those it knows, and the scheme it was one of; those who come do not know it.
            self._leaving = Detachment(
                {
                    node: [key for key in self._keys(state.entry) if not self._is_leaving(key)]
                    for node, state in self._nodes.items()
                },
                settle_us=self._pace.settle_us,
                until_us=now + self._pace.prepare_us + self._pace.linger_us,
                rule=self._rule,
            )
            for peer, version in self._ready.items():
                if version >= self.version:  # It was quicker than we, and says it once.
                    self._leaving.record_moved(peer)
        for node, state in self._nodes.items():
            entry = self._overlay.node(node)
            if entry.version != state.entry.version and (self._leaving is None or node != self._at):
                state.next_entry, state.prepare_deadline_us = entry, now + self._pace.prepare_us
        self._made = None
        return True

    @property
    def _is_ready(self) -> bool:
        """True if readiness was reported; a client reports to nobody."""
        return self._me is None or self._ready.get(self._me, -1) >= self.version

    def _say_ready(self, now: int) -> None:
        if self._is_ready or not self.has_routing_state or self.is_leaving or now < self._quiet_us or self._me is None:
            return
        self._ready[self._me] = self.version
        self.outbox += [
            (key, VersionAdopted(self.version, True)) for key in self.linked_replicas() if not self._is_leaving(key)
        ]
        self.outbox.append((None, VersionAdopted(self.version, True)))

    def _go_over(self, state: NeighbourNode, now: int) -> None:
        """The second phase, for one node."""
        if state.next_entry is None:
            return
        if state.prepare_deadline_us is not None and now >= state.prepare_deadline_us:
            state.prepare_deadline_us = None
        scheme = state.next_entry.scheme
        ready = sum(self._ready.get(replica.key, -1) >= self.version for replica in state.next_entry.replicas)
        if ready < scheme.size and (state.prepare_deadline_us is not None or ready < scheme.threshold):
            return
        state.old_entry, state.entry, state.next_entry, state.prepare_deadline_us = (
            state.entry,
            state.next_entry,
            None,
            None,
        )
        state.settled_us, state.linger_deadline_us = now + self._pace.settle_us, now + self._pace.linger_us
        self._made = None
        if not self.is_leaving:
            gone = [key for key in self._keys(state.old_entry) if self._is_leaving(key) and key not in self._gone]
            self.outbox += [(key, VersionAdopted(self.version, True)) for key in gone]

    def _end_old(self, state: NeighbourNode, now: int) -> None:
        if state.old_entry is None or self.is_leaving:
            return
        if now >= state.linger_deadline_us or (now >= state.settled_us and self._all_gone(state.old_entry)):
            self._gone -= set(self._keys(state.old_entry))
            state.old_entry = self._made = None

    def _all_gone(self, old: NodeEntry) -> bool:
        return all(key in self._gone or not self._is_leaving(key) for key in self._keys(old))

    def _is_leaving(self, key: bytes) -> bool:
        """True if the replica belongs to a nearby node and the order removes it."""
        return all(self._overlay.node(node).replica_id(key) is None for node in self._nodes)

    def _is_told(self, peer: PeerId) -> bool:
        """True if this peer may hear that the order is followed here. A leaving replica may hear it only when nothing
        more is sent to it."""
        return isinstance(peer, str) or all(
            state.next_entry is None
            or state.entry.replica_id(peer) is None
            or state.next_entry.replica_id(peer) is not None
            for state in self._nodes.values()
        )

    def _near(self, node: bytes) -> NeighbourNode:
        if node not in self._nodes:
            raise LocalError("that node is not near")
        return self._nodes[node]

    @property
    def _around(self) -> NearbyReplicas:
        if self._made is None:
            self._made = collect_nearby(self._nodes.values(), self._gone | {self._me})
        return self._made

    def _keys(self, entry: NodeEntry) -> list[bytes]:
        """Keys of all replicas except this one."""
        return [replica.key for replica in entry.replicas if replica.key != self._me]
