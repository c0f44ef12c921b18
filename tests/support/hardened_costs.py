"""The costs of the hardened mesh: messages and hops of a note, on the real machines, beside the papers' baseline.

Latency is constant and nothing is queued, so the time from publication to delivery, divided by the latency, is the
number of hops.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from statistics import mean
from typing import NamedTuple

from veilcast.lab.runs.mesh.mesh_simulation import FAST_HARDENING
from veilcast.machine import Address, Delivered, Event
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.hardened import HardenedProfile
from veilcast.sim.checkers import Checker
from veilcast.sim.links import LinkDelays
from veilcast.sim.mesh.population import MeshPopulation
from veilcast.sim.rng import derive_rng
from veilcast.sim.world import World

PERIOD_US = 1_000_000
HOP_US = 1_000
EPOCH_US = 600 * PERIOD_US
NOTES = 5


class NoteCost(NamedTuple):
    messages: float
    """Messages for each note, with those of the stem and the acknowledgements."""
    notes: float
    """Messages for each note without the stem and the acknowledgements: edges of the mesh."""
    hops: float
    """Mean number of hops from the publisher to a subscriber."""
    reached: float
    """The share of subscribers that got each note."""


class _Stopwatch(Checker):
    def __init__(self, sent_us: dict[bytes, int]) -> None:
        self._sent_us = sent_us
        self.hops: list[float] = []

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if isinstance(event, Delivered):
            number = int(event.note.publication.body.split()[1])
            self.hops.append((world.now - world.start - self._sent_us[b"%d" % number]) / HOP_US)


def measure_cost(profile: str, degree: int, cover: float, offline: float, insiders: float, seed: int) -> NoteCost:
    """A world with one publisher and a tenth of subscribers, whose mesh has formed before the notes.

    A share of the nodes are insiders: always online, and neither subscribers nor covers. A share of all other nodes is
    offline all the time, except the publisher and its first relay.
    """
    hardened = profile == "hardened"
    config = MeshConfig(
        profile="hardened" if hardened else "paper", neighbours_max=64, address_bytes_max=8, hardening=FAST_HARDENING
    )
    first_us = (80 if hardened else 25) * PERIOD_US
    people = MeshPopulation(
        500, degree, 0.2, 0.1, NOTES, first_us, 2 * PERIOD_US, mesh=config, cover_share=cover, checks=()
    )
    world = World(seed=seed, links=LinkDelays(latency_us=(HOP_US, HOP_US)), epoch_us=EPOCH_US)
    watch = _Stopwatch({b"%d" % number: first_us + number * 2 * PERIOD_US for number in range(NOTES)})
    world.watch(watch)
    people.populate(world, 0)
    publisher, readers = people.roles(seed)
    others = [name for name in people.addresses() if name != publisher]
    idle = [name for name in others if name not in readers]
    inside = dict.fromkeys(derive_rng(seed, "inside").sample(idle, round(insiders * people.nodes)))
    honest = [name for name in others if name not in inside and name != _first_relay(world, publisher)]
    away = dict.fromkeys(derive_rng(seed, "away").sample(honest, round(offline * len(honest))))
    for name in inside if hardened else ():
        world.machine(name).overlay.policy._choices.is_cover = lambda *_: False
    for name in away:
        world.crash(name)
    world.run(first_us - 1)
    before = people.facts(world)
    world.run(2 * PERIOD_US * NOTES)
    after = people.facts(world)
    kinds = {kind: after.get(kind, 0) - before.get(kind, 0) for kind in ("Notify", "Stem", "StemReceipt")}
    there = sum(name not in away for name in readers)
    return NoteCost(
        sum(kinds.values()) / NOTES, kinds["Notify"] / NOTES, mean(watch.hops), len(watch.hops) / NOTES / there
    )


def _first_relay(world: World, publisher: Address) -> Address | None:
    """The first relay. A publication waits while it is away, which costs time and is not measured here.

    The publisher makes its choice now instead of with its first heartbeat. It is the same choice.
    """
    profile = world.machine(publisher)._profile
    if not isinstance(profile, HardenedProfile):
        return None
    profile.first_relay.beat(world.now, mass_failure=False)
    relay = profile.first_relay.address()
    assert relay is not None
    return relay


def measure_costs(
    profile: str, degree: int, cover: float, offline: float, insiders: float, seeds: range
) -> list[NoteCost]:
    """The cost for each seed, on two cores."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as workers:
        return list(workers.map(partial(measure_cost, profile, degree, cover, offline, insiders), seeds))
