"""The foiler of a topic: generators by name, candidates of whole events, and states that survive a restart."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import numpy as np
import pytest

from veilcast.errors import ConfigError, LocalError, TamperedError
from veilcast.foil.config import AttributeConfig, FoilConfig
from veilcast.foil.foiler import DrawnCandidates, Foiler, pack_states, unpack_states
from veilcast.foil.generators.factory import generator_name, make_generator
from veilcast.foil.topic_names import locate_publication
from veilcast.machine import Publication
from veilcast.topics import Integers, Reals, Schema, Strings

PRICE, LEVEL, KIND = Reals("price", 1, 1000, 10), Integers("level", 0, 63, 6), Strings("kind")
SCHEMA = Schema((PRICE, LEVEL, KIND))
WORDS = AttributeConfig(values=("a", "b", "c", "d", "e"), weights=(5.0, 1.0, 1.0, 1.0, 1.0))
HISTORY = tuple(float(500 + value) for value in np.cumsum(np.random.default_rng(1).standard_normal(200)))


def config(k_p: int = 3, **price: Any) -> FoilConfig:
    return FoilConfig(k_p=k_p, attributes={"price": AttributeConfig(**price), "kind": WORDS})


def event(price: float, level: int = 7, kind: str = "a") -> Publication:
    return Publication((("price", price), ("level", level), ("kind", kind)))


def foiler(told: FoilConfig, state: bytes | None = None, seed: int = 1) -> Foiler:
    return Foiler(told, SCHEMA, random.Random(seed).randbytes, state)


def steps(maker: Foiler, values: list[float]) -> list[DrawnCandidates]:
    drawn = []
    for value in values:
        drawn.append(maker.draw(event(value)))
        maker.commit(drawn[-1])
    return drawn


TOLD: dict[str, dict[str, Any]] = {
    "sign-flip": {},
    "fitted sign-flip": {"history": HISTORY, "relative": True},
    "noise": {"generator": "noise", "deviation": 4.0},
    "window": {"generator": "window"},
    "trajectories": {"generator": "trajectories", "history": HISTORY},
    "student": {"generator": "trajectories", "history": HISTORY, "law": "student"},
    "blocks": {"generator": "trajectories", "history": HISTORY, "law": "blocks", "relative": True},
    "moran": {"public_after": 10, "deviation": 3.0},
    "forecast of moves": {"generator": "forecast", "history": HISTORY},
    "forecast of a level": {
        "generator": "forecast",
        "history": tuple(np.random.default_rng(2).normal(500, 5, 300).tolist()),
    },
    "counter": {"history": tuple((np.arange(200.0) + np.random.default_rng(1).random(200)).tolist())},
    "jumps": {"history": tuple(np.repeat(HISTORY, 3).tolist())},
    "buckets of a history": {"generator": "bucketing", "history": HISTORY, "buckets": "hard", "cache": 2},
    "bucketing": {"generator": "bucketing", "values": (500.0, 501.0, 502.0, 510.0, 513.0, 520.0)},
    "entropy": {"generator": "entropy", "values": (520.0, 500.0, 502.0, 510.0, 513.0, 501.0)},
}
VALUES = [500.0, 502.0, 501.0, 510.0, 510.0, 513.0, 520.0]


@pytest.mark.parametrize("name", TOLD)
def test_every_generator_puts_the_truth_first_and_fakes_within_the_domain(name: str) -> None:
    for value, drawn in zip(VALUES, steps(foiler(config(**TOLD[name])), VALUES), strict=True):
        assert len(drawn.places) == 4
        assert drawn.places[0] == locate_publication(event(value), SCHEMA)
        for price, level, kind in drawn.places:
            assert isinstance(price, int)
            assert isinstance(level, int)
            assert 0 <= price < 1024
            assert 0 <= level < 64
            assert kind in WORDS.values


@pytest.mark.parametrize("name", TOLD)
def test_a_restored_foiler_draws_the_same_fakes(name: str) -> None:
    told = config(**TOLD[name])
    maker = foiler(told)
    last = steps(maker, VALUES)[-1]
    other = Foiler(told, SCHEMA, lambda size: bytes(size), maker.pack_state(last))
    maker._random._entropy = lambda size: bytes(size)
    for value in (513.0, 502.0):
        one, two = maker.draw(event(value)), other.draw(event(value))
        assert one.places == two.places
        maker.commit(one)
        other.commit(two)


def test_under_other_settings_the_fakes_start_afresh() -> None:
    maker = foiler(config())
    packed = maker.pack_state(steps(maker, VALUES)[-1])
    anew = foiler(config(k_p=5), packed).draw(event(500.0))
    assert len(anew.places) == 6
    assert len({price for price, _, _ in anew.places}) == 1, "a public start"


@pytest.mark.parametrize("damage", [b"", b"\xff", b"\x91\xa1x"])
def test_a_damaged_state_is_refused(damage: bytes) -> None:
    maker = foiler(config())
    packed = maker.pack_state(steps(maker, VALUES)[-1])
    with pytest.raises(TamperedError):
        foiler(config(), packed[:16] + damage)


@pytest.mark.parametrize("wrong", [object(), "text", 1.5])
def test_only_states_of_generators_are_packed(wrong: object) -> None:
    with pytest.raises(TypeError):
        pack_states((wrong,))


def test_an_array_of_objects_is_refused() -> None:
    with pytest.raises(TamperedError):
        unpack_states(msgspec.msgpack.encode([{"array": "|O", "shape": [1], "bytes": bytes(8)}]))


def test_a_fake_moves_in_all_attributes_at_once() -> None:
    """While the string does not change, each fake keeps its own: string and path are paired the same way at each
    step."""
    maker = foiler(config())
    pairs = [drawn.places for drawn in steps(maker, [float(500 + 7 * step) for step in range(30)])]
    words = [tuple(kind for _, _, kind in places) for places in pairs]
    assert len(set(words)) == 1
    assert len(set(words[0])) > 1


def test_a_missing_attribute_is_missing_in_every_candidate_and_moves_nothing() -> None:
    maker = foiler(config())
    steps(maker, VALUES)
    drawn = maker.draw(Publication((("kind", "b"),)))
    assert {place[:2] for place in drawn.places} == {(None, None)}
    assert drawn.states[0] is maker._states[0]


def test_undeclared_strings_and_topics_without_attributes_still_have_fakes() -> None:
    drawn = Foiler(FoilConfig(k_p=2), Schema((KIND,)), random.Random(1).randbytes).draw(Publication((("kind", "x"),)))
    assert drawn.places == (("x",),) * 3
    bare = Foiler(FoilConfig(k_p=2), Schema(), random.Random(1).randbytes)
    assert bare.draw(Publication(())).places == ((),) * 3
    assert not bare.foiled_attributes
    assert "kind" in foiler(config()).foiled_attributes


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"generator": "trajectories", "law": "student"}, "history"),
        ({"generator": "moran"}, "public_after"),
        ({"generator": "bucketing"}, "too many"),
        ({"generator": "window", "relative": True, "history": HISTORY}, "absolute"),
        ({"generator": "bucketing", "values": (0.5, 2.0)}, "domain"),
        ({"generator": "bucketing", "values": ("a", "b")}, "domain"),
    ],
)
def test_invalid_generator_settings_are_refused_by_attribute_name(told: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=rf"foil\.attributes\.price.*{words}"):
        make_generator(PRICE, config(**told))


def test_relative_steps_need_positive_values_and_strings_need_string_values() -> None:
    with pytest.raises(ConfigError, match="above"):
        make_generator(LEVEL, FoilConfig(attributes={"level": AttributeConfig(relative=True)}))
    with pytest.raises(ConfigError, match="strings"):
        make_generator(KIND, FoilConfig(attributes={"kind": AttributeConfig(values=(1.0, 2.0))}))


def test_each_profile_has_its_default_generators() -> None:
    assert generator_name(AttributeConfig(), FoilConfig(profile="paper")) == "noise"
    assert generator_name(AttributeConfig(), FoilConfig()) == "sign-flip"
    assert generator_name(AttributeConfig(public_after=5), FoilConfig()) == "moran"
    assert generator_name(AttributeConfig(generator="window"), FoilConfig(generator="noise")) == "window"


def test_an_undeclared_string_is_refused() -> None:
    with pytest.raises(LocalError, match="declared values"):
        foiler(config()).draw(event(500.0, kind="z"))
