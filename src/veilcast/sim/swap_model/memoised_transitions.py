"""The transitions of a node, computed once by the real code and then looked up.

A node's reaction depends on its state and the message alone. Both are numbered, and (state, message) -> (next state,
sent messages) is a table that fills itself by running the code. A state of the whole model is then a few numbers, and a
step of the search a few look-ups.

Every number has a random key of 64 bits. The fingerprint of a state is the sum of the keys of all its numbers, modulo
2^64. Two different states have one fingerprint with probability at most 2^-63 (a number that occurs twice in one of
them costs a bit). A step changes the fingerprint by the keys of what changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

import msgspec

from veilcast.errors import RemoteError
from veilcast.machine import Address
from veilcast.mesh.swap import SwapMessage, SwapState
from veilcast.sim.swap_model.node import (
    LEASE_US,
    NAME_BYTES,
    TOKEN,
    BoundGame,
    ModelNode,
    NodeState,
    UnverifiedName,
    sort_names,
    spell_name,
)
from veilcast.wire.mesh import SwapAbort, SwapCommit


class Transition(NamedTuple):
    """The result of a node's step: its next state, the messages it sends, and whether a game ended for it."""

    state: int
    messages: tuple[int, ...]
    ended: bool
    moved: bool
    """True if the node's parent changed."""
    change: int
    """The change of the whole state's fingerprint."""


class SwapDelivery(NamedTuple):
    source: Address
    target: Address
    message: SwapMessage

    def __str__(self) -> str:
        fields = msgspec.structs.asdict(self.message)
        words = [_describe_field(value) for name, value in fields.items() if name != "token"]
        return f"{type(self.message).__name__}({', '.join(words)}) from {self.source} to {self.target}"


class MemoisedTransitions:
    """All numbered states and messages, which index the lists, and the transitions between them."""

    def __init__(self, names: Iterable[str], games: Iterable[bytes], rng: Random) -> None:
        self.names = list(names)
        self._chairs = [ModelNode(name) for name in self.names]
        self._games = list(games)
        self._rng = rng
        self._held_numbers: dict[Any, int] = {}
        self.states: list[NodeState] = []
        self.state_keys: list[int] = []
        self.owners: list[int] = []
        """Index of the node that has this state."""
        self.is_bound: list[bool] = []
        self.misled: list[bool] = []
        """True if a neighbour is an unverified name."""
        self.leads: list[int] = []
        """Bit of the game that the node leads, or 0."""
        self.follows: list[tuple[int, int]] = []
        """Index of the node that leads the game this one is bound in, and that game's bit; zeros, if it leads itself or
        is free."""
        self.over: list[int] = []
        """Games that are over for the node, as bits; all, for a node that has crashed or is Byzantine."""
        self._post_numbers: dict[Any, int] = {}
        self.messages: list[SwapDelivery] = []
        self.message_keys: list[int] = []
        self.targets: list[int] = []
        self.refused_after: list[int] = []
        """Bit that means, if it is over for the target, that the message is refused for ever."""
        self._steps: dict[tuple[int, int], Transition] = {}
        self._expired: dict[int, Transition] = {}
        self._crashed: dict[int, Transition] = {}
        self._begun: dict[tuple[int, bytes, str], Transition] = {}

    def draw_key(self) -> int:
        return self._rng.getrandbits(64)

    def number_state(self, place: int, held: NodeState, *, inert: bool = False) -> int:
        """The number of this state of the node at `place`. An inert node never acts again."""
        if inert:
            held = held._replace(over=(), bound=None)
        name = place, inert, _canonical(held)
        number = self._held_numbers.setdefault(name, len(self.states))
        if number == len(self.states):
            self.states.append(held)
            self.state_keys.append(self.draw_key())
            self.owners.append(place)
            self.is_bound.append(held.bound is not None)
            self.over.append(-1 if inert else self._over(held.over))
            self.misled.append(any(isinstance(name, UnverifiedName) for name in (*held.inward, *held.outward)))
            self._place_in_game(held.bound)
        return number

    def number_message(self, post: SwapDelivery) -> int:
        message = msgspec.structs.replace(
            post.message,
            **{
                name: sort_names(value)
                for name, value in msgspec.structs.asdict(post.message).items()
                if isinstance(value, tuple)
            },
        )
        name = post.source, post.target, type(message), _canonical(msgspec.structs.astuple(message))
        number = self._post_numbers.setdefault(name, len(self.messages))
        if number == len(self.messages):
            self.messages.append(SwapDelivery(post.source, post.target, message))
            self.message_keys.append(self.draw_key())
            self.targets.append(self.names.index(str(post.target)))
            self.refused_after.append(self._fails(message, post.source))
        return number

    def deliver(self, held: int, post: int) -> Transition:
        step = self._steps.get((held, post))
        if step is None:
            step = self._steps[held, post] = self.react(held, self.messages[post])
        return step

    def react(self, held: int, post: SwapDelivery) -> Transition:
        def receive(chair: ModelNode) -> None:
            with suppress(RemoteError):
                chair.swaps.on_message(post.message, post.source, 0)

        return self._move(held, receive)

    def expire(self, held: int) -> Transition:
        """The lease of the node's lock ends."""
        step = self._expired.get(held)
        if step is None:
            step = self._expired[held] = self._move(held, lambda chair: chair.swaps.expire(2 * LEASE_US))
        return step

    def begin(self, held: int, game: bytes, child: str) -> Transition:
        """The node begins this game, if the other player is its child."""

        def start(chair: ModelNode) -> None:
            chair.names.next = game
            if self.over[held] >= 0 and child in chair.outward_names:
                chair.swaps.start(TOKEN, Address(child), 0)

        step = self._begun.get((held, game, child))
        if step is None:
            step = self._begun[held, game, child] = self._move(held, start)
        return step

    def crash(self, held: int) -> Transition:
        step = self._crashed.get(held)
        if step is None:
            after = self.number_state(self.owners[held], self.states[held], inert=True)
            step = self._crashed[held] = Transition(
                after, (), True, False, self.state_keys[after] - self.state_keys[held]
            )
        return step

    def _bit(self, game: bytes, source: str = "") -> int:
        """The bit of a game, or of one node's message about it."""
        which = self.names.index(source) + 1 if source else 0
        return 1 << self._games.index(game) * (len(self.names) + 1) + which

    def _over(self, known: Iterable[bytes]) -> int:
        return sum(self._bit(name[:NAME_BYTES], name[NAME_BYTES:].decode()) for name in known)

    def _fails(self, message: SwapMessage, source: str) -> int:
        """A node enters or leads a game only once, but may hear of its end from several nodes."""
        heard = isinstance(message, SwapCommit | SwapAbort)
        return self._bit(message.game, source if heard else "")

    def _place_in_game(self, bound: BoundGame | None) -> None:
        leads = bound is not None and bound.state in (SwapState.ASKING, SwapState.DECIDED)
        self.leads.append(self._bit(bound.name) if bound is not None and leads else 0)
        follows = bound is not None and not leads
        self.follows.append(
            (self.names.index(bound.partner), self._bit(bound.name)) if bound is not None and follows else (0, 0)
        )

    def _move(self, held: int, act: Callable[[ModelNode], None]) -> Transition:
        place, before = self.owners[held], self.states[held]
        chair = self._chairs[place]
        chair.restore(before)
        act(chair)
        after = self.number_state(place, chair.snapshot(), inert=self.over[held] < 0)
        others = [
            name for name in self.names if name != chair.name
        ]  # A forgery may name an unknown node, or the node itself.
        posts = tuple(
            self.number_message(SwapDelivery(chair.name, target, message))
            for target, message in chair.sent
            if target in others
        )
        moved = _canonical(self.states[after].inward) != _canonical(before.inward)
        change = self.state_keys[after] - self.state_keys[held] + sum(self.message_keys[post] for post in posts)
        return Transition(after, posts, self.over[after] != self.over[held], moved, change)


def _canonical(value: Any) -> Any:
    if isinstance(value, str):
        return spell_name(value)
    return tuple(map(_canonical, value)) if isinstance(value, tuple) else value


def _describe_field(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({' '.join(map(spell_name, value))})"
    if isinstance(value, bytes):
        return value.decode().strip()
    return spell_name(value) if isinstance(value, str) else str(value).lower()
