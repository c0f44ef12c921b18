"""Dependent attributes in a configuration: fakes keep the dependence that the truth has."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import numpy as np
import pytest

from veilcast.errors import ConfigError, LocalError
from veilcast.foil.config import AttributeConfig, FoilConfig
from veilcast.foil.foiler import Foiler
from veilcast.machine import Publication
from veilcast.topics import Integers, Reals, Schema, Strings

PRICE, VOLUME = Reals("price", 0, 1000, 16), Reals("volume", 0, 4000, 16)
NUMBERS = Schema((VOLUME, PRICE))
WORDS = Schema((Strings("colour"), Strings("fruit")))
FRUIT = AttributeConfig(values=("apple", "plum", "lemon"))
COLOUR = AttributeConfig(
    values=("red", "blue", "yellow"), primary="fruit", given=((0.8, 0.1, 0.1), (0.1, 0.9, 0.0), (0.0, 0.1, 0.9))
)
LINE = AttributeConfig(primary="price", line=(2.0, 100.0), deviation=20.0)
WALK = AttributeConfig(generator="trajectories", deviation=10.0)


def made(schema: Schema, *, k_p: Any = 9, profile: Any = "hardened", **attributes: AttributeConfig) -> Foiler:
    return Foiler(FoilConfig(profile=profile, k_p=k_p, attributes=attributes), schema, random.Random(1).randbytes)


def ranks(schema: Schema, many: int, **attributes: AttributeConfig) -> np.ndarray[Any, Any]:
    """Rank of the truth among its candidates by distance from the line, for an adversary that knows the line."""
    maker, rng = made(schema, **attributes), np.random.default_rng(2)
    price, found = 500.0, []
    for _ in range(many):
        price = float(np.clip(price + 10 * rng.standard_normal(), 100, 900))
        volume = 2 * price + 100 + 20 * rng.standard_normal()
        drawn = maker.draw(Publication((("price", price), ("volume", volume))))
        maker.commit(drawn)
        cells = np.array(drawn.places, dtype=np.float64)
        off = np.abs(cells[:, 0] / 65536 * 4000 - 2 * cells[:, 1] / 65536 * 1000 - 100)
        found.append(int((off < off[0]).sum()))
    return np.array(found)


def test_known_dependence_reveals_the_truth_only_if_fakes_ignore_it() -> None:
    apart = ranks(NUMBERS, 300, price=WALK, volume=WALK)
    assert (apart == 0).mean() > 0.4, "each attribute by itself: the truth is the one that fits"
    together = ranks(NUMBERS, 300, price=WALK, volume=LINE)
    assert (together == 0).mean() == pytest.approx(0.1, abs=0.06)
    assert together.mean() == pytest.approx(4.5, abs=0.6)


def test_a_line_is_fitted_to_both_histories() -> None:
    rng = np.random.default_rng(3)
    prices = rng.uniform(100, 900, 400)
    volumes = 2 * prices + 100 + 20 * rng.standard_normal(400)
    price = AttributeConfig(generator="trajectories", deviation=10.0, history=tuple(prices.tolist()))
    fitted = ranks(NUMBERS, 300, price=price, volume=AttributeConfig(primary="price", history=tuple(volumes.tolist())))
    assert fitted.mean() == pytest.approx(4.5, abs=0.8)


def test_the_papers_fakes_lie_on_the_line_and_the_truth_does_not() -> None:
    maker = made(NUMBERS, profile="paper", price=WALK, volume=LINE)
    drawn = maker.draw(Publication((("price", 500.0), ("volume", 1150.0))))
    cells = np.array(drawn.places, dtype=np.float64)
    off = np.abs(cells[:, 0] / 65536 * 4000 - 2 * cells[:, 1] / 65536 * 1000 - 100)
    assert off[0] > 40
    assert off[1:].max() < 1


def test_strings_depend_on_strings() -> None:
    maker, pairs = made(WORDS, fruit=FRUIT, colour=COLOUR, k_p=2), set()
    for _ in range(60):
        drawn = maker.draw(Publication((("fruit", "apple"), ("colour", "red"))))
        maker.commit(drawn)
        assert drawn.places[0] == ("red", "apple")
        pairs |= set(drawn.places)
    assert ("yellow", "plum") not in pairs
    assert ("red", "lemon") not in pairs
    assert {("blue", "plum"), ("yellow", "lemon")} <= pairs
    with pytest.raises(LocalError, match="probability 0"):
        maker.draw(Publication((("fruit", "lemon"), ("colour", "red"))))


def test_an_event_may_lack_a_dependent_attribute_but_not_its_primary() -> None:
    maker = made(NUMBERS, price=WALK, volume=LINE)
    drawn = maker.draw(Publication((("price", 500.0),)))
    assert all(place[0] is None for place in drawn.places)
    with pytest.raises(LocalError, match="'volume' depends on 'price', and the event has none"):
        maker.draw(Publication((("volume", 500.0),)))


def test_states_are_restored_with_dependent_attributes() -> None:
    told = FoilConfig(k_p=3, attributes={"price": WALK, "volume": LINE})
    first = Foiler(told, NUMBERS, random.Random(1).randbytes)
    drawn = first.draw(Publication((("price", 500.0), ("volume", 1100.0))))
    again = Foiler(told, NUMBERS, random.Random(2).randbytes, first.pack_state(drawn))
    assert again.foiled_attributes == {"price", "volume"}
    again.draw(Publication((("price", 501.0), ("volume", 1100.0))))


WRONG: dict[str, tuple[Schema, dict[str, AttributeConfig]]] = {
    "volume: .* which its topic does not declare": (NUMBERS, {"volume": AttributeConfig(primary="prise", line=(1, 0))}),
    "volume: .* is itself a dependent attribute": (
        NUMBERS,
        {"volume": LINE, "price": AttributeConfig(primary="volume", line=(1.0, 0.0))},
    ),
    "volume: .* needs the deviation": (NUMBERS, {"volume": AttributeConfig(primary="price", line=(1.0, 0.0))}),
    "volume: .* give a line, or histories of equal length": (
        NUMBERS,
        {"volume": AttributeConfig(primary="price", history=(1, 2, 3))},
    ),
    "volume: .* a number can depend on a number": (Schema((VOLUME, Strings("price"))), {"volume": LINE}),
    "colour: .* both need their values": (WORDS, {"colour": COLOUR}),
    "colour: .* needs in given": (WORDS, {"fruit": AttributeConfig(values=("apple", "plum")), "colour": COLOUR}),
    "volume: .* never changes": (
        NUMBERS,
        {"price": AttributeConfig(history=(1, 1, 1)), "volume": AttributeConfig(primary="price", history=(1, 2, 3))},
    ),
}


@pytest.mark.parametrize("told", WRONG)
def test_an_error_names_the_attribute(told: str) -> None:
    schema, attributes = WRONG[told]
    with pytest.raises(ConfigError, match=f"foil.attributes.{told}"):
        made(schema, **attributes)


def test_the_former_name_of_the_primary_is_still_read() -> None:
    former = msgspec.structs.replace(LINE, primary="", master="price")
    assert former.depends_on == LINE.depends_on == "price"
    with pytest.raises(ConfigError, match="differ"):
        msgspec.structs.replace(LINE, master="volume")


@pytest.mark.parametrize("name", ["primary", "master"])
def test_a_state_stored_under_the_former_name_is_restored(name: str) -> None:
    """The stored fingerprint of the settings is the same under both names: otherwise the fakes would start afresh."""
    volume = msgspec.structs.replace(LINE, **{"primary": "", name: "price"})
    maker = made(NUMBERS, price=WALK, volume=volume)
    packed = maker.pack_state(maker.draw(Publication((("price", 500.0), ("volume", 1100.0)))))
    assert packed[:16].hex() == "f5b39378bee955a2fc36a7663c754f94"


def test_a_line_without_a_primary_is_refused() -> None:
    with pytest.raises(ConfigError, match="need a primary attribute"):
        AttributeConfig(line=(1.0, 2.0))


def test_integers_stay_integers() -> None:
    schema = Schema((Integers("count", 0, 63, 6), PRICE))
    maker = made(schema, price=WALK, count=AttributeConfig(primary="price", line=(0.05, 0.0), deviation=3.0))
    drawn = maker.draw(Publication((("price", 500.0), ("count", 25))))
    assert all(isinstance(place[0], int) and 0 <= place[0] < 64 for place in drawn.places)
