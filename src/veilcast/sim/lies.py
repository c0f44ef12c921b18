"""All that a liar could say in a few shell games.

A liar knows every node and every game, its own too, and says what it likes to whom it likes, when it likes; it never
keeps a promise, for it has no tables. So it need not be a machine: it is a list of messages, and the search lets each
of them come at any moment. Whoever the liar names is named by its word alone, and marked so; of itself it speaks true.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from veilcast.machine import Address
from veilcast.mesh.swap import SwapMessage
from veilcast.sim.chair import TOKEN, Hearsay
from veilcast.wire.messages import SwapAbort, SwapAnswer, SwapAsk, SwapCommit, SwapLock, SwapVote


def lies(liar: str, names: Iterable[str], games: Sequence[bytes]) -> list[SwapMessage]:
    """Sets of neighbours have at most one bogus name each: more only add branches that lead nowhere."""
    others = [Address(Hearsay(name)) for name in (*(name for name in names if name != liar), "ghost")]
    sets: list[tuple[Address, ...]] = [(), *((name,) for name in others)]
    said: list[SwapMessage] = []
    for game in games:
        said += [SwapAsk(game, TOKEN, (inward,), outward) for inward in others for outward in sets]
        said += [SwapAnswer(game, True, outward) for outward in sets]
        said += [SwapLock(game, TOKEN, True), SwapLock(game, TOKEN, False), SwapVote(game, True)]
        said += [SwapCommit(game, TOKEN, successor) for successor in (*others, Address(liar))]
        said += [SwapAnswer(game, False, ()), SwapVote(game, False), SwapAbort(game)]
    return said
