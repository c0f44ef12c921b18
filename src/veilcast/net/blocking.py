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
from collections.abc import Iterator

from veilcast.machine import Note, Publication, Value
from veilcast.net.agent import Peer, Status
from veilcast.net.client import Client, Subscription, Waiting, open_client
from veilcast.topics import Conjunction, Label


@contextlib.contextmanager
def connect_sync(config: str | os.PathLike[str]) -> Iterator[BlockingClient]:
    """A client of the node that runs with this configuration file. Not for use where an event loop runs."""
    with asyncio.Runner() as runner:
        client = runner.run(open_client(config))
        try:
            yield BlockingClient(runner, client)
        finally:
            runner.run(client.close())


class BlockingClient:
    """`Client`, one call at a time."""

    def __init__(self, runner: asyncio.Runner, client: Client) -> None:
        self._runner, self._client = runner, client

    def publish(self, what: str | Label | Publication, body: bytes | str = b"", **values: Value) -> None:
        self._runner.run(self._client.publish(what, body, **values))

    def subscribe(self, interest: str | Conjunction, *, keep: bool = False) -> BlockingSubscription:
        return BlockingSubscription(self._runner, self._client.subscribe(interest, keep=keep))

    def status(self) -> Status:
        return self._runner.run(self._client.status())

    def peers(self) -> list[Peer]:
        return self._runner.run(self._client.peers())

    def stop(self) -> None:
        self._runner.run(self._client.stop())


class BlockingSubscription:
    """`Subscription`, for `for`."""

    def __init__(self, runner: asyncio.Runner, subscription: Subscription) -> None:
        self._runner, self._subscription = runner, subscription

    def start(self) -> None:
        self._runner.run(self._subscription.start())

    def waiting(self) -> Waiting | None:
        return self._runner.run(self._subscription.waiting())

    def __iter__(self) -> Iterator[Note]:
        return self

    def __next__(self) -> Note:
        return self._runner.run(self._subscription.__anext__())

    def acknowledge(self) -> None:
        self._runner.run(self._subscription.acknowledge())

    def close(self) -> None:
        self._runner.run(self._subscription.close())
