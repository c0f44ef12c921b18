"""The load of a node of the papers' mesh: adverts, subscriptions, notes, covers, swaps and SCAMP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random

import msgspec

from one_node.bench import EPOCH, Bench, Item, Work, note_content, same
from veilcast.core.publication import make_notify
from veilcast.crypto import hash_chain
from veilcast.machine import Address
from veilcast.mesh.advertisements import make_advert, replace_chain_value
from veilcast.mesh.config import CoverConfig, MeshConfig, ShellGameConfig
from veilcast.sim.mesh.population import TOPIC, role_keyrings
from veilcast.topics import Label
from veilcast.wire.base import Message
from veilcast.wire.mesh import (
    Advert,
    Decline,
    ForwardJoin,
    Greet,
    Invite,
    Join,
    Keep,
    Notify,
    Replace,
    Subscribe,
    SwapAbort,
    SwapAnswer,
    SwapAsk,
    SwapCommit,
    SwapLock,
    SwapVote,
    Unadvert,
    Unsubscribe,
)


def reader(config: MeshConfig | None = None) -> Bench:
    """A subscriber in the middle of a mesh, with its parent, a branch and two others around it."""
    bench = Bench(config or PAPER, role_keyrings()["subscriber"])
    bench.node.subscribe(Label(TOPIC), bench.now)
    for _ in range(2):
        bench.hear_all()
        bench.say()
    bench.hear("parent", ADVERT)
    bench.hear("child", Subscribe(TOKEN))
    assert bench.node.overlay.branches.inward(TOKEN) == ["parent"]
    return bench


def player() -> Bench:
    """The same, where its ways have come to rest and it may be asked to change places."""
    bench = reader(msgspec.structs.replace(PAPER, shellgame=ShellGameConfig("child", "exponential", wait_us=10**12)))
    for _ in range(10):
        bench.hear_all()
        bench.hear("child", Subscribe(TOKEN))
        bench.say()
    return bench


def fresh_advert(seed: int) -> Advert:
    return make_advert(role_keyrings()["publisher"].keys_at(EPOCH).topic(TOPIC), Random(seed).randbytes)


def fresh_chains(bench: Bench) -> Iterator[Item]:
    """The table stays full: each makes room for the next."""
    told = [fresh_advert(seed) for seed in range(1, 332)]
    for message in told[:31]:
        bench.hear("x", message)
    for old, new in zip(told, told[31:], strict=False):
        bench.hear("x", Unadvert(TOKEN, old.value))
        yield "x", (new,)


def notes() -> Iterator[Notify]:
    keys, entropy = role_keyrings()["publisher"].keys_at(EPOCH).topic(TOPIC), Random(2).randbytes
    for number in range(1, 401):
        yield make_notify(keys, note_content(number), entropy)


def genuine_notes(bench: Bench) -> Iterator[Item]:
    for note in notes():
        yield "parent", (note,)


def forged_notes(bench: Bench) -> Iterator[Item]:
    """Each with the signature of another."""
    for note, other in pairwise(notes()):
        yield "parent", (msgspec.structs.replace(note, signature=other.signature),)


# --- swaps


def swaps(*messages: Callable[[bytes], Message]) -> Callable[[Bench], Iterator[Item]]:
    """The parent says these, in game after game."""

    def items(bench: Bench) -> Iterator[Item]:
        for number in range(500):
            game = number.to_bytes(16, "big")
            yield "parent", tuple(message(game) for message in messages)

    return items


def commits(bench: Bench) -> Iterator[Item]:
    """Two nodes alternate in one place."""
    for number in range(300):
        game, (here, there) = number.to_bytes(16, "big"), ("child", "x")[:: 1 if number % 2 == 0 else -1]
        yield here, (SwapLock(game, TOKEN, True), SwapCommit(game, TOKEN, there))


def votes(bench: Bench) -> Iterator[Item]:
    """Games of its own, to which one agrees and the other does not."""
    games = bench.node.overlay.policy.swaps  # type: ignore[attr-defined]
    for _ in range(300):
        assert games.start(TOKEN, Address("child"), bench.now)
        game = games.active_games()[0].name
        yield "parent", (SwapVote(game, True),)
        yield "child", (SwapAnswer(game, False, ()),)


# --- SCAMP


def gossip() -> Bench:
    """A node that keeps four, who keep it."""
    bench = Bench(SCAMP, role_keyrings()["forwarder"], "")
    bench.around = [Address(name) for name in "abcd"]
    for name in bench.around:
        bench.hear(name, ForwardJoin(name, 3_600_000, 0), Keep(3_600_000))
    bench.say()
    return bench


def joins(bench: Bench) -> Iterator[Item]:
    for number in range(1_000):
        yield "a", (Join(f"n{number}", 60_000, True, 32),)


PAPER = MeshConfig(neighbours_max=20, address_bytes_max=8, cover=CoverConfig("one", mu=0.0))
SCAMP = MeshConfig(neighbours_max=20, address_bytes_max=8, membership="scamp")
ADVERT = fresh_advert(0)
TOKEN = ADVERT.token
FURTHER = replace_chain_value(ADVERT, hash_chain.advance_chain(ADVERT.value, 3))

WORKS = (
    Work("Heartbeat, idle", reader, same("x", times=4_000)),
    Work("Advert, duplicate", reader, same("x", FURTHER)),
    Work("Advert, duplicate, checked", reader, same("x", FURTHER, times=300), crypto=True, checked=True),
    Work("Advert of a fresh chain, beside 31 others", reader, fresh_chains, at_once=1),
    Work("Advert and Unadvert", reader, same("x", FURTHER, Unadvert(TOKEN, FURTHER.value))),
    Work("Subscribe and Unsubscribe", reader, same("x", Subscribe(TOKEN), Unsubscribe(TOKEN))),
    Work("Greet", reader, same("x", Greet())),
    Work("Notify, checked, read and passed on", reader, genuine_notes, crypto=True),
    Work("Notify, duplicate", reader, same("parent", next(notes()), times=3_000)),
    Work("Notify, forged", reader, forged_notes),
    Work("Invite, declined", reader, same("x", Invite(TOKEN))),
    Work("Decline", reader, same("x", Decline(TOKEN))),
    Work("SwapLock and SwapAbort", player, swaps(lambda game: SwapLock(game, TOKEN, False), SwapAbort)),
    Work("SwapAsk and SwapAbort", player, swaps(lambda game: SwapAsk(game, TOKEN, ("q",), ("r",)), SwapAbort)),
    Work("SwapLock and SwapCommit", player, commits),
    Work("SwapVote and SwapAnswer", player, votes, at_once=2),
    Work("Join", gossip, joins),
    Work("ForwardJoin, passed on", gossip, same("a", ForwardJoin("b", 60_000, 100))),
    Work("Keep", gossip, same("a", Keep(3_600_000))),
    Work("Keep and Replace, coming and going", gossip, same("e", Keep(3_600_000), Replace(None))),
)
