"""`veilcast tree ...`: the directory of a tree, from the line that all its nodes need to its last record."""

from __future__ import annotations

import argparse
from pathlib import Path

from veilcast.cli.context import Context, Report
from veilcast.cli.files import open_keyring
from veilcast.cli.identity import check_role
from veilcast.cli.tor_setup import onion_address, open_tor_with_progress
from veilcast.node.tree import load_directory


def init(arguments: argparse.Namespace, context: Context) -> Report:
    keyring, _ = open_keyring(context, arguments)
    check_role(keyring, "directory")
    address = onion_address(keyring)
    return Report({"directory": address}, ["tell everybody:", f'directory = "{address}"'])


def run(arguments: argparse.Namespace, context: Context) -> Report:
    from veilcast.cli import service_run
    from veilcast.cli.compose_tree import compose_directory

    config = service_run.load_process_config(arguments.config, load_directory)
    secret = service_run.process_passphrase(arguments, config, context)
    with compose_directory(config, secret, open_tor_with_progress(config.tor, Path(config.state), context)) as setup:
        left = "its disk keeps what has not gone out"
        return service_run.run_service(setup, context, as_json=arguments.json, left=left)
