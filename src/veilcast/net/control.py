"""The node's side of the control socket: a unix socket that only the node's owner can open.

The file's permissions are the whole access control, so the socket is never there with wider ones, not even for a
moment. A file that a dead node left behind is replaced; a living node is never pushed aside.

A client costs bounded memory: one request at a time, at most `WINDOW` notes of a subscription that it has not
acknowledged, and no more in the buffer than the transport's high-water mark and one message. A client that does not
read simply waits; what is not a message ends that client and touches no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from veilcast.errors import ConfigError, LocalError, MalformedError, PermissionsError, StorageError, VeilcastError
from veilcast.net import protocol
from veilcast.net.agent import Agent
from veilcast.net.protocol import Answer, Request
from veilcast.topics import All


class ControlServer:
    """Serves an agent to the clients of one socket, until closed. `on_stop` is called when a client asks to stop."""

    def __init__(self, path: Path, agent: Agent, on_stop: Callable[[], object], clients_max: int) -> None:
        self._path = path
        self._agent = agent
        self._on_stop = on_stop
        self._clients_max = clients_max
        self._clients: dict[asyncio.Task[None], _Client] = {}
        self._server: asyncio.Server | None = None
        self._changing = asyncio.Lock()
        """Nobody ends a subscription for want of clients while another client is about to have it."""
        self._inode = 0
        self.malformed = 0
        """Clients that were shut out for what they sent."""

    @property
    def clients(self) -> int:
        return len(self._clients)

    async def open(self) -> None:
        listening = listen_alone(self._path)
        self._inode = self._path.stat().st_ino
        self._server = await asyncio.start_unix_server(self._serve, sock=listening, limit=_BUFFER)

    async def close(self) -> None:
        if self._server is None:
            return
        self._server.close()
        with contextlib.suppress(OSError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()
        for task in self._clients:
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        client = _Client(self, self._agent, reader, writer)
        try:
            if len(self._clients) >= self._clients_max:
                client.say(0, protocol.Refused.of(LocalError(f"the node serves {self._clients_max} clients already")))
                return
            self._clients[task] = client
            await client.serve()
        except MalformedError:
            self.malformed += 1
            _LOG.warning("a client of the control socket sent what is no message; closed")
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # It has gone, or we go.
        finally:
            self._clients.pop(task, None)
            await client.close()

    async def perform(self, client: _Client, request: Request) -> Answer:
        """Do what a client asks."""
        agent = self._agent
        match request:
            case protocol.Publish(publication):
                await agent.publish(publication)
            case protocol.Subscribe(constraints):
                interest = All(*constraints)
                if len(client.subscriptions) >= SUBSCRIPTIONS_MAX:
                    raise LocalError(f"a client may have {SUBSCRIPTIONS_MAX} subscriptions")
                async with self._changing:
                    number = await agent.subscribe(interest)
                    client.follow(number)
                return protocol.Subscribed(number)
            case protocol.Unsubscribe(number):
                async with self._changing:
                    client.leave(number)
                    if not any(number in other.subscriptions for other in self._clients.values()):
                        await agent.unsubscribe(number)
            case protocol.Acknowledge(number, note):
                await client.acknowledge(number, note)
            case protocol.AskStatus():
                return protocol.StatusIs(agent.status())
            case protocol.AskPeers():
                return protocol.PeersAre(agent.peers())
            case protocol.Stop():
                self._on_stop()
        return protocol.Done()


class _Following:
    """One client's share of one subscription: the task that sends its notes, and which of them are out."""

    __slots__ = ("out", "room", "task")

    def __init__(self) -> None:
        self.room = asyncio.Semaphore(protocol.WINDOW)
        self.out: set[bytes] = set()
        self.task: asyncio.Task[None] | None = None


class _Client:
    def __init__(
        self, server: ControlServer, agent: Agent, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server, self._agent = server, agent
        self._reader, self._writer = reader, writer
        self.subscriptions: dict[int, _Following] = {}

    async def serve(self) -> None:
        self.say(0, protocol.Welcome(protocol.VERSION))
        while True:
            number, request = await protocol.read_request(self._reader)
            try:
                answer = await self._server.perform(self, request)
            except VeilcastError as error:
                answer = protocol.Refused.of(error)
            except Exception:
                _LOG.exception("a request of a client failed")
                answer = protocol.Refused.of(VeilcastError("the node failed to do this; its log has the cause"))
            self.say(number, answer)
            await self._writer.drain()

    def say(self, number: int, answer: Answer) -> None:
        self._writer.write(protocol.encode_answer(number, answer))

    async def close(self) -> None:
        """Say what is still to be said, if the client takes it soon."""
        for number in list(self.subscriptions):
            self.leave(number)
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError, asyncio.CancelledError):
            async with asyncio.timeout(LAST_WORD_S):
                await self._writer.wait_closed()
        self._writer.transport.abort()

    def follow(self, number: int) -> None:
        if number in self.subscriptions:
            raise LocalError("this client has that subscription already")
        following = self.subscriptions[number] = _Following()
        following.task = asyncio.create_task(self._send_notes(number, following))

    def leave(self, number: int) -> None:
        following = self._of(number)
        del self.subscriptions[number]
        if following.task is not None:
            following.task.cancel()

    async def acknowledge(self, number: int, note: bytes) -> None:
        following = self._of(number)
        await self._agent.acknowledge(number, note)
        if note in following.out:
            following.out.remove(note)
            following.room.release()

    def _of(self, number: int) -> _Following:
        if number not in self.subscriptions:
            raise LocalError("this client has no subscription of that number")
        return self.subscriptions[number]

    async def _send_notes(self, number: int, following: _Following) -> None:
        try:
            async with contextlib.aclosing(self._agent.notes(number)) as notes:
                await following.room.acquire()
                async for note in notes:
                    following.out.add(note.id)
                    self.say(0, protocol.Noted(number, note))
                    await self._writer.drain()
                    await following.room.acquire()
            self.say(0, protocol.Ended(number))
        except ConnectionError:
            pass  # The client has gone; `serve` sees it too.
        except Exception:
            _LOG.exception("the notes of a subscription could not be sent")
            self._writer.close()


def listen_alone(path: Path) -> socket.socket:
    """A listening socket at `path`, for its owner alone."""
    _check_directory(path.parent)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        try:
            _bind(listening, path)
        except FileExistsError:
            _remove_dead(path)
            _bind(listening, path)
        listening.listen()
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise StorageError(f"control: cannot listen at {path}: {error.strerror or error}") from error
    except BaseException:
        listening.close()
        raise
    return listening


def _bind(listening: socket.socket, path: Path) -> None:
    if len(os.fsencode(path)) > PATH_MAX:
        raise ConfigError(f"control: {path} is longer than the {PATH_MAX} bytes that a socket's name may have")
    before = os.umask(0o177)
    try:
        listening.bind(str(path))
    except OSError as error:
        if path.exists() or path.is_symlink():
            raise FileExistsError(error.errno, error.strerror) from error
        raise
    finally:
        os.umask(before)


def _remove_dead(path: Path) -> None:
    """Remove the socket of a node that no longer runs; refuse if it does, or if this is no socket."""
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise StorageError(f"control: {path} is there and is no socket; choose another path or remove it")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except BlockingIOError:
            pass  # Its queue is full, so somebody has it open.
    raise LocalError(f"control: a node is running at {path} already")


def _check_directory(directory: Path) -> None:
    try:
        mode = directory.stat().st_mode
    except OSError as error:
        raise StorageError(f"control: cannot use {directory}: {error.strerror}") from error
    if mode & 0o022 and not mode & stat.S_ISVTX:
        raise PermissionsError(f"control: others may write to {directory}; chmod go-w {directory}")


SUBSCRIPTIONS_MAX: Final = 64
LAST_WORD_S: Final = 1.0
PATH_MAX: Final = 100
"""The least that any system allows is 104, with a zero at the end."""
_BUFFER: Final = 1 << 16
_LOG: Final = logging.getLogger("veilcast.control")
