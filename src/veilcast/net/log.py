"""Logs that are safe to show: no topic, no peer address, no key, no plaintext, unless the owner asks for
`danger_reveal`.

Redaction works by permission, not by search. A message is a constant text in our code. Of its arguments, numbers and
`Plain` words are printed; everything else is hidden. An exception shows its type and the lines it passed through, never
its text. Of log records of libraries, only the logger's name and the exception's type are printed. The hooks for
uncaught exceptions are replaced too, because Python's own traceback would print the exception's text.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Literal, TextIO, TypeAlias

Style: TypeAlias = Literal["pretty", "json"]


class Plain(str):
    """A word that identifies nobody: a mode, a state, or a reason from a fixed list."""

    __slots__ = ()


def set_up(
    style: Style = "pretty", level: str = "info", stream: TextIO | None = None, *, danger_reveal: bool = False
) -> None:
    """Send all logs and uncaught exceptions of this process to `stream` (default: stderr)."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LogFormatter(style, danger_reveal=danger_reveal))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.raiseExceptions = False  # A broken record would print its arguments.
    sys.excepthook = _uncaught
    threading.excepthook = lambda args: _uncaught(args.exc_type, args.exc_value, args.exc_traceback)
    sys.unraisablehook = lambda args: _uncaught(args.exc_type, args.exc_value, args.exc_traceback)


class LoopFaults:
    """The event loop's handler for exceptions in callbacks. After `FAULTS_LOGGED` of them in a minute it only counts,
    because a stranger may be able to cause one with every datagram."""

    def __init__(self) -> None:
        self.count = 0
        self._minute = -1
        self._logged = 0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.count += 1
        minute = int(loop.time() // 60)
        if minute != self._minute:
            self._minute, self._logged = minute, 0
        self._logged += 1
        if self._logged <= FAULTS_LOGGED:
            error = context.get("exception")
            _LOG.error("a fault in a callback; %d since the start", self.count, exc_info=error)


class FaultLog:
    """Logs faults of a machine, at most one line a minute: a stranger may be able to cause any number."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._after = clock, 0.0
        self._count = 0

    def __call__(self, error: Exception) -> None:
        self._count += 1
        if (now := self._clock()) >= self._after:
            self._after = now + FAULT_EVERY_S
            _LOG.error(
                "a fault of veilcast itself; the message is dropped; %d since the start", self._count, exc_info=error
            )


class LogFormatter(logging.Formatter):
    """Formats each record as one line."""

    def __init__(self, style: Style, *, danger_reveal: bool = False) -> None:
        super().__init__()
        self._as_json, self._reveal = style == "json", danger_reveal

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage() if self._reveal else _redact(record)
        error = _describe_error(record.exc_info[1], self._reveal) if record.exc_info and record.exc_info[1] else []
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z"
        level, room = record.levelname.lower(), record.name.removeprefix("veilcast.")
        if self._as_json:
            fields = {"time": moment, "level": level, "room": room, "text": text}
            return json.dumps({**fields, "error": error} if error else fields)
        line = f"{moment} {level:7} {room}: {text}" + "".join(f" | {part}" for part in error)
        return "".join(part if part.isprintable() else " " for part in line)


def _redact(record: logging.LogRecord) -> str:
    if record.name.split(".")[0] != "veilcast" or not isinstance(record.msg, str):
        return "(the words of a library)"
    arguments: Any = record.args
    if isinstance(arguments, Mapping):
        arguments = {key: _shown(value) for key, value in arguments.items()}
    elif arguments:
        arguments = tuple(map(_shown, arguments))
    try:
        return record.msg % arguments if arguments else record.msg
    except (TypeError, ValueError):
        return record.msg


def _shown(value: object) -> object:
    return value if isinstance(value, int | float | Plain) else _HIDDEN


def _describe_error(error: BaseException, reveal: bool) -> list[str]:
    """Describe an exception and its causes, newest first: types and source lines."""
    parts: list[str] = []
    current: BaseException | None = error
    while current is not None and len(parts) < CAUSES_MAX:
        frames = traceback.extract_tb(current.__traceback__)[-PLACES_MAX:]
        places = " < ".join(f"{_module(frame.filename)}:{frame.lineno}" for frame in reversed(frames))
        text = f"({current})" if reveal else ""
        parts.append(f"{type(current).__name__}{text} at {places or 'no place'}")
        current = current.__cause__ or current.__context__
    return parts


def _module(filename: str) -> str:
    """Return the last two parts of a path, to hide where the package is installed."""
    return "/".join(filename.replace("\\", "/").split("/")[-2:])


def _uncaught(_: type[BaseException], error: BaseException | None, __: TracebackType | None) -> None:
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return
    _LOG.critical("ended by a fault of veilcast itself", exc_info=error)


FAULTS_LOGGED: Final = 10
FAULT_EVERY_S: Final = 60.0
CAUSES_MAX: Final = 4
PLACES_MAX: Final = 12
_HIDDEN: Final = Plain("[hidden]")
_LOG: Final = logging.getLogger("veilcast.net")
