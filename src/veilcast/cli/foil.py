"""`veilcast foil publish` and `subscribe`: a member's whole life at a broker in one command.

`publish` and `subscribe` are `node run` and its client in one process: the same file, keyring, disk and machine. So an
accepted publication is on the disk before the next line is read, and what Ctrl-C leaves there is sent next time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import csv
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from veilcast.cli import service_run
from veilcast.cli.compose import compose
from veilcast.cli.context import Context, Report
from veilcast.cli.input_checks import check_range, parse_value
from veilcast.cli.running_node import config_path
from veilcast.cli.sub import COUNT_MAX, as_json, as_line, parse_interest
from veilcast.errors import ConfigError, StorageError, UnreachableError
from veilcast.machine import Publication
from veilcast.net import log
from veilcast.net.client import Client, Subscription, connect
from veilcast.net.service import serve
from veilcast.node.config import NodeConfig, load_config
from veilcast.node.foil import FoilSettings
from veilcast.topics import Label
from veilcast.topics.predicates import number_or_text


def publish(arguments: argparse.Namespace, context: Context) -> Report:
    check_range("--linger", arguments.linger, 0, _LINGER_MAX_S)
    label, count = Label(arguments.topic), 0
    if arguments.csv is not None:
        if arguments.message is not None or arguments.value:
            raise ConfigError("--csv says all that is published; leave -m and --value away")
        events = _lines(arguments.csv, label, context)
    else:
        if arguments.message is None and not arguments.value:
            raise ConfigError("name what is published: -m TEXT, --value NAME=VALUE, or --csv FILE")
        pairs = (label.pair, *map(parse_value, arguments.value))
        events = _one(Publication(pairs, (arguments.message or "").encode()))

    async def work(me: Client) -> None:
        nonlocal count
        async for event in events:
            if count % AT_ONCE == 0:
                await _wait_for_room(me)
            await me.publish(event)
            count += 1
        await asyncio.sleep(arguments.linger)

    drained = _run_node(arguments, context, work, linger_s=arguments.linger)
    rest = "all of it has gone out" if drained else "the outbox keeps what has not gone out"
    return Report({"published": count, "drained": drained}, [f"published {count:,}; {rest}"])


def subscribe(arguments: argparse.Namespace, context: Context) -> Report:
    if arguments.count is not None:
        check_range("--count", arguments.count, 1, COUNT_MAX)
    interest = parse_interest(arguments)
    show = as_json if arguments.json else as_line

    async def work(me: Client) -> None:
        subscription, number = me.subscribe(interest, keep=arguments.keep), 0
        await subscription.start()
        standing = asyncio.create_task(_say_when_it_stands(subscription, context))
        try:
            async for note in subscription:
                context.say(show(note))
                await subscription.acknowledge()
                number += 1
                if number == arguments.count:
                    break
        finally:
            standing.cancel()

    _run_node(arguments, context, work)
    return Report(None)


def with_linger(config: NodeConfig, seconds: int) -> NodeConfig:
    """Return the settings of a member that repeats its events to new subscribers for this many seconds."""
    settings: FoilSettings = config.settings
    late_us = max(settings.member.late_us, seconds * 1_000_000)
    member = msgspec.structs.replace(settings.member, late_us=late_us)
    return msgspec.structs.replace(config, settings=msgspec.structs.replace(settings, member=member))


def _run_node(
    arguments: argparse.Namespace, context: Context, work: Callable[[Client], Awaitable[None]], linger_s: int = 0
) -> bool:
    """Run the node, do the work as its client, and stop; or stop when asked. Returns True if everything was sent."""
    path = config_path(arguments)
    config = load_config(path)
    log.set_up(config.log.format, "warning")  # The output of one command must not be mixed with a log.
    if config.mode != "foil":
        raise ConfigError(f'{path}: its mode is {config.mode!r}; this command is for mode = "foil"')
    config = with_linger(config, linger_s)
    secret = service_run.process_passphrase(arguments, config, context)

    async def act() -> None:
        async with connect(path) as me:
            saying = asyncio.create_task(_say_what_hinders(me, context))
            try:
                await work(me)
            except BaseException:
                saying.cancel()
                raise
            finally:
                with contextlib.suppress(UnreachableError):
                    await me.stop()
            await saying  # The node finishes its work meanwhile, and reasons for delay are still printed.

    async def live() -> bool:
        with compose(config, secret) as service:
            acting: list[asyncio.Task[None]] = []
            drained = await serve(service, lambda _: acting.append(asyncio.create_task(act())))
        for task in acting:
            task.cancel()
            # A signal has stopped the node.
            with contextlib.suppress(UnreachableError, asyncio.CancelledError):
                await task
        return drained

    return asyncio.run(live())


async def _wait_for_room(me: Client) -> None:
    """Wait while the node has more unsent publications than `AT_ONCE`, because it would refuse more."""
    while (await me.status()).outbox > AT_ONCE:
        await asyncio.sleep(_LOOK_S)


async def _say_when_it_stands(subscription: Subscription, context: Context) -> None:
    with contextlib.suppress(UnreachableError):  # The node has ended before.
        await subscription.ready()
        context.warn("subscribed; the broker delivers what is published from now on")


async def _say_what_hinders(me: Client, context: Context) -> None:
    """Print each reason once why the command waits, until the node has stopped."""
    printed = set[str]()
    with contextlib.suppress(UnreachableError):
        while len(printed) < _REASONS_MAX:
            await asyncio.sleep(_HINDERED_S)
            for hindrance in set((await me.status()).hindrances) - printed:
                printed.add(hindrance)
                context.warn(f"the node goes on trying, but {hindrance}")


async def _one(event: Publication) -> AsyncIterator[Publication]:
    yield event


async def _lines(name: str, label: Label, context: Context) -> AsyncIterator[Publication]:
    """Yield one publication for each line, as the lines come."""
    with contextlib.ExitStack() as parts:
        lines: Iterable[str]
        if name == "-":
            lines = context.read_lines()
        else:
            try:
                lines = parts.enter_context(Path(name).open(encoding="utf-8", newline=""))
            except OSError as error:
                raise StorageError(f"--csv: cannot read {name}: {error.strerror}") from error
        async for row in _as_they_come(csv.DictReader(lines, strict=True)):
            yield _event(row, label)


def _event(row: dict[str | Any, Any], label: Label) -> Publication:
    if None in row or None in row.values():
        raise ConfigError(f"--csv: a line has not as many fields as the first one: {list(row.values())}")
    body = row.pop(BODY, "")
    for name, text in row.items():
        if "_" in text and not isinstance(number_or_text(text.replace("_", "")), str):
            raise ConfigError(f"--csv: {text!r} in the column {name!r}: write numbers with digits alone")
    return Publication(
        (label.pair, *((name, number_or_text(text)) for name, text in row.items() if text)), body.encode()
    )


async def _as_they_come(rows: Iterator[dict[str | Any, Any]]) -> AsyncIterator[dict[str | Any, Any]]:
    """Read in a thread that is not awaited: a person who types ends by Ctrl-C, not by one more line."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[dict[str | Any, Any] | Exception | None] = asyncio.Queue()
    room = threading.Semaphore(AT_ONCE)

    def put(what: dict[str | Any, Any] | Exception | None) -> None:
        room.acquire()
        loop.call_soon_threadsafe(queue.put_nowait, what)

    def read() -> None:
        with contextlib.suppress(RuntimeError):  # The loop has ended.
            try:
                for row in rows:
                    put(row)
            except (csv.Error, UnicodeDecodeError) as error:
                put(ConfigError(f"--csv: {error}"))
            put(None)

    threading.Thread(target=read, daemon=True).start()
    while (found := await queue.get()) is not None:
        room.release()
        if isinstance(found, Exception):
            raise found
        yield found


BODY: Final = "body"
AT_ONCE: Final = 64
"""Publications that may be under way."""
_LOOK_S: Final = 0.05
_HINDERED_S: Final = 2.0
"""Seconds; before that, the node may just be slow."""
_REASONS_MAX: Final = 8
_LINGER_MAX_S: Final = 86_400
