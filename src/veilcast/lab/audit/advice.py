"""From findings to what to change: rules, each of which looks at one thing that was found."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from veilcast.lab.audit.attackers import UNLIKE, Attacker
from veilcast.lab.audit.wire import Wire
from veilcast.wire.geometry import CELL


class Advice(msgspec.Struct, frozen=True):
    found: str
    change: str


def advise(wire: Wire, publications: int, attackers: tuple[Attacker, ...], members: bool) -> tuple[Advice, ...]:
    return tuple(_rules(wire, publications, attackers, members))


def _rules(wire: Wire, publications: int, attackers: tuple[Attacker, ...], members: bool) -> Iterator[Advice]:
    named: dict[str, int] = {}
    for each in attackers:
        named.setdefault(each.role, each.named if each.counts else 0)
    if publications:
        yield Advice(
            f"{publications:,} publications are told from everything else by their size and moment",
            'run the nodes with profile = "hardened": links then carry cells of one size at one rate, and a note takes '
            "the place of a cell that would be sent in any case",
        )
    elif wire.telling:
        sizes = ", ".join(str(each.size) for each in wire.telling[:5])
        yield Advice(
            f"some links carry sizes that others do not: {sizes}{', ...' if len(wire.telling) > 5 else ''} bytes",
            "look for nodes of another profile or version, or for other programs on the same port; "
            f"hardened links carry cells of {CELL:,} bytes alone",
        )
    if named.get("publisher"):
        yield Advice(
            "who publishes is seen by who sends first",
            "only silent links hide this from who watches wires: use the hardened profile",
        )
    if named.get("subscriber") and publications:
        yield Advice(
            f"{named['subscriber']} nodes are named as readers",
            "covers and the shell game (profile paper with cover and shellgame) slow this down by some publications, "
            "and do not stop it; the hardened profile does",
        )
    if wire.odd:
        yield Advice(
            f"{len(wire.odd):,} links keep another rhythm than the others",
            "see that no machine is overloaded, that all nodes have the same rate, and that no link is throttled; "
            "what is still odd then goes with something, and that may be a role",
        )
    if not publications and any(each.attack in UNLIKE and each.counts for each in attackers):
        yield Advice(
            "rhythm, sizes or volumes of what a node gets or sends go with its role",
            "this must not be in the hardened profile: please report it, with the version and this page",
        )
    if not members:
        yield Advice(
            "who has which role was not told, so nothing here says whether suspects are the right ones",
            "give --members FILE, and see how often the attackers are right",
        )
