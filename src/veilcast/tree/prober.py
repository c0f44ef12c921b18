"""The prober: a subscriber sends messages along its own trees, and checks whether they come back.

A probe looks like any message in transit: random bytes of a usual size for one entry of one node, sent through the
anonymous network. It must reach the subscriber through all nodes above that node. A probe has four outcomes: it
returns; the node does not know the entry; the node is unreachable; or the node accepts it and it never arrives.

While a tree is new, the prober probes all its nodes in turn, and quickly; later occasionally, and the guards, on which
everything depends, more often. Stops in question (`probe_soon`) are probed first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from random import Random
from typing import Final, TypeAlias

from veilcast.core.stream_purpose import name_stream
from veilcast.core.timers import Timers, earliest
from veilcast.crypto.seal import OVERHEAD
from veilcast.machine import Address, Entropy
from veilcast.tree.config import TreeConfig
from veilcast.tree.live_tree import Stop
from veilcast.tree.streams import PROBE_STREAM, SLOW_FACTOR, Answer, RequestStreams, fresh_purpose
from veilcast.tree.subscriber import EpochTree
from veilcast.wire.geometry import BODY_CLASSES, NOTE_ID
from veilcast.wire.tree import ForwardPublication, RefusalCode, RequestAck, RequestRefused


class ProbeOutcome(Enum):
    RETURNED = auto()
    MISSING = auto()
    """The node does not know the entry."""
    AWAY = auto()
    """The node did not answer."""
    LOST = auto()
    """The node accepted the probe, and it did not arrive."""


OnOutcome: TypeAlias = Callable[[EpochTree, Stop, Sequence[bytes], ProbeOutcome, int], None]
"""Receives the outcome of a probe, the stop at which it entered, and the nodes on its path."""


class TreeProber:
    """Bounded: `probes_max` probes in flight, and as many stops that are to be probed first."""

    def __init__(
        self,
        config: TreeConfig,
        streams: RequestStreams,
        address_of: Callable[[bytes], Address | None],
        trees: Callable[[int], Sequence[EpochTree]],
        on_outcome: OnOutcome,
        rng: Random,
        entropy: Entropy,
        now: int,
    ) -> None:
        self._config, self._streams, self._address_of, self._current_trees = config, streams, address_of, trees
        self._on_outcome, self._rng, self._entropy = on_outcome, rng, entropy
        self._probes: dict[bytes, _Probe] = {}
        self._deadlines: Timers[bytes] = Timers()
        self._urgent: Timers[tuple[EpochTree, Stop]] = Timers()
        self._rounds: dict[EpochTree, deque[Stop]] = {}
        self._sent = 0
        self._next_probe_us: int | None = now if config.probe_us else None

    def __len__(self) -> int:
        return len(self._probes)

    def probe_soon(self, epoch_tree: EpochTree, stop: Stop, when: int) -> None:
        """Probe this stop at that time, before others, unless a probe of it is in flight."""
        if not self._is_probing(epoch_tree, stop) and len(self._urgent) < self._config.probes_max:
            self._urgent.set((epoch_tree, stop), when)

    @property
    def round_us(self) -> int:
        """Time within which every probe that leaves now has ended."""
        return self._streams.patience_us + self._wait_us

    def take_returned(self, message: bytes, now: int) -> bool:
        """Record a message that has reached the subscriber; True if it was a probe."""
        probe = self._probes.get(message)
        if probe is None:
            return False
        self._finish(message, probe, ProbeOutcome.RETURNED, now)
        return True

    def next_us(self) -> int | None:
        urgent = self._urgent.next_us() if self._next_probe_us is not None and self._capacity else None
        return earliest(self._deadlines.next_us(), self._next_probe_us, urgent)

    def handle(self, now: int) -> None:
        for message in self._deadlines.pop_due(now):
            probe = self._probes[message]
            self._finish(message, probe, ProbeOutcome.LOST if probe.accepted else ProbeOutcome.AWAY, now)
        if self._next_probe_us is None:
            return
        current = self._current_trees(now)
        trees = [epoch_tree for epoch_tree in current if epoch_tree.probe_from_us <= now]
        # A stop without capacity keeps its place. Otherwise stops that have just failed would be probed again first,
        # and take all the capacity.
        while self._capacity and (due := self._urgent.pop_due(now, self._capacity)):
            for epoch_tree, stop in due:
                if epoch_tree in trees:
                    self._send(epoch_tree, stop, now)
        if self._next_probe_us <= now:
            if (chosen := self._choose(trees, now)) is not None:
                self._send(*chosen, now)
            self._next_probe_us = now + (
                self._config.first_probe_us if self._new_trees(trees, now) else self._config.probe_us
            )
            waiting = [epoch_tree.probe_from_us for epoch_tree in current if epoch_tree.probe_from_us > now]
            self._next_probe_us = min([self._next_probe_us, *waiting])

    def _new_trees(self, trees: Sequence[EpochTree], now: int) -> list[EpochTree]:
        """Trees with nodes that have not been reached and that are not left for later."""
        return [epoch_tree for epoch_tree in trees if epoch_tree.rounds < _ROUNDS and epoch_tree.is_new(now)]

    def _choose(self, trees: Sequence[EpochTree], now: int) -> tuple[EpochTree, Stop] | None:
        for epoch_tree in [each for each in self._rounds if each not in trees]:
            del self._rounds[epoch_tree]
        if not trees:
            return None
        new = self._new_trees(trees, now)
        epoch_tree = self._rng.choice(new or trees)
        self._sent += 1
        if not new and self._sent % _GUARDS_TURN == 0:
            return epoch_tree, self._rng.choice(epoch_tree.tree.chain)
        queue = self._rounds.setdefault(epoch_tree, deque())
        if not queue:
            stops = epoch_tree.unreached_stops(now) if new else list(epoch_tree.tree.stops)
            stops = [stop for stop in stops if not self._is_probing(epoch_tree, stop)]
            self._rng.shuffle(stops)
            queue.extend(stops)
            epoch_tree.rounds += bool(stops)
        return (epoch_tree, queue.popleft()) if queue else None

    @property
    def _capacity(self) -> int:
        """Number of further probes that may leave."""
        return self._config.probes_max - len(self._probes)

    @property
    def _wait_us(self) -> int:
        """Twice the time of a path on which each node must open a stream to the next, at the usual speed of this node's
        streams.

        The times of other probes say less: one that waited for an absent node would make all others wait.
        """
        steps, least_us = self._config.depth + 1 + self._config.chain + self._config.tail, self._config.probe_wait_us
        return min(max(least_us, 2 * steps * self._streams.usual_us), SLOW_FACTOR * least_us)

    def _is_probing(self, epoch_tree: EpochTree, stop: Stop) -> bool:
        """True if a probe of this stop is in flight or scheduled."""
        if (epoch_tree, stop) in self._urgent:
            return True
        return any(probe.epoch_tree is epoch_tree and probe.stop == stop for probe in self._probes.values())

    def _send(self, epoch_tree: EpochTree, stop: Stop, now: int) -> None:
        address = self._address_of(epoch_tree.tree.node(stop))
        if address is None or epoch_tree.told_later.get(stop, 0) > now or not self._capacity:
            return
        body = self._entropy(self._rng.choice(_SIZES) + OVERHEAD)
        message, name = self._entropy(NOTE_ID), epoch_tree.tree.entry_at(stop)
        probe = _Probe(epoch_tree, stop, tuple(epoch_tree.tree.node(each) for each in epoch_tree.tree.path(stop)), now)

        def build(number: int) -> ForwardPublication:
            return ForwardPublication(number, name, message, body)

        def on_answer(answer: Answer | None, now: int) -> None:
            if self._probes.get(message) is not probe:
                return
            match answer:
                case RequestAck():
                    probe.accepted = True
                    self._deadlines.set(message, now + self._wait_us)
                case RequestRefused(code=RefusalCode.UNKNOWN):
                    self._finish(message, probe, ProbeOutcome.MISSING, now)
                case _:
                    self._finish(message, probe, ProbeOutcome.AWAY, now)

        peer, until_us = (
            name_stream(address, fresh_purpose(PROBE_STREAM, self._entropy)),
            now + self._streams.patience_us,
        )
        if self._streams.request(peer, build, on_answer, until_us=until_us, linger_us=0, now=now):
            self._probes[message] = probe
            self._deadlines.set(message, until_us + 1)

    def _finish(self, message: bytes, probe: _Probe, outcome: ProbeOutcome, now: int) -> None:
        del self._probes[message]
        self._deadlines.cancel(message)
        if outcome is ProbeOutcome.AWAY and not self._streams.steady_us <= probe.sent_us < self._streams.answered_us:
            return  # No node answered in this time: this node itself was offline.
        self._on_outcome(probe.epoch_tree, probe.stop, probe.path, outcome, now)


@dataclass(slots=True, eq=False)
class _Probe:
    epoch_tree: EpochTree
    stop: Stop
    path: tuple[bytes, ...]
    sent_us: int
    accepted: bool = False


_SIZES: Final = BODY_CLASSES[:2]
_GUARDS_TURN: Final = 3
"""One in this many probes goes to a guard."""
_ROUNDS: Final = 4
"""How often a tree's nodes are probed quickly; a node not reached by then is probed like any other."""
