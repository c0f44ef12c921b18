"""Limits: how much a proxy accepts from one client, and how much of the server one proxy may use.

`ClientRateLimits` rejects a client's request before the proxy spends work on it.

`ProxyQuota` keeps a Byzantine proxy from filling the server for all. The server knows only proxies. It cannot tell a
proxy's many clients from one client with many names. So the server bounds what arrives through one proxy. The proxy
bounds its own clients.
"""

from __future__ import annotations

from collections import Counter

from veilcast.core.rate_limit import PeerRateLimits, Rate
from veilcast.machine import Address
from veilcast.relay.config import RelayProxyConfig


class ProxyQuota:
    """One kind of capacity. Bounded: one entry for each proxy that uses it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._used: Counter[Address] = Counter()

    def __len__(self) -> int:
        return len(self._used)

    def fits(self, proxy: Address, amount: int) -> bool:
        """True if this proxy may use that much more. A non-positive amount always fits, so that renewals work."""
        return amount <= 0 or self._used[proxy] + amount <= self._most

    def charge(self, proxy: Address, amount: int) -> None:
        self._used[proxy] += amount
        if not self._used[proxy]:
            del self._used[proxy]


class ClientRateLimits:
    """Bounded: the most recently active clients, `clients_max` of them."""

    def __init__(self, config: RelayProxyConfig) -> None:
        allowances = {"requests": config.requests, "volume": config.volume, "publications": config.publications}
        rates = {kind: Rate(allowance.every_us, allowance.burst) for kind, allowance in allowances.items()}
        self._limits: PeerRateLimits[Address] = PeerRateLimits(config.clients_max, rates)

    def __len__(self) -> int:
        return len(self._limits)

    def allows(self, client: Address, size: int, now: int, *, publishes: bool) -> bool:
        """True if this client may send another request of this size now; the request is then charged."""
        return (
            self._limits.take(client, "requests", now)
            and self._limits.take(client, "volume", now, -(-size // 1024))
            and (not publishes or self._limits.take(client, "publications", now))
        )
