"""`veilcast tree testnet ...`: starts and stops a private Tor network on this computer."""

from __future__ import annotations

import argparse
from pathlib import Path

from veilcast.authority.secret_file import lock_directory
from veilcast.cli.context import Context, Report
from veilcast.cli.files import make_directory
from veilcast.cli.phrases import pluralize
from veilcast.cli.progress_bar import progress_bar
from veilcast.net import tor_testnet
from veilcast.net.tor_process import find_program


def up(arguments: argparse.Namespace, _: Context) -> Report:
    directory: Path = arguments.dir
    find_program()  # Before anything is made.
    make_directory(directory)
    with (
        lock_directory(directory),
        progress_bar("know of all others") as on_progress,
    ):
        tor_testnet.start_network(directory, relays=arguments.relays, on_progress=on_progress)
        found = tor_testnet.list_processes(directory)
    network = tor_testnet.network_file(directory).absolute()
    lines = [
        f"a private Tor network is up: {tor_testnet.AUTHORITIES} authorities, {arguments.relays} relays",
        "for a node's file:",
        "  [tor]",
        f'  network = "{network}"',
        f"  veilcast tree testnet down --dir {directory}",
    ]
    return Report({"dir": str(directory), "network": str(network), "pids": [part.pid for part in found]}, lines)


def status(arguments: argparse.Namespace, _: Context) -> Report:
    found = tor_testnet.list_processes(arguments.dir)
    alive = sum(part.pid is not None for part in found)
    lines = [f"{alive} of {len(found)} are up"]
    lines += [
        f"  {part.name:4} " + (f"knows of {part.knows}, process {part.pid}" if part.pid else "down") for part in found
    ]
    return Report({"up": alive, "parts": [part._asdict() for part in found]}, lines)


def down(arguments: argparse.Namespace, _: Context) -> Report:
    directory: Path = arguments.dir
    tor_testnet.list_processes(directory)
    with lock_directory(directory):
        ended = tor_testnet.stop_network(directory)
    return Report({"ended": ended}, [f"{pluralize(ended, 'process')} ended; the files are gone"])
