"""A tree as its subscriber maintains it: the layout it was drawn from, and the later changes.

A layout (`layout.HardenedLayout`) says for each node of a listing where it forwards messages to. The subscriber applies
later findings on top: the children of a departed node move to the node above it, a departed guard is replaced, and a
node that was listed later is attached below an earlier one. A tree is therefore never redrawn within its epoch, and
only the nodes concerned receive new instructions.

Positions are called stops. The numbers from 0 on are nodes in the order of the layout and then of their arrival; -1 is
the guard next to the subscriber (home), -2 the one before it, and so on. The path from any stop leads to home, which is
not a stop.

With a tail, home forwards what it has received to further guards, like the guards before it. Their stops continue the
count of the guards: with three guards the first behind home is -4. No path that probes test leads through the tail. The
last of the tail forwards to itself: a node drops what arrives a second time.

Every instruction that changes something for a stop ends one microsecond later than the one before: so nodes know which
one is the latest. Each stop has its own count, so that the end times do not show which instructions belong to one tree.
The names on the chain are derived from a separate secret, because they outlast the tree (`delivery_tags`). Their count
is separate for the same reason.

Guards receive tags that no publisher uses. Guards need not match anything, and the tags of the tree a second time would
tell them that they are guards.
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
    """`nodes` are in the order of the layout; `guards` begin with the one next to home."""

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
        tail: Sequence[Recipient] = (),
    ) -> None:
        """`tail` begins with the node behind home. `end` is the delivery tag at `home`. The names on the chain are
        derived from `chain`. `count` is the first version of the guards' instructions."""
        self._secret, self._home, self._end, self._chain, self._count = secret, home, end, chain, count
        self._layout = HardenedLayout(
            secret, [each.node for each in nodes], home=home, guards=[each.node for each in guards], r=depth
        )
        self._nodes, self._guards, self._before = list(nodes), [*guards, *tail], len(guards)
        self._stops = {each.node: stop for stop, each in enumerate(nodes)}
        self._redirected: dict[Stop, Stop] = {}
        self._counts: dict[Stop, int] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def stops(self) -> range:
        """All stops except the guards."""
        return range(len(self._nodes))

    @property
    def chain(self) -> range:
        """The stops of the guards before home, from home on."""
        return range(-1, -1 - self._before, -1)

    @property
    def tail(self) -> range:
        """The stops behind home, from home on."""
        return range(-1 - self._before, -1 - len(self._guards), -1)

    def recipient(self, stop: Stop) -> Recipient:
        return self._nodes[stop] if stop >= 0 else self._guards[-1 - stop]

    def node(self, stop: Stop) -> bytes:
        return self.recipient(stop).node

    def stops_of(self, node: bytes) -> list[Stop]:
        """The stops of a node: its own place, and possibly a guard's."""
        own = [self._stops[node]] if node in self._stops else []
        return [*(stop for stop in (*self.chain, *self.tail) if self.node(stop) == node), *own]

    def next_stop(self, stop: Stop) -> Stop | None:
        """The stop to which this stop forwards; None stands for home."""
        if stop in self._redirected:
            return self._redirected[stop]
        if stop in self.tail:
            return max(stop - 1, self.tail[-1])
        if stop < 0:
            return stop + 1 if stop < -1 else None
        place = self._layout.place(stop)
        return self._layout.node_at(tree_shape.parent_place(place, self._layout.branching)) if place else self.chain[-1]

    def path(self, stop: Stop) -> list[Stop]:
        """All stops that forward a message entering at this stop, itself first."""
        stops_up = [stop]
        while (above := self.next_stop(stops_up[-1])) not in (None, stops_up[-1]):
            assert above is not None
            stops_up.append(above)
        return stops_up

    def entry_at(self, stop: Stop) -> bytes:
        """The entry name that senders use at this stop."""
        return entry_name(self._token(stop))

    def instruction(self, stop: Stop) -> Instruction:
        above = self.next_stop(stop)
        if above is None:
            return Instruction(self._token(stop), self._home, self._end)
        return Instruction(self._token(stop), self.node(above), self.entry_at(above))

    def version_of(self, stops: Sequence[Stop]) -> int:
        """Microseconds to add to the end of these stops' instructions, if they are sent together."""
        count = max(self._counts.get(stop, 0 if stop >= 0 else self._count) for stop in stops)
        self._counts |= dict.fromkeys(stops, count)
        return count

    def tags_for(self, stop: Stop, groups: ElementGroups) -> ElementGroups:
        """The tags for this stop: those of the tree, or for a guard tags that look alike."""
        if stop >= 0:
            return groups
        key = derive(self._chain, b"vc/tree-nothing", self.node(stop), bytes((-1 - stop,)))
        named = tuple(tuple(b"%d %d" % (at, tag) for tag in range(len(group))) for at, group in enumerate(groups))
        return pad_groups(key_groups(key, named, TAG), lambda place: key_element(key, b"filler %d" % place, TAG))

    def groups(self, size: int) -> list[tuple[Stop, ...]]:
        """Groups of stops whose instructions travel together, drawn independently of their places."""
        return self._layout.groups(size)

    def children(self, stop: Stop) -> list[Stop]:
        """The stops that forward to this stop."""
        moved = [each for each, above in self._redirected.items() if above == stop]
        if stop in self.tail:
            laid_out = [stop + 1] if stop + 1 in self.tail else []
        elif stop < 0:
            laid_out = [stop - 1 if stop - 1 in self.chain else self._layout.node_at(0)]
        elif stop < len(self._layout.nodes):
            places = tree_shape.child_places(self._layout.place(stop), self._layout.branching, len(self._layout.nodes))
            laid_out = [self._layout.node_at(place) for place in places]
        else:
            laid_out = []
        return [each for each in laid_out if each not in self._redirected] + moved

    def bypass(self, node: bytes) -> list[Stop]:
        """Route nothing through this node's own place any more. Returns the stops that need new instructions."""
        bypassed = self._stops.get(node)
        above = None if bypassed is None else self.next_stop(bypassed)
        if bypassed is None or above is None:
            return []
        stops_below = self.children(bypassed)
        self._redirected |= dict.fromkeys(stops_below, above)
        return self._changed(stops_below)

    def move_up(self, stop: Stop) -> list[Stop]:
        """Attach this stop to the stop above its parent. Returns the stops that need new instructions: none if the
        parent is a guard."""
        above = self.next_stop(stop)
        if stop < 0 or above is None or above < 0:
            return []
        higher = self.next_stop(above)
        assert higher is not None  # There is a guard above every node.
        self._redirected[stop] = higher
        return self._changed([stop])

    def replace_guard(self, stop: Stop, guard: Recipient) -> list[Stop]:
        """Replace a guard. Returns the stops that need new instructions."""
        self._guards[-1 - stop] = guard
        return self._changed([stop, *self.children(stop)])

    def add(self, newcomer: Recipient, rng: Random, unfit: Callable[[bytes], bool] = lambda node: False) -> Stop:
        """Attach a node that has no place in this tree below a random stop that is fit to forward for it."""
        stop = len(self._nodes)
        above = rng.randrange(stop)
        while unfit(self.node(above)) and (higher := self.next_stop(above)) is not None:
            above = higher
        self._redirected[stop] = above
        self._nodes.append(newcomer)
        self._stops[newcomer.node] = stop
        return stop

    def _changed(self, stops: list[Stop]) -> list[Stop]:
        for stop in stops:
            self._counts[stop] = self.version_of([stop]) + 1
        return stops

    def _token(self, stop: Stop) -> bytes:
        if stop < 0:
            return guard_token(self._chain, -1 - stop, self.node(stop))
        return entry_id(self._secret, self.node(stop))


def guard_token(chain: Secret, place: int, node: bytes) -> bytes:
    """The token of the guard with this number: 0 is next to home, and those behind home follow those before it."""
    return entry_id(derive(chain, b"vc/tree-guard", bytes((place,))), node)
