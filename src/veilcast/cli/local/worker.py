"""One worker of a local network: `python -m veilcast.cli.local.worker DIR NUMBER OF` serves every OF-th node of DIR, or
with --only some hosts that were added later.

`workers` starts it. It ends on SIGTERM, after its nodes have finished; at once on a second SIGTERM, when its lifeline
ends, or when its directory has been removed, because then nothing could find it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from veilcast.authority.secret_file import read_private_file
from veilcast.cli import exits
from veilcast.cli.compose import compose
from veilcast.cli.local.network import LocalNetwork, node_file, read_network, tap_directory
from veilcast.cli.local.workers import register_worker
from veilcast.crypto.secret import Secret
from veilcast.errors import VeilcastError
from veilcast.net import log
from veilcast.net.service import NodeSetup, ServiceSetup, Watchdog, serve_until
from veilcast.node.config import load_config

if TYPE_CHECKING:
    from veilcast.net.tor import Tor


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="veilcast.cli.local.worker")
    parser.add_argument("directory", type=Path)
    parser.add_argument("number", type=int)
    parser.add_argument("workers", type=int)
    parser.add_argument("--lifeline", action="store_true", help="end when the standard input does")
    parser.add_argument("--only", action="append", metavar="HOST", help="serve this host, and nothing else")
    arguments = parser.parse_args(argv)
    log.set_up(level="warning")
    directory, worker = arguments.directory, arguments.number
    try:
        register_worker(directory, worker)
        with contextlib.ExitStack() as parts:
            network = read_network(directory)
            plan = network.plan
            tor = plan.local.open_worker(directory, network, worker, parts)
            served: list[_ServedProcess] = []
            for number in () if arguments.only else range(worker, plan.nodes, arguments.workers):
                own = parts.enter_context(contextlib.ExitStack())
                served.append(_ServedProcess(_compose_node(directory, network, number, own, tor), own))
            running = [host for host in plan.hosts if host not in plan.spare_hosts]
            for host in arguments.only or running[worker :: arguments.workers]:
                own = parts.enter_context(contextlib.ExitStack())
                setup = own.enter_context(plan.local.compose_host(directory, network, host, tor))
                served.append(_ServedProcess(setup, own))
            watch = None if tor is None else tor.watch
            asyncio.run(_serve(served, directory, watch, lifeline=arguments.lifeline))
    except VeilcastError as error:
        sys.stderr.write(f"veilcast: {error}\n")
        return exits.code_of(error)[0]
    return exits.OK


class _ServedProcess(NamedTuple):
    """A node or host, and its open files."""

    setup: ServiceSetup[Any]
    own: contextlib.ExitStack


def _compose_node(
    directory: Path, network: LocalNetwork, number: int, parts: contextlib.ExitStack, tor: Tor | None
) -> NodeSetup:
    config = load_config(node_file(directory, number))
    assert config.passphrase_file is not None
    secret = Secret(read_private_file(Path(config.passphrase_file)))
    around = None
    if network.plan.tap:
        from veilcast.cli.tap import open_tap

        around = parts.enter_context(open_tap(tap_directory(directory, number), network.plan.profile))
    return parts.enter_context(compose(config, secret, around, contextlib.nullcontext(tor)))


async def _serve_one(served: _ServedProcess, stop: asyncio.Event, hurry: asyncio.Event) -> bool:
    """Serve one node or host until it is stopped, and close its files: a person may start it again by hand."""
    with served.own:
        # One watch is enough for all.
        return await serve_until(dataclasses.replace(served.setup, watch=None), stop, hurry)


async def _serve(
    services: list[_ServedProcess], directory: Path, watch: Watchdog | None = None, *, lifeline: bool
) -> None:
    """Serve all nodes until stopped. A client may stop one of them; if one fails, or the watchdog does, all of them
    end."""
    stops, hurry = [asyncio.Event() for _ in services], asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop_all() -> None:
        if all(stop.is_set() for stop in stops):
            hurry.set()
        for stop in stops:
            stop.set()

    def on_lifeline() -> None:
        if not os.read(sys.stdin.fileno(), 1):
            loop.remove_reader(sys.stdin)
            end()

    def end() -> None:
        hurry.set()
        stop_all()

    def look() -> None:
        if directory.is_dir():
            loop.call_later(_LOOK_S, look)
        else:
            end()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_all)
    if lifeline:
        loop.add_reader(sys.stdin, on_lifeline)
    look()
    nodes = [asyncio.create_task(_serve_one(served, stop, hurry)) for served, stop in zip(services, stops, strict=True)]
    serving = asyncio.create_task(_until_over(nodes))
    watching = [] if watch is None else [asyncio.create_task(watch())]
    await asyncio.wait([serving, *watching], return_when=asyncio.FIRST_COMPLETED)
    end()
    await asyncio.wait(nodes)
    for task in (*watching, *nodes):
        if task.done():
            task.result()
        task.cancel()


async def _until_over(nodes: list[asyncio.Task[bool]]) -> None:
    await asyncio.wait(nodes, return_when=asyncio.FIRST_EXCEPTION)


_LOOK_S: Final = 2.0

if __name__ == "__main__":
    sys.exit(main())
