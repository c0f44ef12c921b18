"""`veilcast node ...`: one member's node, from its configuration to its last cell."""

from __future__ import annotations

import argparse
import asyncio
import json
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from veilcast.cli import new_node, passphrase
from veilcast.cli.compose import compose, set_up
from veilcast.cli.context import Context, Report
from veilcast.cli.files import passphrase_file
from veilcast.cli.reach import add_config, config_of
from veilcast.cli.tap import Around, tapped
from veilcast.crypto.secret import Secret
from veilcast.errors import StorageError
from veilcast.net.blocking import connect_sync
from veilcast.net.service import Driver, serve
from veilcast.node.config import NodeConfig


def add_commands(commands: Any) -> None:
    group = commands.add_parser("node", help="a member's node: new, run, stop")
    group.set_defaults(parser=group)
    verbs = group.add_subparsers(title="commands", metavar="COMMAND")

    new_node.add_command(verbs)

    run = verbs.add_parser("run", help="run the node until SIGTERM", description="Run a node until SIGTERM or Ctrl-C.")
    add_config(run)
    source = run.add_mutually_exclusive_group()
    source.add_argument("--passphrase-file", type=Path, metavar="FILE", help="read the keyring's passphrase from FILE")
    source.add_argument("--passphrase-fd", type=int, metavar="N", help="read it from the open file descriptor N")
    run.add_argument(
        "--danger-tap",
        type=Path,
        metavar="DIR",
        help="write the time, addresses and size of every datagram to DIR/cells.jsonl; for the lab only",
    )
    run.add_argument("--json", action="store_true", help="print JSON objects, one a line")
    run.set_defaults(run=_run, parser=run)

    stop = verbs.add_parser("stop", help="let the running node finish, and end")
    add_config(stop)
    stop.add_argument("--json", action="store_true", help="print one JSON object")
    stop.set_defaults(run=_stop, parser=stop)


def _run(arguments: argparse.Namespace, context: Context) -> Report:
    config = set_up(config_of(arguments))

    def ready(driver: Driver) -> None:
        places = list(driver.addresses)
        context.say(json.dumps({"listening": places}) if arguments.json else f"listening at {', '.join(places)}")

    secret = _passphrase(arguments, config, context)
    with _tap(arguments, config, context) as around, compose(config, secret, around) as service:
        drained = asyncio.run(serve(service, ready))
    line = "all that was promised has gone out" if drained else "the outbox keeps what has not gone out"
    return Report({"drained": drained}, [line])


def _passphrase(arguments: argparse.Namespace, config: NodeConfig, context: Context) -> Secret:
    """From where the command line says, or else the file, or from who started us."""
    if not Path(config.keyring).exists():  # Nobody should type a passphrase for nothing.
        raise StorageError(f"keyring: there is no {config.keyring}; the authority grants one")
    named, descriptor = arguments.passphrase_file, arguments.passphrase_fd
    if named is None and descriptor is None:
        named = None if config.passphrase_file is None else Path(config.passphrase_file)
        descriptor = config.passphrase_fd
    if descriptor is not None:
        return passphrase.from_descriptor(descriptor)
    return passphrase.existing(context, config.keyring, named, passphrase_file(Path(config.keyring)))


def _tap(arguments: argparse.Namespace, config: NodeConfig, context: Context) -> AbstractContextManager[Around | None]:
    directory = arguments.danger_tap
    if directory is None:
        return nullcontext()
    context.warn(
        f"DANGER: --danger-tap writes whom this node talks to, and when, to {directory}/cells.jsonl;"
        " whoever reads that file sees what an observer of its wires sees"
    )
    return tapped(directory, config.told, f"tap-{context.now_us()}")


def _stop(arguments: argparse.Namespace, _: Context) -> Report:
    with connect_sync(config_of(arguments)) as me:
        me.stop()
    return Report({"stopping": True}, ["the node finishes and ends"])
