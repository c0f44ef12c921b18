"""`veilcast tree ...`: the directory of a tree, from the line that all its nodes need to its last record; and a private
Tor network to try it in."""

from __future__ import annotations

import argparse
from pathlib import Path

from veilcast.cli.anonymity import address_of, shown
from veilcast.cli.context import Context, Report
from veilcast.cli.files import open_keyring
from veilcast.cli.opening import check_standing
from veilcast.node.tree_files import load_directory


def init(arguments: argparse.Namespace, context: Context) -> Report:
    keyring, _ = open_keyring(context, arguments)
    check_standing(keyring, "directory")
    address = address_of(keyring)
    return Report({"directory": address}, ["tell everybody:", f'directory = "{address}"'])


def run(arguments: argparse.Namespace, context: Context) -> Report:
    from veilcast.cli import running
    from veilcast.cli.compose_tree import compose_directory

    config = running.set_up(arguments.config, load_directory)
    secret = running.passphrase_of(arguments, config, context)
    with compose_directory(config, secret, shown(config.tor, Path(config.state), context)) as station:
        left = "its disk keeps what has not gone out"
        return running.run(station, context, as_json=arguments.json, left=left)
