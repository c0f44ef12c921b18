"""Every way that a few shell games can go: a search over all states of the real swap machines.

A state is what all nodes hold and all that is under way. From each, every message may be delivered next, in any order;
some may be lost, or delivered and kept for another time; a node may crash; and when nothing is under way any more, any
lock may run out. In every state parents must lead to one root; and when all is over and nothing was lost, each edge
must be known at both its ends.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from veilcast.errors import RemoteError
from veilcast.machine import Address
from veilcast.mesh.duplicates import Duplicates
from veilcast.mesh.swap import Game
from veilcast.wire import encode
from veilcast.wire.messages import Message

sys.path.insert(0, str(Path(__file__).parent))
from parlour import LEASE, TOKEN, Parlour, Post

Held: TypeAlias = tuple[Any, ...]
"""What a node holds."""


class Node(NamedTuple):
    nodes: tuple[Held, ...]
    post: tuple[Post, ...]
    starts: tuple[tuple[str, str], ...]
    losses: int
    copies: int
    crashes: int
    crashed: str


class Result(NamedTuple):
    states: int
    depth: int
    exhausted: bool


def explore(
    parents: dict[str, str],
    starts: tuple[tuple[str, str], ...],
    *,
    losses: int = 0,
    copies: int = 0,
    crashes: int = 0,
    limit: int,
) -> Result:
    """Visit all states, or the first `limit`; raises `AssertionError` in one that must not be."""
    parlour = Parlour(parents)
    first = _save(parlour, Node((), (), starts, losses, copies, crashes, ""))
    seen = {hash(first)}
    queue = deque([(first, 0)])
    depth = 0
    while queue and len(seen) < limit:
        state, depth = queue.popleft()
        ends = True
        for following in _follow(parlour, state):
            ends = False
            if (name := hash(following)) not in seen:
                seen.add(name)
                queue.append((following, depth + 1))
        if ends and not state.crashed and state.losses == losses:
            assert parlour.inward_edges() == parlour.outward_edges(), "an edge is known at one end only"
    return Result(len(seen), depth, not queue)


def _follow(parlour: Parlour, state: Node) -> Iterator[Node]:
    """The states that may come next."""
    for index, (source, target, message) in enumerate(state.post):
        rest = state.post[:index] + state.post[index + 1 :]
        if index and state.post[index - 1] == state.post[index]:
            continue
        if state.losses:
            yield state._replace(post=rest, losses=state.losses - 1)
        for kept in range(2 if state.copies else 1):
            after = state._replace(post=state.post if kept else rest, copies=state.copies - kept)
            _load(parlour, after)
            if target != state.crashed:
                with suppress(RemoteError):
                    parlour.chairs[target].swaps.received(message, source, 0)
            yield _check(parlour, after)
    for index, (name, child) in enumerate(state.starts):
        after = state._replace(starts=state.starts[:index] + state.starts[index + 1 :])
        _load(parlour, after)
        if name != state.crashed and child in parlour.chairs[Address(name)].outs:
            parlour.start(name, child)
        yield _check(parlour, after)
    if state.crashes:
        for name in parlour.chairs:
            yield state._replace(crashes=state.crashes - 1, crashed=name)
    if not state.post:
        _load(parlour, state)
        for name in parlour.bound():
            if name != state.crashed:
                _load(parlour, state)
                parlour.chairs[Address(name)].swaps.expire(2 * LEASE)
                yield _check(parlour, state)
        _load(parlour, state)


def _check(parlour: Parlour, state: Node) -> Node:
    parlour.check_parents()
    return _save(parlour, state)


def _save(parlour: Parlour, state: Node) -> Node:
    nodes = []
    for chair in parlour.chairs.values():
        game = next(iter(chair.swaps.locks()), None)
        held = None
        if game is not None:
            sets = (game.inward, game.outward, game.theirs, tuple(game.missing))
            held = (game.name, game.state, game.partner, *sets)
        nodes.append((chair.ins, chair.outs, tuple(chair.swaps._over._seen), held, chair.names.count))
    return state._replace(nodes=tuple(nodes), post=tuple(sorted(parlour.post, key=_order)))


def _load(parlour: Parlour, state: Node) -> None:
    parlour.post = list(state.post)
    for chair, (ins, outs, over, held, count) in zip(parlour.chairs.values(), state.nodes, strict=True):
        chair.ins, chair.outs, chair.names.count = ins, outs, count
        chair.swaps._over = Duplicates(64)
        for name in over:
            chair.swaps._over.add(name)
        chair.swaps._games = {}
        if held is not None:
            game = Game(held[0], TOKEN, held[1], held[2], 0, LEASE)
            game.inward, game.outward, game.theirs = held[3:6]
            game.missing = dict.fromkeys(held[6])
            chair.swaps._games[TOKEN] = game


def _order(post: Post) -> tuple[str, str, bytes]:
    return post[0], post[1], _encoded(post[2])


@lru_cache(maxsize=100_000)
def _encoded(message: Message) -> bytes:
    return encode(message)


CHAIN = {"p": "p", "a": "p", "b": "a", "c": "b", "d": "b", "e": "c"}
GAMES = (("a", "b"), ("b", "c"), ("c", "e"))
"""Three games, each of which shares nodes with both others; the publisher keeps its place."""
