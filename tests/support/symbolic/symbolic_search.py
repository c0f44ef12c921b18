"""Bounded search: all runs of a few role instances in a network that the intruder owns.

A role is a list of steps. Each step takes one message that the intruder can send, changes the instance's local state,
and returns the messages that the instance sends and the events that it reports. The search visits every state that any
interleaving reaches, within the bounds of `intruder`, and stops at the first state that breaks a property; the trace is
a shortest one. It ends because every step is taken once by each instance and every step has finitely many instances.

Claim: if the search finds nothing, no intruder within the bounds breaks the property against these role instances.
Assumptions: cryptography is perfect, with the exceptions that `intruder` names; the model describes the code.
Reason: an intruder that has heard more can do more. So each instance sends at once after its own receiving step, and
the search varies the order of steps of different instances.

`leaks` are long-term keys that the intruder is given at a moment of its choice. A claim from before that moment must
hold afterwards; later claims are not checked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from support.symbolic.intruder import Intruder, Shapes
from support.symbolic.symbolic_terms import Term


class Event(NamedTuple):
    """A report of an instance, such as that it regards a key as secret, or the peer as a certain member."""

    kind: str
    about: tuple[Term, ...]


class Outcome(NamedTuple):
    """The result of a step."""

    local: Hashable
    sends: tuple[Term, ...] = ()
    events: tuple[Event, ...] = ()
    told: str = ""
    """The received message, for the trace."""


Step: TypeAlias = "Callable[[Hashable, Intruder], Iterable[Outcome]]"


class Instance(NamedTuple):
    """One run of a role by one party. It first sends the messages of `start`."""

    name: str
    start: Outcome
    steps: tuple[Step, ...]


class Local(NamedTuple):
    done: int
    state: Hashable
    events: tuple[Event, ...]


class State(NamedTuple):
    locals: tuple[Local, ...]
    claimed: tuple[tuple[Event, ...], ...] | None = None
    """The events before the leak of the long-term keys; None before the leak."""

    def events(self) -> tuple[tuple[Event, ...], ...]:
        return tuple(local.events for local in self.locals) if self.claimed is None else self.claimed


Property: TypeAlias = Callable[[State, Intruder], "str | None"]


@dataclass(frozen=True)
class Found:
    """The result of a search: a broken property with its trace, or none after all states."""

    broken: str | None
    trace: tuple[str, ...]
    states: int
    finished: frozenset[str]
    """Instances that took all their steps in some state."""

    def __bool__(self) -> bool:
        return self.broken is not None


class BoundExceeded(Exception):
    """There are more states than the search may visit, so it shows nothing."""


def search(
    instances: Sequence[Instance],
    properties: Sequence[Property],
    held: Iterable[Term],
    *,
    shapes: Shapes | None = None,
    leaks: Sequence[Term] = (),
    states_max: int = 200_000,
) -> Found:
    intruder = Intruder(shapes or Shapes()).hear(*held, *(sent for each in instances for sent in each.start.sends))
    first = State(tuple(Local(0, each.start.local, each.start.events) for each in instances))
    before: _Before = {(first, intruder.held): None}
    waiting = deque([(first, intruder)])
    finished: set[str] = set()

    def broken(state: State, intruder: Intruder) -> str | None:
        return next((told for check in properties if (told := check(state, intruder)) is not None), None)

    if (told := broken(first, intruder)) is not None:
        return Found(told, (), 1, frozenset())
    while waiting:
        state, intruder = waiting.popleft()
        finished |= {each.name for each, local in zip(instances, state.locals, strict=True) if _is_done(each, local)}
        for step, following, knows in _following(instances, state, intruder, leaks):
            reached = (following, knows.held)
            if reached in before:
                continue
            if len(before) >= states_max:
                raise BoundExceeded(f"more than {states_max} states")
            before[reached] = (state, intruder.held), step
            if (told := broken(following, knows)) is not None:
                return Found(told, _trace(before, reached), len(before), frozenset(finished))
            waiting.append((following, knows))
    return Found(None, (), len(before), frozenset(finished))


def keeps_secrets(state: State, intruder: Intruder) -> str | None:
    """Property: the intruder holds no term that an instance claims as secret."""
    for events in state.events():
        for event in events:
            if event.kind == "secret" and intruder.derives(event.about[-1]):
                return f"the intruder has {event.about[-1]!r}"
    return None


def agrees(commits: str, runs: str, *, injective: bool = True) -> Property:
    """Property: an instance that commits to data has a partner that ran with the same data, one for each."""

    def check(state: State, intruder: Intruder) -> str | None:
        every = [event for events in state.events() for event in events]
        for event in every:
            if event.kind != commits:
                continue
            running = sum(other == Event(runs, event.about) for other in every)
            committed = every.count(event)
            if running < (committed if injective else 1):
                return f"{commits} {event.about!r} {committed} times, and {runs} {running} times"
        return None

    return check


def never(kind: str) -> Property:
    """Property: no instance reports this."""

    def check(state: State, intruder: Intruder) -> str | None:
        for events in state.events():
            for event in events:
                if event.kind == kind:
                    return f"{kind} {event.about!r}"
        return None

    return check


def hides(*terms: Term) -> Property:
    """Property: the intruder never holds these terms."""

    def check(state: State, intruder: Intruder) -> str | None:
        return next((f"the intruder has {term!r}" for term in terms if intruder.derives(term)), None)

    return check


def _following(
    instances: Sequence[Instance], state: State, intruder: Intruder, leaks: Sequence[Term]
) -> Iterator[tuple[str, State, Intruder]]:
    for place, (instance, local) in enumerate(zip(instances, state.locals, strict=True)):
        if _is_done(instance, local):
            continue
        for outcome in instance.steps[local.done](local.state, intruder):
            moved = Local(local.done + 1, outcome.local, local.events + outcome.events)
            locals_ = (*state.locals[:place], moved, *state.locals[place + 1 :])
            told = f"{instance.name} takes {outcome.told}"
            yield told, State(locals_, state.claimed), intruder.hear(*outcome.sends)
    if leaks and state.claimed is None and any(event.kind == "secret" for each in state.events() for event in each):
        yield "long-term keys leak", State(state.locals, state.events()), intruder.hear(*leaks)


def _is_done(instance: Instance, local: Local) -> bool:
    return local.done == len(instance.steps)


def _trace(before: _Before, reached: _Reached) -> tuple[str, ...]:
    told: list[str] = []
    link = before[reached]
    while link is not None:
        reached, what = link
        told.append(what)
        link = before[reached]
    return tuple(reversed(told))


_Reached: TypeAlias = "tuple[State, frozenset[Term]]"
"""A state, and the intruder in it."""
_Before: TypeAlias = "dict[_Reached, tuple[_Reached, str] | None]"
