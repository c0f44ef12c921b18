"""A search over all states of the real swap code in a few shell games.

A state consists of the states of all nodes, all messages in flight, and the events that may still happen. From each
state any message may be delivered next, in any order, and a game may begin. Within the plan's numbers a message may be
lost, or be delivered and stay in flight as a copy; a node may crash; and the Byzantine node may send any message to any
node. Leases end when no message is in flight: first the lease of a game's leader, since it is shorter or began earlier,
and then those of the others. The search is breadth-first, so it finds a shortest path to a fault.

Three reductions keep it small. Claim: none hides a fault.

1. Transitions are looked up (`transitions`), so a step does not run the code, and known states are recognised by a
   fingerprint of 64 bits. Among n states, one is mistaken for another with probability below n^2 / 2^64.
2. A message about a game that is over for its target, or to a crashed node, is dropped at once. Reason: the code
   refuses such a message without any change, and games that are over stay over. So delivery, loss and delay have the
   same effect, and can be moved before every other step.
3. A fault without effect is not tried: to lose a message that would change nothing, or to copy one that would be
   refused. A state that was met with more faults left, of each kind, is not expanded again, since everything that can
   follow with fewer faults can follow with more. The remaining faults of each kind are numbered (`FaultBudget`), and a
   set of these numbers is one integer.

If leases may end at any moment (`late`), messages need never arrive. Then a lost message is one that is never
delivered, and a crashed node one that receives nothing more. So the search covers any number of losses and crashes
without trying them. A node that hears of a lost neighbour acts as at the end of a lease.

Properties. In every state a path of parents leads from each node to the root, and no lock outlives its lease, so no
node waits for ever. Both ends of each edge know it in every final state without losses. With a Byzantine node: each
honest node's path leads to the root, to the Byzantine node, or to an unverified name; and edges between honest nodes
without unverified neighbours are known at both ends.

The Byzantine node knows every node and every game that has begun; names of games are random, so it knows none before.
It sends any message to any node at any time, and keeps no promise, since it has no tables. So it is no machine but a
list of messages (`list_forgeries`). It tells the truth about itself alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from veilcast.errors import ConfigError
from veilcast.machine import Address
from veilcast.mesh.swap import SwapMessage
from veilcast.sim.rng import derive_rng
from veilcast.sim.swap_model.memoised_transitions import MemoisedTransitions, SwapDelivery, Transition
from veilcast.sim.swap_model.node import TOKEN, UnverifiedName, make_tree
from veilcast.wire.mesh import SwapAbort, SwapAnswer, SwapAsk, SwapCommit, SwapLock, SwapVote


def list_forgeries(liar: str, names: Iterable[str], games: Sequence[bytes]) -> list[SwapMessage]:
    """All messages that a Byzantine node could send. Sets of neighbours have at most one bogus name: more only add
    branches without effect."""
    others = [Address(UnverifiedName(name)) for name in (*(name for name in names if name != liar), "ghost")]
    sets: list[tuple[Address, ...]] = [(), *((name,) for name in others)]
    messages: list[SwapMessage] = []
    for game in games:
        messages += [SwapAsk(game, TOKEN, (inward,), outward) for inward in others for outward in sets]
        messages += [SwapAnswer(game, True, outward) for outward in sets]
        messages += [SwapLock(game, TOKEN, True), SwapLock(game, TOKEN, False), SwapVote(game, True)]
        messages += [SwapCommit(game, TOKEN, successor) for successor in (*others, Address(liar))]
        messages += [SwapAnswer(game, False, ()), SwapVote(game, False), SwapAbort(game)]
    return messages


class FaultBudget:
    """The remaining faults of each kind, as tuples and by their numbers."""

    def __init__(self, *faults: int) -> None:
        self.remaining: Final = list(product(*(range(number + 1) for number in faults)))
        numbers = {left: number for number, left in enumerate(self.remaining)}
        self.full: Final = len(self.remaining) - 1
        """Number of the full budget."""
        self.used: Final = [sum(faults) - sum(left) for left in self.remaining]
        """Faults that have happened, by number."""
        self.after_fault: Final = [
            [numbers.get((*left[:kind], left[kind] - 1, *left[kind + 1 :]), -1) for kind in range(len(faults))]
            for left in self.remaining
        ]
        """For each number, the number after one more fault of each kind, or -1."""
        self.covered: Final = [
            sum(1 << numbers[low] for low in self.remaining if _within(low, left)) for left in self.remaining
        ]
        """For each number, a bit set of the budgets with at most as many faults of each kind, itself included."""
        self.above: Final = [
            sum(1 << numbers[high] for high in self.remaining if high != left and _within(left, high))
            for left in self.remaining
        ]
        """For each number, a bit set of the other budgets with at least as many faults of each kind."""


def _within(low: tuple[int, ...], high: tuple[int, ...]) -> bool:
    return all(few <= many for few, many in zip(low, high, strict=True))


Progress: TypeAlias = Callable[[int, int], object]
"""Called now and then with the number of states and the depth."""


class SearchPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The events that may happen, and how often."""

    games: int = 3
    """Number of games, taken from the beginning of `GAMES`."""
    losses: int = 0
    copies: int = 0
    crashes: int = 0
    liar: str = ""
    """The Byzantine node, or an empty string."""
    lies: int = 0
    late: bool = False
    """Leases may end while messages are in flight; losses and crashes add nothing then."""
    states_max: int = 10_000_000

    def __post_init__(self) -> None:
        if not 0 <= self.games <= len(GAMES):
            raise ConfigError(f"games must be between 0 and {len(GAMES)}")
        if min(self.losses, self.copies, self.crashes, self.lies) < 0 or self.states_max < 1:
            raise ConfigError("numbers of faults must not be negative, and there is one state at least")
        if self.liar not in ("", *TREE):
            raise ConfigError(f"the liar must be one of {', '.join(TREE)}")
        if bool(self.liar) != bool(self.lies):
            raise ConfigError("a liar needs lies, and lies need a liar")


class SearchResult(NamedTuple):
    """The result of a search; `fault` is empty if nothing is wrong, and `steps` lead to it."""

    states: int
    depth: int
    exhausted: bool
    fault: str = ""
    steps: tuple[str, ...] = ()

    @property
    def collision_probability(self) -> float:
        """Upper bound on the probability that two states had one fingerprint."""
        return self.states**2 / 2.0**64


def explore_swaps(plan: SearchPlan, progress: Progress = lambda states, depth: None) -> SearchResult:
    try:
        return _SwapSearch(plan, progress).run()
    except _FaultError:
        return _SwapSearch(plan, progress, traced=True).explain()


_State: TypeAlias = tuple[int, tuple[int, ...], tuple[int, ...], int, int]
"""A fingerprint of all but the remaining faults; the numbers of the nodes' states, and of the messages in flight; the
games that may still begin, one bit each; and the number of the remaining faults."""


class _FaultError(Exception):
    """A state violates a property."""

    def __init__(self, text: str, state: _State, states: int, depth: int) -> None:
        self.text, self.state, self.states, self.depth = text, state, states, depth


class _SwapSearch:
    """One search; a traced one also remembers the step that led to each state."""

    def __init__(self, plan: SearchPlan, progress: Progress, *, traced: bool = False) -> None:
        self._plan, self._progress = plan, progress
        self._names = [f"game {index + 1}".encode().ljust(16) for index in range(plan.games)]
        known = [*self._names, *([b"no game".ljust(16)] if plan.liar else [])]
        self._tables = MemoisedTransitions(TREE, known, derive_rng(0, "fingerprints"))
        self._forgeries = list_forgeries(plan.liar, TREE, known) if plan.liar else []
        self._forgeries_by_state: dict[int, list[tuple[SwapDelivery, Transition, int]]] = {}
        self._faults = FaultBudget(plan.losses, plan.copies, plan.crashes, plan.lies)
        self._game_key = [self._tables.draw_key() for _ in range(1 << plan.games)]
        self._starters = [self._tables.names.index(starter) for starter, _ in GAMES]
        self._seen: dict[int, int] = {}
        """For each fingerprint, a bit set of the budgets with which nothing new can follow."""
        self._next: list[_State] = []
        self._states = self._depth = 0
        self._predecessors: dict[tuple[int, int], tuple[_State, str, Any]] | None = {} if traced else None

    def run(self) -> SearchResult:
        frontier = [self._first()]
        above = self._faults.above
        while frontier:
            self._next = []
            for state in frontier:
                if self._seen[state[0]] & above[state[4]]:
                    continue  # It was met meanwhile with a larger budget.
                if self._states >= self._plan.states_max:
                    return SearchResult(self._states, self._depth, False)
                if not self._states & 0x3FFF:
                    self._progress(self._states, self._depth)
                self._states += 1
                self._expand(state)
            frontier = self._next
            self._depth += 1
        return SearchResult(self._states, self._depth - 1, True)

    def explain(self) -> SearchResult:
        """Search again up to the fault, and return the path to it."""
        try:
            return self.run()
        except _FaultError as found:
            steps, predecessors, state = [], self._predecessors or {}, found.state
            while (state[0], state[4]) in predecessors:
                state, word, what = predecessors[state[0], state[4]]
                steps.append(f"{word}: {what}")
            return SearchResult(found.states, found.depth, False, found.text, tuple(reversed(steps)))

    def _first(self) -> _State:
        plan, tables = self._plan, self._tables
        nodes = tuple(
            tables.number_state(place, held, inert=name == plan.liar)
            for place, (name, held) in enumerate(make_tree(TREE).items())
        )
        games = (1 << plan.games) - 1
        fingerprint = sum(tables.state_keys[node] for node in nodes) + self._game_key[games] & _MASK
        self._seen[fingerprint] = self._faults.covered[self._faults.full]
        return fingerprint, nodes, (), games, self._faults.full

    def _expand(self, state: _State) -> None:
        """Take every possible step. The search spends its time here."""
        fingerprint, nodes, in_flight, games, faults = state
        tables, seen, names = self._tables, self._seen, self._tables.names
        targets, over, keys = tables.targets, tables.over, tables.message_keys
        refused_after = tables.refused_after
        losing, copying, crashing, lying = self._faults.after_fault[faults]
        last = -1
        for message in in_flight:
            if message == last:
                continue
            last, place = message, targets[message]
            step = tables.deliver(nodes[place], message)
            after = self._after(state, place, step)
            refused = over[step.state] & refused_after[message]
            reached = (after if refused else after - keys[message]) & _MASK
            if not seen.get(reached, 0) >> faults & 1:
                self._add_state(reached, state, place, step, message, games, faults, "delivered", message)
            if step.state == nodes[place] and not step.messages:
                continue
            if losing >= 0:
                reached = fingerprint - keys[message] & _MASK
                if not seen.get(reached, 0) >> losing & 1:
                    still = Transition(nodes[place], (), False, False, 0)
                    self._add_state(reached, state, place, still, message, games, losing, "lost", message)
            if copying >= 0 and not refused:
                reached = after & _MASK
                if not seen.get(reached, 0) >> copying & 1:
                    word = "delivered, and a copy stays"
                    self._add_state(reached, state, place, step, -1, games, copying, word, message)
        for which, place in enumerate(self._starters):
            if games >> which & 1:
                step = tables.begin(nodes[place], self._names[which], GAMES[which][1])
                self._step(state, place, step, games ^ 1 << which, faults, "begins", " with ".join(GAMES[which]))
        if crashing >= 0:
            for place, node in enumerate(nodes):
                if over[node] >= 0:
                    self._step(state, place, tables.crash(node), games, crashing, "crashes", names[place])
        if lying >= 0:
            for place, node in enumerate(nodes):
                for lie, step, unknown in self._forgeries_for(node):
                    if not unknown & games:
                        self._step(state, place, step, games, lying, "a lie", lie)
        if self._plan.late or not in_flight:
            bound = [place for place, node in enumerate(nodes) if tables.is_bound[node]]
            for place in bound:
                leader, led = tables.follows[nodes[place]]
                if self._plan.late or not tables.leads[nodes[leader]] & led:
                    self._step(state, place, tables.expire(nodes[place]), games, faults, "lease ends", names[place])
            if not bound and not in_flight and not games:
                self._check_end(state)

    def _after(self, state: _State, place: int, step: Transition) -> int:
        """The fingerprint after a step, without the messages that are refused from now on. The delivered message is not
        removed here."""
        fingerprint, nodes, in_flight, _, _ = state
        tables = self._tables
        targets, over, keys = tables.targets, tables.over, tables.message_keys
        refused_after = tables.refused_after
        held, messages, ended, _, change = step
        fingerprint += change
        for message in messages:
            if over[nodes[targets[message]]] & refused_after[message]:
                fingerprint -= keys[message]
        if ended:
            gone = over[held]
            for message in in_flight:
                if targets[message] == place and gone & refused_after[message]:
                    fingerprint -= keys[message]
        return fingerprint

    def _step(self, state: _State, place: int, step: Transition, games: int, faults: int, word: str, what: Any) -> None:
        """Take a step that uses no message."""
        reached = self._after(state, place, step) + self._game_key[games] - self._game_key[state[3]] & _MASK
        if not self._seen.get(reached, 0) >> faults & 1:
            self._add_state(reached, state, place, step, -1, games, faults, word, what)

    def _add_state(
        self,
        fingerprint: int,
        state: _State,
        place: int,
        step: Transition,
        taken: int,
        games: int,
        faults: int,
        word: str,
        what: Any,
    ) -> None:
        """Check a new state and queue it for expansion; the message `taken`, unless -1, is removed."""
        _, nodes, in_flight, _, _ = state
        tables, held = self._tables, step.state
        targets, over, refused_after = tables.targets, tables.over, tables.refused_after
        self._seen[fingerprint] = self._seen.get(fingerprint, 0) | self._faults.covered[faults]
        messages = list(in_flight)
        if taken >= 0:
            messages.remove(taken)
        after = (*nodes[:place], held, *nodes[place + 1 :])
        if step.messages or step.ended:
            sent = (*messages, *step.messages)
            messages = sorted(each for each in sent if not over[after[targets[each]]] & refused_after[each])
        reached = fingerprint, after, tuple(messages), games, faults
        self._next.append(reached)
        if self._predecessors is not None:
            shown = tables.messages[what] if isinstance(what, int) else what
            self._predecessors[fingerprint, faults] = state, word, shown
        if step.moved and (fault := self._find_unrooted(after)):
            raise self._fault(fault, reached)
        if tables.is_bound[held] and tables.is_bound[tables.expire(held).state]:
            raise self._fault(f"the lock of {tables.names[place]} outlives its lease", reached)

    def _forgeries_for(self, node: int) -> list[tuple[SwapDelivery, Transition, int]]:
        """The forged messages that change a node in this state, and for each the game that must have begun."""
        found = self._forgeries_by_state.get(node)
        if found is None:
            tables, liar = self._tables, Address(self._plan.liar)
            name = Address(tables.names[tables.owners[node]])
            steps: dict[tuple[Transition, int], SwapDelivery] = {}
            for message in self._forgeries if name != liar else ():
                delivery = SwapDelivery(liar, name, message)
                step = tables.react(node, delivery)
                unknown = 1 << self._names.index(message.game) if message.game in self._names else 0
                if step.state != node or step.messages:
                    steps.setdefault((step, unknown), delivery)
            found = [(delivery, step, unknown) for (step, unknown), delivery in steps.items()]
            self._forgeries_by_state[node] = found
        return found

    # --- properties

    def _find_unrooted(self, nodes: tuple[int, ...]) -> str:
        """The nodes without a path of parents to the root: the path ends elsewhere, or is a circle."""
        tables = self._tables
        anchored = [ROOT, self._plan.liar]
        waiting = [name for name in TREE if name not in anchored]
        held = dict(zip(TREE, nodes, strict=True))
        while found := [name for name in waiting if self._has_root(tables.states[held[name]].inward, anchored)]:
            anchored += found
            waiting = [name for name in waiting if name not in found]
        return f"no way leads from {', '.join(waiting)} to the root" if waiting else ""

    @staticmethod
    def _has_root(inward: Sequence[Address], anchored: Sequence[str]) -> bool:
        return any(isinstance(parent, UnverifiedName) or parent in anchored for parent in inward)

    def _check_end(self, state: _State) -> None:
        """Nothing was lost: both ends of an edge know it, unless one of them is Byzantine or has believed a forgery."""
        left, whole = self._faults.remaining[state[4]], self._faults.remaining[self._faults.full]
        if self._plan.late or (left[0], left[2]) != (whole[0], whole[2]):
            return
        honest = {
            name: self._tables.states[node]
            for name, node in zip(TREE, state[1], strict=True)
            if name != self._plan.liar and not self._tables.misled[node]
        }
        for name, held in honest.items():
            for parent in held.inward:
                if parent in honest and name not in honest[parent].outward:
                    raise self._fault(f"{parent} does not know that {name} has the topic from it", state)
            for child in held.outward:
                if child in honest and name not in honest[child].inward:
                    raise self._fault(f"{child} does not know that {name} gives it the topic", state)

    def _fault(self, text: str, state: _State) -> _FaultError:
        return _FaultError(text, state, self._states, self._depth + 1)


ROOT: Final = "p"
TREE: Final = {"p": "p", "a": "p", "b": "a", "c": "b", "d": "b", "e": "c"}
"""The parent of each node."""
GAMES: Final = (("a", "b"), ("b", "c"), ("c", "e"))
"""The two players of each game. Each game shares nodes with both others, and the publisher keeps its place."""

_MASK: Final = (1 << 64) - 1
