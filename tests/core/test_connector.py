"""Connectors behave as one connector for each peer, although they visit the peers only if one has something to do."""

from __future__ import annotations

from random import Random

from veilcast.core.connector import Connector, Connectors
from veilcast.machine import Address, Connect

PEERS = [Address(name) for name in "abcd"]


def test_connectors_do_what_one_connector_for_each_peer_does() -> None:
    for seed in range(30):
        chance, many, plain = Random(seed), Connectors(1000, Random(1)), dict[Address, Connector]()
        rng, now = Random(1), 0
        for _ in range(200):
            now += chance.randrange(700)
            peer = chance.choice(PEERS)
            match chance.randrange(5):
                case 0 if peer not in plain:
                    plain[peer] = Connector(peer, 1000, rng, now)
                    many.add(peer, now)
                case 1 if chance.randrange(4) == 0:
                    plain.pop(peer, None)
                    many.drop(peer)
                case 2 if peer in plain:
                    plain[peer].peer_up()
                    many.peer_up(peer)
                case 3 if peer in plain:
                    plain[peer].peer_lost(now)
                    many.peer_lost(peer, now)
                case _:
                    for caller in plain.values():
                        caller.handle(now)
                    many.handle(now)
            assert list(many) == list(plain)
            assert many.next_us == min(
                (caller.next_us for caller in plain.values() if caller.next_us is not None), default=None
            )
            asked = [event for caller in plain.values() if (event := caller.next_event()) is not None]
            assert list(iter(many.next_event, None)) == asked


def test_a_peer_added_twice_is_connected_once_and_a_dropped_peer_is_not() -> None:
    callers = Connectors(1000, Random(1))
    for peer in (*PEERS, *PEERS):
        callers.add(peer, 5)
    callers.drop(PEERS[1])
    callers.drop(PEERS[1])
    assert list(iter(callers.next_event, None)) == [Connect(peer) for peer in PEERS if peer != PEERS[1]]
    assert PEERS[1] not in callers
