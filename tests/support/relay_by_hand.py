"""A relay without a simulator: server, proxy and two members, with a record of every frame.

Time is virtual, disks never fail and streams never break. The tests look at what each party sees.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from veilcast.authority.topic_record import Profile
from veilcast.crypto.group import Scalar
from veilcast.machine import Address, Connect, Delivered, Publication, Record
from veilcast.relay.client import RelayClient
from veilcast.relay.config import RelayClientConfig, RelayProxyConfig, RelayServerConfig
from veilcast.relay.proxy import RelayProxy
from veilcast.relay.server import RelayServer
from veilcast.relay.transformation_key import ServerKeys
from veilcast.sim.engine import START_US
from veilcast.sim.keyrings import make_keyring, make_topic_records
from veilcast.topics import Label
from veilcast.wire import decode
from veilcast.wire.base import Message

EPOCH_US = 60_000_000
TOPIC, OTHER = "news/eu", "news/us"
SERVER, PROXY, ANNA, BEN = map(Address, ("server", "proxy", "anna", "ben"))


class SentFrame(NamedTuple):
    """A frame in transit."""

    now: int
    source: Address
    destination: Address
    data: bytes

    @property
    def message(self) -> Message:
        return decode(self.data)


class RelayByHand:
    """Anna and Ben may publish on and subscribe to both topics."""

    def __init__(
        self, profile: Profile, client: RelayClientConfig | None = None, proxy: RelayProxyConfig | None = None
    ) -> None:
        self.now, self.seen = START_US, list[SentFrame]()
        self.notes: dict[Address, list[bytes]] = {ANNA: [], BEN: []}
        keys = ServerKeys.draw(Random("server").randbytes)
        mask = Scalar.draw(Random("mask").randbytes) if profile == "hardened" else None
        rng = Random("chance")
        client = client or RelayClientConfig(profile, spread_us=1000)
        proxy = proxy or RelayProxyConfig(profile, batch_us=1000)
        self.public = public = keys.public()
        topics = make_topic_records((TOPIC, OTHER), 0.0, profile)
        wanted = ((TOPIC, "publisher"), (OTHER, "publisher"))
        self.server = RelayServer(RelayServerConfig(profile), keys, rng, rng.randbytes, self.now)
        self.proxy = RelayProxy(proxy, public, [SERVER], mask, rng, rng.randbytes, self.now)
        self.clients = {
            name: RelayClient(
                *(client, make_keyring(topics, EPOCH_US, wanted, number), public, [PROXY], rng, rng.randbytes, self.now)
            )
            for number, name in enumerate((ANNA, BEN))
        }
        self._machines: dict[Address, RelayServer | RelayProxy | RelayClient] = {
            SERVER: self.server,
            PROXY: self.proxy,
            **self.clients,
        }

    def run(self, for_us: int) -> None:
        """Let time pass."""
        end = self.now + for_us
        while True:
            while self._turn():
                pass
            due = [at for machine in self._machines.values() if (at := machine.next_timer()) is not None]
            if not due or min(due) > end:
                self.now = end
                return
            self.now = max(self.now, min(due))
            for machine in self._machines.values():
                if (at := machine.next_timer()) is not None and at <= self.now:
                    machine.handle_timer(self.now)

    def publish(self, name: Address, topic: str, body: bytes) -> None:
        self.clients[name].publish(Publication((Label(topic).pair,), body), self.now)

    def subscribe(self, name: Address, topic: str) -> None:
        self.clients[name].subscribe(Label(topic), self.now)

    def between(self, source: Address, destination: Address) -> Iterator[SentFrame]:
        return (each for each in self.seen if (each.source, each.destination) == (source, destination))

    def on_the_wire_of(self, name: Address) -> Iterator[SentFrame]:
        return (each for each in self.seen if name in (each.source, each.destination))

    def _turn(self) -> bool:
        """Handle the machines' events, and deliver their frames. Returns True if there were any."""
        busy = False
        for name, machine in self._machines.items():
            while (event := machine.next_event()) is not None:
                busy = True
                if isinstance(event, Record):
                    machine.stored(event.record, self.now)
                elif isinstance(event, Connect):
                    machine.peer_up(event.peer, self.now)
                    self._machines[event.peer].peer_up(name, self.now)
                elif isinstance(event, Delivered) and isinstance(machine, RelayClient):
                    self.notes[name].append(event.note.publication.body)
                    machine.acknowledge(event.note.id, self.now)
            for frame in machine.frames_to_send(self.now, 1000):
                busy = True
                self.seen.append(SentFrame(self.now, name, frame.destination, frame.data))
                self._machines[frame.destination].receive(frame.data, name, self.now)
        return busy
