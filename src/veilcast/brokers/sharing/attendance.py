"""Attendance: whose dealings the replicas of a node go on with, so that all of them go on with the same ones.

Pure rules on what the replicas say. Each says, signed, which old holders' dealings it has and has checked (`Roll`).
A dealing stands if a majority of replicas has it: honest holders' dealings all do, for every honest replica has them,
and no holder has two that stand. A replica that says it lacks a dealing that stands is in dispute with its holder:
one of both lies, and nobody can tell which. So the holder shows that replica's portion openly; whoever sees it can
check it, and the replica has it now. An honest holder so shows only what a liar has anyway. A dispute that is not
settled puts the dealing out. Of what is left the first k holders are chosen who agree on the sharing that they had.

All honest replicas choose the same, if all rest on the same words (`flooding`):

- Whoever has heard every replica say the same chooses at once, and shows those words to whoever has not (`receiving`).
  All honest replicas then said just that, so each of them has heard all say what it says itself, and chooses the same.
- Else all pass on what they hear, and end up with the same words, the same disputes and the same settlements.

The bound on delay is an assumption of secrecy, too, once there is a dispute: a holder that shows the portion of an
honest replica, because it came too late, shows the liars one more than they should have.

Who was missed before need not be waited for again (`absences`). Who has all that it needs without those first says a
brief roll: what it has, of which others it waits for no word (`absent`), and which holders it does without (`aside`).

- All who are not absent by one brief roll, at least a majority, say just that: then it is agreed, whatever is said
  later. One of them is honest, so who is absent by it has failed before. Two can both be agreed only if two honest
  replicas have missed one another, so if one was killed, and has forgotten, or if delay has broken its bound. Even then
  neither leaves out one that it has heard speak of this key, and who is absent by either hands nothing on.
- Else nothing of it counts: all wait as long as ever, say all that they have, and settle disputes, so that nobody who
  is back is left out, and no holder that deals to some only can be put aside by a few.
- A replica that said a brief roll names it in the other: so if all say the same and name none, nobody honest said one,
  and none will be agreed any more. If they name one, that may still be, and they wait for the rounds to end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Annotated, Final, NamedTuple, TypeAlias

import msgspec

from veilcast.brokers.sharing.scheme import majority
from veilcast.crypto.shares import MAX_SHARES
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import MalformedError

Name = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Index = Annotated[int, msgspec.Meta(ge=1, le=MAX_SHARES)]


class Dealt(NamedTuple):
    """A holder's dealing by its name, and the name of the sharing that the holder says it had."""

    name: bytes
    old: bytes


Table: TypeAlias = dict[int, Dealt]
"""What one replica has: a dealing for each holder whose portion it checked."""


class Roll(NamedTuple):
    """What one replica says: what it has, which replicas it does not wait for, which holders it does without.

    A brief one says what is had without those. Any other says all that is had, and which brief one was said before.
    """

    table: Table
    absent: tuple[int, ...] = ()
    aside: tuple[int, ...] = ()
    brief: bool = False


class Dispute(NamedTuple):
    """`replica` says that it lacks this dealing, which stands."""

    holder: int
    name: bytes
    replica: int


def encode(roll: Roll) -> bytes:
    rows = [(holder, *roll.table[holder]) for holder in sorted(roll.table)]
    return _ENCODER.encode((rows, sorted(roll.absent), sorted(roll.aside), roll.brief))


def size_max(holders: int, replicas: int) -> int:
    """What the roll of so many takes at most."""
    return 17 + (5 + 2 * 34) * holders + 2 * (holders + replicas)


def decode(word: bytes) -> Roll:
    """`MalformedError` unless it is what `encode` makes of a roll: there is one word for each."""
    rows, absent, aside, brief = _DECODER.decode(word)
    roll = Roll({holder: Dealt(name, old) for holder, name, old in rows}, tuple(absent), tuple(aside), brief)
    if encode(roll) != word or len(set(absent)) < len(absent) or len(set(aside)) < len(aside):
        raise MalformedError("a roll of dealings in another order")
    if brief and not roll.table.keys().isdisjoint(aside):
        raise MalformedError("a dealing that is put aside is not had")
    return roll


def is_brief(word: bytes) -> bool:
    try:
        return decode(word).brief
    except MalformedError:
        return False


def rolls_of(words: Mapping[int, bytes]) -> dict[int, Roll]:
    """By replica. A word that is no roll counts as none, for everybody alike."""
    rolls = {}
    for replica, word in words.items():
        try:
            rolls[replica] = decode(word)
        except MalformedError:
            continue
    return rolls


def standing(rolls: Mapping[int, Roll], size: int) -> Table:
    """The dealings that a majority of the node's replicas has."""
    counts = Counter((holder, dealt) for roll in rolls.values() for holder, dealt in roll.table.items())
    return {holder: dealt for (holder, dealt), count in sorted(counts.items()) if count >= majority(size)}


def disputes(rolls: Mapping[int, Roll], size: int) -> list[Dispute]:
    """Who says that it lacks what stands. Who says nothing, or two things, lies anyway and needs no portion."""
    return [
        Dispute(holder, dealt.name, replica)
        for holder, dealt in standing(rolls, size).items()
        for replica, roll in sorted(rolls.items())
        if roll.table.get(holder) != dealt
    ]


def usable(rolls: Mapping[int, Roll], size: int, settled: Collection[Dispute] = ()) -> Table:
    """The dealings that stand, undisputed or settled."""
    out = {dispute.holder for dispute in disputes(rolls, size) if dispute not in settled}
    return {holder: dealt for holder, dealt in standing(rolls, size).items() if holder not in out}


def contributors(left: Table, holders: int) -> tuple[int, ...] | None:
    """The first majority of the old holders among those whose dealings are usable; None if there is none.

    Honest holders alone are a majority of all, so no two sharings can have one each.
    """
    by_old: dict[bytes, list[int]] = {}
    for holder in sorted(left):
        by_old.setdefault(left[holder].old, []).append(holder)
    needed = majority(holders)
    return next((tuple(found[:needed]) for found in by_old.values() if len(found) >= needed), None)


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = MsgpackDecoder(
    tuple[list[tuple[Index, Name, Name]], list[Index], list[Index], bool], MalformedError, "not a roll of dealings"
)
