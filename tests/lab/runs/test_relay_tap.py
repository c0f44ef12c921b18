"""The real machines of a relay, tapped: what their parties find, and the faults that each attack would find."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from statistics import mean
from typing import Any

import pyarrow as pa
import pytest

from veilcast.core import match_elements
from veilcast.crypto.derive import derive
from veilcast.crypto.group import Ciphertext, Scalar
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.experiment.relay_params import RelayAttacks
from veilcast.lab.measure.relay_guesses import measure_linked_deliveries, measure_repeated_subscriptions
from veilcast.lab.runs.relay.attacks_machines import attack_tables, make_population, observe_run, run
from veilcast.lab.runs.table import ENGINES
from veilcast.machine import Frame
from veilcast.observe import FactRow, ServerRow, TopologyRow
from veilcast.relay import body_encryption, hardened
from veilcast.relay.pacer import Pacer
from veilcast.relay.roster import ClientRoster
from veilcast.relay.subject_tags import move_many

Found = dict[tuple[str, str], float]


def of_relay(relay: str, **more: object) -> RelayAttacks:
    given = {"nodes": 12, "topics": 4, "batch": 4.0, "steps": (3,), **more}
    return RelayAttacks(relay=relay, **given)  # type: ignore[arg-type]


def measured(params: RelayAttacks, seed: int = 1) -> Found:
    return {(one.attack, one.metric): one.value for one in run(params, seed)}


def means(params: RelayAttacks, seeds: int = 4) -> Found:
    runs = [measured(params, seed) for seed in range(seeds)]
    return {key: mean(each[key] for each in runs) for key in runs[0]}


@cache
def usual(relay: str = "hardened", **more: Any) -> Found:
    return means(of_relay(relay, **more))


# --- as it is -----------------------------------------------------------------------------------------------


def test_the_papers_server_reads_all_and_its_proxy_recognises_all() -> None:
    found = usual("paper")
    assert found["dictionary", "named_readers"] == found["bodies", "linked"] == found["", "copies"] == 1.0
    assert found["proxy-frequency", "repeats"] > 0.9
    assert found["proxy-frequency", "topic_subscribers"] > found["proxy-frequency", "topic_subscribers_bound"] + 0.2
    assert found["", "delivered"] > 0


def test_in_the_hardened_relay_no_byte_is_recognised() -> None:
    found = usual()
    assert found["dictionary", "named_readers"] == 0.0
    assert found["bodies", "linked"] == found["", "copies"] == found["proxy-frequency", "repeats"] == 0.0
    assert found["filter-intersection", "linked"] == pytest.approx(found["filter-intersection", "linked_base"], abs=0.1)
    assert found["proxy-frequency", "topic_subscribers"] == pytest.approx(
        found["proxy-frequency", "topic_subscribers_bound"], abs=0.1
    )
    assert found["", "delivered"] > 0


def test_records_at_a_constant_rate_end_what_wires_alone_tell() -> None:
    """The positive control: the same attacker, on the same clients without a constant rate. Proxies ask for deliveries
    at times of their own, so the attacker needs six epochs of wires."""
    assert usual(steps=(6,))["disclosure", "auc"] > 0.65
    assert usual(constant=True, steps=(6,))["disclosure", "auc"] == pytest.approx(0.5, abs=0.08)


def test_a_server_that_watches_the_wires_names_publishers_by_the_phase_of_their_records() -> None:
    """Without batches a record at a constant rate still comes at its own client's time. Batches leave less."""
    bare, batched = usual(constant=True, batch=0.0), usual(constant=True)
    assert bare["timing", "publisher"] > 0.5
    assert bare["timing", "publisher"] > batched["timing", "publisher"] + 0.3 > bare["timing", "publisher_bound"] + 0.3


def test_of_hardened_machines_nothing_comes_twice_and_no_pseudonym_has_two_leases() -> None:
    taps, _ = observe_run(make_population(of_relay("hardened", nodes=4), 3), 3)
    by_role: dict[str, list[ServerRow]] = {}
    for row in taps.rows:
        by_role.setdefault(row.role, []).append(row)
    for role in ("proxy:subscribe", "proxy:publish", "proxy:send", "proxy:deliver", "server:deliver"):
        seen = [row.tag for row in by_role[role]]
        assert len(seen) == len(set(seen)), role
    assert not {row.tag for row in by_role["proxy:send"]} & {row.tag for row in by_role["proxy:deliver"]}
    leases = {(row.pseudonym, row.t_us) for row in by_role["server:subscribe"]}
    assert len(leases) == len({pseudonym for pseudonym, _ in leases})


# --- planted faults -----------------------------------------------------------------------------------------

Plant = Callable[[pytest.MonkeyPatch], None]


def without_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxies move subjects to k_r, as the paper's do."""

    def move(uploaded: list[Ciphertext], transformation: Scalar, mask: Scalar, multiply: Any) -> list[Ciphertext]:
        return move_many(uploaded, transformation, Scalar.of(1), multiply)

    monkeypatch.setattr(hardened, "move_many", move)


def without_element_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_elements, "key_groups", lambda key, groups: groups)


@pytest.mark.parametrize("plant", [without_mask, without_element_keys])
def test_the_dictionary_finds_all_tags_if_the_mask_or_the_keys_of_elements_are_left_out(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    found = measured(of_relay("hardened"))
    assert found["dictionary", "named_readers"] == 1.0
    assert found["", "delivered"] > 0


def test_a_body_that_is_copied_to_all_subscribers_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, place in (("wrap_for_subscriber", 1), ("open_at_subscriber", 1)):
        monkeypatch.setattr(body_encryption, name, lambda *given, place=place: given[place])
    found = measured(of_relay("hardened"))
    assert found["", "copies"] > 0.9
    assert found["", "delivered"] > 0


def test_a_pseudonym_that_a_client_keeps_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that gives a lease the last pseudonym of its client."""
    assigned = ClientRoster.assign_pseudonym

    def assign(roster: ClientRoster, client: Any, name: bytes, until_us: int, now: int) -> Any:
        held = roster._clients[client].leases
        drawn = roster._draw_pseudonym
        if name not in held and held:
            roster._draw_pseudonym = lambda: list(held.values())[-1][1].pseudonym  # type: ignore[method-assign]
        try:
            return assigned(roster, client, name, until_us, now)
        finally:
            roster._draw_pseudonym = drawn  # type: ignore[method-assign]

    monkeypatch.setattr(ClientRoster, "assign_pseudonym", assign)
    found = measured(of_relay("hardened"))
    assert found["filter-intersection", "linked"] > found["filter-intersection", "linked_base"] + 0.5


def test_a_key_of_elements_that_is_the_same_in_all_epochs_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tags last, and with them a pseudonym of the last epoch is known by its topic, among those who read it."""
    monkeypatch.setattr(
        hardened, "_element_key", lambda keys: derive(Secret(bytes(32)), b"x", keys.record.topic.encode())
    )
    found = means(of_relay("hardened"))
    assert found["filter-intersection", "linked"] > found["filter-intersection", "linked_base"] + 0.05


def test_records_that_leave_only_when_there_is_something_to_send_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(pacer: Pacer, now: int) -> list[Frame]:
        frames = []
        for peer in pacer._timers.pop_due(now):
            stream = pacer._streams[peer]
            frames += [Frame(peer, stream.record(pacer._capacity))] if stream.out else []
            stream.due_us += pacer._period_us * ((now - stream.due_us) // pacer._period_us + 1)
            pacer._timers.set(peer, stream.due_us)
        return frames

    params = of_relay("hardened", constant=True)
    always = means(params)["disclosure", "auc"]
    monkeypatch.setattr(Pacer, "handle", handle)
    assert means(params)["disclosure", "auc"] > always + 0.05


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


def test_machines_know_no_churn() -> None:
    with pytest.raises(ConfigError, match="machines"):
        ENGINES["machines"](of_relay("hardened", churn=0.1), 1, None)
