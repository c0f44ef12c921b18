"""Attendance: whose dealings the replicas of a node go on with, so that all of them go on with the same ones.

Pure rules on what the replicas say. Each says, signed, which old holders' dealings it has and has checked (`encode`).
A dealing stands if a majority of replicas has it: honest holders' dealings all do, for every honest replica has them,
and no holder has two that stand. A replica that says it lacks a dealing that stands is in dispute with its holder:
one of both lies, and nobody can tell which. So the holder shows that replica's portion openly; whoever sees it can
check it, and the replica has it now. An honest holder so shows only what a liar has anyway. A dispute that is not
settled puts the dealing out. Of what is left the first k holders are chosen who agree on the sharing that they had.

All honest replicas choose the same, if all rest on the same words (`flooding`):

- Whoever has heard every replica say the same chooses at once. All honest replicas then said just that, so a dealing
  that they have stands for everybody, one that they lack for nobody, and who disputes one before others has said the
  contrary here: that word settles it, and is shown when others speak of a dispute. So the others choose the same.
- All others pass on what they hear, and end up with the same words, the same disputes and the same settlements.

The bound on delay is an assumption of secrecy, too, once there is a dispute: a holder that shows the portion of an
honest replica, because it came too late, shows the liars one more than they should have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Annotated, Final, NamedTuple, TypeAlias

import msgspec

from veilcast.brokers.sharing.scheme import majority
from veilcast.crypto.shares import MAX_SHARES
from veilcast.errors import MalformedError

Name = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Holder = Annotated[int, msgspec.Meta(ge=1, le=MAX_SHARES)]


class Dealt(NamedTuple):
    """A holder's dealing by its name, and the name of the sharing that the holder says it had."""

    name: bytes
    old: bytes


Table: TypeAlias = dict[int, Dealt]
"""What one replica has: a dealing for each holder whose portion it checked."""


class Dispute(NamedTuple):
    """`replica` says that it lacks this dealing, which stands."""

    holder: int
    name: bytes
    replica: int


def encode(table: Mapping[int, Dealt]) -> bytes:
    return _ENCODER.encode([(holder, *table[holder]) for holder in sorted(table)])


def size_max(holders: int) -> int:
    """What a table of so many takes at most."""
    return 5 + (5 + 2 * 34) * holders


def decode(word: bytes) -> Table:
    """`MalformedError` unless it is what `encode` makes of a table: there is one word for each."""
    try:
        rows = _DECODER.decode(word)
    except msgspec.DecodeError as error:
        raise MalformedError("not a table of dealings") from error
    table = {holder: Dealt(name, old) for holder, name, old in rows}
    if encode(table) != word:
        raise MalformedError("a table of dealings in another order")
    return table


def tables_of(words: Mapping[int, bytes]) -> dict[int, Table]:
    """By replica. A word that is no table counts as none, for everybody alike."""
    tables = {}
    for replica, word in words.items():
        try:
            tables[replica] = decode(word)
        except MalformedError:
            continue
    return tables


def standing(tables: Mapping[int, Table], size: int) -> Table:
    """The dealings that a majority of the node's replicas has."""
    counts = Counter((holder, dealt) for table in tables.values() for holder, dealt in table.items())
    return {holder: dealt for (holder, dealt), count in sorted(counts.items()) if count >= majority(size)}


def disputes(tables: Mapping[int, Table], size: int) -> list[Dispute]:
    """Who says that it lacks what stands. Who says nothing, or two things, lies anyway and needs no portion."""
    return [
        Dispute(holder, dealt.name, replica)
        for holder, dealt in standing(tables, size).items()
        for replica, table in sorted(tables.items())
        if table.get(holder) != dealt
    ]


def contributors(
    tables: Mapping[int, Table], size: int, holders: int, settled: Collection[Dispute] = ()
) -> tuple[int, ...] | None:
    """The first majority of the old holders whose dealings stand, undisputed or settled; None if there is none.

    Honest holders alone are a majority of all, so no two sharings can have one each.
    """
    out = {dispute.holder for dispute in disputes(tables, size) if dispute not in settled}
    left = {holder: dealt for holder, dealt in standing(tables, size).items() if holder not in out}
    by_old: dict[bytes, list[int]] = {}
    for holder in sorted(left):
        by_old.setdefault(left[holder].old, []).append(holder)
    needed = majority(holders)
    return next((tuple(found[:needed]) for found in by_old.values() if len(found) >= needed), None)


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(list[tuple[Holder, Name, Name]])
