"""The tree of an overlay: virtual nodes and the links between them. Every pair of nodes has exactly one path.

P4's overlay has no redundant paths, and advertisement routing requires that: on a cycle an advertisement returns to its
sender, and across a gap it never arrives. Both are refused here before anything runs, with an error that names the
nodes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final

import msgspec

from veilcast.brokers.keys.scheme import check_hardened
from veilcast.crypto.shamir import MAX_SHARES
from veilcast.errors import ConfigError, LocalError


class NodeDeclaration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One virtual node, as a file declares it."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    replicas: Annotated[int, msgspec.Meta(ge=1, le=MAX_SHARES)] = 1


class OverlayDeclaration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole overlay, as a file declares it."""

    nodes: list[NodeDeclaration]
    links: list[tuple[str, str]] = []


class OverlayTree(msgspec.Struct, frozen=True):
    """A tree of virtual nodes. `sizes` are numbers of replicas; `neighbours` come in the order of the links."""

    sizes: dict[str, int]
    neighbours: dict[str, tuple[str, ...]]

    @classmethod
    def build(cls, sizes: Mapping[str, int], links: Iterable[tuple[str, str]]) -> OverlayTree:
        """`ConfigError` unless the nodes form one tree. The text names the cycle or the separate parts."""
        if not 1 <= len(sizes) <= NODES_MAX:
            raise ConfigError(f"an overlay has 1 to {NODES_MAX} virtual nodes")
        neighbours: dict[str, list[str]] = {name: [] for name in sizes}
        for one, other in links:
            for end in (one, other):
                if end not in neighbours:
                    raise ConfigError(f"a link leads to {end!r}, and there is no such virtual node")
            if one == other or other in neighbours[one]:
                raise ConfigError(f"{one!r} and {other!r} are linked to themselves or twice")
            if path := _find_path(neighbours, one, other):
                raise ConfigError(f"the links make a cycle: {' - '.join([*path, one])}")
            neighbours[one].append(other)
            neighbours[other].append(one)
        first = next(iter(sizes))
        reached = _reachable_from(neighbours, first)
        if apart := [name for name in sizes if name not in reached]:
            raise ConfigError(f"there is a gap in the overlay: no link leads from {first!r} to {_list_some(apart)}")
        return cls(dict(sizes), {name: tuple(ends) for name, ends in neighbours.items()})

    def path(self, one: str, other: str) -> tuple[str, ...]:
        """All nodes on the path, with both ends."""
        for end in (one, other):
            if end not in self.sizes:
                raise LocalError(f"there is no virtual node {end!r}")
        path = _find_path(self.neighbours, one, other)
        assert path is not None, "a tree has a path between any two nodes"
        return tuple(path)

    def check_hardened(self) -> None:
        """`ConfigError` with the reason if a node could not keep a secret."""
        for name, size in self.sizes.items():
            check_hardened(size, f"virtual node {name!r}")


def parse_overlay(table: Mapping[str, object]) -> OverlayTree:
    """Read an overlay from the tables of a file: `nodes` with name and replicas, `links` of two names each."""
    try:
        overlay = msgspec.convert(table, OverlayDeclaration)
    except msgspec.ValidationError as error:
        raise ConfigError(f"not an overlay: {error}") from error
    names = [node.name for node in overlay.nodes]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two virtual nodes are called {name!r}")
    return OverlayTree.build({node.name: node.replicas for node in overlay.nodes}, overlay.links)


def _find_path(neighbours: Mapping[str, Sequence[str]], one: str, other: str) -> list[str] | None:
    came_from: dict[str, str] = {one: one}
    waiting = deque([one])
    while waiting:
        here = waiting.popleft()
        if here == other:
            path = [here]
            while path[-1] != one:
                path.append(came_from[path[-1]])
            return path[::-1]
        for end in neighbours[here]:
            if end not in came_from:
                came_from[end] = here
                waiting.append(end)
    return None


def _reachable_from(neighbours: Mapping[str, Sequence[str]], first: str) -> dict[str, None]:
    reached, waiting = {first: None}, [first]
    while waiting:
        for end in neighbours[waiting.pop()]:
            if end not in reached:
                reached[end] = None
                waiting.append(end)
    return reached


def _list_some(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:_SHOWN]))
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


NODES_MAX: Final = 4096
_SHOWN: Final = 3
