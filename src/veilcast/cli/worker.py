"""One worker of a local network: `python -m veilcast.cli.worker DIR NUMBER OF` serves every OF-th node of DIR.

Started by `crew`. It ends on SIGTERM, letting its nodes finish; at once on a second one, when its lifeline ends, or
when somebody has removed its directory, since nothing could find it there any more.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

from veilcast.authority.vault import read_private
from veilcast.cli import crew, exits
from veilcast.cli.compose import compose
from veilcast.cli.localnet import Net, node_file, read_net, tap_directory
from veilcast.cli.localrelay import HOSTS, composed
from veilcast.cli.tap import tapped
from veilcast.crypto.secret import Secret
from veilcast.errors import VeilcastError
from veilcast.net import log
from veilcast.net.service import Service, Station, attend
from veilcast.node import config as node_config


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="veilcast.cli.worker")
    parser.add_argument("directory", type=Path)
    parser.add_argument("number", type=int)
    parser.add_argument("workers", type=int)
    parser.add_argument("--lifeline", action="store_true", help="end when the standard input does")
    arguments = parser.parse_args(argv)
    log.set_up(level="warning")
    try:
        crew.sign_on(arguments.directory, arguments.number)
        with contextlib.ExitStack() as parts:
            net = read_net(arguments.directory)
            mine = range(arguments.number, net.plan.nodes, arguments.workers)
            services: list[Station[Any]] = [_compose(arguments.directory, net, number, parts) for number in mine]
            if net.hosts:
                hosts = HOSTS[arguments.number :: arguments.workers]
                services += [parts.enter_context(composed(arguments.directory, name)) for name in hosts]
            asyncio.run(_serve(services, arguments.directory, lifeline=arguments.lifeline))
    except VeilcastError as error:
        sys.stderr.write(f"veilcast: {error}\n")
        return exits.code_of(error)[0]
    return exits.OK


def _compose(directory: Path, net: Net, number: int, parts: contextlib.ExitStack) -> Service:
    config = node_config.load(node_file(directory, number))
    assert config.passphrase_file is not None
    secret = Secret(read_private(Path(config.passphrase_file)))
    around = None
    if net.plan.tap:
        around = parts.enter_context(tapped(tap_directory(directory, number), net.plan.profile))
    return parts.enter_context(compose(config, secret, around))


async def _serve(services: list[Station[Any]], directory: Path, *, lifeline: bool) -> None:
    """All nodes until told to stop; a client may stop one of them, and when one fails, none goes on."""
    stops, hurry = [asyncio.Event() for _ in services], asyncio.Event()
    loop = asyncio.get_running_loop()

    def told() -> None:
        if all(stop.is_set() for stop in stops):
            hurry.set()
        for stop in stops:
            stop.set()

    def cut() -> None:
        if not os.read(sys.stdin.fileno(), 1):
            loop.remove_reader(sys.stdin)
            end()

    def end() -> None:
        hurry.set()
        told()

    def look() -> None:
        if directory.is_dir():
            loop.call_later(_LOOK_S, look)
        else:
            end()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told)
    if lifeline:
        loop.add_reader(sys.stdin, cut)
    look()
    nodes = [asyncio.create_task(attend(service, stop, hurry)) for service, stop in zip(services, stops, strict=True)]
    await asyncio.wait(nodes, return_when=asyncio.FIRST_EXCEPTION)
    end()
    await asyncio.wait(nodes)
    for node in nodes:
        node.result()


_LOOK_S: Final = 2.0

if __name__ == "__main__":
    sys.exit(main())
