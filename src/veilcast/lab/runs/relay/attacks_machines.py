"""Runs of a relay on the real machines, in the simulator: what their server and their proxy really see.

A few clients, one proxy, real keys, and as many short epochs as the last step says. It runs the attackers that need
neither many users nor many epochs: the dictionary that the server's own keys allow, bodies that leave as they arrived,
and subjects by which the proxy could see that two clients want the same. Measures have the names of the models'.

`RelayTap` records the rows of the table `server` that the server and the proxy could write. It uses nothing that they
do not know. The server's tags are computed with its own keys from the subjects that reach it. The proxy has on its disk
the transformation keys of its clients, and the owners of pseudonyms. In the paper's relay it computes tags with these
keys; in the hardened relay a subject is an opaque string to it. The proxy's record of pseudonyms is also the truth that
the server's attackers are compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from veilcast.authority.topic_record import Profile
from veilcast.core.match_elements import qualify_element
from veilcast.crypto.group import Point, Scalar, multiply_each
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import ConfigError, TamperedError
from veilcast.lab import tables
from veilcast.lab.attack.server.server_job import PROXY_NAME, guess_from_server
from veilcast.lab.attack.table_engine import AnyTable
from veilcast.lab.experiment.params import Measure
from veilcast.lab.experiment.recorder import NO_RECORDER, TableRecorder, record_tables
from veilcast.lab.experiment.relay_params import RelayAttacks
from veilcast.lab.measure.relay_guesses import (
    measure_linked_deliveries,
    measure_named_subscriptions,
    measure_repeated_subscriptions,
)
from veilcast.machine import Address, Event, Frame, Record
from veilcast.observe import FactRow, ServerRow, TruthRow, WordRow
from veilcast.relay.hardened import HardenedServerProfile
from veilcast.relay.paper import PaperServerProfile
from veilcast.relay.profile import ServerProfile
from veilcast.relay.roster import EnrolledClient, LeasePseudonym
from veilcast.relay.subject_tags import blind_element, move_element, tag_of
from veilcast.relay.transformation_key import ServerKeys
from veilcast.sim.checkers import Checker
from veilcast.sim.relay.population import SERVER, RelayPopulation, server_keys
from veilcast.sim.world import World
from veilcast.topics import TOPIC, Conjunction, Equal
from veilcast.topics.elements import string_element
from veilcast.wire import decode
from veilcast.wire.relay import Lease, RelayDelivery, Subjects, Submit

_Entry: TypeAlias = EnrolledClient | LeasePseudonym


class RelayTap(Checker):
    """The tap of one run, in a world with these proxies."""

    def __init__(self, run: str, profile: Profile, keys: ServerKeys, proxies: Sequence[Address]) -> None:
        self.rows: list[ServerRow] = []
        self.client_of: dict[str, Address] = {}
        """The client of each pseudonym."""
        self._run, self._profile, self._proxies = run, profile, tuple(proxies)
        # It only reads, and needs no randomness.
        self._server: ServerProfile = (
            PaperServerProfile(keys, bytes) if profile == "paper" else HardenedServerProfile(keys, bytes, multiply_each)
        )
        self._transformations: dict[tuple[Address, Address], Scalar] = {}
        """Keys by proxy and client; a client has another key with each proxy."""

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if address not in self._proxies or not isinstance(event, Record):
            return
        entry = _DECODER.decode(event.data)
        if isinstance(entry, EnrolledClient):
            self._transformations[address, Address(entry.client)] = Scalar(entry.transformation)
        if entry.pseudonym:
            self.client_of[entry.pseudonym.hex()] = Address(entry.client)

    def on_frames(self, world: World, address: Address, frames: Sequence[Frame]) -> None:
        for frame in frames:
            at_server = SERVER in (address, frame.destination)
            message, now = decode(frame.data), world.clock(SERVER)
            match message:
                case Lease() if at_server:
                    self._note(world, now, "server:subscribe", message.name.hex(), self._tags(message))
                case Submit() if at_server:
                    self._note(world, now, "server:publish", f"{address}/{message.number}", self._tags(message))
                case RelayDelivery() if at_server:
                    for name in message.names:
                        self._note(world, now, "server:deliver", name.hex(), [message.sealed])
                case Lease():
                    seen = self._moved(frame.destination, address, message.subjects)
                    self._note(world, now, "proxy:subscribe", address, seen)
                case Submit():
                    seen = self._moved(frame.destination, address, message.subjects)
                    self._note(world, now, "proxy:publish", address, seen)
                    self._note(world, now, "proxy:send", address, [message.sealed])
                case RelayDelivery():
                    self._note(world, now, "proxy:deliver", frame.destination, [message.sealed])
                case _:
                    pass

    def _note(self, world: World, now: int, role: str, who: str, tags: Sequence[bytes]) -> None:
        epoch = now // world.epoch_us
        self.rows += [ServerRow(self._run, epoch, now, role, who, each, len(each)) for each in tags]

    def _tags(self, message: Lease | Submit) -> list[bytes]:
        """Tags as the server has them."""
        bond = (
            self._server.open_lease(message).bond
            if isinstance(message, Lease)
            else self._server.open_submission(message).bond
        )
        return [each for group in self._server.compute_tags(message.subjects, bond) for each in group]

    def _moved(self, proxy: Address, client: Address, subjects: Subjects) -> list[bytes]:
        """Tags as the proxy has them."""
        flat = [subject for group in subjects for subject in group]
        if self._profile == "hardened":
            return flat
        return [tag_of(move_element(Point(subject), self._transformations[proxy, client])) for subject in flat]


_DECODER: Final = MsgpackDecoder(_Entry, TamperedError, "not a record of a proxy")


def run(
    params: RelayAttacks, seed: int, data: Path | None = None, recorder: TableRecorder = NO_RECORDER
) -> list[Measure]:
    if params.constant or params.churn:
        raise ConfigError("a relay's machines are run without churn, and not at a constant rate")
    step = params.steps[-1]
    population = _population(params, int(step))
    taps, reads = observe_run(population, seed)
    observed = tabulate(taps, reads)
    guesses = attack_tables(observed, params, (), data)
    assert isinstance(guesses, pa.Table)
    record_tables(recorder, {**observed, "guesses": guesses})
    delivered = float(sum(row.role == "proxy:deliver" for row in taps.rows))
    found = measure_guesses(guesses, observed["truth"], params, (), seed)
    return [*found, Measure("", "delivered", step, delivered)]


def attack_tables(
    observed: Mapping[str, AnyTable], _: RelayAttacks, names: Collection[str], _data: Path | None
) -> AnyTable:
    """The guesses of these attackers, or of the three, after each epoch: the server's dictionary is for the pseudonyms
    of the last one."""
    return guess_from_server(observed, names or _ATTACKS, range(1, _EPOCHS_MAX))


def measure_guesses(
    guesses: pa.Table, truth: pa.Table, params: RelayAttacks, names: Collection[str], seed: int
) -> list[Measure]:
    """The measures of these three attackers, as far as they have guessed."""
    measures: dict[str, tuple[str, Callable[[pa.Table], float]]] = {
        "dictionary": ("named_readers", lambda rows: measure_named_subscriptions(rows, truth)),
        "bodies": ("linked", measure_linked_deliveries),
        "proxy-frequency": ("repeats", measure_repeated_subscriptions),
    }
    found = []
    for attack, (metric, measure) in measures.items():
        own = guesses.filter(pc.equal(guesses["attack"], attack))
        if len(own) and (not names or attack in names):
            found.append(Measure(attack, metric, params.steps[-1], measure(own)))
    return found


def tabulate(taps: RelayTap, reads: Mapping[Address, Sequence[str]]) -> dict[str, pa.Table]:
    """The observations, the tags that the server's own key gives for the words, and the truth."""
    name = taps.rows[0].run
    clients, topics = sorted(reads), sorted({topic for topics in reads.values() for topic in topics})
    wanted = [(topic, client) for client in clients for topic in reads[client]]
    end = 1 + max(row.t_us for row in taps.rows)
    truth = [TruthRow(name, topic, client, "subscriber", 0, end) for topic, client in wanted]
    truth += [TruthRow(name, client, pseudonym, "owner", 0, end) for pseudonym, client in taps.client_of.items()]
    words = [WordRow(name, topic, _compute_tag(topic)) for topic in topics]
    return {
        "server": tables.from_rows(ServerRow, taps.rows),
        "topology": tables.from_columns("topology", run=name, epoch=0, u=PROXY_NAME, v=clients),
        "facts": tables.from_rows(FactRow, [FactRow(name, "lasting", 1.0)]),
        "words": tables.from_rows(WordRow, words),
        "truth": tables.from_rows(TruthRow, truth),
    }


def observe_run(population: RelayPopulation, seed: int) -> tuple[RelayTap, dict[Address, tuple[str, ...]]]:
    """A run with taps; and the truth: the topics that each client reads."""
    world = World(seed=seed, epoch_us=_EPOCH_US)
    taps = RelayTap(f"seed {seed}", population.profile, server_keys(), population.proxy_names())
    world.watch(taps)
    duration = population.first_us + population.notes * population.every_us + _AFTER_US
    population.populate(world, duration)
    world.run(duration)
    world.finish()
    wishes = population.draw_subscriptions(seed)
    reads = {client: tuple(dict.fromkeys(map(_topic, wishes[client]))) for client in population.client_names()}
    return taps, reads


def _population(params: RelayAttacks, epochs: int) -> RelayPopulation:
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


def _compute_tag(topic: str) -> bytes:
    return tag_of(blind_element(qualify_element(topic, string_element(TOPIC, topic)), server_keys().k_r))


def _topic(interest: Conjunction) -> str:
    return next(each.text for each in interest.constraints if isinstance(each, Equal) and each.attribute == TOPIC)


_ATTACKS: Final = ("dictionary", "bodies", "proxy-frequency")
_EPOCHS_MAX: Final = 1_000
"""More epochs than a run has."""
_EPOCH_US: Final = 10_000_000
_NOTES: Final = 10
"""Publications in an epoch."""
_AFTER_US: Final = 5_000_000
"""Time in which all publications arrive."""
