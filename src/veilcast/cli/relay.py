"""`veilcast relay ...`: the two hosts of a relay, from their keys to their last record.

Making keys needs neither a driver nor a store: the modules that run a host are imported when one runs.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from veilcast.cli.context import Context, Report
from veilcast.cli.files import check_place, open_keyring
from veilcast.crypto.group import Scalar
from veilcast.errors import LostDatabaseError
from veilcast.node.relay import encode_server_line, write_mask, write_server_keys
from veilcast.relay.transformation_key import ServerKeys

if TYPE_CHECKING:
    from veilcast.net.service import HostService, ServiceSetup
    from veilcast.node.relay import ServerFile


def init_server(arguments: argparse.Namespace, context: Context) -> Report:
    out: Path = arguments.out
    check_place(out)
    _, secret = open_keyring(context, arguments)  # It opens the keyring, or the server could not use it.
    keys = ServerKeys.draw(context.entropy)
    write_server_keys(out, keys, secret, cost=context.cost, entropy=context.entropy)
    line = encode_server_line(keys.public())
    return Report({"keys": str(out), "server_key": line}, [f"wrote {out}; tell everybody:", f'server_key = "{line}"'])


def init_proxy(arguments: argparse.Namespace, context: Context) -> Report:
    out: Path = arguments.out
    check_place(out)
    write_mask(out, Scalar.draw(context.entropy))
    return Report({"mask": str(out)}, [f"wrote {out}; the server's operator must not have it"])


def run_server(arguments: argparse.Namespace, context: Context) -> Report:
    from veilcast.cli import service_run
    from veilcast.cli.compose_relay import compose_server
    from veilcast.node.relay import load_server

    config = service_run.load_process_config(arguments.config, load_server)
    secret = service_run.process_passphrase(arguments, config, context)
    has_answered = False

    def stand_by(sentence: str) -> None:
        nonlocal has_answered
        has_answered = True
        context.warn(sentence)

    while True:
        try:
            with compose_server(config, secret, stand_by) as setup:
                has_answered = True
                return _serve(setup, arguments, context)
        except LostDatabaseError as error:
            if not has_answered:
                raise  # A mistake in the file, as likely as not.
            context.warn(f"{error}; nothing that was confirmed is lost; waiting for the database")
            _wait_for_database(config)


def _wait_for_database(config: ServerFile) -> None:
    """Return when the database of this file answers; the program may be interrupted meanwhile."""
    import time

    from veilcast.node.postgres import does_answer

    assert config.database is not None
    while not does_answer(config.database):
        time.sleep(_DATABASE_PAUSE_S)


def run_proxy(arguments: argparse.Namespace, context: Context) -> Report:
    from veilcast.cli import service_run
    from veilcast.cli.compose_relay import compose_proxy
    from veilcast.node.relay import load_proxy

    config = service_run.load_process_config(arguments.config, load_proxy)
    with compose_proxy(config, service_run.process_passphrase(arguments, config, context)) as setup:
        return _serve(setup, arguments, context)


def _serve(setup: ServiceSetup[HostService], arguments: argparse.Namespace, context: Context) -> Report:
    from veilcast.cli import service_run

    return service_run.run_service(setup, context, as_json=arguments.json, left="its disk keeps what has not gone out")


_DATABASE_PAUSE_S: Final = 0.5
