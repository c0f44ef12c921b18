"""The answers of running brokers about themselves and about one another, collected for the operator."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from veilcast.brokers.keys.scheme import majority
from veilcast.cli.local import network
from veilcast.cli.local.brokers import broker_socket
from veilcast.cli.local.overlay_plan import SPARE
from veilcast.cli.phrases import pluralize
from veilcast.errors import ConfigError, UnreachableError
from veilcast.net.host_queries import ask_host


def ask_brokers(directory: Path) -> dict[str, Any]:
    """Query all brokers of an overlay on this computer; returns their facts by name, None for one that does not
    answer."""
    plan = network.read_network(directory).plan
    if "broker" not in {plan.local.host_role(host) for host in plan.hosts}:
        raise ConfigError(f"{directory} holds a network of mode {plan.mode!r}, which has no brokers")
    answers: dict[str, Any] = {}
    for host in plan.hosts:
        try:
            answers[host] = ask_host(broker_socket(directory, host), {"ask": "facts"})
        except UnreachableError:
            answers[host] = None
    return answers


def facts_lines(answers: Mapping[str, Any]) -> list[str]:
    up = [facts for facts in answers.values() if facts is not None]
    lines = [f"{len(up)} of {len(answers)} brokers are up"]
    for host, facts in answers.items():
        if facts is None:
            lines.append(f"  {host}: down")
            continue
        peers, sizes = facts["peers"], facts["sizes"]
        state = "" if facts["complete"] else ", still learning the claims"
        if facts["node"] is None:
            state = ", and ends by itself" if facts["left"] else ", and ends when its work is done"
        place = "detached" if facts["node"] is None else f"replica {facts['index']} of {facts['node']}"
        lines.append(
            f"  {host}: {place}, overlay {facts['version']},"
            f" {sum(peers.values())} of {len(peers)} peers up, {pluralize(sizes['claims'], 'claim')}{state}"
        )
    for word, proof in (("lied", True), ("failed", False)):
        for name, reasons in collect_marks(answers, proof=proof).items():
            told_of = ", ".join(f"{why} ({count})" for why, count in reasons.items())
            lines.append(f"  {word}: {name}: {told_of}")
    return lines


def majority_lines(answers: Mapping[str, Any]) -> list[str]:
    """Explain the brokers that are down: the virtual nodes that have fewer replicas than they need."""
    nodes: dict[str, list[bool]] = {}
    for host, facts in answers.items():
        name = host.rpartition("-")[0] if facts is None else facts["node"]
        if name is not None and name != SPARE:
            nodes.setdefault(name, []).append(facts is not None)
    short = {name: up for name, up in nodes.items() if sum(up) < majority(len(up))}
    lines = [
        f"  node {name} has {sum(up)} of its {len(up)} replicas, and {majority(len(up))} are needed: nothing passes it,"
        " and its members are cut off"
        for name, up in short.items()
    ]
    return lines or ["  every node has the majority of its replicas: what is published passes"]


def collect_marks(answers: Mapping[str, Any], *, proof: bool) -> dict[str, dict[str, int]]:
    """Return the replicas that any broker has marked: with `proof`, those proven to lie, otherwise those that failed.
    The values count the reasons. Replicas change with a node's scheme, so the name contains the scheme."""
    found: dict[str, dict[str, int]] = {}
    for facts in answers.values():
        for mark in facts["marks"] if facts is not None else ():
            if mark["proof"] == proof:
                reasons = found.setdefault(f"replica {mark['index']} of {mark['node']} (scheme {mark['scheme']})", {})
                reasons[mark["reason"]] = reasons.get(mark["reason"], 0) + mark["count"]
    return found
