"""P4's brokers themselves, in the simulator: how many messages a key takes, and how long a publication.

A line of virtual nodes, a publisher at one end and a reader at the other; every publication has a key of its own.
Messages are counted as the machines send them, those of liars too: shares, and what is said about them, are one number,
and what only says that a share has come is another. Where a publisher loses patience there are several attempts at one
key. Whoever has failed with the first key need not be waited for with the next ones, so those are timed, too. For
latencies, each machine has a processor of its own, on which its steps take what they take (`working`), and the way from
one to another takes none: what is left is work, hop after hop, as in P4's Fig. 8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import mean, median
from typing import Any, Final

from veilcast.brokers.config import BrokerConfig, ClientConfig
from veilcast.brokers.sharing.scheme import tolerated
from veilcast.errors import LocalError
from veilcast.lab.sweep.params import Measure, Params
from veilcast.lab.sweep.working import Working
from veilcast.machine import Address, Delivered, Event, Frame, Publication
from veilcast.sim.broker_adversaries import BEHAVIOURS
from veilcast.sim.broker_streams import opened
from veilcast.sim.brokers import BrokersPopulation
from veilcast.sim.checkers import Checker
from veilcast.sim.host import Factory
from veilcast.sim.links import Links
from veilcast.sim.world import World
from veilcast.topics import Label
from veilcast.wire.brokers import Disputed, FirstShare, Item, LastShare, NextShare, Spoken, Taken
from veilcast.wire.messages import Message


def messages(params: Params, seed: int) -> list[Measure]:
    """Of one key, over so many nodes."""
    params.heed("messages of brokers", "brokers")
    found = []
    for hops in params.counts:
        line = Line(params, hops, params.replicas, seed)
        took = line.publish(1)
        whole: dict[str, float] = {name: line.sent(*kinds) for name, kinds in COUNTED.items()}
        whole["of_honest"] = line.sent(*COUNTED["messages"], honest=True)
        whole["attempts"] = line.sent(FirstShare) / params.replicas
        whole["delivered"] = len(took)
        whole["took_s"] = (took or [PATIENCE_US])[0] / 1e6
        later = line.publish(LATER)
        whole["later_s"] = median([*later, *[PATIENCE_US] * (LATER - len(later))]) / 1e6
        whole["delivered_later"] = len(later) / LATER
        found += [Measure("", metric, hops, value) for metric, value in whole.items()]
    return found


def delays(params: Params, seed: int) -> list[Measure]:
    """From the publisher to the reader, by hops or by replicas."""
    params.heed("delays of brokers", "brokers")
    found = []
    for count in params.counts:
        hops, replicas = (params.hops, count) if params.over == "replicas" else (count, params.replicas)
        took = Line(params, hops, replicas, seed, timed=True).publish(NOTES)
        if len(took) < NOTES:
            raise LocalError(f"of {NOTES} publications over {hops} nodes of {replicas}, {len(took)} came")
        found.append(Measure("", "latency_ms", count, mean(took) / 1e3))
    return found


class Line:
    """Of virtual nodes, where everybody has met everybody."""

    def __init__(self, params: Params, hops: int, replicas: int, seed: int, *, timed: bool = False) -> None:
        self._number = 0
        self._had: dict[bytes, int] = {}
        """When the reader had a note, by its body."""
        self._counted = _Counted()
        # On the way and on the disk nothing is lost where work is to be seen, and a little where order is.
        links = Links(latency_us=(1,)) if timed else Links(latency_us=(1_000, 5_000))
        self._world = (_Timed if timed else World)(seed=seed, links=links, disk_us=1, on_event=self._hear)
        self._world.watch(self._counted)
        lying = params.lie != "none"
        population = BrokersPopulation(
            nodes=hops,
            replicas=replicas,
            liars=tolerated(replicas) if lying else 0,
            behaviours=(params.lie,) if lying else BEHAVIOURS,
            readers=1,
            topics=1,
            bits=0,
            notes=0,
            broker=BrokerConfig(params.sharing),
            client=ClientConfig(params.sharing, refresh_messages=1),
            checks=(),
        )
        self._counted.liars = frozenset(population.ground(seed).liars)
        population.settle(self._world, _WHOLE_US)
        self._world.run(_SETTLED_US)
        self._counted.kinds.clear()

    def publish(self, notes: int) -> list[int]:
        """So many notes, one after the other; how long each took that came."""
        since = {}
        for _ in range(notes):
            self._number += 1
            body = b"%d" % self._number
            since[body] = self._world.now
            self._world.call(PUBLISHER, _publishing(body))
            self._world.run(PATIENCE_US)
        return [self._had[body] - published for body, published in since.items() if body in self._had]

    def sent(self, *kinds: type[Message], honest: bool = False) -> int:
        """By all, or by those who do not lie."""
        return sum(self._counted.kinds[kind, one] for kind in kinds for one in ((True,) if honest else (True, False)))

    def _hear(self, address: Address, event: Event, now: int) -> None:
        if isinstance(event, Delivered):
            self._had.setdefault(event.note.publication.body, now)


class _Timed(World):
    """All of whose machines work as long as they do."""

    def add(self, address: Address, factory: Factory, after_us: int = 0) -> None:
        super().add(address, lambda birth: Working(factory(birth)), after_us)


class _Counted(Checker):
    def __init__(self) -> None:
        self.liars: frozenset[Address] = frozenset()
        self.kinds: Counter[tuple[type[Message], bool]] = Counter()
        """And whether whoever sent it is honest."""

    def on_frames(self, world: World, address: Address, frames: Sequence[Frame]) -> None:
        for frame in frames:
            message = opened(frame.data)
            if isinstance(message, Item) and (cargo := opened(message.cargo)) is not None:
                self.kinds[type(cargo), address not in self.liars] += 1


def _publishing(body: bytes) -> Callable[[Any, int], object]:
    note = Publication((Label(TOPIC).pair,), body)

    def publish(machine: Any, now: int) -> None:
        if isinstance(machine, Working):
            machine.do(lambda at: machine.inner.publish(note, at), now)
        else:
            machine.publish(note, now)

    return publish


NOTES: Final = 2
"""Whose mean is a latency."""
LATER: Final = 7
"""Keys after the first, whose median is a time."""
PATIENCE_US: Final = 60_000_000
"""For each publication."""
PUBLISHER: Final = Address("c0")
TOPIC: Final = "brokers/0"
COUNTED: Final[dict[str, tuple[type[Message], ...]]] = {
    "messages": (FirstShare, NextShare, Spoken, Disputed, LastShare),
    "shares": (FirstShare, NextShare),
    "received": (LastShare,),
    "taken": (Taken,),
}
_SETTLED_US: Final = 30_000_000
_WHOLE_US: Final = 600_000_000
