"""Runs of a relay on the real machines, in the simulator: what their server, their proxy and an observer really have.

A few clients, one proxy, real keys, and as many short epochs as the last step says. `RelayTap` records the tables. Each
statement that rests on bytes or on times of the real code is measured here, and not on the model:

1. The server tries a dictionary of all tags that it can compute with an ally (`known_tags`).
2. The server looks for pseudonyms of the last epoch, by their names and by their tags.
3. The proxy looks for subjects of two clients, bodies that it had before, and copies that two clients get.
4. An observer of the clients' wires, alone and with the server's log, looks at frames. Alone it compares windows of a
   tenth of a second: who sends, and who receives two batches later. With the log it knows when each request reached the
   proxy: a batch ends a fixed time after its first request came. So it looks for clients whose frame came then, to
   `_PHASE_US`.

Clients subscribe to topics by their names alone. Each publisher has one topic. Measures have the names of the model's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from veilcast.authority.epoch import epoch_of
from veilcast.core.match_elements import derive_element_key
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.server.server_job import PROXY_NAME, guess_from_server
from veilcast.lab.attack.table_engine import AnyTable, concat_rows, engine_of
from veilcast.lab.experiment.params import Measure
from veilcast.lab.experiment.recorder import NO_RECORDER, TableRecorder, record_tables
from veilcast.lab.experiment.relay_params import RelayAttacks
from veilcast.lab.measure.relay_guesses import measure_named_subscriptions, measure_relay_guesses
from veilcast.lab.runs.relay.known_tags import compute_known_tags
from veilcast.lab.runs.relay.relay_tap import RelayTap
from veilcast.machine import Address, Publication
from veilcast.observe import CellRow, FactRow, PopularityRow, PresenceRow, ServerRow, TruthRow, WordRow
from veilcast.sim.engine import START_US
from veilcast.sim.links import LinkDelays
from veilcast.sim.relay.population import RelayPopulation, proxy_mask, server_keys
from veilcast.sim.world import World
from veilcast.topics import TOPIC, Conjunction, Equal, Label

Tables = dict[str, pa.Table]


class EpochPopulation(RelayPopulation, frozen=True, tag="relay over epochs"):
    """Topics are names alone. In each epoch but the first, `notes` publications follow the subscriptions, each by the
    next publisher, on that publisher's topic."""

    positive: ClassVar[tuple[str, ...]] = ("proxies", "clients", "epochs")

    bits: int = 0
    epochs: int = 5
    checks: tuple[str, ...] = ()

    def populate(self, world: World, duration_us: int) -> None:
        msgspec.structs.replace(self, notes=0).populate_members(world, duration_us)
        publishers = self.publisher_names()
        for number in range(self.epochs * self.notes):
            epoch, place = divmod(number, self.notes)
            at_us = (1 + epoch) * world.epoch_us + _SUBSCRIBING_US + place * self.every_us
            _publish_at(world, at_us, publishers[number % len(publishers)], self.written(number), number)

    def populate_members(self, world: World, duration_us: int) -> None:
        super().populate(world, duration_us)

    def written(self, number: int) -> str:
        return self._vocabulary.topics[number % len(self.publisher_names()) % self.topics]

    def element_keys(self, topic: str) -> Iterator[Secret]:
        """The keys of the topic's elements that a member has, for all epochs of the run."""
        first = epoch_of(START_US, EPOCH_US)
        keyring = self._keyring(0, EPOCH_US)
        for epoch in range(first, first + self.epochs + 2) if self.profile == "hardened" else ():
            yield derive_element_key(keyring.keys_at(epoch).topic(topic), b"relay")


def run(
    params: RelayAttacks, seed: int, data: Path | None = None, recorder: TableRecorder = NO_RECORDER
) -> list[Measure]:
    if params.churn:
        raise ConfigError("a relay's machines are run without churn")
    step = params.steps[-1]
    population = make_population(params, int(step))
    taps, reads = observe_run(population, seed)
    observed = tabulate(population, taps, reads)
    guesses = attack_tables(observed, params, (), data)
    assert isinstance(guesses, pa.Table)
    record_tables(recorder, {**observed, "guesses": guesses})
    deliveries = _deliveries(observed["server"])
    return [
        *measure_guesses(guesses, observed["truth"], params, (), seed),
        Measure("", "copies", step, _share_of_copies(deliveries)),
        Measure("", "delivered", step, float(len(deliveries))),
    ]


def attack_tables(
    observed: Mapping[str, AnyTable], params: RelayAttacks, names: Collection[str], _: Path | None
) -> AnyTable:
    """The guesses of these attackers, or of all: after each epoch for the dictionary, which is for the pseudonyms of
    that epoch; after the last for all others. Clients subscribe while others publish, so an attack on times looks at
    one kind of request."""
    engine, server = engine_of(observed["server"]), observed["server"]
    prepared: dict[tuple[str, ...], Mapping[str, AnyTable]] = {_ON_WORDS: observed, _ON_BYTES: observed}
    if {"cells", "facts"} <= observed.keys():
        facts, cells = observed["facts"], observed["cells"]
        departed = _AT_DEPARTURE.format(proxy=PROXY_NAME, latency_us=_LATENCY_US, epoch_us=EPOCH_US)
        later = engine.query(departed, cells=cells, facts=facts)
        without = {name: table for name, table in observed.items() if name != "presence"}
        prepared[_LINKS] = {**without, "cells": later, "server": engine.query(_PUBLISHED_LATER, server=server)}
        short = engine.query(_SHORT_WINDOWS.format(phase_us=_PHASE_US), facts=facts)
        for attack, role in (("timing", "publish"), ("timing-subscriptions", "subscribe")):
            came = engine.query(_AT_ARRIVAL.format(role=role), server=server, facts=facts)
            prepared[(attack,)] = {**observed, "server": came, "facts": short}
        prepared[_ON_BYTES] = {name: table for name, table in observed.items() if name != "cells"}
    asked = {attacks: [each for each in attacks if not names or each in names] for attacks in prepared}
    return concat_rows(
        [
            guess_from_server(prepared[attacks], chosen, range(1, _EPOCHS_MAX) if attacks == _ON_WORDS else ())
            for attacks, chosen in asked.items()
            if chosen
        ]
    )


def measure_guesses(
    guesses: pa.Table, truth: pa.Table, params: RelayAttacks, names: Collection[str], seed: int
) -> list[Measure]:
    """The measures of these attacks, or of all."""
    step, known = params.steps[-1], set(pc.unique(guesses["attack"]).to_pylist())
    words, others = (guesses.filter(kept(guesses["attack"], _ON_WORDS[0])) for kept in (pc.equal, pc.not_equal))
    named = [Measure(_ON_WORDS[0], "named_readers", step, measure_named_subscriptions(words, truth))]
    found = [
        Measure(attack, metric, step, value)
        for attack, metric, _, value in measure_relay_guesses(others, truth, EPOCH_US)
    ]
    return [each for each in (*named, *found) if each.attack in known and (not names or each.attack in names)]


def tabulate(population: EpochPopulation, taps: RelayTap, reads: Mapping[Address, tuple[str, ...]]) -> Tables:
    """The observations, the server's dictionary, and the truth."""
    name = taps.rows[0].run
    clients, topics = sorted(reads), sorted({topic for topics in reads.values() for topic in topics})
    end, keys = (2 + population.epochs) * EPOCH_US, server_keys()
    truth = [TruthRow(name, "", client, "member", 0, end) for client in clients]
    truth += [TruthRow(name, topic, client, "subscriber", 0, end) for client in clients for topic in reads[client]]
    truth += [
        TruthRow(name, population.written(number), publisher, "publisher", 0, end)
        for number, publisher in enumerate(population.publisher_names())
    ]
    asked = {row.pseudonym: row.epoch for row in taps.rows if row.role == "server:subscribe"}
    made = {row.pseudonym: row.epoch for row in taps.rows if row.role == "server:publish"}
    owners = {pseudonym: client for pseudonym, client in taps.client_of.items() if pseudonym in asked}
    for role, owner, seen in (("owner", owners, asked), ("sender", taps.sender_of, made)):
        truth += [
            TruthRow(name, user, node, role, seen[node] * EPOCH_US, (seen[node] + 1) * EPOCH_US)
            for node, user in owner.items()
        ]
    facts = {
        "lasting": float(population.profile == "paper"),
        "window_us": float(_WINDOW_US),
        "epoch_us": float(EPOCH_US),
    }
    facts |= {"batch_us": float(population.proxy.batch_us)}
    words = [
        WordRow(name, topic, tag)
        for topic in topics
        for tag in compute_known_tags(topic, keys.k_r, proxy_mask(), population.element_keys(topic))
    ]
    shares = {topic: sum(topic in each for each in reads.values()) / len(reads) for topic in topics}
    epochs = range(population.epochs + 1)
    return {
        "server": tables.from_rows(ServerRow, taps.rows),
        "cells": tables.from_rows(CellRow, taps.cells),
        "topology": tables.from_columns("topology", run=name, epoch=0, u=PROXY_NAME, v=clients),
        "presence": tables.from_rows(
            PresenceRow, [PresenceRow(name, epoch, each) for epoch in epochs for each in clients]
        ),
        "facts": tables.from_rows(FactRow, [FactRow(name, fact, value) for fact, value in facts.items()]),
        "popularity": tables.from_rows(PopularityRow, [PopularityRow(name, *share) for share in shares.items()]),
        "words": tables.from_rows(WordRow, words),
        "truth": tables.from_rows(TruthRow, truth),
    }


def _deliveries(server: pa.Table) -> pa.Table:
    return server.filter(pc.equal(server["role"], "proxy:deliver"))


def _share_of_copies(deliveries: pa.Table) -> float:
    """The share of deliveries that came to another client with the same bytes."""
    clients = deliveries.group_by("tag").aggregate([("pseudonym", "count_distinct"), ("pseudonym", "count")])
    several = pc.greater(clients["pseudonym_count_distinct"], 1)
    return float(pc.sum(clients.filter(several)["pseudonym_count"]).as_py() or 0) / max(1, len(deliveries))


def observe_run(population: EpochPopulation, seed: int) -> tuple[RelayTap, dict[Address, tuple[str, ...]]]:
    """A run with taps; and the truth: the topics that each client reads."""
    world = World(seed=seed, epoch_us=EPOCH_US, links=LinkDelays(latency_us=(_LATENCY_US,)))
    proxies = population.proxy_names()
    taps = RelayTap(f"seed {seed}", population.profile, server_keys(), proxies, population.client, _LATENCY_US)
    world.watch(taps)
    duration = (1 + population.epochs) * EPOCH_US - 1
    population.populate(world, duration)
    world.run(duration)
    world.finish()
    wishes = population.draw_subscriptions(seed)
    reads = {client: tuple(dict.fromkeys(map(_topic, wishes[client]))) for client in population.client_names()}
    return taps, reads


def make_population(params: RelayAttacks, epochs: int) -> EpochPopulation:
    plain = EpochPopulation(profile="paper" if params.relay == "paper" else "hardened", proxies=1)
    rate_us, batch_us = _RATE_US if params.constant else 0, plain.proxy.batch_us if params.batch else 0
    return msgspec.structs.replace(
        plain,
        clients=params.nodes,
        publishers=max(1, params.nodes // 3),
        topics=params.topics,
        epochs=epochs,
        notes=_NOTES,
        every_us=_EVERY_US,
        # A lease is asked for in its own epoch, as in the model.
        client=msgspec.structs.replace(plain.client, ahead_epochs=0, lead_epochs=1, rate_us=rate_us),
        proxy=msgspec.structs.replace(plain.proxy, batch_us=batch_us, rate_us=rate_us),
    )


def _topic(interest: Conjunction) -> str:
    return next(each.text for each in interest.constraints if isinstance(each, Equal) and each.attribute == TOPIC)


def _publish_at(world: World, at_us: int, publisher: Address, topic: str, number: int) -> None:
    publication = Publication((Label(topic).pair,), b"note %d" % number)
    world.after(at_us, lambda: world.call(publisher, lambda machine, now: machine.publish(publication, now)))


_ON_WORDS: Final = ("dictionary",)
_ON_BYTES: Final = ("bodies", "proxy-frequency", "filter-intersection")
_LINKS: Final = ("disclosure",)
_EPOCHS_MAX: Final = 1_000
"""More epochs than a run has."""
EPOCH_US: Final = 10_000_000
_SUBSCRIBING_US: Final = 4_000_000
"""Time of an epoch in which clients subscribe and do not publish."""
_NOTES: Final = 15
"""Publications in an epoch."""
_EVERY_US: Final = 330_000
_LATENCY_US: Final = 20_000
_RATE_US: Final = 200_000
"""Interval of records, if they leave at a constant rate."""
_WINDOW_US: Final = 100_000
"""Half of the interval of records: an observer sees in which half each client sends."""
_PHASE_US: Final = 10_000
# Frames to clients at the time at which a publication for them came to the proxy: two batches, and the way to the
# server and back. From the second epoch on, when all clients are there.
_AT_DEPARTURE: Final = """
    SELECT run, epoch, cast(came AS bigint) AS t_us, src, dst, size FROM (
        SELECT c.run, c.epoch, c.src, c.dst, c.size, c.t_us -
               CASE WHEN c.src = '{proxy}' THEN 2 * (cast(f.value AS bigint) + {latency_us}) ELSE 0 END AS came
        FROM {{cells}} AS c JOIN {{facts}} AS f ON c.run = f.run AND f.name = 'batch_us'
    ) AS moved
    WHERE epoch > 0 AND came >= epoch * {epoch_us}
"""
_PUBLISHED_LATER: Final = "SELECT * FROM {server} WHERE role = 'server:publish' AND epoch > 0"
# The log with the times at which the first request of each batch came to the proxy, and short windows.
_AT_ARRIVAL: Final = """
    SELECT s.run, s.epoch, s.t_us - cast(f.value AS bigint) AS t_us, s.role, s.pseudonym, s.tag, s.size
    FROM {{server}} AS s JOIN {{facts}} AS f ON s.run = f.run AND f.name = 'batch_us' WHERE s.role = 'server:{role}'
"""
_SHORT_WINDOWS: Final = """
    SELECT run, name, CASE WHEN name = 'window_us' THEN cast({phase_us} AS double) ELSE value END AS value
    FROM {{facts}}
"""
