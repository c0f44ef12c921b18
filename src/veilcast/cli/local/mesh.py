"""A mesh on one computer: it has no hosts, and its members find one another or have fixed neighbours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from veilcast.cli.local.mode import LocalMode, Table

if TYPE_CHECKING:
    from veilcast.cli.context import Context
    from veilcast.cli.local.network import LocalNetwork, NetworkPlan


class LocalMesh(LocalMode):
    options = frozenset({"mesh", "tap"})
    peer_noun = "neighbour"
    members_listen = True

    def epoch_min_us(self, plan: NetworkPlan) -> int:
        return 3 * _LEAD_MIN * plan.heartbeat_us

    def write_hosts(
        self, directory: Path, network: LocalNetwork, common: Table, context: Context
    ) -> Callable[[int], Table]:
        return lambda number: _node_table(network, number)

    def hints(self, directory: Path, plan: NetworkPlan, command: str) -> tuple[list[str], list[str]]:
        return [], [_FIRST_NOTE[plan.profile]]


def _node_table(network: LocalNetwork, number: int) -> Table:
    plan = network.plan
    mesh: dict[str, Any] = {"heartbeat_us": plan.heartbeat_us}
    if plan.topology is None:
        contacts = [other for other in range(min(_CONTACTS + 1, plan.nodes)) if other != number][:_CONTACTS]
    else:
        mesh["membership"] = "fixed"
        contacts = [v if u == number else u for u, v in network.links if number in (u, v)]
    if plan.profile == "paper":
        # Heartbeats are padded for addresses of this length: take what the addresses of this network need.
        mesh["address_bytes_max"] = max(map(len, network.addresses))
    if plan.cover:
        mesh["cover"] = {"rule": "one", "mu": 0.6, "delay_us": 16 * plan.heartbeat_us}
    if plan.shellgame:
        mesh["shellgame"] = {"start": "child", "wait_us": 8 * plan.heartbeat_us}
    if plan.profile == "hardened":
        mesh["hardening"] = _hardening(plan)
    return {
        "listen": network.addresses[number],
        "peers": [network.addresses[contact] for contact in contacts],
        "rate": plan.rate,
        "mesh": mesh,
    }


def _hardening(plan: NetworkPlan) -> dict[str, float]:
    """Return the periods of a small network that has just started: floods are short, and no node has been up for
    long. Publications leave at once: such a network is for a look at it, and not for months."""
    lead = min(_LEAD_MAX, plan.epoch_us // (3 * plan.heartbeat_us))
    return {
        "lead_periods": lead,
        "window_periods": lead // 3,
        "grace_periods": lead,
        "bit_periods": 2,
        "uptime_periods": 1,
        "parcel_periods": 0,
        "hold_back_epochs": 0,
    }


_CONTACTS: Final = 3
_LEAD_MIN: Final = 24
_LEAD_MAX: Final = 64
"""Heartbeats before the edge of an epoch at which its mesh begins to form: enough for a flood, a third of that to join,
and a reserve."""
_FIRST_NOTE: Final[dict[str, str]] = {
    "hardened": "a first note takes a while, and `pub` says how long: members draw lots, and the topic's mesh forms",
    "paper": "publish after some seconds: the topic's mesh forms, and what is published before reaches nobody",
}
LOCAL: Final = LocalMesh()
