"""`veilcast node stop`: let the running node finish, and end."""

from __future__ import annotations

import argparse

from veilcast.cli.context import Context, Report
from veilcast.cli.running_node import config_path
from veilcast.net.sync_client import connect_sync


def stop(arguments: argparse.Namespace, _: Context) -> Report:
    with connect_sync(config_path(arguments)) as me:
        me.stop()
    return Report({"stopping": True}, ["the node finishes and ends"])
