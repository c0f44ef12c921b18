"""`veilcast tree testnet ...`: a private Tor network on this machine, up and down again."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import Progress

from veilcast.authority.vault import alone
from veilcast.cli.context import Context, Report
from veilcast.cli.counts import counted
from veilcast.cli.files import make_directory
from veilcast.net import testnet
from veilcast.net.torprocess import find


def add_commands(commands: Any) -> None:
    text = "a private Tor network on this machine: up, status, down"
    group = commands.add_parser("testnet", help=text, description=f"{text}. It hides nobody from whoever runs it.")
    group.set_defaults(parser=group)
    verbs = group.add_subparsers(title="commands", metavar="COMMAND")

    def verb(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
        parser.add_argument("--dir", type=Path, default=Path(_DIRECTORY), help=f"where its files are ({_DIRECTORY})")
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        parser.set_defaults(run=run, parser=parser)
        return parser

    up = verb("up", _up, "start three directory authorities and some relays, and wait until all know of all")
    up.add_argument("--relays", type=int, default=4, metavar="N", help="besides the authorities (4)")
    verb("status", _status, "how each Tor of the network is")
    verb("down", _down, "end the network, and take away its files")


def _up(arguments: argparse.Namespace, _: Context) -> Report:
    directory: Path = arguments.dir
    find()  # Before anything is made.
    make_directory(directory)
    with (
        alone(directory),
        Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar,
    ):
        task = bar.add_task("know of all others", total=None)
        testnet.up(
            directory, relays=arguments.relays, told=lambda known, of: bar.update(task, completed=known, total=of)
        )
        found = testnet.parts(directory)
    network = testnet.network_file(directory).absolute()
    lines = [
        f"a private Tor network is up: {testnet.AUTHORITIES} authorities, {arguments.relays} relays",
        "for a node's file:",
        "  [tor]",
        f'  network = "{network}"',
        f"  veilcast tree testnet down --dir {directory}",
    ]
    return Report({"dir": str(directory), "network": str(network), "pids": [part.pid for part in found]}, lines)


def _status(arguments: argparse.Namespace, _: Context) -> Report:
    found = testnet.parts(arguments.dir)
    alive = sum(part.pid is not None for part in found)
    lines = [f"{alive} of {len(found)} are up"]
    lines += [
        f"  {part.name:4} " + (f"knows of {part.knows}, process {part.pid}" if part.pid else "down") for part in found
    ]
    return Report({"up": alive, "parts": [part._asdict() for part in found]}, lines)


def _down(arguments: argparse.Namespace, _: Context) -> Report:
    directory: Path = arguments.dir
    testnet.parts(directory)
    with alone(directory):
        ended = testnet.down(directory)
    return Report({"ended": ended}, [f"{counted(ended, 'process')} ended; the files are gone"])


_DIRECTORY: Final = "veilcast-tor"
