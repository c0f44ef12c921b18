"""`veilcast.connect`: the asyncio client of a running node.

    async with veilcast.connect("node.toml") as me:
        await me.publish("weather/munich", "sunny", temp=21.5)
        async with me.subscribe(Range("temp", 20, 25)) as notes:
            await notes.ready(timeout_s=60)
            async for note in notes:
                ...

`publish` returns when the publication is on the node's disk. A note is acknowledged when the program asks for the next
one; until then the node delivers it again, to this client or to the next client with the same interest. If the node
stops, calls raise `UnreachableError`: a client does not reconnect by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any, Final, NoReturn, TypeVar

from veilcast.errors import LocalError, NotReadyError, UnreachableError, VeilcastError
from veilcast.machine import Note, Publication, Value
from veilcast.net import control_protocol
from veilcast.net.client_session import (
    GREET_S,
    LEAVE_S,
    NO_FIRST_WORD,
    Call,
    ClientSession,
    SubscriptionCalls,
    check_timeout,
    find_control_socket,
    make_interest,
    make_publication,
    not_ready_text,
    unreachable_error,
)
from veilcast.net.control_protocol import Peer, Status, Waiting
from veilcast.topics.interests import Conjunction, Label

T = TypeVar("T")


def connect(config: str | os.PathLike[str]) -> Connection:
    """Connect to the node that runs with this configuration file: `async with connect("node.toml") as me`.

    `me` is a `Client`. Entering the block raises `UnreachableError` if no node answers, `StorageError` or `ConfigError`
    if the file cannot be read, and `PermissionsError` if the node belongs to another user. Leaving it closes the
    client.
    """
    return Connection(config)


class Connection(contextlib.AbstractAsyncContextManager["Client"]):
    """The context manager that `connect` returns: opens a `Client` and closes it."""

    def __init__(self, config: str | os.PathLike[str]) -> None:
        self._config = config
        self._client: Client | None = None

    async def __aenter__(self) -> Client:
        if self._client is not None:
            raise LocalError("this connection was entered before; call connect(...) again")
        self._client = await open_client(self._config)
        return self._client

    async def __aexit__(self, *_: object) -> None:
        assert self._client is not None
        await self._client.close()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise LocalError(
            f"{name}: not connected yet; write `async with veilcast.connect(...) as me:` and use `me.{name}`"
        )


async def open_client(config: str | os.PathLike[str]) -> Client:
    """Open the client of `connect`, for a caller that closes it with `Client.close`."""
    path = find_control_socket(config)
    try:
        reader, writer = await asyncio.open_unix_connection(path)
    except OSError as error:
        raise unreachable_error(path, config, error) from error
    client = Client(reader, writer)
    try:
        async with asyncio.timeout(GREET_S):
            await client._run(client._session.greet())
    except BaseException as error:
        await client.close()
        if isinstance(error, TimeoutError):
            raise UnreachableError(NO_FIRST_WORD) from error
        raise
    return client


class Client:
    """Publishes and subscribes through a running node. `connect` makes it. Several tasks may share one client.

    Every method raises `UnreachableError` if the node has stopped, and the node's refusal as the error that it is.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._session = ClientSession()
        self._news = asyncio.Event()
        """Set and replaced when something has arrived or the session has ended."""
        self._listener = asyncio.create_task(self._listen())

    async def publish(self, what: str | Label | Publication, body: bytes | str = b"", **values: Value) -> None:
        """Publish on a topic, with values of its attributes; returns when the publication is on the node's disk.

        `what` is a topic or a whole `Publication`. A body is bytes, or a string, which is sent as UTF-8. A publication
        has at most 32,768 bytes with all of its values. Raises `UnknownTopicError` if the node has no grant for the
        topic, and `LocalError` for arguments of another type, values that do not fit, or an outbox that is full.
        """
        await self._run(
            self._session.ask(
                control_protocol.PublishRequest(make_publication(what, body, values)), control_protocol.DoneAnswer
            )
        )

    def subscribe(self, interest: str | Conjunction, *, keep: bool = False) -> Subscription:
        """Subscribe to an interest; a string is the name of a topic.

        The request goes to the node at once. The first awaited method of the subscription raises a refusal of the node.
        Notes arrive once the subscription is ready: see `Subscription.ready`.

        Without `keep` the subscription ends with `close`, with the client, or a minute after the client was cut off.
        With `keep` the node goes on collecting notes after the client has left, and the next client with the same
        interest receives them. Raises `LocalError` for an interest of another type.
        """
        calls = self._session.subscribe(make_interest(interest), keep=bool(keep))
        self._flush()
        return Subscription(self, calls)

    async def status(self) -> Status:
        """Return the state of the node, and how well its member is hidden."""
        return (
            await self._run(self._session.ask(control_protocol.StatusRequest(), control_protocol.StatusAnswer))
        ).status

    async def peers(self) -> list[Peer]:
        """Return the node's neighbours. This list is for the node's owner, not for a log."""
        return (await self._run(self._session.ask(control_protocol.PeersRequest(), control_protocol.PeersAnswer))).peers

    async def reload(self) -> tuple[bool, tuple[str, ...]]:
        """Let the node take new keys from its disk. Returns whether there were any, and what could not be taken."""
        answer = await self._run(self._session.ask(control_protocol.ReloadRequest(), control_protocol.ReloadedAnswer))
        return answer.changed, answer.problems

    async def stop(self) -> None:
        """Ask the node to finish its work and to stop. Returns when the node has received the request."""
        await self._run(self._session.ask(control_protocol.StopRequest(), control_protocol.DoneAnswer))

    async def close(self) -> None:
        """End the subscriptions that are not to be kept, and disconnect; takes at most half a minute."""
        with contextlib.suppress(VeilcastError, TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await self._run(self._session.close())
        self._lose(LocalError("this client is closed"))
        self._listener.cancel()
        await asyncio.wait([self._listener])
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _run(self, call: Call[T]) -> T:
        with contextlib.closing(call):
            while True:
                news = self._news
                try:
                    next(call)
                except StopIteration as end:
                    found: T = end.value
                    return found
                self._flush()
                with contextlib.suppress(OSError):  # The listener reports the end of the node.
                    await self._writer.drain()
                await news.wait()

    def _flush(self) -> None:
        (messages, _), self._session.outgoing = self._session.outgoing, ([], [])
        if messages:
            self._writer.write(b"".join(messages))

    async def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while data := await self._reader.read(_CHUNK):
                self._session.incoming.append(data)
                self._session.act_on_incoming()
                self._flush()
                self._wake()
        self._session.fail_disconnected()
        self._wake()

    def _lose(self, error: VeilcastError) -> None:
        self._session.fail(error)
        self._wake()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


class Subscription:
    """The notes of one subscription: `async for note in subscription`, or `async with ... as notes`, which ends it.

    A note is acknowledged when the program asks for the next one or calls `acknowledge`. The node delivers an
    unacknowledged note again, to the next client with the same interest.
    """

    def __init__(self, client: Client, calls: SubscriptionCalls) -> None:
        self._client, self._calls = client, calls

    async def start(self) -> None:
        """Return when the subscription is on the node's disk. Raises the node's refusal, for example
        `UnknownTopicError`."""
        await self._client._run(self._calls.start())

    async def ready(self, timeout_s: float | None = None) -> None:
        """Return when this subscription receives what is published from now on, as far as the node knows.

        Raises `NotReadyError`, which is also a `TimeoutError`, after `timeout_s` seconds; the subscription stays.
        """
        limit = check_timeout(timeout_s)
        try:
            async with asyncio.timeout(limit):
                await self._client._run(self._calls.ready())
        except TimeoutError:
            raise NotReadyError(not_ready_text(limit)) from None

    async def waiting(self) -> Waiting | None:
        """Return None if the subscription is ready, otherwise the time from which notes arrive."""
        return await self._client._run(self._calls.waiting())

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Note:
        """Acknowledge the last note, and wait for the next one."""
        note = await self._client._run(self._calls.next_note())
        self._calls.handed_out = note
        return note

    async def acknowledge(self) -> None:
        """Tell the node not to deliver the last note again. Asking for the next note does the same."""
        await self._client._run(self._calls.acknowledge())

    async def close(self) -> None:
        """Unsubscribe, unless the subscription is to be kept. The last note stays unacknowledged."""
        await self._client._run(self._calls.close())

    async def __aenter__(self) -> Subscription:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        with contextlib.suppress(UnreachableError):  # Without a node, nothing is left to end.
            await self.close()

    def __iter__(self) -> Any:
        raise LocalError("write `async for`; `connect_sync` gives a client for plain `for`")


_CHUNK: Final = 1 << 16
