"""The shell game (P0 4.5) as a kernel: the two ends of an edge of the mesh change places, again and again.

Who is next to whom belongs to the places, which stay as they were laid; what moves is who has which: a permutation. A
swap of a place and one of its children undoes itself, so the game is an interchange process, whose limit is that every
arrangement is equally likely. Nobody leaves the mesh, and the publisher keeps its place.

Event mode. Every node waits for exponential times, and plays when one is over, if it has a child. Such waits have no
memory: so the moments at which somebody with children may play are a Poisson process, of the rate of one wait times the
number of places with children, and the place is any of them. Whoever's moment has come plays with the probability
exp(-decay x): x is the time since it joined, or how many games it began. Under the first law all rates fall by one
factor, the warmth. Measured in warmth, which falls by an exponential amount from one moment to the next, the process
has a constant rate; so none of the moments is wasted however cold it becomes, and when the warmth is spent the game is
over for good.

In a mesh that is being built, a node may moreover play at the moment at which its first child connects; children who
have not connected cannot be chosen. A swap takes `lock_s`, for which it holds its place, the parent and the children;
a game that meets somebody held does not come about. Its messages are P0's: three for each neighbour of who begins, one
for each of the other's (P0 4.7).

Swap mode leaves time, decay and construction away: any inner place and any of its children, so many times.


The board of the shell game: the places of a mesh, numbered breadth first, and how it fills while the mesh is built.

In this order the children of a place stand beside one another, from `first[place]` to `first[place + 1]`, and all of
the board is a few arrays as long as the mesh is large, not the overlay: even at a million nodes, a game is all but in
the cache.

A mesh fills from its subscribers. Each joins when the advert reaches it, as many hops after its start as it is far from
the publisher, and asks its parent; a forwarder joins when the first request arrives, one hop later, and asks in turn. A
cover, below whom nobody subscribes, joins one hop after its parent."""

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
    """Who has each place at the beginning; the publisher the first."""
    parent: NDArray[np.int32]
    first_child: NDArray[np.int32]
    """Where the children of each place begin; those of the last end at its end."""
    inner: NDArray[np.int32]
    """The places from which a game can begin: who has one has children, and is not the publisher."""


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
    """Who is where. The flow after it: from occupant[parent[x]] to occupant[x], for every member x of the mesh."""

    occupant: NDArray[np.int32]
    """By place, called by the node that the mesh gave it to; -1 where the mesh has none."""
    swaps: int
    seconds: float
    """Since the advert. A game that came to its end early has that of its last swap."""
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
    """The game at each step, which are numbers of swaps or seconds, and rise; or when it has ended.

    Decay by time brings it to an end; by count, it never quite ends, and after a day is not looked at any more. For
    steps that it does not reach it is as it was then.
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
    """So many bare swaps, which take no time. Fewer under the same seed are the beginning of more."""
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
    """The inner places in the order in which their first children connect, those of one hop in any; and the hops."""
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
    """`table` has a row for each inner place: the place, its first child, and how many there are. Counts messages.

    One word is enough for both draws: the upper half chooses the place, the lower the child. That some places are
    more likely than others by a part in 2^32 / (number of places) is below what any sample shows.
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
    """Who has which place at each step, with the swaps, seconds and messages until then.

    At the places `starting` a first child connects, at the hops `begins`. `cooling` is the decay by time, `tiring` that
    by games. A node is called by the place where it began.
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
        # Somebody's first child connects, or somebody's wait is over.
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
        messages += 4 + 3 * _connected(first, hops, place, hop, built) + _connected(first, hops, child, hop, built)
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
    """Write down how it is; the number of the next look."""
    occupants[look] = occupant
    facts[look, 0], facts[look, 1], facts[look, 2] = swaps, seconds, messages
    return look + 1


@jit
def _next(
    moment_s: float, warmth: float, mean_s: float, cooling: float, latest_s: float, state: Stream
) -> tuple[float, float]:
    """The next moment at which somebody may play, and the warmth then, which is 1 for who joined last at `latest_s`."""
    if cooling == 0:
        return moment_s + mean_s * draw_exponential(state), warmth
    warmth -= cooling * mean_s * draw_exponential(state)
    return (latest_s - log(warmth) / cooling if warmth > 0 else inf), warmth


@jit
def _connected(first: NDArray[np.int32], hops: NDArray[np.int32], place: int, hop: int, built: int) -> int:
    """How many children it has at this hop."""
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
    """One of those that it has at this hop; -1 if there is none."""
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
    """Lock a place and those next to it at this hop, if all of them are free."""
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
"""exp of this is about as far as numbers go."""
_32: Final = np.uint64(32)
_LOW: Final = np.uint64(0xFFFFFFFF)
