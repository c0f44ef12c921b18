"""Brokers that lie, for demonstrations and tests on one machine: the simulator's own liars around a real broker.

Nobody can be told by a file to lie: only a local network's plan has them (`localbrokers`).
"""

from __future__ import annotations

import os
from random import SystemRandom

from veilcast.brokers.broker import Broker
from veilcast.brokers.overlay import SignedOverlay
from veilcast.cli.compose_brokers import Astray
from veilcast.machine import Address, Machine
from veilcast.node.broker_files import BrokerFile
from veilcast.sim.broker_adversaries import Standpoint, disguise


def led_astray(kind: str, config: BrokerFile) -> Astray:
    def wrap(broker: Broker, signed: SignedOverlay) -> Machine:
        return disguise(kind, broker, standpoint(broker, signed, config), config.settings.bound_us)

    return wrap


def standpoint(broker: Broker, signed: SignedOverlay, config: BrokerFile) -> Standpoint:
    """What this replica knows of the others: how each is named on its streams, and where it stands."""
    overlay = signed.verify(config.operator_key)
    place = overlay.place(broker.key)
    assert place is not None
    near = (overlay.node(place.scheme.node), *overlay.neighbours(place.scheme.node))
    peers = {}
    for node in near:
        for replica in node.replicas:
            at = node.place(replica.key)
            assert at is not None
            if replica.key != broker.key:
                # Whichever of the two calls, one of these is its name here.
                peers[Address(replica.address)] = peers[Address(replica.caller)] = at
    schemes = {node.id: node.scheme for node in overlay.nodes}
    return Standpoint(
        place, broker.signing, peers, schemes, SystemRandom(), os.urandom, hardened=config.profile == "hardened"
    )
