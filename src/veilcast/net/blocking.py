"""`veilcast.connect_sync`: the client for programs without asyncio.

    with veilcast.connect_sync("node.toml") as me:
        me.publish("weather/munich", "sunny", temp=21.5)
        for note in me.subscribe("weather/munich"):
            ...

The same client on an event loop of its own, which runs only while a call waits. The node sends no more notes than the
window allows, so a program that takes its time between calls loses nothing and holds up nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from veilcast.machine import Note, Publication, Value
from veilcast.net.agent import Peer, Status
from veilcast.net.client import Client, Subscription, Waiting, open_client
from veilcast.topics import Conjunction, Label

Found = TypeVar("Found")


@contextlib.contextmanager
def connect_sync(config: str | os.PathLike[str]) -> Iterator[BlockingClient]:
    """A client of the node that runs with this configuration file. Not for use where an event loop runs."""
    with asyncio.Runner() as runner:
        calls = Calls(runner)
        client = calls.run(open_client(config))
        try:
            yield BlockingClient(calls, client)
        finally:
            calls.run(client.close())


class Calls:
    """A runner that no signal gets past. One that comes just as a call begins cancels it, and is forgotten, for
    `asyncio.Runner` counts from 0 when its handler stands. Nobody else cancels a call here, so it was interrupted."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner

    def run(self, call: Coroutine[Any, Any, Found]) -> Found:
        try:
            return self._runner.run(call)
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


class BlockingClient:
    """`Client`, one call at a time."""

    def __init__(self, calls: Calls, client: Client) -> None:
        self._calls, self._client = calls, client

    def publish(self, what: str | Label | Publication, body: bytes | str = b"", **values: Value) -> None:
        self._calls.run(self._client.publish(what, body, **values))

    def subscribe(self, interest: str | Conjunction, *, keep: bool = False) -> BlockingSubscription:
        return BlockingSubscription(self._calls, self._client.subscribe(interest, keep=keep))

    def status(self) -> Status:
        return self._calls.run(self._client.status())

    def peers(self) -> list[Peer]:
        return self._calls.run(self._client.peers())

    def stop(self) -> None:
        self._calls.run(self._client.stop())


class BlockingSubscription:
    """`Subscription`, for `for`."""

    def __init__(self, calls: Calls, subscription: Subscription) -> None:
        self._calls, self._subscription = calls, subscription

    def start(self) -> None:
        self._calls.run(self._subscription.start())

    def waiting(self) -> Waiting | None:
        return self._calls.run(self._subscription.waiting())

    def __iter__(self) -> Iterator[Note]:
        return self

    def __next__(self) -> Note:
        return self._calls.run(self._subscription.__anext__())

    def acknowledge(self) -> None:
        self._calls.run(self._subscription.acknowledge())

    def close(self) -> None:
        self._calls.run(self._subscription.close())
