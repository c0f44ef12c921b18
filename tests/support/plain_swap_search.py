"""The same search as `veilcast.sim.swap_model.search`, without its reductions, to show that they hide nothing.

Each step runs the code, states are compared whole, no message is dropped and no fault is saved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from veilcast.errors import RemoteError
from veilcast.machine import Address
from veilcast.mesh.swap import SwapState
from veilcast.sim.swap_model.memoised_transitions import SwapDelivery
from veilcast.sim.swap_model.node import LEASE_US, TOKEN, ModelNode, NodeState, make_tree
from veilcast.sim.swap_model.search import GAMES, TREE, SearchPlan
from veilcast.wire import encode

Tables: TypeAlias = tuple[tuple[tuple[Address, ...], tuple[Address, ...]], ...]
"""The parents and the children of each node."""


class Scene(NamedTuple):
    nodes: tuple[NodeState, ...]
    posts: tuple[SwapDelivery, ...]
    games: tuple[int, ...]
    losses: int
    copies: int
    crashes: int
    crashed: str = ""


def plain_search(plan: SearchPlan) -> tuple[int, set[Tables]]:
    """The number of states, and all tables of nodes in them."""
    first = Scene(tuple(make_tree(TREE).values()), (), tuple(range(plan.games)), plan.losses, plan.copies, plan.crashes)
    seen, queue, met = {first}, deque([first]), {tables_of(first.nodes)}
    while queue:
        for scene in _follow(queue.popleft(), late=plan.late):
            if scene not in seen:
                seen.add(scene)
                queue.append(scene)
                met.add(tables_of(scene.nodes))
    return len(seen), met


def tables_of(nodes: tuple[NodeState, ...]) -> Tables:
    return tuple((held.inward, held.outward) for held in nodes)


def _follow(scene: Scene, *, late: bool) -> Iterator[Scene]:
    for index, post in enumerate(scene.posts):
        rest = scene._replace(posts=scene.posts[:index] + scene.posts[index + 1 :])
        yield _receive(rest, post)
        if scene.losses:
            yield rest._replace(losses=scene.losses - 1)
        if scene.copies:
            yield _receive(scene._replace(copies=scene.copies - 1), post)
    for which in scene.games:
        yield _begun(scene._replace(games=tuple(game for game in scene.games if game != which)), which)
    if scene.crashes:
        for name in TREE:
            yield scene._replace(crashes=scene.crashes - 1, crashed=name)
    if late or not scene.posts:
        for name, held in zip(TREE, scene.nodes, strict=True):
            if held.bound is not None and name != scene.crashed and (late or not _is_led(scene, held)):
                yield _expire(scene, name)


def _is_led(scene: Scene, held: NodeState) -> bool:
    """True if another node leads the game that this one is bound in, and is bound in it, too."""
    bound = held.bound
    if bound is None or bound.state in (SwapState.ASKING, SwapState.DECIDED) or bound.partner == scene.crashed:
        return False
    leader = scene.nodes[list(TREE).index(bound.partner)].bound
    return leader is not None and leader.name == bound.name and leader.state in (SwapState.ASKING, SwapState.DECIDED)


def _receive(scene: Scene, post: SwapDelivery) -> Scene:
    if post.target == scene.crashed:
        return scene
    chair = _find_node(scene, post.target)
    with suppress(RemoteError):
        chair.swaps.on_message(post.message, post.source, 0)
    return _left(scene, chair)


def _begun(scene: Scene, which: int) -> Scene:
    starter, child = GAMES[which]
    chair = _find_node(scene, starter)
    if starter != scene.crashed and child in chair.outward_names:
        chair.names.next = f"game {which + 1}".encode()
        chair.swaps.start(TOKEN, Address(child), 0)
    return _left(scene, chair)


def _expire(scene: Scene, name: str) -> Scene:
    chair = _find_node(scene, name)
    chair.swaps.expire(2 * LEASE_US)
    return _left(scene, chair)


def _find_node(scene: Scene, name: str) -> ModelNode:
    chair = ModelNode(name)
    chair.restore(scene.nodes[list(TREE).index(name)])
    return chair


def _left(scene: Scene, chair: ModelNode) -> Scene:
    nodes = tuple(
        chair.snapshot() if name == chair.name else held for name, held in zip(TREE, scene.nodes, strict=True)
    )
    posts = [*scene.posts, *(SwapDelivery(chair.name, target, message) for target, message in chair.sent)]
    return scene._replace(nodes=nodes, posts=tuple(sorted(posts, key=lambda post: (*post[:2], encode(post.message)))))
