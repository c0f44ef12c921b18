"""Access to the running node by its configuration file, which names the control socket; and `veilcast node stop`
and `reload`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from veilcast.cli.context import Context, Report
from veilcast.errors import ConfigError
from veilcast.net.control_protocol import Status
from veilcast.net.sync_client import BlockingClient, connect_sync


def stop(arguments: argparse.Namespace, _: Context) -> Report:
    """`veilcast node stop`."""
    with connect_sync(config_path(arguments)) as me:
        me.stop()
    return Report({"stopping": True}, ["the node finishes and ends"])


def reload(arguments: argparse.Namespace, context: Context) -> Report:
    """`veilcast node reload`."""
    with connect_sync(config_path(arguments)) as me:
        changed, problems = me.reload()
        ending = me.status().ending
    for line in (*problems, *ending):
        context.warn(line)
    done = "new keys are in use" if changed else "nothing is new"
    return Report({"changed": changed, "problems": list(problems), "ending": list(ending)}, [done])


def config_path(arguments: argparse.Namespace) -> Path:
    path: Path = arguments.config or Path(os.environ.get("VEILCAST_NODE") or "node.toml")
    if not path.is_file():
        raise ConfigError(f"there is no {path}; name the node's configuration with -c FILE")
    return path


def warn_if_hindered(me: BlockingClient, context: Context) -> Status:
    """Print why an accepted request may wait, if the node knows. Returns the node's status."""
    status = me.status()
    for hindrance in status.hindrances:
        context.warn(f"the node goes on trying, but {hindrance}")
    return status
