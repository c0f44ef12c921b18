"""`veilcast net ...`: a network of real nodes on this machine, up and down again."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import Collection
from pathlib import Path
from random import SystemRandom
from typing import Any, Final

from veilcast.authority.secret_file import lock_directory
from veilcast.cli.context import Context, Report
from veilcast.cli.invocation import command_name
from veilcast.cli.local import network, tree
from veilcast.cli.local import status as by_hand
from veilcast.cli.local import workers as crew
from veilcast.cli.local.network import LocalNetwork, NetworkPlan, SmallWorld, role_file
from veilcast.cli.local.status import LocalHost, ask_hosts, ask_statuses, subscribe_all, wait_until_linked
from veilcast.cli.phrases import pluralize
from veilcast.cli.progress_bar import progress_bar
from veilcast.errors import ConfigError, LocalError
from veilcast.net import tor_testnet
from veilcast.net.agent import Status


def up(arguments: argparse.Namespace, context: Context) -> Report:
    return bring_up(arguments.dir, make_plan(arguments), context)


def make_plan(arguments: argparse.Namespace) -> NetworkPlan:
    """The network that the options of `net up` describe."""
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
    )


def bring_up(directory: Path, plan: NetworkPlan, context: Context) -> Report:
    """Make a network, and start it."""
    if plan.tap:
        context.warn(f"DANGER: --tap writes who talks to whom, and when, below {directory}; for the lab only")
    if plan.mode == "tree" and not plan.tor:
        context.warn("DANGER: --no-tor: nodes call one another straight, and everybody sees who talks to whom")
    net = network.lay_out(directory, plan, context, SystemRandom())
    workers = None
    try:
        network.check_addresses(net)
        with lock_directory(directory):
            if plan.tor and plan.mode == "tree":
                _tell(context, "starting a private Tor network, which takes about half a minute")
                _begin_tor(tree.testnet_directory(directory))
                _tell(context, f"Tor is up; {pluralize(plan.nodes, 'node')} and their directory find one another")
            workers = crew.WorkerGroup(directory, crew.WORKERS, lifeline=False)
            asyncio.run(_begin(directory, net, workers))
            workers.detach()
    except BaseException:
        if workers is not None:
            workers.end()
        _end_tor(directory, net)
        network.remove_network(directory, net)
        raise
    first: dict[str, Any] = {role: str(role_file(directory, role)) for role in _ROLES if net.nodes_with_role(role)}
    data = {"dir": str(directory), "nodes": plan.nodes, "pids": list(crew.living_workers(directory).values()), **first}
    return Report(data, _greeting(directory, net))


def start(arguments: argparse.Namespace, _: Context) -> Report:
    """Start again the workers that have died, with the files that there are."""
    directory: Path = arguments.dir
    net = network.read_network(directory)
    with lock_directory(directory):
        numbers = crew.missing_workers(directory)
        nodes = [node for node in range(net.plan.nodes) if node % crew.WORKERS in numbers]
        stopped = [node for node in _stopped_nodes(directory, net) if node not in nodes]
        if numbers:
            running = [host for host in net.plan.hosts if host not in net.plan.spare_hosts]
            hosts = [host for place, host in enumerate(running) if place % crew.WORKERS in numbers]
            by_hand.check_none_hand_started(directory, nodes, hosts)
            _check_tor(directory, net)
            workers = crew.WorkerGroup(directory, crew.WORKERS, lifeline=False, numbers=numbers)
            try:
                asyncio.run(_begin(directory, net, workers, stopped))
            except BaseException:
                workers.end()
                raise
            workers.detach()
    files = [network.node_file(directory, node) for node in stopped]
    started = f"{pluralize(len(numbers), 'process')} started, with {pluralize(len(nodes), 'node')}"
    lines = [started if numbers else "nothing to start: all processes of the network run"]
    lines += [f"  {file.parent} is stopped; start it: {command_name()} node run -c {file}" for file in files]
    names = [network.node_directory(directory, node).name for node in nodes]
    return Report({"started": len(numbers), "nodes": names, "stopped": [file.parent.name for file in files]}, lines)


def _stopped_nodes(directory: Path, net: LocalNetwork) -> list[int]:
    return [number for number, status in enumerate(asyncio.run(ask_statuses(directory, net))) if status is None]


def _check_tor(directory: Path, net: LocalNetwork) -> None:
    """`LocalError` if a tree's private Tor network has died: nothing can be reached by it."""
    home = tree.testnet_directory(directory)
    if net.plan.mode == "tree" and net.plan.tor and not all(part.pid for part in tor_testnet.list_processes(home)):
        raise LocalError(
            f"the private Tor network in {home} is down; make the network anew: `{command_name()} net down --dir"
            f" {directory}`, then `net up`"
        )


def _tell(context: Context, line: str) -> None:
    """How far it is, where no progress bar is shown."""
    if not sys.stderr.isatty():
        context.warn(line)


def _begin_tor(directory: Path) -> None:
    with progress_bar("Tors that know the others") as told:
        tor_testnet.start_network(directory, told=told)


def _end_tor(directory: Path, net: LocalNetwork) -> int:
    """End the private Tor network, if there is one; how many processes it had."""
    home = tree.testnet_directory(directory)
    return tor_testnet.stop_network(home) if net.plan.mode == "tree" and home.exists() else 0


async def _begin(directory: Path, net: LocalNetwork, workers: crew.WorkerGroup, stopped: Collection[int] = ()) -> None:
    with progress_bar("nodes that have found others", net.plan.nodes - len(stopped)) as told:
        try:
            await wait_until_linked(directory, net, workers, _START_S, told, stopped)
        except TimeoutError:
            raise LocalError(
                f"not every node found others within {_START_S:g} s; what was started is ended again"
            ) from None
    await subscribe_all(directory, net, stopped)


def _greeting(directory: Path, net: LocalNetwork) -> list[str]:
    plan = net.plan
    value = " --value price=512" if plan.mode == "foil" else ""
    up = f"{pluralize(plan.nodes, 'node')} {'is' if plan.nodes == 1 else 'are'} up ({plan.profile})"
    lines = [f"{up}, in {pluralize(crew.WORKERS, 'process')}; their files are in {directory}"]
    verbs, called = {"publisher": f"pub -m hello{value}", "subscriber": "sub --keep"}, command_name()
    for role in _ROLES:
        if net.nodes_with_role(role):
            lines.append(f"  {called} {verbs[role]} {net.topic} -c {role_file(directory, role)}")
    if plan.mode == "brokers":
        lines.append(f"  {called} brokers status --dir {directory}")
    lines.append(f"  {called} net down --dir {directory}")
    if plan.mode == "tree":
        lines.append("a first note may take a minute: readers lay their trees")
    if plan.mode == "mesh":
        lines.append(_FIRST_NOTE[plan.profile])
    return lines


def status(arguments: argparse.Namespace, _: Context) -> Report:
    directory: Path = arguments.dir
    net = network.read_network(directory)
    found, hosts = asyncio.run(_look(directory, net))
    pids = list(crew.living_workers(directory).values())
    up = [status for status in found if status is not None]
    nodes: list[dict[str, Any]] = [
        {
            "node": network.node_directory(directory, number).name,
            "address": address,
            "role": role,
            "up": status is not None,
            "neighbours": status.neighbours if status else 0,
            "outbox": status.outbox if status else 0,
            "inbox": status.inbox if status else 0,
            "hindrances": status.hindrances if status else (),
        }
        for number, (address, role, status) in enumerate(zip(net.addresses, net.roles, found, strict=True))
    ]
    lines = [f"{len(up)} of {net.plan.nodes} nodes are up ({net.plan.profile}), in {pluralize(len(pids), 'process')}"]
    width = max(len(name) for name in ("NN", *(host.name for host in hosts)))
    linked = _LINKED.get(net.plan.mode, "stream")
    for node in nodes:
        state = f"{pluralize(node['neighbours'], linked)}, {pluralize(node['inbox'], 'note')} unread"
        shown = state if node["up"] else "down"
        lines.append(f"  {node['node']:{width}}  {node['address']:20} {node['role']:10} {shown}".rstrip())
        lines += [f"  {'':{width}}  hindered: {hindrance}" for hindrance in node["hindrances"]]
    for host in hosts:
        shown = host.detail or ("up" if host.up else "down")
        lines.append(f"  {host.name:{width}}  {host.address:20} {host.role:10} {shown}")
    told = [host._asdict() for host in hosts]
    return Report({"up": len(up), "pids": pids, "nodes": nodes, "hosts": told}, lines)


async def _look(directory: Path, net: LocalNetwork) -> tuple[list[Status | None], list[LocalHost]]:
    found, hosts = await asyncio.gather(ask_statuses(directory, net), ask_hosts(directory, net))
    return found, hosts


def down(arguments: argparse.Namespace, context: Context) -> Report:
    directory: Path = arguments.dir
    net = network.read_network(directory)
    with lock_directory(directory):
        ended = len(crew.living_workers(directory))
        killed = crew.end_workers(directory, _DOWN_S)
        ended += by_hand.stop_hand_started(directory, net, _DOWN_S)
        ended += _end_tor(directory, net)
        keep = arguments.keep or net.plan.tap
        if not keep:
            network.remove_network(directory, net)
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


_ROLES: Final[tuple[network.NodeRole, ...]] = ("publisher", "subscriber")
_LINKED: Final = {"mesh": "neighbour", "brokers": "replica"}
"""What a member of each mode is linked with; of the others, streams."""
_FIRST_NOTE: Final[dict[str, str]] = {
    "hardened": "a first note takes a while, and `pub` says how long: members draw lots, and the topic's mesh forms",
    "paper": "publish after some seconds: the topic's mesh forms, and what is published before reaches nobody",
}
_SUBSCRIBERS: Final = 3
"""How many nodes subscribe if the user does not say, and the network is large enough."""
_START_S: Final = 300.0
_DOWN_S: Final = 60.0
