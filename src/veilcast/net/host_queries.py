"""The query socket of a host that serves no clients: a unix socket with one query and one answer for each connection.

Only the host's owner can open the socket (`private_socket`). The owner may ask for the host's state, or hand over what
its operator has signed. A query is one line of JSON with bounded length and time. The answer is one line of JSON too,
with the result or the reason for a refusal.
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
"""Answers one query. May raise a `VeilcastError`; its text becomes the answer."""


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
    """Send a query to the host at this socket. Raises `UnreachableError` if no host answers, `LocalError` if the host
    refuses."""
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
        answer_ = _ANSWERS.decode(line)
    except MalformedError as error:
        raise UnreachableError(f"what answers at {path} is no broker, or is ending") from error
    if "error" in answer_:
        raise LocalError(str(answer_["error"]))
    return answer_


QUESTION_MAX: Final = 1 << 17
"""Bytes of a query: a description of an overlay has at most a third of this, and half as much again in base64."""
ANSWER_MAX: Final = 1 << 22
QUESTION_S: Final = 30.0
"""Seconds for a query. A host answers at once, but its computer may be busy; a host must not be taken for dead too
early."""
CLIENTS_MAX: Final = 8
_QUESTIONS: Final = JsonDecoder(dict[str, Any], MalformedError, "no question", QUESTION_MAX)
_ANSWERS: Final = JsonDecoder(dict[str, Any], MalformedError, "no answer", ANSWER_MAX)
