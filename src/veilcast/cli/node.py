"""`veilcast node ...`: one member's node, from its configuration to its last cell."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from veilcast.cli import new_node, running
from veilcast.cli.anonymity import NO_TOR, shown
from veilcast.cli.compose import compose
from veilcast.cli.context import Context, Report
from veilcast.cli.reach import add_config, config_of
from veilcast.cli.tap import Around, tapped
from veilcast.errors import ConfigError
from veilcast.net.blocking import connect_sync
from veilcast.node.config import NodeConfig, load
from veilcast.node.modes import mode_of


def add_commands(commands: Any) -> None:
    group = commands.add_parser("node", help="a member's node: new, run, stop")
    group.set_defaults(parser=group)
    verbs = group.add_subparsers(title="commands", metavar="COMMAND")

    new_node.add_command(verbs)

    run = verbs.add_parser("run", help="run the node until SIGTERM", description="Run a node until SIGTERM or Ctrl-C.")
    add_config(run)
    running.add_source(run)
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
    config = running.set_up(config_of(arguments), load)
    secret = running.passphrase_of(arguments, config, context)
    anonymous = NO_TOR
    if mode_of(config.mode).driver == "onions":
        anonymous = shown(config.tor, Path(config.state), context)
    with _tap(arguments, config, context) as around, compose(config, secret, around, anonymous) as service:
        return running.run(service, context, as_json=arguments.json, left="the outbox keeps what has not gone out")


def _tap(arguments: argparse.Namespace, config: NodeConfig, context: Context) -> AbstractContextManager[Around | None]:
    directory = arguments.danger_tap
    if directory is None:
        return nullcontext()
    if mode_of(config.mode).driver in ("streams", "mqtt"):
        raise ConfigError("--danger-tap writes datagrams, and this mode has none; record its streams with tcpdump")
    context.warn(
        f"DANGER: --danger-tap writes whom this node talks to, and when, to {directory}/cells.jsonl;"
        " whoever reads that file sees what an observer of its wires sees"
    )
    return tapped(directory, f"tap-{context.now_us()}")


def _stop(arguments: argparse.Namespace, _: Context) -> Report:
    with connect_sync(config_of(arguments)) as me:
        me.stop()
    return Report({"stopping": True}, ["the node finishes and ends"])
