"""What happens to a town in a day: phases of a second each.

In random order nothing happens, a publisher publishes, or links change their keys; in between come the edges of epochs,
each with the joins to the meshes of the next, at their own times. A pause after each phase lets what it began end.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple, Protocol

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


def notes(phases: list[Phase]) -> list[int]:
    """When notes are published, from the beginning of the town."""
    busy = [phase.start_us for phase in phases if phase.kind == "publishing"]
    return [start_us + number * PHASE_US // NOTES for start_us in busy for number in range(NOTES)]


def enact(phases: list[Phase], place: Place, publisher: Address, nodes: tuple[Address, ...], rng: Random) -> int:
    """Have it happen; how many notes are published. Edges and their joins need nobody."""
    published = notes(phases)
    for number, at_us in enumerate(published):
        place.after(at_us, lambda body=b"note %d" % number: place.call(publisher, _publishing(body)))  # type: ignore[misc]
    for phase in phases:
        if phase.kind == "rekeying":
            for node in nodes:
                at_us = phase.start_us + rng.randrange(PHASE_US * 9 // 10)
                place.after(at_us, lambda node=node: _rekey(place.machine(node), rng))  # type: ignore[misc]
    return len(published)


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
