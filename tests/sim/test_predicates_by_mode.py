"""Every mode delivers exactly the publications that meet written predicates: words, negative numbers, open ends.

The members of relay, tree, foil and brokers are those of the packaged scenarios. Only their topics and interests are
replaced. The checkers compare deliveries with the definition of a match. The mesh's test is at the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import msgspec
import pytest

from support.hardened_mesh_network import EPOCH_US, HARDENED_CONFIG
from support.mesh_network import SMALL_CONFIG, MeshNetwork
from veilcast.authority.epoch import HOUR_US
from veilcast.authority.keyring import Keyring
from veilcast.authority.topic_record import Profile, TopicRecord
from veilcast.foil.config import AttributeConfig
from veilcast.machine import Address, Publication
from veilcast.sim import scenario
from veilcast.sim.foil.population import FoilPopulation
from veilcast.sim.keyrings import make_keyring
from veilcast.sim.mesh.population import TOPIC
from veilcast.sim.workload import TopicVocabulary
from veilcast.topics import Conjunction, Integers, Label, Reals, Schema, Strings
from veilcast.topics.predicates import parse_predicates

SCHEMA = Schema((Strings("kind"), Integers("floor", -8, 7, 4), Reals("temp", -40, 60, 8, 1)))
WANTED = (
    "[kind,=,bar],[temp,>,-10]",
    "[temp,>=,-20],[temp,<,5.5]",
    "[floor,=,-3]",
    "[kind,=,'7'],[floor,<,0],[temp,<=,-.5]",
    "[kind,=,bar]",
)


def draw(topic: str, rng: Random, number: int) -> Publication:
    floor, temp = rng.choice((-8, -3, 0, 7)), rng.choice((-20, -10, 5.5))
    pairs = (Label(topic).pair, ("kind", rng.choice(("bar", "7"))), ("floor", floor), ("temp", temp))
    return Publication(pairs, b"note %d" % number)


class PredicateVocabulary(TopicVocabulary):
    def draw_subscriptions(
        self, seed: int, subscribers: Iterable[Address], interests: int
    ) -> dict[Address, tuple[Conjunction, ...]]:
        label, count = f"[topic,=,{self.topics[0]}],", len(WANTED)
        return {
            name: tuple(parse_predicates(label + WANTED[(number + each) % count]) for each in range(interests))
            for number, name in enumerate(subscribers)
        }

    def draw_publication(self, rng: Random, number: int) -> Publication:
        return draw(self.topics[0], rng, number)

    def topic_records(self, profile: Profile) -> tuple[TopicRecord, ...]:
        return tuple(TopicRecord(topic, SCHEMA, profile=profile) for topic in self.topics)


@pytest.mark.parametrize(
    "name",
    [f"{mode}-{kind}" for mode in ("relay", "tree", "foil", "brokers") for kind in ("small", "paper")],
)
def test_predicates_select_exactly_what_they_say(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = scenario.load_scenario(name)
    for method in ("draw_subscriptions", "draw_publication", "topic_records"):
        monkeypatch.setattr(TopicVocabulary, method, getattr(PredicateVocabulary, method))
    population = loaded.config.population
    # An end of a range shares its cell with other values, so a client may get some of these, and filters them.
    population = msgspec.structs.replace(population, checks=("once", "intact", "matching", "complete"))
    if isinstance(population, FoilPopulation):
        attributes = {"kind": AttributeConfig(values=("bar", "7"))}
        foil = msgspec.structs.replace(population.foil, attributes=attributes)
        population = msgspec.structs.replace(population, foil=foil)
    config = msgspec.structs.replace(loaded.config, population=population)
    outcome = scenario.run_scenario(scenario.Scenario(name, config), seed=1)
    assert outcome.violations == ()
    assert outcome.deliveries > 0


class PredicateMesh(MeshNetwork):
    """A publisher p, a forwarder f, and subscribers whose names begin with r."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        config = HARDENED_CONFIG if profile == "hardened" else SMALL_CONFIG
        super().__init__("p-f f-r0 f-r1 r1-r2 f-r3 r3-r4", config=config)
        self.run(0.5)

    def keyring(self, name: str, role: str) -> Keyring:
        record = TopicRecord(TOPIC, SCHEMA, cover_share=0, profile=self.profile)
        wanted = {"p": ((TOPIC, "publisher"),), "r": ((TOPIC, "subscriber"),)}.get(name[0], ())
        epoch_us = EPOCH_US if self.profile == "hardened" else HOUR_US
        return make_keyring((record,), epoch_us, wanted, list(self.neighbours).index(name))


@pytest.mark.parametrize("profile", ["hardened", "paper"])
def test_predicates_select_exactly_what_they_say_in_a_mesh(profile: Profile) -> None:
    network, rng = PredicateMesh(profile), Random(1)
    interests = {f"r{number}": parse_predicates(f"[topic,=,{TOPIC}],{text}") for number, text in enumerate(WANTED)}
    for name, interest in interests.items():
        network.node(name).subscribe(interest, network.world.now)
    network.run(70 if profile == "hardened" else 12)
    publications = [draw(TOPIC, rng, number) for number in range(20)]
    for publication in publications:
        network.node("p").publish(publication, network.world.now)
    network.world.run(0)
    network.run(20)
    for name, interest in interests.items():
        wanted = [each.body for each in publications if interest.matches(each)]
        assert sorted(network.delivered(name)) == sorted(wanted)
        assert wanted
