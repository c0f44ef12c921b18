"""Redeployment: replicas join and leave while publications flow (P4, Algorithms 3 to 5, corrected).

Inputs come by method call, outputs go to `outbox`; `handle(now, work)` and `next_us()` keep the time. A broker and a
client each have one `Deployment`. They ask it by which scheme to send to a node, whose statements count for it, and
with which replicas to link.

A node's scheme changes in two phases. From the order on, everyone accepts messages addressed by either scheme, new
replicas copy the claims that they lack (`state_catch_up`), and all report when they are ready. Then each sender
switches to the new scheme, and tells the leaving replicas behind its last messages to them. They leave when their
remaining work is done (`detachment`).

1. Property: only the operator changes who is a replica.
   Reason: an order is a newer description of the whole overlay, signed by its operator; two of one version are refused.
   (In the paper a replica announces by itself that it joins or leaves. A Byzantine one can then exclude honest ones
   until it is alone.) Orders spread from peer to peer: a peer that names an older version is shown the newest order.

2. Property: no Byzantine replica of a new scheme delays the switch beyond `prepare_us`, and none makes it come early.
   Reason: a sender switches when all replicas of the new scheme are ready, or after `prepare_us` when a majority is. A
   majority contains an honest replica, so Byzantine replicas alone switch nothing. (In the paper an attaching replica
   counts toward the threshold at once, with empty tables.)

3. Property: after a switch, the honest replicas of the new scheme can serve.
   Assumption: an honest replica that is up is ready within `prepare_us` of the order. It needs up to
   `state_catch_up.PATIENCE_FACTOR` times `copy_us` for its claims, and its quiet period runs at the same time: by
   default 20 s and 10 s, where `prepare_us` is 30 s. With a shorter `prepare_us`, replicas that are not ready count as
   faulty until they are.
   Reason: all honest ones are ready after `prepare_us`, and they are a majority.

4. Property: shares of two schemes never mix.
   Reason: every dealing and roll names its scheme, and transfers under the old scheme end under it. If two senders of
   one hop switch at different times, neither scheme may get enough shares of a key. At the publisher's next attempt the
   senders agree, because honest ones switch within `settle_us`.

5. Property: nothing that was sent by the old scheme is refused by an honest replica that should have it.
   Reason: the old scheme ends at a peer after `settle_us` at the earliest, when the last honest sender has switched and
   its messages have arrived, and then only when the leaving replicas have said that they are done, or after
   `linger_us`. The second bound keeps a Byzantine replica that never says so from blocking the next order.

6. Property: orders are carried out one at a time, and a series of orders leaves at most one waiting.
   Reason: a newer one waits until all nearby nodes are settled, and replaces one that waits. So a node has at most
   three entries: the one to send by, the next, and the one that ends.

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
from veilcast.brokers.operations.detachment import Detachment, DetachRule, RemainingWork
from veilcast.brokers.operations.state_catch_up import RoutingStateCatchUp
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
from veilcast.wire.base import Message
from veilcast.wire.brokers import CopyRouting, OverlayOrder, VersionAdopted


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
    nearby = NearbyReplicas({}, {}, all(node.is_settled for node in nodes))
    for node in nodes:
        for entry in node.entries():
            scheme = entry.scheme
            for index, replica in enumerate(entry.replicas, 1):
                nearby.ids.setdefault(replica.key, []).append(ReplicaId(scheme, index))
        for entry in reversed(node.entries()):
            nearby.linked.update((replica.key, replica) for replica in entry.replicas if replica.key not in without)
    return nearby


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
    """The overlay as seen by a replica (`own_key`) of node `home`, or by a client whose edge node is `home`.

    Bounded by the overlay: two descriptions of each nearby node, and one waiting order.
    """

    def __init__(
        self,
        signed: SignedOverlay,
        operator: bytes,
        home: bytes,
        own_key: bytes | None,
        *,
        profile: Profile,
        pace: RedeployTimes,
        now: int,
        rule: DetachRule = "corrected",
    ) -> None:
        overlay = signed.verify(operator)
        overlay.check(profile)
        here = overlay.node(home)
        if own_key is not None and here.replica_id(own_key) is None:
            raise LocalError(f"no replica of {here.name!r} has this key")
        self._operator, self._home, self._own_key = operator, home, own_key
        self._profile, self._pace, self._rule = profile, pace, rule
        self._overlay, self._signed = overlay, signed
        self._newest, self._order = overlay, OverlayOrder(signed.encode())
        self._waiting_order: SignedOverlay | None = None
        self.replica_keys: ReplicaKeys = overlay_replica_keys([overlay])
        entries = (here,) if own_key is None else (here, *overlay.neighbours(home))
        self._nodes = {entry.id: NeighbourNode(entry) for entry in entries}
        self._nearby_cache: NearbyReplicas | None = None
        self._ready: dict[bytes, int] = {}
        self._quiet_until_us = 0
        self._shown_to: set[PeerId] = set()
        self._departed: set[bytes] = set()
        self._detachment: Detachment | None = None
        self._catch_up: RoutingStateCatchUp | None = None
        if own_key is not None:
            to_ask = {node: self._keys(node_state.entry) for node, node_state in self._nodes.items()}
            self._catch_up = RoutingStateCatchUp(to_ask, home, copy_us=pace.copy_us, linger_us=pace.linger_us, now=now)
        self._closing_us: int | None = None
        self.has_left = False
        """True if a detached replica may close its streams."""
        self.outbox: list[tuple[PeerId | None, Message]] = []
        """Messages to send; None as receiver means every client."""
        self.handle(now, RemainingWork())

    # --- queries

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
        return self._catch_up is None or self._catch_up.is_complete

    @property
    def is_leaving(self) -> bool:
        return self._detachment is not None

    @property
    def may_leave(self) -> bool:
        """True if the replica is leaving, or a waiting order may say so. Only then does its remaining work matter."""
        return self.is_leaving or self._waiting_order is not None

    @property
    def is_settled(self) -> bool:
        """True if there is nothing to do but wait for messages: `handle` need not be called."""
        return self._nearby_replicas.is_settled and self._is_ready and not self.is_leaving

    def scheme(self, node: bytes) -> Scheme:
        """The scheme to send to the node by."""
        return self._find_node(node).entry.scheme

    def schemes(self, node: bytes) -> list[Scheme]:
        """All schemes by which messages to or from the node are accepted, the one to send by first."""
        return [entry.scheme for entry in self._find_node(node).entries()]

    def replicas(self, scheme: Scheme) -> tuple[Replica, ...]:
        """`StaleError` if the scheme does not count now."""
        for entry in self._find_node(scheme.node).entries():
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
        return self._nearby_replicas.ids.get(key, ())

    def node_of(self, key: bytes) -> bytes | None:
        """The nearby node that the replica belongs to."""
        return next((replica_id.scheme.node for replica_id in self.ids_of(key)), None)

    def nearby_nodes(self) -> list[bytes]:
        """This node and, for a replica, its neighbours."""
        return list(self._nodes)

    def includes_honest(self, node: bytes, keys: Collection[bytes]) -> bool:
        """True if an honest replica of that node must be among these keys, by one of its schemes."""
        return any(
            sum(replica.key in keys for replica in entry.replicas) > max_faulty(len(entry.replicas))
            for entry in self._find_node(node).entries()
        )

    def linked_replicas(self) -> Mapping[bytes, Replica]:
        """All replicas to link with now; the same mapping object until it changes."""
        return self._nearby_replicas.linked

    # --- input

    def make_greeting(self, peer: PeerId) -> VersionAdopted:
        """The first message on every new stream: the version that is followed here. A peer with an older one is shown
        the order."""
        self._shown_to.discard(peer)
        return VersionAdopted(self.version, self._is_ready and not self.is_leaving and self._may_hear_status(peer))

    def on_peer_lost(self, peer: PeerId) -> None:
        self._shown_to.discard(peer)

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
        self._newest, self._order, self._waiting_order = overlay, order, signed
        self._shown_to.clear()
        taken_up = self._start_order(now)
        if self._own_key is not None:
            self.outbox += [(key, order) for key in self.linked_replicas()]
            self.outbox.append((None, order))
        if taken_up:
            self._report_ready(now)
        return True

    def accept_status(self, status: VersionAdopted, peer: PeerId, now: int) -> None:
        """The status of a replica, or of a client, which counts for nothing but is shown the order."""
        if status.version < self._newest.version and peer not in self._shown_to:
            self._shown_to.add(peer)
            self.outbox.append((peer, self._order))
        if isinstance(peer, str):
            return
        if peer not in self.linked_replicas():
            raise StaleError("a replica without a link to this one")
        if not status.ready or status.version < self.version:
            self._ready.pop(peer, None)
            return
        self._ready[peer] = status.version
        if self._detachment is not None:
            self._detachment.record_moved(peer)
        if self._is_leaving(peer):
            self._departed.add(peer)
            self._nearby_cache = None

    def record_state_answer(self, key: bytes) -> None:
        """A replica has sent all claims that it was asked for."""
        if self._catch_up is not None:
            self._catch_up.record_answer(key)

    def handle(self, now: int, work: RemainingWork) -> None:
        if self.has_left:
            return
        self._quiet_until_us = work.quiet_us
        if self._catch_up is not None and not self._catch_up.is_complete:
            self.outbox += [(key, CopyRouting(self.version)) for key in self._catch_up.handle(now, work)]
        self._report_ready(now)
        for node_state in self._nodes.values():
            self._switch(node_state, now)
            self._end_old_scheme(node_state, now)
        if self._start_order(now):
            self._report_ready(now)
        if self._detachment is None:
            return
        if self._closing_us is not None:
            self.has_left = not work.lagging or now >= self._closing_us
        elif self._detachment.handle(now, work):
            self._closing_us = now + self._pace.settle_us
            self.outbox += [(key, VersionAdopted(self.version, True)) for key in self.linked_replicas()]

    def next_us(self) -> int | None:
        if self.has_left:
            return None
        times = [self._closing_us]
        if self._catch_up is not None:
            times.append(self._catch_up.next_us())
            if self._catch_up.is_complete and not self._is_ready and not self.is_leaving:
                times.append(self._quiet_until_us)
        if self._detachment is not None and self._closing_us is None:
            times.append(self._detachment.next_us())
        for node_state in self._nodes.values():
            times.append(node_state.prepare_deadline_us)
            if node_state.old_entry is not None and not self.is_leaving:
                times.append(
                    node_state.settled_us if self._all_departed(node_state.old_entry) else node_state.linger_deadline_us
                )
        return earliest(*times)

    # --- the two phases

    def _start_order(self, now: int) -> bool:
        """Start the waiting order once the previous one is carried out. True if there was one."""
        if self._waiting_order is None or self.is_leaving or not self._nearby_replicas.is_settled:
            return False
        self._signed, self._overlay, self._waiting_order = self._waiting_order, self._newest, None
        add_overlay_keys(self.replica_keys, self._overlay)
        if self._own_key is not None and self._overlay.node(self._home).replica_id(self._own_key) is None:
            # It keeps its current links and its old scheme; the joining replicas do not know it.
            self._detachment = Detachment(
                {
                    node: [key for key in self._keys(node_state.entry) if not self._is_leaving(key)]
                    for node, node_state in self._nodes.items()
                },
                settle_us=self._pace.settle_us,
                until_us=now + self._pace.prepare_us + self._pace.linger_us,
                rule=self._rule,
            )
            for peer, version in self._ready.items():
                if version >= self.version:  # This peer was quicker, and reports only once.
                    self._detachment.record_moved(peer)
        for node, node_state in self._nodes.items():
            entry = self._overlay.node(node)
            if entry.version != node_state.entry.version and (self._detachment is None or node != self._home):
                node_state.next_entry, node_state.prepare_deadline_us = entry, now + self._pace.prepare_us
        self._nearby_cache = None
        return True

    @property
    def _is_ready(self) -> bool:
        """True if readiness was reported; a client reports to nobody."""
        return self._own_key is None or self._ready.get(self._own_key, -1) >= self.version

    def _report_ready(self, now: int) -> None:
        if (
            self._is_ready
            or not self.has_routing_state
            or self.is_leaving
            or now < self._quiet_until_us
            or self._own_key is None
        ):
            return
        self._ready[self._own_key] = self.version
        self.outbox += [
            (key, VersionAdopted(self.version, True)) for key in self.linked_replicas() if not self._is_leaving(key)
        ]
        self.outbox.append((None, VersionAdopted(self.version, True)))

    def _switch(self, node_state: NeighbourNode, now: int) -> None:
        """The second phase, for one node."""
        if node_state.next_entry is None:
            return
        if node_state.prepare_deadline_us is not None and now >= node_state.prepare_deadline_us:
            node_state.prepare_deadline_us = None
        scheme = node_state.next_entry.scheme
        ready = sum(self._ready.get(replica.key, -1) >= self.version for replica in node_state.next_entry.replicas)
        if ready < scheme.size and (node_state.prepare_deadline_us is not None or ready < scheme.threshold):
            return
        node_state.old_entry, node_state.entry, node_state.next_entry, node_state.prepare_deadline_us = (
            node_state.entry,
            node_state.next_entry,
            None,
            None,
        )
        node_state.settled_us, node_state.linger_deadline_us = now + self._pace.settle_us, now + self._pace.linger_us
        self._nearby_cache = None
        if not self.is_leaving:
            departed = [
                key for key in self._keys(node_state.old_entry) if self._is_leaving(key) and key not in self._departed
            ]
            self.outbox += [(key, VersionAdopted(self.version, True)) for key in departed]

    def _end_old_scheme(self, node_state: NeighbourNode, now: int) -> None:
        if node_state.old_entry is None or self.is_leaving:
            return
        if now >= node_state.linger_deadline_us or (
            now >= node_state.settled_us and self._all_departed(node_state.old_entry)
        ):
            self._departed -= set(self._keys(node_state.old_entry))
            node_state.old_entry = self._nearby_cache = None

    def _all_departed(self, old: NodeEntry) -> bool:
        return all(key in self._departed or not self._is_leaving(key) for key in self._keys(old))

    def _is_leaving(self, key: bytes) -> bool:
        """True if the replica belongs to a nearby node and the order removes it."""
        return all(self._overlay.node(node).replica_id(key) is None for node in self._nodes)

    def _may_hear_status(self, peer: PeerId) -> bool:
        """True if this peer may hear that the order is followed here. A leaving replica may hear it only when nothing
        more is sent to it."""
        return isinstance(peer, str) or all(
            node_state.next_entry is None
            or node_state.entry.replica_id(peer) is None
            or node_state.next_entry.replica_id(peer) is not None
            for node_state in self._nodes.values()
        )

    def _find_node(self, node: bytes) -> NeighbourNode:
        if node not in self._nodes:
            raise LocalError("that node is not near")
        return self._nodes[node]

    @property
    def _nearby_replicas(self) -> NearbyReplicas:
        if self._nearby_cache is None:
            self._nearby_cache = collect_nearby(self._nodes.values(), self._departed | {self._own_key})
        return self._nearby_cache

    def _keys(self, entry: NodeEntry) -> list[bytes]:
        """Keys of all replicas except this one."""
        return [replica.key for replica in entry.replicas if replica.key != self._own_key]
