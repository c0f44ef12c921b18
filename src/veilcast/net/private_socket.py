"""A unix socket that only its owner can open, with one task for each client.

The permissions of the socket's file are the whole access control, so the file never has wider permissions, not even for
a moment. A file that a dead process left behind is replaced; the socket of a living process is never replaced. When the
socket is closed, its tasks end and the file is removed, if it is still ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeAlias

from veilcast.errors import ConfigError, LocalError, PermissionsError, StorageError

ClientHandler: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class PrivateSocket:
    """`serve` limits the number of clients and closes its streams; `limit` bounds the unread bytes of each client."""

    def __init__(self, path: Path, serve: ClientHandler, limit: int) -> None:
        self._path, self._serve, self._limit = path, serve, limit
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._inode = 0

    async def open(self) -> None:
        listening = open_private_listener(self._path)
        self._inode = self._path.stat().st_ino
        self._server = await asyncio.start_unix_server(self._admit, sock=listening, limit=self._limit)

    async def close(self) -> None:
        if self._server is None:
            return
        await admit_last_clients(self._server)
        self._server.close()
        with contextlib.suppress(OSError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        finally:
            self._tasks.discard(task)


async def admit_last_clients(server: asyncio.Server) -> None:
    """Take no more clients, and wait until those that are accepted are served.

    If a server is closed in the same turn of the loop in which it has accepted a client, asyncio makes half a stream of
    it that nobody can close.
    """
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    for _ in range(_ADMITTING_TURNS):
        await asyncio.sleep(0)


def open_private_listener(path: Path) -> socket.socket:
    """Open a listening socket at `path` that only its owner can connect to."""
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
    """Remove the socket of a process that no longer runs. Raises if the process runs, or if the file is no socket."""
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
            pass  # Its queue is full, so a process has it open.
    raise LocalError(
        f"control: this one runs already, and answers at {path}; stop it first (SIGTERM, or Ctrl-C where it runs), "
        "or name another control to run one beside it"
    )


def _check_directory(directory: Path) -> None:
    try:
        mode = directory.stat().st_mode
    except OSError as error:
        raise StorageError(f"control: cannot use {directory}: {error.strerror}") from error
    if mode & 0o022 and not mode & stat.S_ISVTX:
        raise PermissionsError(f"control: others may write to {directory}; chmod go-w {directory}")


_ADMITTING_TURNS: Final = 4
"""Turns of the loop from an accepted client to its handler: a task, the stream, its beginning, the handler's task."""
PATH_MAX: Final = 100
"""Bytes of a socket's path: the smallest limit of any system is 104, with a zero at the end."""
