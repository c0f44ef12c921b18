"""Ways through an anonymous network: whoever is called does not learn by whom.

A peer that is named `purpose@address` is called through it. The one at that address knows the stream by a name that
nobody else has had or will have (`in:17`), can answer by that name while the stream stands, and is told nothing else.
Two purposes are two streams, with latencies of their own. Where there is no stream, frames to such a name are lost,
unlike those on the plain ways of the other modes, which carry datagrams.

The network itself is not simulated: partitions lie between the two ends, and what an observer records of a frame is
that its sender speaks into the network.
"""

from __future__ import annotations

from itertools import count
from typing import Any, Final

from veilcast.machine import Address
from veilcast.sim.engine import Engine
from veilcast.sim.host import SimulatedHost
from veilcast.sim.links import DirectedLink
from veilcast.sim.trace import LINK


def is_anonymous(peer: Address) -> bool:
    """Whether a machine knows this peer through the anonymous network."""
    return "@" in peer or peer.startswith(_INBOUND)


class AnonymousLinkEngine(Engine):
    """An engine with two kinds of ways; a hidden one is among its host's links while its stream stands."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._inbound = count().__next__

    def _link(self, host: SimulatedHost, destination: Address) -> DirectedLink:
        return host.links.get(destination) or super()._link(host, self._seen_going(destination))

    def _called(self, host: SimulatedHost, peer: Address) -> DirectedLink:
        """The way to a peer that is to be tied: the one there is, or the beginning of a new stream."""
        if "@" not in peer or peer in host.links:
            return self._link(host, peer)
        inbound, address = Address(f"{_INBOUND}{self._inbound()}"), Address(peer.partition("@")[2])
        target, latency_us = self._host(address), self._links.latency_between(host.address, peer, self.seed)
        self._trace.add_note(self._time, LINK, f"{host.address} {peer} {inbound}".encode())
        way = DirectedLink(self._links_made, inbound, target, latency_us)
        back = DirectedLink(self._links_made + 1, peer, host, latency_us)
        self._links_made += 2
        way.back, back.back = back, way
        way.blocks, back.blocks = self._link(host, address).blocks, self._link(target, host.address).blocks
        return way

    def _seen_going(self, destination: Address) -> Address:
        return ANONYMOUS_NETWORK if is_anonymous(destination) else destination

    def _back(self, way: DirectedLink) -> DirectedLink:
        """The same way in the other direction."""
        return way.back or self._link(way.target, way.source)

    def _ways(self, host: SimulatedHost, target: SimulatedHost) -> list[DirectedLink]:
        """All ways from one to the other: the plain one, and streams that either has called for."""
        hidden = [way for way in host.links.values() if way.back is not None and way.target is target]
        return [self._link(host, target.address), *hidden]

    def _open(self, way: DirectedLink) -> None:
        """From now on a stream carries what its two ends send."""
        if way.back is not None:
            way.back.target.links[way.back.source] = way
            way.target.links[way.source] = way.back

    def _close(self, way: DirectedLink) -> None:
        """A stream has ended: the names that its two ends had for one another lead nowhere."""
        if way.back is not None:
            del way.back.target.links[way.back.source]
            del way.target.links[way.source]


ANONYMOUS_NETWORK: Final = Address("@")
"""Where frames go that have no stream to go on; nobody is there."""

_INBOUND: Final = "in:"
