"""Streams through an anonymous network: the called host does not learn which host calls.

A machine calls the name `purpose@address` through this network. The host at that address knows the stream by a unique
name (`in:17`). It can answer by that name while the stream is open, and learns nothing else. Two purposes are two
streams, each with its own latency. Without an open stream, frames to such a name are lost. Plain links carry datagrams
and need no stream.

The network itself is not simulated. Partitions lie between the two ends of a stream, and an observer records of a frame
that its sender sends into the network.
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
    """True if a machine reaches this peer through the anonymous network."""
    return "@" in peer or peer.startswith(_INBOUND)


class AnonymousLinkEngine(Engine):
    """An engine with plain links and anonymous streams. A stream is among its host's links while it is open."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._inbound = count().__next__

    def _link(self, host: SimulatedHost, destination: Address) -> DirectedLink:
        return host.links.get(destination) or super()._link(host, self._observed_destination(destination))

    def _link_to_connect(self, host: SimulatedHost, peer: Address) -> DirectedLink:
        """The link to a peer that the host connects to: the one that exists, or a new stream that is not open yet."""
        if "@" not in peer or peer in host.links:
            return self._link(host, peer)
        inbound, address = Address(f"{_INBOUND}{self._inbound()}"), Address(peer.partition("@")[2])
        target, latency_us = self._host(address), self._links.latency_between(host.address, peer, self.seed)
        self._trace.add_note(self._time, LINK, f"{host.address} {peer} {inbound}".encode())
        link = DirectedLink(self._links_made, inbound, target, latency_us)
        back = DirectedLink(self._links_made + 1, peer, host, latency_us)
        self._links_made += 2
        link.back, back.back = back, link
        link.blocks, back.blocks = self._link(host, address).blocks, self._link(target, host.address).blocks
        return link

    def _observed_destination(self, destination: Address) -> Address:
        return ANONYMOUS_NETWORK if is_anonymous(destination) else destination

    def _reverse(self, link: DirectedLink) -> DirectedLink:
        """The link in the other direction."""
        return link.back or self._link(link.target, link.source)

    def _links_between(self, host: SimulatedHost, target: SimulatedHost) -> list[DirectedLink]:
        """All links from one host to the other: the plain one, and open streams that either end has called for."""
        hidden = [link for link in host.links.values() if link.back is not None and link.target is target]
        return [self._link(host, target.address), *hidden]

    def _open_stream(self, link: DirectedLink) -> None:
        if link.back is not None:
            link.back.target.links[link.back.source] = link
            link.target.links[link.source] = link.back

    def _close_stream(self, link: DirectedLink) -> None:
        if link.back is not None:
            del link.back.target.links[link.back.source]
            del link.target.links[link.source]


ANONYMOUS_NETWORK: Final = Address("@")
"""Destination of frames without an open stream. No host is there."""

_INBOUND: Final = "in:"
