"""`veilcast demo`, `net` and `sim`: whole networks, on this computer and in virtual time."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any, Final

from veilcast.cli.grammar.options import Later, add_group, positive, runs


def add_demo(commands: Any) -> None:
    text = "private networks on this machine, attacked and measured"
    parser = commands.add_parser("demo", help=text, description=text)
    parser.add_argument("--nodes", type=int, default=24, metavar="N", help="members of each network (24)")
    parser.add_argument("--subscribers", type=int, default=5, metavar="N", help="who of them reads (5)")
    parser.add_argument("--notes", type=int, default=20, metavar="N", help="how many notes are published (20)")
    parser.add_argument("--quick", action="store_true", help="as small as shows anything: 8 nodes, 2 readers, 5 notes")
    parser.add_argument("--page", type=Path, default=Path(_PAGE), metavar="FILE", help=f"with pictures ({_PAGE})")
    runs(parser, Later("demo", "run"))


def add_net(commands: Any) -> None:
    group = add_group(commands, "net", help="many nodes on this machine: up, start, status, down")
    verbs = group.add_subparsers(title="commands", metavar="COMMAND")

    def verb(name: str, text: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
        parser.add_argument("--dir", type=Path, default=Path(_DIRECTORY), help=f"where its files are ({_DIRECTORY})")
        runs(parser, Later("net", name))
        return parser

    up = verb("up", "make a network of N nodes with keys of its own, and start it")
    up.add_argument("nodes", type=int, metavar="N")
    up.add_argument(
        "--mode",
        choices=("mesh", "relay", "tree", "foil", "brokers"),
        default="mesh",
        help="a relay has a server and a proxy besides, a tree a directory and a private Tor network, foil a broker,"
        " brokers an overlay of three virtual nodes",
    )
    up.add_argument("--no-tor", action="store_true", help="a tree whose nodes call one another straight: no anonymity")
    up.add_argument("--profile", choices=("hardened", "paper"), default="hardened", help="(hardened)")
    up.add_argument("--pf", action="store_true", help="probabilistic forwarding, with --profile paper")
    up.add_argument("--sg", action="store_true", help="the shell game, with --profile paper")
    up.add_argument(
        "--topology",
        default="certified",
        metavar="certified|ws:K:P",
        help="members find one another, or a small world of K neighbours, rewired with probability P (certified)",
    )
    up.add_argument("--epoch", type=positive, default=60, metavar="SECONDS", help="length of an epoch (60)")
    up.add_argument("--rate", type=int, choices=(1, 4, 16), default=16, help="cells a second on each link (16)")
    up.add_argument("--publishers", type=int, default=1, metavar="N", help="how many nodes may publish (1)")
    up.add_argument("--subscribers", type=int, metavar="N", help="how many nodes subscribe (3, in a network of 3: 2)")
    up.add_argument("--tap", action="store_true", help="record every node's wire in its directory")
    verb("start", "start again the processes of the network that have died, with the same files")
    verb("status", "how each node of the network is")
    down = verb("down", "end the network, and take away its files")
    down.add_argument("--keep", action="store_true", help="leave the files where they are")


def add_sim(commands: Any) -> None:
    group = add_group(commands, "sim", help="the protocol in virtual time: run, soak, explore, ...")
    verbs = group.add_subparsers(title="commands", metavar="COMMAND")

    run = verbs.add_parser("run", help="run a scenario", description="Run a packaged scenario or a TOML file.")
    run.add_argument("scenario", metavar="SCENARIO", help="a name of `sim list`, or a file")
    run.add_argument("--seed", type=int, default=0, help="which run (0)")
    run.add_argument("--seeds", type=int, default=1, metavar="N", help="so many seeds from --seed on (1)")
    run.add_argument("--out", type=Path, metavar="DIR", help="write the observation tables here")
    runs(run, Later("sim", "run"))

    _add_soak(verbs)

    listing = verbs.add_parser("list", help="the scenarios that come with veilcast")
    runs(listing, Later("sim", "list_scenarios"))

    _add_explore(verbs)


def _add_soak(verbs: Any) -> None:
    parser = verbs.add_parser(
        "soak",
        help="many small networks under every fault, with every check",
        description="Run small networks, each of a variant and with faults that its seed draws, and check everything.",
    )
    parser.add_argument("--of", choices=SOAKS, default="mesh", help="what kind of network (mesh)")
    parser.add_argument("--seeds", type=int, default=100, metavar="N", help="so many seeds from --seed on (100)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (0)")
    cores = min(os.cpu_count() or 1, JOBS_MAX)
    parser.add_argument("--jobs", type=int, default=cores, metavar="J", help="processes (one a core)")
    runs(parser, Later("soak", "run"))


def _add_explore(verbs: Any) -> None:
    command = verbs.add_parser(
        "explore",
        help="try every way that shell games can go",
        description="Search all states of up to three shell games at once, on six nodes, by the real code. "
        "The options say what may happen besides messages in any order.",
    )
    for option, default, about in EXPLORED:
        command.add_argument(f"--{option}", type=int, default=default, metavar="N", help=f"{about} ({default})")
    command.add_argument("--late", action="store_true", help="leases may end while messages are under way")
    command.add_argument("--liar", choices=list(LIARS), help="this node says anything to anybody")
    command.add_argument("--lies", type=int, metavar="N", help="how often (1)")
    runs(command, Later("explore", "explore_swaps"))

    diagram = verbs.add_parser("diagram", help="the states of a swap as a page with a diagram")
    runs(diagram, Later("explore", "diagram"))


SOAKS: Final = ("mesh", "relay", "tree", "foil", "brokers", "brokers-liars", "brokers-every")
JOBS_MAX: Final = 256
LIARS: Final = ("p", "a", "b", "c", "d", "e")
EXPLORED: Final = (
    ("games", 3, "games, each of which shares nodes with the others"),
    ("losses", 0, "messages lost at most"),
    ("copies", 0, "messages delivered twice at most"),
    ("crashes", 0, "nodes that crash at most"),
    ("states-max", 10_000_000, "states looked at before the search gives up"),
)
_PAGE: Final = "veilcast-demo.html"
_DIRECTORY: Final = "veilcast-net"
