"""`veilcast node run`: one member's node, from its configuration to its last cell."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from veilcast.cli import service_run
from veilcast.cli.compose import compose
from veilcast.cli.context import Context, Report
from veilcast.cli.running_node import config_path
from veilcast.cli.tor_setup import NO_TOR, open_tor_with_progress
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError
from veilcast.node.config import NodeConfig, load_config
from veilcast.node.modes import mode_of

if TYPE_CHECKING:
    from veilcast.cli.tap import WrapMachine


def run(arguments: argparse.Namespace, context: Context) -> Report:
    config = service_run.load_process_config(config_path(arguments), load_config)
    secret = service_run.process_passphrase(arguments, config, context)
    return run_node(config, secret, arguments, context)


def run_node(config: NodeConfig, secret: Secret, arguments: argparse.Namespace, context: Context) -> Report:
    """Run a node whose passphrase is known."""
    anonymous = NO_TOR
    if mode_of(config.mode).driver == "onions":
        anonymous = open_tor_with_progress(config.tor, Path(config.state), context)
    with (
        _tap(arguments, config, context) as around,
        compose(config, secret, around, anonymous, context.warn) as service,
    ):
        return service_run.run_service(
            service, context, as_json=arguments.json, left="the outbox keeps what has not gone out"
        )


def _tap(
    arguments: argparse.Namespace, config: NodeConfig, context: Context
) -> AbstractContextManager[WrapMachine | None]:
    directory = getattr(arguments, "danger_tap", None)
    if directory is None:
        return nullcontext()
    from veilcast.cli.tap import open_tap

    if mode_of(config.mode).driver in ("streams", "mqtt"):
        raise ConfigError("--danger-tap writes datagrams, and this mode has none; record its streams with tcpdump")
    context.warn(
        f"DANGER: --danger-tap writes this node's peers and times to {directory}/cells.jsonl;"
        " whoever reads that file sees what an observer of its wires sees"
    )
    return open_tap(directory, f"tap-{context.now_us()}")
