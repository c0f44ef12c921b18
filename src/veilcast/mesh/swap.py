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
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from random import Random
from typing import Final, NamedTuple, Protocol, TypeAlias

from veilcast.errors import StaleError
from veilcast.machine import Address
from veilcast.mesh.duplicates import Duplicates
from veilcast.mesh.patience import Patience
from veilcast.wire.messages import (
    Message,
    SwapAbort,
    SwapAnswer,
    SwapAsk,
    SwapCommit,
    SwapLock,
    SwapVote,
)

SwapMessage: TypeAlias = SwapAsk | SwapAnswer | SwapLock | SwapVote | SwapCommit | SwapAbort


class Board(Protocol):
    """What a game sees and moves of its node."""

    def inward(self, token: bytes) -> list[Address]: ...

    def outward(self, token: bytes) -> list[Address]: ...

    def settled(self, token: bytes, now: int) -> bool:
        """Whether this mesh is fit to be played on."""

    def moves(self, token: bytes) -> bool:
        """Whether we would leave our place in it."""

    def room(self, names: int) -> bool:
        """Whether we may come to know this many more."""

    def send(self, neighbour: Address, message: Message) -> None: ...

    def relink(
        self, token: bytes, inward: Sequence[Address], outward: Sequence[Address], now: int, *, moved: bool
    ) -> None:
        """These are next to us from now on, for we have moved, or one of them has."""

    def doubted(self, token: bytes) -> None:
        """We let somebody take our place and never heard whether it did."""

    def released(self, token: bytes) -> None:
        """We are not bound any more."""


class State(Enum):
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


class Game:
    """A lock: the game a node is bound in. The sets are those at the beginning, each without the other player."""

    __slots__ = ("inward", "missing", "name", "outward", "partner", "since_us", "state", "theirs", "token", "until_us")

    def __init__(self, name: bytes, token: bytes, state: State, partner: Address, now: int, until_us: int) -> None:
        self.name, self.token, self.state, self.partner = name, token, state, partner
        self.since_us, self.until_us = now, until_us
        self.inward: tuple[Address, ...] = ()
        self.outward: tuple[Address, ...] = ()
        self.theirs: tuple[tuple[Address, ...], tuple[Address, ...]] = ((), ())
        """The other player's sets."""
        self.missing: dict[Address, None] = {}
        """Whose vote v1 waits for."""

    def joins(self, name: Address) -> bool:
        """Whether we listen to this one in this game."""
        return name == self.partner or name in self.missing


class Swaps:
    """All games of a node: at most one for each mesh. `played` counts those that this node began and ended."""

    def __init__(
        self,
        board: Board,
        rng: Random,
        *,
        lease_us: int,
        patience: Patience,
        names_max: int,
        name_bytes_max: int,
        memory: int,
    ) -> None:
        self._board, self._rng, self._lease_us, self._patience = board, rng, lease_us, patience
        self._names_max, self._name_bytes_max = names_max, name_bytes_max
        self._games: dict[bytes, Game] = {}
        self._over = Duplicates(memory)
        self.played = 0

    def bound(self, token: bytes) -> bool:
        return token in self._games

    def locks(self) -> list[Game]:
        return list(self._games.values())

    def start(self, token: bytes, child: Address, now: int) -> bool:
        """Begin a game with this child; False if we are bound in another, or the place is not fit for one."""
        board = self._board
        if token in self._games:
            return False
        game = Game(self._rng.randbytes(16), token, State.ASKING, child, now, now + self._lease_us // 2)
        game.inward = tuple(board.inward(token))
        game.outward = tuple(name for name in board.outward(token) if name != child)
        if child in game.inward or any(name in game.outward for name in game.inward):
            return False  # Each would have the topic from the other: no tree, and no game.
        if not self._fits((*game.inward, *game.outward)):
            return False
        game.missing = dict.fromkeys((child, *game.inward, *game.outward))
        self._games[token] = game
        board.send(child, SwapAsk(game.name, token, game.inward, game.outward))
        for names, inner in ((game.inward, True), (game.outward, False)):
            for name in names:
                board.send(name, SwapLock(game.name, token, inner))
        return True

    def received(self, message: SwapMessage, source: Address, now: int) -> None:
        """Raises `StaleError` for what is out of place."""
        self.expire(now)
        token = getattr(message, "token", None)
        game = next((game for game in self.locks() if game.name == message.game and game.joins(source)), None)
        if game is not None and token in (None, game.token):
            rule = RULES.get((game.state, type(message)))
            if rule is None:
                raise StaleError("not what this game waits for")
            rule.act(self, game, message, source, now)
            return
        mine = self._games.get(token) if token is not None else None
        strange = STRANGE_RULES.get((mine.state if mine else State.FREE, type(message)))
        known = _news(message.game, source) if isinstance(message, SwapCommit) else message.game
        if strange is None or known in self._over:
            raise StaleError("a game that is over, or not the time for it")
        strange.act(self, message, source, now)

    def expire(self, now: int) -> None:
        """Release what was locked for longer than its lease; a game that is short of votes is given up."""
        for game in self.locks():
            if game.until_us <= now:
                self._give_up(game, now)

    def lost(self, neighbour: Address) -> None:
        """A neighbour is gone; so are the games that need it. It owes the whole lease, should it come again."""
        for game in self.locks():
            asked = (*game.inward, *game.outward) if game.state is State.ASKING else ()
            if neighbour in (game.partner, *asked):
                self._give_up(game, game.until_us)

    # --- v1

    def _on_answer(self, game: Game, message: SwapAnswer, source: Address, now: int) -> None:
        near = (game.partner, *game.inward, *game.outward)
        apart = len(dict.fromkeys((*near, *message.outward))) == len(near) + len(message.outward)
        fits = apart and self._fits(message.outward) and self._board.room(len(message.outward))
        agreed = message.agreed and source == game.partner and fits
        game.theirs = ((), tuple(Address(name) for name in message.outward))
        self._count(game, source, agreed, now)

    def _on_vote(self, game: Game, message: SwapVote, source: Address, now: int) -> None:
        self._count(game, source, message.locked and source != game.partner, now)

    def _count(self, game: Game, source: Address, agreed: bool, now: int) -> None:
        game.missing.pop(source, None)
        if not agreed:
            self._give_up(game, now)
        elif not game.missing:
            game.state, game.until_us = State.DECIDED, game.since_us + self._lease_us
            self._board.send(game.partner, SwapCommit(game.name, game.token, game.partner))

    def _on_gone(self, game: Game, message: SwapCommit, source: Address, now: int) -> None:
        """v2 has taken our place: we take its, and who has come to us meanwhile stays with us."""
        inward = [name for name in self._board.inward(game.token) if name not in game.inward]
        near = (game.partner, *game.outward)
        outward = [name for name in self._board.outward(game.token) if name not in near]
        self._board.relink(game.token, [*inward, game.partner], [*outward, *game.theirs[1]], now, moved=True)
        for name in (*game.inward, *game.outward):
            self._board.send(name, SwapCommit(game.name, game.token, game.partner))
        self.played += 1
        self._end(game, now)

    def _give_up(self, game: Game, now: int) -> None:
        if game.state is State.ASKING:
            for name in (game.partner, *game.inward, *game.outward):
                self._board.send(name, SwapAbort(game.name))
        elif game.state is State.DECIDED:
            self._board.doubted(game.token)
        self._end(game, now)

    # --- v2

    def _on_ask(self, message: SwapAsk, source: Address, now: int) -> None:
        board, token = self._board, message.token
        mine, theirs = board.outward(token), (*message.inward, *message.outward)
        agreed = (
            token not in self._games
            and self._patience.lasts(source, now)
            and board.inward(token) == [source]
            and source not in mine
            and len(dict.fromkeys((*mine, *theirs))) == len(mine) + len(theirs)
            and self._fits(mine)
            and self._fits(theirs)
            and board.settled(token, now)
            and board.moves(token)
            and board.room(len(theirs))
        )
        if agreed:
            game = self._bind(message.game, token, State.AGREED, source, now)
            game.outward = tuple(mine)
            game.theirs = tuple(map(Address, message.inward)), tuple(map(Address, message.outward))
        board.send(source, SwapAnswer(message.game, agreed, tuple(mine) if agreed else ()))

    def _on_go(self, game: Game, message: SwapCommit, source: Address, now: int) -> None:
        """This is the moment: we take v1's place."""
        outward = [name for name in self._board.outward(game.token) if name not in game.outward]
        inward, theirs = game.theirs
        self._board.relink(game.token, inward, [*outward, *theirs, source], now, moved=True)
        for name in (source, *game.outward):
            self._board.send(name, SwapCommit(game.name, game.token, source))
        self._end(game, now)

    # --- those next to them

    def _on_lock(self, message: SwapLock, source: Address, now: int) -> None:
        board, token = self._board, message.token
        near = source in (board.outward(token) if message.inner else board.inward(token))
        free = token not in self._games and self._patience.lasts(source, now)
        locked = near and free and board.settled(token, now) and board.room(1)
        if locked:
            self._bind(message.game, token, State.HELD, source, now)
        board.send(source, SwapVote(message.game, locked))

    def _on_commit(self, game: Game, message: SwapCommit, source: Address, now: int) -> None:
        self._succeed(game.token, source, Address(message.successor), now)
        self._end(game, now)

    def _on_abort(self, game: Game, message: SwapAbort, source: Address, now: int) -> None:
        self._end(game, now)

    def _on_parent_gone(self, message: SwapCommit, source: Address, now: int) -> None:
        """v2 was what we have the topic from. A game of our own that we have begun would need it: that is given up.

        Once all have voted, nobody next to us may move before our game is over. Who says so then lies, or its clock
        runs fast, and is not believed; or we would tell somebody of its choice that we are gone.
        """
        token, successor = message.token, Address(message.successor)
        if source not in self._board.inward(token) or not self._board.room(1):
            raise StaleError("a place that we have nothing from")
        game = self._games.get(token)
        if game is not None and game.state is State.ASKING:
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

    def _bind(self, name: bytes, token: bytes, state: State, partner: Address, now: int) -> Game:
        game = self._games[token] = Game(name, token, state, partner, now, now + self._lease_us)
        return game

    def _end(self, game: Game, now: int) -> None:
        del self._games[game.token]
        self._remember(game.name, game.partner)
        if game.state in (State.AGREED, State.HELD):
            self._patience.held(game.partner, game.since_us, now)
        self._board.released(game.token)

    def _remember(self, game: bytes, source: Address) -> None:
        """The game is over for us, and this one has nothing more to tell us of it."""
        self._over.add(game)
        self._over.add(_news(game, source))


class Rule(NamedTuple):
    """What is done with a message, and the states in which that may leave us."""

    act: Callable[..., None]
    leads: tuple[State, ...]


def _news(game: bytes, source: Address) -> bytes:
    """What a node has told of a game."""
    return game + source.encode()


_BOUND: Final = (State.ASKING, State.DECIDED, State.AGREED, State.HELD)

RULES: Final[dict[tuple[State, type[Message]], Rule]] = {
    (State.ASKING, SwapAnswer): Rule(Swaps._on_answer, (State.ASKING, State.DECIDED, State.FREE)),
    (State.ASKING, SwapVote): Rule(Swaps._on_vote, (State.ASKING, State.DECIDED, State.FREE)),
    (State.DECIDED, SwapCommit): Rule(Swaps._on_gone, (State.FREE,)),
    (State.AGREED, SwapCommit): Rule(Swaps._on_go, (State.FREE,)),
    (State.AGREED, SwapAbort): Rule(Swaps._on_abort, (State.FREE,)),
    (State.HELD, SwapCommit): Rule(Swaps._on_commit, (State.FREE,)),
    (State.HELD, SwapAbort): Rule(Swaps._on_abort, (State.FREE,)),
}
"""What is legal in a game that we are bound in."""

STRANGE_RULES: Final[dict[tuple[State, type[Message]], Rule]] = {
    (State.FREE, SwapAsk): Rule(Swaps._on_ask, (State.FREE, State.AGREED)),
    (State.FREE, SwapLock): Rule(Swaps._on_lock, (State.FREE, State.HELD)),
    (State.FREE, SwapCommit): Rule(Swaps._on_parent_gone, (State.FREE,)),
    **{(state, SwapAsk): Rule(Swaps._on_ask, (state,)) for state in _BOUND},
    **{(state, SwapLock): Rule(Swaps._on_lock, (state,)) for state in _BOUND},
    (State.ASKING, SwapCommit): Rule(Swaps._on_parent_gone, (State.FREE,)),
    (State.AGREED, SwapCommit): Rule(Swaps._on_parent_gone, (State.AGREED,)),
    (State.HELD, SwapCommit): Rule(Swaps._on_parent_gone, (State.HELD,)),
}
"""What is legal of a game that we are not bound in; whoever is bound in another refuses the first two."""

TURNS: Final[dict[tuple[State, str], tuple[State, ...]]] = {
    (State.FREE, "begins"): (State.FREE, State.ASKING),
    **{(state, "lease ends"): (State.FREE,) for state in _BOUND},
    **{(state, "neighbour lost"): (state, State.FREE) for state in _BOUND},
}
"""What comes of what is no message: `start`, `expire` and `lost`."""
