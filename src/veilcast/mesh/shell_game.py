"""The shell game (P0 4.5): nodes of a mesh exchange positions, so that a position reveals nothing about the node there.

This module decides when to play; `swap` exchanges the positions. A node plays first when its mesh begins to form, then
again after exponential waits, ever less often: it cools down. Everything runs once in a heartbeat, because no message
could leave earlier.

Positions and advertisements. A node that has moved, or whose neighbour has moved, gets the topic from the nodes next to
its position, and not over the shortest way of the advertisements. It stays even if no node needs it there. From then on
following an advertisement could lead to a loop, because other nodes are not where the advertisements place them either.
So no node plays until its ways are stable. If a way changes afterwards, if the parent at a position fails, or if a game
ends in doubt, the node asks the origin for a fresh chain. The mesh forms again along that chain, positions on the old
chain end with it, and the game begins again.

What heartbeats show. New neighbours in the mesh must exchange heartbeats, and P0 hides everything else in these. With
`reach` 0, as in P0, they become acquaintances at the moment of the swap: an observer sees pairs that the overlay does
not have, knows the members before anything is published, and can trace each swap back. With a `reach`, all nodes within
that many hops exchange heartbeats at all times (`nearby_nodes`), and no game makes a pair that is not among these.

After a game. A former neighbour in the mesh gets notifications for one lease more, so that all arrive while only some
nodes have moved; duplicates are dropped as always. New neighbours in the mesh become acquaintances, if they are not
neighbours, and get heartbeats. Every node reminds its parents at intervals that it is there, by a plain `Subscribe`,
and forgets children that do not. So two nodes that disagree after a lost message come to agree again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import exp
from random import Random
from typing import Final

from veilcast.machine import Address
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.hiding_policy import HidingPolicy, MeshPosition, PolicyContext
from veilcast.mesh.nearby_nodes import NearbyNodes
from veilcast.mesh.routes import AdvertisedOrigin
from veilcast.mesh.swap import LockLimits, SwapGame, SwapMessage, Swaps
from veilcast.wire.base import Message
from veilcast.wire.mesh import Subscribe, Surroundings


class ShellGamePolicy:
    """A policy around another one, which acts as if no node moved. It is PFSG of P0 if the inner policy has covers."""

    def __init__(self, config: MeshConfig, context: PolicyContext, inner: HidingPolicy, rng: Random) -> None:
        self._rule, self._context, self._inner, self._rng = config.shellgame, context, inner, rng
        self._lease_us = self._rule.lease_periods * config.heartbeat_us
        self._remind_us = self._rule.remind_periods * config.heartbeat_us
        self._settle_us = self._rule.settle_periods * config.heartbeat_us
        self.swaps = Swaps(
            self,
            rng,
            lease_us=self._lease_us,
            lock_limits=LockLimits(self._rule.patience_periods * config.heartbeat_us, config.neighbours_max),
            names_max=config.neighbours_max,
            name_bytes_max=config.address_bytes_max,
            memory=config.tokens_max,
        )
        self._nearby = NearbyNodes(self._rule.reach, config.neighbours_max)
        self._players: dict[bytes, _GameState] = {}
        self._positions: dict[bytes, MeshPosition] = {}
        self._former_neighbours: dict[bytes, dict[Address, int]] = {}
        self._doubtful_origins: dict[bytes, tuple[AdvertisedOrigin, ...]] = {}
        self._released: dict[bytes, None] = {}

    # --- HidingPolicy

    def parent(self, token: bytes) -> Address | None:
        return self._inner.parent(token)

    def covers(self, token: bytes) -> Collection[Address]:
        return self._inner.covers(token)

    def position(self, token: bytes) -> MeshPosition | None:
        """The position of this node, as long as there is a way to one of the origins of its mesh."""
        position = self._positions.get(token)
        if position is not None and not any(
            origin in position.origins for origin in self._context.reachable_origins(token)
        ):
            del self._positions[token]
            return None
        return position

    def former_neighbours(self, token: bytes) -> Collection[Address]:
        return self._former_neighbours.get(token, ())

    def is_locked(self, token: bytes) -> bool:
        return self.swaps.is_locked(token)

    def on_advert(self, token: bytes, now: int) -> None:
        self._inner.on_advert(token, now)

    def on_joined(self, token: bytes, now: int) -> None:
        self._inner.on_joined(token, now)

    def on_left(self, token: bytes) -> list[Address]:
        return self._inner.on_left(token)

    def on_forwarded(self, token: bytes, now: int) -> None:
        self._inner.on_forwarded(token, now)

    def on_neighbour_lost(self, neighbour: Address) -> None:
        """A node that has lost the parent at its position asks for a fresh chain, until there is one."""
        for token, position in list(self._positions.items()):
            if neighbour in position.inward:
                del self._positions[token]
                self._doubtful_origins[token] = position.origins
        for former in self._former_neighbours.values():
            former.pop(neighbour, None)
        self._nearby.forget_told(neighbour)
        self._inner.on_neighbour_lost(neighbour)
        self.swaps.on_neighbour_lost(neighbour)

    def on_message(self, message: Message, source: Address, now: int) -> None:
        if isinstance(message, SwapMessage):
            self.swaps.on_message(message, source, now)
            self._reconcile_released(now)
        elif isinstance(message, Surroundings):
            self._nearby.hear(message, source)
        else:
            if isinstance(message, Subscribe) and message.token in self._players:
                self._players[message.token].child_reminders[source] = now
            self._inner.on_message(message, source, now)

    def beat(self, now: int) -> None:
        self._inner.beat(now)
        self.swaps.expire(now)
        self._drop_expired(now)
        self._reconcile_released(now)
        tokens = self._context.branches.tokens()
        self._players = {token: self._players[token] for token in tokens if token in self._players}
        for token in tokens:
            self._play_if_due(token, now)
            if not self.is_locked(token):
                self._remind(token, self._players[token], now)
        self._reconcile_released(now)
        self._tell_surroundings()
        self._update_acquaintances(now)

    def size(self) -> int:
        lingering = sum(len(former) for former in self._former_neighbours.values())
        games = len(self._players) + len(self._positions) + len(self._doubtful_origins) + len(self.swaps.active_games())
        return self._inner.size() + games + lingering + len(self._nearby)

    def active_games(self) -> list[SwapGame]:
        return self.swaps.active_games()

    def swaps_completed(self) -> int:
        return self.swaps.completed

    # --- SwapContext

    def inward(self, token: bytes) -> list[Address]:
        return self._context.branches.inward(token)

    def outward(self, token: bytes) -> list[Address]:
        return self._context.branches.outward(token)

    def is_settled(self, token: bytes, now: int) -> bool:
        origins = self._context.reachable_origins(token)
        return bool(origins) and self._settled_on(token, now) == origins

    def may_move(self, token: bytes) -> bool:
        return self._rule.publisher_plays or not self._context.originates(token)

    def has_room_for(self, names: int) -> bool:
        """A lock may bring one more acquaintance, for which there must be room as well."""
        near = self._nearby.names(self._context.present_neighbours())
        known = len([name for name in self._context.acquaintances() if name not in near])
        return known + len(self.swaps.active_games()) + names <= self._rule.acquaintances_max

    def may_link(self, names: Sequence[str]) -> bool:
        if not self._rule.reach:
            return self.has_room_for(len(names))
        present = self._context.present_neighbours()
        linked = {*present, *self._nearby.names(present)}
        return linked.issuperset(names)

    def send(self, neighbour: Address, message: Message) -> None:
        self._context.send(neighbour, message)

    def relink(
        self, token: bytes, inward: Sequence[Address], outward: Sequence[Address], now: int, *, moved: bool
    ) -> None:
        branches, before = self._context.branches, (self.inward(token), self.outward(token))
        adjacent = dict.fromkeys((*inward, *outward))
        former = self._former_neighbours.setdefault(token, {})
        former |= dict.fromkeys((*before[0], *before[1]), now + self._lease_us)
        self._former_neighbours[token] = {name: until for name, until in former.items() if name not in adjacent}
        for name in before[0]:
            branches.remove_inward(token, name)
        for name in before[1]:
            branches.remove_outward(token, name)
        for name in inward:
            branches.add_inward(token, name)
        for name in outward:
            branches.add_outward(token, name)
        # A chain that came during the game leads elsewhere, so the position does not apply to it.
        self._positions[token] = MeshPosition(tuple(inward), tuple(self._settled_on(token, now)))
        if moved and token in self._players:
            self._players[token].neighbours, self._players[token].parents_reminded_us = adjacent, now
        self._update_acquaintances(now)

    def on_doubt(self, token: bytes) -> None:
        self._doubtful_origins[token] = tuple(self._context.reachable_origins(token))

    def on_released(self, token: bytes) -> None:
        self._released[token] = None

    # --- when to play

    def _play_if_due(self, token: bytes, now: int) -> None:
        """Play if it is time. A mesh that has formed again is a new one."""
        rule, origins = self._rule, tuple(self._context.reachable_origins(token))
        player = self._players.get(token)
        if player is None or not any(origin in player.origins for origin in origins):
            player = self._players[token] = _GameState(now, origins, player)
        outward = self.outward(token)
        adjacent = dict.fromkeys((*self.inward(token), *outward))
        if player.due_us is None:
            if outward if rule.start == "child" else adjacent:
                player.due_us = now if rule.first == "immediate" else now + self._wait()
        elif rule.start == "change" and adjacent != player.neighbours:
            player.due_us = now
        player.neighbours = adjacent
        settled = self.is_settled(token, now)
        if player.settled and not settled:
            player.settled = False
            self.on_doubt(token)
        if settled and not player.settled:
            player.settled, player.since_us = True, now
        if settled and player.due_us is not None and player.due_us <= now:
            player.due_us = now + self._wait()
            if (
                outward
                and self.may_move(token)
                and self._rng.random() < player.play_probability(rule.rate, rule.decay, now)
            ):
                player.games += self.swaps.start(token, self._rng.choice(outward), now)

    def _settled_on(self, token: bytes, now: int) -> list[AdvertisedOrigin]:
        """The origins to which the ways of this node are stable."""
        return [
            origin for origin in self._context.reachable_origins(token) if now - origin.changed_us >= self._settle_us
        ]

    def _wait(self) -> int:
        return round(self._rng.expovariate(1 / self._rule.wait_us))

    # --- after games

    def _remind(self, token: bytes, player: _GameState, now: int) -> None:
        """Tell the parents that this node is there, and forget children that have not told it for long."""
        if now - player.parents_reminded_us >= self._remind_us:
            player.parents_reminded_us = now
            for parent in self.inward(token):
                self.send(parent, Subscribe(token))
        player.child_reminders = {child: player.child_reminders.get(child, now) for child in self.outward(token)}
        for child, since in player.child_reminders.items():
            if now - since > _REMINDERS * self._remind_us:
                self._context.branches.remove_outward(token, child)
                self.on_released(token)

    def _reconcile_released(self, now: int) -> None:
        """Do the work that had to wait while the node was locked."""
        released, self._released = list(self._released), {}
        for token in released:
            self._context.reconcile(token, now)

    def _drop_expired(self, now: int) -> None:
        for token, former in list(self._former_neighbours.items()):
            kept = self._former_neighbours[token] = {name: until for name, until in former.items() if until > now}
            if not kept:
                del self._former_neighbours[token]
        for token in list(self._positions):
            self.position(token)
        for token, origins in list(self._doubtful_origins.items()):
            if doubted := [origin for origin in self._context.reachable_origins(token) if origin in origins]:
                self._context.request_fresh_chains(doubted, now)
            else:
                del self._doubtful_origins[token]

    def _tell_surroundings(self) -> None:
        if self._rule.reach:
            present = self._context.present_neighbours()
            for neighbour, message in self._nearby.take_news(present):
                self._context.send(neighbour, message)

    def _update_acquaintances(self, now: int) -> None:
        branches = self._context.branches
        adjacent = [name for token in branches.tokens() for name in (*branches.inward(token), *branches.outward(token))]
        adjacent += [name for former in self._former_neighbours.values() for name in former]
        adjacent += self._nearby.names(self._context.present_neighbours())
        self._context.set_acquaintances(dict.fromkeys(adjacent), now)


class _GameState:
    """The state of the game in one mesh: since when it can be played, the next game, the last known neighbours."""

    __slots__ = (
        "child_reminders",
        "due_us",
        "games",
        "neighbours",
        "origins",
        "parents_reminded_us",
        "settled",
        "since_us",
    )

    def __init__(self, now: int, origins: tuple[AdvertisedOrigin, ...], before: _GameState | None = None) -> None:
        """Reminders continue as `before`: if a mesh forms again and again, reminders are all that repairs it."""
        self.since_us, self.origins = now, origins
        self.due_us: int | None = None
        self.games = 0
        self.settled = False
        """True if the ways were stable at the last look."""
        self.neighbours: dict[Address, None] = {}
        self.parents_reminded_us: int = now if before is None else before.parents_reminded_us
        self.child_reminders: dict[Address, int] = {} if before is None else before.child_reminders
        """Time of the last reminder of each child."""

    def play_probability(self, rate: float, decay: str, now: int) -> float:
        """Falls with time, or with the number of games played."""
        return exp(-rate * (self.games if decay == "count" else (now - self.since_us) / 1_000_000))


_REMINDERS: Final = 5
"""Reminders that a child may miss."""
