"""Probing: a subscriber sends something along its own trees, to see whether it comes back.

A probe is what any message on its way is: random bytes of a usual size for one entry of one node, through the anonymous
network. So it must come to the subscriber by all who stand above that node. There are four ways it can end: it returns;
the node knows no such entry; the node cannot be reached; or the node has taken it, and it never comes.

While a tree is new all its nodes are probed in turn, and quickly, afterwards now and then, and the guards, on whom all
depends, more often. Whatever is in question (`urge`) is probed first.
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
    """The node has no such entry."""
    AWAY = auto()
    """The node gave no answer."""
    LOST = auto()
    """The node took it, and it did not come."""


OnOutcome: TypeAlias = Callable[[EpochTree, Stop, Sequence[bytes], ProbeOutcome, int], None]
"""Told how a probe has ended that entered at this stop, and who was on its way."""


class TreeProber:
    """Bounded: `probes_max` probes under way, and as many stops that are to be probed first."""

    def __init__(
        self,
        config: TreeConfig,
        streams: RequestStreams,
        where: Callable[[bytes], Address | None],
        terms: Callable[[int], Sequence[EpochTree]],
        judge: OnOutcome,
        rng: Random,
        entropy: Entropy,
        now: int,
    ) -> None:
        self._config, self._streams, self._where, self._terms = config, streams, where, terms
        self._judge, self._rng, self._entropy = judge, rng, entropy
        self._probes: dict[bytes, _Probe] = {}
        self._ends: Timers[bytes] = Timers()
        self._urgent: Timers[tuple[EpochTree, Stop]] = Timers()
        self._rounds: dict[EpochTree, deque[Stop]] = {}
        self._sent = 0
        self._turn_us: int | None = now if config.probe_us else None

    def __len__(self) -> int:
        return len(self._probes)

    def probe_soon(self, term: EpochTree, stop: Stop, when: int) -> None:
        """Probe this stop then, before others, unless that is under way."""
        if not self._is_asked(term, stop) and len(self._urgent) < self._config.probes_max:
            self._urgent.set((term, stop), when)

    @property
    def round_us(self) -> int:
        """In this time every probe that leaves now has ended."""
        return self._streams.patience_us + self._wait_us

    def take_returned(self, message: bytes, now: int) -> bool:
        """Something has come all the way; whether it was a probe."""
        probe = self._probes.get(message)
        if probe is None:
            return False
        self._end(message, probe, ProbeOutcome.RETURNED, now)
        return True

    def next_us(self) -> int | None:
        urgent = self._urgent.next_us() if self._turn_us is not None and self._room else None
        return earliest(self._ends.next_us(), self._turn_us, urgent)

    def handle(self, now: int) -> None:
        for message in self._ends.pop_due(now):
            probe = self._probes[message]
            self._end(message, probe, ProbeOutcome.LOST if probe.taken else ProbeOutcome.AWAY, now)
        if self._turn_us is None:
            return
        standing = self._terms(now)
        terms = [term for term in standing if term.probe_from_us <= now]
        # Who finds no room keeps its place: else those who were just probed in vain would be probed again before it,
        # and take all the room there is in turn.
        while self._room and (due := self._urgent.pop_due(now, self._room)):
            for term, stop in due:
                if term in terms:
                    self._send(term, stop, now)
        if self._turn_us <= now:
            if (chosen := self._choose(terms, now)) is not None:
                self._send(*chosen, now)
            self._turn_us = now + (self._config.first_probe_us if self._new(terms, now) else self._config.probe_us)
            waiting = [term.probe_from_us for term in standing if term.probe_from_us > now]
            self._turn_us = min([self._turn_us, *waiting])

    def _new(self, terms: Sequence[EpochTree], now: int) -> list[EpochTree]:
        """The trees of which not all nodes have been heard, and that are not left for later."""
        return [term for term in terms if term.rounds < _ROUNDS and term.is_new(now)]

    def _choose(self, terms: Sequence[EpochTree], now: int) -> tuple[EpochTree, Stop] | None:
        for term in [each for each in self._rounds if each not in terms]:
            del self._rounds[term]
        if not terms:
            return None
        new = self._new(terms, now)
        term = self._rng.choice(new or terms)
        self._sent += 1
        if not new and self._sent % _GUARDS_TURN == 0:
            return term, self._rng.choice(term.tree.chain)
        ahead = self._rounds.setdefault(term, deque())
        if not ahead:
            stops = term.unreached_stops(now) if new else list(term.tree.stops)
            stops = [stop for stop in stops if not self._is_asked(term, stop)]
            self._rng.shuffle(stops)
            ahead.extend(stops)
            term.rounds += bool(stops)
        return (term, ahead.popleft()) if ahead else None

    @property
    def _room(self) -> int:
        """How many more probes may leave."""
        return self._config.probes_max - len(self._probes)

    @property
    def _wait_us(self) -> int:
        """Twice what it takes when each on the way must call the next, and that takes as long as our calls mostly do.

        How long other probes took says less: one that waited for somebody who is away would have us wait for all.
        """
        steps, least_us = self._config.depth + 1 + self._config.chain, self._config.probe_wait_us
        return min(max(least_us, 2 * steps * self._streams.usual_us), SLOW_FACTOR * least_us)

    def _is_asked(self, term: EpochTree, stop: Stop) -> bool:
        """Whether a probe of this stop is under way, or is about to be."""
        if (term, stop) in self._urgent:
            return True
        return any(probe.term is term and probe.stop == stop for probe in self._probes.values())

    def _send(self, term: EpochTree, stop: Stop, now: int) -> None:
        address = self._where(term.tree.node(stop))
        if address is None or term.told_later.get(stop, 0) > now or not self._room:
            return
        body = self._entropy(self._rng.choice(_SIZES) + OVERHEAD)
        message, name = self._entropy(NOTE_ID), term.tree.entry_at(stop)
        probe = _Probe(term, stop, tuple(term.tree.node(each) for each in term.tree.path(stop)), now)

        def build(number: int) -> ForwardPublication:
            return ForwardPublication(number, name, message, body)

        def then(answer: Answer | None, now: int) -> None:
            if self._probes.get(message) is not probe:
                return
            match answer:
                case RequestAck():
                    probe.taken = True
                    self._ends.set(message, now + self._wait_us)
                case RequestRefused(code=RefusalCode.UNKNOWN):
                    self._end(message, probe, ProbeOutcome.MISSING, now)
                case _:
                    self._end(message, probe, ProbeOutcome.AWAY, now)

        peer, until_us = (
            name_stream(address, fresh_purpose(PROBE_STREAM, self._entropy)),
            now + self._streams.patience_us,
        )
        if self._streams.request(peer, build, then, until_us=until_us, linger_us=0, now=now):
            self._probes[message] = probe
            self._ends.set(message, until_us + 1)

    def _end(self, message: bytes, probe: _Probe, outcome: ProbeOutcome, now: int) -> None:
        del self._probes[message]
        self._ends.cancel(message)
        if outcome is ProbeOutcome.AWAY and not self._streams.steady_us <= probe.sent_us < self._streams.answered_us:
            return  # Nobody answered us in this time: it was we who were away.
        self._judge(probe.term, probe.stop, probe.way, outcome, now)


@dataclass(slots=True, eq=False)
class _Probe:
    term: EpochTree
    stop: Stop
    way: tuple[bytes, ...]
    sent_us: int
    taken: bool = False


_SIZES: Final = BODY_CLASSES[:2]
_GUARDS_TURN: Final = 3
"""Every so many probes go to a guard."""
_ROUNDS: Final = 4
"""So often a tree's nodes are probed quickly; who has not been heard then is one of many."""
