"""A day in the life of a town, in phases of a second each, and what an observer of all its wires saw in each.

In random order nothing happens, a publisher publishes, or links change their keys; in between come the edges of epochs,
each with the joins to the meshes of the next, at their own times. A pause after each phase lets what it began end.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from veilcast.machine import Address, Publication
from veilcast.mesh.config import Config, Hardening
from veilcast.sim.adversaries import innermost
from veilcast.sim.engine import START_US
from veilcast.sim.mesh import TOPIC
from veilcast.topics import Label


class Phase(NamedTuple):
    kind: str
    start_us: int
    """From the beginning of the town."""


class Place(Protocol):
    """What a world and a town have in common."""

    def after(self, delay_us: int, act: Callable[[], None]) -> None: ...

    def call(self, address: Address, act: Callable[[Any, int], None]) -> None: ...

    def machine(self, address: Address) -> Any: ...


def plan(count: int, rng: Random) -> list[Phase]:
    """So many phases after the warm-up: every fourth an edge, half of the others idle."""
    others = [("idle", "idle", "publishing", "rekeying")[number % 4] for number in range(count - count // EDGE_EVERY)]
    rng.shuffle(others)
    kinds = ["edge" if number % EDGE_EVERY == 0 else others.pop() for number in range(count)]
    return [Phase(kind, WARM_UP_US - BEFORE_EDGE_US + number * SLOT_US) for number, kind in enumerate(kinds)]


def enact(phases: list[Phase], place: Place, publisher: Address, nodes: tuple[Address, ...], rng: Random) -> int:
    """Have it happen; how many notes are published. Edges and their joins need nobody."""
    notes = 0
    for phase in phases:
        if phase.kind == "publishing":
            for number in range(NOTES):
                at_us = phase.start_us + number * PHASE_US // NOTES
                place.after(at_us, lambda body=b"note %d" % notes: place.call(publisher, _publishing(body)))  # type: ignore[misc]
                notes += 1
        elif phase.kind == "rekeying":
            for node in nodes:
                at_us = phase.start_us + rng.randrange(PHASE_US * 9 // 10)
                place.after(at_us, lambda node=node: _rekey(place.machine(node), rng))  # type: ignore[misc]
    return notes


def features(
    seen: Mapping[Address, tuple[array[int], array[int]]], start_us: int, end_us: int
) -> NDArray[np.float64] | None:
    """What one node sent in this time, to all its peers: gaps between datagrams for one peer, and sizes."""
    gaps, sizes = [], []
    for times, lengths in seen.values():
        at = np.frombuffer(times, dtype=np.int64)
        first, last = np.searchsorted(at, [start_us, end_us])
        gaps.append(np.diff(at[first:last]))
        sizes.append(np.frombuffer(lengths, dtype=np.int32)[first:last])
    gap, size = np.concatenate(gaps), np.concatenate(sizes)
    if len(gap) < 2:
        return None
    shares = np.quantile(gap, [0, 0.05, 0.25, 0.5, 0.75, 0.95, 1])
    return np.array([len(size), gap.mean(), gap.std(), *shares, size.mean(), size.std(), size.min(), size.max()])


def _publishing(body: bytes) -> Callable[[Any, int], None]:
    publication = Publication((Label(TOPIC).pair,), body)

    def publish(machine: Any, now: int) -> None:
        innermost(machine).publish(publication, now)

    return publish


def _rekey(machine: Any, rng: Random) -> None:
    """The keys of one link are as old as keys may get, all at once; if it is the node's turn to renew them, it does."""
    while not hasattr(machine, "_links"):
        if machine is None:
            return  # It lives elsewhere.
        machine = machine.inner
    lines = [link.line for link in machine._links.values() if link.line is not None]
    if lines:
        keys = rng.choice(lines).generations
        keys.due_us = keys.session.rekey_us = keys.session.born_us


SECOND_US = 1_000_000
PHASE_US = SECOND_US
SLOT_US = 1_500_000
EDGE_EVERY = 4
EPOCH_US = EDGE_EVERY * SLOT_US
WARM_UP_US = 2 * EPOCH_US
BEFORE_EDGE_US = 800_000
"""An edge's phase begins so long before it, just before the next meshes begin to form."""
NOTES = 12
"""In each phase of publishing."""
MESH = Config(
    "hardened",
    heartbeat_us=150_000,
    silent_periods=100,
    hardening=Hardening(window_periods=4, lead_periods=5, grace_periods=8, bit_periods=1, uptime_periods=4),
)
assert START_US % EPOCH_US == 0
