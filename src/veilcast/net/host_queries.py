"""Questions to a host that serves no clients: a unix socket of its owner's, one question and one answer a call.

Only its owner can open the socket (`privatesocket`), and may ask how the host is, or hand it what its operator has
signed. A question is one line of JSON of bounded length, in bounded time; so is the answer, or the reason why there is
none.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

from veilcast.decoding import JsonDecoder
from veilcast.errors import LocalError, MalformedError, UnreachableError, VeilcastError
from veilcast.net.private_socket import PrivateSocket

QueryHandler: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
"""May raise a `VeilcastError`, which is told to who asked."""


class HostQueryServer:
    def __init__(self, path: Path, answer: QueryHandler) -> None:
        self._socket, self._answer = PrivateSocket(path, self._serve, QUESTION_MAX), answer
        self.clients = 0

    async def open(self) -> None:
        await self._socket.open()

    async def close(self) -> None:
        await self._socket.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.clients += 1
        try:
            if self.clients > CLIENTS_MAX:
                return
            async with asyncio.timeout(QUESTION_S):
                writer.write(self._reply(await reader.readuntil(b"\n")))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # A question that does not come, or is none, gets no answer.
        finally:
            self.clients -= 1
            writer.close()
            with contextlib.suppress(OSError, TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(QUESTION_S):
                    await writer.wait_closed()

    def _reply(self, line: bytes) -> bytes:
        try:
            answer = self._answer(_QUESTIONS.decode(line))
        except MalformedError:
            answer = {"error": "this is no question"}
        except VeilcastError as error:
            answer = {"error": str(error)}
        return json.dumps(answer).encode() + b"\n"


def ask_host(path: Path, question: dict[str, Any]) -> dict[str, Any]:
    """Ask the host whose socket this is; `UnreachableError` if none answers, `LocalError` if it refuses."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(QUESTION_S)
            asking.connect(str(path))
            asking.sendall(json.dumps(question).encode() + b"\n")
            with asking.makefile("rb") as answer:
                line = answer.readline(ANSWER_MAX)
    except OSError as error:
        raise UnreachableError(f"no broker answers at {path}; is it running?") from error
    try:
        told = _ANSWERS.decode(line)
    except MalformedError as error:
        raise UnreachableError(f"what answers at {path} is no broker, or is ending") from error
    if "error" in told:
        raise LocalError(str(told["error"]))
    return told


QUESTION_MAX: Final = 1 << 17
"""An overlay's description has at most a third of this, and half as much again in base64."""
ANSWER_MAX: Final = 1 << 22
QUESTION_S: Final = 30.0
"""A host answers at once, but its machine may be busy; to take it for dead would mislead its operator."""
CLIENTS_MAX: Final = 8
_QUESTIONS: Final = JsonDecoder(dict[str, Any], MalformedError, "no question", QUESTION_MAX)
_ANSWERS: Final = JsonDecoder(dict[str, Any], MalformedError, "no answer", ANSWER_MAX)
