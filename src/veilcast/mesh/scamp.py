"""SCAMP (Ganesh, Kermarrec, Massoulie 2003): a self-organising neighbourhood whose size no node has to know.

Every node has a partial view (the nodes it keeps) and an in-view (the nodes that keep it). The two together are its
neighbours, N(v) in P0.

1. A newcomer's `Join` ends at its contact. The contact sends a copy to each node of its partial view, and `copies`
   more.
2. A node that gets a copy keeps the newcomer with probability 1 / (1 + size of its view), or else forwards the copy. So
   views grow to (copies + 1) ln n, which is just enough for n nodes to stay connected.
3. A node that keeps the newcomer tells it so.

Contacts are uniform, whichever node is asked first (the paper's indirection): the `Join` does a random walk. At a node
of degree d it moves to a random neighbour with probability d / neighbours_max and stays otherwise. On a graph of
two-way links the end of such a walk is uniform over the nodes, and no node needs to know the degree of others.

Arcs are leased. A node joins again when its lease ends, so views forget old arcs and follow the size of the network. It
joins through a member of its view, or through one of its initial contacts, so that partitioned halves come together
again. A node that leaves assigns the nodes it keeps to the nodes that keep it, all but `copies` + 1 of them, and the
law holds for n - 1 nodes. A node that no other node keeps, or that hears no other node, joins again. A node that hears
very few neighbours may be on an island, and joins through another node.

Not in the paper: a passive view, which holds addresses seen in passing. A failed member of the view is replaced from
it, and a node without neighbours joins through it or through the contacts. Also not in the paper: probes. At intervals
a node tries one that failed within the last lease. The halves of a partitioned network have each other among those, and
every successful probe is a link between them. Without failures there are no probes: a link that comes and goes would
break the meshes on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Final

from veilcast.core.bounded import remember
from veilcast.errors import LocalError, MalformedError, StaleError
from veilcast.machine import Address
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.neighbourhood import NeighbourhoodContext
from veilcast.wire.base import Message
from veilcast.wire.mesh import ForwardJoin, Join, Keep, Replace


class ScampNeighbourhood:
    """Bounded: `neighbours_max` in both views together, `passive_max` in the passive one."""

    accepts_strangers = True

    def __init__(
        self,
        config: MeshConfig,
        name: Address | None,
        contacts: Iterable[Address],
        context: NeighbourhoodContext,
        rng: Random,
        now: int,
    ) -> None:
        if name is None:
            raise LocalError("a node that joins by SCAMP must know its own address")
        self._name, self._context, self._rng, self._rules = name, context, rng, config.scamp
        self._neighbours_max = config.neighbours_max
        self._patience_us = config.scamp.isolation_periods * config.heartbeat_us
        self._period_us, self._grace_us = config.heartbeat_us, GRACE_PERIODS * config.heartbeat_us
        self._contacts = [contact for contact in dict.fromkeys(contacts) if contact != name]
        self.partial: dict[Address, int] = {}
        """The nodes that this node keeps, each with the end of its lease."""
        self.inward: dict[Address, int] = {}
        """The nodes that keep this node, each with the end of its lease."""
        self.probed: dict[Address, int] = {}
        """Failed nodes that are tried again, each with the end of its lease. Separate, because the law does not count
        them."""
        self.passive: dict[Address, None] = {}
        self._failed: dict[Address, int] = {}
        self._probe_us = now + self._until_probe()
        self._left = False
        # True if a contact has let this node in. Before that its own newcomers are no network, and it keeps asking.
        self._joined = not self._contacts
        self._join_us = now
        self._renew_us = now

    def neighbours(self) -> list[Address]:
        return list(self.partial | self.inward | self.probed)

    def on_message(self, message: Message, source: Address, now: int) -> None:
        if self._left:
            raise StaleError("this node has left")
        stranger = not self._is_linked(source)
        match message:
            case Join(newcomer=name) | ForwardJoin(newcomer=name) if stranger and name != source:
                raise StaleError("a stranger speaks for another")
            case Join():
                self._note(Address(message.newcomer))
                self._walk(message, now)
            case ForwardJoin():
                self._joined |= message.newcomer == source
                self._note(Address(message.newcomer))
                self._keep_or_pass_on(message, now)
            case Keep():
                self._kept_by(source, message.lease_ms, now)
            case Replace() if not stranger:
                self._replace(source, message.successor, now)
            case _:
                raise MalformedError("not a message of membership, or not a stranger's to send")

    def on_neighbour_lost(self, name: Address, now: int) -> None:
        """A neighbour failed. A passive address replaces it, if there is one. A failed probe is not repeated."""
        kept = name in self.partial
        self._part(name, now)
        self.passive.pop(name, None)
        remember(self._failed, name, self._failed.get(name, now + self._rules.lease_ms * 1_000), FAILED_MAX)
        if kept and self.passive:
            self._keep(self._any(self.passive), self._rules.lease_ms, now)

    def beat(self, now: int) -> None:
        if self._left:
            return
        self._expire(now)
        for name, until in (self.probed | self.partial).items():
            if not self._context.is_present(name):
                # The first message may be lost, and the peer cannot answer before it knows this node.
                self._context.send(name, Keep(max(0, until - now - self._grace_us) // 1_000))
        alone = self._context.unheard_us(now) > self._patience_us
        if now >= self._join_us and (alone or not self._joined or not self.inward or self._may_be_an_island()):
            self._recover(alone, now)
        elif now >= self._renew_us:
            self._ask([*self._live(), *self._contacts], now)
        if self._rules.probe_periods and now >= self._probe_us:
            self._probe(now)

    def leave(self, now: int) -> None:
        """Assign the nodes that this node keeps to the nodes that keep it, in turn, all but the last `copies` + 1 of
        them."""
        heirs = list(self.partial)
        self._rng.shuffle(heirs)
        replaced = len(self.inward) - self._rules.copies - 1
        for index, name in enumerate(self.inward):
            others = [heir for heir in heirs if heir != name] if index < replaced else []
            self._context.send(name, Replace(others[index % len(others)] if others else None))
        for name in self.neighbours():
            if name not in self.inward:
                self._context.send(name, Replace(None))
        self._left = True

    def sizes(self) -> dict[str, int]:
        return {"neighbours": len(self.neighbours()), "passive": len(self.passive), "failed": len(self._failed)}

    # --- joining

    def _ask(self, contacts: list[Address], now: int) -> None:
        """Ask to be kept for a lease, through one of these contacts."""
        self._join_us = now + self._patience_us
        # A first lease is shorter, so that simultaneous newcomers do not all renew at once.
        lease_ms = int(self._rules.lease_ms * (1 if self._joined else self._rng.uniform(0.5, 1)))
        self._renew_us = now + lease_ms * 1_000
        if contacts:
            contact = self._any(contacts)
            self.passive.pop(contact, None)
            self._context.send(contact, Join(self._name, lease_ms, not self._joined, self._rules.walk_hops))

    def _probe(self, now: int) -> None:
        """Keep a failed node, in case only the way to it had failed."""
        self._probe_us = now + self._until_probe()
        self._failed = {name: until for name, until in self._failed.items() if now < until}
        choices = [name for name in self._failed if not self._is_linked(name)]
        if choices and len(self.neighbours()) < self._neighbours_max:
            self._hold(self.probed, self._any(choices), self._rules.lease_ms, now)

    def _recover(self, alone: bool, now: int) -> None:
        """Join again: few or no nodes keep this node, or it hears none. In the last case it was cut off, and its
        neighbours have dropped it."""
        if alone:
            for name in self.neighbours():
                self._part(name, now)
                self._note(name)
            self._joined = False
        near = self._live() if self._joined and not self._may_be_an_island() else []
        self._ask(near or [*self.passive, *self._contacts], now)

    def _walk(self, join: Join, now: int) -> None:
        hops = min(join.hops, self._rules.walk_hops)
        near = [name for name in self.neighbours() if self._context.is_present(name)]
        while hops and near:
            hops -= 1
            if self._rng.random() * self._neighbours_max < len(near):
                self._context.send(self._any(near), Join(join.newcomer, join.lease_ms, join.fresh, hops))
                return
        if join.newcomer != self._name:
            self._be_contact(Address(join.newcomer), join.lease_ms, join.fresh, now)
        elif near:
            # The own walk has returned. A node is not its own contact.
            self._context.send(self._any(near), Join(join.newcomer, join.lease_ms, join.fresh, 0))

    def _be_contact(self, newcomer: Address, lease_ms: int, fresh: bool, now: int) -> None:
        others = self._others(newcomer)
        if others:
            # A renewal gets no additional copies; otherwise views would grow with every lease.
            for name in others + self._rng.choices(others, k=self._rules.copies if fresh else 0):
                self._context.send(name, ForwardJoin(newcomer, lease_ms, self._rules.forward_hops))
        elif newcomer not in self.partial and self._has_room_for(newcomer):
            self._keep(newcomer, lease_ms, now)
        if fresh:
            # A newcomer's view begins with its contact: this subscription has no hops left, so the newcomer keeps it.
            self._context.send(newcomer, ForwardJoin(self._name, self._rules.lease_ms, 0))

    def _keep_or_pass_on(self, message: ForwardJoin, now: int) -> None:
        newcomer, hops = Address(message.newcomer), min(message.hops, self._rules.forward_hops)
        can_keep = newcomer != self._name and newcomer not in self.partial and self._has_room_for(newcomer)
        if can_keep and (hops == 0 or self._rng.random() * (1 + len(self.partial)) < 1):
            self._keep(newcomer, message.lease_ms, now)
        elif hops and (others := self._others(newcomer)):
            self._context.send(self._any(others), ForwardJoin(newcomer, message.lease_ms, hops - 1))

    # --- arcs

    def _keep(self, name: Address, lease_ms: int, now: int) -> None:
        self._hold(self.partial, name, lease_ms, now)

    def _hold(self, view: dict[Address, int], name: Address, lease_ms: int, now: int) -> None:
        self.passive.pop(name, None)
        view[name] = self._until(lease_ms, now)
        self._context.open(name, now)
        self._context.send(name, Keep(lease_ms))

    def _kept_by(self, source: Address, lease_ms: int, now: int) -> None:
        if not self._has_room_for(source):
            raise StaleError("no room for another neighbour")
        self.passive.pop(source, None)
        self.inward[source] = self._until(lease_ms, now)
        self._context.open(source, now)

    def _replace(self, source: Address, successor: str | None, now: int) -> None:
        """A neighbour leaves. The node it names takes its place in the partial view, if it had one."""
        kept = source in self.partial
        self._part(source, now)
        self.passive.pop(source, None)
        if successor is None:
            return
        heir = Address(successor)
        self._note(heir)
        if kept and heir != self._name and heir not in self.partial and self._has_room_for(heir):
            self._keep(heir, self._rules.lease_ms, now)

    def _expire(self, now: int) -> None:
        old = self.neighbours()
        self.partial = {name: until for name, until in self.partial.items() if now < until}
        self.inward = {name: until for name, until in self.inward.items() if now < until}
        self.probed = {name: until for name, until in self.probed.items() if now < until}
        for name in old:
            if not self._is_linked(name):
                self._context.close(name, now)
                self._note(name)

    def _part(self, name: Address, now: int) -> None:
        linked = [view.pop(name) for view in (self.partial, self.inward, self.probed) if name in view]
        if linked:
            self._context.close(name, now)

    def _note(self, name: Address) -> None:
        """Store the address of a node that is not a neighbour. Not before this node has joined: a node that comes
        through it cannot let it in."""
        if not self._joined or name == self._name or self._is_linked(name) or not self._rules.passive_max:
            return
        remember(self.passive, name, None, self._rules.passive_max)

    # --- choosing

    def _is_linked(self, name: Address) -> bool:
        return name in self.partial or name in self.inward or name in self.probed

    def _may_be_an_island(self) -> bool:
        """True if this node hears fewer neighbours than the law gives to any node of a sizeable network."""
        return sum(self._context.is_present(name) for name in self.neighbours()) < self._rules.copies + 2

    def _has_room_for(self, name: Address) -> bool:
        return self._is_linked(name) or len(self.neighbours()) < self._neighbours_max

    def _live(self) -> list[Address]:
        return [name for name in self.partial if self._context.is_present(name)]

    def _others(self, newcomer: Address) -> list[Address]:
        """The nodes that may get a copy of a newcomer's subscription: those in the view, the present ones if known."""
        return [name for name in self._live() or self.partial if name != newcomer]

    def _any(self, names: Iterable[Address]) -> Address:
        return self._rng.choice(list(names))

    def _until_probe(self) -> int:
        """Random time until the next probe."""
        return int(self._rules.probe_periods * self._period_us * self._rng.uniform(0.5, 1.5))

    def _until(self, lease_ms: int, now: int) -> int:
        """The end of a lease, plus the time that its renewal takes."""
        return now + min(lease_ms, self._rules.lease_ms) * 1_000 + self._grace_us


FAILED_MAX: Final = 16
"""Failed nodes that are remembered."""
GRACE_PERIODS: Final = 10
"""Heartbeats for which an arc outlives its lease: about the time that its replacements take."""
