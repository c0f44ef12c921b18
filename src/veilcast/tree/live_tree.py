"""A tree as its subscriber keeps it: the plan it was drawn by, and what has been changed in it since.

A plan (`plan.Hung`) says for each node of a listing where it sends what comes to it. What a subscriber finds out later
is written over it: what stood below a node that is gone goes to the one above, a guard that is gone is replaced, and
who was listed later hangs below somebody who was there. A tree is thus never drawn anew within its epoch, and those who
are concerned are told, and nobody else.

Places are called stops: the numbers from 0 on are nodes in the order of the plan and then of their coming, -1 is the
guard next to home, -2 the one before it, and so on. The way from any stop leads up to home, which is no stop.

Every instruction that changes something for a stop has a later end than the one before it had, by a microsecond: so
nodes know which is the last. Each stop has a count of its own, so that those of one tree do not show that they are. The
names on the chain come from a secret of their own, as they outlast the tree (`ends`), and so does their count.

Guards are told for what they are told: something that nobody publishes. They need not match anything, and the tags of
the tree a second time would tell them what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeAlias

from veilcast.core.match_elements import ElementGroups, key_element, key_groups
from veilcast.core.size_classes import pad_groups
from veilcast.crypto.derive import derive
from veilcast.crypto.secret import Secret
from veilcast.tree import tree_shape
from veilcast.tree.instruction_bundles import Instruction, Recipient
from veilcast.tree.layout import HardenedLayout, entry_id
from veilcast.tree.routing_table import entry_name
from veilcast.wire.geometry import TAG

Stop: TypeAlias = int


class LiveTree:
    """`nodes` are in the order of the plan; `guards` begin with the one next to home."""

    def __init__(
        self,
        secret: Secret,
        nodes: Sequence[Recipient],
        home: bytes,
        end: bytes,
        guards: Sequence[Recipient],
        depth: int,
        chain: Secret,
        count: int = 0,
    ) -> None:
        """`end` is the name of what comes to `home` when it has come all the way; `chain` and `count` are what the
        names on the chain come from, and from where on what guards are told is counted."""
        self._secret, self._home, self._end, self._chain, self._count = secret, home, end, chain, count
        self._plan = HardenedLayout(
            secret, [each.node for each in nodes], home=home, guards=[each.node for each in guards], r=depth
        )
        self._nodes, self._guards = list(nodes), list(guards)
        self._stops = {each.node: stop for stop, each in enumerate(nodes)}
        self._moved: dict[Stop, Stop] = {}
        self._counts: dict[Stop, int] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def stops(self) -> range:
        """All but the guards."""
        return range(len(self._nodes))

    @property
    def chain(self) -> range:
        """The guards' stops, from home on."""
        return range(-1, -1 - len(self._guards), -1)

    def recipient(self, stop: Stop) -> Recipient:
        return self._nodes[stop] if stop >= 0 else self._guards[-1 - stop]

    def node(self, stop: Stop) -> bytes:
        return self.recipient(stop).node

    def stops_of(self, node: bytes) -> list[Stop]:
        """Where a node stands: at its place, and perhaps as a guard."""
        own = [self._stops[node]] if node in self._stops else []
        return [*(stop for stop in self.chain if self.node(stop) == node), *own]

    def next_stop(self, stop: Stop) -> Stop | None:
        """Where what enters at this stop goes next; None is home."""
        if stop in self._moved:
            return self._moved[stop]
        if stop < 0:
            return stop + 1 if stop < -1 else None
        place = self._plan.place(stop)
        return self._plan.node_at(tree_shape.parent_place(place, self._plan.branching)) if place else self.chain[-1]

    def path(self, stop: Stop) -> list[Stop]:
        """All who pass on what enters at this stop, itself first."""
        way = [stop]
        while (above := self.next_stop(way[-1])) is not None:
            way.append(above)
        return way

    def entry_at(self, stop: Stop) -> bytes:
        """What others send to at this stop."""
        return entry_name(self._token(stop))

    def instruction(self, stop: Stop) -> Instruction:
        above = self.next_stop(stop)
        if above is None:
            return Instruction(self._token(stop), self._home, self._end)
        return Instruction(self._token(stop), self.node(above), self.entry_at(above))

    def version_of(self, stops: Sequence[Stop]) -> int:
        """By how much the end of these stops' instructions is to be later, if they are told together."""
        count = max(self._counts.get(stop, 0 if stop >= 0 else self._count) for stop in stops)
        self._counts |= dict.fromkeys(stops, count)
        return count

    def tags_for(self, stop: Stop, groups: ElementGroups) -> ElementGroups:
        """What this stop is told to be for: what its tree is, or to a guard something that looks like it."""
        if stop >= 0:
            return groups
        key = derive(self._chain, b"vc/tree-nothing", self.node(stop), bytes((-1 - stop,)))
        named = tuple(tuple(b"%d %d" % (at, tag) for tag in range(len(group))) for at, group in enumerate(groups))
        return pad_groups(key_groups(key, named, TAG), lambda place: key_element(key, b"filler %d" % place, TAG))

    def groups(self, size: int) -> list[tuple[Stop, ...]]:
        """Who of the plan is told together, drawn apart from where anyone stands."""
        return self._plan.groups(size)

    def children(self, stop: Stop) -> list[Stop]:
        """Who hands to this stop."""
        moved = [each for each, above in self._moved.items() if above == stop]
        if stop < 0:
            planned = [stop - 1 if stop - 1 in self.chain else self._plan.node_at(0)]
        elif stop < len(self._plan.nodes):
            places = tree_shape.child_places(self._plan.place(stop), self._plan.branching, len(self._plan.nodes))
            planned = [self._plan.node_at(place) for place in places]
        else:
            planned = []
        return [each for each in planned if each not in self._moved] + moved

    def bypass(self, node: bytes) -> list[Stop]:
        """Let nothing go by this node's own place any more; the stops that are to be told."""
        gone = self._stops.get(node)
        above = None if gone is None else self.next_stop(gone)
        if gone is None or above is None:
            return []
        told = self.children(gone)
        self._moved |= dict.fromkeys(told, above)
        return self._changed(told)

    def move_up(self, stop: Stop) -> list[Stop]:
        """Hang this stop by the one above its parent; who is to be told, which is nobody if its parent is a guard."""
        above = self.next_stop(stop)
        if stop < 0 or above is None or above < 0:
            return []
        higher = self.next_stop(above)
        assert higher is not None  # Above every node there is a guard.
        self._moved[stop] = higher
        return self._changed([stop])

    def replace_guard(self, stop: Stop, guard: Recipient) -> list[Stop]:
        """Put another in the place of a guard; the stops that are to be told."""
        self._guards[-1 - stop] = guard
        return self._changed([stop, *self.children(stop)])

    def add(self, newcomer: Recipient, rng: Random, unfit: Callable[[bytes], bool] = lambda node: False) -> Stop:
        """Hang a node that is in no place of this tree below one that is, and of whom that can be asked."""
        stop = len(self._nodes)
        above = rng.randrange(stop)
        while unfit(self.node(above)) and (higher := self.next_stop(above)) is not None:
            above = higher
        self._moved[stop] = above
        self._nodes.append(newcomer)
        self._stops[newcomer.node] = stop
        return stop

    def _changed(self, stops: list[Stop]) -> list[Stop]:
        for stop in stops:
            self._counts[stop] = self.version_of([stop]) + 1
        return stops

    def _token(self, stop: Stop) -> bytes:
        secret = self._secret if stop >= 0 else derive(self._chain, b"vc/tree-guard", bytes((-1 - stop,)))
        return entry_id(secret, self.node(stop))
