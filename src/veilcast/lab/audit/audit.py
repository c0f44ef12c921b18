"""An audit: observations of a network in, the knowledge of an observer of every wire out.

Each network of a capture has an audit of its own. A check holds for the capture only if it holds for each network.
`advise` turns findings into advice by rules, each of which looks at one finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from veilcast.errors import ConfigError
from veilcast.lab.audit import attacker_reports, wire_summary
from veilcast.lab.audit.attacker_reports import UNLIKE, AttackerReport
from veilcast.lab.audit.limits import NEED_MEMBERS, Limit
from veilcast.lab.audit.networks import LeftOut, pluralise
from veilcast.lab.audit.observed import PARTS, ObservedCapture, ObservedNetwork
from veilcast.lab.audit.operator_files import ROLES, ListedMember, OverlayLink
from veilcast.lab.audit.wire_summary import WireSummary
from veilcast.lab.capture import ReadingReport
from veilcast.wire.geometry import CELL


class Advice(msgspec.Struct, frozen=True):
    found: str
    change: str


def advise(
    wire: WireSummary, publications: int, attackers: tuple[AttackerReport, ...], members: bool
) -> tuple[Advice, ...]:
    return tuple(_rules(wire, publications, attackers, members))


class NotificationFlow(msgspec.Struct, frozen=True):
    """A link on which notifications stood out."""

    src: str
    dst: str
    notes: int


class Audit(msgspec.Struct, frozen=True):
    reading: ReadingReport
    """Report on the reading of the captures."""
    wire: WireSummary
    links: tuple[tuple[str, str], ...]
    """Pairs of nodes that exchanged cells, each once."""
    publications: int
    flows: tuple[NotificationFlow, ...]
    attackers: tuple[AttackerReport, ...]
    """Reports by role, the most telling first."""
    advice: tuple[Advice, ...]
    remarks: tuple[str, ...]
    """Remarks on this network's record."""
    with_members: bool
    nodes: tuple[str, ...] = ()
    """Every observed node of this network."""
    roles: dict[str, int] = {}
    """Number of these nodes that are listed in each role."""

    def best(self, role: str) -> AttackerReport | None:
        """The most telling attacker on this role, if any says something."""
        return next((each for each in self.attackers if each.role == role and each.counts), None)

    @property
    def is_brief(self) -> bool:
        """Whether the record is too short for attackers that find nothing to prove anything."""
        return _is_brief(self.wire)

    def found(self) -> dict[str, float]:
        """The figures that limits compare with (`limits.NAMES`), as far as they are known: nodes with the role and
        nodes without it must have been seen."""
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


class CaptureAudit(msgspec.Struct, frozen=True):
    """The audits of all networks in a capture."""

    networks: tuple[Audit, ...]
    """The network of which attackers learn most comes first."""
    left_out: LeftOut
    remarks: tuple[str, ...]
    """Remarks on the operator's files."""

    @property
    def worst(self) -> Audit:
        return self.networks[0]

    def found(self) -> dict[str, float]:
        """The worst figure of any network, by name: the smallest `set`, and the largest of all else."""
        found: dict[str, float] = {}
        for each in self.networks:
            for name, value in each.found().items():
                found[name] = (min if name == "set" else max)(value, found.get(name, value))
        return found

    def crossed_limits(self, limits: Sequence[Limit]) -> list[Limit]:
        """The limits that any network crosses.

        Raises `ConfigError` if no limit is crossed and the captures do not suffice to say so: a check that was not made
        is not a check that passed.
        """
        crossed = [limit for limit in limits if any(limit.is_crossed(each.found()) for each in self.networks)]
        if limits and not crossed:
            for limit in limits:
                self._require_told(limit)
            if any(each.is_brief for each in self.networks):
                raise ConfigError(f"the checks cannot be made: {_BRIEF}")
            if self.left_out.doubts:
                raise ConfigError(f"the checks cannot be made: {'; '.join(self.left_out.doubts)}")
        return crossed

    def _require_told(self, limit: Limit) -> None:
        roles = ROLES if limit.name == "set" else ("subscriber",)
        asked = [each for each in self.networks if any(each.roles.get(role) for role in roles)]
        if limit.name in NEED_MEMBERS and not (asked and all(limit.name in each.found() for each in asked)):
            raise ConfigError(f"--fail-if {limit}: subscribers, and other members, must be in the captures")


def audit_capture(
    seen: ObservedCapture, links: Sequence[OverlayLink] = (), members: Sequence[ListedMember] = ()
) -> CaptureAudit:
    """`links` and `members` are those that were known when the capture was observed."""
    audits = [_audit(each, members) for each in seen.networks]
    return CaptureAudit(
        tuple(sorted(audits, key=_severity, reverse=True)), seen.left_out, tuple(_remarks(seen.seen, links, members))
    )


def _rules(
    wire: WireSummary, publications: int, attackers: tuple[AttackerReport, ...], members: bool
) -> Iterator[Advice]:
    named: dict[str, int] = {}
    for each in attackers:
        named.setdefault(each.role, each.named if each.counts else 0)
    if publications:
        yield Advice(
            f"{publications:,} publications are told from all other traffic by their size and time",
            'run the nodes with profile = "hardened": links then carry cells of one size at one rate, and a '
            "notification takes the place of a cell that would be sent in any case",
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
            "the first sender of a notification reveals the publisher",
            "only silent links hide this from an observer of the wires: use the hardened profile",
        )
    if named.get("subscriber") and publications:
        yield Advice(
            f"{named['subscriber']} nodes are named as subscribers",
            "covers and the shell game (profile paper with cover and shellgame) slow this down by some publications, "
            "and do not stop it; the hardened profile does",
        )
    if wire.odd:
        yield Advice(
            f"{len(wire.odd):,} links keep another rhythm than the others",
            "see that no machine is overloaded, that all nodes have the same rate, and that no link is throttled; "
            "a link that is still odd then has a cause, which may be a role",
        )
    if not publications and any(each.attack in UNLIKE and each.counts for each in attackers):
        yield Advice(
            "rhythm, sizes or volumes of a node's traffic go with its role",
            "this must not be in the hardened profile: please report it, with the version and this page",
        )
    if not members:
        yield Advice(
            "the roles are not known, so nothing here says whether the suspects are the right ones",
            "give --members FILE, and see how often the attackers are right",
        )


def _severity(each: Audit) -> tuple[float, ...]:
    """Sort key: a network of which attackers learn more comes later; of equal ones, the larger."""
    found = each.found()
    return (*(found.get(name, 0.0) for name in ("auc", "named", "publications", "sizes", "odd_links")), each.wire.cells)


def _audit(seen: ObservedNetwork, members: Sequence[ListedMember]) -> Audit:
    nodes = sorted({end for link in _links(seen.carried) for end in link})
    own = [member for member in members if member.node in set(seen.nodes)]
    shown = wire_summary.summarise_wire(seen)
    judged = attacker_reports.judge_attackers(seen.nodes, seen.guesses, members)
    publications, flows = seen.publications, _list_flows(seen.flows)
    remarks = []
    if _is_brief(shown):
        remarks.append(_BRIEF)
    return Audit(
        seen.reading,
        shown,
        tuple(sorted({(min(link), max(link)) for link in _links(seen.carried)})),
        publications,
        flows,
        judged,
        advise(shown, publications, judged, bool(members)),
        tuple(remarks),
        bool(members),
        tuple(nodes),
        {role: sum(member.role == role for member in own) for role in ROLES},
    )


def _is_brief(shown: WireSummary) -> bool:
    return shown.last_us - shown.first_us < PARTS * shown.heartbeat_us


def _list_flows(flows: pa.Table) -> tuple[NotificationFlow, ...]:
    columns = (flows[name].to_pylist() for name in ("src", "dst", "notes"))
    return tuple(NotificationFlow(*row) for row in zip(*columns, strict=True))


def _links(carried: pa.Table) -> list[tuple[str, str]]:
    return list(zip(carried["src"].to_pylist(), carried["dst"].to_pylist(), strict=True))


def _remarks(seen: frozenset[str], links: Sequence[OverlayLink], members: Sequence[ListedMember]) -> list[str]:
    found = []
    if unseen := {end for link in links for end in (link.u, link.v)} - seen:
        found.append(f"{len(unseen):,} nodes of the topology were not seen in the captures")
    if missing := {member.node for member in members} - seen:
        found.append(f"{pluralise(len(missing), 'member')} not seen in the captures, and not counted")
    return found


_BRIEF: Final = f"{PARTS} heartbeats at least should be recorded; what is said of fewer means little"
