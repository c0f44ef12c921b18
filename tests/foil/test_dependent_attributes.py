"""A master attribute in a configuration: what goes together in truth goes together in fakes."""

from __future__ import annotations

import random
from typing import Any

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
    values=("red", "blue", "yellow"), master="fruit", given=((0.8, 0.1, 0.1), (0.1, 0.9, 0.0), (0.0, 0.1, 0.9))
)
LINE = AttributeConfig(master="price", line=(2.0, 100.0), deviation=20.0)
WALK = AttributeConfig(generator="trajectories", deviation=10.0)


def made(schema: Schema, *, k_p: Any = 9, profile: Any = "hardened", **attributes: AttributeConfig) -> Foiler:
    return Foiler(FoilConfig(profile=profile, k_p=k_p, attributes=attributes), schema, random.Random(1).randbytes)


def ranks(schema: Schema, many: int, **attributes: AttributeConfig) -> np.ndarray[Any, Any]:
    """Of the truth among its candidates, by how far each is from the line: an attacker who knows that."""
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


def test_who_knows_what_goes_together_finds_the_truth_only_where_fakes_do_not() -> None:
    apart = ranks(NUMBERS, 300, price=WALK, volume=WALK)
    assert (apart == 0).mean() > 0.4, "each attribute by itself: the truth is the one that fits"
    together = ranks(NUMBERS, 300, price=WALK, volume=LINE)
    assert (together == 0).mean() == pytest.approx(0.1, abs=0.06)
    assert together.mean() == pytest.approx(4.5, abs=0.6)


def test_a_line_is_fitted_to_the_histories_of_both() -> None:
    rng = np.random.default_rng(3)
    prices = rng.uniform(100, 900, 400)
    volumes = 2 * prices + 100 + 20 * rng.standard_normal(400)
    price = AttributeConfig(generator="trajectories", deviation=10.0, history=tuple(prices.tolist()))
    fitted = ranks(NUMBERS, 300, price=price, volume=AttributeConfig(master="price", history=tuple(volumes.tolist())))
    assert fitted.mean() == pytest.approx(4.5, abs=0.8)


def test_the_papers_fakes_are_on_the_line_and_the_truth_is_not() -> None:
    maker = made(NUMBERS, profile="paper", price=WALK, volume=LINE)
    drawn = maker.draw(Publication((("price", 500.0), ("volume", 1150.0))))
    cells = np.array(drawn.places, dtype=np.float64)
    off = np.abs(cells[:, 0] / 65536 * 4000 - 2 * cells[:, 1] / 65536 * 1000 - 100)
    assert off[0] > 40
    assert off[1:].max() < 1


def test_words_follow_words() -> None:
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


def test_an_event_may_lack_a_slave_and_not_its_master() -> None:
    maker = made(NUMBERS, price=WALK, volume=LINE)
    drawn = maker.draw(Publication((("price", 500.0),)))
    assert all(place[0] is None for place in drawn.places)
    with pytest.raises(LocalError, match="'volume' depends on 'price', and the event has none"):
        maker.draw(Publication((("volume", 500.0),)))


def test_states_come_back_where_there_are_slaves() -> None:
    told = FoilConfig(k_p=3, attributes={"price": WALK, "volume": LINE})
    first = Foiler(told, NUMBERS, random.Random(1).randbytes)
    drawn = first.draw(Publication((("price", 500.0), ("volume", 1100.0))))
    again = Foiler(told, NUMBERS, random.Random(2).randbytes, first.pack_state(drawn))
    assert again.foiled_attributes == {"price", "volume"}
    again.draw(Publication((("price", 501.0), ("volume", 1100.0))))


WRONG: dict[str, tuple[Schema, dict[str, AttributeConfig]]] = {
    "volume: .* that its topic does not declare": (NUMBERS, {"volume": AttributeConfig(master="prise", line=(1, 0))}),
    "volume: .* has a master itself": (
        NUMBERS,
        {"volume": LINE, "price": AttributeConfig(master="volume", line=(1.0, 0.0))},
    ),
    "volume: .* needs the deviation": (NUMBERS, {"volume": AttributeConfig(master="price", line=(1.0, 0.0))}),
    "volume: .* give a line, or a history of both": (
        NUMBERS,
        {"volume": AttributeConfig(master="price", history=(1, 2, 3))},
    ),
    "volume: .* a number follows a number": (Schema((VOLUME, Strings("price"))), {"volume": LINE}),
    "colour: .* both need their values": (WORDS, {"colour": COLOUR}),
    "colour: .* needs in given": (WORDS, {"fruit": AttributeConfig(values=("apple", "plum")), "colour": COLOUR}),
    "volume: .* never changes": (
        NUMBERS,
        {"price": AttributeConfig(history=(1, 1, 1)), "volume": AttributeConfig(master="price", history=(1, 2, 3))},
    ),
}


@pytest.mark.parametrize("told", WRONG)
def test_a_mistake_is_told_with_the_attribute(told: str) -> None:
    schema, attributes = WRONG[told]
    with pytest.raises(ConfigError, match=f"foil.attributes.{told}"):
        made(schema, **attributes)


def test_a_line_without_a_master_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="of an attribute with a master"):
        AttributeConfig(line=(1.0, 2.0))


def test_whole_numbers_stay_whole() -> None:
    schema = Schema((Integers("count", 0, 63, 6), PRICE))
    maker = made(schema, price=WALK, count=AttributeConfig(master="price", line=(0.05, 0.0), deviation=3.0))
    drawn = maker.draw(Publication((("price", 500.0), ("count", 25))))
    assert all(isinstance(place[0], int) and 0 <= place[0] < 64 for place in drawn.places)
