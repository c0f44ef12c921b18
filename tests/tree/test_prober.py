"""Probing: what is in question is probed first, and among that whoever has waited for longest."""

from __future__ import annotations

import msgspec

from support.tree_network import QUICK_CONFIG, SECOND, TreeNetwork, profile_of
from veilcast.tree.prober import ProbeOutcome

N0 = "n0:1"


def test_who_waits_for_room_is_probed_before_those_who_were_probed_in_vain_meanwhile() -> None:
    """A guard that is away has every probe lost. Were these sent again first, nobody would ask the guard itself."""
    grove = TreeNetwork(8, config=msgspec.structs.replace(QUICK_CONFIG, probes_max=2))
    grove.run(6)
    grove.subscribe(N0)
    grove.until(lambda: grove.stands(N0), 30)
    part = profile_of(grove, N0)
    probing, term = part._probing, part._subscribing.terms(grove.now)[0]
    grove.until(lambda: not len(probing), 5)
    others = [stop for stop in term.tree.stops if grove.called(term.tree.node(stop)) != N0]
    farthest = sorted(others, key=lambda stop: -len(term.tree.way(stop)))[:2]
    for stop in farthest:
        probing._send(term, stop, grove.now)
    guard = term.tree.chain[0]
    probing.urge(term, guard, grove.now)
    probing.handle(grove.now)
    assert [probe.stop for probe in probing._probes.values()] == farthest, "there is no room for the guard"
    assert probing.next_us() > grove.now, "and nothing to be done before there is"

    message, probe = next(iter(probing._probes.items()))
    now = grove.now = grove.now + SECOND // 100
    probing._end(message, probe, ProbeOutcome.LOST, now)
    probing.urge(term, probe.stop, now)
    assert probing.next_us() <= now
    probing.handle(now)
    assert [each.stop for each in probing._probes.values()] == [farthest[1], guard]
