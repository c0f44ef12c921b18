"""The models from a thousand nodes to a million: the time of each, and the rate of shell games."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import msgspec
import numpy as np

from measurement.stopwatch import best_time, measure_time
from mesh_model_peers.peers import PeerModel, Setting
from veilcast.errors import LocalError
from veilcast.lab.models.cover import add_covers
from veilcast.lab.models.graph import small_world
from veilcast.lab.models.mesh import MeshTree, build_mesh, draw_roles
from veilcast.lab.models.shell_game import GameOutcome, play_events, play_swaps


class KernelTiming(msgspec.Struct, frozen=True):
    """On one core: seconds of processor time, and swaps per second."""

    nodes: int
    overlay: int
    """|V_a| of the baseline."""
    graph_s: float
    mesh_s: float
    """Time of roles and baseline."""
    cover_s: float
    events: float
    """Swaps per second with waits, decay and the mesh being built."""
    locked: float
    """Swaps per second with locks as well."""
    swaps: float
    """Bare swaps per second."""
    peers_s: dict[str, float]
    """Time of overlay, mesh, covers and attack together, of the peers that can run this size."""


def measure_sizes(sizes: tuple[int, ...], rounds: int, peers: Sequence[PeerModel]) -> Iterator[KernelTiming]:
    _measure(200, 1, 1_000, ())  # Compiles everything.
    for nodes in sizes:
        yield _measure(nodes, rounds, _SWAPS, peers if nodes <= _PEERS_MAX else ())


def _measure(nodes: int, rounds: int, swaps: int, peers: Sequence[PeerModel]) -> KernelTiming:
    graph = small_world(nodes, 4, 0.2, 1)
    publisher, subscribers = draw_roles(graph, 0.1, 1)
    mesh = build_mesh(graph, publisher, subscribers, 1)
    _check_mesh(nodes, mesh)
    decay = len(mesh.members) / swaps / 20  # Low enough that the game does not end earlier.
    games: dict[str, Callable[[], GameOutcome]] = {
        "events": lambda: play_events(mesh, subscribers, 1, decay=decay, look="swaps", steps=[swaps])[0],
        "locked": lambda: play_events(mesh, subscribers, 1, lock_s=0.05, look="swaps", steps=[swaps])[0],
        "swaps": lambda: play_swaps(mesh, 10 * swaps, 1),
    }
    rates = {}
    for name, game in games.items():
        played = game()
        _check_game(mesh, played)
        rates[name] = played.swaps / best_time(game, rounds)
    return KernelTiming(
        nodes,
        len(mesh.members),
        best_time(lambda: small_world(nodes, 4, 0.2, 1), rounds),
        best_time(lambda: build_mesh(graph, *draw_roles(graph, 0.1, 1), 1), rounds),
        best_time(lambda: add_covers(graph, mesh, 0.6, 1), rounds),
        **rates,
        peers_s={peer.name: measure_time(partial(peer.run, Setting(nodes), 1))[0] for peer in peers},
    )


def _check_mesh(nodes: int, mesh: MeshTree) -> None:
    """At every size, .285 of all nodes are in the mesh when a tenth subscribes, with a deviation of .4 / sqrt(n)."""
    share = len(mesh.members) / nodes
    if abs(share - 0.285) > 0.002 + 4 * 0.4 / nodes**0.5:
        raise LocalError(f"a mesh of {share:.3f} of {nodes} nodes is none that P0's rules give")


def _check_game(mesh: MeshTree, played: GameOutcome) -> None:
    if not np.array_equal(np.sort(played.occupant[mesh.members]), mesh.members):
        raise LocalError("a shell game has lost somebody")


_SWAPS: Final = 1_000_000
_PEERS_MAX: Final = 100_000
