"""The shell game (P0 4.5) as a model: the two ends of an edge of the mesh exchange places, again and again.

Neighbourhood belongs to the places, which stay as they were laid. The assignment of nodes to places moves: it is a
permutation. A swap of a place and one of its children undoes itself. So the game is an interchange process, in whose
limit every arrangement is equally likely. No node leaves the mesh, and the publisher keeps its place.

Event mode. Every node waits for exponential times, and plays when a wait is over, if it has a child. Such waits have no
memory. So the moments at which a node with children may play are a Poisson process: its rate is that of one wait times
the number of places with children, and the place is a random one of them. The node plays with probability exp(-decay
x), where x is the time since it joined, or the number of games it began. Decay by time makes all rates fall by one
factor, the warmth. Measured in warmth, which falls by an exponential amount from one moment to the next, the process
has a constant rate. So no moment is wasted however cold it becomes, and when the warmth is spent the game is over.

In a mesh that is being built, a node can also play when its first child connects; children that have not connected
cannot be chosen. A swap takes `lock_s`, in which it locks its place, the parent and the children; a game that meets a
locked node does not happen. Its messages are P0's: three for each neighbour of the initiator, one for each neighbour of
the other (P0 4.7).

Swap mode leaves out time, decay and construction: a random inner place and a random child of it, a number of times.

The board has the places of a mesh, numbered breadth first. So the children of a place are contiguous, from
`first_child[place]` to `first_child[place + 1]`, and the board is a few arrays of the size of the mesh, not of the
overlay: even at a million nodes a game is nearly in the cache. A mesh fills from its subscribers. Each joins when the
advert reaches it, at as many hops as it is from the publisher, and asks its parent. A forwarder joins when the first
request arrives, one hop later, and asks in turn. A cover, which has no subscriber below it, joins one hop after its
parent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.models.mesh import MeshTree
from veilcast.lab.models.numba_cache import jit
from veilcast.lab.models.rng import Stream, draw_below, draw_exponential, draw_unit, draw_word, shuffle, stream


@dataclass(frozen=True, eq=False)
class GameBoard:
    nodes: NDArray[np.int32]
    """The node at each place at the beginning; the publisher is the first."""
    parent: NDArray[np.int32]
    first_child: NDArray[np.int32]
    """Where the children of each place begin; those of the last place end at the end of the array."""
    inner: NDArray[np.int32]
    """The places from which a game can begin: they have children, and are not the publisher's."""


def lay_board(mesh: MeshTree) -> GameBoard:
    nodes, parent, first = _lay_board(mesh.publisher, len(mesh.members), *mesh.children)
    inner = np.flatnonzero(first[1:] > first[:-1]).astype(np.int32)
    return GameBoard(nodes, parent, first, inner[inner > 0])


def join_hops(board: GameBoard, mesh: MeshTree, subscribers: NDArray[np.int32]) -> NDArray[np.int32]:
    """The hop at which each place is taken."""
    told = np.full(len(mesh.parent), NEVER, np.int32)
    told[subscribers] = mesh.distance[subscribers]
    return _join_hops(board.parent, told[board.nodes])


@jit
def _lay_board(
    publisher: int, members: int, offsets: NDArray[np.int64], children: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    nodes, parent, first = np.empty(members, np.int32), np.empty(members, np.int32), np.empty(members + 1, np.int32)
    nodes[0], parent[0], last = publisher, 0, 1
    for place in range(members):
        first[place] = last
        node = nodes[place]
        for at in range(offsets[node], offsets[node + 1]):
            nodes[last], parent[last] = children[at], place
            last += 1
    first[members] = last
    return nodes, parent, first


@jit
def _join_hops(parent: NDArray[np.int32], told: NDArray[np.int32]) -> NDArray[np.int32]:
    hops = told.copy()
    for place in range(len(parent) - 1, 0, -1):
        if hops[place] < NEVER:
            hops[parent[place]] = min(hops[parent[place]], hops[place] + 1)
    hops[0] = 0
    for place in range(1, len(parent)):
        if hops[place] == NEVER:
            hops[place] = hops[parent[place]] + 1
    return hops


NEVER: Final = 2**31 - 1


@dataclass(frozen=True, eq=False)
class GameOutcome:
    """The nodes at their places. The flow afterwards is from occupant[parent[x]] to occupant[x], for every member x of
    the mesh."""

    occupant: NDArray[np.int32]
    """By place, named by the node that the mesh gave it to; -1 outside the mesh."""
    swaps: int
    seconds: float
    """Time since the advert. If the game ended early, it is the time of its last swap."""
    messages: int


def play_events(
    mesh: MeshTree,
    subscribers: NDArray[np.int32],
    seed: int,
    *,
    decay: float = 0.0,
    decay_by: Literal["time", "count"] = "time",
    start: Literal["immediate", "wait"] = "immediate",
    wait_s: float = 5.0,
    lock_s: float = 0.0,
    hop_s: float = 0.05,
    look: Literal["swaps", "seconds", "end"] = "end",
    steps: Sequence[float] = (),
) -> list[GameOutcome]:
    """The game at each step (rising numbers of swaps or of seconds), or at its end.

    Decay by time brings the game to an end. Decay by count never quite ends it, and it is not followed for more than a
    day. At steps that it does not reach, the game has its last state.
    """
    if wait_s <= 0 or min(decay, lock_s, hop_s) < 0:
        raise ConfigError("wait_s must be above 0, and decay, lock_s and hop_s not negative")
    if (look == "end") != (len(steps) == 0) or list(steps) != sorted(steps):
        raise ConfigError('steps rise, and are the moments of look = "swaps" or "seconds"')
    if look == "end" and decay == 0:
        raise ConfigError("a shell game without decay has no end: say at which steps to look")
    board = lay_board(mesh)
    chance = stream(seed, "shellgame")
    hops = join_hops(board, mesh, subscribers)
    moments = np.array(steps or [inf], np.float64)
    if decay * hop_s * hops.max() > _COLD:
        raise ConfigError(f"with a decay of {decay} the first would have stopped before the last have joined")
    starting, begins = _starting(board, hops, chance)
    if start == "wait":
        starting, begins = starting[:0], begins[:0]
    cooling, tiring = (decay, 0.0) if decay_by == "time" else (0.0, decay)
    horizon_s = max(_DAY_S, moments[-1] if look == "seconds" else 0.0) if tiring > 0 or lock_s > 0 else inf
    occupants, facts = _events(
        board.parent, board.first_child, board.inner, hops, starting, begins, cooling, tiring, wait_s, lock_s, hop_s,
        moments, look == "seconds", horizon_s, chance,
    )  # fmt: skip
    return [
        GameOutcome(_to_mesh_places(mesh, board, occupant), int(swaps), float(seconds), int(messages))
        for occupant, (swaps, seconds, messages) in zip(occupants, facts, strict=True)
    ]


def play_swaps(mesh: MeshTree, swaps: int, seed: int) -> GameOutcome:
    """Play a number of bare swaps, which take no time. A shorter game of the same seed is the beginning of a longer
    one."""
    if swaps < 0:
        raise ConfigError("swaps must not be negative")
    board = lay_board(mesh)
    occupant = np.arange(len(board.nodes), dtype=np.int32)
    played = swaps if len(board.inner) else 0
    table = np.column_stack([board.inner, board.first_child[board.inner], np.diff(board.first_child)[board.inner]])
    messages = _swap(table, np.diff(board.first_child), occupant, played, stream(seed, "shellgame"))
    return GameOutcome(_to_mesh_places(mesh, board, occupant), played, 0.0, messages)


def _to_mesh_places(mesh: MeshTree, board: GameBoard, occupant: NDArray[np.int32]) -> NDArray[np.int32]:
    """From the places of the board to those of the mesh."""
    placed = np.full(len(mesh.parent), -1, np.int32)
    placed[board.nodes] = board.nodes[occupant]
    return placed


def _starting(board: GameBoard, hops: NDArray[np.int32], state: Stream) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The inner places in the order in which their first children connect, at random within a hop; and those hops."""
    order = np.arange(len(board.inner), dtype=np.int32)
    if len(order) == 0:
        return order, order
    shuffle(state, order)
    # The children of one inner place begin where those of the one before it end.
    begins = np.minimum.reduceat(hops, board.first_child[board.inner]) + np.int32(1)
    order = order[np.argsort(begins[order], kind="stable")]
    return board.inner[order], begins[order]


@jit
def _swap(
    table: NDArray[np.int32], children: NDArray[np.int32], occupant: NDArray[np.int32], swaps: int, state: Stream
) -> int:
    """`table` has a row for each inner place: the place, its first child, and its number of children. Returns the
    number of messages.

    One word serves for both draws: the upper half chooses the place, the lower the child. The bias between places is
    one part in 2^32 / (number of places), below what any sample shows.
    """
    places = np.uint64(len(table))
    messages = 0
    for _ in range(swaps):
        bits = draw_word(state)
        row = table[(bits >> _32) * places >> _32]
        child = row[1] + np.int64((bits & _LOW) * np.uint64(row[2]) >> _32)
        place = row[0]
        occupant[place], occupant[child] = occupant[child], occupant[place]
        messages += 4 + 3 * row[2] + children[child]
    return messages


@jit
def _events(
    parent: NDArray[np.int32],
    first: NDArray[np.int32],
    inner: NDArray[np.int32],
    hops: NDArray[np.int32],
    starting: NDArray[np.int32],
    begins: NDArray[np.int32],
    cooling: float,
    tiring: float,
    wait_s: float,
    lock_s: float,
    hop_s: float,
    steps: NDArray[np.float64],
    by_seconds: bool,
    horizon_s: float,
    state: Stream,
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The node at each place at each step, with the swaps, seconds and messages until then.

    At the places `starting` a first child connects, at the hops `begins`. `cooling` is the decay by time, `tiring` that
    by games. A node is named by the place where it began.
    """
    members, looks, look = len(parent), len(steps), 0
    occupants, facts = np.empty((looks, members), np.int32), np.empty((looks, 3), np.float64)
    occupant, games = np.arange(members).astype(np.int32), np.zeros(members, np.int32)
    held_until_s = np.full(members, -1.0)
    swaps, messages, last_s, start = 0, 0, 0.0, 0

    built, latest_s, mean_s = int(hops.max()) + 1, hops.max() * hop_s, wait_s / max(1, len(inner))
    eager = np.exp(-cooling * (latest_s - hops * hop_s))
    moment_s, warmth = _next(0.0, exp(cooling * latest_s), mean_s, cooling, latest_s, state)
    while len(inner) > 0:
        while look < looks and not by_seconds and steps[look] <= swaps:
            look = _look(occupants, facts, look, occupant, swaps, last_s, messages)
        # A first child connects, or a wait is over.
        if start < len(starting) and begins[start] * hop_s <= moment_s:
            place, hop = starting[start], int(begins[start])
            now_s = hop * hop_s
            start += 1
            node = occupant[place]
            probability = exp(-cooling * (now_s - hops[node] * hop_s))
        else:
            place, now_s = inner[draw_below(state, len(inner))], moment_s
            hop = built if now_s >= built * hop_s else int(now_s / hop_s)
            node = occupant[place]
            probability = eager[node] if cooling > 0 else 1.0
            moment_s, warmth = _next(moment_s, warmth, mean_s, cooling, latest_s, state)
        while look < looks and by_seconds and steps[look] < now_s:
            look = _look(occupants, facts, look, occupant, swaps, steps[look], messages)
        if look == looks or now_s > horizon_s or now_s == inf:
            break
        if tiring > 0:
            probability *= exp(-tiring * games[node])
        child = _any_child(first, hops, place, hop, built, state)
        if child < 0 or (probability < 1 and draw_unit(state) >= probability):
            continue
        if lock_s > 0 and not _hold(held_until_s, parent, first, hops, place, hop, now_s, lock_s):
            continue
        occupant[place], occupant[child] = occupant[child], node
        if tiring > 0:
            games[node] += 1
        swaps += 1
        messages += (
            4 + 3 * _count_children(first, hops, place, hop, built) + _count_children(first, hops, child, hop, built)
        )
        last_s = now_s
    while look < looks:
        look = _look(occupants, facts, look, occupant, swaps, steps[look] if by_seconds else last_s, messages)
    return occupants, facts


@jit
def _look(
    occupants: NDArray[np.int32],
    facts: NDArray[np.float64],
    look: int,
    occupant: NDArray[np.int32],
    swaps: int,
    seconds: float,
    messages: int,
) -> int:
    """Record the state. Returns the number of the next step."""
    occupants[look] = occupant
    facts[look, 0], facts[look, 1], facts[look, 2] = swaps, seconds, messages
    return look + 1


@jit
def _next(
    moment_s: float, warmth: float, mean_s: float, cooling: float, latest_s: float, state: Stream
) -> tuple[float, float]:
    """The next moment at which a node may play, and the warmth then, which is 1 for the last node that joined, at
    `latest_s`."""
    if cooling == 0:
        return moment_s + mean_s * draw_exponential(state), warmth
    warmth -= cooling * mean_s * draw_exponential(state)
    return (latest_s - log(warmth) / cooling if warmth > 0 else inf), warmth


@jit
def _count_children(first: NDArray[np.int32], hops: NDArray[np.int32], place: int, hop: int, built: int) -> int:
    """Number of children at this hop."""
    if hop >= built:
        return int(first[place + 1] - first[place])
    count = 0
    for child in range(first[place], first[place + 1]):
        count += hops[child] < hop
    return count


@jit
def _any_child(
    first: NDArray[np.int32], hops: NDArray[np.int32], place: int, hop: int, built: int, state: Stream
) -> int:
    """A random child of those connected at this hop; -1 without such a child."""
    if hop >= built:
        return int(first[place]) + draw_below(state, first[place + 1] - first[place])
    chosen, count = -1, 0
    for child in range(first[place], first[place + 1]):
        if hops[child] < hop:
            count += 1
            if draw_below(state, count) == 0:
                chosen = child
    return chosen


@jit
def _hold(
    held_until_s: NDArray[np.float64],
    parent: NDArray[np.int32],
    first: NDArray[np.int32],
    hops: NDArray[np.int32],
    place: int,
    hop: int,
    now_s: float,
    lock_s: float,
) -> bool:
    """Lock a place and its neighbours at this hop, if all of them are free."""
    if max(held_until_s[place], held_until_s[parent[place]]) > now_s:
        return False
    for child in range(first[place], first[place + 1]):
        if hops[child] < hop and held_until_s[child] > now_s:
            return False
    held_until_s[place] = held_until_s[parent[place]] = now_s + lock_s
    for child in range(first[place], first[place + 1]):
        if hops[child] < hop:
            held_until_s[child] = now_s + lock_s
    return True


_DAY_S: Final = 86_400.0
_COLD: Final = 500.0
"""exp of this is near the largest double."""
_32: Final = np.uint64(32)
_LOW: Final = np.uint64(0xFFFFFFFF)
