"""The engine: a queue of events, and the loop that processes them.

The engine is a driver in the sense of `veilcast.machine`, with virtual time in place of a clock and `DirectedLink` in
place of sockets. Everything that happens is an entry of the event queue. The order of the queue decides a run, and
(time, sequence number) alone decides that order. `world.World` is built on this class and says what entries mean for
hosts, disks and connections.

Why the queue is no heap: a heap pays for its depth at every step, mostly in cache misses. With 10^5 frames in flight
that costs more than all else in a step. Only the next few entries need an order. So entries are appended to buckets of
8,192 microseconds, a heap holds the few bucket numbers, and a bucket is sorted once, when its time has come. The order
is exactly that of a heap.
"""

from __future__ import annotations

import gc
import traceback
from abc import ABC, abstractmethod
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, TypeAlias

import msgspec

from veilcast.errors import LocalError
from veilcast.machine import Address, Event, Frame, Machine
from veilcast.sim.checkers import Checker, ViolationError
from veilcast.sim.host import SimulatedHost
from veilcast.sim.links import CALM, DirectedLink, LinkDelays, Weather
from veilcast.sim.recorder import RunRecorder
from veilcast.sim.rng import check_seed
from veilcast.sim.run_digest import CHUNK, LINK, LOST, SENT, RunDigest

QueueEntry: TypeAlias = tuple[int, int, SimulatedHost | None, DirectedLink | None, Any]
"""Time, sequence number, and the event; see `Engine._loop`. No two entries have the same first two fields."""


class EventQueue:
    """`buckets` is public for the engine's loop, which appends an entry directly if its bucket exists."""

    __slots__ = ("_numbers", "_open", "buckets")

    def __init__(self) -> None:
        self.buckets: dict[int, list[QueueEntry]] = {}
        self._numbers: list[int] = []
        # The bucket that is being processed; not among `buckets`, since it must stay sorted.
        self._open: list[QueueEntry] | None = None

    def push(self, entry: QueueEntry) -> None:
        """Add an entry. While a bucket is open, the entry must not belong before the current one."""
        number = entry[0] >> BUCKET_BITS
        bucket = self.buckets.get(number)
        if bucket is not None:
            bucket.append(entry)
        elif self._open and number <= self._open[0][0] >> BUCKET_BITS:
            insort(self._open, entry)
        else:
            self.buckets[number] = [entry]
            heappush(self._numbers, number)

    def open(self) -> list[QueueEntry]:
        """The next bucket, to be iterated over. Entries pushed into it meanwhile appear in their place."""
        number = heappop(self._numbers)
        bucket = self._open = self.buckets.pop(number)
        bucket.sort()
        return bucket

    def close(self, time: int, sequence: int) -> None:
        """Put back the entries of the open bucket after this one, which was the last to be processed."""
        bucket, self._open = self._open or [], None
        for entry in bucket[bisect_right(bucket, (time, sequence + 1)) :]:
            self.push(entry)

    def remove(self, entry: QueueEntry) -> None:
        """Remove an entry if it is still in the queue; only while no bucket is open."""
        bucket = self.buckets.get(entry[0] >> BUCKET_BITS, [])
        if entry in bucket:
            bucket.remove(entry)

    def __iter__(self) -> Iterator[QueueEntry]:
        """All entries, unordered, for counting; only while no bucket is open."""
        for bucket in self.buckets.values():
            yield from bucket


BUCKET_BITS: Final = 13

OwnerCall: TypeAlias = Callable[[Any, int], object]
"""An owner's call of a machine: `call(machine, now)`. The machine is Any, since each mode has its own methods."""


class SimulationError(LocalError):
    """A checker's violation, or a machine that broke the contract; ends with the command that replays the run."""


class FrameCounts(msgspec.Struct, frozen=True):
    """All frames of a run: sent + duplicated = delivered + lost + in_flight, whenever the engine is not running."""

    sent: int
    duplicated: int
    delivered: int
    lost: int
    in_flight: int


class Engine(ABC):
    """Hosts, links, an event queue, and time. Times in calls are microseconds from now."""

    def __init__(self, seed: int, links: LinkDelays, recording: RunRecorder | None, replay: str) -> None:
        self.seed = check_seed(seed)
        self._time = START_US
        self._queue = EventQueue()
        self._sequence = count().__next__
        self._hosts: dict[Address, SimulatedHost] = {}
        self._links = links
        self._links_made = 0
        self._weather: Weather = CALM
        # Calm: every frame arrives at "now plus the latency of its link". Plain: calm, and no recorder, so that the
        # loop can send a frame without further checks.
        self._calm = links.is_constant
        self._plain = self._calm and recording is None
        self._trace = RunDigest()
        self._recorder = recording
        self._change_checkers: list[Checker] = []
        self._frame_checkers: list[Checker] = []
        self._sent = self._duplicated = self._delivered = self._lost = 0
        self._replay = replay
        self._failure: SimulationError | None = None

    @property
    def now(self) -> int:
        """The world's time: Unix-like, in microseconds."""
        return self._time

    @property
    def counts(self) -> FrameCounts:
        flying = sum(entry[3] is not None for entry in self._queue)
        waiting = sum(link is not None for host in self._hosts.values() for link, _ in host.waiting or ())
        return FrameCounts(self._sent, self._duplicated, self._delivered, self._lost, flying + waiting)

    @property
    def trace_hash(self) -> str:
        """Equal for two runs exactly if nothing observable differs between them."""
        return self._trace.digest()

    def after(self, delay_us: int, action: Callable[[], object]) -> None:
        """Run an action on the world after this delay."""
        if delay_us < 0:
            raise LocalError("what is past cannot be changed")
        self._push(self._time + delay_us, None, None, action)

    def call(self, address: Address, call: OwnerCall) -> None:
        """Let a machine's owner call it next. A paused machine is called later, a dead one never."""
        self._push(self._time, self._known(address), None, call)

    def run(self, duration_us: int) -> None:
        """Let this much time pass. After a `SimulationError`, every further call raises it again."""
        if self._failure is not None:
            raise self._failure
        if duration_us < 0:
            raise LocalError("time does not go back")
        end = (self._time + duration_us, _LAST, None, None, None)
        self._queue.push(end)
        # The loop makes tuples and frames that die by reference count, and the queue keeps up to 10^5 of them
        # alive. The cycle collector would walk these repeatedly and find nothing, so it is off in this loop.
        collecting = gc.isenabled()
        gc.disable()
        try:
            self._loop()
        except SimulationError as failure:
            self._failure = failure
            raise
        except BaseException:
            self._queue.remove(end)  # Interrupted: the next run has its own end.
            raise
        finally:
            if collecting:
                gc.enable()

    def _loop(self) -> None:
        # The shape of this loop is its speed. An entry of the queue is (time, sequence, host, link, data):
        #
        #     host, link, bytes         a frame arrives
        #     host, None, None          a timer
        #     host, None, callable      a call of the owner, or a notice
        #     None, None, callable      an action on the world
        #     None, None, None          the end of this run
        #
        # The first three are steps of a machine. After each step the machine is asked for frames, events and timer,
        # in the order of the contract. Rare cases (hosts that are down, paused or skewed, link faults, events) are
        # methods; what every frame needs is inlined and kept in local names. An owner may end a machine in the
        # middle of its step; nothing more is asked of it then.
        queue, sequence, limit = self._queue, self._sequence, FRAMES_LIMIT
        buckets, push = queue.buckets, queue.push
        trace, records = self._trace, self._trace.records
        host: SimulatedHost | None = None
        time, number = self._time, 0
        sent = delivered = 0
        try:
            while True:
                for time, number, host, link, data in queue.open():  # noqa: B007 - `close` needs the number
                    self._time = now = time
                    if host is None:
                        if data is None:
                            return
                        data()
                        continue
                    if host.unusual:
                        now, link, data = self._admit(host, link, data)
                        if now == _NEVER:
                            continue
                    machine = host.machine
                    if link is not None:
                        delivered += 1
                        machine.receive(data, link.source, now)
                    elif data is not None:
                        data(machine, now)
                        if host.machine is not machine:
                            continue
                    elif self._is_due(host, now):
                        machine.handle_timer(now)
                    else:
                        continue

                    frames = machine.frames_to_send(now, limit)
                    if frames:
                        sent += len(frames)
                        for checker in self._frame_checkers:
                            self._ask(checker, checker.on_frames, host, frames)
                        if self._plain:
                            links = host.links
                            for frame in frames:
                                destination, payload = frame.destination, frame.data
                                link = links.get(destination) or self._link(host, destination)
                                arrival = time + link.latency_us
                                entry = (arrival, sequence(), link.target, link, payload)
                                bucket = buckets.get(arrival >> BUCKET_BITS)
                                if bucket is None:
                                    push(entry)
                                else:
                                    bucket.append(entry)
                                records += (arrival, link.number, payload)
                            if len(records) >= CHUNK:
                                trace.flush()
                        else:
                            self._send(host, frames)
                        if len(frames) >= limit:
                            self._give_turn(host, len(frames))

                    event = machine.next_event()
                    if event is not None:
                        self._handle_event(host, event)
                        if host.machine is machine and (event := machine.next_event()) is not None:
                            self._handle_more_events(host, machine, event)
                        if host.machine is not machine:
                            continue

                    deadline = machine.next_timer()
                    if deadline != host.deadline:
                        host.deadline = deadline
                        if deadline is not None:
                            self._arm(host, deadline)

                    if host.watched and machine.version != host.version:
                        host.version = machine.version
                        for checker in self._change_checkers:
                            self._ask(checker, checker.on_change, host, machine)
        except SimulationError:
            raise
        except Exception as error:
            raise self._failed("the world" if host is None else host.address, error) from error
        finally:
            queue.close(time, number)
            self._sent += sent
            self._delivered += delivered

    def _admit(self, host: SimulatedHost, link: DirectedLink | None, data: Any) -> tuple[int, DirectedLink | None, Any]:
        """The time on the clock of an unusual host, or `_NEVER`, and the entry to process now.

        While entries wait in line, that is the first of them, and this entry goes to the end. Turns do not wait: they
        move the line.
        """
        if host.machine is None:
            self._lost += link is not None
            return _NEVER, link, data
        if host.waiting is not None:
            if link is None and data is None:
                # A timer does not wait either: it is armed again, from the machine's deadline, after the line.
                if host.wakeups and host.wakeups[-1] == self._time:
                    host.wakeups.pop()
                return _NEVER, link, data
            if data is not take_turn:
                host.waiting.append((link, data))
            if host.paused:
                return _NEVER, link, data
            if host.waiting:
                link, data = host.waiting.popleft()
            if not host.waiting:
                host.waiting = None
                host.settle()
                if host.deadline is not None:
                    self._arm(host, host.deadline)
        return self._time if host.clock is None else host.clock.read(self._time), link, data

    def _is_due(self, host: SimulatedHost, now: int) -> bool:
        """Remove the wake-up time that woke this host. Returns True if its machine has a timer due."""
        if not host.wakeups or host.wakeups[-1] != self._time:
            return False  # It was armed for an incarnation that is gone.
        host.wakeups.pop()
        deadline, host.deadline = host.deadline, None
        if deadline is None:
            return False
        if deadline > now:
            host.deadline = deadline
            self._arm(host, deadline)
            return False
        return True

    def _arm(self, host: SimulatedHost, deadline: int) -> None:
        when = deadline if host.clock is None else host.clock.when(deadline)
        if when <= self._time:
            when = self._time
            self._count_turn(host)
        if not host.wakeups or when < host.wakeups[-1]:
            host.wakeups.append(when)
            self._push(when, host, None, None)

    def _give_turn(self, host: SimulatedHost, frames: int) -> None:
        """After a full batch a machine may have more frames: ask it again, after all other events of this moment."""
        if frames > FRAMES_LIMIT:
            raise LocalError(f"frames_to_send gave {frames} frames, {FRAMES_LIMIT} were allowed")
        self._count_turn(host)
        self._push(self._time, host, None, take_turn)

    def _count_turn(self, host: SimulatedHost) -> None:
        if host.turns_at != self._time:
            host.turns_at = self._time
            host.turns = 0
        host.turns += 1
        if host.turns > TURNS_LIMIT:
            raise LocalError(f"{TURNS_LIMIT} turns at one instant: its timer stays due, or its frames never end")

    def _send(self, host: SimulatedHost, frames: list[Frame]) -> None:
        """Send frames with link faults, or for a recorder: the cases that the loop leaves out."""
        if not self._calm:
            self._trace.add_note(self._time, SENT, b"")
        for frame in frames:
            link, data = self._link(host, frame.destination), frame.data
            if self._recorder is not None:
                self._recorder.cell(self._time, host.address, self._observed_destination(frame.destination), len(data))
            arrivals: tuple[int, ...] = (self._time + link.latency_us,)
            if not self._calm:
                arrivals = link.arrivals(self._time, self.seed, self._links, self._weather)
            for arrival in arrivals:
                self._push(arrival, link.target, link, data)
                self._trace.add_note(arrival, link.number, data)
            if arrivals:
                self._duplicated += len(arrivals) - 1
            else:
                self._lost += 1
                self._trace.add_note(LOST, link.number, data)

    def _handle_more_events(self, host: SimulatedHost, machine: Machine, event: Event) -> None:
        """Process the second and all later events of a step, up to the last or to the machine's end."""
        for _ in range(1, EVENTS_LIMIT):
            self._handle_event(host, event)
            following = machine.next_event() if host.machine is machine else None
            if following is None:
                return
            event = following
        raise LocalError(f"more than {EVENTS_LIMIT} events in one step: they never end")

    def _observed_destination(self, destination: Address) -> Address:
        """The destination that an observer of all links sees."""
        return destination

    @abstractmethod
    def _handle_event(self, host: SimulatedHost, event: Event) -> None:
        """Act on a machine's event."""

    def _ask(self, checker: Checker, hook: Callable[[Any, Address, Any], None], host: SimulatedHost, what: Any) -> None:
        try:
            hook(self, host.address, what)
        except ViolationError as violation:
            raise self._failed(type(checker).__name__, violation) from violation

    def _failed(self, who: str, error: Exception) -> SimulationError:
        what = str(error)
        if not isinstance(error, ViolationError):
            last = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__} in {last.name}, line {last.lineno}: {error}"
        return SimulationError(f"{who}: {what} ({self._time - START_US} us into the run)\nreplay: {self._replay}")

    def _known(self, address: Address) -> SimulatedHost:
        """The host of an address that was added; only there can anything happen."""
        host = self._hosts.get(address)
        if host is None or host.factory is None:
            raise LocalError(f"nobody was added to this world as {address}")
        return host

    def _host(self, address: Address) -> SimulatedHost:
        """The host of any address, also one that machines only talk about."""
        host = self._hosts.get(address)
        if host is None:
            if len(self._hosts) >= HOSTS_LIMIT:
                raise LocalError(f"more than {HOSTS_LIMIT} addresses")
            host = self._hosts[address] = SimulatedHost(len(self._hosts), address)
        return host

    def _link(self, host: SimulatedHost, destination: Address) -> DirectedLink:
        link = host.links.get(destination)
        if link is None:
            target = self._host(destination)
            back = target.links.get(host.address)
            if back is None:
                latency_us = self._links.latency_between(host.address, destination, self.seed)
            else:
                latency_us = back.latency_us
            link = DirectedLink(self._links_made, host.address, target, latency_us)
            self._links_made += 1
            self._trace.add_note(self._time, LINK, f"{host.address} {destination}".encode())
            host.links[destination] = link
        return link

    def _push(self, time: int, host: SimulatedHost | None, link: DirectedLink | None, data: Any) -> None:
        self._queue.push((time, self._sequence(), host, link, data))


def take_turn(machine: Machine, now: int) -> None:
    """A call that changes nothing: the machine is asked for its frames, events and timer."""


START_US: Final = 1_767_225_600_000_000
"""Every world begins at the same moment: 1 January 2026, UTC."""
FRAMES_LIMIT: Final = 64
"""Most frames that a machine may hand over in one call."""
TURNS_LIMIT: Final = 10_000
"""Most turns of a host at one instant; with more it counts as stuck."""
EVENTS_LIMIT: Final = 100_000
"""Most events that a machine may emit in one step; with more they count as endless."""
HOSTS_LIMIT: Final = 10_000_000
_LAST: Final = 1 << 62
"""Higher than every sequence number: the end of a run comes after all other events of its moment."""
_NEVER: Final = -1
