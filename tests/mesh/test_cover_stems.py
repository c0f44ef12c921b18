"""Cover stems: a publisher and another member send the same over their stems, and publications arrive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from support.hardened_mesh_network import EPOCH_US, FIRST, PERIOD_US, HardenedMeshNetwork, token, with_rules
from veilcast.crypto.noise import Keypair
from veilcast.crypto.secret import Secret
from veilcast.errors import ForgedError, RemoteError
from veilcast.machine import Address, Frame
from veilcast.mesh.cover_stems import CONTENT_MAX, DUE_MAX, CoverStems, ParcelAddress, open_parcel, seal_parcel
from veilcast.mesh.stem import Cargo, cargo_id
from veilcast.sim.checkers import Checker
from veilcast.sim.rng import SeededEntropy
from veilcast.sim.world import World
from veilcast.wire import decode
from veilcast.wire.geometry import PARCEL_SIZES
from veilcast.wire.mesh import Notify, Parcel, Stem, StemReceipt

ROOT = Keypair(Secret(bytes(31) + b"\1"))
STRETCH = 4
STRETCH_US = STRETCH * PERIOD_US
EDGES = "p-a a-b b-s a-s b-s2 p-b p-s p-c c-d d-s2 c-s a-d"


def address(number: int = 1) -> ParcelAddress:
    name = bytes((number,)) * 16
    return ParcelAddress(name, name, bytes((number,)) * 16, ROOT.public)


class Bench:
    """The parcels of one member, to roots of these topics."""

    def __init__(self, topics: int = 1, seed: int = 1) -> None:
        self.sent: list[tuple[int, bytes, int, bytes]] = []
        self.relay_is_there = True
        self.now = 1000 * STRETCH_US
        known = [address(number) for number in range(1, topics + 1)]
        entropy = SeededEntropy(bytes(32))
        self.parcels = CoverStems(
            lambda _: known,
            self._launch,
            Random(seed),
            entropy,
            stretch_us=STRETCH_US,
            period_us=PERIOD_US // 4,
            waiting_max=8,
        )

    def run(self, stretches: float) -> None:
        end_us = self.now + int(stretches * STRETCH_US)
        while self.now < end_us:
            self.parcels.beat(self.now)
            self.now += PERIOD_US // 4

    def _launch(self, parcel: Cargo, lineage: bytes, now: int) -> bool:
        assert isinstance(parcel, Parcel)
        if self.relay_is_there:
            self.sent.append((now, lineage, len(parcel.sealed), open_parcel(parcel, ROOT)))
        return self.relay_is_there


def test_a_member_sends_one_parcel_in_each_stretch_at_the_same_moments_with_and_without_contents() -> None:
    idle, busy = Bench(), Bench()
    for stretch in range(12):
        if stretch % 3:
            busy.parcels.put(address().lineage, b"note %d" % stretch, busy.now)
        idle.run(1)
        busy.run(1)
    assert [row[:3] for row in idle.sent] == [row[:3] for row in busy.sent]
    assert [at_us // STRETCH_US for at_us, *_ in idle.sent] == list(range(1000, 1012))
    assert [row[3] for row in busy.sent if row[3]] == [b"note %d" % n for n in range(12) if n % 3]
    assert {row[3] for row in idle.sent} == {b""}


def test_parcels_leave_at_moments_that_spread_over_the_stretch() -> None:
    bench = Bench()
    bench.run(400)
    quarters = Counter(4 * (at_us % STRETCH_US) // STRETCH_US for at_us, *_ in bench.sent)
    assert min(quarters.values()) > 60


def test_of_many_topics_the_same_part_is_due_for_all_members_and_each_in_its_turn() -> None:
    here, there = Bench(topics=3 * DUE_MAX, seed=1), Bench(topics=3 * DUE_MAX, seed=2)
    here.run(40)
    there.run(40)
    due = [Counter((at_us // STRETCH_US, lineage) for at_us, lineage, *_ in bench.sent) for bench in (here, there)]
    assert due[0] == due[1]
    assert set(due[0].values()) == {1}
    assert max(Counter(stretch for stretch, _ in due[0]).values()) == DUE_MAX
    assert len({lineage for _, lineage in due[0]}) == 3 * DUE_MAX


def test_a_content_waits_while_the_first_relay_is_away() -> None:
    bench = Bench()
    bench.relay_is_there = False
    assert bench.parcels.put(address().lineage, b"x", bench.now)
    bench.run(3)
    assert not bench.parcels.was_sealed(cargo_id(b"x"))
    bench.relay_is_there = True
    bench.run(1)
    assert [row[3] for row in bench.sent] == [b"x"]
    assert bench.parcels.was_sealed(cargo_id(b"x"))


def test_contents_that_parcels_cannot_carry_are_refused() -> None:
    bench = Bench()
    assert not bench.parcels.put(b"another topic...", b"x", bench.now)
    assert not bench.parcels.put(address().lineage, bytes(CONTENT_MAX + 1), bench.now)
    assert bench.parcels.put(address().lineage, bytes(CONTENT_MAX), bench.now)
    for number in range(7):
        assert bench.parcels.put(address().lineage, b"%d" % number, bench.now)
    assert not bench.parcels.put(address().lineage, b"8", bench.now)
    assert bench.parcels.put(address().lineage, b"6", bench.now)  # It waits already.
    assert bench.parcels.size() == 8


@pytest.mark.parametrize(("length", "size"), [(0, 0), (2044, 0), (2045, 1), (8188, 1), (8189, 2), (CONTENT_MAX, 2)])
def test_a_parcel_has_the_smallest_usual_size_that_holds_its_content(length: int, size: int) -> None:
    parcel = seal_parcel(address(), bytes(length), SeededEntropy(bytes(32)))
    empty = seal_parcel(address(), b"", SeededEntropy(bytes(32)))
    assert len(parcel.sealed) - len(empty.sealed) == PARCEL_SIZES[size] - PARCEL_SIZES[0]
    assert open_parcel(parcel, ROOT) == bytes(length)


def test_no_other_member_opens_a_parcel_and_none_opens_it_for_another_token() -> None:
    parcel = seal_parcel(address(), b"x", SeededEntropy(bytes(32)))
    with pytest.raises(ForgedError):
        open_parcel(parcel, Keypair(Secret(bytes(31) + b"\2")))
    with pytest.raises(ForgedError):
        open_parcel(Parcel(address(2).token, parcel.sealed), ROOT)


# --- in a network -------------------------------------------------------------------------------------------


class StemTap(Checker):
    """All cargoes on all links: by link, kind, size and stretch; and when notifications of meshes travelled."""

    def __init__(self) -> None:
        self.cargoes: Counter[tuple[str, str, str, int, int]] = Counter()
        self.receipts = 0
        self.notified_us: list[int] = []
        self.tokens: list[tuple[int, bytes]] = []

    def on_frames(self, world: World, address: Address, frames: Sequence[Frame]) -> None:
        for frame in frames:
            if frame.data[:1] == b"\0":
                continue
            try:
                message = decode(frame.data)
            except RemoteError:
                continue
            if isinstance(message, Stem):
                kind = type(decode(message.cargo)).__name__
                self.cargoes[address, frame.destination, kind, len(frame.data), world.now // STRETCH_US] += 1
            self.receipts += isinstance(message, StemReceipt)
            if isinstance(message, Notify):
                self.notified_us.append(world.now)
                self.tokens.append((world.now, message.token))


def formed(seed: int = 1, **changed: object) -> tuple[HardenedMeshNetwork, StemTap]:
    """A network whose mesh stands, with a tap that starts now."""
    tap = StemTap()
    network = HardenedMeshNetwork(
        EDGES, seed=seed, config=with_rules(parcel_periods=STRETCH, **changed), checkers=(tap,), cover=1
    )
    network.run_until(1.3)
    tap.cargoes.clear()
    tap.receipts = 0
    return network, tap


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_travels_over_stems_is_the_same_whether_the_publisher_publishes_or_not(seed: int) -> None:
    """On every link and in every stretch. Only the members of the mesh see a difference, in the mesh."""
    idle, quiet = formed(seed)
    busy, tap = formed(seed)
    for number in range(6):
        busy.publish(b"note %d" % number, wait=9)
        idle.run(9)
    assert busy.delivered("s") == [b"note %d" % number for number in range(6)]
    assert {kind for _, _, kind, *_ in tap.cargoes} == {"Parcel"}
    last = busy.world.now // STRETCH_US  # It is not over, and random moments of the two runs differ.
    for side in (tap, quiet):
        side.cargoes = Counter({key: count for key, count in side.cargoes.items() if key[-1] < last})
    assert tap.cargoes == quiet.cargoes
    assert tap.receipts == quiet.receipts == 0
    assert tap.notified_us
    assert not quiet.notified_us


def test_every_member_sends_as_many_parcels_of_its_own_as_there_are_stretches() -> None:
    network, tap = formed()
    network.run(20 * STRETCH)
    for name in network.neighbours:
        sent = sum(count for (source, *_), count in tap.cargoes.items() if source == name)
        came = sum(count for (_, target, *_), count in tap.cargoes.items() if target == name)
        # What came and did not go on has ended here: this node is the root.
        assert sent - came in (20, 21, 19) or name in network.roots()


def test_a_publication_in_a_parcel_is_released_in_the_stretch_after_its_own_and_is_settled() -> None:
    network, tap = formed()
    network.publish(b"x", wait=0)
    put_us = network.world.now
    network.run(5 * STRETCH)
    assert network.delivered("s") == network.delivered("s2") == [b"x"]
    assert put_us // STRETCH_US + 1 <= min(tap.notified_us) // STRETCH_US <= put_us // STRETCH_US + 2
    assert network.node("p").sizes()["pending"] == 0


def test_a_publication_that_its_root_lost_is_sent_again() -> None:
    network, _ = formed(hold_back_epochs=0.1)
    network.publish(b"x", wait=STRETCH)
    [root] = network.roots()
    assert root != "p"
    network.world.crash(Address(root))
    network.run_until(4)
    readers = [name for name in ("s", "s2") if name != root]
    assert all(network.delivered(name) == [b"x"] for name in readers)
    assert network.node("p").sizes()["pending"] == 0


def test_a_publication_shows_the_epoch_of_its_release_alone_and_an_order_is_kept() -> None:
    network, tap = formed(hold_back_epochs=2.0)
    bodies = [b"note %d" % number for number in range(8)]
    written: list[int] = []
    for body in bodies:
        network.publish(body, wait=0)
        written.append(network.world.now // EPOCH_US)
        network.run(55)
    network.run_until(9)
    assert network.delivered("s") == network.delivered("s2") == bodies
    assert network.node("p").sizes()["pending"] == 0
    first = [min(at for at, name in tap.tokens if name == key) for key in dict.fromkeys(name for _, name in tap.tokens)]
    assert len(first) > 1
    for at_us, name in tap.tokens:
        epoch = at_us // EPOCH_US
        assert name in (token(epoch - FIRST), token(epoch - FIRST - 1))  # Its own, and around the edge the last one.
    released = sorted({at_us // EPOCH_US for at_us, _ in tap.tokens})
    assert released[0] >= written[0]
    assert released[-1] > written[-1]  # Some are put off.
