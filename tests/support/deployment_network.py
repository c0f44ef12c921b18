"""Deployments that exchange messages in virtual time, with plain items that flow through them: W to X to Y."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping
from random import Random

from veilcast.brokers.operations.deployment import Deployment, RedeployTimes
from veilcast.brokers.operations.detachment import DetachRule, RemainingWork
from veilcast.brokers.overlay import BrokerOverlay, NodeEntry, Replica, SignedOverlay, node_id, sign_overlay
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.errors import RemoteError
from veilcast.wire.brokers import CopyRouting, OverlayOrder, VersionAdopted

OPERATOR = SigningKey(Secret(b"o" * 32))
PACE = RedeployTimes(prepare_us=600_000, settle_us=200_000, linger_us=1_500_000, copy_us=300_000)
MS = 1_000


def key(name: str) -> bytes:
    return SigningKey(Secret(name.encode().ljust(32, b"."))).public


def entry(node: str, version: int, names: list[str]) -> NodeEntry:
    return NodeEntry(node, version, tuple(Replica(key(name), f"{name}:1", f"broker:{name}") for name in names))


def overlay(version: int, nodes: Mapping[str, tuple[int, list[str]]]) -> BrokerOverlay:
    """Nodes in a row, each with the version of its scheme and its replicas."""
    names = list(nodes)
    entries = tuple(entry(node, *told) for node, told in nodes.items())
    return BrokerOverlay(version, entries, tuple(itertools.pairwise(names)))


def signed_overlay(version: int, nodes: Mapping[str, tuple[int, list[str]]]) -> SignedOverlay:
    return sign_overlay(overlay(version, nodes), OPERATOR)


class DeploymentNetwork:
    """Replicas by name; `mute` ones accept items and orders, but send and acknowledge nothing."""

    def __init__(
        self, base: SignedOverlay, *, seed: int = 0, rule: DetachRule = "corrected", mute: tuple[str, ...] = ()
    ) -> None:
        self.now, self._count = 0, 0
        self._rng, self._rule = Random(seed), rule
        self._events: list[tuple[int, int, bytes, bytes, object]] = []
        self._delays: dict[tuple[bytes, bytes], int] = {}
        self._unheard: dict[bytes, Counter[bytes]] = defaultdict(Counter)
        self._touched: set[bytes] = set()
        self.mute = {key(name) for name in mute}
        self.at: dict[bytes, str] = {}
        self.deployments: dict[bytes, Deployment] = {}
        self.inbox: dict[bytes, list[tuple[int, int]]] = defaultdict(list)
        self.seen: dict[bytes, set[int]] = defaultdict(set)
        self.lost: Counter[bytes] = Counter()
        self.left_us: dict[bytes, int] = {}
        self.refused: Counter[str] = Counter()
        for node in base.verify(OPERATOR.public).nodes:
            for replica in node.replicas:
                self.start(replica.key, node.name, base)

    def start(self, replica: bytes, node: str, base: SignedOverlay) -> None:
        self.at[replica] = node
        self.deployments[replica] = Deployment(
            base, OPERATOR.public, node_id(node), replica, profile="paper", pace=PACE, now=self.now, rule=self._rule
        )
        for other, deployment in self.deployments.items():
            if other != replica and replica in deployment.linked_replicas():
                self.send(other, replica, deployment.make_greeting(replica))
                self.send(replica, other, self.deployments[replica].make_greeting(other))

    def order(self, newer: SignedOverlay, *names: str) -> None:
        for name in names:
            self.give(key(name), OverlayOrder(newer.encode()))

    def give(self, to: bytes, message: object, source: bytes = b"") -> None:
        heapq.heappush(self._events, (self.now, self._tick(), to, source, message))

    def send(self, source: bytes, to: bytes, message: object) -> None:
        if source in self.mute and not isinstance(message, int):
            return
        delay = self._delays.setdefault((source, to), self._rng.randrange(5 * MS, 60 * MS))
        self._unheard[source][to] += 1
        heapq.heappush(self._events, (self.now + delay, self._tick(), to, source, message))

    def publish(self, number: int, node: str = "W") -> None:
        for replica, where in self.at.items():
            if where == node and replica not in self.left_us:
                self.pass_on(replica, "X", number)

    def pass_on(self, source: bytes, node: str, number: int) -> None:
        deployment = self.deployments[source]
        for replica in deployment.replicas(deployment.scheme(node_id(node))):
            self.send(source, replica.key, number)

    def run(self, until_us: int, *, publish_every_us: int = 0, first: int = 0) -> int:
        """Run until this time; returns the number of items published."""
        number, publish_us, turns = first, self.now, 0
        while True:
            turns += 1
            assert turns < 100_000, "somebody asks to be woken for nothing"
            moments = [until_us]
            if self._events:
                moments.append(self._events[0][0])
            if publish_every_us:
                moments.append(publish_us)
            moments += [due for to, inbox in self.inbox.items() for due, _ in inbox[:1] if to not in self.left_us]
            moments += [when for each in self.deployments.values() if (when := each.next_us()) is not None]
            self.now = max(self.now, min(moments))
            if self.now >= until_us:
                return number - first
            if publish_every_us and self.now >= publish_us:
                self.publish(number)
                number, publish_us = number + 1, publish_us + publish_every_us
            while self._events and self._events[0][0] <= self.now:
                _, _, to, source, message = heapq.heappop(self._events)
                self._receive(to, source, message)
            for replica in self.deployments:
                if replica in self._touched or self._is_due(replica):
                    self._step(replica)
            self._touched.clear()

    def _is_due(self, replica: bytes) -> bool:
        when, inbox = self.deployments[replica].next_us(), self.inbox[replica]
        return (when is not None and when <= self.now) or bool(inbox and inbox[0][0] <= self.now)

    def _receive(self, to: bytes, source: bytes, message: object) -> None:
        self._touched.add(to)
        if message is None:
            self._unheard[to][source] -= 1
            return
        if to in self.left_us:
            self.lost[to] += isinstance(message, int)
            return
        if to not in self.mute and source:
            heapq.heappush(self._events, (self.now + 5 * MS, self._tick(), source, to, None))
        deployment = self.deployments.get(to)
        if deployment is None:
            return
        try:
            match message:
                case int():
                    self.inbox[to].append((self.now + 20 * MS, message))
                case OverlayOrder():
                    deployment.accept_order(message, self.now)
                case VersionAdopted():
                    deployment.accept_status(message, source, self.now)
                case CopyRouting():
                    self.send(to, source, "copied")
                case "copied":
                    deployment.record_state_answer(source)
        except RemoteError as error:
            self.refused[str(error)] += 1

    def _step(self, replica: bytes) -> None:
        deployment = self.deployments[replica]
        while self.inbox[replica] and self.inbox[replica][0][0] <= self.now and replica not in self.left_us:
            _, number = self.inbox[replica].pop(0)
            if number not in self.seen[replica]:
                self.seen[replica].add(number)
                if self.at[replica] == "X" and deployment.has_routing_state:
                    self.pass_on(replica, "Y", number)
        queued = [to for to, count in self._unheard[replica].items() if count > 0]
        deployment.handle(self.now, RemainingWork(queued, len(self.inbox[replica])))
        for peer, message in deployment.outbox:
            if isinstance(peer, bytes):
                self.send(replica, peer, message)
        deployment.outbox.clear()
        if deployment.has_left and replica not in self.left_us:
            self.left_us[replica] = self.now

    def _tick(self) -> int:
        self._count += 1
        return self._count
