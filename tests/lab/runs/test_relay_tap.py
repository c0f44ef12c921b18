"""The real machines of a relay, tapped: their server and proxy see what the kernels' do."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.experiment.relay_params import RelayAttacks
from veilcast.lab.measure.relay_guesses import measure_linked_deliveries, measure_repeated_subscriptions
from veilcast.lab.runs.relay.attacks_machines import attack_tables, observe_run
from veilcast.lab.runs.table import ENGINES
from veilcast.observe import FactRow, ServerRow, TopologyRow
from veilcast.sim.relay.population import RelayPopulation


def of_relay(relay: str, **more: object) -> RelayAttacks:
    given = {"nodes": 6, "topics": 2, "batch": 4.0, **more}
    return RelayAttacks(relay=relay, steps=(2,), **given)  # type: ignore[arg-type]


def found(engine: str, relay: str, nodes: int) -> dict[tuple[str, str], float]:
    return {(one.attack, one.metric): one.value for one in ENGINES[engine](of_relay(relay, nodes=nodes), 1, None)}


@dataclass(frozen=True)
class Expected:
    dictionary: float
    bodies: float


@pytest.mark.parametrize(("relay", "expected"), [("paper", Expected(1.0, 1.0)), ("hardened", Expected(0.0, 0.0))])
def test_machines_show_what_the_model_shows(relay: str, expected: Expected) -> None:
    machines, kernel = found("machines", relay, 6), found("kernel", relay, 60)
    for engine in (machines, kernel):
        assert engine["dictionary", "named_readers"] == expected.dictionary
        assert engine["bodies", "linked"] == expected.bodies
        assert (engine["proxy-frequency", "repeats"] > 0) == (relay == "paper")
    assert machines["", "delivered"] > 0


def test_of_hardened_machines_nothing_comes_twice_and_no_pseudonym_has_two_leases() -> None:
    taps, _ = observe_run(RelayPopulation(proxies=1, clients=4, notes=12), 3)
    by_role: dict[str, list[ServerRow]] = {}
    for row in taps.rows:
        by_role.setdefault(row.role, []).append(row)
    for role in ("proxy:subscribe", "proxy:publish", "proxy:send", "proxy:deliver", "server:deliver"):
        seen = [row.tag for row in by_role[role]]
        assert len(seen) == len(set(seen)), role
    assert not {row.tag for row in by_role["proxy:send"]} & {row.tag for row in by_role["proxy:deliver"]}
    leases = {(row.pseudonym, row.t_us) for row in by_role["server:subscribe"]}
    assert len(leases) == len({pseudonym for pseudonym, _ in leases})


def test_a_planted_repeat_is_noticed() -> None:
    rows = [
        ServerRow("r", 0, 0, "proxy:subscribe", client, tag, 0)
        for client, tag in (("a", b"x"), ("b", b"x"), ("b", b"y"))
    ]
    rows.append(ServerRow("r", 0, 0, "proxy:send", "a", b"body", 0))
    rows += [ServerRow("r", 0, 0, "proxy:deliver", "b", body, 0) for body in (b"body", b"other")]
    guesses = attack_tables(
        {
            "server": tables.from_rows(ServerRow, rows),
            "topology": tables.from_rows(TopologyRow, [TopologyRow("r", 0, "proxy", client) for client in "ab"]),
            "facts": tables.from_rows(FactRow, [FactRow("r", "lasting", 1.0)]),
        },
        of_relay("paper"),
        (),
        None,
    )
    assert isinstance(guesses, pa.Table)
    assert measure_repeated_subscriptions(guesses) == pytest.approx(2 / 3)
    assert measure_linked_deliveries(guesses) == 0.5


def test_machines_know_neither_churn_nor_a_constant_rate() -> None:
    for params in (of_relay("hardened", churn=0.1), of_relay("hardened", constant=True)):
        with pytest.raises(ConfigError, match="machines"):
            ENGINES["machines"](params, 1, None)
