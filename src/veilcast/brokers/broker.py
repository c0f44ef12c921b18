"""The broker: one replica of a virtual node, which routes, and brings keys and content on with the others (P4).

It puts together what others do: `links` are its streams, `redeploying` says with whom and by which scheme, `routing`
which claims it believes, `passing` and `carrying` what becomes of keys and content. Here is who may say what: a client
brings its own claims and publications, replicas of neighbouring nodes tell claims and send what is on its way, and
those of our own node agree with us on keys.

A broker writes nothing down. One that was killed comes back empty, copies claims from its neighbours, and forwards
nothing before; so it counts as one of the f that a node can do without.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from random import Random

from veilcast.brokers.carrying import Carrying
from veilcast.brokers.claims import check_bring
from veilcast.brokers.config import BrokerConfig
from veilcast.brokers.copying import Awaited
from veilcast.brokers.leaving import Work
from veilcast.brokers.links import Links
from veilcast.brokers.overlay import SignedOverlay, node_of
from veilcast.brokers.passing import Passing
from veilcast.brokers.redeploying import Deployment, Pace
from veilcast.brokers.routes import Branch, Outgoing
from veilcast.brokers.routing import Router
from veilcast.brokers.sharing.scheme import Place, Scheme
from veilcast.brokers.standing import Reason, Suspicions
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ConfigError, MalformedError, RemoteError, StaleError
from veilcast.faults import Faults
from veilcast.machine import Address, Entropy, Event, Frame, Listen
from veilcast.parts.alarms import earliest
from veilcast.wire.brokers import (
    Bring,
    Carry,
    Claim,
    Copied,
    CopyRouting,
    Disputed,
    Done,
    FirstShare,
    Missing,
    NextShare,
    Order,
    Routing,
    Spoken,
    Stands,
    Taken,
    WantKey,
    Withdraw,
)
from veilcast.wire.messages import Message


class Broker:
    """A `Machine`, with the notices of `Peers`. It asks for `Listen("broker")`.

    `overlay` is signed with the `operator`'s key and has the key of `signing` among its replicas; `root` is the
    authority's. `refused` counts what others sent in vain, by kind of error.
    """

    def __init__(
        self,
        config: BrokerConfig,
        overlay: SignedOverlay,
        operator: bytes,
        address: Address,
        signing: SigningKey,
        root: bytes,
        epoch_us: int,
        rng: Random,
        entropy: Entropy,
        now: int,
    ) -> None:
        described = overlay.verify(operator)
        place = described.place(signing.public)
        if place is None:
            raise ConfigError("no virtual node of the overlay has a replica with this key")
        self.address, self.signing, self.key = address, signing, signing.public
        self.faults = Faults()
        self.refused: Counter[str] = Counter()
        self.version = 0
        self._home = place.scheme.node
        pace = Pace(config.prepare_us, config.settle_us, config.linger_us, config.copy_us)
        self._deployment = Deployment(
            overlay, operator, self._home, self.key, profile=config.profile, pace=pace, now=now
        )
        self._router = Router(config, described, self._home, self._deployment.enough, root, epoch_us)
        self._links = Links(config, self.key, lambda client: self._router.claims_of(client) > 0, rng, entropy)
        self._suspicions = Suspicions(config.suspects_max, self._deployment.roster)
        routes = Ways(self._deployment, self._router, self._links, self.key)
        self._passing = Passing(config, routes, self._deployment.roster, signing, entropy, self._suspicions, now)
        self._carrying = Carrying(config, routes, self._suspicions)
        self._awaited = Awaited(config.claims_each)
        self._welcome = False
        self._events: deque[Event] = deque([Listen("broker")])
        self._follow(now)

    # --- the operator

    def order(self, data: bytes, now: int) -> None:
        """From the operator's own hand; raises as for anybody who sends one."""
        self.version += 1
        self._deployment.take(Order(data), now)
        self._settle(now)

    @property
    def signed(self) -> SignedOverlay:
        """What it goes by."""
        return self._deployment.signed

    @property
    def complete(self) -> bool:
        """Whether it has all claims that it needs to forward anything."""
        return self._deployment.complete

    @property
    def left(self) -> bool:
        """Whether the operator has detached it, and all that it had to do is done."""
        return self._deployment.left

    def suspects(self) -> list[Place]:
        """Replicas that were proven to lie."""
        return self._suspicions.liars()

    def marks(self) -> dict[Place, dict[Reason, int]]:
        """All that is held against replicas, proven or not."""
        return self._suspicions.marks()

    @property
    def observed(self) -> int:
        """Publications that went through, all in all: what failures are held against."""
        return self._carrying.through

    # --- the driver

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self.version += 1
        if self.left:
            return
        try:
            message = self._links.receive(data, source, now)
            if message is None:
                if not self._links.stirred and self._deployment.settled:
                    return
            elif (key := self._links.key(source)) is None:
                self._hear_client(message, source, now)
            else:
                self._hear(message, key, now)
        except RemoteError as error:
            self.refused[type(error).__name__] += 1
        except Exception as error:
            self.faults.caught(error)
        self._settle(now)

    def handle_timer(self, now: int) -> None:
        self.version += 1
        if self.left:
            return
        for part in (self._links, self._router, self._passing, self._carrying):
            part.handle(now)
            self._send(now)
        self._settle(now)

    def next_timer(self) -> int | None:
        if self.left:
            return None
        deployed = None if self._deployment.settled else self._deployment.next_us()
        links, router, passing, carrying = self._links, self._router, self._passing, self._carrying
        return earliest(deployed, links.next_us(), router.next_us(), passing.next_us(), carrying.next_us())

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        return self._links.frames(now, limit)

    def next_event(self) -> Event | None:
        return self._events.popleft() if self._events else self._links.next_event()

    def peer_up(self, peer: Address, now: int) -> None:
        self.version += 1
        if self.left or not self._links.peer_up(peer, now):
            return
        self._links.say(peer, self._deployment.greet(self._peer(peer)))
        self._settle(now)

    def peer_lost(self, peer: Address, now: int) -> None:
        self.version += 1
        self._links.peer_lost(peer, now)
        self._deployment.lost(self._peer(peer))
        self._settle(now)

    # --- checkers

    def sizes(self) -> dict[str, int]:
        """How much each table holds."""
        passing = self._passing.sizes()
        return {
            **self._links.sizes(),
            **self._router.sizes(),
            **passing,
            **self._carrying.sizes(),
            "keys": passing.get("passages", 0),
            "awaited": len(self._awaited),
            "suspects": len(self._suspicions),
        }

    @property
    def dropped(self) -> int:
        """What went for want of room in a queue."""
        return self._links.dropped

    # --- who may say what

    def _hear_client(self, message: Message, client: Address, now: int) -> None:
        match message:
            case Bring():
                check_bring(message, self.key)
                self._router.claim_of_client(message.claim, client, now)
            case Withdraw():
                self._router.withdrawn_by_client(message, client, now)
            case FirstShare():
                self._passing.receive(message, client, now)
            case WantKey():
                self._passing.receive(message, client, now)
                self._carrying.asked(client, message.advertisement, now)
            case Carry() | Missing() | Done():
                self._carrying.receive(message, client, now)
            case Order():
                self._deployment.take(message, now)
            case Stands():
                self._deployment.hear(message, client, now)
            case _:
                raise MalformedError("not for a client to say")

    def _hear(self, message: Message, key: bytes, now: int) -> None:
        places = self._deployment.places(key)
        if not places:
            raise StaleError("of a replica that has no place here any more")
        source, node = places[0], places[0].scheme.node
        match message:
            case Claim() if node == self._home:
                if self.complete or message.edge != self._home:
                    raise StaleError("nobody has asked for this")
                self._awaited.told(key, message.id)
            case Claim():
                self._router.claim_of_node(message, node, key, now)
            case Withdraw() if node != self._home:
                self._router.withdrawn_by_node(message, node, key, now)
            case NextShare() | Spoken() | Disputed() | Taken() | WantKey():
                self._passing.receive(message, source, now)
            case Carry() | Missing() | Done():
                self._carrying.receive(message, source, now)
            case Order():
                self._deployment.take(message, now)
            case Stands():
                self._deployment.hear(message, key, now)
            case CopyRouting():
                answer = Copied(self._deployment.version)
                if not self._links.unheard(key, answer):  # Who asks again is slow, and would get all of it twice.
                    self._tell_all(key, node)
                    self._links.say_to(key, answer)
            case Copied():
                self._deployment.answered(key)
            case _:
                raise MalformedError("not for a replica to say")

    def _tell_all(self, key: bytes, node: bytes) -> None:
        """All claims that a replica of this node should know from us."""
        for claim in self._router.sent(node):
            self._links.say_to(key, claim)

    # --- what follows from it

    def _settle(self, now: int) -> None:
        for peer in self._links.take_anew() if self._links.stirred else ():
            key = self._links.key(peer)
            node = None if key is None else self._deployment.node_of(key)
            if key is not None and node is not None and node != self._home:
                self._tell_all(key, node)
        if not self._welcome and self._links.never_met():
            self._welcome = True
            self._passing.welcome()
        self._send(now)
        if not self._deployment.settled or self._deployment.outbox:
            self._deployment.handle(now, self._work())
            self._follow(now)
        if self.complete:
            self._awaited.clear()
        self._links.cut_off(now)
        if self.left:
            self._links.leave()

    def _send(self, now: int) -> None:
        """Claims first: who reads must know of a publisher before anything of it comes."""
        while self._router.outbox or self._router.news or self._router.ended:
            told, self._router.outbox = self._router.outbox, []
            for hop, message in told:
                self._tell(hop, message)
            news, self._router.news = self._router.news, []
            for advertisement in news:
                self._passing.advertised(advertisement, now)
                self._carrying.advertised(advertisement, now)
            ended, self._router.ended = self._router.ended, {}
            if ended:
                self._carrying.ended(
                    {what if isinstance(what, bytes) else node_of(what) or what for what in ended}, now
                )
        for part in (self._passing, self._carrying):
            if not part.outbox:
                continue
            sent, part.outbox = part.outbox, []
            for outgoing in sent:
                self._say(outgoing)

    def _tell(self, hop: Address, message: Message) -> None:
        node = node_of(hop)
        if node is None:
            self._links.say(hop, message)
            return
        for key in self._deployment.linked():
            if self._deployment.node_of(key) == node:
                self._links.say_to(key, message)

    def _say(self, outgoing: Outgoing) -> None:
        to, message = outgoing
        if isinstance(to, Place):
            try:
                key = self._deployment.roster.key(to)
            except StaleError:
                return  # Of a scheme that is over.
            self._links.say_to(key, message)
        else:
            self._links.say(to, message)

    def _follow(self, now: int) -> None:
        """Say what the deployment has to say, and be linked with whom it says."""
        self._links.follow(self._deployment.linked(), now)
        outbox, self._deployment.outbox = self._deployment.outbox, []
        for to, message in outbox:
            if isinstance(to, bytes):
                self._links.say_to(to, message)
            else:
                for client in self._links.clients() if to is None else [to]:
                    self._links.say(client, message)

    def _work(self) -> Work:
        if not self._deployment.detaching:
            lacks, doubtful = self._awaited.lacks(self._router.has), self._router.doubtful > 0
            return Work(awaited=lacks, doubtful=doubtful, quiet_us=self._passing.quiet_us)
        # Content went on when it came, and whether it is done is told to those who stay.
        held = self._passing.sizes().get("passages", 0)
        return Work(self._links.behind(), held, quiet_us=self._passing.quiet_us)

    def _peer(self, peer: Address) -> bytes | Address:
        """As the deployment names it."""
        return self._links.key(peer) or peer


class Ways:
    """What `passing` and `carrying` ask (`routes.Routes`): claims by hops, and hops by the schemes to send by."""

    def __init__(self, deployment: Deployment, router: Router, links: Links, me: bytes) -> None:
        self._deployment, self._router, self._links, self._me = deployment, router, links, me

    def places(self) -> Sequence[Place]:
        return self._deployment.places(self._me)

    def publisher(self, advertisement: bytes) -> bytes:
        return self._router.publisher(advertisement)

    def came_from(self, advertisement: bytes) -> Branch:
        return self._branch(self._router.source(advertisement))

    def readers(self, advertisement: bytes) -> Sequence[Branch]:
        return [self._branch(hop) for hop in self._router.readers(advertisement)]

    def wanting(self, routing: Routing) -> Sequence[Branch]:
        return [self._branch(hop) for hop in self._router.route(routing)]

    def unheard(self, place: Place, message: Message) -> bool:
        try:
            key = self._deployment.roster.key(place)
        except StaleError:
            return True  # Of a scheme that is over: nobody is there who might.
        return self._links.unheard(key, message)

    def ready(self) -> bool:
        return self._deployment.complete

    def _branch(self, hop: Address) -> Scheme | Address:
        node = node_of(hop)
        return hop if node is None else self._deployment.scheme(node)
