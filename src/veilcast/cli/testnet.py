"""`veilcast tree testnet ...`: a private Tor network on this machine, up and down again."""

from __future__ import annotations

import argparse
from pathlib import Path

from veilcast.authority.vault import alone
from veilcast.cli.context import Context, Report
from veilcast.cli.counts import counted
from veilcast.cli.files import make_directory
from veilcast.cli.progress_bar import progress_bar
from veilcast.net import testnet
from veilcast.net.torprocess import find


def up(arguments: argparse.Namespace, _: Context) -> Report:
    directory: Path = arguments.dir
    find()  # Before anything is made.
    make_directory(directory)
    with (
        alone(directory),
        progress_bar("know of all others") as told,
    ):
        testnet.up(directory, relays=arguments.relays, told=told)
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


def status(arguments: argparse.Namespace, _: Context) -> Report:
    found = testnet.parts(arguments.dir)
    alive = sum(part.pid is not None for part in found)
    lines = [f"{alive} of {len(found)} are up"]
    lines += [
        f"  {part.name:4} " + (f"knows of {part.knows}, process {part.pid}" if part.pid else "down") for part in found
    ]
    return Report({"up": alive, "parts": [part._asdict() for part in found]}, lines)


def down(arguments: argparse.Namespace, _: Context) -> Report:
    directory: Path = arguments.dir
    testnet.parts(directory)
    with alone(directory):
        ended = testnet.down(directory)
    return Report({"ended": ended}, [f"{counted(ended, 'process')} ended; the files are gone"])
