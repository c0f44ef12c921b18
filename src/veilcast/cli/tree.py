"""`veilcast tree ...`: the directory of a tree, from the line that all its nodes need to its last record; and a private
Tor network to try it in."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from veilcast.cli import running, testnet
from veilcast.cli.anonymity import address_of, shown
from veilcast.cli.compose_tree import compose_directory
from veilcast.cli.context import Context, Report
from veilcast.cli.files import open_keyring
from veilcast.cli.opening import check_standing
from veilcast.node.tree_files import load_directory


def add_commands(commands: Any) -> None:
    group = commands.add_parser("tree", help="the directory of a tree, and a private Tor network")
    group.set_defaults(parser=group)
    parts = group.add_subparsers(title="parts", metavar="PART")

    text = "lists the nodes of a tree, and knows nothing of what they say"
    directory = parts.add_parser("directory", help=text, description=text)
    directory.set_defaults(parser=directory)
    verbs = directory.add_subparsers(title="commands", metavar="COMMAND")
    init = _verb(verbs, "init", _init, "print the line that all its nodes need")
    init.add_argument("--keyring", type=Path, required=True, metavar="FILE", help="of the directory")
    init.add_argument("--passphrase-file", type=Path, metavar="FILE", help="read the keyring's passphrase from FILE")
    run = _verb(verbs, "run", _run, "run the directory until SIGTERM or Ctrl-C")
    file = "directory.toml"
    run.add_argument("-c", "--config", type=Path, default=Path(file), metavar="FILE", help=f"its file ({file} here)")
    running.add_source(run)

    testnet.add_commands(parts)


def _verb(verbs: Any, name: str, run: Any, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
    parser.add_argument("--json", action="store_true", help="print JSON objects, one a line")
    parser.set_defaults(run=run, parser=parser)
    return parser


def _init(arguments: argparse.Namespace, context: Context) -> Report:
    keyring, _ = open_keyring(context, arguments)
    check_standing(keyring, "directory")
    address = address_of(keyring)
    return Report({"directory": address}, ["tell everybody:", f'directory = "{address}"'])


def _run(arguments: argparse.Namespace, context: Context) -> Report:
    config = running.set_up(arguments.config, load_directory)
    secret = running.passphrase_of(arguments, config, context)
    with compose_directory(config, secret, shown(config.tor, Path(config.state), context)) as station:
        left = "its disk keeps what has not gone out"
        return running.run(station, context, as_json=arguments.json, left=left)
