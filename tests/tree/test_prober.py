"""The prober: stops in question are probed first, the longest-waiting one before the others."""

from __future__ import annotations

import msgspec

from support.tree_network import QUICK_CONFIG, SECOND, TreeNetwork, profile_of
from veilcast.tree.prober import ProbeOutcome

N0 = "n0:1"


def test_a_waiting_stop_is_probed_before_stops_that_failed_meanwhile() -> None:
    """An absent guard loses every probe. If failed probes were repeated first, no probe would reach the guard."""
    network = TreeNetwork(8, config=msgspec.structs.replace(QUICK_CONFIG, probes_max=2))
    network.run(6)
    network.subscribe(N0)
    network.until(lambda: network.stands(N0), 30)
    profile = profile_of(network, N0)
    prober, epoch_tree = profile._prober, profile._subscriber.current_trees(network.now)[0]
    network.until(lambda: not len(prober), 5)
    others = [stop for stop in epoch_tree.tree.stops if network.called(epoch_tree.tree.node(stop)) != N0]
    farthest = sorted(others, key=lambda stop: -len(epoch_tree.tree.path(stop)))[:2]
    for stop in farthest:
        prober._send(epoch_tree, stop, network.now)
    guard = epoch_tree.tree.chain[0]
    prober.probe_soon(epoch_tree, guard, network.now)
    prober.handle(network.now)
    assert [probe.stop for probe in prober._probes.values()] == farthest, "there is no room for the guard"
    assert prober.next_us() > network.now, "and nothing to be done before there is"

    message, probe = next(iter(prober._probes.items()))
    now = network.now = network.now + SECOND // 100
    prober._finish(message, probe, ProbeOutcome.LOST, now)
    prober.probe_soon(epoch_tree, probe.stop, now)
    assert prober.next_us() <= now
    prober.handle(now)
    assert [each.stop for each in prober._probes.values()] == [farthest[1], guard]
