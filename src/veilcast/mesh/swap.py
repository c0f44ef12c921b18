"""The swap: two neighbours change places in a topic's mesh, by a commit in two phases (P0 4.5).

A node v1 and its child v2 exchange positions: all who stood next to one stand next to the other afterwards, and only
the edge between the two keeps its ends. v1 first locks everybody next to it, v2 among them, who hands over its own
children; if all agree, v1 tells v2 to go. v2 decides: it takes v1's place and tells its former neighbours, v1 among
them; v1 takes the place that is left and tells its own. Each of v1's neighbours costs three messages and each of v2's
one: 3|N+(v1)| + |N+(v2)| + 3|N-(v1)| + |N-(v2)|, as P0 4.7 has it.

Why v2's children need no lock: two games harm one another only if an edge between their players loses both ends at
once. v2 agrees only if v1 is all it has the topic from. So whoever stands next to v2, as player of another game, is
v1, or a child whose game must lock v2, or a child that v2 itself would have asked; and all of these lock v1 or v2.

Why nothing falls apart when messages are lost: look at whom each node has the topic from. v2 moves first, up to v1's
parent; then v1, its other children and v2's children move, in any order or not at all, to v1 or v2; and both lead to
that parent at every moment. A lock that outlives its lease is released, as if the game had been given up (presumed
abort); what two neighbours then disagree about is put right outside the game, for children remind their parents.

Why a liar spoils its own games only: nobody enters two games of one name, and news of a game is known by the name and
by whose it is. So whoever has heard the name of another's game can neither end it by that name nor pass for it; and
nobody holds a node for ever (`patience`).

The tables at the end say which message is legal in which state, and what may come of it.


Patience: how long a neighbour may keep us bound in games, one after another.

A lease bounds one game, not a neighbour that asks for the next as soon as one is over. So the time for which each
neighbour holds us is its debt, which it pays off by as much time in which it does not; and whoever owes too much is
refused. In the long run nobody holds us for more than half of the time. Players who mean it owe little: their games
are over in a few heartbeats, and they cool down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from random import Random
from typing import Final, NamedTuple, Protocol, TypeAlias

from veilcast.errors import StaleError
from veilcast.machine import Address
from veilcast.mesh.replay import SeenIds
from veilcast.wire.mesh import Message, SwapAbort, SwapAnswer, SwapAsk, SwapCommit, SwapLock, SwapVote


class LockLimits:
    """The debts of at most `names_max` neighbours; past that, the smallest is forgiven."""

    def __init__(self, debt_max_us: int, names_max: int) -> None:
        self._debt_max_us, self._names_max = debt_max_us, names_max
        self._paid_at_us: dict[Address, int] = {}

    def __len__(self) -> int:
        return len(self._paid_at_us)

    def allows(self, neighbour: Address, now: int) -> bool:
        """Whether it may hold us once more."""
        self._paid_at_us = {name: paid for name, paid in self._paid_at_us.items() if paid > now}
        return self._paid_at_us.get(neighbour, now) - now < self._debt_max_us

    def charge(self, neighbour: Address, since_us: int, now: int) -> None:
        """It has held us from then until now, and pays that off from now on, after what it owed before."""
        owed = max(self._paid_at_us.get(neighbour, since_us), since_us)
        self._paid_at_us[neighbour] = owed + 2 * (now - since_us)
        if len(self._paid_at_us) > self._names_max:
            del self._paid_at_us[min(self._paid_at_us, key=self._paid_at_us.__getitem__)]


SwapMessage: TypeAlias = SwapAsk | SwapAnswer | SwapLock | SwapVote | SwapCommit | SwapAbort


class SwapContext(Protocol):
    """What a game sees and moves of its node."""

    def inward(self, token: bytes) -> list[Address]: ...

    def outward(self, token: bytes) -> list[Address]: ...

    def is_settled(self, token: bytes, now: int) -> bool:
        """Whether this mesh is fit to be played on."""

    def may_move(self, token: bytes) -> bool:
        """Whether we would leave our place in it."""

    def has_room_for(self, names: int) -> bool:
        """Whether we may come to know this many more."""

    def send(self, neighbour: Address, message: Message) -> None: ...

    def relink(
        self, token: bytes, inward: Sequence[Address], outward: Sequence[Address], now: int, *, moved: bool
    ) -> None:
        """These are next to us from now on, for we have moved, or one of them has."""

    def on_doubt(self, token: bytes) -> None:
        """We let somebody take our place and never heard whether it did."""

    def on_released(self, token: bytes) -> None:
        """We are not bound any more."""


class SwapState(Enum):
    """How a node is bound in a game."""

    FREE = auto()
    """Not at all."""
    ASKING = auto()
    """v1, until all have voted."""
    DECIDED = auto()
    """v1, until v2 has gone."""
    AGREED = auto()
    """v2, until it is told to go."""
    HELD = auto()
    """Somebody next to v1, until it is told what came of it."""


class SwapGame:
    """A lock: the game a node is bound in. The sets are those at the beginning, each without the other player."""

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
        """Whose vote v1 waits for."""

    def is_participant(self, name: Address) -> bool:
        """Whether we listen to this one in this game."""
        return name == self.partner or name in self.awaited_votes


class Swaps:
    """All games of a node: at most one for each mesh. `completed` counts those that this node began and ended."""

    def __init__(
        self,
        board: SwapContext,
        rng: Random,
        *,
        lease_us: int,
        patience: LockLimits,
        names_max: int,
        name_bytes_max: int,
        memory: int,
    ) -> None:
        self._board, self._rng, self._lease_us, self._patience = board, rng, lease_us, patience
        self._names_max, self._name_bytes_max = names_max, name_bytes_max
        self._games: dict[bytes, SwapGame] = {}
        self._over = SeenIds(memory)
        self.completed = 0

    def is_locked(self, token: bytes) -> bool:
        return token in self._games

    def active_games(self) -> list[SwapGame]:
        return list(self._games.values())

    def start(self, token: bytes, child: Address, now: int) -> bool:
        """Begin a game with this child; False if we are bound in another, or the place is not fit for one."""
        board = self._board
        if token in self._games:
            return False
        game = SwapGame(self._rng.randbytes(16), token, SwapState.ASKING, child, now, now + self._lease_us // 2)
        game.inward = tuple(board.inward(token))
        game.outward = tuple(name for name in board.outward(token) if name != child)
        if child in game.inward or any(name in game.outward for name in game.inward):
            return False  # Each would have the topic from the other: no tree, and no game.
        if not self._fits((*game.inward, *game.outward)):
            return False
        game.awaited_votes = dict.fromkeys((child, *game.inward, *game.outward))
        self._games[token] = game
        board.send(child, SwapAsk(game.name, token, game.inward, game.outward))
        for names, inner in ((game.inward, True), (game.outward, False)):
            for name in names:
                board.send(name, SwapLock(game.name, token, inner))
        return True

    def on_message(self, message: SwapMessage, source: Address, now: int) -> None:
        """Raises `StaleError` for what is out of place."""
        self.expire(now)
        token = getattr(message, "token", None)
        game = next(
            (game for game in self.active_games() if game.name == message.game and game.is_participant(source)), None
        )
        if game is not None and token in (None, game.token):
            rule = OWN_GAME_RULES.get((game.state, type(message)))
            if rule is None:
                raise StaleError("not what this game waits for")
            rule.act(self, game, message, source, now)
            return
        mine = self._games.get(token) if token is not None else None
        strange = OTHER_GAME_RULES.get((mine.state if mine else SwapState.FREE, type(message)))
        known = _news(message.game, source) if isinstance(message, SwapCommit) else message.game
        if strange is None or known in self._over:
            raise StaleError("a game that is over, or not the time for it")
        strange.act(self, message, source, now)

    def expire(self, now: int) -> None:
        """Release what was locked for longer than its lease; a game that is short of votes is given up."""
        for game in self.active_games():
            if game.expires_us <= now:
                self._give_up(game, now)

    def on_neighbour_lost(self, neighbour: Address) -> None:
        """A neighbour is gone; so are the games that need it. It owes the whole lease, should it come again."""
        for game in self.active_games():
            asked = (*game.inward, *game.outward) if game.state is SwapState.ASKING else ()
            if neighbour in (game.partner, *asked):
                self._give_up(game, game.expires_us)

    # --- v1

    def _on_answer(self, game: SwapGame, message: SwapAnswer, source: Address, now: int) -> None:
        near = (game.partner, *game.inward, *game.outward)
        apart = len(dict.fromkeys((*near, *message.outward))) == len(near) + len(message.outward)
        fits = apart and self._fits(message.outward) and self._board.has_room_for(len(message.outward))
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
            self._board.send(game.partner, SwapCommit(game.name, game.token, game.partner))

    def _on_gone(self, game: SwapGame, message: SwapCommit, source: Address, now: int) -> None:
        """v2 has taken our place: we take its, and who has come to us meanwhile stays with us."""
        inward = [name for name in self._board.inward(game.token) if name not in game.inward]
        near = (game.partner, *game.outward)
        outward = [name for name in self._board.outward(game.token) if name not in near]
        self._board.relink(
            game.token, [*inward, game.partner], [*outward, *game.partner_neighbours[1]], now, moved=True
        )
        for name in (*game.inward, *game.outward):
            self._board.send(name, SwapCommit(game.name, game.token, game.partner))
        self.completed += 1
        self._end(game, now)

    def _give_up(self, game: SwapGame, now: int) -> None:
        if game.state is SwapState.ASKING:
            for name in (game.partner, *game.inward, *game.outward):
                self._board.send(name, SwapAbort(game.name))
        elif game.state is SwapState.DECIDED:
            self._board.on_doubt(game.token)
        self._end(game, now)

    # --- v2

    def _on_ask(self, message: SwapAsk, source: Address, now: int) -> None:
        board, token = self._board, message.token
        mine, theirs = board.outward(token), (*message.inward, *message.outward)
        agreed = (
            token not in self._games
            and self._patience.allows(source, now)
            and board.inward(token) == [source]
            and source not in mine
            and len(dict.fromkeys((*mine, *theirs))) == len(mine) + len(theirs)
            and self._fits(mine)
            and self._fits(theirs)
            and board.is_settled(token, now)
            and board.may_move(token)
            and board.has_room_for(len(theirs))
        )
        if agreed:
            game = self._bind(message.game, token, SwapState.AGREED, source, now)
            game.outward = tuple(mine)
            game.partner_neighbours = tuple(map(Address, message.inward)), tuple(map(Address, message.outward))
        board.send(source, SwapAnswer(message.game, agreed, tuple(mine) if agreed else ()))

    def _on_go(self, game: SwapGame, message: SwapCommit, source: Address, now: int) -> None:
        """This is the moment: we take v1's place."""
        outward = [name for name in self._board.outward(game.token) if name not in game.outward]
        inward, theirs = game.partner_neighbours
        self._board.relink(game.token, inward, [*outward, *theirs, source], now, moved=True)
        for name in (source, *game.outward):
            self._board.send(name, SwapCommit(game.name, game.token, source))
        self._end(game, now)

    # --- those next to them

    def _on_lock(self, message: SwapLock, source: Address, now: int) -> None:
        board, token = self._board, message.token
        near = source in (board.outward(token) if message.inner else board.inward(token))
        free = token not in self._games and self._patience.allows(source, now)
        locked = near and free and board.is_settled(token, now) and board.has_room_for(1)
        if locked:
            self._bind(message.game, token, SwapState.HELD, source, now)
        board.send(source, SwapVote(message.game, locked))

    def _on_commit(self, game: SwapGame, message: SwapCommit, source: Address, now: int) -> None:
        self._succeed(game.token, source, Address(message.successor), now)
        self._end(game, now)

    def _on_abort(self, game: SwapGame, message: SwapAbort, source: Address, now: int) -> None:
        self._end(game, now)

    def _on_parent_gone(self, message: SwapCommit, source: Address, now: int) -> None:
        """v2 was what we have the topic from. A game of our own that we have begun would need it: that is given up.

        Once all have voted, nobody next to us may move before our game is over. Who says so then lies, or its clock
        runs fast, and is not believed; or we would tell somebody of its choice that we are gone.
        """
        token, successor = message.token, Address(message.successor)
        if source not in self._board.inward(token) or not self._board.has_room_for(1):
            raise StaleError("a place that we have nothing from")
        game = self._games.get(token)
        if game is not None and game.state is SwapState.ASKING:
            self._give_up(game, now)
        self._remember(message.game, source)
        self._succeed(token, source, successor, now)

    def _succeed(self, token: bytes, old: Address, new: Address, now: int) -> None:
        """Put the successor where the other stood; it may have come there before the news of it."""
        inward, outward = (
            dict.fromkeys(new if name == old else name for name in names)
            for names in (self._board.inward(token), self._board.outward(token))
        )
        if self._fits((new,)) and (new not in inward or new not in outward):
            self._board.relink(token, list(inward), list(outward), now, moved=False)

    # --- locks

    def _fits(self, names: Sequence[str]) -> bool:
        """Whether a heartbeat of ours could hand these on one day."""
        return len(names) <= self._names_max and all(len(name.encode()) <= self._name_bytes_max for name in names)

    def _bind(self, name: bytes, token: bytes, state: SwapState, partner: Address, now: int) -> SwapGame:
        game = self._games[token] = SwapGame(name, token, state, partner, now, now + self._lease_us)
        return game

    def _end(self, game: SwapGame, now: int) -> None:
        del self._games[game.token]
        self._remember(game.name, game.partner)
        if game.state in (SwapState.AGREED, SwapState.HELD):
            self._patience.charge(game.partner, game.since_us, now)
        self._board.on_released(game.token)

    def _remember(self, game: bytes, source: Address) -> None:
        """The game is over for us, and this one has nothing more to tell us of it."""
        self._over.add(game)
        self._over.add(_news(game, source))


class SwapRule(NamedTuple):
    """What is done with a message, and the states in which that may leave us."""

    act: Callable[..., None]
    leads: tuple[SwapState, ...]


def _news(game: bytes, source: Address) -> bytes:
    """What a node has told of a game."""
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
"""What is legal in a game that we are bound in."""

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
"""What is legal of a game that we are not bound in; whoever is bound in another refuses the first two."""

EVENT_TRANSITIONS: Final[dict[tuple[SwapState, str], tuple[SwapState, ...]]] = {
    (SwapState.FREE, "begins"): (SwapState.FREE, SwapState.ASKING),
    **{(state, "lease ends"): (SwapState.FREE,) for state in _BOUND},
    **{(state, "neighbour lost"): (state, SwapState.FREE) for state in _BOUND},
}
"""What comes of what is no message: `start`, `expire` and `lost`."""
