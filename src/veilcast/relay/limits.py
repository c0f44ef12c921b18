"""Limits: how much a proxy takes of one client, before it spends anything on it."""

from __future__ import annotations

from dataclasses import dataclass

from veilcast.link.bucket import TokenBucket
from veilcast.machine import Address
from veilcast.relay.config import Allowance, ProxyConfig


class Limits:
    """Bounded: of the clients last heard, as many as the proxy has room for."""

    def __init__(self, config: ProxyConfig) -> None:
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


def _bucket(allowance: Allowance) -> TokenBucket:
    return TokenBucket(allowance.every_us, allowance.burst)
