"""Runs of a relay on the real machines, in the simulator: what their server and their proxy really get to see.

A few clients, one proxy, real keys, as many short epochs as the last step says. The attackers that need neither many
users nor many epochs are held against it: the dictionary that the server's own keys make, bodies that go down as they
went up, and subjects by which the proxy could tell that two clients want the same. What is measured has the kernels'
names.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from veilcast.authority.subjects import named
from veilcast.errors import ConfigError
from veilcast.lab.sweep.params import Measure, Params
from veilcast.lab.sweep.relay_taps import Taps
from veilcast.machine import Address
from veilcast.observe import Server
from veilcast.relay.subjects import tag, upload
from veilcast.sim.relay import RelayPopulation, server_keys
from veilcast.sim.world import World
from veilcast.topics import TOPIC, Conjunction, Equal
from veilcast.topics.elements import string_element


def run(params: Params, seed: int) -> list[Measure]:
    params.heed("runs of a relay's machines", "relay", "batch", "constant", "queries", "topics", "churn")
    if params.constant or params.churn:
        raise ConfigError("a relay's machines are run without churn, and not at a constant rate")
    step = params.steps[-1]
    population = _population(params, int(step))
    taps, reads = watched(population, seed)
    return [
        Measure("dictionary", "named_readers", step, _by_dictionary(population, taps, reads)),
        Measure("bodies", "linked", step, linked(taps.rows)),
        Measure("proxy-frequency", "repeats", step, repeats(taps.rows)),
        Measure("", "delivered", step, float(sum(row.role == "proxy:deliver" for row in taps.rows))),
    ]


def watched(population: RelayPopulation, seed: int) -> tuple[Taps, dict[Address, tuple[str, ...]]]:
    """A run with taps on it; and the truth: which topics each client reads."""
    world = World(seed=seed, epoch_us=_EPOCH_US)
    taps = Taps(f"seed {seed}", population.profile, server_keys(), population.proxy_names())
    world.watch(taps)
    duration = population.first_us + population.notes * population.every_us + _AFTER_US
    population.settle(world, duration)
    world.run(duration)
    world.finish()
    wishes = population.wishes(seed)
    reads = {client: tuple(dict.fromkeys(map(_topic, wishes[client]))) for client in population.client_names()}
    return taps, reads


def linked(rows: list[Server]) -> float:
    """The share of deliveries whose body somebody was seen to send."""
    sent = {row.tag for row in rows if row.role == "proxy:send"}
    got = [row.tag in sent for row in rows if row.role == "proxy:deliver"]
    return sum(got) / len(got) if got else 0.0


def repeats(rows: list[Server]) -> float:
    """The share of subjects at the proxy that came from several clients."""
    asked = {(row.pseudonym, row.tag) for row in rows if row.role == "proxy:subscribe"}
    clients = Counter(each for _, each in asked)
    return sum(clients[each] > 1 for _, each in asked) / len(asked)


def _population(params: Params, epochs: int) -> RelayPopulation:
    plain = RelayPopulation(profile="paper" if params.relay == "paper" else "hardened", proxies=1)
    batch_us = plain.proxy.batch_us if params.batch else 0
    return msgspec.structs.replace(
        plain,
        clients=params.nodes,
        publishers=max(1, params.nodes // 3),
        topics=params.topics,
        notes=epochs * _NOTES,
        every_us=_EPOCH_US // _NOTES,
        proxy=msgspec.structs.replace(plain.proxy, batch_us=batch_us),
    )


def _by_dictionary(population: RelayPopulation, taps: Taps, reads: dict[Address, tuple[str, ...]]) -> float:
    """The share of subscriptions whose topic the server names by computing the tag of the topic's label."""
    held: dict[Address, set[bytes]] = {}
    for row in taps.rows:
        if row.role == "server:subscribe":
            held.setdefault(taps.owner[row.pseudonym], set()).add(row.tag)
    key = server_keys().k_r
    words = {
        topic: tag(upload(named(topic, string_element(TOPIC, topic)), key))
        for topic in dict.fromkeys(topic for topics in reads.values() for topic in topics)
    }
    right = [words[topic] in held[client] for client, topics in reads.items() for topic in topics]
    return sum(right) / len(right)


def _topic(interest: Conjunction) -> str:
    return next(each.text for each in interest.constraints if isinstance(each, Equal) and each.attribute == TOPIC)


_EPOCH_US: Final = 10_000_000
_NOTES: Final = 10
"""In an epoch."""
_AFTER_US: Final = 5_000_000
"""In which all that was published arrives."""
