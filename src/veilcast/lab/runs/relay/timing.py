"""Runs of a relay's machines for hours of virtual time: does its server link the leases of a member by time?

Members, one proxy and the server are the real machines, with epochs of an hour and the product's settings, except those
that a series changes. Each frame takes its link's latency, up to 20 ms more, and what `wander_ms` adds. Members go away
at random times (their process ends) and come back with their disk. All are there in the first half hour.

The server's log is what reaches it and what it sends: leases, questions, receipts and deliveries under pseudonyms. Four
attackers look for pairs of leases of one member (`attack.server.lease_times`). `auc` compares such pairs with all
others of one epoch, `auc_across` those of two epochs. `lift` is the precision of the pairs that an attacker is surest
of, as many as there are, over the share of such pairs among all: 1 by chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from veilcast.authority.epoch import HOUR_US
from veilcast.crypto.group import multiply_each
from veilcast.lab import tables
from veilcast.lab.attack.server.lease_job import guess_from_leases
from veilcast.lab.attack.table_engine import AnyTable
from veilcast.lab.experiment.params import Measure
from veilcast.lab.experiment.recorder import NO_RECORDER, TableRecorder, record_tables
from veilcast.lab.experiment.relay_params import RelayTiming
from veilcast.lab.measure.ranking import auc
from veilcast.machine import Address, Delivered, Event, Frame, Record
from veilcast.observe import ServerRow, TruthRow
from veilcast.relay.config import RelayClientConfig, RelayProxyConfig, RelayServerConfig
from veilcast.relay.hardened import HardenedServerProfile
from veilcast.relay.roster import LeasePseudonym, decode_roster_record
from veilcast.sim.checkers import Checker
from veilcast.sim.links import LinkDelays
from veilcast.sim.relay.population import SERVER, RelayPopulation, server_keys
from veilcast.sim.rng import derive_rng
from veilcast.sim.world import World
from veilcast.wire import decode
from veilcast.wire.relay import Lease, Receipt, RelayDelivery, Resume


def run(
    params: RelayTiming, seed: int, data: Path | None = None, recorder: TableRecorder = NO_RECORDER
) -> list[Measure]:
    tap = observe_run(params, seed)
    observed = {"server": tables.from_rows(ServerRow, tap.rows), "truth": tables.from_rows(TruthRow, tap.truth)}
    guesses = attack_tables(observed, params, (), data)
    assert isinstance(guesses, pa.Table)
    record_tables(recorder, {**observed, "guesses": guesses})
    member_hours = params.nodes * params.steps[-1]
    return [
        *measure_guesses(guesses, observed["truth"], params, (), seed),
        *(Measure("", name, params.steps[-1], count / member_hours) for name, count in sorted(tap.counts.items())),
        Measure("", "delay_ms", params.steps[-1], float(np.median(tap.delays_us or [0])) / 1_000),
    ]


def attack_tables(
    observed: Mapping[str, AnyTable], params: RelayTiming, names: Collection[str], _: Path | None
) -> AnyTable:
    """The guesses of these attackers, or of all."""
    return guess_from_leases(observed, names or None)


def measure_guesses(
    guesses: pa.Table, truth: pa.Table, params: RelayTiming, names: Collection[str], seed: int
) -> list[Measure]:
    """The measures of these attackers, or of all."""
    owners = dict(zip(truth["node"].to_pylist(), truth["topic"].to_pylist(), strict=True))
    begun = dict(zip(truth["node"].to_pylist(), truth["since_us"].to_pylist(), strict=True))
    found: list[Measure] = []
    for attack in pc.unique(guesses["attack"]).sort().to_pylist():
        if names and attack not in names:
            continue
        rows = guesses.filter(pc.equal(guesses["attack"], attack))
        first, second = rows["topic"].to_pylist(), rows["node"].to_pylist()
        same = np.array([owners[one] == owners[other] for one, other in zip(first, second, strict=True)], np.bool_)
        across = np.array([begun[one] != begun[other] for one, other in zip(first, second, strict=True)], np.bool_)
        scores = rows["score"].to_numpy()
        for metric, value in _measure_pairs(scores, same, across, seed):
            found.append(Measure(attack, metric, params.steps[-1], value))
    return found


def _measure_pairs(
    scores: np.ndarray[tuple[int], np.dtype[np.float64]],
    same: np.ndarray[tuple[int], np.dtype[np.bool_]],
    across: np.ndarray[tuple[int], np.dtype[np.bool_]],
    seed: int,
) -> Iterator[tuple[str, float]]:
    for metric, chosen in (("auc", ~across), ("auc_across", across)):
        yield metric, auc(scores[chosen], same[chosen]) if chosen.any() else 0.5
    # Equal scores are in random order, and not in that of names.
    surest = np.lexsort((np.random.default_rng(seed).random(scores.size), -scores))[: max(1, int(same.sum()))]
    yield "lift", float(np.mean(same[surest])) / max(float(np.mean(same)), 1e-9) if same.size else 1.0
    yield "precision", float(np.mean(same[surest])) if same.size else 0.0


def observe_run(params: RelayTiming, seed: int) -> _ServerTap:
    links = LinkDelays(
        latency_us=(10_000, 10_000 + round(1_000 * params.spread_ms)),
        jitter_us=(0, 20_000),
        wander_us=round(1_000 * params.wander_ms),
    )
    world = World(seed=seed, epoch_us=HOUR_US, links=links)
    population = make_population(params)
    tap = _ServerTap(f"seed {seed}", population.every_us)
    world.watch(tap)
    duration_us = round(params.steps[-1] * HOUR_US)
    population.populate(world, duration_us)
    _schedule_absences(params, world, population.client_names(), seed, duration_us)
    world.run(duration_us)
    world.finish()
    return tap


def make_population(params: RelayTiming) -> LongPopulation:
    every_us = round(HOUR_US / params.publications) if params.publications else HOUR_US
    drawn, held = params.relay != "answers", params.relay == "held"
    return LongPopulation(
        proxies=1,
        clients=params.nodes,
        publishers=max(1, params.nodes // 4),
        topics=params.topics,
        interests=params.subscriptions,
        notes=int(params.steps[-1] * params.publications),
        first_us=_FIRST_US,
        every_us=every_us,
        client=RelayClientConfig(ahead_epochs=params.ahead, drawn_resumes=drawn),
        proxy=RelayProxyConfig(holds_presence=held),
        server=RelayServerConfig(),
        checks=(),
    )


def _schedule_absences(
    params: RelayTiming, world: World, members: Sequence[Address], seed: int, duration_us: int
) -> None:
    rng = derive_rng(seed, "absences")
    for member in members if params.absences else ():
        for leaves_us, back_us in _draw_absences(rng, params, duration_us):
            world.after(leaves_us, lambda member=member: world.crash(member))  # type: ignore[misc]
            world.after(back_us, lambda member=member: world.restart(member))  # type: ignore[misc]


def _draw_absences(rng: Random, params: RelayTiming, duration_us: int) -> Iterator[tuple[int, int]]:
    at_us = _ALL_THERE_US
    while True:
        at_us += int(rng.expovariate(params.absences / (24 * HOUR_US)))
        away_us = int(params.away_minutes * 60e6 * (1 / 3 + rng.random() * 4 / 3))
        if at_us + away_us >= duration_us:
            return
        yield at_us, at_us + away_us
        at_us += away_us + _BETWEEN_US


class LongPopulation(RelayPopulation, frozen=True, tag="relay for hours"):
    """Topics are names alone."""

    positive: ClassVar[tuple[str, ...]] = ("proxies", "clients")

    bits: int = 0


class _ServerTap(Checker):
    """The server's log, the owners of pseudonyms, and what the relay costs."""

    def __init__(self, run: str, every_us: int) -> None:
        self.rows: list[ServerRow] = []
        self.truth: list[TruthRow] = []
        self.counts: Counter[str] = Counter()
        self.delays_us: list[int] = []
        self._run, self._every_us = run, every_us
        self._known: set[str] = set()
        self._profile = HardenedServerProfile(server_keys(), bytes, multiply_each)
        self._owners: dict[str, str] = {}

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if isinstance(event, Record) and address.startswith("p"):
            entry = decode_roster_record(event.data)
            if isinstance(entry, LeasePseudonym):
                self._owners[entry.pseudonym.hex()] = entry.client
        elif isinstance(event, Delivered):
            number = int(event.note.publication.body.split()[-1])
            self.delays_us.append(world.now - world.start - _FIRST_US - number * self._every_us)

    def on_frames(self, world: World, address: Address, frames: Sequence[Frame]) -> None:
        now = world.now - world.start
        for frame in frames:
            hop = "server" if SERVER in (address, frame.destination) else "member"
            self.counts[f"{hop}_messages"] += 1
            self.counts[f"{hop}_bytes"] += len(frame.data)
            if hop == "server":
                self._note(decode(frame.data), now)

    def _note(self, message: object, now: int) -> None:
        if isinstance(message, Lease):
            name = message.name.hex()
            if name not in self._known:
                self._known.add(name)
                since = now // HOUR_US
                self.truth.append(
                    TruthRow(self._run, self._owners[name], name, "lease", since * HOUR_US, message.until_us)
                )
            tags = self._profile.compute_tags(message.subjects, self._profile.open_lease(message).bond)
            self._add("server:lease", name, b"".join(tag for group in tags for tag in group), now)
        elif isinstance(message, Resume):
            self._add("server:ask", message.name.hex(), b"", now)
        elif isinstance(message, RelayDelivery):
            self._add("server:deliver", message.names[0].hex(), message.ticket, now)
        elif isinstance(message, Receipt):
            self._add("server:receipt", message.name.hex(), message.ticket, now)

    def _add(self, role: str, pseudonym: str, tag: bytes, now: int) -> None:
        self.rows.append(ServerRow(self._run, now // HOUR_US, now, role, pseudonym, tag, len(tag)))


_FIRST_US: Final = 1_200_000_000
_ALL_THERE_US: Final = 1_800_000_000
_BETWEEN_US: Final = 600_000_000
"""Least time between two absences of a member."""
