"""`veilcast relay ...`: the two services of a relay, from their keys to their last record."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from veilcast.cli import running
from veilcast.cli.compose_relay import compose_proxy, compose_server
from veilcast.cli.context import Context, Report
from veilcast.cli.files import check_place, open_keyring
from veilcast.crypto.group import Scalar
from veilcast.net.service import Station
from veilcast.net.station import StationOwner
from veilcast.node.relay_files import load_proxy, load_server
from veilcast.node.relay_keys import spell_public, write_mask, write_server_keys
from veilcast.relay.joining import ServerKeys


def add_commands(commands: Any) -> None:
    group = commands.add_parser("relay", help="the services of a relay: server, proxy")
    group.set_defaults(parser=group)
    services = group.add_subparsers(title="services", metavar="SERVICE")

    verbs = _service(services, "server", "matches publications with subscriptions, and knows nobody's name")
    init = _verb(verbs, "init", _init_server, "make a server's keys, and print the line that all its users need")
    init.add_argument("out", type=Path, metavar="FILE", help="for the keys, locked with the keyring's passphrase")
    init.add_argument("--keyring", type=Path, required=True, metavar="FILE", help="of the server")
    init.add_argument("--passphrase-file", type=Path, metavar="FILE", help="read the keyring's passphrase from FILE")
    _runs(verbs, _run_server, "server")

    verbs = _service(services, "proxy", "knows its users, and not what they say")
    init = _verb(verbs, "init", _init_proxy, "make a mask, for all proxies of one server and never for the server")
    init.add_argument("out", type=Path, metavar="FILE", help="for the mask; bring copies to the other proxies")
    _runs(verbs, _run_proxy, "proxy")


def _service(services: Any, name: str, text: str) -> Any:
    service = services.add_parser(name, help=text, description=text)
    service.set_defaults(parser=service)
    return service.add_subparsers(title="commands", metavar="COMMAND")


def _verb(verbs: Any, name: str, run: Any, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
    parser.add_argument("--json", action="store_true", help="print JSON objects, one a line")
    parser.set_defaults(run=run, parser=parser)
    return parser


def _runs(verbs: Any, run: Any, name: str) -> None:
    parser = _verb(verbs, "run", run, f"run the {name} until SIGTERM or Ctrl-C")
    file = f"{name}.toml"
    parser.add_argument("-c", "--config", type=Path, default=Path(file), metavar="FILE", help=f"its file ({file} here)")
    running.add_source(parser)


def _init_server(arguments: argparse.Namespace, context: Context) -> Report:
    out: Path = arguments.out
    check_place(out)
    _, secret = open_keyring(context, arguments)  # It opens the keyring, or the server could not use it.
    keys = ServerKeys.draw(context.entropy)
    write_server_keys(out, keys, secret, cost=context.cost, entropy=context.entropy)
    line = spell_public(keys.public())
    return Report({"keys": str(out), "server_key": line}, [f"wrote {out}; tell everybody:", f'server_key = "{line}"'])


def _init_proxy(arguments: argparse.Namespace, context: Context) -> Report:
    out: Path = arguments.out
    check_place(out)
    write_mask(out, Scalar.draw(context.entropy))
    return Report({"mask": str(out)}, [f"wrote {out}; the server's operator must not have it"])


def _run_server(arguments: argparse.Namespace, context: Context) -> Report:
    config = running.set_up(arguments.config, load_server)
    with compose_server(config, running.passphrase_of(arguments, config, context)) as station:
        return _serve(station, arguments, context)


def _run_proxy(arguments: argparse.Namespace, context: Context) -> Report:
    config = running.set_up(arguments.config, load_proxy)
    with compose_proxy(config, running.passphrase_of(arguments, config, context)) as station:
        return _serve(station, arguments, context)


def _serve(station: Station[StationOwner], arguments: argparse.Namespace, context: Context) -> Report:
    return running.run(station, context, as_json=arguments.json, left="its disk keeps what has not gone out")
