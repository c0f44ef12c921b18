"""The first relay: which neighbour it is, for how long, and how often an adversary can cause a replacement."""

from __future__ import annotations

from math import ceil, sqrt
from random import Random

import msgspec
import pytest

from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError, TamperedError
from veilcast.machine import Address
from veilcast.mesh.config import FirstRelayConfig, HardeningConfig, MeshConfig
from veilcast.mesh.first_relay import STABLE_BEATS, STORES_PER_EPOCH, WAIT_BEATS_MAX, FirstRelay
from veilcast.mesh.neighbour_record import NeighbourRecord, RelayRecord, read_neighbour_record
from veilcast.mesh.neighbour_table import NeighbourTable
from veilcast.mesh.stem import StemChoices
from veilcast.mesh.sticky_choices import StickyChoices

PERIOD_US = 1_000_000
EPOCH_BEATS = 10
RULES = FirstRelayConfig(away_epochs=3, refill_epochs=20, spares=2)
PRICE = RULES.refill_epochs * EPOCH_BEATS
AWAY = RULES.away_epochs * EPOCH_BEATS


class Bench:
    """A node's neighbour table and first relay. `there` names the neighbours that send heartbeats."""

    def __init__(self, rules: FirstRelayConfig = RULES, kept: RelayRecord | None = None, secret: int = 1) -> None:
        self.now = PERIOD_US
        self.members = NeighbourTable((), period_us=PERIOD_US, silent_periods=5, now=self.now)
        self.kept: list[RelayRecord] = []
        self.there: dict[Address, None] = {}
        self._number = 0
        choices = StickyChoices(Secret(secret.to_bytes(32, "big")))
        self.relay = FirstRelay(rules, choices, self.members, self.kept.append, epoch_beats=EPOCH_BEATS, stored=kept)

    def link(self, name: str, key: str, *, chosen: bool = True) -> None:
        self.members.add(Address(name), self.now, key.encode(), chosen=chosen)
        self.there[Address(name)] = None

    def unlink(self, name: str) -> None:
        self.members.remove(Address(name))
        self.there.pop(Address(name), None)

    def beat(self, times: int = 1, *, mass_failure: bool = False) -> None:
        for _ in range(times):
            self.now += PERIOD_US
            self._number += 1
            for name in self.there:
                self.members.hear(name, self._number, self.now)
            self.relay.beat(self.now, mass_failure=mass_failure)

    @property
    def key(self) -> str | None:
        return None if self.relay.key_in_use is None else self.relay.key_in_use.decode()


def neighbourly(count: int = 8) -> Bench:
    bench = Bench()
    for number in range(count):
        bench.link(f"n{number}:1", f"key {number}")
    bench.beat()
    return bench


def test_peers_that_came_are_never_chosen_from_however_many_addresses() -> None:
    bench = Bench()
    for number in range(200):
        bench.link(f"came{number}", f"came {number % 3}", chosen=False)
    bench.beat(5)
    assert not bench.kept
    bench.link("own", "own key")
    bench.beat()
    assert bench.key == "own key"
    bench.beat(1_000)
    assert bench.key == "own key"


def test_a_later_neighbour_does_not_take_the_place_of_the_first_relay_whatever_its_rank() -> None:
    bench = neighbourly()
    first = bench.key
    for number in range(500):
        bench.link(f"late{number}", f"late {number}")
        bench.beat()
        assert bench.key == first
        bench.unlink(f"late{number}")


def test_a_relay_that_comes_back_from_another_address_is_the_same_relay() -> None:
    bench = neighbourly()
    first = bench.key
    old = bench.relay.address()
    assert first is not None
    assert old is not None
    bench.unlink(old)
    bench.beat(AWAY - 1)
    assert (bench.key, bench.relay.address()) == (first, None)
    bench.link("moved:9", first, chosen=False)
    bench.beat()
    assert (bench.key, bench.relay.address()) == (first, "moved:9")
    assert bench.kept[-1].address == "moved:9"
    assert bench.kept[-1].away == 0


def test_another_member_at_the_relays_address_is_not_the_relay() -> None:
    bench = neighbourly()
    old = bench.relay.address()
    assert old is not None
    bench.unlink(old)
    bench.link(old, "another key")
    bench.beat()
    assert bench.relay.address() is None


def test_a_relay_that_is_away_is_waited_for_and_replaced_after_its_time() -> None:
    bench = neighbourly()
    first, name = bench.key, bench.relay.address()
    assert name is not None
    del bench.there[name]
    bench.beat(AWAY - 1)
    bench.there[name] = None  # It is back for a moment, and the wait begins again.
    bench.beat()
    bench.unlink(name)
    bench.beat(AWAY - 1)
    assert bench.key == first
    bench.beat()
    assert bench.key not in (first, None)


def test_a_node_that_is_cut_off_does_not_count_its_own_absence() -> None:
    bench = neighbourly()
    first, there = bench.key, dict(bench.there)
    for name in there:
        bench.members.mark_lost(name)
    bench.there.clear()
    bench.beat(10 * AWAY)
    assert bench.key == first


@pytest.mark.parametrize("forced", ["outages", "mass failures"])
def test_an_adversary_that_silences_every_relay_causes_no_more_replacements_than_the_bound(forced: str) -> None:
    """The adversary ends each first relay at once, or causes a mass failure around it. All other neighbours stay."""
    bench, beats, seen = neighbourly(), 4_000, list[str]()
    for number in range(beats):
        name = bench.relay.address()
        if bench.key is not None and bench.key not in seen:
            seen.append(bench.key)
        if name is not None:
            bench.unlink(name)
            bench.link(f"new{number}", f"new key {number}")
        bench.beat(mass_failure=forced == "mass failures")
    bound = 1 + RULES.spares + beats / PRICE
    assert len(seen) <= bound
    assert len(seen) >= bound - 2  # The rule lets as many be replaced as it says: publishers do not wait for ever.


def test_a_mass_failure_replaces_a_silent_relay_at_once_and_never_one_that_is_heard() -> None:
    bench = neighbourly()
    first, name = bench.key, bench.relay.address()
    assert name is not None
    bench.beat(3, mass_failure=True)
    assert bench.key == first
    del bench.there[name]
    bench.beat(4, mass_failure=True)
    assert bench.key != first
    assert bench.relay.address() in bench.there


def test_an_insider_among_the_own_links_stands_in_no_longer_than_the_adversary_silences_the_relay() -> None:
    """The adversary silences all own links except the insider's: for some seconds, or for as long as the rule waits."""
    for secret in range(20):
        bench = Bench(secret=secret)
        for number in range(8):
            bench.link(f"n{number}", f"key {number}")
        bench.beat()
        first, there = bench.relay.address(), dict(bench.there)
        assert first is not None
        insider = Address("n0" if bench.key != "key 0" else "n1")
        for silence in range(4, 12):
            bench.there = {insider: None}
            bench.beat(silence, mass_failure=True)
            assert bench.relay.address() == insider
            bench.there = there
            bench.beat(mass_failure=True)
            assert bench.relay.address() == first
        assert bench.kept[-1].credit >= PRICE  # The same stand-in costs nothing again.
        bench.there = {insider: None}
        bench.beat(3, mass_failure=True)
        bench.unlink(first)
        again = bench.kept[-1]
        bench.beat(AWAY)
        assert bench.relay.key == bench.members.identity(insider)
        assert again.key != bench.kept[-1].key


def test_a_stand_in_is_used_after_a_restart_if_the_relay_was_away_and_records_without_one_are_read() -> None:
    kept = RelayRecord(b"relay", "r:1", 5, PRICE, b"stand-in")
    assert read_neighbour_record(NeighbourRecord(["a"], kept).encode()).relay == kept
    assert read_neighbour_record(msgspec.msgpack.encode([["a"], [b"k", "r:1", 5, 7]])).relay == RelayRecord(
        b"k", "r:1", 5, 7
    )
    for away, used in ((5, "s:1"), (0, None)):
        bench = Bench(kept=msgspec.structs.replace(kept, away=away))
        bench.link("s:1", "stand-in")
        bench.beat()
        assert bench.relay.address() == used


def test_a_stand_in_in_use_is_kept_while_it_misses_heartbeats_and_replaced_when_it_fails() -> None:
    bench = neighbourly()
    name = bench.relay.address()
    assert name is not None
    del bench.there[name]
    bench.beat(4, mass_failure=True)
    stand_in, credit = bench.relay.address(), bench.kept[-1].credit
    assert stand_in is not None
    del bench.there[stand_in]
    bench.beat(3, mass_failure=True)
    assert bench.relay.address() == stand_in
    assert bench.kept[-1].credit >= credit
    bench.members.mark_lost(stand_in)
    bench.beat(mass_failure=True)
    assert bench.relay.address() not in (stand_in, None)
    assert bench.kept[-1].credit < credit


def test_a_link_that_was_opened_just_now_stands_in_from_its_first_heartbeat_on() -> None:
    bench = neighbourly(1)
    bench.there = {}
    bench.link("came", "came", chosen=False)
    bench.beat(4, mass_failure=True)
    bench.members.add(Address("new"), bench.now + PERIOD_US, b"new key")
    bench.beat(mass_failure=True)
    assert bench.key == "key 0"
    bench.there[Address("new")] = None
    bench.beat(mass_failure=True)
    assert bench.key == "new key"


def test_during_a_mass_failure_no_possibly_silent_neighbour_is_chosen() -> None:
    """The silent neighbours were heard at different moments: the last of them less than two periods ago."""
    bench = neighbourly()
    name = bench.relay.address()
    assert name is not None
    del bench.there[name]
    bench.beat()
    alive = next(iter(bench.there))
    bench.there = {alive: None}
    bench.now += PERIOD_US // 2
    bench.beat(mass_failure=True)
    assert bench.relay.address() == alive


def test_a_node_chooses_when_its_links_are_complete_or_nothing_changes_or_it_has_waited() -> None:
    def beats_until_settled(links: list[int], idle: bool) -> int:
        relay = Bench().relay
        for beat in range(100):
            relay.observe_links(links[min(beat, len(links) - 1)], 8, idle=idle)
            if relay.is_settled:
                return beat
        return 100

    assert beats_until_settled([0, 3, 5, 8], idle=False) == 3
    assert beats_until_settled([0, 0, 3], idle=True) == 2 + STABLE_BEATS
    assert beats_until_settled([3], idle=False) == WAIT_BEATS_MAX - 1
    assert beats_until_settled([0], idle=True) == 100


def test_the_record_brings_the_relay_and_its_counters_over_a_restart() -> None:
    bench = neighbourly()
    name = bench.relay.address()
    assert name is not None
    bench.unlink(name)
    bench.beat(AWAY - 2)
    kept = bench.kept[-1]
    assert AWAY - 2 - EPOCH_BEATS / STORES_PER_EPOCH <= kept.away < AWAY
    again = Bench(kept=read_neighbour_record(NeighbourRecord(["a"], kept).encode()).relay)
    for number in range(8):
        again.link(f"other{number}", f"other {number}")
    again.beat()
    assert again.key == bench.key
    again.beat(AWAY)
    assert again.key != bench.key
    assert again.kept[-1].credit < kept.credit


def test_a_node_that_never_runs_for_a_whole_epoch_replaces_a_relay_that_has_gone_for_good() -> None:
    bench = neighbourly()
    first, kept, lived = bench.key, bench.kept[-1], 0
    while kept.key.decode() == first:
        again = Bench(kept=kept)
        for number in range(8):
            again.link(f"other{number}", f"other {number}")
        again.beat(EPOCH_BEATS // 2)
        lived += EPOCH_BEATS // 2
        kept = again.kept[-1] if again.kept else kept
        assert lived <= 2 * AWAY


def test_a_record_that_has_anchors_alone_is_read_and_a_damaged_one_is_not() -> None:
    assert read_neighbour_record(msgspec.msgpack.encode(["a", "b"])) == NeighbourRecord(["a", "b"])
    assert read_neighbour_record(NeighbourRecord(["a"]).encode()) == NeighbourRecord(["a"])
    for damaged in (b"\xc1", b"", b"\x01", msgspec.msgpack.encode([["a"], [1, 2]])):
        with pytest.raises(TamperedError):
            read_neighbour_record(damaged)


def test_every_candidate_is_as_likely_to_be_chosen() -> None:
    counts = [0] * 8
    for secret in range(400):
        bench = Bench(secret=secret)
        for number in range(8):
            bench.link(f"n{number}", f"key {number}")
        bench.beat()
        assert bench.key is not None
        counts[int(bench.key[-1])] += 1
    assert sum((count - 50) ** 2 / 50 for count in counts) < 24.3  # The 99.9th percentile, seven degrees of freedom.


def test_the_measured_share_of_captures_is_that_of_the_formula() -> None:
    """A tenth of the links that a node opens lead to insiders; the adversary ends every honest first relay."""
    insiders, cases, beats = 0.1, 400, 3 * PRICE
    captured = 0
    for secret in range(cases):
        bench, rng = Bench(secret=secret), Random(secret)
        hostile = {f"key {number}": rng.random() < insiders for number in range(30)}
        fresh = iter(hostile)
        for _ in range(8):
            bench.link(f"at {(key := next(fresh))}", key)
        for _ in range(beats):
            bench.beat(mass_failure=True)
            if bench.key is not None and hostile[bench.key]:
                captured += 1
                break
            if (name := bench.relay.address()) is not None:
                bench.unlink(name)
                bench.link(f"at {(key := next(fresh))}", key)
    most = 1 - (1 - insiders) ** (1 + RULES.spares + beats / PRICE)
    assert abs(captured / cases - most) < 4 * sqrt(most * (1 - most) / cases)


def choices(bench: Bench) -> StemChoices:
    return StemChoices(HardeningConfig(), StickyChoices(Secret(bytes(32))), bench.members, bench.relay)


def test_cargo_of_one_member_takes_the_same_way_from_any_of_its_addresses() -> None:
    """An insider cannot redraw the next relay, or the coin, by coming from another address."""
    bench = neighbourly()
    found, others = choices(bench), bench.members.neighbours
    ways = []
    for number in range(50):
        bench.link(f"came{number}", "one certificate", chosen=False)
        before = Address(f"came{number}")
        ways.append((found.next_relay(before, [*others, before]), found.continues_stem(before)))
        bench.unlink(f"came{number}")
    assert len(set(ways)) == 1


def test_a_peer_that_came_is_the_next_relay_only_if_no_own_link_is_present() -> None:
    bench = neighbourly()
    found, own = choices(bench), bench.members.chosen()
    for number in range(50):
        bench.link(f"came{number}", f"came {number}", chosen=False)
    came = [name for name in bench.members.neighbours if name not in own]
    for before in own:
        assert found.next_relay(before, [*came, *own]) in own
    assert found.next_relay(own[0], came) in came
    assert found.next_relay(own[0], own[:1]) is None


def test_impossible_rules_are_refused() -> None:
    for name, wrong in (("away_epochs", 0), ("refill_epochs", 0), ("spares", -1)):
        with pytest.raises(ConfigError, match=rf"hardening\.relay\.{name}"):
            msgspec.structs.replace(RULES, **{name: wrong})
    assert MeshConfig().hardening.relay.rule == "kept"
    assert ceil(365 * 24 / FirstRelayConfig().refill_epochs) + 1 + FirstRelayConfig().spares <= 10
