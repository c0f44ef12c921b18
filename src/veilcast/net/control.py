"""The control socket of a node: serves local clients. Only the node's owner can open the socket (`private_socket`).

A client costs bounded memory: one request at a time, at most `WINDOW` unacknowledged notes for each subscription, and
no more in the buffer than the transport's high-water mark and one message. A client that does not read simply waits.
The node refuses a request that it cannot decode. Bytes that are no message at all end that client. Other clients are
not affected.

A temporary subscription (`NodeService.temporary`) ends with its last client. A client that leaves in an orderly way
unsubscribes. If the connection ends without that, the client may have crashed and may be restarted, so the node keeps
the subscription and its notes for `GRACE_S` seconds. The same holds after a restart of the node itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from veilcast.errors import FullError, LocalError, MalformedError, VeilcastError
from veilcast.net import control_protocol
from veilcast.net.control_protocol import Answer, Request
from veilcast.net.private_socket import PrivateSocket
from veilcast.topics import All, Conjunction

if TYPE_CHECKING:
    from veilcast.net.node_service import NodeService


class ControlServer:
    """Serves one node to the clients of one socket, until closed. `on_stop` is called when a client asks the node to
    stop."""

    def __init__(
        self,
        path: Path,
        node: NodeService,
        on_stop: Callable[[], object],
        clients_max: int,
        grace_s: float | None = None,
    ) -> None:
        self._grace_s = GRACE_S if grace_s is None else grace_s
        self._ending: dict[int, asyncio.TimerHandle] = {}
        """Timers of the temporary subscriptions that have no client."""
        self._ends: set[asyncio.Task[None]] = set()
        self._socket = PrivateSocket(path, self._serve, _BUFFER)
        self._node = node
        self._on_stop = on_stop
        self._clients_max = clients_max
        self._clients: set[_Client] = set()
        self._changing = asyncio.Lock()
        """Held while subscriptions change: a subscription without clients must not end while a new client is taking
        it."""
        self.malformed = 0
        """Clients and requests that were refused because they could not be decoded."""

    @property
    def clients(self) -> int:
        return len(self._clients)

    async def open(self) -> None:
        await self._socket.open()
        for number in self._node.temporary():
            self._end_later(number)

    async def close(self) -> None:
        """Close the socket. Subscriptions stay: only their clients, which are still connected, could end them."""
        await self._socket.close()
        for timer in self._ending.values():
            timer.cancel()
        self._ending.clear()
        for task in self._ends:
            task.cancel()  # After a failed write nothing reaches the disk; the mark there ends it in the next life.
        if self._ends:
            await asyncio.wait(self._ends)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = _Client(self, self._node, reader, writer)
        try:
            if len(self._clients) >= self._clients_max:
                client.say(
                    0,
                    control_protocol.RefusedAnswer.of(
                        LocalError(f"the node serves {self._clients_max} clients already")
                    ),
                )
                return
            self._clients.add(client)
            await client.serve()
        except MalformedError:
            self.malformed += 1
            client.say(
                0,
                control_protocol.RefusedAnswer.of(
                    LocalError("the node received bytes that are no message, and ends the connection")
                ),
            )
            _LOG.warning("a client of the control socket sent bytes that are no message; closed")
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # It has gone, or we go.
        finally:
            self._clients.discard(client)
            left = list(client.subscriptions)
            await client.close()
            for number in left:
                self._end_later(number)

    def _end_later(self, number: int) -> None:
        """End a temporary subscription without clients after the grace period, unless a client takes it up."""
        if number in self._node.temporary() and not self._is_followed(number) and number not in self._ending:
            loop = asyncio.get_running_loop()
            self._ending[number] = loop.call_later(self._grace_s, self._end_now, number)

    def _end_now(self, number: int) -> None:
        task = asyncio.get_running_loop().create_task(self._end(number))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def _end(self, number: int) -> None:
        async with self._changing:
            await self._end_left(number)

    async def _end_left(self, number: int) -> None:
        if (timer := self._ending.pop(number, None)) is not None:
            timer.cancel()
        if number in self._node.temporary() and not self._is_followed(number):
            await self._node.unsubscribe(number)
            _LOG.info("a subscription ended: its client is gone, and did not ask to keep it")

    async def _subscribe(self, interest: Conjunction, keep: bool) -> int:
        """Subscribe. If the limit is reached, first end the oldest subscription that a dead client left: living clients
        go first."""
        while True:
            try:
                return await self._node.subscribe(interest, keep=keep)
            except FullError:
                if not self._ending:
                    raise
                await self._end_left(next(iter(self._ending)))

    def _is_followed(self, number: int) -> bool:
        return any(number in client.subscriptions for client in self._clients)

    async def perform(self, client: _Client, request: Request | control_protocol.UnreadableRequest) -> Answer:
        """Execute one request of a client."""
        node = self._node
        match request:
            case control_protocol.UnreadableRequest(reason):
                self.malformed += 1
                raise LocalError(f"the node cannot read this request: {reason}")
            case control_protocol.PublishRequest(publication):
                await node.publish(publication)
            case control_protocol.SubscribeRequest(constraints, keep):
                interest = All(*constraints)
                if len(client.subscriptions) >= SUBSCRIPTIONS_MAX:
                    raise LocalError(f"a client may have {SUBSCRIPTIONS_MAX} subscriptions")
                async with self._changing:
                    number = await self._subscribe(interest, keep)
                    client.follow(number, keep)
                    if number in self._ending:
                        self._ending.pop(number).cancel()
                return control_protocol.SubscribedAnswer(number)
            case control_protocol.UnsubscribeRequest(number):
                async with self._changing:
                    if not client.leave(number) and not self._is_followed(number):
                        await node.unsubscribe(number)
            case control_protocol.AcknowledgeRequest(number, note):
                await client.acknowledge(number, note)
            case control_protocol.StatusRequest():
                return control_protocol.StatusAnswer(node.status())
            case control_protocol.PeersRequest():
                return control_protocol.PeersAnswer(node.peers())
            case control_protocol.StopRequest():
                self._on_stop()
            case control_protocol.ReloadRequest():
                return control_protocol.ReloadedAnswer(*await node.reload())
        return control_protocol.DoneAnswer()


class _Following:
    """One client's share of one subscription: the tasks that send its notes and its readiness, and the unacknowledged
    notes."""

    __slots__ = ("keep", "out", "room", "tasks")

    def __init__(self, keep: bool) -> None:
        self.keep = keep
        """True if this client asked to keep the subscription. Such a client leaves the subscription without ending
        it."""
        self.room = asyncio.Semaphore(control_protocol.WINDOW)
        self.out: set[bytes] = set()
        self.tasks: list[asyncio.Task[None]] = []


class _Client:
    def __init__(
        self, server: ControlServer, node: NodeService, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server, self._node = server, node
        self._reader, self._writer = reader, writer
        self.subscriptions: dict[int, _Following] = {}

    async def serve(self) -> None:
        self.say(0, control_protocol.Welcome(control_protocol.VERSION))
        while True:
            number, request = await control_protocol.read_request(self._reader)
            try:
                answer = await self._server.perform(self, request)
            except VeilcastError as error:
                answer = control_protocol.RefusedAnswer.of(error)
            except Exception:
                _LOG.exception("a request of a client failed")
                answer = control_protocol.RefusedAnswer.of(
                    VeilcastError("the node failed to do this; its log has the cause")
                )
            self.say(number, answer)
            await self._writer.drain()

    def say(self, number: int, answer: Answer) -> None:
        self._writer.write(control_protocol.encode_answer(number, answer))

    async def close(self) -> None:
        """Send the last messages if the client reads them within `LAST_WORD_S`, then disconnect."""
        for number in list(self.subscriptions):
            self.leave(number)
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError, asyncio.CancelledError):
            async with asyncio.timeout(LAST_WORD_S):
                await self._writer.wait_closed()
        self._writer.transport.abort()

    def follow(self, number: int, keep: bool) -> None:
        if number in self.subscriptions:
            raise LocalError("this client has that subscription already")
        following = self.subscriptions[number] = _Following(keep)
        for work in (self._send_readiness(number), self._send_notes(number, following)):
            following.tasks.append(asyncio.create_task(work))

    def leave(self, number: int) -> bool:
        """Send nothing more for this subscription. Returns True if this client asked to keep it."""
        following = self._of(number)
        del self.subscriptions[number]
        for task in following.tasks:
            task.cancel()
        return following.keep

    async def acknowledge(self, number: int, note: bytes) -> None:
        following = self._of(number)
        await self._node.acknowledge(number, note)
        if note in following.out:
            following.out.remove(note)
            following.room.release()

    def _of(self, number: int) -> _Following:
        if number not in self.subscriptions:
            raise LocalError("this client has no subscription of that number")
        return self.subscriptions[number]

    async def _send_readiness(self, number: int) -> None:
        try:
            async with contextlib.aclosing(self._node.readiness(number)) as changes:
                async for waiting in changes:
                    until_us = None if waiting is None else waiting.until_us
                    self.say(0, control_protocol.Readiness(number, waiting is None, until_us))
                    await self._writer.drain()
        except ConnectionError:
            pass  # The client has gone; `serve` sees it too.
        except Exception:
            _LOG.exception("the readiness of a subscription could not be sent")
            self._writer.close()

    async def _send_notes(self, number: int, following: _Following) -> None:
        try:
            async with contextlib.aclosing(self._node.notes(number)) as notes:
                await following.room.acquire()
                async for note in notes:
                    following.out.add(note.id)
                    self.say(0, control_protocol.NoteArrived(number, note))
                    await self._writer.drain()
                    await following.room.acquire()
            self.say(0, control_protocol.SubscriptionEnded(number))
        except ConnectionError:
            pass  # The client has gone; `serve` sees it too.
        except Exception:
            _LOG.exception("the notes of a subscription could not be sent")
            self._writer.close()


SUBSCRIPTIONS_MAX: Final = 64
GRACE_S: Final = 60.0
"""Seconds that a temporary subscription waits for a client to return; enough for a supervisor's restart."""
LAST_WORD_S: Final = 1.0
_BUFFER: Final = 1 << 16
_LOG: Final = logging.getLogger("veilcast.control")
