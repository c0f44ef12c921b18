"""The kernels from a thousand nodes to a million: how long each takes, and how many shell games it plays a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import msgspec
import numpy as np

from veilcast.errors import LocalError
from veilcast.lab.bench.clock import best, timed
from veilcast.lab.bench.peers import Peer, Setting
from veilcast.lab.kernels.cover import covered
from veilcast.lab.kernels.graph import small_world
from veilcast.lab.kernels.mesh import Mesh, build, cast
from veilcast.lab.kernels.shellgame import Shuffled, play_events, play_swaps


class Size(msgspec.Struct, frozen=True):
    """Of one core: seconds of processor time, and swaps a second."""

    nodes: int
    overlay: int
    """|V_a| of the baseline."""
    graph_s: float
    mesh_s: float
    """Roles and baseline."""
    cover_s: float
    events: float
    """With waits, decay and the mesh being built."""
    locked: float
    """With locks as well."""
    swaps: float
    """Bare."""
    peers_s: dict[str, float]
    """Overlay, mesh, covers and attack in one, of those who can at this size."""


def grow(sizes: tuple[int, ...], rounds: int, peers: Sequence[Peer]) -> Iterator[Size]:
    _measure(200, 1, 1_000, ())  # Compiles what was not.
    for nodes in sizes:
        yield _measure(nodes, rounds, _SWAPS, peers if nodes <= _PEERS_MAX else ())


def _measure(nodes: int, rounds: int, swaps: int, peers: Sequence[Peer]) -> Size:
    graph = small_world(nodes, 4, 0.2, 1)
    publisher, subscribers = cast(graph, 0.1, 1)
    mesh = build(graph, publisher, subscribers, 1)
    _check_mesh(nodes, mesh)
    decay = len(mesh.members) / swaps / 20  # So low that the game does not end before.
    games: dict[str, Callable[[], Shuffled]] = {
        "events": lambda: play_events(mesh, subscribers, 1, decay=decay, look="swaps", steps=[swaps])[0],
        "locked": lambda: play_events(mesh, subscribers, 1, lock_s=0.05, look="swaps", steps=[swaps])[0],
        "swaps": lambda: play_swaps(mesh, 10 * swaps, 1),
    }
    rates = {}
    for name, game in games.items():
        played = game()
        _check_game(mesh, played)
        rates[name] = played.swaps / best(game, rounds)
    return Size(
        nodes,
        len(mesh.members),
        best(lambda: small_world(nodes, 4, 0.2, 1), rounds),
        best(lambda: build(graph, *cast(graph, 0.1, 1), 1), rounds),
        best(lambda: covered(graph, mesh, 0.6, 1), rounds),
        **rates,
        peers_s={peer.name: timed(partial(peer.run, Setting(nodes), 1))[0] for peer in peers},
    )


def _check_mesh(nodes: int, mesh: Mesh) -> None:
    """At every size, .285 of all nodes are in the mesh when a tenth subscribes, with a deviation of .4 / sqrt(n)."""
    share = len(mesh.members) / nodes
    if abs(share - 0.285) > 0.002 + 4 * 0.4 / nodes**0.5:
        raise LocalError(f"a mesh of {share:.3f} of {nodes} nodes is none that P0's rules give")


def _check_game(mesh: Mesh, played: Shuffled) -> None:
    if not np.array_equal(np.sort(played.occupant[mesh.members]), mesh.members):
        raise LocalError("a shell game has lost somebody")


_SWAPS: Final = 1_000_000
_PEERS_MAX: Final = 100_000
