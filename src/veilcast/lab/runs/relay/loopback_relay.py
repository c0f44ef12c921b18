"""A relay on the loopback interface: server, two proxies and many clients, on real TLS streams, in this process.

All of them share one event loop, and so one core. Clients wait for that core, since the network takes no time. Disks
are in memory. Clients publish by one proxy and subscribe by the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, Final, Self

from veilcast.authority import issuer
from veilcast.authority.epoch import HOUR_US, epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.authority.role import TlsRole
from veilcast.authority.tls_identity import TlsIdentity
from veilcast.authority.topic_keys import TopicRole
from veilcast.authority.topic_record import Profile
from veilcast.crypto.group import Scalar
from veilcast.errors import StorageError
from veilcast.machine import Address, Delivered, Event, Publication, Record, Waiting
from veilcast.net.clock import SystemClock
from veilcast.net.stream_limits import StreamLimits
from veilcast.net.streams import TlsStreamDriver
from veilcast.net.tls import StreamIdentity
from veilcast.relay.client import RelayClient
from veilcast.relay.config import RateAllowance, RelayClientConfig, RelayProxyConfig, RelayServerConfig
from veilcast.relay.proxy import RelayProxy
from veilcast.relay.server import RelayServer
from veilcast.relay.transformation_key import ServerKeys
from veilcast.sim.rng import SeededEntropy, derive_bytes, derive_rng
from veilcast.topics import Label


class LoopbackRelay:
    """A call that takes longer than `patience_s` seconds fails."""

    def __init__(self, profile: Profile, topic: str, seed: int, patience_s: float = 60.0) -> None:
        self._profile, self._topic, self._seed, self._patience_s = profile, topic, seed, patience_s
        self._clock = SystemClock()
        self._entropy = SeededEntropy(derive_bytes(seed, "desk"))
        self._keys, self._mask = ServerKeys.draw(self._entropy), Scalar.draw(self._entropy)
        authority = issuer.create(HOUR_US, self._entropy)
        self._authority = issuer.declare_label(authority, topic, profile, self._entropy)
        self._driven: dict[Address, tuple[Any, TlsStreamDriver]] = {}
        """Every machine with its driver."""
        self._stands: dict[Address, int] = {}
        self._got: dict[tuple[Address, bytes], int] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            self._runner = opening.enter_context(asyncio.Runner())
            self._open = opening
            self._runner.run(self._begin())
            self._open = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def join(self, count: int) -> list[Address]:
        """Add `count` clients that have met proxies and server."""
        return self._runner.run(self._join(count))

    def subscribe(self, clients: Sequence[Address]) -> float:
        """Subscribe all clients at once. Returns seconds until the last subscription is active."""
        since = self._clock.now()
        for name in clients:
            self._call(name, lambda client, now: client.subscribe(Label(self._topic), now))
        self._runner.run(self._until(lambda: all(name in self._stands for name in clients)))
        return (max(self._stands[name] for name in clients) - since) / 1e6

    def publish(self, publishers: Sequence[Address], readers: Sequence[Address]) -> list[float]:
        """Publish all at once. Returns seconds until each reader has the first publisher's notification."""
        since = self._clock.now()
        for name in publishers:
            self._call(name, partial(_publish, Publication((Label(self._topic).pair,), name.encode())))
        wanted = [(reader, publishers[0].encode()) for reader in readers]
        self._runner.run(self._until(lambda: all(each in self._got for each in wanted)))
        return [(self._got[each] - since) / 1e6 for each in wanted]

    async def _begin(self) -> None:
        now = self._clock.now()
        config = RelayServerConfig(self._profile)
        server = self._drive(SERVER, RelayServer(config, self._keys, self._rng(SERVER), self._entropy, now))
        for name in PROXIES:
            proxy = RelayProxyConfig(self._profile, publications=_FREE, requests=_FREE, volume=_FREE)
            mask = self._mask if self._profile == "hardened" else None
            [there], public = server.addresses, self._keys.public()
            self._drive(name, RelayProxy(proxy, public, [there], mask, self._rng(name), self._entropy, now))
        await self._until(lambda: all(any(each.up for each in self._driven[name][1].peers()) for name in PROXIES))

    async def _join(self, count: int) -> list[Address]:
        ways = [self._driven[name][1].addresses[0] for name in PROXIES]
        names = [Address(f"c{number}") for number in range(count)]
        config, public = RelayClientConfig(self._profile, spread_us=0), self._keys.public()
        for name in names:
            keyring, now = self._keyring(name, "member"), self._clock.now()
            client = RelayClient(config, keyring, public, ways, self._rng(name), self._entropy, now)
            self._drive(name, client, keyring)
        await self._until(lambda: all(self._driven[name][0].sizes()["clients"] == count for name in PROXIES))
        return names

    def _drive(self, name: Address, machine: Any, keyring: Keyring | None = None) -> TlsStreamDriver:
        standing: TlsRole = "server" if name == SERVER else "proxy" if name in PROXIES else "member"
        party = TlsIdentity(keyring or self._keyring(name, standing))
        identity = StreamIdentity(
            chain=party.chain, key=party.key.reveal(), anchor=party.anchor, callers=party.callers, hosts=party.hosts
        )
        driver = TlsStreamDriver(
            machine,
            listen=[] if standing == "member" else ["127.0.0.1:0"],
            identity=identity,
            act_on=lambda event: self._act(name, event),
            clock=self._clock,
            limits=_LIMITS,
        )
        self._driven[name] = machine, driver
        driver.open()
        self._open.callback(driver.close)
        return driver

    def _act(self, name: Address, event: Event) -> None:
        match event:
            case Record(record, _):
                self._soon(name, lambda machine, now: machine.stored(record, now))
            case Waiting(_, until_us) if until_us is not None:
                self._stands.setdefault(name, self._clock.now())
            case Delivered(_, note):
                self._got.setdefault((name, note.publication.body), self._clock.now())
                self._soon(name, lambda machine, now: machine.acknowledge(note.id, now))

    def _soon(self, name: Address, call: Callable[[Any, int], object]) -> None:
        """Call the machine after its current step."""
        asyncio.get_running_loop().call_soon(self._call, name, call)

    def _call(self, name: Address, call: Callable[[Any, int], object]) -> None:
        machine, driver = self._driven[name]
        call(machine, self._clock.now())
        driver.touch()

    async def _until(self, done: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(self._patience_s):
                while not done():
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError as error:
            raise StorageError(f"the relay did not answer all of its clients within {self._patience_s:g} s") from error

    def _keyring(self, name: Address, standing: TlsRole) -> Keyring:
        wanted: list[tuple[str, TopicRole]] = [(self._topic, "publisher")] if standing == "member" else []
        epoch = epoch_of(self._clock.now(), HOUR_US)
        self._authority, keyring = issuer.grant_ready(
            self._authority, name, wanted, epoch, _EPOCHS, self._entropy, standing
        )
        return keyring

    def _rng(self, name: Address) -> Random:
        return derive_rng(self._seed, "desk", name)


def _publish(note: Publication, client: Any, now: int) -> None:
    client.publish(note, now)


SERVER: Final = Address("server")
PROXIES: Final = (Address("up"), Address("down"))
_FREE: Final = RateAllowance(1, 1_000_000)
"""Limits out of reach, so that they delay nothing."""
_LIMITS: Final = StreamLimits(handshakes=4_096, handshake_s=60.0, patience_s=10.0)
"""One core serves all clients, so handshakes of many clients at once take long."""
_EPOCHS: Final = 4
_LOOK_S: Final = 0.005
