"""Machines with links that have met, and what a test asks of them."""

from __future__ import annotations

from collections.abc import Sized

from support.link_network import MovingLinks
from veilcast.link.config import LinkConfig
from veilcast.link.envelope import PacketSealer
from veilcast.link.link import KeyedChannel
from veilcast.link.machine import LinkMachine
from veilcast.link.pacing import SECOND_US
from veilcast.machine import Address

A, B = Address("a"), Address("b")


def town_of(*names: str, config: LinkConfig | None = None) -> MovingLinks:
    """A has a link with everybody else."""
    town = MovingLinks(config, *names)
    for name in names[1:]:
        town.tell(name, "a", b"hello of " + name.encode())
    town.run(5 * SECOND_US)
    assert len(town.heard("a")) == len(names) - 1
    return town


def line_of(town: MovingLinks, name: str, peer: str) -> KeyedChannel:
    line = town.machines[name]._links[Address(peer)].channel
    assert line is not None
    return line


def send_body(town: MovingLinks, name: str, peer: str, body: bytes) -> None:
    """A cell with true keys and this inside."""
    data = line_of(town, name, peer).generations.session.seal(body, town.now)
    town.inject(town.where[name], Address(peer), data)


def works(town: MovingLinks, name: str, peer: str) -> bool:
    """Whether what is said either way arrives within two seconds."""
    word = b"still there %d" % town.now
    town.tell(name, peer, word)
    town.tell(peer, name, word)
    town.run(2 * SECOND_US)
    return word in town.heard(name) and word in town.heard(peer)


def envelopes() -> PacketSealer:
    """Those that any member can make."""
    town = MovingLinks(None, "a", "b")
    return town.machines["b"]._door._envelopes


def remembered(machine: LinkMachine) -> int:
    """Entries of all tables that strangers can fill."""
    keeper = machine._door._doorkeeper
    tables: list[Sized] = [machine._links, machine._paths, machine._statics, machine._door, machine._alarms]
    return sum(map(len, [*tables, machine._frames, keeper._strangers, keeper._proven]))
