"""A small overlay in memory for the passage of keys and content: real components, virtual time, scripted liars.

A chain of nodes, optionally with a side branch at the last but one; a publisher at the first, readers at the last ones.
Links deliver in order, within the bound on delay. A liar is a real replica whose messages go through a script.
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

from veilcast.brokers.carrying import Carrying
from veilcast.brokers.config import BrokerConfig
from veilcast.brokers.content import Assembly, Block, Manifest, Strategy, carriers, prepare
from veilcast.brokers.hop import quiet_us
from veilcast.brokers.passing import Passing
from veilcast.brokers.routes import Branch, Outgoing, Peer
from veilcast.brokers.sharing.bulk import key_id
from veilcast.brokers.sharing.gathering import Gathering
from veilcast.brokers.sharing.paper import Origin, Parcel, Trails, split_key
from veilcast.brokers.sharing.redistribution import Collecting, Delivery, First, Header, Portion, Root, deal_key
from veilcast.brokers.sharing.scheme import Place, Roster, Scheme
from veilcast.brokers.standing import Suspicions
from veilcast.crypto import dealing
from veilcast.crypto.dealing import Commitments, Share
from veilcast.crypto.group import Scalar
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.errors import MalformedError, RemoteError, StaleError
from veilcast.machine import Address
from veilcast.wire.brokers import Carry, Done, FirstShare, LastShare, Missing, NextShare, Routing, WantKey
from veilcast.wire.messages import Message

U = 1_000_000
ADVERT = b"a" * 16
PUBLISHER = SigningKey(Secret(b"p" * 32))
KEY = key_id(PUBLISHER.public, b"k" * 8)
CLIENT = Address("publisher")
SECRET = Scalar.of(0xC0FFEE)
START = 10_000_000_000

Script = Callable[["Liar", Outgoing, int], list[tuple[int, Outgoing]]]
"""What a liar sends instead of a message, and how much later."""


def scheme(hop: int, size: int = 3, version: int = 0) -> Scheme:
    return Scheme(bytes((hop,)) * 16, version, size)


@cache
def signing(hop: int, index: int, version: int = 0) -> SigningKey:
    return SigningKey(Secret(bytes((hop, index, version, 1)) * 8))


class Routes:
    """Of one replica of a chain: the advertisement is known, and who wants what of it."""

    def __init__(self, place: Place, before: Branch, branches: Sequence[Branch]) -> None:
        self.place, self.before, self.branches = place, before, list(branches)
        self.known = self.is_ready = True
        self.others: dict[bytes, bytes] = {}
        """Other advertisements and their publishers, from the same hop or these."""
        self.sources: dict[bytes, Branch] = {}
        self.older: list[Place] = []
        self.under_way: Callable[[Place, Place, Message], bool] = lambda source, to, message: False

    def places(self) -> Sequence[Place]:
        return [self.place, *self.older]

    def publisher(self, advertisement: bytes) -> bytes:
        self._check(advertisement)
        return self.others.get(advertisement, PUBLISHER.public)

    def came_from(self, advertisement: bytes) -> Branch:
        self._check(advertisement)
        return self.sources.get(advertisement, self.before)

    def readers(self, advertisement: bytes) -> Sequence[Branch]:
        self._check(advertisement)
        return list(self.branches)

    def wanting(self, routing: Routing) -> Sequence[Branch]:
        self._check(routing.advertisement)
        return list(self.branches)

    def unheard(self, place: Place, message: Message) -> bool:
        return self.under_way(self.place, place, message)

    def ready(self) -> bool:
        return self.is_ready

    def _check(self, advertisement: bytes) -> None:
        if advertisement not in (ADVERT, *self.others) or not self.known:
            raise StaleError("not known here")


class Replica:
    """An honest one. `first_life`: it has not been killed before."""

    def __init__(self, world: World, place: Place, routes: Routes, now: int, *, first_life: bool = True) -> None:
        self.world, self.place, self.routes = world, place, routes
        self.suspicions = Suspicions(100, world.roster)
        key = signing(place.scheme.node[0], place.index, place.scheme.version)
        entropy = random.Random(f"{world.seed} {place} {now}").randbytes
        self.signing, self.entropy = key, entropy
        self.passing = Passing(world.config, routes, world.roster, key, entropy, self.suspicions, now)
        self.carrying = Carrying(world.config, routes, self.suspicions)
        if first_life:
            self.passing.welcome()
        self.refused: Counter[str] = Counter()

    def receive(self, message: Message, source: Peer, now: int) -> None:
        part = self.carrying if isinstance(message, Carry | Missing | Done) else self.passing
        try:
            part.receive(message, source, now)
        except RemoteError as error:
            self.refused[str(error)] += 1

    def handle(self, now: int) -> None:
        self.passing.handle(now)
        self.carrying.handle(now)

    def next_us(self) -> int | None:
        times = [time for time in (self.passing.next_us(), self.carrying.next_us()) if time is not None]
        return min(times, default=None)

    def sent(self, now: int) -> list[tuple[int, Outgoing]]:
        outgoing = self.passing.outbox + self.carrying.outbox
        self.passing.outbox, self.carrying.outbox = [], []
        return [(0, each) for each in outgoing]


class Liar(Replica):
    """A real replica whose messages go through a script. What it was sent, all liars know."""

    def __init__(self, world: World, place: Place, routes: Routes, now: int, script: Script) -> None:
        super().__init__(world, place, routes, now)
        self.script = script
        self.heard: list[tuple[Message, Peer]] = []
        self.memory: dict[Any, Any] = {}

    def receive(self, message: Message, source: Peer, now: int) -> None:
        self.heard.append((message, source))
        super().receive(message, source, now)

    def sent(self, now: int) -> list[tuple[int, Outgoing]]:
        return [late for _, each in super().sent(now) for late in self.script(self, each, now)]


class Reader:
    """A reading client, at one node."""

    def __init__(self, world: World, address: Address, edge: Scheme) -> None:
        self.world, self.address, self.edge = world, address, edge
        self.keys: dict[Origin, Any] = {}
        self.got: dict[Origin, Any] = {}
        self.contents: dict[bytes, Assembly] = {}
        self.opened: dict[bytes, bytes] = {}
        self.asks: dict[bytes, int] = {}
        self.tries: Counter[bytes] = Counter()
        self.attempts: dict[bytes, int] = {}

    def receive(self, message: Message, source: Place, now: int) -> list[Outgoing]:
        try:
            if isinstance(message, LastShare):
                self._key(message, source)
                return []
            assert isinstance(message, Carry)
            return self._content(message, source, now)
        except RemoteError:
            return []

    def _key(self, message: LastShare, source: Place) -> None:
        if self.world.config.profile == "paper":
            parcel = Parcel.decode(message.share)
            trails = Trails(PUBLISHER.public, self.world.roster)
            gathering = self.keys.setdefault(parcel.origin, Gathering(parcel.origin, trails))
            origin, found = parcel.origin, gathering.add(parcel, source)
        else:
            delivery = Delivery.decode(message.share)
            origin = delivery.root.origin
            collecting = self.keys.setdefault(origin, Collecting(origin, PUBLISHER.public))
            found = collecting.add(delivery, source)
        if found is not None:
            self.got[origin] = found

    def _content(self, carry: Carry, source: Place, now: int) -> list[Outgoing]:
        manifest = Manifest.decode(carry.manifest)
        assembly = self.contents.setdefault(manifest.id, Assembly(manifest, PUBLISHER.public))
        self.attempts[manifest.id] = max(carry.attempt, self.attempts.get(manifest.id, 0))
        if carry.block is not None:
            assembly.add(Block(manifest.id, carry.index, carry.block), source)
        if assembly.complete:
            self.opened[manifest.id] = assembly.content()
            self.asks.pop(manifest.id, None)
            return self._all(Done(manifest.id, self.attempts[manifest.id]))
        self.asks.setdefault(manifest.id, now + self.world.config.missing_us)
        return []

    def handle(self, now: int) -> list[Outgoing]:
        sent = []
        for id_ in [id_ for id_, when in self.asks.items() if when <= now]:
            self.asks[id_] = now + self.world.config.missing_us
            self.tries[id_] += 1
            wanted = Missing(id_, tuple(self.contents[id_].missing()))
            at = self.tries[id_] % self.edge.size
            sent += [Outgoing(Place(self.edge, at + 1), wanted)] if self.tries[id_] < 4 else self._all(wanted)
        return sent

    def next_us(self) -> int | None:
        return min(self.asks.values(), default=None)

    def _all(self, message: Message) -> list[Outgoing]:
        return [Outgoing(Place(self.edge, at), message) for at in range(1, self.edge.size + 1)]


class World:
    """`liars`: scripts by (hop, index). Nodes are numbered from 1; `side` adds a node beside the last."""

    def __init__(
        self,
        hops: int = 2,
        size: int = 3,
        liars: dict[tuple[int, int], Script] | None = None,
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
        self.roster = Roster(nodes=8)
        for each in self.schemes:
            self.roster.put(each, [signing(each.node[0], at).public for at in range(1, size + 1)])
        ends = [hops, hops + 1] if side else [hops]
        self.readers = {
            Address(f"reader {end}"): Reader(self, Address(f"reader {end}"), scheme(end, size)) for end in ends
        }
        self.before = {hop: hop - 1 for hop in range(1, hops + 1)} | {hops + 1: hops - 1}
        self.replicas: dict[Place, Replica] = {}
        self.liars = liars or {}
        self.forgetful = True
        """Whether who was killed knows that it has forgotten something."""
        for each in self.schemes:
            for at in range(1, size + 1):
                self.replicas[Place(each, at)] = self._born(Place(each, at))
        self._queue: list[tuple[int, int, Peer, Peer, Message]] = []
        self._count = 0
        self._last: dict[tuple[Peer, Peer], int] = {}
        self.shares: list[tuple[Message, Peer, Peer]] = []
        self.messages: Counter[str] = Counter()
        self.done: dict[bytes, dict[Place, int]] = {}
        self.held: dict[bytes, tuple[Carry, list[Block]]] = {}
        self.wanted: list[WantKey] = []
        self.deaf: list[Place] = []
        """Liars that acknowledge nothing."""
        self.slow: Callable[[Peer, Peer, Message], int] = lambda source, to, message: 0

    def _born(self, place: Place, *, first_life: bool = True) -> Replica:
        hop = place.scheme.node[0]
        before = scheme(self.before[hop], self.size) if self.before[hop] else CLIENT
        branches: list[Branch] = [each for each in self.schemes if self.before[each.node[0]] == hop]
        branches += [address for address, reader in self.readers.items() if reader.edge.node[0] == hop]
        routes = Routes(place, before, branches)
        routes.under_way = self._under_way
        script = self.liars.get((hop, place.index))
        if script is None:
            return Replica(self, place, routes, self.now, first_life=first_life)
        return Liar(self, place, routes, self.now, script)

    def _under_way(self, source: Place, to: Place, message: Message) -> bool:
        """Links acknowledge what has come, unless a liar does not."""
        return to in self.deaf or any(each[2:] == (source, to, message) for each in self._queue)

    def kill(self, hop: int, index: int) -> None:
        """And start it again, with nothing that it knew."""
        place = Place(scheme(hop, self.size), index)
        self.replicas[place] = self._born(place, first_life=not self.forgetful)

    # --- what happens -------------------------------------------------------------------------------------------------

    def send(self, source: Peer, outgoing: Outgoing, later: int = 0) -> None:
        """In order on each link, within the bound, unless it is held up."""
        delay = self.rng.randrange(U // 10, U * 8 // 10) + self.slow(source, outgoing.to, outgoing.message)
        link = (source, outgoing.to)
        when = max(self.now + later + delay, 0 if later else self._last.get(link, 0))
        if not later:
            self._last[link] = when
        self._count += 1
        self.messages[type(outgoing.message).__name__] += 1
        if isinstance(outgoing.message, NextShare | FirstShare | LastShare):
            self.shares.append((outgoing.message, source, outgoing.to))
        heapq.heappush(self._queue, (when, self._count, source, outgoing.to, outgoing.message))

    def deal(self, attempt: int = 0, key: bytes = KEY) -> Origin:
        origin, first = Origin(key, attempt), self.schemes[0]
        entropy = random.Random(f"{self.seed} {attempt} {key.hex()}").randbytes
        if self.config.profile == "paper":
            shares = [part.encode() for part in split_key(_KEY, origin, first, PUBLISHER, entropy)]
        else:
            shares = [part.encode() for part in deal_key(SECRET, origin, first, PUBLISHER, entropy, self.now)]
        for at, share in enumerate(shares, 1):
            self.send(CLIENT, Outgoing(Place(first, at), FirstShare(ADVERT, share.reveal())))
        return origin

    def publish(self, text: bytes, attempt: int = 0) -> bytes:
        routing = Routing(ADVERT, b"news", b"k" * 16, 0, text[:8].ljust(8, b"\0"))
        first, strategy = self.schemes[0], self.config.strategy
        manifest, blocks = prepare(routing.content, text, strategy, first, PUBLISHER)
        herald = Carry(routing, manifest.encode(), None, 0, attempt)
        self.held[routing.content] = (herald, blocks)
        bearers: dict[int, list[Block]] = {at: [] for at in range(1, first.size + 1)}
        for block in blocks:
            everybody = range(1, first.size + 1) if strategy is Strategy.COPIES else ()
            for at in everybody or carriers(strategy, routing.content, block.index, first, attempt):
                bearers[at].append(block)
        for at, borne in bearers.items():
            for carry in [_with(herald, block) for block in borne] or [herald]:
                self.send(CLIENT, Outgoing(Place(first, at), carry))
        return routing.content

    def run(self, until: int = 400 * U) -> None:
        """Until nothing happens any more, or for so long."""
        end = self.now + until
        self._flush()
        while True:
            due = [when for each in self.replicas.values() if (when := each.next_us()) is not None]
            due += [when for reader in self.readers.values() if (when := reader.next_us()) is not None]
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
            for address, reader in self.readers.items():
                for outgoing in reader.handle(self.now):
                    self.send(address, outgoing)
            self._flush()

    def _flush(self) -> None:
        for place, replica in self.replicas.items():
            for later, outgoing in replica.sent(self.now):
                self.send(place, outgoing, later)

    def _deliver(self, source: Peer, to: Peer, message: Message) -> None:
        if isinstance(to, Place):
            self.replicas[to].receive(message, source, self.now)
        elif to in self.readers:
            assert isinstance(source, Place)
            for outgoing in self.readers[to].receive(message, source, self.now):
                self.send(to, outgoing)
        elif isinstance(message, Done):
            assert isinstance(source, Place)
            self.done.setdefault(message.content, {})[source] = message.attempt
        elif isinstance(message, Missing) and message.content in self.held:
            herald, blocks = self.held[message.content]
            for index in message.blocks:
                self.send(to, Outgoing(source, _with(herald, blocks[index - 1])))
        elif isinstance(message, WantKey):
            self.wanted.append(message)

    # --- what follows from it -----------------------------------------------------------------------------------------

    @property
    def honest(self) -> list[Replica]:
        return [replica for replica in self.replicas.values() if not isinstance(replica, Liar)]

    def named(self) -> list[tuple[int, int]]:
        """Who was proven to lie, by brokers or readers."""
        places = [place for replica in self.honest for place in replica.suspicions.liars()]
        for reader in self.readers.values():
            places += [place for key in reader.keys.values() for place in key.liars]
            places += [place for assembly in reader.contents.values() for place in assembly.liars]
        return sorted(dict.fromkeys((place.scheme.node[0], place.index) for place in places))

    def finished(self, content: bytes) -> bool:
        """Whether the publisher knows that it is through."""
        return len(self.done.get(content, {})) > self.schemes[0].tolerated


def _with(herald: Carry, block: Block) -> Carry:
    return msgspec.structs.replace(herald, block=block.data, index=block.index)


_KEY = Secret(SECRET.reveal())


# --- what liars can put together --------------------------------------------------------------------------------------


class Pool:
    """All shares that came to liars' links: every sharing and dealing, and what follows from them."""

    def __init__(self, world: World) -> None:
        self._known: dict[bytes, dict[int, Share]] = {}
        self._dealt: dict[bytes, Header] = {}
        self._roots: dict[bytes, Root] = {}
        self._olds: dict[bytes, Scheme] = {}
        for message, source, to in world.shares:
            liar = isinstance(to, Place) and isinstance(world.replicas[to], Liar)
            liar = liar or (isinstance(source, Place) and isinstance(world.replicas[source], Liar))
            self._see(message, liar=liar)
        while self._grow():
            pass

    def reconstructs(self) -> bool:
        """Some attempt's key."""
        threshold = {old: by.threshold for old, by in self._olds.items()}
        return any(len(shares) >= threshold[old] for old, shares in self._known.items() if old in threshold)

    def _see(self, message: Message, *, liar: bool) -> None:
        try:
            if isinstance(message, FirstShare):
                first = First.decode(message.share)
                self._olds[first.root.points] = first.root.to
                if liar:
                    self._put(first.root.points, first.share)
            elif isinstance(message, NextShare):
                portion = Portion.decode(message.share)
                self._dealt[portion.header.new] = portion.header
                self._olds[portion.header.old] = portion.header.by
                if liar:
                    self._put(portion.header.new, portion.share)
        except MalformedError:
            return

    def _put(self, sharing: bytes, share: Share) -> bool:
        try:
            dealing.verify(share, Commitments.decode(sharing))
        except RemoteError:
            return False
        known = self._known.setdefault(sharing, {})
        fresh = share.index not in known
        known[share.index] = share
        return fresh

    def _grow(self) -> bool:
        """One step of all that follows; whether anything did."""
        grown = False
        for new, header in list(self._dealt.items()):
            shares = self._known.get(new, {})
            if len(shares) >= header.to.threshold:
                chosen = dict(list(shares.items())[: header.to.threshold])
                value = dealing._at_zero({at: share.value for at, share in chosen.items()})
                blinding = dealing._at_zero({at: share.blinding for at, share in chosen.items()})
                grown |= self._put(header.old, Share(header.holder, value, blinding))
        for sharing, by in list(self._olds.items()):
            grown |= self._combined(sharing, by)
        return grown

    def _combined(self, sharing: bytes, by: Scheme) -> bool:
        """Shares of a later sharing, from portions of all the dealings it was made of."""
        grown = False
        dealings = [header for header in self._dealt.values() if header.to == by]
        for index in range(1, by.size + 1):
            having = [header for header in dealings if index in self._known.get(header.new, {})]
            for chosen in combinations(having, dealings[0].by.threshold if dealings else 1):
                if index in self._known.get(sharing, {}) or len({header.holder for header in chosen}) < len(chosen):
                    continue
                parts = {header.holder: self._known[header.new][index] for header in chosen}
                value = dealing._at_zero({at: share.value for at, share in parts.items()})
                blinding = dealing._at_zero({at: share.blinding for at, share in parts.items()})
                grown |= self._put(sharing, Share(index, value, blinding))
        return grown


QUIET = quiet_us(U, 1)


# --- what must be true of every run -----------------------------------------------------------------------------------

Liars = dict[tuple[int, int], Script]


def passed(world: World, origin: Origin) -> bool:
    """The key has come to all readers, no liar has it, and nobody honest is named."""
    assert not Pool(world).reconstructs()
    assert [at for at in world.named() if at not in world.liars] == []
    return all(reader.got.get(origin) == SECRET for reader in world.readers.values())


def run(hops: int, liars: Liars, seed: int = 0, size: int = 3) -> World:
    world = World(hops, size, liars, seed=seed)
    origin = world.deal()
    world.run(200 * U)
    assert passed(world, origin), (hops, list(liars), seed)
    return world
