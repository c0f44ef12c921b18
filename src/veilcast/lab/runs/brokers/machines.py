"""P4's brokers on the real machines, in the simulator: the messages of a key, and the latency of a publication.

A line of virtual nodes, a publisher at one end and a reader at the other; every publication has its own key, which is
dealt when it is needed. Messages are counted as the machines send them, those of Byzantine replicas included. Shares,
and messages of agreement about them, are one number; messages that only confirm a share are another. If a publisher
times out, there are several attempts at one key. A replica that failed with the first key is not waited for with the
next ones, so later keys are timed, too. For latencies each machine has its own processor, on which its steps take their
real time (`timed_machine`), and links take none: what remains is work, hop after hop, as in P4's Fig. 8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any, Final

from veilcast.brokers.config import BrokerClientConfig, BrokerConfig
from veilcast.brokers.keys.scheme import max_faulty
from veilcast.errors import LocalError
from veilcast.lab.experiment.broker_params import BrokerLineParams, BrokersDelays, BrokersMessages
from veilcast.lab.experiment.params import Measure
from veilcast.lab.runs.brokers.timed_machine import TimedMachine
from veilcast.machine import Address, Delivered, Event, Frame, Publication
from veilcast.sim.brokers.adversaries import BEHAVIOURS
from veilcast.sim.brokers.population import BrokersPopulation
from veilcast.sim.brokers.rewritten_streams import decode_or_none
from veilcast.sim.checkers import Checker
from veilcast.sim.host import MachineFactory
from veilcast.sim.links import LinkDelays
from veilcast.sim.world import World
from veilcast.topics import Label
from veilcast.wire.base import Message
from veilcast.wire.brokers import (
    AgreementWord,
    DisputeDealing,
    FirstShare,
    LastShare,
    NextShare,
    SessionItem,
    ShareReceived,
)


def measure_messages(params: BrokersMessages, seed: int, data: Path | None = None) -> list[Measure]:
    """Messages of one key, for each number of nodes."""
    found = []
    for hops in params.counts:
        line = BrokerLine(params, hops, params.replicas, seed)
        took = line.publish(1)
        whole: dict[str, float] = {name: line.count_sent(*kinds) for name, kinds in COUNTED_MESSAGES.items()}
        whole["of_honest"] = line.count_sent(*COUNTED_MESSAGES["messages"], honest=True)
        whole["attempts"] = line.count_sent(FirstShare) / params.replicas
        whole["delivered"] = len(took)
        whole["took_s"] = (took or [PATIENCE_US])[0] / 1e6
        later = line.publish(LATER_KEYS)
        whole["later_s"] = median([*later, *[PATIENCE_US] * (LATER_KEYS - len(later))]) / 1e6
        whole["delivered_later"] = len(later) / LATER_KEYS
        found += [Measure("", metric, hops, value) for metric, value in whole.items()]
    return found


def measure_delays(params: BrokersDelays, seed: int, data: Path | None = None) -> list[Measure]:
    """Latency from the publisher to the reader, by hops or by replicas."""
    found = []
    for count in params.counts:
        hops, replicas = (params.hops, count) if params.over == "replicas" else (count, params.replicas)
        took = BrokerLine(params, hops, replicas, seed, timed=True).publish(TIMED_NOTES)
        if len(took) < TIMED_NOTES:
            raise LocalError(f"of {TIMED_NOTES} publications over {hops} nodes of {replicas}, {len(took)} came")
        found.append(Measure("", "latency_ms", count, mean(took) / 1e3))
    return found


class BrokerLine:
    """A line of virtual nodes whose replicas all have connected."""

    def __init__(self, params: BrokerLineParams, hops: int, replicas: int, seed: int, *, timed: bool = False) -> None:
        self._number = 0
        self._had: dict[bytes, int] = {}
        """When the reader received a notification, by its body."""
        self._counted = _Counted()
        # Links and disks take almost no time where work is measured, and a little where messages must be ordered.
        links = LinkDelays(latency_us=(1,)) if timed else LinkDelays(latency_us=(1_000, 5_000))
        self._world = (_Timed if timed else World)(seed=seed, links=links, disk_us=1, on_event=self._hear)
        self._world.watch(self._counted)
        lying = params.lie != "none"
        population = BrokersPopulation(
            nodes=hops,
            replicas=replicas,
            liars=max_faulty(replicas) if lying else 0,
            behaviours=(params.lie,) if lying else BEHAVIOURS,
            readers=1,
            topics=1,
            bits=0,
            notes=0,
            broker=BrokerConfig(params.sharing),
            client=BrokerClientConfig(params.sharing, refresh_messages=1, overtime_us=0),
            checks=(),
        )
        self._counted.liars = frozenset(population.draw_overlay(seed).liars)
        population.populate(self._world, _WHOLE_US)
        self._world.run(_SETTLED_US)
        self._counted.kinds.clear()

    def publish(self, notes: int) -> list[int]:
        """Publish this number of notifications, one after the other. Returns the latency of each that arrived."""
        since = {}
        for _ in range(notes):
            self._number += 1
            body = b"%d" % self._number
            since[body] = self._world.now
            self._world.call(PUBLISHER, _publishing(body))
            self._world.run(PATIENCE_US)
        return [self._had[body] - published for body, published in since.items() if body in self._had]

    def count_sent(self, *kinds: type[Message], honest: bool = False) -> int:
        """Messages of all replicas, or of the honest ones."""
        return sum(self._counted.kinds[kind, one] for kind in kinds for one in ((True,) if honest else (True, False)))

    def _hear(self, address: Address, event: Event, now: int) -> None:
        if isinstance(event, Delivered):
            self._had.setdefault(event.note.publication.body, now)


class _Timed(World):
    """A world in which the steps of machines take their real time."""

    def add(self, address: Address, factory: MachineFactory, after_us: int = 0) -> None:
        super().add(address, lambda birth: TimedMachine(factory(birth)), after_us)


class _Counted(Checker):
    def __init__(self) -> None:
        self.liars: frozenset[Address] = frozenset()
        self.kinds: Counter[tuple[type[Message], bool]] = Counter()
        """Counts by kind of message and by honesty of the sender."""

    def on_frames(self, world: World, address: Address, frames: Sequence[Frame]) -> None:
        for frame in frames:
            message = decode_or_none(frame.data)
            if isinstance(message, SessionItem) and (cargo := decode_or_none(message.cargo)) is not None:
                self.kinds[type(cargo), address not in self.liars] += 1


def _publishing(body: bytes) -> Callable[[Any, int], object]:
    note = Publication((Label(TOPIC).pair,), body)

    def publish(machine: Any, now: int) -> None:
        if isinstance(machine, TimedMachine):
            machine.run_step(lambda at: machine.inner.publish(note, at), now)
        else:
            machine.publish(note, now)

    return publish


TIMED_NOTES: Final = 2
"""Number of publications whose mean is a latency."""
LATER_KEYS: Final = 7
"""Number of keys after the first; their median is a time."""
PATIENCE_US: Final = 60_000_000
"""Longest wait for a publication."""
PUBLISHER: Final = Address("c0")
TOPIC: Final = "brokers/0"
COUNTED_MESSAGES: Final[dict[str, tuple[type[Message], ...]]] = {
    "messages": (FirstShare, NextShare, AgreementWord, DisputeDealing, LastShare),
    "shares": (FirstShare, NextShare),
    "received": (LastShare,),
    "taken": (ShareReceived,),
}
_SETTLED_US: Final = 30_000_000
_WHOLE_US: Final = 600_000_000
