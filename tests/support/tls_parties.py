"""An authority with hosts and members on TLS streams, and how tests start them."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from support.waits import HANG_S
from veilcast.authority import issuer
from veilcast.authority.keyring import Keyring
from veilcast.authority.revocation import RevokedKeys
from veilcast.authority.role import TlsRole
from veilcast.authority.tls_identity import TlsIdentity
from veilcast.crypto.derive import fingerprint
from veilcast.machine import Address, Event, Machine
from veilcast.net.stream_limits import StreamLimits
from veilcast.net.streams import TlsStreamDriver
from veilcast.net.tls import StreamIdentity

EPOCH_US = 3_600_000_000
QUICK_LIMITS = StreamLimits(backoff_s=0.01, backoff_max_s=0.05, handshake_s=HANG_S, review_s=HANG_S)
"""Calls again soon, and gives no peer up for being slow."""
"""Calls are repeated at once, so that no test waits for one."""


class TlsParties:
    """Memberships hold from the previous epoch to the next one by default."""

    def __init__(self, seed: int = 7) -> None:
        self.entropy = random.Random(seed).randbytes
        self.epoch = time.time_ns() // 1000 // EPOCH_US
        self.authority = issuer.create(EPOCH_US, self.entropy)
        self.revoked = RevokedKeys(self.authority.root, 100)

    def ring(self, name: str, standing: TlsRole = "member", first: int = -1, epochs: int = 3) -> Keyring:
        self.authority, keyring = issuer.grant_ready(
            self.authority, name, [], self.epoch + first, epochs, self.entropy, standing
        )
        return keyring

    def identity(self, keyring: Keyring, callers: TlsRole = "member", hosts: TlsRole = "proxy") -> StreamIdentity:
        party = TlsIdentity(keyring, self.revoked)
        return StreamIdentity(
            chain=party.chain,
            key=party.key.reveal(),
            anchor=party.anchor,
            callers=party.make_judge(callers),
            hosts=party.make_judge(hosts),
        )

    def member(self, name: str) -> StreamIdentity:
        return self.identity(self.ring(name))

    def proxy(self, name: str = "proxy") -> StreamIdentity:
        return self.identity(self.ring(name, "proxy"))

    def revoke(self, name: str) -> None:
        """Revoke a member from this epoch on, as if that had been decided in the epoch before."""
        self.authority = issuer.revoke(self.authority, name, None, self.epoch - 1, self.entropy)
        assert self.authority.bulletin is not None
        self.revoked.add(self.authority.bulletin, self.epoch)


def tls_name_of(keyring: Keyring, standing: TlsRole = "member") -> Address:
    return Address(f"{standing}:{fingerprint(keyring.membership.certificate.leaf.subject).hex()}")


@contextlib.asynccontextmanager
async def run_driver(
    machine: Machine,
    identity: StreamIdentity,
    listen: Sequence[str] = (),
    limits: StreamLimits = QUICK_LIMITS,
    act_on: Callable[[Event], object] = lambda _: None,
) -> AsyncIterator[TlsStreamDriver]:
    driver = TlsStreamDriver(machine, listen=listen, identity=identity, act_on=act_on, limits=limits)
    driver.open()
    try:
        async with asyncio.timeout(HANG_S):
            yield driver
    finally:
        driver.close()


def run_host(machine: Machine, identity: StreamIdentity, limits: StreamLimits = QUICK_LIMITS) -> Any:
    return run_driver(machine, identity, ["127.0.0.1:0"], limits)


async def wait_until(holds: Callable[[], object]) -> None:
    while not holds():
        await asyncio.sleep(0)
