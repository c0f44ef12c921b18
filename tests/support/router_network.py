"""Routers of all replicas of an overlay, with links in order, and claims for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from random import Random

import msgspec

from support import broker_keyrings
from support.broker_keyrings import CHAIN, EPOCH, EPOCH_US, START, TOPIC
from veilcast.authority.keyring import TopicKeys
from veilcast.authority.topic_record import Profile
from veilcast.brokers.config import BrokerConfig
from veilcast.brokers.overlay import node_id, node_of_hop
from veilcast.brokers.routing import claims
from veilcast.brokers.routing.claim_semantics import predicate_codec
from veilcast.brokers.routing.router import Router
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.errors import RemoteError
from veilcast.machine import Address, Publication
from veilcast.sim.rng import derive_bytes
from veilcast.topics import Conjunction, Label
from veilcast.wire.base import Message
from veilcast.wire.brokers import Claim, Routing, WithdrawClaim

PROFILES: list[Profile] = ["paper", "hardened"]
UNTIL = claims.latest_expiry_us(EPOCH, EPOCH_US) - 1


def holder(number: int) -> SigningKey:
    return SigningKey(Secret(derive_bytes(number, "holder")))


def advertisement(
    keys: TopicKeys, edge: str, number: int, *, until: int | None = None, words: bytes | None = None
) -> Claim:
    language = predicate_codec(keys.record.profile)
    return claims.make_advertisement(
        keys,
        node_id(edge),
        EPOCH,
        until or until_of(keys),
        words or language.encode_advertisement(keys),
        holder(number).public,
    )


def subscription(
    keys: TopicKeys, edge: str, number: int, interest: Conjunction | None = None, *, until: int | None = None
) -> Claim:
    words = predicate_codec(keys.record.profile).encode_subscription(keys, interest or Label(keys.record.topic))
    return claims.make_subscription(keys, node_id(edge), EPOCH, until or until_of(keys), words, holder(number).public)


def until_of(keys: TopicKeys) -> int:
    return UNTIL if keys.record.profile == "hardened" else START + 500 * broker_keyrings.SECOND


def routing(claim: Claim, keys: TopicKeys, publication: Publication) -> Routing:
    return Routing(
        claim.id, predicate_codec(keys.record.profile).encode_publication(keys, publication), bytes(16), 0, bytes(8)
    )


def publication(*pairs: tuple[str, str | int | float], topic: str = TOPIC) -> Publication:
    return Publication((("topic", topic), *pairs))


class RouterNetwork:
    """Routers of all replicas; each link is a queue, and a random one goes next."""

    def __init__(
        self,
        profile: Profile,
        links: Sequence[tuple[str, str]] = CHAIN,
        replicas: int = 3,
        seed: int = 1,
        config: BrokerConfig | None = None,
        faulty_set: Collection[tuple[str, int]] = (),
    ) -> None:
        self.overlay = broker_keyrings.overlay(links, replicas)
        self.rng, self.now, self.faulty_set = Random(seed), START, faulty_set
        config = msgspec.structs.replace(config or BrokerConfig(), profile=profile)
        self.routers: dict[tuple[str, int], Router] = {}
        self.links: dict[tuple[tuple[str, int], tuple[str, int]], deque[Message]] = {}
        self.shown: dict[tuple[str, Address], list[Message]] = {}
        self.sent: list[Message] = []
        for node in self.overlay.nodes:
            for index in range(1, replicas + 1):
                self.routers[node.name, index] = Router(
                    config, self.overlay, node.id, self.enough, broker_keyrings.root(profile), EPOCH_US
                )

    def enough(self, node: bytes, keys: Collection[bytes]) -> bool:
        entry = self.overlay.node(node)
        return sum(replica.key in keys for replica in entry.replicas) > entry.scheme.max_faulty

    def at(self, node: str) -> list[Router]:
        return [router for (name, _), router in self.routers.items() if name == node]

    def client(self, node: str, client: str, message: Claim | WithdrawClaim) -> None:
        for router in self.at(node):
            if isinstance(message, Claim):
                router.claim_of_client(message, Address(client), self.now)
            else:
                router.withdrawal_of_client(message, Address(client), self.now)

    def inject(self, source: tuple[str, int], to: str, message: Claim | WithdrawClaim) -> None:
        """Send a message from a replica to all of a node, whatever its router thinks."""
        for index in range(1, len(self.at(to)) + 1):
            self.links.setdefault((source, (to, index)), deque()).append(message)

    def settle(self) -> None:
        while True:
            self._collect()
            open_links = [link for link, queue in self.links.items() if queue]
            if not open_links:
                return
            link = self.rng.choice(open_links)
            self._arrive(link, self.links[link].popleft())

    def later(self, microseconds: int) -> None:
        self.now += microseconds
        for router in self.routers.values():
            router.handle(self.now)
        self.settle()

    def reached(self, claim: Claim, edge: str, routed: Routing) -> set[Address]:
        """The clients that a majority of the replicas along the path sends a publication to."""
        found, waiting = set(), [edge]
        while waiting:
            at = waiting.pop()
            hops = [tuple(router.route(routed)) for honest, router in self._honest(at)]
            assert len(set(map(frozenset, hops))) == 1, "honest replicas agree"
            for hop in hops[0]:
                node = node_of_hop(hop)
                if node is None:
                    found.add(hop)
                else:
                    waiting.append(self.overlay.node(node).name)
        return found

    def _honest(self, node: str) -> list[tuple[int, Router]]:
        return [
            (at, router)
            for (name, at), router in self.routers.items()
            if name == node and (name, at) not in self.faulty_set
        ]

    def _collect(self) -> None:
        for place, router in self.routers.items():
            told, router.outbox = router.outbox, []
            for hop, message in told:
                self.sent.append(message)
                node = node_of_hop(hop)
                if node is None:
                    self.shown.setdefault((place[0], hop), []).append(message)
                elif place not in self.faulty_set:
                    name = self.overlay.node(node).name
                    for index in range(1, len(self.at(name)) + 1):
                        self.links.setdefault((place, (name, index)), deque()).append(message)

    def _arrive(self, link: tuple[tuple[str, int], tuple[str, int]], message: Message) -> None:
        (name, index), to = link
        entry = self.overlay.node(name)
        key = entry.replicas[index - 1].key
        try:
            if isinstance(message, Claim):
                self.routers[to].claim_of_node(message, entry.id, key, self.now)
            else:
                assert isinstance(message, WithdrawClaim)
                self.routers[to].withdrawal_of_node(message, entry.id, key, self.now)
        except RemoteError:
            if (name, index) not in self.faulty_set and not isinstance(message, WithdrawClaim):
                raise
