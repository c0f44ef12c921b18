"""Networks of P4's brokers whose wires are recorded: the real machines, in the simulator.

An observer of all wires sees frames with their sizes, as on TLS streams without padding. Members publish in turn, at a
constant rate. The observer also knows the publications as subscribers receive them, with their topics, as an observer
does that subscribes to every topic. Members' names are permuted, so that no name tells a role.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from veilcast.brokers.config import BrokerClientConfig, BrokerConfig
from veilcast.lab import tables
from veilcast.machine import Address, Delivered, Event
from veilcast.observe import CellRow, ObservationRow, PresenceRow, TopologyRow
from veilcast.sim.brokers.population import BrokersPopulation
from veilcast.sim.links import LinkDelays
from veilcast.sim.rng import derive_rng
from veilcast.sim.world import World
from veilcast.topics import TOPIC, Equal


class BrokerWires(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Parameters of a run."""

    profile: Literal["paper", "hardened"]
    nodes: int = 2
    """Number of virtual nodes."""
    replicas: int = 3
    publishers: int = 4
    readers: int = 8
    topics: int = 3
    interests: int = 1
    """Most subscriptions of a subscriber."""
    publications: int = 20
    every_us: int = 500_000
    """Time between two publications."""
    latency_us: int = 20_000
    """Longest latency of a link."""


def observe_wires(params: BrokerWires, run: str, seed: int) -> tuple[dict[str, pa.Table], pa.Table]:
    """The observations of a run, and its table `truth`."""
    people = BrokersPopulation(
        nodes=params.nodes,
        replicas=params.replicas,
        shape="random",
        publishers=params.publishers,
        readers=params.readers,
        topics=params.topics,
        interests=params.interests,
        bits=0,
        notes=params.publications,
        every_us=params.every_us,
        broker=BrokerConfig(params.profile),
        client=BrokerClientConfig(params.profile),
        checks=(),
    )
    wires, lasts_us = _Wires(), people.first_us + params.publications * params.every_us + _AFTER_US
    links = LinkDelays(latency_us=(_LATENCY_US, params.latency_us))
    world = World(seed=seed, links=links, recorder=wires, run=run, on_event=wires.hear)
    people.populate(world, lasts_us)
    world.run(lasts_us)
    first_us = world.start + people.first_us
    published = [(topic, first_us + number * params.every_us) for number, topic in sorted(wires.topics.items())]
    facts = {
        "begins_us": float(world.start),
        "epoch_us": float(world.epoch_us),
        "heartbeat_us": float(params.every_us),
        "subscriber_share": params.readers / len(people.client_names()),
    }
    names = _name_members(people, seed)
    found = {
        name: _rename(tables.from_rows(row, [each for each in wires.rows if isinstance(each, row)]), names)
        for name, row in (("cells", CellRow), ("topology", TopologyRow), ("presence", PresenceRow))
    }
    # A link has its ends in the order of their names.
    low, high = (pc.min_element_wise, pc.max_element_wise)
    u, v = (found["topology"][name] for name in ("u", "v"))
    found["topology"] = found["topology"].set_column(2, "u", low(u, v)).set_column(3, "v", high(u, v))
    topics, times = zip(*published, strict=True) if published else ((), ())
    found["published"] = tables.from_columns("published", run=run, topic=list(topics), t_us=list(times))
    found["facts"] = tables.from_columns("facts", run=run, name=list(facts), value=list(facts.values()))
    return found, _truth(people, run, seed, world.start, world.start + lasts_us)


def list_members(params: BrokerWires) -> list[str]:
    """The names of all members, who are clients of brokers."""
    return [_name(number) for number in range(params.publishers + params.readers)]


def _truth(people: BrokersPopulation, run: str, seed: int, since_us: int, until_us: int) -> pa.Table:
    names = _name_members(people, seed)
    held = [("", names[each], "publisher") for each in people.publisher_names()]
    for member, interests in people.draw_subscriptions(seed).items():
        wanted = {
            each.text
            for interest in interests
            for each in interest.constraints
            if isinstance(each, Equal) and each.attribute == TOPIC
        }
        held += [(topic, names[member], "subscriber") for topic in sorted(wanted)]
    topic, node, role = zip(*held, strict=True)
    columns = {"topic": list(topic), "node": list(node), "role": list(role)}
    return tables.from_columns("truth", run=run, **columns, since_us=since_us, until_us=until_us)


class _Wires:
    """Records what the observer sees, and the topics of delivered publications by their numbers."""

    def __init__(self) -> None:
        self.rows: list[ObservationRow] = []
        self.topics: dict[int, str] = {}

    def append(self, row: ObservationRow) -> None:
        self.rows.append(row)

    def hear(self, _: Address, event: Event, __: int) -> None:
        if isinstance(event, Delivered):
            publication = event.note.publication
            topic = next(str(value) for name, value in publication.pairs if name == TOPIC)
            self.topics[int(publication.body.split()[-1])] = topic


def _name_members(people: BrokersPopulation, seed: int) -> dict[Address, str]:
    numbers = list(range(len(people.client_names())))
    derive_rng(seed, "names of members").shuffle(numbers)
    return {address: _name(number) for address, number in zip(people.client_names(), numbers, strict=True)}


def _rename(table: pa.Table, names: dict[Address, str]) -> pa.Table:
    old, new = pa.array([str(name) for name in names]), pa.array(list(names.values()))
    for place, column in enumerate(table.column_names):
        if column in _ENDS:
            renamed = new.take(pc.index_in(table[column].combine_chunks(), old))
            table = table.set_column(place, column, pc.coalesce(renamed, table[column].combine_chunks()))
    return table


def _name(number: int) -> str:
    return f"m{number:02d}"


_ENDS: Final = ("src", "dst", "u", "v", "node")
_LATENCY_US: Final = 1_000
_AFTER_US: Final = 5_000_000
"""Time in which all publications arrive."""
