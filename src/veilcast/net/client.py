"""`veilcast.connect`: a client of the running node.

    async with veilcast.connect("node.toml") as me:
        await me.publish("weather/munich", "sunny", temp=21.5)
        async for note in me.subscribe(Range("temp", 20, 25)):
            ...

`publish` returns when the publication is on the node's disk. A note is acknowledged when the next one is asked for, so
whatever the loop's body did for it was done; until then it comes again, to this client or to the next one that wants
the same. A node that goes away is an `UnreachableError`: nothing connects again behind the caller's back.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from veilcast.errors import LocalError, MalformedError, PermissionsError, UnreachableError, VeilcastError
from veilcast.machine import Note, Publication, Value
from veilcast.net import protocol
from veilcast.net.agent import Peer, Status
from veilcast.net.protocol import Answer, Request
from veilcast.net.socketpath import control_path
from veilcast.topics import Conjunction, Label

Kind = TypeVar("Kind", bound=Answer)


@contextlib.asynccontextmanager
async def connect(config: str | os.PathLike[str]) -> AsyncIterator[Client]:
    """A client of the node that runs with this configuration file."""
    client = await open_client(config)
    try:
        yield client
    finally:
        await client.close()


async def open_client(config: str | os.PathLike[str]) -> Client:
    path = control_path(Path(config))
    try:
        if path.stat().st_uid != os.geteuid():
            raise PermissionsError(f"the node at {path} is another user's")
        reader, writer = await asyncio.open_unix_connection(path)
    except OSError as error:
        raise UnreachableError(
            f"no node answers at {path} ({error.strerror}); start it: veilcast node run -c {config}"
        ) from error
    client = Client(reader, writer)
    try:
        await client.greet()
    except BaseException:
        await client.close()
        raise
    return client


class Client:
    """Publishes and subscribes through a running node. Made by `connect`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._asked = 0
        self._answers: dict[int, asyncio.Future[Answer]] = {}
        self._notes: dict[int, asyncio.Queue[Note | VeilcastError]] = {}
        self._subscriptions: list[Subscription] = []
        self._lost: VeilcastError | None = None
        self._listener: asyncio.Task[None] | None = None

    async def publish(self, what: str | Label | Publication, body: bytes | str = b"", **values: Value) -> None:
        """Publish on a topic, with values of its attributes; returns when it is on the disk of the node."""
        await self._ask(protocol.Publish(publication(what, body, **values)), protocol.Done)

    def subscribe(self, interest: str | Conjunction, *, keep: bool = False) -> Subscription:
        """The notes that match; a string is a topic's name. With `keep` the node goes on collecting them when this
        client has gone, and the next one that subscribes to the same gets them."""
        subscription = Subscription(self, Label(interest) if isinstance(interest, str) else interest, keep)
        self._subscriptions.append(subscription)
        return subscription

    async def status(self) -> Status:
        return (await self._ask(protocol.AskStatus(), protocol.StatusIs)).status

    async def peers(self) -> list[Peer]:
        return (await self._ask(protocol.AskPeers(), protocol.PeersAre)).peers

    async def stop(self) -> None:
        """Ask the node to finish what it has begun, and to end."""
        await self._ask(protocol.Stop(), protocol.Done)

    async def close(self) -> None:
        """End the subscriptions that are not to be kept, and leave."""
        with contextlib.suppress(VeilcastError, TimeoutError):
            async with asyncio.timeout(_LEAVE_S):
                for subscription in list(self._subscriptions):
                    await subscription.close()
        self._lose(LocalError("this client is closed"))
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.wait([self._listener])
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def greet(self) -> None:
        """Hear the node's first word, then listen to it."""
        try:
            async with asyncio.timeout(_GREET_S):
                _, first = await protocol.read_answer(self._reader)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, MalformedError) as error:
            raise UnreachableError(
                "what listens at the control socket is no node of ours; -c names a member's file, not a host's"
            ) from error
        if isinstance(first, protocol.Refused):
            raise first.error()
        if first != protocol.Welcome(protocol.VERSION):
            raise UnreachableError("the node runs another version of veilcast; restart it")
        self._listener = asyncio.create_task(self._listen())

    async def _ask(self, request: Request, kind: type[Kind]) -> Kind:
        if self._lost is not None:
            raise self._lost
        self._asked += 1
        number, future = self._asked, asyncio.get_running_loop().create_future()
        message = protocol.encode_request(number, request)
        self._answers[number] = future
        try:
            self._writer.write(message)
            with contextlib.suppress(OSError):  # The listener says what became of the node.
                await self._writer.drain()
            answer = await future
        finally:
            self._answers.pop(number, None)
        if isinstance(answer, protocol.Refused):
            raise answer.error()
        if not isinstance(answer, kind):
            raise UnreachableError("the node answered something else than it was asked")
        return answer

    async def _listen(self) -> None:
        try:
            while True:
                number, answer = await protocol.read_answer(self._reader)
                match answer:
                    case protocol.Noted(subscription, note) if subscription in self._notes:
                        self._notes[subscription].put_nowait(note)
                    case protocol.Ended(subscription) if subscription in self._notes:
                        self._notes[subscription].put_nowait(UnreachableError("the node ended this subscription"))
                    case protocol.Subscribed(subscription):
                        # Made here, for the first note may follow before whoever asked is awake.
                        self._notes[subscription] = asyncio.Queue(protocol.WINDOW + 1)
                if number in self._answers and not self._answers[number].done():
                    self._answers[number].set_result(answer)
        except (OSError, asyncio.IncompleteReadError):
            self._lose(UnreachableError(_GONE))
        except (MalformedError, asyncio.QueueFull):
            self._lose(UnreachableError("the node sent what this client does not understand"))

    def _lose(self, error: VeilcastError) -> None:
        """From now on every call raises this."""
        if self._lost is not None:
            return
        self._lost = error
        for future in self._answers.values():
            if not future.done():
                future.set_exception(error)
        for queue in self._notes.values():
            while queue.full():
                queue.get_nowait()
            queue.put_nowait(error)


class Waiting(NamedTuple):
    """A subscription gets what is published from `until_us` on, Unix time; None if the node cannot say when."""

    until_us: int | None


class Subscription:
    """Notes as they come, for `async for`. Nothing is subscribed to before the first is asked for, or `start`."""

    def __init__(self, client: Client, interest: Conjunction, keep: bool) -> None:
        self._client, self._interest, self._keep = client, interest, keep
        self._number: int | None = None
        self._unacknowledged: Note | None = None

    async def start(self) -> None:
        if self._number is None:
            request = protocol.Subscribe(self._interest.constraints)
            self._number = (await self._client._ask(request, protocol.Subscribed)).number

    async def waiting(self) -> Waiting | None:
        """Whether it gets only what is published later, and from when on. Starts the subscription, if need be."""
        await self.start()
        assert self._number is not None
        found = (await self._client.status()).waiting
        return Waiting(found[self._number]) if self._number in found else None

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Note:
        await self.acknowledge()
        await self.start()
        assert self._number is not None
        if self._client._lost is not None:
            raise self._client._lost
        found = await self._client._notes[self._number].get()
        if isinstance(found, VeilcastError):
            raise found
        self._unacknowledged = found
        return found

    async def acknowledge(self) -> None:
        """Tell the node that the note handed out last needs not come again; asking for the next one does it too."""
        if self._unacknowledged is not None and self._number is not None:
            await self._client._ask(protocol.Acknowledge(self._number, self._unacknowledged.id), protocol.Done)
            self._unacknowledged = None

    async def close(self) -> None:
        """Unsubscribe, unless it is to be kept. What was handed out last stays unacknowledged."""
        number, self._number, self._unacknowledged = self._number, None, None
        if self in self._client._subscriptions:
            self._client._subscriptions.remove(self)
        if number is not None:
            self._client._notes.pop(number, None)
            if not self._keep:
                await self._client._ask(protocol.Unsubscribe(number), protocol.Done)


def publication(what: str | Label | Publication, body: bytes | str = b"", **values: Value) -> Publication:
    """A publication as people write it: a topic, a body, values of attributes."""
    if isinstance(what, Publication):
        if body or values:
            raise LocalError("a Publication has its body and values already")
        return what
    label = Label(what) if isinstance(what, str) else what
    return Publication((label.pair, *values.items()), body.encode() if isinstance(body, str) else body)


_GREET_S: Final = 10.0
_GONE: Final = "the node has gone away, and its log says why; start it again: what it had not confirmed may be lost"
_LEAVE_S: Final = 5.0
