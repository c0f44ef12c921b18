"""Handshake slots: which connections a host keeps while they have not shown a certificate.

A connection is silent until the host has answered its first message, and answered from then on; it counts as silent
until the host looks at it. A host has `limit` slots for both kinds together. When a connection comes and all slots are
taken, one connection gives way:

1. a silent one if at least half of the slots are silent, otherwise an answered one;
2. of that kind, one of the prefix that has the most, and of the host in this prefix that has the most;
3. the oldest of these. But if these are answered ones of the newcomer's own host, the newcomer gives way (`refuses`):
   to answer a first message is dear, and a host that sends many of them must not buy another answer with each.

Claim: a prefix with one connection keeps it, while the adversary's prefixes and such prefixes are fewer than half of
the slots. Reason: the kind that gives way has at least `limit` / 2 connections, so some prefix has two or more.
Claim: connections that send nothing evict no answered one while those are at most half of the slots, from any number of
prefixes. Reason: the first rule.

Pure: a connection is any hashable value, and there is no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

from veilcast.link.hosts import host_of
from veilcast.link.prefixes import of_ip
from veilcast.machine import Address

Connection = TypeVar("Connection", bound=Hashable)


class HandshakeSlots(Generic[Connection]):
    """Bounded by its caller: ask for a `victim` before each `add`."""

    def __init__(self, limit: int, answered: Callable[[Connection], bool]) -> None:
        self._limit: Final = limit
        self._answered = answered
        self._sources: dict[Connection, _Source] = {}
        self._silent: _Shares[Connection] = _Shares()
        self._others: _Shares[Connection] = _Shares()
        """Answered connections. A connection stays in `_silent` until it is looked at as a victim."""

    def __len__(self) -> int:
        return len(self._sources)

    def refuses(self, source: Address) -> bool:
        """Whether a newcomer of this source gives way itself. Ask before `victim`."""
        victim = self.victim()
        return (
            victim is not None
            and self._answered(victim)
            and self._sources[victim] == _Source(of_ip(source), host_of(source))
        )

    def victim(self) -> Connection | None:
        """The connection that gives way to one more; None if a slot is free. The caller removes it."""
        if len(self._sources) < self._limit:
            return None
        while 2 * self._silent.count >= self._limit:
            oldest = self._silent.oldest_of_most()
            if not self._answered(oldest):
                return oldest
            source = self._sources[oldest]
            self._silent.remove(oldest, source)
            self._others.add(oldest, source)
        return self._others.oldest_of_most()

    def add(self, connection: Connection, source: Address) -> None:
        self._sources[connection] = where = _Source(of_ip(source), host_of(source))
        self._silent.add(connection, where)

    def remove(self, connection: Connection) -> None:
        """Free the slot of a connection, if it has one."""
        source = self._sources.pop(connection, None)
        if source is not None and not self._silent.remove(connection, source):
            self._others.remove(connection, source)


class _Source(NamedTuple):
    prefix: str
    host: str


class _Shares(Generic[Connection]):
    """Connections by prefix and host, the oldest first."""

    def __init__(self) -> None:
        self.count = 0
        self._prefixes: dict[str, dict[str, dict[Connection, None]]] = {}
        self._counts: dict[str, int] = {}

    def add(self, connection: Connection, source: _Source) -> None:
        self._prefixes.setdefault(source.prefix, {}).setdefault(source.host, {})[connection] = None
        self._counts[source.prefix] = self._counts.get(source.prefix, 0) + 1
        self.count += 1

    def remove(self, connection: Connection, source: _Source) -> bool:
        """Whether the connection was here."""
        hosts = self._prefixes.get(source.prefix, {})
        if connection not in hosts.get(source.host, {}):
            return False
        del hosts[source.host][connection]
        self._counts[source.prefix] -= 1
        self.count -= 1
        if not hosts[source.host]:
            del hosts[source.host]
        if not hosts:
            del self._prefixes[source.prefix], self._counts[source.prefix]
        return True

    def oldest_of_most(self) -> Connection:
        hosts = self._prefixes[max(self._counts, key=self._counts.__getitem__)]
        most = max(hosts, key=lambda host: len(hosts[host]))
        return next(iter(hosts[most]))
