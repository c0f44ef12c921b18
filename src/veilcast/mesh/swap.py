"""The swap: two neighbours exchange positions in a topic's mesh, by a two-phase commit (P0 4.5).

A node v1 and its child v2 exchange positions: all neighbours of one become neighbours of the other, and only the edge
between the two keeps its ends. v1 first locks all its neighbours, among them v2, which sends the list of its own
children. If all agree, v1 tells v2 to go. v2 decides: it takes v1's position and tells its former neighbours, among
them v1. v1 then takes the free position and tells its own neighbours. Each of v1's neighbours costs three messages and
each of v2's one: 3|N+(v1)| + |N+(v2)| + 3|N-(v1)| + |N-(v2)|, as in P0 4.7.

Claim: v2's children need no lock.
Reason: two games harm one another only if an edge between their players loses both ends at once. v2 agrees only if v1
is its only supplier of the topic. So a neighbour of v2 that plays another game is v1, or a child whose game must lock
v2, or a child that v2 itself would have asked; and all of these lock v1 or v2.

Claim: lost messages do not split the mesh.
Reason: consider the supplier of each node. v2 moves first, up to v1's parent. Then v1, its other children and v2's
children move, in any order or not at all, to v1 or v2; and both lead to that parent at every moment. A lock that
outlives its lease is released, as if the game had been aborted (presumed abort). Two neighbours that then disagree are
repaired outside the game, because children remind their parents.

Claim: a Byzantine node spoils only its own games.
Reason: no node enters two games of one name, and the news of a game is identified by the name and by its sender. So a
node that has heard the name of another's game can neither end it by that name nor impersonate it. No neighbour locks a
node forever (`LockLimits`).

The tables at the end list which message is legal in which state, and the states that may follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from random import Random
from typing import Final, NamedTuple, Protocol, TypeAlias

from veilcast.errors import StaleError
from veilcast.machine import Address
from veilcast.mesh.replay import SeenIds
from veilcast.wire.base import Message
from veilcast.wire.mesh import SwapAbort, SwapAnswer, SwapAsk, SwapCommit, SwapLock, SwapVote

SwapMessage: TypeAlias = SwapAsk | SwapAnswer | SwapLock | SwapVote | SwapCommit | SwapAbort


class SwapContext(Protocol):
    """The view of its node that a game has."""

    def inward(self, token: bytes) -> list[Address]: ...

    def outward(self, token: bytes) -> list[Address]: ...

    def is_settled(self, token: bytes, now: int) -> bool:
        """True if this mesh is stable enough to play."""

    def may_move(self, token: bytes) -> bool:
        """True if this node would leave its position in it."""

    def has_room_for(self, names: int) -> bool:
        """True if there is room for this many more acquaintances."""

    def may_link(self, names: Sequence[str]) -> bool:
        """True if this node may become a neighbour of these nodes in a mesh."""

    def send(self, neighbour: Address, message: Message) -> None: ...

    def relink(
        self, token: bytes, inward: Sequence[Address], outward: Sequence[Address], now: int, *, moved: bool
    ) -> None:
        """Set the neighbours in the mesh: this node has moved (`moved`), or one of its neighbours has."""

    def on_doubt(self, token: bytes) -> None:
        """This node let another take its position and never heard whether it did."""

    def on_released(self, token: bytes) -> None:
        """The lock has ended."""


class SwapState(Enum):
    """A node's part in a game."""

    FREE = auto()
    """Not locked."""
    ASKING = auto()
    """v1, until all have voted."""
    DECIDED = auto()
    """v1, until v2 has gone."""
    AGREED = auto()
    """v2, until v1 tells it to go."""
    HELD = auto()
    """A neighbour of v1, until it learns the result."""


class SwapGame:
    """A lock: the game in which a node takes part. The sets are those at the beginning, each without the other
    player."""

    __slots__ = (
        "awaited_votes",
        "expires_us",
        "inward",
        "name",
        "outward",
        "partner",
        "partner_neighbours",
        "since_us",
        "state",
        "token",
    )

    def __init__(self, name: bytes, token: bytes, state: SwapState, partner: Address, now: int, until_us: int) -> None:
        self.name, self.token, self.state, self.partner = name, token, state, partner
        self.since_us, self.expires_us = now, until_us
        self.inward: tuple[Address, ...] = ()
        self.outward: tuple[Address, ...] = ()
        self.partner_neighbours: tuple[tuple[Address, ...], tuple[Address, ...]] = ((), ())
        """The other player's sets."""
        self.awaited_votes: dict[Address, None] = {}
        """The nodes whose vote v1 waits for."""

    def is_participant(self, name: Address) -> bool:
        """True if this node accepts messages of that node in this game."""
        return name == self.partner or name in self.awaited_votes


class Swaps:
    """All games of a node: at most one for each mesh. `completed` counts the games that this node began and that ended
    in a swap."""

    def __init__(
        self,
        context: SwapContext,
        rng: Random,
        *,
        lease_us: int,
        lock_limits: LockLimits,
        names_max: int,
        name_bytes_max: int,
        memory: int,
    ) -> None:
        self._context, self._rng, self._lease_us, self._lock_limits = context, rng, lease_us, lock_limits
        self._names_max, self._name_bytes_max = names_max, name_bytes_max
        self._games: dict[bytes, SwapGame] = {}
        self._over = SeenIds(memory)
        self.completed = 0

    def is_locked(self, token: bytes) -> bool:
        return token in self._games

    def active_games(self) -> list[SwapGame]:
        return list(self._games.values())

    def start(self, token: bytes, child: Address, now: int) -> bool:
        """Begin a game with this child; False if the mesh is locked by another game, or the position does not allow
        one."""
        context = self._context
        if token in self._games:
            return False
        game = SwapGame(self._rng.randbytes(16), token, SwapState.ASKING, child, now, now + self._lease_us // 2)
        game.inward = tuple(context.inward(token))
        game.outward = tuple(name for name in context.outward(token) if name != child)
        if child in game.inward or any(name in game.outward for name in game.inward):
            return False  # Each supplies the other: no tree, and no game.
        if not self._fits((*game.inward, *game.outward)):
            return False
        game.awaited_votes = dict.fromkeys((child, *game.inward, *game.outward))
        self._games[token] = game
        context.send(child, SwapAsk(game.name, token, game.inward, game.outward))
        for names, inner in ((game.inward, True), (game.outward, False)):
            for name in names:
                context.send(name, SwapLock(game.name, token, inner))
        return True

    def on_message(self, message: SwapMessage, source: Address, now: int) -> None:
        """Raises `StaleError` for a message that is not legal now."""
        self.expire(now)
        token = getattr(message, "token", None)
        game = next(
            (game for game in self.active_games() if game.name == message.game and game.is_participant(source)), None
        )
        if game is not None and token in (None, game.token):
            rule = OWN_GAME_RULES.get((game.state, type(message)))
            if rule is None:
                raise StaleError("not a message that this game waits for")
            rule.act(self, game, message, source, now)
            return
        own_game = self._games.get(token) if token is not None else None
        other_rule = OTHER_GAME_RULES.get((own_game.state if own_game else SwapState.FREE, type(message)))
        known = _news(message.game, source) if isinstance(message, SwapCommit) else message.game
        if other_rule is None or known in self._over:
            raise StaleError("a game that is over, or not the time for it")
        other_rule.act(self, message, source, now)

    def expire(self, now: int) -> None:
        """Release locks past their lease. A game that lacks votes is aborted."""
        for game in self.active_games():
            if game.expires_us <= now:
                self._give_up(game, now)

    def on_neighbour_lost(self, neighbour: Address) -> None:
        """Abort the games that need a lost neighbour. It is charged for the whole lease, in case it returns."""
        for game in self.active_games():
            asked = (*game.inward, *game.outward) if game.state is SwapState.ASKING else ()
            if neighbour in (game.partner, *asked):
                self._give_up(game, game.expires_us)

    # --- v1

    def _on_answer(self, game: SwapGame, message: SwapAnswer, source: Address, now: int) -> None:
        near = (game.partner, *game.inward, *game.outward)
        apart = len(dict.fromkeys((*near, *message.outward))) == len(near) + len(message.outward)
        fits = apart and self._fits(message.outward) and self._context.may_link(message.outward)
        agreed = message.agreed and source == game.partner and fits
        game.partner_neighbours = ((), tuple(Address(name) for name in message.outward))
        self._count(game, source, agreed, now)

    def _on_vote(self, game: SwapGame, message: SwapVote, source: Address, now: int) -> None:
        self._count(game, source, message.locked and source != game.partner, now)

    def _count(self, game: SwapGame, source: Address, agreed: bool, now: int) -> None:
        game.awaited_votes.pop(source, None)
        if not agreed:
            self._give_up(game, now)
        elif not game.awaited_votes:
            game.state, game.expires_us = SwapState.DECIDED, game.since_us + self._lease_us
            self._context.send(game.partner, SwapCommit(game.name, game.token, game.partner))

    def _on_gone(self, game: SwapGame, message: SwapCommit, source: Address, now: int) -> None:
        """v2 has taken this node's position. Take its position; neighbours that came meanwhile stay."""
        inward = [name for name in self._context.inward(game.token) if name not in game.inward]
        near = (game.partner, *game.outward)
        outward = [name for name in self._context.outward(game.token) if name not in near]
        self._context.relink(
            game.token, [*inward, game.partner], [*outward, *game.partner_neighbours[1]], now, moved=True
        )
        for name in (*game.inward, *game.outward):
            self._context.send(name, SwapCommit(game.name, game.token, game.partner))
        self.completed += 1
        self._end(game, now)

    def _give_up(self, game: SwapGame, now: int) -> None:
        if game.state is SwapState.ASKING:
            for name in (game.partner, *game.inward, *game.outward):
                self._context.send(name, SwapAbort(game.name))
        elif game.state is SwapState.DECIDED:
            self._context.on_doubt(game.token)
        self._end(game, now)

    # --- v2

    def _on_ask(self, message: SwapAsk, source: Address, now: int) -> None:
        context, token = self._context, message.token
        own_game, theirs = context.outward(token), (*message.inward, *message.outward)
        agreed = (
            token not in self._games
            and self._lock_limits.allows(source, now)
            and context.inward(token) == [source]
            and source not in own_game
            and len(dict.fromkeys((*own_game, *theirs))) == len(own_game) + len(theirs)
            and self._fits(own_game)
            and self._fits(theirs)
            and context.is_settled(token, now)
            and context.may_move(token)
            and context.may_link(theirs)
        )
        if agreed:
            game = self._bind(message.game, token, SwapState.AGREED, source, now)
            game.outward = tuple(own_game)
            game.partner_neighbours = tuple(map(Address, message.inward)), tuple(map(Address, message.outward))
        context.send(source, SwapAnswer(message.game, agreed, tuple(own_game) if agreed else ()))

    def _on_go(self, game: SwapGame, message: SwapCommit, source: Address, now: int) -> None:
        """The decision: take v1's position."""
        outward = [name for name in self._context.outward(game.token) if name not in game.outward]
        inward, theirs = game.partner_neighbours
        self._context.relink(game.token, inward, [*outward, *theirs, source], now, moved=True)
        for name in (source, *game.outward):
            self._context.send(name, SwapCommit(game.name, game.token, source))
        self._end(game, now)

    # --- neighbours of v1 and v2

    def _on_lock(self, message: SwapLock, source: Address, now: int) -> None:
        context, token = self._context, message.token
        near = source in (context.outward(token) if message.inner else context.inward(token))
        free = token not in self._games and self._lock_limits.allows(source, now)
        locked = near and free and context.is_settled(token, now) and context.has_room_for(1)
        if locked:
            self._bind(message.game, token, SwapState.HELD, source, now)
        context.send(source, SwapVote(message.game, locked))

    def _on_commit(self, game: SwapGame, message: SwapCommit, source: Address, now: int) -> None:
        self._succeed(game.token, source, Address(message.successor), now)
        self._end(game, now)

    def _on_abort(self, game: SwapGame, message: SwapAbort, source: Address, now: int) -> None:
        self._end(game, now)

    def _on_parent_gone(self, message: SwapCommit, source: Address, now: int) -> None:
        """v2 was this node's supplier of the topic. An own game that still collects votes needs v2, so it is aborted.

        Once all have voted, no neighbour may move before this node's game is over. A node that claims so then is
        Byzantine, or its clock is fast, and it is refused. Otherwise this node would tell a node of the sender's choice
        that it is gone.
        """
        token, successor = message.token, Address(message.successor)
        if source not in self._context.inward(token) or not self._context.has_room_for(1):
            raise StaleError("a node that does not supply this one")
        game = self._games.get(token)
        if game is not None and game.state is SwapState.ASKING:
            self._give_up(game, now)
        self._remember(message.game, source)
        self._succeed(token, source, successor, now)

    def _succeed(self, token: bytes, old: Address, new: Address, now: int) -> None:
        """Put the successor in the place of the other node. It may have arrived there before the news of it."""
        inward, outward = (
            dict.fromkeys(new if name == old else name for name in names)
            for names in (self._context.inward(token), self._context.outward(token))
        )
        if self._fits((new,)) and (new not in inward or new not in outward):
            self._context.relink(token, list(inward), list(outward), now, moved=False)

    # --- locks

    def _fits(self, names: Sequence[str]) -> bool:
        """True if a heartbeat of this node could carry these names."""
        return len(names) <= self._names_max and all(len(name.encode()) <= self._name_bytes_max for name in names)

    def _bind(self, name: bytes, token: bytes, state: SwapState, partner: Address, now: int) -> SwapGame:
        game = self._games[token] = SwapGame(name, token, state, partner, now, now + self._lease_us)
        return game

    def _end(self, game: SwapGame, now: int) -> None:
        del self._games[game.token]
        self._remember(game.name, game.partner)
        if game.state in (SwapState.AGREED, SwapState.HELD):
            self._lock_limits.charge(game.partner, game.since_us, now)
        self._context.on_released(game.token)

    def _remember(self, game: bytes, source: Address) -> None:
        """The game is over for this node, and `source` has nothing more to tell about it."""
        self._over.add(game)
        self._over.add(_news(game, source))


class LockLimits:
    """Limits how long a neighbour may keep this node locked, over all its games. Bounded: the debts of at most
    `names_max` neighbours; beyond that the smallest debt is forgotten.

    A lease bounds one game, but not a neighbour that starts the next game at once. So the time for which a neighbour
    locks this node is its debt. The debt falls with the time in which it does not, and a neighbour over `debt_max_us`
    is refused. In the long run no neighbour locks this node for more than half of the time. Honest players owe little:
    their games end within a few heartbeats, and they cool down.
    """

    def __init__(self, debt_max_us: int, names_max: int) -> None:
        self._debt_max_us, self._names_max = debt_max_us, names_max
        self._paid_at_us: dict[Address, int] = {}

    def __len__(self) -> int:
        return len(self._paid_at_us)

    def allows(self, neighbour: Address, now: int) -> bool:
        """True if this neighbour may lock this node once more."""
        self._paid_at_us = {name: paid for name, paid in self._paid_at_us.items() if paid > now}
        return self._paid_at_us.get(neighbour, now) - now < self._debt_max_us

    def charge(self, neighbour: Address, since_us: int, now: int) -> None:
        """The neighbour has held a lock from `since_us` until now. It pays that off from now on, after its earlier
        debt."""
        owed = max(self._paid_at_us.get(neighbour, since_us), since_us)
        self._paid_at_us[neighbour] = owed + 2 * (now - since_us)
        if len(self._paid_at_us) > self._names_max:
            del self._paid_at_us[min(self._paid_at_us, key=self._paid_at_us.__getitem__)]


class SwapRule(NamedTuple):
    """The handler of a message, and the states that may follow."""

    act: Callable[..., None]
    leads: tuple[SwapState, ...]


def _news(game: bytes, source: Address) -> bytes:
    """Identifies what a node has told about a game."""
    return game + source.encode()


_BOUND: Final = (SwapState.ASKING, SwapState.DECIDED, SwapState.AGREED, SwapState.HELD)
OWN_GAME_RULES: Final[dict[tuple[SwapState, type[Message]], SwapRule]] = {
    (SwapState.ASKING, SwapAnswer): SwapRule(Swaps._on_answer, (SwapState.ASKING, SwapState.DECIDED, SwapState.FREE)),
    (SwapState.ASKING, SwapVote): SwapRule(Swaps._on_vote, (SwapState.ASKING, SwapState.DECIDED, SwapState.FREE)),
    (SwapState.DECIDED, SwapCommit): SwapRule(Swaps._on_gone, (SwapState.FREE,)),
    (SwapState.AGREED, SwapCommit): SwapRule(Swaps._on_go, (SwapState.FREE,)),
    (SwapState.AGREED, SwapAbort): SwapRule(Swaps._on_abort, (SwapState.FREE,)),
    (SwapState.HELD, SwapCommit): SwapRule(Swaps._on_commit, (SwapState.FREE,)),
    (SwapState.HELD, SwapAbort): SwapRule(Swaps._on_abort, (SwapState.FREE,)),
}
"""Legal messages of a game in which this node is locked."""
OTHER_GAME_RULES: Final[dict[tuple[SwapState, type[Message]], SwapRule]] = {
    (SwapState.FREE, SwapAsk): SwapRule(Swaps._on_ask, (SwapState.FREE, SwapState.AGREED)),
    (SwapState.FREE, SwapLock): SwapRule(Swaps._on_lock, (SwapState.FREE, SwapState.HELD)),
    (SwapState.FREE, SwapCommit): SwapRule(Swaps._on_parent_gone, (SwapState.FREE,)),
    **{(state, SwapAsk): SwapRule(Swaps._on_ask, (state,)) for state in _BOUND},
    **{(state, SwapLock): SwapRule(Swaps._on_lock, (state,)) for state in _BOUND},
    (SwapState.ASKING, SwapCommit): SwapRule(Swaps._on_parent_gone, (SwapState.FREE,)),
    (SwapState.AGREED, SwapCommit): SwapRule(Swaps._on_parent_gone, (SwapState.AGREED,)),
    (SwapState.HELD, SwapCommit): SwapRule(Swaps._on_parent_gone, (SwapState.HELD,)),
}
"""Legal messages of another game. A node that is locked refuses the first two kinds."""
EVENT_TRANSITIONS: Final[dict[tuple[SwapState, str], tuple[SwapState, ...]]] = {
    (SwapState.FREE, "begins"): (SwapState.FREE, SwapState.ASKING),
    **{(state, "lease ends"): (SwapState.FREE,) for state in _BOUND},
    **{(state, "neighbour lost"): (state, SwapState.FREE) for state in _BOUND},
}
"""Transitions without a message: `start`, `expire` and `on_neighbour_lost`."""
