"""A chain of nodes in memory for the transfer of keys and content: real components, virtual time, scripted Byzantine
replicas.

A publisher is at the first node, subscribers are at the last; optionally there is a side branch at the last node but
one. Links deliver in order, within the bound on delay. A Byzantine replica is a real replica whose messages go through
a script.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations
from typing import Any

import msgspec

from veilcast.brokers.config import BrokerConfig
from veilcast.brokers.content.block_forwarder import BlockForwarder
from veilcast.brokers.content.blocks import (
    ContentAssembly,
    ContentBlock,
    ContentManifest,
    Strategy,
    choose_carriers,
    encode_content,
)
from veilcast.brokers.evidence import FaultEvidence
from veilcast.brokers.keys.bulk_key import make_key_id
from veilcast.brokers.keys.forwarder_base import ForwarderInputs, KeyForwarder
from veilcast.brokers.keys.hardened_forwarder import HardenedKeyForwarder
from veilcast.brokers.keys.paper_forwarder import PaperKeyForwarder
from veilcast.brokers.keys.paper_split import SplitKeyCollector, SplitShare, TrailVerifier, split_key
from veilcast.brokers.keys.redistribution import (
    DealtShare,
    DeliveredShare,
    HolderHeader,
    PublisherHeader,
    PublisherShare,
    RedistributedKeyCollector,
    deal_key,
)
from veilcast.brokers.keys.scheme import KeyAttempt, ReplicaId, ReplicaKeys, Scheme
from veilcast.brokers.keys.transfer_receiver import quiet_period_us
from veilcast.brokers.routing.view import Branch, Outgoing, Peer
from veilcast.crypto import verifiable_sharing
from veilcast.crypto.group import Scalar
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.crypto.verifiable_sharing import Commitments, VerifiableShare
from veilcast.errors import MalformedError, RemoteError, StaleError
from veilcast.machine import Address
from veilcast.wire.base import Message
from veilcast.wire.brokers import (
    ConfirmContent,
    FirstShare,
    ForwardContent,
    LastShare,
    NextShare,
    RequestBlocks,
    Routing,
    WantKey,
)

U = 1_000_000
ADVERT = b"a" * 16
PUBLISHER = SigningKey(Secret(b"p" * 32))
KEY = make_key_id(PUBLISHER.public, b"k" * 8)
CLIENT = Address("publisher")
SECRET = Scalar.of(0xC0FFEE)
START = 10_000_000_000

Script = Callable[["ByzantineReplica", Outgoing, int], list[tuple[int, Outgoing]]]
"""Maps a message to the messages that a Byzantine replica sends in its place, each with a delay."""


def scheme(hop: int, size: int = 3, version: int = 0) -> Scheme:
    return Scheme(bytes((hop,)) * 16, version, size)


@cache
def signing(hop: int, index: int, version: int = 0) -> SigningKey:
    return SigningKey(Secret(bytes((hop, index, version, 1)) * 8))


class StubRoutingView:
    """The view of one replica of the chain: the advertisement is known, and so are its branches."""

    def __init__(self, place: ReplicaId, before: Branch, branches: Sequence[Branch]) -> None:
        self.place, self.source, self.branches = place, before, list(branches)
        self.knows_advertisement = self.is_ready = True
        self.other_publishers: dict[bytes, bytes] = {}
        """Other advertisements and their publishers."""
        self.sources: dict[bytes, Branch] = {}
        self.older_ids: list[ReplicaId] = []
        self.is_under_way: Callable[[ReplicaId, ReplicaId, Message], bool] = lambda source, to, message: False

    def own_replicas(self) -> Sequence[ReplicaId]:
        return [self.place, *self.older_ids]

    def publisher_of(self, advertisement: bytes) -> bytes:
        self._check(advertisement)
        return self.other_publishers.get(advertisement, PUBLISHER.public)

    def source_of(self, advertisement: bytes) -> Branch:
        self._check(advertisement)
        return self.sources.get(advertisement, self.source)

    def subscriber_branches(self, advertisement: bytes) -> Sequence[Branch]:
        self._check(advertisement)
        return list(self.branches)

    def matching_branches(self, routing: Routing) -> Sequence[Branch]:
        self._check(routing.advertisement)
        return list(self.branches)

    def is_unacknowledged(self, place: ReplicaId, message: Message) -> bool:
        return self.is_under_way(self.place, place, message)

    def has_all_claims(self) -> bool:
        return self.is_ready

    def _check(self, advertisement: bytes) -> None:
        if advertisement not in (ADVERT, *self.other_publishers) or not self.knows_advertisement:
            raise StaleError("not known here")


class ChainReplica:
    """An honest replica. `first_life`: it was not killed before."""

    def __init__(
        self, world: TransferChain, place: ReplicaId, routes: StubRoutingView, now: int, *, first_life: bool = True
    ) -> None:
        self.world, self.place, self.routes = world, place, routes
        self.evidence = FaultEvidence(100, world.replica_keys)
        key = signing(place.scheme.node[0], place.index, place.scheme.version)
        entropy = random.Random(f"{world.seed} {place} {now}").randbytes
        self.signing, self.entropy = key, entropy
        forwarder = HardenedKeyForwarder if world.config.profile == "hardened" else PaperKeyForwarder
        inputs = ForwarderInputs(world.config, routes, world.replica_keys, key, entropy, self.evidence)
        self.key_forwarder: KeyForwarder = forwarder(inputs, now)
        self.content_forwarder = BlockForwarder(world.config, routes, self.evidence)
        if first_life:
            self.key_forwarder.end_quiet_period()
        self.refused: Counter[str] = Counter()

    @property
    def hardened_forwarder(self) -> HardenedKeyForwarder:
        assert isinstance(self.key_forwarder, HardenedKeyForwarder)
        return self.key_forwarder

    def receive(self, message: Message, source: Peer, now: int) -> None:
        part = (
            self.content_forwarder
            if isinstance(message, ForwardContent | RequestBlocks | ConfirmContent)
            else self.key_forwarder
        )
        try:
            part.receive(message, source, now)
        except RemoteError as error:
            self.refused[str(error)] += 1

    def handle(self, now: int) -> None:
        self.key_forwarder.handle(now)
        self.content_forwarder.handle(now)

    def next_us(self) -> int | None:
        times = [time for time in (self.key_forwarder.next_us(), self.content_forwarder.next_us()) if time is not None]
        return min(times, default=None)

    def sent(self, now: int) -> list[tuple[int, Outgoing]]:
        outgoing = self.key_forwarder.outbox + self.content_forwarder.outbox
        self.key_forwarder.outbox, self.content_forwarder.outbox = [], []
        return [(0, each) for each in outgoing]


class ByzantineReplica(ChainReplica):
    """A real replica whose messages go through a script. All Byzantine replicas know what it was sent."""

    def __init__(
        self, world: TransferChain, place: ReplicaId, routes: StubRoutingView, now: int, script: Script
    ) -> None:
        super().__init__(world, place, routes, now)
        self.script = script
        self.received: list[tuple[Message, Peer]] = []
        self.memory: dict[Any, Any] = {}

    def receive(self, message: Message, source: Peer, now: int) -> None:
        self.received.append((message, source))
        super().receive(message, source, now)

    def sent(self, now: int) -> list[tuple[int, Outgoing]]:
        return [late for _, each in super().sent(now) for late in self.script(self, each, now)]


class ChainSubscriber:
    """A subscriber at one node."""

    def __init__(self, world: TransferChain, address: Address, edge: Scheme) -> None:
        self.world, self.address, self.edge = world, address, edge
        self.keys: dict[KeyAttempt, Any] = {}
        self.reassembled: dict[KeyAttempt, Any] = {}
        self.contents: dict[bytes, ContentAssembly] = {}
        self.opened: dict[bytes, bytes] = {}
        self.request_times: dict[bytes, int] = {}
        self.request_counts: Counter[bytes] = Counter()
        self.attempts: dict[bytes, int] = {}

    def receive(self, message: Message, source: ReplicaId, now: int) -> list[Outgoing]:
        try:
            if isinstance(message, LastShare):
                self._key(message, source)
                return []
            assert isinstance(message, ForwardContent)
            return self._content(message, source, now)
        except RemoteError:
            return []

    def _key(self, message: LastShare, source: ReplicaId) -> None:
        if self.world.config.profile == "paper":
            parcel = SplitShare.decode(message.share)
            trails = TrailVerifier(PUBLISHER.public, self.world.replica_keys)
            gathering = self.keys.setdefault(parcel.key_attempt, SplitKeyCollector(parcel.key_attempt, trails))
            origin, found = parcel.key_attempt, gathering.add(parcel, source)
        else:
            delivery = DeliveredShare.decode(message.share)
            origin = delivery.publisher_header.key_attempt
            collecting = self.keys.setdefault(origin, RedistributedKeyCollector(origin, PUBLISHER.public))
            found = collecting.add(delivery, source)
        if found is not None:
            self.reassembled[origin] = found

    def _content(self, carry: ForwardContent, source: ReplicaId, now: int) -> list[Outgoing]:
        manifest = ContentManifest.decode(carry.manifest)
        assembly = self.contents.setdefault(manifest.id, ContentAssembly(manifest, PUBLISHER.public))
        self.attempts[manifest.id] = max(carry.attempt, self.attempts.get(manifest.id, 0))
        if carry.block is not None:
            assembly.add(ContentBlock(manifest.id, carry.index, carry.block), source)
        if assembly.is_complete:
            self.opened[manifest.id] = assembly.content()
            self.request_times.pop(manifest.id, None)
            return self._all(ConfirmContent(manifest.id, self.attempts[manifest.id]))
        self.request_times.setdefault(manifest.id, now + self.world.config.missing_us)
        return []

    def handle(self, now: int) -> list[Outgoing]:
        sent = []
        for id_ in [id_ for id_, when in self.request_times.items() if when <= now]:
            self.request_times[id_] = now + self.world.config.missing_us
            self.request_counts[id_] += 1
            wanted = RequestBlocks(id_, tuple(self.contents[id_].missing()))
            at = self.request_counts[id_] % self.edge.size
            sent += (
                [Outgoing(ReplicaId(self.edge, at + 1), wanted)] if self.request_counts[id_] < 4 else self._all(wanted)
            )
        return sent

    def next_us(self) -> int | None:
        return min(self.request_times.values(), default=None)

    def _all(self, message: Message) -> list[Outgoing]:
        return [Outgoing(ReplicaId(self.edge, at), message) for at in range(1, self.edge.size + 1)]


class TransferChain:
    """`scripts`: scripts by (hop, index). Nodes are numbered from 1; `side` adds a node beside the last."""

    def __init__(
        self,
        hops: int = 2,
        size: int = 3,
        byzantine: dict[tuple[int, int], Script] | None = None,
        *,
        seed: int = 0,
        profile: str = "hardened",
        strategy: Strategy = Strategy.COPIES,
        side: bool = False,
        **settings: int,
    ) -> None:
        self.seed, self.rng, self.now = seed, random.Random(seed), START
        self.config = msgspec.convert(
            {"profile": profile, "strategy": strategy, "bound_us": U, "missing_us": 4 * U, "hold_us": 200 * U}
            | settings,
            BrokerConfig,
        )
        self.size, self.hops = size, hops
        self.schemes = [scheme(hop, size) for hop in range(1, hops + 1 + side)]
        self.replica_keys = ReplicaKeys(nodes=8)
        for each in self.schemes:
            self.replica_keys.add(each, [signing(each.node[0], at).public for at in range(1, size + 1)])
        ends = [hops, hops + 1] if side else [hops]
        self.subscribers = {
            Address(f"reader {end}"): ChainSubscriber(self, Address(f"reader {end}"), scheme(end, size)) for end in ends
        }
        self.before = {hop: hop - 1 for hop in range(1, hops + 1)} | {hops + 1: hops - 1}
        self.replicas: dict[ReplicaId, ChainReplica] = {}
        self.scripts = byzantine or {}
        self.restarts_are_quiet = True
        """True if a restarted replica keeps its quiet period."""
        for each in self.schemes:
            for at in range(1, size + 1):
                self.replicas[ReplicaId(each, at)] = self._born(ReplicaId(each, at))
        self._queue: list[tuple[int, int, Peer, Peer, Message]] = []
        self._count = 0
        self._last: dict[tuple[Peer, Peer], int] = {}
        self.shares: list[tuple[Message, Peer, Peer]] = []
        self.messages: Counter[str] = Counter()
        self.done: dict[bytes, dict[ReplicaId, int]] = {}
        self.held: dict[bytes, tuple[ForwardContent, list[ContentBlock]]] = {}
        self.wanted: list[WantKey] = []
        self.unacknowledging: list[ReplicaId] = []
        """Byzantine replicas that acknowledge nothing."""
        self.extra_delay: Callable[[Peer, Peer, Message], int] = lambda source, to, message: 0

    def _born(self, place: ReplicaId, *, first_life: bool = True) -> ChainReplica:
        hop = place.scheme.node[0]
        before = scheme(self.before[hop], self.size) if self.before[hop] else CLIENT
        branches: list[Branch] = [each for each in self.schemes if self.before[each.node[0]] == hop]
        branches += [address for address, reader in self.subscribers.items() if reader.edge.node[0] == hop]
        routes = StubRoutingView(place, before, branches)
        routes.is_under_way = self._under_way
        script = self.scripts.get((hop, place.index))
        if script is None:
            return ChainReplica(self, place, routes, self.now, first_life=first_life)
        return ByzantineReplica(self, place, routes, self.now, script)

    def _under_way(self, source: ReplicaId, to: ReplicaId, message: Message) -> bool:
        """Links acknowledge what has arrived, unless a Byzantine replica does not."""
        return to in self.unacknowledging or any(each[2:] == (source, to, message) for each in self._queue)

    def kill(self, hop: int, index: int) -> None:
        """Kill the replica, and start it again without its state."""
        place = ReplicaId(scheme(hop, self.size), index)
        self.replicas[place] = self._born(place, first_life=not self.restarts_are_quiet)

    # --- what happens -------------------------------------------------------------------------------------------------

    def send(self, source: Peer, outgoing: Outgoing, later: int = 0) -> None:
        """Deliver in order on each link, within the bound, plus `extra_delay`."""
        delay = self.rng.randrange(U // 10, U * 8 // 10) + self.extra_delay(source, outgoing.to, outgoing.message)
        link = (source, outgoing.to)
        when = max(self.now + later + delay, 0 if later else self._last.get(link, 0))
        if not later:
            self._last[link] = when
        self._count += 1
        self.messages[type(outgoing.message).__name__] += 1
        if isinstance(outgoing.message, NextShare | FirstShare | LastShare):
            self.shares.append((outgoing.message, source, outgoing.to))
        heapq.heappush(self._queue, (when, self._count, source, outgoing.to, outgoing.message))

    def deal(self, attempt: int = 0, key: bytes = KEY) -> KeyAttempt:
        origin, first = KeyAttempt(key, attempt), self.schemes[0]
        entropy = random.Random(f"{self.seed} {attempt} {key.hex()}").randbytes
        if self.config.profile == "paper":
            shares = [part.encode() for part in split_key(_KEY, origin, first, PUBLISHER, entropy)]
        else:
            shares = [part.encode() for part in deal_key(SECRET, origin, first, PUBLISHER, entropy, self.now)]
        for at, share in enumerate(shares, 1):
            self.send(CLIENT, Outgoing(ReplicaId(first, at), FirstShare(ADVERT, share.reveal())))
        return origin

    def publish(self, text: bytes, attempt: int = 0) -> bytes:
        routing = Routing(ADVERT, b"news", b"k" * 16, 0, text[:8].ljust(8, b"\0"))
        first, strategy = self.schemes[0], self.config.strategy
        manifest, blocks = encode_content(routing.content, text, strategy, first, PUBLISHER)
        herald = ForwardContent(routing, manifest.encode(), None, 0, attempt)
        self.held[routing.content] = (herald, blocks)
        bearers: dict[int, list[ContentBlock]] = {at: [] for at in range(1, first.size + 1)}
        for block in blocks:
            everybody = range(1, first.size + 1) if strategy is Strategy.COPIES else ()
            for at in everybody or choose_carriers(strategy, routing.content, block.index, first, attempt):
                bearers[at].append(block)
        for at, borne in bearers.items():
            for carry in [_with(herald, block) for block in borne] or [herald]:
                self.send(CLIENT, Outgoing(ReplicaId(first, at), carry))
        return routing.content

    def run(self, until: int = 400 * U) -> None:
        """Run until nothing happens any more, or for this time."""
        end = self.now + until
        self._flush()
        while True:
            due = [when for each in self.replicas.values() if (when := each.next_us()) is not None]
            due += [when for reader in self.subscribers.values() if (when := reader.next_us()) is not None]
            due += [self._queue[0][0]] if self._queue else []
            if not due or min(due) > end:
                self.now = end
                return
            self.now = max(self.now, min(due))
            while self._queue and self._queue[0][0] <= self.now:
                _, _, source, to, message = heapq.heappop(self._queue)
                self._deliver(source, to, message)
                self._flush()
            for replica in self.replicas.values():
                replica.handle(self.now)
            for address, reader in self.subscribers.items():
                for outgoing in reader.handle(self.now):
                    self.send(address, outgoing)
            self._flush()

    def _flush(self) -> None:
        for place, replica in self.replicas.items():
            for later, outgoing in replica.sent(self.now):
                self.send(place, outgoing, later)

    def _deliver(self, source: Peer, to: Peer, message: Message) -> None:
        if isinstance(to, ReplicaId):
            self.replicas[to].receive(message, source, self.now)
        elif to in self.subscribers:
            assert isinstance(source, ReplicaId)
            for outgoing in self.subscribers[to].receive(message, source, self.now):
                self.send(to, outgoing)
        elif isinstance(message, ConfirmContent):
            assert isinstance(source, ReplicaId)
            self.done.setdefault(message.content, {})[source] = message.attempt
        elif isinstance(message, RequestBlocks) and message.content in self.held:
            herald, blocks = self.held[message.content]
            for index in message.blocks:
                self.send(to, Outgoing(source, _with(herald, blocks[index - 1])))
        elif isinstance(message, WantKey):
            self.wanted.append(message)

    # --- what follows from it -----------------------------------------------------------------------------------------

    @property
    def honest(self) -> list[ChainReplica]:
        return [replica for replica in self.replicas.values() if not isinstance(replica, ByzantineReplica)]

    def proven_faulty(self) -> list[tuple[int, int]]:
        """Replicas proven Byzantine by brokers or subscribers."""
        places = [place for replica in self.honest for place in replica.evidence.proven_faulty()]
        for reader in self.subscribers.values():
            places += [place for key in reader.keys.values() for place in key.faulty]
            places += [place for assembly in reader.contents.values() for place in assembly.faulty]
        return sorted(dict.fromkeys((place.scheme.node[0], place.index) for place in places))

    def is_confirmed(self, content: bytes) -> bool:
        """True if the publisher has enough confirmations."""
        return len(self.done.get(content, {})) > self.schemes[0].max_faulty


def _with(herald: ForwardContent, block: ContentBlock) -> ForwardContent:
    return msgspec.structs.replace(herald, block=block.data, index=block.index)


_KEY = Secret(SECRET.reveal())


# --- what liars can put together --------------------------------------------------------------------------------------


class CoalitionKnowledge:
    """All shares that Byzantine replicas sent or received, and everything that follows from them."""

    def __init__(self, world: TransferChain) -> None:
        self._known: dict[bytes, dict[int, VerifiableShare]] = {}
        self._dealt: dict[bytes, HolderHeader] = {}
        self._roots: dict[bytes, PublisherHeader] = {}
        self._olds: dict[bytes, Scheme] = {}
        for message, source, to in world.shares:
            faulty = isinstance(to, ReplicaId) and isinstance(world.replicas[to], ByzantineReplica)
            faulty = faulty or (isinstance(source, ReplicaId) and isinstance(world.replicas[source], ByzantineReplica))
            self._see(message, faulty=faulty)
        while self._grow():
            pass

    def has_key(self) -> bool:
        """True if the coalition can reconstruct the key of some attempt."""
        threshold = {old: by.threshold for old, by in self._olds.items()}
        return any(len(shares) >= threshold[old] for old, shares in self._known.items() if old in threshold)

    def _see(self, message: Message, *, faulty: bool) -> None:
        try:
            if isinstance(message, FirstShare):
                first = PublisherShare.decode(message.share)
                self._olds[first.publisher_header.points] = first.publisher_header.scheme
                if faulty:
                    self._put(first.publisher_header.points, first.share)
            elif isinstance(message, NextShare):
                portion = DealtShare.decode(message.share)
                self._dealt[portion.holder_header.new_points] = portion.holder_header
                self._olds[portion.holder_header.old_points] = portion.holder_header.old_scheme
                if faulty:
                    self._put(portion.holder_header.new_points, portion.share)
        except MalformedError:
            return

    def _put(self, sharing: bytes, share: VerifiableShare) -> bool:
        try:
            verifiable_sharing.verify_share(share, Commitments.decode(sharing))
        except RemoteError:
            return False
        known = self._known.setdefault(sharing, {})
        fresh = share.index not in known
        known[share.index] = share
        return fresh

    def _grow(self) -> bool:
        """One step of deduction; True if it found anything."""
        grown = False
        for new, header in list(self._dealt.items()):
            shares = self._known.get(new, {})
            if len(shares) >= header.new_scheme.threshold:
                chosen = dict(list(shares.items())[: header.new_scheme.threshold])
                value = verifiable_sharing._at_zero({at: share.value for at, share in chosen.items()})
                blinding = verifiable_sharing._at_zero({at: share.blinding for at, share in chosen.items()})
                grown |= self._put(header.old_points, VerifiableShare(header.holder, value, blinding))
        for sharing, by in list(self._olds.items()):
            grown |= self._combined(sharing, by)
        return grown

    def _combined(self, sharing: bytes, by: Scheme) -> bool:
        """Shares of a later sharing, from the dealt shares of all dealings that it was made of."""
        grown = False
        dealings = [header for header in self._dealt.values() if header.new_scheme == by]
        for index in range(1, by.size + 1):
            having = [header for header in dealings if index in self._known.get(header.new_points, {})]
            for chosen in combinations(having, dealings[0].old_scheme.threshold if dealings else 1):
                if index in self._known.get(sharing, {}) or len({header.holder for header in chosen}) < len(chosen):
                    continue
                parts = {header.holder: self._known[header.new_points][index] for header in chosen}
                value = verifiable_sharing._at_zero({at: share.value for at, share in parts.items()})
                blinding = verifiable_sharing._at_zero({at: share.blinding for at, share in parts.items()})
                grown |= self._put(sharing, VerifiableShare(index, value, blinding))
        return grown


QUIET = quiet_period_us(U, 1)


# --- what must be true of every run -----------------------------------------------------------------------------------

ByzantineScripts = dict[tuple[int, int], Script]


def key_arrived(world: TransferChain, origin: KeyAttempt) -> bool:
    """True if all subscribers have the key. Asserts that the coalition lacks it and that no honest replica is
    blamed."""
    assert not CoalitionKnowledge(world).has_key()
    assert [at for at in world.proven_faulty() if at not in world.scripts] == []
    return all(reader.reassembled.get(origin) == SECRET for reader in world.subscribers.values())


def run_chain(hops: int, byzantine: ByzantineScripts, seed: int = 0, size: int = 3) -> TransferChain:
    world = TransferChain(hops, size, byzantine, seed=seed)
    origin = world.deal()
    world.run(200 * U)
    assert key_arrived(world, origin), (hops, list(byzantine), seed)
    return world
