"""Handshake slots: which connections a host keeps while they have not shown a certificate.

A connection is silent until the host has answered its first message, and answered from then on; it counts as silent
until the host looks at it. A host has `limit` slots for both kinds together. When a connection arrives and all slots
are taken, one connection gives way:

1. a silent one if at least half of the slots are silent, otherwise an answered one;
2. of that kind, one of the prefix that has the most; in this prefix one of the site that has the most, and so on down
   to a host (`path_of`): a provider hands one customer many hosts, and other customers must not pay for them;
3. the oldest of these. But if these are answered ones of the newcomer's own host, the newcomer gives way (`refuses`):
   an answer to a first message is expensive, and a host that sends many of them must not buy another answer with each.

Claim: a prefix with one connection keeps it.
Assumption: the adversary's prefixes and the prefixes with one connection are together fewer than half of the slots.
Reason: the kind that gives way has at least `limit` / 2 connections, so some prefix has two or more.

Claim: connections that send nothing evict no answered one, from any number of prefixes.
Assumption: answered connections take at most half of the slots.
Reason: the first rule.

Pure: a connection is any hashable value, and there is no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeAlias, TypeVar

from veilcast.link.address_groups import customer_networks, host_of, ip_prefix
from veilcast.machine import Address

Connection = TypeVar("Connection", bound=Hashable)
Path: TypeAlias = tuple[str, ...]


class HandshakeSlots(Generic[Connection]):
    """The caller keeps it bounded: it asks for a `victim` before each `add`."""

    def __init__(self, limit: int, answered: Callable[[Connection], bool]) -> None:
        self._limit: Final = limit
        self._answered = answered
        self._sources: dict[Connection, Path] = {}
        self._silent: _Shares[Connection] = _Shares()
        self._others: _Shares[Connection] = _Shares()
        """Answered connections. A connection stays in `_silent` until it is examined as a victim."""

    def __len__(self) -> int:
        return len(self._sources)

    def refuses(self, source: Address) -> bool:
        """Return True if a newcomer from this source gives way itself. Ask before `victim`."""
        victim = self.victim()
        return victim is not None and self._answered(victim) and self._sources[victim] == path_of(source)

    def victim(self) -> Connection | None:
        """Return the connection that gives way to one more; None if a slot is free. The caller removes it."""
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
        self._sources[connection] = where = path_of(source)
        self._silent.add(connection, where)

    def remove(self, connection: Connection) -> None:
        """Free the slot of a connection, if it has one."""
        source = self._sources.pop(connection, None)
        if source is not None and not self._silent.remove(connection, source):
            self._others.remove(connection, source)


def path_of(source: Address) -> Path:
    """Return the networks of a source, from its prefix down to its host."""
    return ip_prefix(source), *customer_networks(source), host_of(source)


class _Shares(Generic[Connection]):
    """Connections by the network paths of their sources, the oldest first."""

    def __init__(self) -> None:
        self.count = 0
        self._held: dict[Path, dict[Connection, None]] = {}
        """The connections of each host."""
        self._counts: dict[Path, dict[str, int]] = {}
        """For each network path, the connections of each network inside it; `()` is the whole Internet."""

    def add(self, connection: Connection, path: Path) -> None:
        self._held.setdefault(path, {})[connection] = None
        self.count += 1
        for depth, network in enumerate(path):
            counts = self._counts.setdefault(path[:depth], {})
            counts[network] = counts.get(network, 0) + 1

    def remove(self, connection: Connection, path: Path) -> bool:
        """Return True if the connection was here."""
        held = self._held.get(path, {})
        if connection not in held:
            return False
        del held[connection]
        if not held:
            del self._held[path]
        self.count -= 1
        for depth, network in enumerate(path):
            counts = self._counts[path[:depth]]
            counts[network] -= 1
            if not counts[network]:
                del counts[network]
            if not counts:
                del self._counts[path[:depth]]
        return True

    def oldest_of_most(self) -> Connection:
        path: Path = ()
        while path not in self._held:
            counts = self._counts[path]
            path = (*path, max(counts, key=counts.__getitem__))
        return next(iter(self._held[path]))
