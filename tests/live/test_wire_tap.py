"""The wire tap sees each frame that leaves, and how late it is."""

from __future__ import annotations

from veilcast.lab.runs.mesh.loopback_network import WireRecorder, sample_quantile
from veilcast.link.config import LinkConfig
from veilcast.machine import Address
from veilcast.mesh.config import MeshConfig
from veilcast.sim.engine import START_US
from veilcast.sim.host import Birth
from veilcast.sim.mesh.owners import MeshNodeOwner
from veilcast.sim.mesh.population import address_prefix, make_own_keyring

A, B = Address("127.1.1.1:4077"), Address("127.1.2.1:4077")


def test_cells_that_leave_late_are_seen_to_be_late_by_as_much() -> None:
    owner = MeshNodeOwner(
        MeshConfig(), make_own_keyring("forwarder", A), {}, [B], address_prefix, link=LinkConfig("cells", 16)
    )
    now = START_US
    wire = WireRecorder(owner.start(Birth(A, 0, START_US, {}, 1)), lambda: now)
    planted = []
    for turn in range(200):
        due = wire.next_timer() or 0
        slot = any(link.slots.next_us == due for link in wire.inner._links.values())
        now = due + (turn % 7) * 1000
        wire.handle_timer(now)
        if wire.frames_to_send(now, 64) and slot:
            planted.append((now, (turn % 7) * 1000))
    assert len(planted) > 100
    assert wire.late == planted
    times, sizes = wire.sent[B]
    assert list(times) == [at for at, _ in planted]
    assert set(sizes) == {1200}


def test_quantiles_are_of_the_values_in_order() -> None:
    assert (sample_quantile([], 0.5), sample_quantile([3, 1, 2], 0.5), sample_quantile(list(range(100)), 0.99)) == (
        0.0,
        2,
        99,
    )
