"""The shell game in its simplest form: every node has a timer of its own.

There is no common process, no change of clock and no numbering of places: only an agenda of events, and a dictionary of
the node at each place. A test compares the model with it.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import exp
from random import Random
from typing import NamedTuple

from veilcast.lab.models.mesh import MeshTree


class Rules(NamedTuple):
    decay: float = 0.0
    by_count: bool = False
    immediate: bool = True
    wait_s: float = 5.0
    lock_s: float = 0.0
    hop_s: float = 0.05


def play(
    mesh: MeshTree, subscribers: list[int], rules: Rules, until_s: float, rng: Random
) -> tuple[dict[int, int], int]:
    """The node at each place at this time, and the number of swaps until then."""
    places = [int(node) for node in mesh.members]
    above = {place: int(mesh.parent[place]) for place in places if place != mesh.publisher}
    below: dict[int, list[int]] = {place: [] for place in places}
    occupant = {place: place for place in places}
    joined_s, games = {mesh.publisher: 0.0}, dict.fromkeys(places, 0)
    held_s = dict.fromkeys(places, -1.0)
    agenda: list[tuple[float, float, str, int]] = []
    swaps = 0

    def plan(time_s: float, what: str, whom: int) -> None:
        heappush(agenda, (time_s, rng.random(), what, whom))

    def join(node: int, now_s: float) -> None:
        if node not in joined_s:
            joined_s[node] = now_s
            plan(now_s + rng.expovariate(1 / rules.wait_s), "wait", node)
            plan(now_s + rules.hop_s, "connect", node)

    def try_to_play(node: int, now_s: float) -> int:
        place = next(place for place in places if occupant[place] == node)
        if place == mesh.publisher or not below[place]:
            return 0
        child = rng.choice(below[place])
        if rng.random() >= exp(-rules.decay * (games[node] if rules.by_count else now_s - joined_s[node])):
            return 0
        near = [place, above[place], *below[place]]
        if any(held_s[other] > now_s for other in near):
            return 0
        if rules.lock_s:
            held_s.update(dict.fromkeys(near, now_s + rules.lock_s))
        occupant[place], occupant[child] = occupant[child], occupant[place]
        games[node] += 1
        return 1

    for node in subscribers:
        if node in above:
            plan(int(mesh.distance[node]) * rules.hop_s, "join", node)
    while agenda and agenda[0][0] <= until_s:
        now_s, _, what, whom = heappop(agenda)
        if what == "join":
            join(whom, now_s)
        elif what == "connect":
            place = above[whom]
            join(place, now_s)
            below[place].append(whom)
            if len(below[place]) == 1 and rules.immediate and place != mesh.publisher:
                plan(now_s, "start", place)
        elif what == "start":
            swaps += try_to_play(occupant[whom], now_s)
        elif what == "wait":
            swaps += try_to_play(whom, now_s)
            plan(now_s + rng.expovariate(1 / rules.wait_s), "wait", whom)
    return occupant, swaps
