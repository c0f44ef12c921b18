"""What a proxy holds for its members: the server does not see who is there, and nothing that is held is lost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from support.relay_network import CLIENT_CONFIG, EPOCH_US, PROXY_CONFIG, TOPIC, RelayNetwork
from veilcast.errors import ConfigError
from veilcast.machine import Address, Frame
from veilcast.relay.config import RelayClientConfig, RelayProxyConfig
from veilcast.relay.presence import HeldLeases
from veilcast.sim.checkers import Checker
from veilcast.sim.relay.population import SERVER
from veilcast.sim.world import World
from veilcast.topics import All, Label, Range
from veilcast.wire import decode
from veilcast.wire.relay import Lease, LeaseAhead, Receipt, Release, ReplyCode, Resume

ALL = Label(TOPIC)
OPEN = msgspec.structs.replace(PROXY_CONFIG, holds_presence=False)
"""A proxy that passes all on at once."""


class _Frames(Checker):
    """What the subscribers' proxy tells the server, and when."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, Any]] = []

    def on_frames(self, world: World, address: Address, frames: Sequence[Frame]) -> None:
        for frame in frames:
            if (address, frame.destination) == ("p1", SERVER):
                self.seen.append((world.now - world.start, decode(frame.data)))


class WatchedNetwork(RelayNetwork):
    """c0 and c1 subscribe through p1 and p0; the frames from p1 to the server are recorded from now on."""

    def watch(self) -> list[tuple[int, Any]]:
        frames = _Frames()
        self.world._frame_checkers.append(frames)
        self.world._plain = False
        return frames.seen

    def to_server(self, frames: list[tuple[int, Any]], *kinds: type[Any]) -> list[tuple[int, str, bytes]]:
        return [
            (at, type(message).__name__, message.name if hasattr(message, "name") else b"")
            for at, message in frames
            if isinstance(message, kinds)
        ]


def seen_by_server(proxy: RelayProxyConfig, *, is_away: bool) -> list[tuple[int, str, bytes]]:
    """What reaches the server about leases while c0 is there, or away and back."""
    network = WatchedNetwork(proxy=proxy)
    for level in range(4):
        network.subscribe("c0", All(ALL, Range("level", level, level + 8)))
    network.run(EPOCH_US / 1e6 - 10)
    frames = network.watch()
    if is_away:
        network.world.crash(Address("c0"))
    for number in range(4):
        network.publish("c1", b"%d" % number, level=number)
        network.run(1)
    if is_away:
        network.world.restart(Address("c0"))
    network.run(4)
    assert sorted(set(network.heard_by("c0"))) == [b"%d" % number for number in range(4)]
    return network.to_server(frames, Lease, Resume, Receipt, Release)


def test_what_the_server_gets_does_not_depend_on_whether_a_member_is_there() -> None:
    """To the microsecond: the same requests under the same pseudonyms. Only the enrolment of a new process is new."""
    there = seen_by_server(PROXY_CONFIG, is_away=False)
    assert len(there) > 8
    assert there == seen_by_server(PROXY_CONFIG, is_away=True)


def test_through_a_proxy_that_passes_all_on_a_return_shows() -> None:
    """The planted fault for the test before."""
    there, back = (seen_by_server(OPEN, is_away=is_away) for is_away in (False, True))
    assert there != back
    returned = [at for at, kind, _ in back if kind in ("Lease", "Resume")]
    assert len(returned) >= 8
    assert max(returned) - min(returned) < 6_000_000


@pytest.mark.parametrize("is_drawn", [True, False])
def test_drawn_questions_have_no_interval_of_their_own(is_drawn: bool) -> None:
    client = msgspec.structs.replace(CLIENT_CONFIG, drawn_resumes=is_drawn, resume_us=1_000_000)
    network = WatchedNetwork(proxy=OPEN, client=client)
    network.subscribe("c0", ALL)
    network.run(3)
    frames = network.watch()
    network.run(30)
    asked = network.to_server(frames, Resume)
    times: dict[bytes, list[int]] = {}
    for at, _, name in asked:
        times.setdefault(name, []).append(at)
    gaps = [after - before for each in times.values() for before, after in pairwise(each)]
    assert len(gaps) > 20
    assert (max(gaps) > 3 * min(gaps)) == is_drawn


def test_deliveries_wait_at_the_proxy_and_survive_its_death() -> None:
    network = WatchedNetwork()
    network.subscribe("c0", ALL)
    network.run(3)
    network.world.crash(Address("c0"))
    for number in range(40):  # More than a window.
        network.publish("c1", b"%d" % number)
        network.run(0.1)
    network.run(2)
    assert (network.machine("p1").sizes()["held"], network.machine(SERVER).sizes()["held"]) == (40, 0)
    network.world.crash(Address("p1"))
    network.world.restart(Address("p1"))
    network.run(3)
    assert network.machine("p1").sizes()["held"] == 40
    network.world.restart(Address("c0"))
    network.run(10)
    assert sorted(network.heard_by("c0")) == sorted(b"%d" % number for number in range(40))
    assert network.machine("p1").sizes()["held"] == 0


def test_deliveries_for_one_member_are_bounded_and_the_server_keeps_the_rest() -> None:
    network = WatchedNetwork(proxy=msgspec.structs.replace(PROXY_CONFIG, held_each=2, poll_us=1_000_000))
    network.subscribe("c0", ALL)
    network.run(3)
    network.world.crash(Address("c0"))
    for number in range(5):
        network.publish("c1", b"%d" % number)
        network.run(0.2)
    assert (network.machine("p1").sizes()["held"], network.machine(SERVER).sizes()["held"]) == (2, 3)
    network.world.restart(Address("c0"))
    network.run(30)
    assert sorted(network.heard_by("c0")) == [b"%d" % number for number in range(5)]


def test_deliveries_are_dropped_after_their_retention_time() -> None:
    network = WatchedNetwork(proxy=msgspec.structs.replace(PROXY_CONFIG, retention_us=5_000_000))
    network.subscribe("c0", ALL)
    network.run(3)
    network.world.crash(Address("c0"))
    network.publish("c1", b"here")
    network.run(2)
    assert network.machine("p1").sizes()["held"] == 1
    network.run(5)
    assert network.machine("p1").sizes()["held"] == 0


def test_the_end_of_a_subscription_does_not_reach_the_server() -> None:
    network = WatchedNetwork()
    number = network.subscribe("c0", ALL)
    network.run(3)
    frames = network.watch()
    network.unsubscribe("c0", number)
    network.publish("c1", b"unwanted")
    network.run(3)
    assert network.to_server(frames, Release) == []
    assert len(network.to_server(frames, Receipt)) == 1, "as for any delivery"
    assert network.heard_by("c0") == []
    network.subscribe("c0", ALL)
    network.run(3)
    network.publish("c1", b"wanted again")
    network.run(3)
    assert network.heard_by("c0") == [b"wanted again"]


def test_a_server_that_has_lost_its_leases_gets_them_again_though_the_member_is_away() -> None:
    network = WatchedNetwork(proxy=msgspec.structs.replace(PROXY_CONFIG, poll_us=2_000_000, retry_us=1_000_000))
    network.subscribe("c0", ALL)
    network.run(3)
    network.world.crash(Address("c0"))
    network.world.crash(SERVER)
    network.world._hosts[SERVER].disk = {}
    network.world.restart(SERVER)
    network.run(20)
    network.publish("c1", b"here")
    network.run(3)
    network.world.restart(Address("c0"))
    network.run(5)
    assert network.heard_by("c0") == [b"here"]


def leases_after(network: WatchedNetwork, epochs_away: float) -> list[tuple[int, str, bytes]]:
    """The leases that reach the server within three seconds of c0's return."""
    for level in range(4):
        network.subscribe("c0", All(ALL, Range("level", level, level + 8)))
    network.run(0.8 * EPOCH_US / 1e6)
    network.world.crash(Address("c0"))
    network.run(epochs_away * EPOCH_US / 1e6)
    frames = network.watch()
    network.world.restart(Address("c0"))
    network.run(3)
    return network.to_server(frames, Lease)


def test_a_member_that_was_away_for_too_long_shows_its_leases_of_the_current_epoch_together() -> None:
    assert len(leases_after(WatchedNetwork(), 3.0)) >= 4
    assert leases_after(WatchedNetwork(), 0.5) == []


def test_a_member_with_leases_further_ahead_shows_no_long_absence_either() -> None:
    client = msgspec.structs.replace(CLIENT_CONFIG, ahead_epochs=4)
    assert leases_after(WatchedNetwork(client=client), 3.0) == []


def test_leases_of_coming_epochs_reach_the_server_in_the_first_quarter_of_the_epoch_before() -> None:
    network = WatchedNetwork()
    network.subscribe("c0", ALL)
    network.run(3)
    frames = network.watch()
    network.run(4 * EPOCH_US / 1e6)
    times = [at for at, _, _ in network.to_server(frames, Lease)]
    assert len(times) == 4
    first_us = EPOCH_US - network.world.start % EPOCH_US
    assert all((at - first_us) % EPOCH_US <= EPOCH_US / 4 + 100_000 for at in times)


def test_a_proxy_that_holds_back_a_lease_whose_period_has_begun_counts_as_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hold_back(self: HeldLeases, pseudonym: bytes, lease: Lease | LeaseAhead, now: int) -> None:
        if (entry := self._roster.lease_entry(pseudonym)) is not None:
            self._reply(entry, lease.number, ReplyCode.HELD, now)

    monkeypatch.setattr(HeldLeases, "handle", lambda self, now: self._timers.pop_due(now))
    monkeypatch.setattr(HeldLeases, "_answer_lease", hold_back)
    network = WatchedNetwork()
    network.subscribe("c0", ALL)
    network.run(30)
    client = network.machine("c0")
    assert client.silent_us(network.world.now) > 0
    assert client.refused["ForgedError"] > 0


def test_a_lead_beyond_the_leases_is_refused() -> None:
    with pytest.raises(ConfigError, match="lead_epochs"):
        RelayClientConfig(lead_epochs=3)
