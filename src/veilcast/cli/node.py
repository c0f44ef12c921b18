"""`veilcast node ...`: one member's node, from its configuration to its last cell."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from veilcast.cli import running
from veilcast.cli.anonymity import NO_TOR, shown
from veilcast.cli.compose import compose
from veilcast.cli.context import Context, Report
from veilcast.cli.reach import config_of
from veilcast.errors import ConfigError
from veilcast.node.config import NodeConfig, load
from veilcast.node.modes import mode_of

if TYPE_CHECKING:
    from veilcast.cli.tap import Around


def run(arguments: argparse.Namespace, context: Context) -> Report:
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
    from veilcast.cli.tap import tapped

    if mode_of(config.mode).driver in ("streams", "mqtt"):
        raise ConfigError("--danger-tap writes datagrams, and this mode has none; record its streams with tcpdump")
    context.warn(
        f"DANGER: --danger-tap writes whom this node talks to, and when, to {directory}/cells.jsonl;"
        " whoever reads that file sees what an observer of its wires sees"
    )
    return tapped(directory, f"tap-{context.now_us()}")
