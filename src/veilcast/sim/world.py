"""The world: hosts that start and die, disks, connections between peers, and the mechanism of every fault.

The world has mechanisms (crash, pause, block, set a clock). When to use them is decided in `faults`.

Links carry datagrams: a frame to any address travels, with or without a connection. Streams through an anonymous
network (`AnonymousLinkEngine`) need one. `connect` and the events `Connect` and `Disconnect` make and end connections:
pairs that are told of one another (`peer_up`, `peer_lost`) and appear in the topology table. Pauses and partitions are
silent, as on a network. Connected peers notice a crash after the link's latency, as the end of a stream. A notice
travels the link from the peer that it is about. If a partition blocks that link, the notice waits, as TCP repeats a
stream's last segment, and arrives a latency after the link is open. Until then a machine can notice only the silence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, Final, TypeAlias

import msgspec

from veilcast.errors import ConfigError, LocalError
from veilcast.faults import faults_of
from veilcast.machine import Address, Connect, Delivered, Disconnect, Event, Record, Settled
from veilcast.sim import run_digest as codes
from veilcast.sim.checkers import Checker, ViolationError, overrides_hook
from veilcast.sim.engine import START_US, Engine, take_turn
from veilcast.sim.host import Birth, HostClock, MachineFactory, SimulatedHost
from veilcast.sim.links import ALWAYS_CONNECTED, CONNECTED, DISCONNECTED, DirectedLink, LinkDelays, Weather
from veilcast.sim.recorder import RowSink, RunRecorder
from veilcast.sim.run_digest import LINK
from veilcast.sim.wrappers import iterate_layers


def is_anonymous(peer: Address) -> bool:
    """True if a machine reaches this peer through the anonymous network."""
    return "@" in peer or peer.startswith(_INBOUND)


class AnonymousLinkEngine(Engine):
    """An engine with plain links, and with streams through an anonymous network.

    The called host does not learn which host calls. A machine calls the name `purpose@address` through this network.
    The host at that address knows the stream by a unique name (`in:17`). It can answer by that name while the stream is
    open, and learns nothing else. Two purposes are two streams, each with its own latency. Without an open stream,
    frames to such a name are lost. A stream is among its host's links while it is open.

    The network itself is not simulated. Partitions lie between the two ends of a stream, and an observer records of a
    frame that its sender sends into the network.
    """

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


EventSink: TypeAlias = Callable[[Address, Event, int], None]
"""Receives every event of every machine, with the world's time."""


class World(AnonymousLinkEngine):
    """Machines at addresses. `run` lets time pass; other methods are named for the fault that they cause."""

    def __init__(
        self,
        *,
        seed: int,
        links: LinkDelays | None = None,
        recorder: RowSink | None = None,
        run: str = "",
        epoch_us: int = 3_600_000_000,
        disk_us: int = 1_000,
        on_event: EventSink | None = None,
        replay: str = "",
    ) -> None:
        self.epoch_us = epoch_us
        recording = None if recorder is None else RunRecorder(recorder, run, epoch_us)
        super().__init__(seed, LinkDelays() if links is None else links, recording, replay or f"seed {seed}")
        self.start = START_US
        self.contains_faults = False
        """True for the few worlds that show how a machine continues after a fault of its own; elsewhere such a fault
        ends the run."""
        self._disk_us = disk_us
        self._on_event = on_event
        self._notes = 0
        self._event_checkers: list[Checker] = []
        self._end_checkers: list[Checker] = []

    # --- building

    def watch(self, checker: Checker) -> None:
        """Add a checker, before the first machine."""
        if self._hosts:
            raise LocalError("checkers come before the first machine, or they would miss what it does")
        for hook, checkers in (
            ("on_event", self._event_checkers),
            ("on_frames", self._frame_checkers),
            ("on_change", self._change_checkers),
            ("on_end", self._end_checkers),
        ):
            if overrides_hook(checker, hook):
                checkers.append(checker)

    def add(self, address: Address, factory: MachineFactory, after_us: int = 0) -> None:
        """Start a machine at this address, now or later; the same factory builds its later incarnations."""
        host = self._host(address)
        if host.factory is not None:
            raise ConfigError(f"{address} is in this world already")
        host.factory = factory
        if after_us:
            self.after(after_us, lambda: self.restart(address))
        else:
            self.restart(address)

    def connect(self, u: Address, v: Address) -> None:
        """Connect two addresses until one disconnects; their machines are told, now or when they start (again)."""
        if u == v:
            raise ConfigError(f"{u} cannot be connected to itself")
        self._connect(self._link(self._host(u), v), ALWAYS_CONNECTED)

    def label(self, topic: str, node: Address, role: str, since_us: int, until_us: int) -> None:
        """Record the truth about a node, for `lab.measure` alone."""
        if self._recorder is not None:
            self._recorder.truth(topic, node, role, since_us, until_us)

    # --- running and looking

    def run(self, duration_us: int) -> None:
        if self._recorder is not None:
            for edge in self._recorder.epoch_edges(self._time, self._time + duration_us):
                self._push(edge, None, None, self._record_epoch)
        super().run(duration_us)

    def finish(self) -> None:
        """Run every checker's `on_end`; raises `SimulationError`."""
        for checker in self._end_checkers:
            try:
                checker.on_end(self)
            except ViolationError as violation:
                raise self._failed(type(checker).__name__, violation) from violation

    def machine(self, address: Address) -> Any:
        """The running machine at this address, or None. Any, since each mode has its own methods."""
        host = self._hosts.get(address)
        return None if host is None else host.machine

    def incarnation(self, address: Address) -> int:
        """Number of restarts of this address; -1 before its first start."""
        host = self._hosts.get(address)
        return -1 if host is None else host.incarnation

    def clock(self, address: Address) -> int:
        """The time that the clock at this address shows."""
        host = self._hosts.get(address)
        return self._time if host is None or host.clock is None else host.clock.read(self._time)

    @property
    def deliveries(self) -> int:
        """Number of `Delivered` events."""
        return self._notes

    # --- what may befall a host, a link, or all

    def crash(self, address: Address) -> None:
        """End a machine: all that is not on its disk is lost, and so are frames to it until it restarts."""
        host = self._known(address)
        if host.machine is None:
            return
        self._trace.add_note(self._time, codes.CRASH, address.encode())
        self._lost += sum(link is not None for link, _ in host.waiting or ())
        host.clear()
        for link in list(host.links.values()):
            if link.connection == DISCONNECTED:
                continue
            if link.connection == CONNECTED:
                self._disconnect(link)
            self._tell_peer(link, "peer_lost", link.latency_us)

    def restart(self, address: Address) -> None:
        """Start the next incarnation of a machine that is down, with the contents of its disk."""
        host = self._known(address)
        if host.machine is not None or host.factory is None:
            return
        host.incarnation += 1
        self._trace.add_note(self._time, codes.BIRTH, address.encode())
        birth = Birth(address, host.incarnation, self.clock(address), dict(host.disk or {}), self.seed)
        host.machine = host.factory(birth)
        for layer in iterate_layers(host.machine):
            faults_of(layer).strict = not self.contains_faults
        if self._change_checkers:
            if not hasattr(host.machine, "version"):
                raise LocalError(f"a checker watches for changes, but the machine at {address} has no version")
            host.watched = True
        host.settle()
        self._push(self._time, host, None, take_turn)
        for link in host.links.values():
            if link.connection == ALWAYS_CONNECTED and link.target.machine is not None:
                self._tell_peer(self._link(link.target, address), "peer_up", 0)
                self._tell_peer(link, "peer_up", link.latency_us)
        if self._recorder is not None:
            self._record_host(host, self._recorder)

    def pause(self, address: Address) -> None:
        """Stop the process: everything that arrives waits."""
        host = self._known(address)
        if host.machine is not None and not host.paused:
            self._trace.add_note(self._time, codes.PAUSE, address.encode())
            host.paused = True
            if host.waiting is None:
                host.waiting = deque()
            host.settle()

    def resume(self, address: Address) -> None:
        """Continue the process: waiting entries come now, in their order, and then the timer if it is due."""
        host = self._known(address)
        if not host.paused:
            return
        self._trace.add_note(self._time, codes.RESUME, address.encode())
        host.paused = False
        # One turn for each entry in line, and one for what the machine had left when it was stopped. Entries that
        # arrive meanwhile join the end of the line: they must not overtake an older frame of their link.
        for _ in range(len(host.waiting or ()) + 1):
            self._push(self._time, host, None, take_turn)

    def cut(self, u: Address, v: Address) -> None:
        """Break the connections between these two, as a stream breaks: both are told, and must connect again."""
        for link in self._links_between(self._known(u), self._known(v)):
            if link.connection == CONNECTED:
                self._trace.add_note(self._time, codes.CUT, f"{u} {v}".encode())
                self._disconnect(link)
                self._tell_peer(link, "peer_lost", 0)
                self._tell_peer(self._reverse(link), "peer_lost", 0)

    def block(self, source: Address, destination: Address) -> None:
        """Lose all frames sent in this direction from now on. Frames in flight arrive, and the other direction stays
        open."""
        links = self._links_between(self._known(source), self._known(destination))
        self._trace.add_note(self._time, codes.BLOCK, f"{source} {destination}".encode())
        self._plain = self._calm = False
        for link in links:
            link.blocks += 1

    def unblock(self, source: Address, destination: Address) -> None:
        """Remove one block; a link that was blocked twice stays closed."""
        links = self._links_between(self._known(source), self._known(destination))
        if not links[0].blocks:
            return
        self._trace.add_note(self._time, codes.UNBLOCK, f"{source} {destination}".encode())
        for link in links:
            link.blocks -= 1
            if link.blocks == 0 and link.waiting is not None:
                for notice in link.waiting:
                    self._push(self._time + link.latency_us, link.target, None, notice)
                link.waiting = None

    def set_clock(self, address: Address, offset_us: int, drift_ppm: int) -> None:
        """Set a node's clock to this offset from the world's, and its drift; it never goes back."""
        host = self._known(address)
        self._trace.add_note(self._time, codes.CLOCK, b"%s %d %d" % (address.encode(), offset_us, drift_ppm))
        host.clock = HostClock(self._time, offset_us, drift_ppm, floor_us=self.clock(address))
        host.settle()
        if host.deadline is not None:
            self._arm(host, host.deadline)

    def set_weather(self, weather: Weather) -> None:
        """Set the faults of all links from now on."""
        self._trace.add_note(self._time, codes.WEATHER, msgspec.json.encode(weather))
        self._weather = weather
        self._plain = self._calm = False

    # --- what machines ask for

    def _handle_event(self, host: SimulatedHost, event: Event) -> None:
        self._trace.add_event(self._time, host.index, event)
        # `Listen` needs no action: every running host can be reached.
        if isinstance(event, Delivered):
            self._notes += 1
        elif isinstance(event, Record):
            self._write(host, event)
        elif isinstance(event, Settled):
            self._erase(host, event.record)
        elif isinstance(event, Connect):
            link = self._link_to_connect(host, event.peer)
            incarnation = host.incarnation
            self.after(2 * link.latency_us, lambda: self._answer_connect(host, incarnation, link))
        elif isinstance(event, Disconnect):
            link = self._link(host, event.peer)
            if link.connection != DISCONNECTED:
                self._disconnect(link)
                self._tell_peer(link, "peer_lost", link.latency_us)
        for checker in self._event_checkers:
            self._ask(checker, checker.on_event, host, event)
        if self._on_event is not None:
            self._on_event(host.address, event, self._time)

    def _write(self, host: SimulatedHost, record: Record) -> None:
        """The disk goes on writing while a process is paused. If the process dies, its buffer is lost."""
        machine = host.machine

        def written() -> None:
            if host.machine is machine:
                if host.disk is None:
                    host.disk = {}
                host.disk.pop(record.record, None)  # `Birth.stored` is in order of writing.
                host.disk[record.record] = record.data
                self._tell(host, "stored", record.record)

        self.after(self._disk_us, written)

    def _erase(self, host: SimulatedHost, record: int) -> None:
        """An erasure takes as long as a write, and does not happen if the process dies first."""
        machine = host.machine

        def erased() -> None:
            if host.machine is machine and host.disk is not None:
                host.disk.pop(record, None)

        self.after(self._disk_us, erased)

    def _answer_connect(self, host: SimulatedHost, incarnation: int, link: DirectedLink) -> None:
        """A round trip after `Connect`: connect the pair, if the peer is up and both directions are open.

        The caller always gets an answer, also if it is connected already. If a connection made by machines is blocked
        now, it ends on this side, and the peer is told when it can be.
        """
        if host.machine is None or host.incarnation != incarnation:
            return
        peer = self._reverse(link).source
        link = host.links.get(peer, link)  # A host that called twice has one stream.
        back = self._reverse(link)
        if link.target.machine is None or link.blocks or back.blocks:
            if link.connection == CONNECTED:
                self._disconnect(link)
                self._tell_peer(link, "peer_lost", link.latency_us)
            self._tell(host, "peer_lost", peer)
        elif link.connection == DISCONNECTED:
            self._connect(link, CONNECTED)
        else:
            self._tell_peer(back, "peer_up", 0)

    def _connect(self, link: DirectedLink, connection: int) -> None:
        back = self._reverse(link)
        host, target = back.target, link.target
        self._open_stream(link)
        link.connection = back.connection = connection
        link.connections = back.connections = link.connections + 1
        if host.machine is not None and target.machine is not None:
            self._tell_peer(back, "peer_up", 0)
            self._tell_peer(link, "peer_up", 0)
            if self._recorder is not None and link.back is None:
                self._recorder.pair(self._time, host.address, target.address)

    def _disconnect(self, link: DirectedLink) -> None:
        link.connection = self._reverse(link).connection = DISCONNECTED
        self._close_stream(link)

    def _tell_peer(self, link: DirectedLink, notice: str, delay_us: int) -> None:
        """Tell the machine at the end of a link, if it has this notice, about the one at its beginning.

        The notice belongs to one connection. It is dropped if the pair has connected again, or if the connection ended
        before it was known.
        """
        addressee, number = link.target.machine, link.connections
        if not hasattr(addressee, notice):
            return

        def deliver(machine: Any, now: int) -> None:
            if (
                machine is addressee
                and link.connections == number
                and (notice == "peer_lost" or link.connection != DISCONNECTED)
            ):
                getattr(machine, notice)(link.source, now)

        if link.blocks:
            link.wait(deliver)
        else:
            self._push(self._time + delay_us, link.target, None, deliver)

    def _tell(self, host: SimulatedHost, notice: str, about: Address | int) -> None:
        """Give a notice to the running machine, if it has that notice; never to its successor."""
        addressee = host.machine
        if not hasattr(addressee, notice):
            return

        def deliver(machine: Any, now: int) -> None:
            if machine is addressee:
                getattr(machine, notice)(about, now)

        self._push(self._time, host, None, deliver)

    def _record_epoch(self) -> None:
        """At the start of an epoch: record all running machines and connected pairs."""
        if self._recorder is not None:
            for host in self._hosts.values():
                if host.machine is not None:
                    self._record_host(host, self._recorder)

    def _record_host(self, host: SimulatedHost, recording: RunRecorder) -> None:
        recording.presence(self._time, host.address)
        for link in host.links.values():
            if link.connection != DISCONNECTED and link.back is None and link.target.machine is not None:
                recording.pair(self._time, host.address, link.target.address)


ANONYMOUS_NETWORK: Final = Address("@")
"""Destination of frames without an open stream. No host is there."""
_INBOUND: Final = "in:"
