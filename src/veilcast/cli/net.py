"""`veilcast net ...`: starts and stops a network of real nodes on this computer."""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Collection
from pathlib import Path
from random import SystemRandom
from typing import Any, Final

from veilcast.authority.secret_file import lock_directory
from veilcast.cli.context import Context, Report
from veilcast.cli.invocation import command_name
from veilcast.cli.local import network as networks
from veilcast.cli.local.mode import LocalHost
from veilcast.cli.local.network import LocalNetwork, NetworkPlan, SmallWorld, role_file
from veilcast.cli.local.status import (
    ask_statuses,
    check_none_hand_started,
    stop_hand_started,
    subscribe_all,
    wait_until_linked,
)
from veilcast.cli.local.workers import WORKERS, WorkerGroup, end_workers, living_workers, missing_workers
from veilcast.cli.phrases import pluralize
from veilcast.cli.progress_bar import progress_bar
from veilcast.errors import ConfigError, LocalError
from veilcast.net.control_protocol import Status


def up(arguments: argparse.Namespace, context: Context) -> Report:
    return bring_up(arguments.dir, make_plan(arguments), context)


def make_plan(arguments: argparse.Namespace) -> NetworkPlan:
    """Make the plan that the options of `net up` describe."""
    left = max(0, arguments.nodes - arguments.publishers)
    return NetworkPlan(
        nodes=arguments.nodes,
        mode=arguments.mode,
        profile=arguments.profile,
        cover=arguments.pf,
        shellgame=arguments.sg,
        topology=parse_topology(arguments.topology),
        epoch_us=round(arguments.epoch * 1_000_000),
        rate=arguments.rate,
        publishers=arguments.publishers,
        subscribers=min(_SUBSCRIBERS, left) if arguments.subscribers is None else arguments.subscribers,
        tap=arguments.tap,
        tor=not arguments.no_tor,
        directories=arguments.directories,
    )


def bring_up(directory: Path, plan: NetworkPlan, context: Context) -> Report:
    """Make a network, and start it."""
    if plan.tap:
        context.warn(f"DANGER: --tap writes who talks to whom, and when, below {directory}; for the lab only")
    if (danger := plan.local.danger(plan)) is not None:
        context.warn(danger)
    network = networks.lay_out(directory, plan, context, SystemRandom())
    workers = None
    try:
        networks.check_addresses(network)
        with lock_directory(directory):
            plan.local.start(directory, network, context)
            workers = WorkerGroup(directory, WORKERS, lifeline=False)
            asyncio.run(_begin(directory, network, workers))
            workers.detach()
    except BaseException:
        if workers is not None:
            workers.end()
        plan.local.stop(directory, network)
        networks.remove_network(directory, network)
        raise
    first: dict[str, Any] = {role: str(role_file(directory, role)) for role in _ROLES if network.nodes_with_role(role)}
    data = {"dir": str(directory), "nodes": plan.nodes, "pids": list(living_workers(directory).values()), **first}
    return Report(data, _greeting(directory, network))


def start(arguments: argparse.Namespace, _: Context) -> Report:
    """Restart the workers that have died, with the existing files."""
    directory: Path = arguments.dir
    network = networks.read_network(directory)
    plan = network.plan
    with lock_directory(directory):
        numbers = missing_workers(directory)
        nodes = [node for node in range(plan.nodes) if node % WORKERS in numbers]
        stopped = [node for node in _stopped_nodes(directory, network) if node not in nodes]
        if numbers:
            running = [host for host in plan.hosts if host not in plan.spare_hosts]
            hosts = [host for place, host in enumerate(running) if place % WORKERS in numbers]
            check_none_hand_started(directory, nodes, hosts)
            plan.local.check_started(directory, network)
            workers = WorkerGroup(directory, WORKERS, lifeline=False, numbers=numbers)
            try:
                asyncio.run(_begin(directory, network, workers, stopped))
            except BaseException:
                workers.end()
                raise
            workers.detach()
    files = [networks.node_file(directory, node) for node in stopped]
    started = f"{pluralize(len(numbers), 'process')} started, with {pluralize(len(nodes), 'node')}"
    lines = [started if numbers else "nothing to start: all processes of the network run"]
    lines += [f"  {file.parent} is stopped; start it: {command_name()} node run -c {file}" for file in files]
    names = [networks.node_directory(directory, node).name for node in nodes]
    return Report({"started": len(numbers), "nodes": names, "stopped": [file.parent.name for file in files]}, lines)


def _stopped_nodes(directory: Path, network: LocalNetwork) -> list[int]:
    return [number for number, status in enumerate(asyncio.run(ask_statuses(directory, network))) if status is None]


async def _begin(directory: Path, network: LocalNetwork, workers: WorkerGroup, stopped: Collection[int] = ()) -> None:
    with progress_bar("nodes that have found others", network.plan.nodes - len(stopped)) as on_progress:
        try:
            await wait_until_linked(directory, network, workers, _START_S, on_progress, stopped)
        except TimeoutError:
            raise LocalError(
                f"not every node found others within {_START_S:g} s; what was started is ended again"
            ) from None
    await subscribe_all(directory, network, stopped)


def _greeting(directory: Path, network: LocalNetwork) -> list[str]:
    plan, command = network.plan, command_name()
    commands, first_note = plan.local.hints(directory, plan, command)
    up = f"{pluralize(plan.nodes, 'node')} {'is' if plan.nodes == 1 else 'are'} up ({plan.profile})"
    lines = [f"{up}, in {pluralize(WORKERS, 'process')}; their files are in {directory}"]
    verbs = {"publisher": f"pub -m hello{plan.local.pub_arguments}", "subscriber": "sub --keep"}
    for role in _ROLES:
        if network.nodes_with_role(role):
            lines.append(f"  {command} {verbs[role]} {network.topic} -c {role_file(directory, role)}")
    return [*lines, *commands, f"  {command} net down --dir {directory}", *first_note]


def status(arguments: argparse.Namespace, _: Context) -> Report:
    directory: Path = arguments.dir
    network = networks.read_network(directory)
    found, hosts = asyncio.run(_look(directory, network))
    pids = list(living_workers(directory).values())
    up = [status for status in found if status is not None]
    nodes: list[dict[str, Any]] = [
        {
            "node": networks.node_directory(directory, number).name,
            "address": address,
            "role": role,
            "up": status is not None,
            "neighbours": status.neighbours if status else 0,
            "outbox": status.outbox if status else 0,
            "inbox": status.inbox if status else 0,
            "hindrances": status.hindrances if status else (),
        }
        for number, (address, role, status) in enumerate(zip(network.addresses, network.roles, found, strict=True))
    ]
    plan = network.plan
    lines = [f"{len(up)} of {plan.nodes} nodes are up ({plan.profile}), in {pluralize(len(pids), 'process')}"]
    width = max(len(name) for name in ("NN", *(host.name for host in hosts)))
    for node in nodes:
        state = f"{pluralize(node['neighbours'], plan.local.peer_noun)}, {pluralize(node['inbox'], 'note')} unread"
        shown = state if node["up"] else "down"
        lines.append(f"  {node['node']:{width}}  {node['address']:20} {node['role']:10} {shown}".rstrip())
        lines += [f"  {'':{width}}  hindered: {hindrance}" for hindrance in node["hindrances"]]
    for host in hosts:
        shown = host.detail or ("up" if host.up else "down")
        lines.append(f"  {host.name:{width}}  {host.address:20} {host.role:10} {shown}")
    host_data = [host._asdict() for host in hosts]
    return Report({"up": len(up), "pids": pids, "nodes": nodes, "hosts": host_data}, lines)


async def _look(directory: Path, network: LocalNetwork) -> tuple[list[Status | None], list[LocalHost]]:
    found, hosts = await asyncio.gather(
        ask_statuses(directory, network), network.plan.local.ask_hosts(directory, network)
    )
    return found, hosts


def down(arguments: argparse.Namespace, context: Context) -> Report:
    directory: Path = arguments.dir
    network = networks.read_network(directory)
    with lock_directory(directory):
        ended = len(living_workers(directory))
        killed = end_workers(directory, _DOWN_S)
        ended += stop_hand_started(directory, network, _DOWN_S)
        ended += network.plan.local.stop(directory, network)
        keep = arguments.keep or network.plan.tap
        if not keep:
            networks.remove_network(directory, network)
    if killed:
        context.warn(f"{killed} of {ended} processes would not end, and were killed")
    rest = f"; its files stay in {directory}" if keep else "; its files are gone"
    return Report({"ended": ended, "killed": killed, "kept": keep}, [f"{pluralize(ended, 'process')} ended{rest}"])


def parse_topology(text: str) -> SmallWorld | None:
    if text == "certified":
        return None
    match = re.fullmatch(r"ws:(\d{1,3}):(\d(?:\.\d+)?)", text)
    if match is None:
        raise ConfigError(f"--topology is certified, or like ws:4:0.2, not {text!r}")
    return SmallWorld(int(match[1]), float(match[2]))


_ROLES: Final[tuple[networks.NodeRole, ...]] = ("publisher", "subscriber")
_SUBSCRIBERS: Final = 3
"""The number of subscribers if the user gives none and the network is large enough."""
_START_S: Final = 300.0
_DOWN_S: Final = 60.0
