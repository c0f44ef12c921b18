"""The world: a queue of what happens next, and the one loop that makes it happen.

A driver in the sense of `veilcast.machine`, with virtual time in place of a clock and `Link`s in place of sockets. All
that happens is an entry of the queue, so a run is decided by the order of the queue, and that by (time, sequence number)
alone. The world knows mechanisms (crash, pause, block, set a clock), not policies: those are in `faults`.

Links carry datagrams: a frame to any address travels, whether or not the two are connected. `connect`, and the events
`Connect` and `Disconnect`, make and end ties: pairs that are told of one another (`peer_up`, `peer_lost`) and that stand
in the topology table. Pauses and partitions are silent, as on a network; a crash is noticed by tied peers.
"""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final, TypeAlias

import msgspec

from veilcast.errors import ConfigError, LocalError
from veilcast.machine import Address, Connect, Delivered, Disconnect, Event, Machine, Record
from veilcast.sim import trace as codes
from veilcast.sim.agenda import BUCKET_BITS, Agenda
from veilcast.sim.chance import checked_seed
from veilcast.sim.checkers import Checker, Violation, overriding
from veilcast.sim.clock import Clock
from veilcast.sim.host import Birth, Factory, Host
from veilcast.sim.links import CALM, FIXED, TIED, UNTIED, Link, Links, Weather
from veilcast.sim.recording import Recorder, Recording
from veilcast.sim.trace import CHUNK, LOST, Trace

Call: TypeAlias = Callable[[Any, int], object]
"""What an owner does with a machine: `call(machine, now)`. Any, since each mode offers its own methods."""

EventSink: TypeAlias = Callable[[Address, Event, int], None]
"""Gets every event of every machine, with the world's time."""


class Failure(LocalError):
    """A checker's violation, or a machine that broke the contract; the text ends with the command that replays it."""


class Counts(msgspec.Struct, frozen=True):
    """Where all frames are: sent + duplicated = delivered + lost + in_flight, at every moment between two runs."""

    sent: int
    duplicated: int
    delivered: int
    lost: int
    in_flight: int


class World:
    """Hosts, links and a queue. Times in calls are microseconds from the world's present."""

    def __init__(
        self,
        *,
        seed: int,
        links: Links | None = None,
        checkers: Sequence[Checker] = (),
        recorder: Recorder | None = None,
        run: str = "",
        epoch_us: int = 3_600_000_000,
        disk_us: int = 1_000,
        on_event: EventSink | None = None,
        replay: str = "",
    ) -> None:
        self.seed = checked_seed(seed)
        self.start = START_US
        self._links = Links() if links is None else links
        self._weather = CALM
        self._recording = None if recorder is None else Recording(recorder, run, epoch_us)
        self._disk_us = disk_us
        self._on_event = on_event
        self._replay = replay or f"seed {seed}"
        self._trace = Trace()
        self._hosts: dict[Address, Host] = {}
        self._links_made = 0

        self._time = START_US
        self._agenda = Agenda()
        self._sequence = count().__next__
        # False once a frame's arrival may be anything but "now plus the latency of its link".
        self._plain = self._links.jitter_us == (0,)
        self._failure: Failure | None = None

        self._sent = self._duplicated = self._delivered = self._lost = 0
        self._notes = 0
        self._checkers = tuple(checkers)
        self._event_checkers = overriding(checkers, "on_event")
        self._change_checkers = overriding(checkers, "on_change")

    # --- building ------------------------------------------------------------------------------------------------

    def add(self, address: Address, factory: Factory) -> None:
        """Start a machine at this address; the same factory builds its later incarnations."""
        host = self._host(address)
        if host.factory is not None:
            raise ConfigError(f"{address} is in this world already")
        host.factory = factory
        self.restart(address)

    def connect(self, u: Address, v: Address) -> None:
        """Tie two addresses for the whole run; their machines are told, now or when they come (back) up."""
        if u == v:
            raise ConfigError(f"{u} cannot be connected to itself")
        self._tie(self._link(self._host(u), v), FIXED)

    def label(self, topic: str, node: Address, role: str, since_us: int, until_us: int) -> None:
        """Write down the truth about a node, for `lab.measure` alone."""
        if self._recording is not None:
            self._recording.truth(topic, node, role, since_us, until_us)

    # --- running -------------------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """The world's time: Unix-like, in microseconds."""
        return self._time

    def after(self, delay_us: int, action: Callable[[], object]) -> None:
        """Do this to the world when its time comes."""
        self._push(self._time + delay_us, None, None, action)

    def call(self, address: Address, call: Call) -> None:
        """Let the owner of a machine call it, next in line. A paused machine gets the call later, a dead one never."""
        self._push(self._time, self._host(address), None, call)

    def run(self, duration_us: int) -> None:
        """Let this much time pass; raises `Failure`."""
        if self._failure is not None:
            raise self._failure
        if duration_us < 0:
            raise LocalError("time does not go back")
        end = self._time + duration_us
        if self._recording is not None:
            self._survey()
            for edge in self._recording.epoch_edges(self._time, end):
                self._push(edge, None, None, self._survey)
        self._agenda.push((end, _LAST, None, None, None))
        # The loop makes tuples and frames that die by reference count, and the queue keeps up to 10^5 of them alive: the
        # cycle collector would walk these over and over and find nothing. It is off for the length of one call.
        collecting = gc.isenabled()
        gc.disable()
        try:
            self._loop()
        except Failure as failure:
            self._failure = failure
            raise
        finally:
            if collecting:
                gc.enable()

    def finish(self) -> None:
        """Ask every checker for its last word; raises `Failure`."""
        for checker in overriding(self._checkers, "on_end"):
            try:
                checker.on_end(self)
            except Violation as violation:
                raise self._failed(type(checker).__name__, violation) from violation

    # --- looking -------------------------------------------------------------------------------------------------

    def machine(self, address: Address) -> Any:
        """The machine that lives at this address, or None. Any, since each mode offers its own methods."""
        return self._host(address).machine

    def incarnation(self, address: Address) -> int:
        """How often this address has been started again; -1 before its first life."""
        return self._host(address).incarnation

    def clock(self, address: Address) -> int:
        """What the clock at this address shows now."""
        clock = self._host(address).clock
        return self._time if clock is None else clock.read(self._time)

    @property
    def addresses(self) -> tuple[Address, ...]:
        return tuple(host.address for host in self._hosts.values() if host.factory is not None)

    @property
    def counts(self) -> Counts:
        flying = sum(entry[3] is not None for entry in self._agenda)
        held = sum(link is not None for host in self._hosts.values() for link, _ in host.held or ())
        return Counts(self._sent, self._duplicated, self._delivered, self._lost, flying + held)

    @property
    def notes(self) -> int:
        """How many `Delivered` events there have been."""
        return self._notes

    @property
    def trace_hash(self) -> str:
        return self._trace.digest()

    # --- mechanisms of faults ------------------------------------------------------------------------------------

    def crash(self, address: Address) -> None:
        """End a machine: all that is not on its disk is gone, and frames to it are lost until it restarts."""
        host = self._host(address)
        if host.machine is None:
            return
        self._trace.note(self._time, codes.CRASH, address.encode())
        self._lost += sum(link is not None for link, _ in host.held or ())
        host.clear()
        for link in host.links.values():
            if link.tie == UNTIED:
                continue
            if link.tie == TIED:
                self._untie(link)
            self._tell(link.target, "peer_lost", address, link.latency_us)

    def restart(self, address: Address) -> None:
        """Start the next incarnation of a machine that is down; it gets what the disk holds."""
        host = self._host(address)
        if host.machine is not None or host.factory is None:
            return
        host.incarnation += 1
        self._trace.note(self._time, codes.BIRTH, address.encode())
        birth = Birth(address, host.incarnation, self.clock(address), dict(host.disk or {}), self.seed)
        host.machine = host.factory(birth)
        if self._change_checkers:
            if not hasattr(host.machine, "version"):
                raise LocalError(f"the machine at {address} has no version, but a checker watches for changes")
            host.watched = True
            host.version = host.machine.version
        host.settle()
        self._push(self._time, host, None, _nothing)
        for link in host.links.values():
            if link.tie == FIXED and link.target.machine is not None:
                self._tell(host, "peer_up", link.target.address, 0)
                self._tell(link.target, "peer_up", address, link.latency_us)

    def pause(self, address: Address) -> None:
        """Stop the process: all that comes for it waits."""
        host = self._host(address)
        if host.machine is not None and host.held is None:
            self._trace.note(self._time, codes.PAUSE, address.encode())
            host.held = []
            host.settle()

    def resume(self, address: Address) -> None:
        """Continue the process: what has waited comes now, in its order, and then the timer if it is due."""
        host = self._host(address)
        if host.held is None:
            return
        self._trace.note(self._time, codes.RESUME, address.encode())
        held, host.held = host.held, None
        host.settle()
        for link, data in held:
            self._push(self._time, host, link, data)
        if host.deadline is not None:
            self._arm(host, host.deadline)

    def block(self, source: Address, destination: Address) -> None:
        """Lose every frame sent this way from now on; frames under way still arrive, and the other way stays open."""
        self._note_pair(codes.BLOCK, source, destination)
        self._plain = False
        self._link(self._host(source), destination).blocks += 1

    def unblock(self, source: Address, destination: Address) -> None:
        """Take one block away; a way that was blocked twice stays closed."""
        link = self._link(self._host(source), destination)
        if link.blocks:
            self._note_pair(codes.UNBLOCK, source, destination)
            link.blocks -= 1

    def set_clock(self, address: Address, offset_us: int, drift_ppm: int) -> None:
        """Put a node's clock ahead or back, and let it run fast or slow; it never shows less than it has shown."""
        host = self._host(address)
        self._trace.note(self._time, codes.CLOCK, b"%s %d %d" % (address.encode(), offset_us, drift_ppm))
        host.clock = Clock(self._time, offset_us, drift_ppm, floor_us=self.clock(address))
        host.settle()
        if host.deadline is not None:
            self._arm(host, host.deadline)

    def set_weather(self, weather: Weather) -> None:
        """What goes wrong on the links from now on."""
        self._trace.note(self._time, codes.WEATHER, msgspec.json.encode(weather))
        self._weather = weather
        self._plain = False

    # --- the loop ------------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        # The shape of this loop is its speed. An entry of the agenda is (time, sequence, host, link, data) and one of
        #
        #     a frame:         host, link, bytes          a call of the owner, or a notice:   host, None, callable
        #     a timer:         host, None, None           an action on the world:             None, None, callable
        #     the end of run:  None, None, None
        #
        # The first three move a machine and are followed by the same three questions, in the order the contract
        # names: frames, events, timer. What is rare (down, paused or skewed hosts, weather, events) leaves the loop for
        # a method; what every frame needs is inlined and held in local names, down to the records of the trace.
        agenda, sequence = self._agenda, self._sequence
        buckets, push = agenda.buckets, agenda.push
        trace = self._trace
        records, recording, limit = trace.records, self._recording, FRAMES_LIMIT
        host: Host | None = None
        time, number = self._time, 0
        try:
            while True:
                for time, number, host, link, data in agenda.open():
                    self._time = now = time
                    if host is None:
                        if data is None:
                            return
                        data()
                        continue
                    if host.unusual:
                        now = self._admit(host, link, data)
                        if now == _NEVER:
                            continue
                    machine = host.machine
                    if link is not None:
                        self._delivered += 1
                        machine.receive(data, link.source, now)
                    elif data is not None:
                        data(machine, now)
                    elif self._is_due(host, now):
                        machine.handle_timer(now)
                    else:
                        continue

                    frames = machine.frames_to_send(now, limit)
                    if frames:
                        self._sent += len(frames)
                        links = host.links
                        for frame in frames:
                            way = links.get(frame.destination) or self._link(host, frame.destination)
                            payload = frame.data
                            if self._plain:
                                arrival = time + way.latency_us
                                entry = (arrival, sequence(), way.target, way, payload)
                                bucket = buckets.get(arrival >> BUCKET_BITS)
                                if bucket is None:
                                    push(entry)
                                else:
                                    bucket.append(entry)
                                records += (arrival, way.number, payload)
                            else:
                                self._carry(way, payload)
                            if recording is not None:
                                recording.cell(time, host.address, frame.destination, len(payload))
                        if len(records) >= CHUNK:
                            trace.flush()
                        if len(frames) >= limit:
                            self._another_turn(host, len(frames))

                    event = machine.next_event()
                    while event is not None:
                        self._take(host, event)
                        event = machine.next_event()

                    deadline = machine.next_timer()
                    if deadline != host.deadline:
                        host.deadline = deadline
                        if deadline is not None:
                            self._arm(host, deadline)

                    if host.watched and machine.version != host.version:
                        host.version = machine.version
                        for checker in self._change_checkers:
                            self._ask(checker, checker.on_change, host, machine)
        except Failure:
            raise
        except Exception as error:
            raise self._failed("the world" if host is None else host.address, error) from error
        finally:
            agenda.close(time, number)

    def _admit(self, host: Host, link: Link | None, data: Any) -> int:
        """What the clock of an unusual host shows, or `_NEVER` when it does not get this entry now."""
        if host.machine is None:
            self._lost += link is not None
            return _NEVER
        if host.held is not None:
            if link is None and data is None:
                # A timer need not wait in line: it is armed again from the machine's deadline on `resume`.
                if host.alarms and host.alarms[-1] == self._time:
                    host.alarms.pop()
            else:
                host.held.append((link, data))
            return _NEVER
        return self._time if host.clock is None else host.clock.read(self._time)

    def _is_due(self, host: Host, now: int) -> bool:
        """Take the alarm that woke this host, and say whether its machine has something due."""
        if not host.alarms or host.alarms[-1] != self._time:
            return False  # It was armed for an incarnation that is gone.
        host.alarms.pop()
        deadline, host.deadline = host.deadline, None
        if deadline is None:
            return False
        if deadline > now:
            host.deadline = deadline
            self._arm(host, deadline)
            return False
        return True

    def _arm(self, host: Host, deadline: int) -> None:
        when = deadline if host.clock is None else host.clock.when(deadline)
        if when <= self._time:
            when = self._time
            self._count_turn(host)
        if not host.alarms or when < host.alarms[-1]:
            host.alarms.append(when)
            self._push(when, host, None, None)

    def _another_turn(self, host: Host, frames: int) -> None:
        """A full batch of frames: the machine may have more, so it is asked again, after what else happens now."""
        if frames > FRAMES_LIMIT:
            raise LocalError(f"frames_to_send gave {frames} frames, {FRAMES_LIMIT} were allowed")
        self._count_turn(host)
        self._push(self._time, host, None, _nothing)

    def _count_turn(self, host: Host) -> None:
        if host.turns_at != self._time:
            host.turns_at = self._time
            host.turns = 0
        host.turns += 1
        if host.turns > TURNS_LIMIT:
            raise LocalError(f"{TURNS_LIMIT} turns at one instant: its timer stays due, or its frames never end")

    def _carry(self, link: Link, data: bytes) -> None:
        """Send one frame through the weather."""
        arrivals = link.arrivals(self._time, self.seed, self._links.jitter_us, self._weather)
        for arrival in arrivals:
            self._push(arrival, link.target, link, data)
            self._trace.note(arrival, link.number, data)
        if len(arrivals) == 2:
            self._duplicated += 1
        elif not arrivals:
            self._lost += 1
            self._trace.note(LOST, link.number, data)

    def _take(self, host: Host, event: Event) -> None:
        """Act on what a machine tells or asks. `Listen` needs no act: every host that is up can be reached."""
        self._trace.event(self._time, host.index, event)
        if isinstance(event, Delivered):
            self._notes += 1
        elif isinstance(event, Record):
            self._write(host, event)
        elif isinstance(event, Connect):
            link = self._link(host, event.peer)
            self.after(2 * link.latency_us, lambda: self._answer(host, host.incarnation, link))
        elif isinstance(event, Disconnect):
            link = self._link(host, event.peer)
            if link.tie != UNTIED:
                self._untie(link)
                self._tell(link.target, "peer_lost", host.address, link.latency_us)
        for checker in self._event_checkers:
            self._ask(checker, checker.on_event, host, event)
        if self._on_event is not None:
            self._on_event(host.address, event, self._time)

    def _write(self, host: Host, record: Record) -> None:
        """The disk writes on while a process is paused, but not for one that has died: its buffer is gone."""
        machine = host.machine

        def written() -> None:
            if host.machine is machine:
                if host.disk is None:
                    host.disk = {}
                host.disk[record.record] = record.data
                self._tell(host, "stored", record.record, 0)

        self.after(self._disk_us, written)

    def _answer(self, host: Host, incarnation: int, link: Link) -> None:
        """A round trip after `Connect`: the pair is tied if the peer is up and both ways are open."""
        if host.machine is None or host.incarnation != incarnation or link.tie != UNTIED:
            return
        back = self._link(link.target, host.address)
        if link.target.machine is None or link.blocks or back.blocks:
            self._tell(host, "peer_lost", link.target.address, 0)
        else:
            self._tie(link, TIED)

    def _tie(self, link: Link, tie: int) -> None:
        host, target = self._host(link.source), link.target
        link.tie = self._link(target, host.address).tie = tie
        if host.machine is not None and target.machine is not None:
            self._tell(host, "peer_up", target.address, 0)
            self._tell(target, "peer_up", host.address, 0)
            if self._recording is not None:
                self._recording.pair(self._time, host.address, target.address)

    def _untie(self, link: Link) -> None:
        link.tie = self._link(link.target, link.source).tie = UNTIED

    def _tell(self, host: Host, notice: str, about: Address | int, delay_us: int) -> None:
        """Give a notice to the machine that is up now, if it has that notice; never to its successor."""
        addressee = host.machine
        if not hasattr(addressee, notice):
            return

        def told(machine: Any, now: int) -> None:
            if machine is addressee:
                getattr(machine, notice)(about, now)

        self._push(self._time + delay_us, host, None, told)

    def _survey(self) -> None:
        """At the start and at every edge of an epoch: who is up, and which pairs are tied."""
        recording = self._recording
        if recording is None:
            return
        for host in self._hosts.values():
            if host.machine is None:
                continue
            recording.presence(self._time, host.address)
            for link in host.links.values():
                if link.tie != UNTIED and link.target.machine is not None:
                    recording.pair(self._time, host.address, link.target.address)

    def _ask(self, checker: Checker, hook: Callable[[World, Address, Any], None], host: Host, what: Any) -> None:
        try:
            hook(self, host.address, what)
        except Violation as violation:
            raise self._failed(type(checker).__name__, violation) from violation

    def _failed(self, who: str, error: Exception) -> Failure:
        what = str(error)
        if not isinstance(error, Violation):
            last = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__} at {last.name}:{last.lineno}: {error}"
        elapsed = self._time - self.start
        return Failure(f"{who}: {what} ({elapsed} us into the run)\nreplay: {self._replay}")

    def _host(self, address: Address) -> Host:
        host = self._hosts.get(address)
        if host is None:
            if len(self._hosts) >= HOSTS_LIMIT:
                raise LocalError(f"more than {HOSTS_LIMIT} addresses")
            host = self._hosts[address] = Host(len(self._hosts), address)
        return host

    def _link(self, host: Host, destination: Address) -> Link:
        link = host.links.get(destination)
        if link is None:
            latency = self._links.latency_between(host.address, destination, self.seed)
            link = Link(self._links_made, host.address, self._host(destination), latency)
            self._links_made += 1
            self._note_pair(codes.LINK, host.address, destination)
            host.links[destination] = link
        return link

    def _note_pair(self, code: int, source: Address, destination: Address) -> None:
        self._trace.note(self._time, code, f"{source} {destination}".encode())

    def _push(self, time: int, host: Host | None, link: Link | None, data: Any) -> None:
        self._agenda.push((time, self._sequence(), host, link, data))


def _nothing(machine: Machine, now: int) -> None:
    """A call that only gives a machine its turn."""


START_US: Final = 1_767_225_600_000_000
"""Every world begins at the same moment: the first of January 2026, UTC."""
FRAMES_LIMIT: Final = 64
"""Frames a machine may hand over in one call."""
TURNS_LIMIT: Final = 10_000
"""Turns a host may ask for at one instant before it is called stuck."""
HOSTS_LIMIT: Final = 10_000_000
_LAST: Final = 1 << 62
"""After every sequence number: the end of a run comes after all else of its moment."""
_NEVER: Final = -1
