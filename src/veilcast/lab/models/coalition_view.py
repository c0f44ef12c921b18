"""The view of a coalition of members on its own links, epoch after epoch, without the truth.

Insiders follow the protocol and combine their observations. On a link to an honest neighbour an insider sees: whether
the neighbour is present; whether it asked for the topic, and how long after the advert; invitations to be a cover, and
refusals, which only members of the mesh send; in a shell game, the names in the sets that are handed over, and the two
nodes that swap; and, if publications go by a stem, the neighbours before and after it on the stem. All insiders know
the graph and the origin of the flood.

A subscriber answers an advert at once. A forwarder answers when it was asked itself: two hops later for each link
between it and the nearest asking node below. If subscriptions wait for a random moment of a window, this delay is
hidden.

`write_insiders` gives the same as a table `insiders`, which attackers read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from veilcast.lab import tables
from veilcast.lab.models import hardened_mesh, keyed_draws
from veilcast.lab.models.epochs import Epoch, MeshPolicy, Population, run_epochs
from veilcast.lab.models.link_observations import (
    ASKED,
    AWAY,
    FOLLOWED,
    INVITED,
    RECRUITED,
    REFUSED,
    SILENT,
    LinkObservations,
)
from veilcast.lab.models.mesh import MeshTree
from veilcast.lab.models.numba_cache import jit
from veilcast.lab.models.publication_delay import PublicationSchedule, schedule_publications
from veilcast.lab.models.rng import Stream, draw_below, stream
from veilcast.observe import InsiderRow


@dataclass(frozen=True, eq=False)
class CoalitionView(LinkObservations):
    """Link observations, with the notifications of a topic that the coalition reads, or that passed its members."""

    stem_passages: NDArray[np.int32]
    """Rows of (epoch, observer, predecessor, successor, whether it climbed): the notifications that left in an epoch,
    all by one stem, in the order of its path. At the root the successor is the observer itself."""
    delivered: NDArray[np.int32]
    """E: number of notifications that came down the mesh."""

    def known_members(self, epoch: int) -> NDArray[np.bool_]:
        """The nodes that the coalition knows to be in the mesh in this epoch."""
        inside = np.zeros(self.present.shape[1], np.bool_)
        inside[self.peer[self.seen[epoch] > SILENT]] = True
        games = self.handovers[self.handovers[:, 0] == epoch]
        inside[games[:, 3]] = inside[games[:, 5]] = True
        return inside


def watch_epochs(people: Population, conduct: MeshPolicy, count: int) -> CoalitionView:
    """The view of the insiders of a population, over its first `count` epochs."""
    observer, peer = insider_links(people)
    seen, delay = np.empty((count, observer.size), np.int8), np.full((count, observer.size), -1, np.int16)
    present = np.empty((count, people.graph.nodes), np.bool_)
    origin = np.empty(count, np.int32)
    handed = [np.empty((0, 6), np.int32)]
    ways: list[hardened_mesh.StemWalk | None] = []
    for epoch in run_epochs(people, conduct, count):
        number = epoch.number
        origin[number], present[number] = epoch.root_paths.root, epoch.present
        seen[number] = observe_links(epoch, observer, peer)
        if conduct.timing == "seen":
            delay[number] = np.where(seen[number] == ASKED, subscription_delays(epoch)[peer], -1)
        if conduct.games:
            games = round(conduct.games * epoch.covered_mesh.members.size)
            named = play_handovers(epoch.covered_mesh, people.insiders, games, stream(people.seed, "games", number))
            handed.append(np.insert(named, 0, number, axis=1))
        if conduct.origin == "elected":
            ways.append(epoch_stem(people, conduct, epoch))
    there = present[:, people.publisher]
    opened = np.array([way is not None for way in ways]) if ways else there
    notes = schedule_notes(people, conduct, there, opened)
    # All members send as many parcels of the same sizes, so their passages are the same whoever publishes.
    shown = [] if conduct.parcels else ways
    passed = [_passages(people, number, way) for number, way in enumerate(shown) if way and notes.departed[number]]
    passed.append(np.empty((0, 5), np.int32))
    return CoalitionView(
        observer, peer, origin, present, seen, delay, np.concatenate(handed), np.concatenate(passed), notes.delivered
    )


def schedule_notes(
    people: Population, conduct: MeshPolicy, there: NDArray[np.bool_], opened: NDArray[np.bool_]
) -> PublicationSchedule:
    """When the publisher's notifications leave it and are released, by the epochs in which it is present and has a way
    to the root."""
    key, writes = people.key("notes"), there
    if conduct.notes < 1:
        writes = there & keyed_draws.draw_share(key, keyed_draws.WRITES, len(there), 0, conduct.notes)
    drawn = conduct.parcels
    return schedule_publications(there, writes, opened, conduct.departures, conduct.hold, key, in_order=drawn)


def epoch_stem(people: Population, conduct: MeshPolicy, epoch: Epoch) -> hardened_mesh.StemWalk | None:
    """The path of this epoch's notifications to the root, if there is one."""
    key, relay = people.key("life"), conduct.relay_number(epoch.number)
    return hardened_mesh.walk_stem(
        people.graph, epoch.graph, epoch.root_paths, people.publisher, hardened_mesh.ONWARD_PROBABILITY, key, relay
    )


def insider_links(people: Population) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Links between insiders and honest neighbours: the insiders, and the neighbours."""
    ends = np.repeat(np.arange(people.graph.nodes, dtype=np.int32), people.graph.degrees)
    outward = people.insiders[ends] & ~people.insiders[people.graph.targets]
    return ends[outward], people.graph.targets[outward]


def observe_links(epoch: Epoch, observer: NDArray[np.int32], peer: NDArray[np.int32]) -> NDArray[np.int8]:
    """The code that each of these links shows to the observer in one epoch."""
    invited = epoch.invited
    offsets, targets, parent = epoch.graph.offsets, epoch.graph.targets, epoch.covered_mesh.parent
    return _observe_links(offsets, targets, epoch.present, epoch.mesh.parent, parent, invited, observer, peer)


def subscription_delays(epoch: Epoch) -> NDArray[np.int16]:
    """For every node that asked, the hops between the advert and its request; -1 for others."""
    depth = hardened_mesh.mesh_depths(epoch.mesh)
    inward = np.argsort(-depth, kind="stable")[: epoch.mesh.members.size]
    return _delays(inward, epoch.mesh.parent, epoch.mesh.publisher, epoch.asking)


def play_handovers(mesh: MeshTree, insiders: NDArray[np.bool_], games: int, state: Stream) -> NDArray[np.int32]:
    """Play games of random inner nodes, except the publisher, with a random child of each. Returns rows as in
    `LinkObservations.handovers`, without the epoch."""
    offsets, children = mesh.children
    inner = np.flatnonzero(np.diff(offsets)).astype(np.int32)
    inner = inner[inner != mesh.publisher]
    if inner.size == 0:
        return np.empty((0, 5), np.int32)
    return _handovers(offsets, children, mesh.parent, inner, insiders, games, state)


def write_insiders(
    view: CoalitionView, run: str, names: list[str], token: bytes, *, start_us: int, epoch_us: int, hop_us: int
) -> pa.Table:
    """The table `insiders` with all that the view holds; epochs begin at `start_us`.

    A request comes so many hops after the epoch began as it took its sender to answer; what has no time to be observed
    stands at the beginning. Notifications are read by a member of the coalition that is no node of the overlay: its
    rows have the first insider at both ends.
    """
    parts: list[dict[str, Any]] = []

    def write(epoch: Any, after_us: Any, observer: Any, peer: Any, kind: str, **more: Any) -> None:
        parts.append(dict(epoch=epoch, after_us=after_us, observer=observer, peer=peer, kind=kind, **more))

    for code, kind in _KINDS:
        epoch, link = np.nonzero(view.seen == code)
        wait_us = np.maximum(view.delay[epoch, link], 0).astype(np.int64) * hop_us
        write(epoch, wait_us if kind == "in:Subscribe" else 0, view.observer[link], view.peer[link], kind)
    for code, kind in _GAMES.items():
        games = view.handovers[view.handovers[:, 4] == code]
        write(games[:, 0], 0, games[:, 2], games[:, 3], kind, about=[names[node] for node in games[:, 5]])
    epoch, observer, source, target, climbs = view.stem_passages.T
    on_path = np.arange(len(epoch)) - np.searchsorted(epoch, epoch)
    write(epoch, on_path, observer, source, "in:Stem", about=["climbs" if each else "" for each in climbs])
    onward = target != observer
    write(epoch[onward], on_path[onward], observer[onward], target[onward], "out:Stem")
    came = np.repeat(np.arange(len(view.delivered)), view.delivered)
    first = np.full(len(came), view.observer[0] if len(view.observer) else 0)
    notes = [b"%d" % number for number in range(len(came))]
    write(came, 0, first, first, "in:Notify", message=notes)
    known = pa.array(names, pa.string())
    return pa.concat_tables(
        insiders_table(run, known, token, start_us=start_us, epoch_us=epoch_us, **part) for part in parts
    )


def insiders_table(
    run: str,
    names: pa.Array,
    token: bytes,
    *,
    start_us: int,
    epoch_us: int,
    epoch: Any,
    after_us: Any,
    observer: Any,
    peer: Any,
    kind: str,
    message: Sequence[bytes] | bytes = b"",
    chain: Sequence[bytes] | bytes = b"",
    about: Sequence[str] | str = "",
) -> pa.Table:
    """Rows of `insiders` of one kind, from numbers of epochs and nodes; times count from the beginning of the epoch."""
    schema = tables.arrow_schema(InsiderRow)
    began = start_us + np.asarray(epoch, np.int64) * epoch_us
    given = (run, began // epoch_us, began + after_us, names.take(pa.array(observer)), names.take(pa.array(peer)), kind)
    columns = zip((*given, message, token, chain, about), schema.types, strict=True)
    return pa.table([_column(column, kind, len(began)) for column, kind in columns], schema=schema)


def _column(given: Any, kind: pa.DataType, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(given, kind), rows) if isinstance(given, (str, bytes)) else pa.array(given, kind)


def _passages(people: Population, number: int, way: hardened_mesh.StemWalk) -> NDArray[np.int32]:
    """The passages of an epoch's stem through insiders."""
    after = np.append(way.path[1:], way.path[-1])
    return np.array(
        [
            (number, node, way.path[place - 1], after[place], place > way.climb_start)
            for place, node in enumerate(way.path)
            if place > 0 and people.insiders[node]
        ],
        np.int32,
    ).reshape(-1, 5)


@jit
def _observe_links(
    offsets: NDArray[np.int64],
    targets: NDArray[np.int32],
    present: NDArray[np.bool_],
    before: NDArray[np.int32],
    parent: NDArray[np.int32],
    invited: NDArray[np.int8],
    observers: NDArray[np.int32],
    peers: NDArray[np.int32],
) -> NDArray[np.int8]:
    seen = np.empty(observers.size, np.int8)
    for link in range(observers.size):
        observer, peer = observers[link], peers[link]
        if not present[peer]:
            seen[link] = AWAY
        elif before[peer] == observer:
            seen[link] = ASKED
        elif parent[peer] == observer:
            seen[link] = RECRUITED
        elif before[observer] == peer:
            seen[link] = FOLLOWED
        elif _invites(offsets, targets, invited, peer, observer):
            seen[link] = INVITED
        elif _invites(offsets, targets, invited, observer, peer):
            seen[link] = REFUSED
        else:
            seen[link] = SILENT
    return seen


@jit
def _invites(
    offsets: NDArray[np.int64], targets: NDArray[np.int32], invited: NDArray[np.int8], host: int, guest: int
) -> bool:
    for slot in range(offsets[host], offsets[host + 1]):
        if targets[slot] == guest:
            return bool(invited[slot] != 0)
    return False


@jit
def _delays(
    inward: NDArray[np.int64], parent: NDArray[np.int32], root: int, asking: NDArray[np.bool_]
) -> NDArray[np.int16]:
    """From the deepest node inward: at once, or two hops after the first request."""
    delay = np.full(parent.size, -1, np.int16)
    for node in inward:
        if asking[node]:
            delay[node] = 0
        above = parent[node]
        if node != root and (delay[above] < 0 or delay[node] + 2 < delay[above]):
            delay[above] = delay[node] + 2
    return delay


@jit
def _handovers(
    offsets: NDArray[np.int64],
    children: NDArray[np.int32],
    parent: NDArray[np.int32],
    inner: NDArray[np.int32],
    insiders: NDArray[np.bool_],
    games: int,
    state: Stream,
) -> NDArray[np.int32]:
    """As in `mesh/swap.py`: v1 at place a asks v2 at a child's place b, and they exchange places."""
    occupant = np.arange(parent.size).astype(np.int32)
    log, size = np.empty((1024, 5), np.int32), 0
    for game in range(games):
        a = inner[draw_below(state, inner.size)]
        b = children[offsets[a] + draw_below(state, offsets[a + 1] - offsets[a])]
        v1, v2 = occupant[a], occupant[b]
        most = size + 2 * (1 + offsets[a + 1] - offsets[a] + offsets[b + 1] - offsets[b])
        if most > len(log):
            more = np.empty((2 * most, 5), np.int32)
            more[:size] = log[:size]
            log = more
        for place in range(offsets[a] - 1, offsets[a + 1]):
            near = occupant[parent[a] if place < offsets[a] else children[place]]
            if near == v2:
                continue
            if insiders[v2]:
                size = _append_row(log, size, game, v2, v1, ASK, near)
            if insiders[near]:
                size = _append_row(log, size, game, near, v1, COMMIT, v2)
        for place in range(offsets[b], offsets[b + 1]):
            near = occupant[children[place]]
            if insiders[v1]:
                size = _append_row(log, size, game, v1, v2, ANSWER, near)
            if insiders[near]:
                size = _append_row(log, size, game, near, v2, COMMIT, v1)
        occupant[a], occupant[b] = v2, v1
    return log[:size].copy()


@jit
def _append_row(log: NDArray[np.int32], size: int, game: int, observer: int, peer: int, message: int, node: int) -> int:
    log[size, 0], log[size, 1], log[size, 2], log[size, 3], log[size, 4] = game, observer, peer, message, node
    return size + 1


ASK: Final = 0
ANSWER: Final = 1
COMMIT: Final = 2
"""The messages of a game that hand names over: ASK, ANSWER, COMMIT."""

_KINDS: Final = (
    (ASKED, "in:Subscribe"),
    (RECRUITED, "out:Invite"),
    (RECRUITED, "in:Subscribe"),
    (REFUSED, "in:Decline"),
    (INVITED, "in:Invite"),
    (FOLLOWED, "out:Subscribe"),
)
_GAMES: Final = {ASK: "in:SwapAsk", ANSWER: "in:SwapAnswer", COMMIT: "in:SwapCommit"}
