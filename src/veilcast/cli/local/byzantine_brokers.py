"""Byzantine brokers for demonstrations and tests on one computer: the simulator's adversaries around a real broker.

No file can make a broker Byzantine: only the plan of a local network can (`local.brokers`).
"""

from __future__ import annotations

import os
from random import SystemRandom

from veilcast.brokers.broker import Broker
from veilcast.brokers.overlay import SignedOverlay
from veilcast.cli.compose_brokers import ByzantineWrapper
from veilcast.machine import Address, Machine
from veilcast.node.broker_overlay import BrokerFile
from veilcast.sim.brokers.adversaries import ReplicaView, make_byzantine


def byzantine_wrapper(kind: str, config: BrokerFile) -> ByzantineWrapper:
    def wrap(broker: Broker, signed: SignedOverlay) -> Machine:
        return make_byzantine(kind, broker, make_standpoint(broker, signed, config), config.settings.bound_us)

    return wrap


def make_standpoint(broker: Broker, signed: SignedOverlay, config: BrokerFile) -> ReplicaView:
    """Return what this replica knows of the others: their peer names, and their places in the overlay."""
    overlay = signed.verify(config.operator_key)
    place = overlay.replica_id(broker.key)
    assert place is not None
    near = (overlay.node(place.scheme.node), *overlay.neighbours(place.scheme.node))
    peers = {}
    for node in near:
        for replica in node.replicas:
            at = node.replica_id(replica.key)
            assert at is not None
            if replica.key != broker.key:
                # Whichever of the two calls, one of these is its name here.
                peers[Address(replica.address)] = peers[Address(replica.caller)] = at
    schemes = {node.id: node.scheme for node in overlay.nodes}
    return ReplicaView(
        place, broker.signing, peers, schemes, SystemRandom(), os.urandom, hardened=config.profile == "hardened"
    )
