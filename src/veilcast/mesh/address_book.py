"""The address book: the addresses that a node may try, kept so that Byzantine members cannot fill it.

There are two kinds (as in Bitcoin after the eclipse attacks of Heilman et al. 2015). Unproven addresses were told by
others: they are at most half the book, few come from any one prefix, and one is dropped at its first failed try. Proven
addresses were reached by this node. No message can put one there, and it is dropped only after several failures. A full
book evicts the oldest address of the largest group: of the prefix that told the most, or that has the most proven ones.

A choice draws the kind, then a prefix, then an address: a prefix with many addresses is no likelier than one with few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final

from veilcast.link.address_groups import PrefixOf
from veilcast.machine import Address


class AddressBook:
    """Bounded: `most` addresses; at most half are unproven, and `source_max` of these from one prefix."""

    def __init__(self, most: int, source_max: int, prefix: PrefixOf, rng: Random) -> None:
        self._unproven_max, self._proven_max, self._source_max = most // 2, most - most // 2, source_max
        self._prefix, self._rng = prefix, rng
        self.unproven: dict[Address, str] = {}
        """Each with the prefix of the node that told it first."""
        self.proven: dict[Address, int] = {}
        """Each with the number of consecutive failed tries."""

    def __len__(self) -> int:
        return len(self.unproven) + len(self.proven)

    def add_hearsay(self, name: Address, source: Address) -> None:
        """Another node told this address."""
        if name in self.proven or name in self.unproven or not self._unproven_max:
            return
        teller = self._prefix(source)
        told = [other for other, by in self.unproven.items() if by == teller]
        if len(told) >= self._source_max:
            del self.unproven[told[0]]
        elif len(self.unproven) >= self._unproven_max:
            self._drop_of_most(self.unproven, lambda other: self.unproven[other])
        self.unproven[name] = teller

    def mark_reached(self, name: Address) -> None:
        """This node reached the address."""
        self.unproven.pop(name, None)
        if name not in self.proven and len(self.proven) >= self._proven_max:
            self._drop_of_most(self.proven, self._prefix)
        self.proven[name] = 0

    def mark_failed(self, name: Address) -> None:
        """A try of this address failed."""
        self.unproven.pop(name, None)
        if name in self.proven:
            self.proven[name] += 1
            if self.proven[name] >= FAILURES_MAX:
                del self.proven[name]

    def choose(self, fits: Callable[[Address], bool]) -> Address | None:
        kinds = [[name for name in kind if fits(name)] for kind in (self.unproven, self.proven)]
        filled = [kind for kind in kinds if kind]
        return self._spread(self._rng.choice(filled), 1)[0] if filled else None

    def sample(self, count: int) -> list[Address]:
        """Some addresses to tell others, from different prefixes as far as possible."""
        return self._spread([*self.unproven, *self.proven], count)

    def _spread(self, names: list[Address], count: int) -> list[Address]:
        by_prefix: dict[str, list[Address]] = {}
        for name in names:
            by_prefix.setdefault(self._prefix(name), []).append(name)
        prefixes = self._rng.sample(list(by_prefix), min(count, len(by_prefix)))
        return [self._rng.choice(by_prefix[prefix]) for prefix in prefixes]

    def _drop_of_most(self, names: dict[Address, str] | dict[Address, int], group: Callable[[Address], str]) -> None:
        groups = Counter(group(name) for name in names)
        most = max(groups.values())
        names.pop(next(name for name in names if groups[group(name)] == most))


FAILURES_MAX: Final = 3
"""Consecutive failures after which a proven address is dropped."""
