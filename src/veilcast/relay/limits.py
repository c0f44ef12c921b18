"""Limits: how much a proxy takes of one client, before it spends anything on it.

Shares: how much of a server's room each of its proxies takes, so that one that lies cannot fill it for all.

The server knows nobody but proxies, and cannot tell a proxy's many clients from one who has many names. So what it can
bound is what comes by one proxy; what the clients of that one proxy may take of it is for the proxy to say
(`limits`)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from veilcast.core.rate_limit import TokenBucket
from veilcast.machine import Address
from veilcast.relay.config import RateAllowance, RelayProxyConfig


class ProxyQuota:
    """Of one kind of room. Bounded: as many entries as there are proxies who have something."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: Counter[Address] = Counter()

    def __len__(self) -> int:
        return len(self._taken)

    def fits(self, proxy: Address, amount: int) -> bool:
        """Whether this proxy may take so much more. What is no more always fits, or nothing could be renewed."""
        return amount <= 0 or self._taken[proxy] + amount <= self._most

    def charge(self, proxy: Address, amount: int) -> None:
        self._taken[proxy] += amount
        if not self._taken[proxy]:
            del self._taken[proxy]


class ClientRateLimits:
    """Bounded: of the clients last heard, as many as the proxy has room for."""

    def __init__(self, config: RelayProxyConfig) -> None:
        self._config = config
        self._clients: dict[Address, _Buckets] = {}

    def __len__(self) -> int:
        return len(self._clients)

    def allows(self, client: Address, size: int, now: int, *, publishes: bool) -> bool:
        """Whether this client may send another request of this size now; it counts if it may."""
        buckets = self._clients.pop(client, None) or _Buckets(
            *(_bucket(each) for each in (self._config.requests, self._config.volume, self._config.publications))
        )
        self._clients[client] = buckets
        if len(self._clients) > self._config.clients_max:
            del self._clients[next(iter(self._clients))]
        return (
            buckets.requests.take(now)
            and buckets.volume.take(now, -(-size // 1024))
            and (not publishes or buckets.publications.take(now))
        )


@dataclass(slots=True)
class _Buckets:
    requests: TokenBucket
    volume: TokenBucket
    publications: TokenBucket


def _bucket(allowance: RateAllowance) -> TokenBucket:
    return TokenBucket(allowance.every_us, allowance.burst)
