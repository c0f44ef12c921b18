"""An audit: what was observed of a network in, what an observer of every wire learns out."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa

from veilcast.errors import ConfigError
from veilcast.lab.attack import waves
from veilcast.lab.audit import attackers, wire
from veilcast.lab.audit.advice import Advice, advise
from veilcast.lab.audit.attackers import Attacker
from veilcast.lab.audit.files import ROLES, Link, Member
from veilcast.lab.audit.observed import PARTS, Observed
from veilcast.lab.audit.wire import Wire
from veilcast.lab.capture import Notes


class Flow(msgspec.Struct, frozen=True):
    """A link on which notes stood out."""

    src: str
    dst: str
    notes: int


class Audit(msgspec.Struct, frozen=True):
    reading: Notes
    """What was read, left out and corrected."""
    wire: Wire
    links: tuple[tuple[str, str], ...]
    """Who had to do with whom, each once."""
    publications: int
    flows: tuple[Flow, ...]
    attackers: tuple[Attacker, ...]
    """By role, the most telling first."""
    advice: tuple[Advice, ...]
    remarks: tuple[str, ...]
    """What is to be known of the files that were given besides."""
    with_members: bool

    def best(self, role: str) -> Attacker | None:
        """The most telling one that says anything of this role."""
        return next((each for each in self.attackers if each.role == role and each.counts), None)

    def found(self) -> dict[str, float]:
        """What limits are held against (`limits.NAMES`), as far as it can be told: who have a role must have been seen,
        and others too."""
        counted = [each for each in self.attackers if each.counts]
        numbers = {
            "named": float(sum(best.named for role in ROLES if (best := self.best(role)))),
            "publications": float(self.publications),
            "sizes": float(len(self.wire.telling)),
            "odd_links": float(len(self.wire.odd)),
        }
        measured = {each.role for each in self.attackers if each.measures}
        if "subscriber" in measured:
            readers = [each.measures for each in counted if each.role == "subscriber"]
            numbers["auc"] = max((each["auc"] for each in readers), default=0.5)
            numbers["auc_low"] = max((each["auc_low"] for each in readers), default=0.5)
            numbers["tpr"] = max((each["tpr_1"] for each in readers), default=0.01)
        if measured:
            sets = [each.measures["set_min"] for each in counted if each.measures]
            numbers["set"] = min(sets, default=float(self.wire.nodes))
        return numbers


def audit(seen: Observed, links: Sequence[Link] = (), members: Sequence[Member] = ()) -> Audit:
    """`links` are those that were known when it was observed."""
    nodes = {end for link in _links(seen.carried) for end in link}
    _require_known("members", {member.node for member in members}, nodes)
    _require_known("nodes of the topology", {end for link in links for end in (link.u, link.v)}, nodes)
    shown = wire.examine(seen)
    judged = attackers.judge(seen.nodes, seen.guesses, members)
    publications, flows = _flows(seen.notes)
    return Audit(
        seen.reading,
        shown,
        tuple(sorted({(min(link), max(link)) for link in _links(seen.carried)})),
        publications,
        flows,
        judged,
        advise(shown, publications, judged, bool(members)),
        tuple(_remarks(nodes, shown, links, members)),
        bool(members),
    )


def _flows(notes: pa.Table) -> tuple[int, tuple[Flow, ...]]:
    notes = notes.sort_by([("t_us", "ascending"), ("src", "ascending"), ("dst", "ascending")])
    names, ends = np.unique(np.concatenate([notes["src"], notes["dst"]]).astype(str), return_inverse=True)
    src, dst = np.split(ends.astype(np.int32), 2)
    publications = waves.publications(np.array(notes["t_us"]), src, dst)
    links, counts = np.unique(np.column_stack([src, dst]), axis=0, return_counts=True)
    flows = [
        Flow(str(names[u]), str(names[v]), count) for (u, v), count in zip(links.tolist(), counts.tolist(), strict=True)
    ]
    return int(publications.max(initial=-1)) + 1, tuple(flows)


def _links(carried: pa.Table) -> list[tuple[str, str]]:
    return list(zip(carried["src"].to_pylist(), carried["dst"].to_pylist(), strict=True))


def _require_known(what: str, named: set[str], seen: set[str]) -> None:
    """That some are of other machines is remarked; if all are, they are called by other names."""
    if named and not named & seen:
        raise ConfigError(f"none of the {what} is in the captures: {min(named)} is not, and {min(seen)} is")


def _remarks(seen: set[str], shown: Wire, links: Sequence[Link], members: Sequence[Member]) -> list[str]:
    found = []
    if shown.last_us - shown.first_us < PARTS * shown.heartbeat_us:
        found.append(f"{PARTS} heartbeats at least should be recorded; what is said of fewer means little")
    if strange := {end for link in links for end in (link.u, link.v)} - seen:
        found.append(f"{len(strange):,} nodes of the topology were not seen in the captures")
    if members:
        known = {member.node for member in members}
        if missing := known - seen:
            found.append(f"{len(missing):,} members were not seen in the captures, and are not counted")
        if others := seen - known:
            found.append(f"{len(others):,} nodes were seen that are no members; they count as having no role")
    return found
