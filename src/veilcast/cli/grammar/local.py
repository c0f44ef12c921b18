"""`veilcast demo`, `net` and `sim`: whole networks, on this computer and in virtual time."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any, Final

from veilcast.cli.grammar.options import Later, add_group, add_network_verb, positive, runs


def add_demo(commands: Any) -> None:
    text = "private networks on this machine, attacked and measured"
    parser = commands.add_parser("demo", help=text, description=text)
    parser.add_argument("--nodes", type=int, default=24, metavar="N", help="members of each network (24)")
    parser.add_argument("--subscribers", type=int, default=5, metavar="N", help="how many of them subscribe (5)")
    parser.add_argument("--notes", type=int, default=20, metavar="N", help="how many notes are published (20)")
    parser.add_argument("--quick", action="store_true", help="run a small demo: 8 nodes, 2 subscribers, 5 notes")
    parser.add_argument(
        "--page",
        type=Path,
        default=Path(_PAGE),
        metavar="FILE",
        help=f"where to write the page with pictures ({_PAGE})",
    )
    runs(parser, Later("demo", "run"))


def add_net(commands: Any) -> None:
    group = add_group(commands, "net", help="many nodes on this machine: up, start, status, down")
    verbs = group.add_subparsers(title="commands", metavar="COMMAND")

    def verb(name: str, text: str) -> argparse.ArgumentParser:
        return add_network_verb(verbs, name, Later("net", name), text, directory=_DIRECTORY)

    up = verb("up", "make a network of N nodes with keys of its own, and start it")
    up.add_argument("nodes", type=int, metavar="N", help="number of nodes")
    up.add_argument(
        "--mode",
        choices=("mesh", "relay", "tree", "foil", "brokers"),
        default="mesh",
        help="the mode of the network (mesh); a relay also has a server and a proxy, a tree a directory and a private "
        "Tor network, foil a broker, brokers an overlay of three virtual nodes",
    )
    up.add_argument(
        "--no-tor", action="store_true", help="with a tree: nodes call one another directly, without anonymity"
    )
    up.add_argument(
        "--directories",
        type=int,
        default=1,
        metavar="N",
        help="with a tree: number of directories; more than half of them sign each listing (1)",
    )
    up.add_argument(
        "--profile", choices=("hardened", "paper"), default="hardened", help="the profile of all nodes (hardened)"
    )
    up.add_argument("--pf", action="store_true", help="with --profile paper: probabilistic forwarding")
    up.add_argument("--sg", action="store_true", help="with --profile paper: the shell game")
    up.add_argument(
        "--topology",
        default="certified",
        metavar="certified|ws:K:P",
        help="members find one another, or a small world of K neighbours, rewired with probability P (certified)",
    )
    up.add_argument("--epoch", type=positive, default=60, metavar="SECONDS", help="length of an epoch in seconds (60)")
    up.add_argument("--rate", type=int, choices=(1, 4, 16), default=16, help="cells a second on each link (16)")
    up.add_argument("--publishers", type=int, default=1, metavar="N", help="number of nodes that may publish (1)")
    up.add_argument(
        "--subscribers", type=int, metavar="N", help="number of nodes that subscribe (3, in a network of 3: 2)"
    )
    up.add_argument(
        "--tap", action="store_true", help="record every node's datagrams in its directory; for the lab only"
    )
    verb("start", "restart the processes of the network that have died, with the same files")
    verb("status", "show the state of each node of the network")
    down = verb("down", "end the network, and remove its files")
    down.add_argument("--keep", action="store_true", help="leave the files where they are")


def add_sim(commands: Any) -> None:
    group = add_group(commands, "sim", help="the protocol in virtual time: run, soak, explore, ...")
    verbs = group.add_subparsers(title="commands", metavar="COMMAND")

    run = verbs.add_parser("run", help="run a scenario", description="Run a packaged scenario or a TOML file.")
    run.add_argument("scenario", metavar="SCENARIO", help="a name of `sim list`, or a file")
    run.add_argument("--seed", type=int, default=0, help="the first seed (0)")
    run.add_argument(
        "--seeds", type=int, default=1, metavar="N", help="number of consecutive seeds to run, starting with --seed (1)"
    )
    run.add_argument("--out", type=Path, metavar="DIR", help="write the observation tables to this directory")
    runs(run, Later("sim", "run"))

    _add_soak(verbs)

    listing = verbs.add_parser("list", help="list the scenarios that come with veilcast")
    runs(listing, Later("sim", "list_scenarios"))

    _add_explore(verbs)


def _add_soak(verbs: Any) -> None:
    parser = verbs.add_parser(
        "soak",
        help="many small networks under every fault, with every check",
        description="Run small networks, each of a variant and with faults that its seed draws, and check everything.",
    )
    parser.add_argument("--of", choices=SOAKS, default="mesh", help="the kind of network (mesh)")
    parser.add_argument(
        "--seeds",
        type=int,
        default=100,
        metavar="N",
        help="number of consecutive seeds to run, starting with --seed (100)",
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed (0)")
    cores = min(os.cpu_count() or 1, JOBS_MAX)
    parser.add_argument("--jobs", type=int, default=cores, metavar="J", help="number of processes (one for each core)")
    runs(parser, Later("sim_soak", "run"))


def _add_explore(verbs: Any) -> None:
    command = verbs.add_parser(
        "explore",
        help="try every possible course of a few shell games",
        description="Search all states of up to three shell games at once, on six nodes, by the real code. "
        "Messages arrive in any order; the options allow further events.",
    )
    for option, default, about in EXPLORED:
        command.add_argument(f"--{option}", type=int, default=default, metavar="N", help=f"{about} ({default})")
    command.add_argument("--late", action="store_true", help="allow leases to end while messages are under way")
    command.add_argument("--liar", choices=list(LIARS), help="the node that may send any message to any node")
    command.add_argument("--lies", type=int, metavar="N", help="with --liar: how many such messages it sends (1)")
    runs(command, Later("sim_explore", "explore_swaps"))

    diagram = verbs.add_parser("diagram", help="print the states of a swap as a page with a diagram")
    runs(diagram, Later("sim_explore", "diagram"))


SOAKS: Final = ("mesh", "relay", "tree", "foil", "brokers", "brokers-liars", "brokers-every")
JOBS_MAX: Final = 256
LIARS: Final = ("p", "a", "b", "c", "d", "e")
EXPLORED: Final = (
    ("games", 3, "number of games, each of which shares nodes with the others"),
    ("losses", 0, "largest number of lost messages"),
    ("copies", 0, "largest number of messages that are delivered twice"),
    ("crashes", 0, "largest number of nodes that crash"),
    ("states-max", 10_000_000, "number of states after which the search gives up"),
)
_PAGE: Final = "veilcast-demo.html"
_DIRECTORY: Final = "veilcast-net"
