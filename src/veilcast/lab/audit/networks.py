"""The networks in a capture, and the traffic that their audits leave out.

A capture of a port holds all traffic of that port: other networks, port scans, datagrams of an adversary. Figures that
mix two networks are those of neither: the attackers look for one publisher where there are two, the size of the notes
is that of the busier network, and a network that shows everything passes its checks.

Claim: traffic with an end that is not listed cannot turn a failed check into a passed one.
Assumption: no stranger sends datagrams under a listed node's address.
Reason, in steps:
1. If nodes are listed (by roles, or by links), cells with any other end are removed. The attackers' observations then
   do not depend on strangers.
2. The remaining nodes are split into networks: two nodes are in one network if each sends the other something, or if
   the operator has listed a link between them. Each network is attacked by itself. A check fails if it fails in any.
3. If a stranger exchanges cells with a listed node, the stranger may be a member that the operator forgot, and the
   figures then lack its traffic. Such a doubt never fails a check. A check with a doubt does not pass: it is refused.
4. A node that never answers is in no network. If it gets as much as a member does, it may be a subscriber: a doubt. So
   is a listed node that is not in the captures, if the list is said to be complete: its name may be misspelt.

If nothing is listed, step 2 alone holds: traffic that no node of the network answers changes nothing in its figures.
Such traffic is a doubt, too, unless it goes from a network to a node that never answers, as a stopped member.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from statistics import median
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from veilcast.errors import ConfigError
from veilcast.lab.audit.operator_files import OverlayLink


class LeftOut(msgspec.Struct, frozen=True):
    """Traffic of a capture that no figure of its audit counts."""

    nodes: tuple[str, ...] = ()
    """Nodes that are in no network that was audited; the first `LEFT_OUT_MAX` of them."""
    count: int = 0
    """How many such nodes there are."""
    cells: int = 0
    doubts: tuple[str, ...] = ()
    """Why the traffic that was left out may have been the network's; a check does not pass then."""

    def lines(self) -> list[str]:
        if not self.count and not self.cells:
            return []
        return [
            f"left out: {pluralise(self.count, 'node')} outside the audited networks, {pluralise(self.cells, 'cell')}"
        ]


class NetworkSplit(NamedTuple):
    networks: list[frozenset[str]]
    """The nodes of each; the network with the most cells first."""
    left_out: LeftOut


def split_networks(
    carried: pa.Table, links: Sequence[OverlayLink] = (), listed: Collection[str] = (), *, only_listed: bool = False
) -> NetworkSplit:
    """Split a capture, of which `carried` says how many `cells` went from each `src` to each `dst`.

    `listed` are the nodes that the operator has named; if it is empty, every node may be of a network. With
    `only_listed` the operator says that the list is complete, and contact with other nodes is no doubt.
    """
    flows = _flows(carried)
    seen = {end for flow in flows for end in flow}
    ends = {end for link in links for end in (link.u, link.v)}
    _require_seen("members", listed, seen)
    _require_seen("nodes of the topology", ends, seen)
    known = listed_nodes(links, listed) or seen
    inside = {flow: cells for flow, cells in flows.items() if known.issuperset(flow)}
    answered = [flow for flow in inside if flow[::-1] in inside and flow[0] != flow[1]]
    groups = _groups([*answered, *((link.u, link.v) for link in links)])
    groups = [group for group in groups if not group.isdisjoint(seen)]
    grouped = {node for group in groups for node in group}
    # Nodes that get no answer from a network, and that exchange cells with one another.
    one_way = _groups(flow for flow in inside if grouped.isdisjoint(flow) and flow[0] != flow[1])
    number = {node: place for place, group in enumerate([*groups, *one_way]) for node in group}
    weight = [0] * (len(groups) + len(one_way))
    for (src, dst), cells in inside.items():
        if src in number and number[src] == number.get(dst):
            weight[number[src]] += cells
    weighed = [each for each in zip(weight, [*groups, *one_way], strict=True) if each[0]]
    ranked = sorted(weighed, key=lambda each: (-each[0], min(each[1])))
    networks = [frozenset(group) for _, group in ranked[:NETWORKS_MAX]]
    contacts = {end for flow in flows for end in flow if end not in known and not known.isdisjoint(flow)}
    if not networks:
        told = "; ".join(_doubt_contacts(contacts)) if contacts else "record the traffic of a whole network"
        raise ConfigError(
            f"no two {'listed ' if known != seen else ''}nodes in the captures have to do with each other; {told}"
        )
    unanswered = {
        src for src, dst in inside if dst in grouped and dst in number and number.get(src) != number[dst] and src != dst
    }
    silent = {dst for src, dst in inside if src in grouped and dst not in number and dst != src}
    fed = _find_fed(inside, answered, silent)
    unseen = known - seen if only_listed else set[str]()
    doubts = [
        *(_doubt_contacts(contacts) if contacts and not only_listed else ()),
        *(_doubt_unanswered(unanswered) if unanswered else ()),
        *(_doubt_one_way(one_way) if one_way else ()),
        *(_doubt_fed(fed) if fed else ()),
        *(_doubt_unseen(unseen) if unseen else ()),
        *(_doubt_many(len(ranked)) if len(ranked) > NETWORKS_MAX else ()),
    ]
    audited = {node for network in networks for node in network}
    counted = sum(each for each, _ in ranked[:NETWORKS_MAX])
    others = sorted(seen - audited)
    left_out = LeftOut(tuple(others[:LEFT_OUT_MAX]), len(others), sum(flows.values()) - counted, tuple(doubts))
    return NetworkSplit(networks, left_out)


def listed_nodes(links: Sequence[OverlayLink], listed: Collection[str]) -> set[str]:
    """Every node that the operator has named, in a role or as the end of a link."""
    return {*listed, *(end for link in links for end in (link.u, link.v))}


def rows_within(table: pa.Table, network: Collection[str]) -> pa.Table:
    """The rows of a table both of whose ends, `src` and `dst`, are of one network."""
    names = pa.array(sorted(network), pa.string())
    return table.filter(pc.and_(pc.is_in(table["src"], names), pc.is_in(table["dst"], names)))


def pluralise(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def _require_seen(what: str, named: Collection[str], seen: set[str]) -> None:
    """If none is in the captures, the operator's file names the nodes in another form, such as without ports."""
    if named and seen.isdisjoint(named):
        raise ConfigError(f"none of the {what} is in the captures: {min(named)} is not, and {min(seen)} is")


def _flows(carried: pa.Table) -> dict[tuple[str, str], int]:
    flows: dict[tuple[str, str], int] = {}
    columns = (carried[name].to_pylist() for name in ("src", "dst", "cells"))
    for src, dst, cells in zip(*columns, strict=True):
        flows[src, dst] = flows.get((src, dst), 0) + cells
    return flows


def _find_fed(inside: dict[tuple[str, str], int], answered: Sequence[tuple[str, str]], silent: set[str]) -> set[str]:
    """The silent nodes that receive from another node at least half as much as that node's peers do."""
    usual: dict[str, list[int]] = {}
    for flow in answered:
        usual.setdefault(flow[0], []).append(inside[flow])
    return {
        dst
        for (src, dst), cells in inside.items()
        if dst in silent and cells > _TRIES and 2 * cells >= median(usual.get(src, [0]))
    }


def _groups(pairs: Iterable[tuple[str, str]]) -> list[set[str]]:
    """The connected components of these pairs."""
    beside: dict[str, set[str]] = {}
    for u, v in pairs:
        beside.setdefault(u, set()).add(v)
        beside.setdefault(v, set()).add(u)
    groups: list[set[str]] = []
    reached: set[str] = set()
    for start in beside:
        if start in reached:
            continue
        group, due = {start}, [start]
        while due:
            fresh = beside[due.pop()] - group
            group |= fresh
            due += fresh
        reached |= group
        groups.append(group)
    return groups


def _doubt_contacts(contacts: set[str]) -> Iterator[str]:
    verb = "is not listed and exchanges" if len(contacts) == 1 else "are not listed and exchange"
    yield (
        f"{pluralise(len(contacts), 'node')} ({_some(contacts)}) {verb} datagrams with listed nodes; list every node "
        "of the network in --members, whatever its role, or give --only-members if the list is complete"
    )


def _doubt_unanswered(nodes: set[str]) -> Iterator[str]:
    verb = "sends datagrams to a network and gets" if len(nodes) == 1 else "send datagrams to a network and get"
    yield (
        f"{pluralise(len(nodes), 'node')} ({_some(nodes)}) {verb} none back; list the nodes of the network in "
        "--members, and give --only-members"
    )


def _doubt_one_way(groups: list[set[str]]) -> Iterator[str]:
    nodes = {node for group in groups for node in group}
    yield (
        f"between {pluralise(len(nodes), 'node')} ({_some(nodes)}) datagrams go one way only; record both directions, "
        "or list the nodes of the network in --members, and give --only-members"
    )


def _doubt_fed(nodes: set[str]) -> Iterator[str]:
    verb = "gets as much as members and answers" if len(nodes) == 1 else "get as much as members and answer"
    yield f"{pluralise(len(nodes), 'node')} ({_some(nodes)}) {verb} nothing; record both directions of their traffic"


def _doubt_unseen(nodes: set[str]) -> Iterator[str]:
    verb = "is" if len(nodes) == 1 else "are"
    yield (
        f"{pluralise(len(nodes), 'listed node')} ({_some(nodes)}) {verb} not in the captures; name nodes as on the "
        "wire, and take those that were down off the list"
    )


def _doubt_many(networks: int) -> Iterator[str]:
    yield (
        f"the captures hold {networks:,} separate networks, of which {NETWORKS_MAX} are audited; record the network's "
        "port alone, or list its nodes in --members"
    )


def _some(nodes: set[str]) -> str:
    shown = sorted(nodes)[:_SHOWN]
    return ", ".join(shown) + (", ..." if len(nodes) > len(shown) else "")


NETWORKS_MAX: Final = 16
"""Networks of one capture that are audited: each costs as much as an audit of its own."""
LEFT_OUT_MAX: Final = 1_000
"""Nodes of no audited network that a result names: strangers can be as many as a capture has packets."""
_TRIES: Final = 32
"""Cells that tries to reach a stopped member may take on one link."""
_SHOWN: Final = 3
