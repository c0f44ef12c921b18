"""`veilcast brokers overlay up FILE`: a whole overlay on this computer, brokers and members, from one file.

    profile = "hardened"
    links = [["north", "centre"], ["centre", "south"]]
    spare = 2                                  # brokers that do not run until a plan attaches them
    repository = 3                             # replicas that carry keys out of band, instead of the brokers

    [[nodes]]
    name = "north"
    replicas = 3
    byzantine = ["drop"]                       # faults of its last replicas, to show that the node tolerates them

    [[members]]
    edge = "north"
    role = "publisher"                         # or "subscriber"

The overlay is a network like any other on one computer (`net up`), and `net down` ends it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Literal

import msgspec

from veilcast.authority.topic_record import Profile
from veilcast.brokers.keys.scheme import max_faulty
from veilcast.cli import net
from veilcast.cli.context import Context, Report
from veilcast.cli.input_checks import read_file
from veilcast.cli.local.network import NetworkPlan
from veilcast.cli.local.overlay_plan import OverlayPlan, VirtualNodePlan
from veilcast.decoding import read_toml
from veilcast.errors import ConfigError
from veilcast.node.toml_file import explain_error


class MemberTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    edge: str
    role: Literal["publisher", "subscriber"]


class LocalOverlayFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    nodes: tuple[VirtualNodePlan, ...]
    members: tuple[MemberTable, ...]
    links: tuple[tuple[str, str], ...] = ()
    spare: int = 0
    repository: int = 0
    profile: Profile = "hardened"
    epoch: float = 60.0
    """Length of an epoch, in seconds."""


def read_plan(path: Path) -> NetworkPlan:
    table = read_toml(read_file(path), path)
    try:
        file = msgspec.convert(table, LocalOverlayFile)
        edges = tuple(member.edge for member in file.members)
        overlay = OverlayPlan(file.nodes, file.links, edges, file.spare, file.repository)
        roles = tuple(member.role for member in file.members)
        if not roles:
            raise ConfigError("members: an overlay without members shows nothing")
        return NetworkPlan(
            nodes=len(roles),
            mode="brokers",
            profile=file.profile,
            epoch_us=round(file.epoch * 1_000_000),
            publishers=roles.count("publisher"),
            subscribers=roles.count("subscriber"),
            overlay=overlay,
            roles=roles,
        )
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {explain_error(str(error), kind=LocalOverlayFile)}") from error
    except ConfigError as error:
        reason = str(error).removeprefix("--")  # A key of this file is an option of `net up`.
        raise ConfigError(f"{path}: {reason}") from error


def up(arguments: argparse.Namespace, context: Context) -> Report:
    plan = read_plan(arguments.file)
    if any(node.byzantine for node in plan.brokers.nodes):
        context.warn("some replicas lie, as the file says")
    for node in plan.brokers.nodes:
        if len(node.byzantine) > max_faulty(node.replicas):
            liars = f"{len(node.byzantine)} of {node.replicas} replicas of {node.name} lie"
            context.warn(f"{liars}, which is more than are borne; do not expect that anything arrives")
    return net.bring_up(arguments.dir, plan, context)
