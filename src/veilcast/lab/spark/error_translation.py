"""Errors of Spark as one line of ours.

An error of an executor's Python reaches us as the text of its traceback inside two nested Java exceptions. Our own
errors are found in it by their names and raised as what they are. All other errors are reported by their deepest cause.
"""

from __future__ import annotations

import re
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from veilcast import errors
from veilcast.errors import SparkError, StorageError, VeilcastError


def translate_error(error: Exception) -> VeilcastError:
    """An error of Spark as one of ours."""
    text = str(error)
    for name, message in _OURS.findall(text):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, VeilcastError):
            return kind(message)
    if "No space left on device" in text:
        return StorageError("no space left on the disk where Spark keeps what it works on (TMPDIR chooses another)")
    if "is bigger than" in text and "maxResultSize" in text:
        return SparkError("the results of one bucket are too many for this machine's memory; sweep fewer cells at once")
    if "cancelled" in text:
        return SparkError("the jobs were cancelled")
    for words, message in _KNOWN:
        if words in text:
            return SparkError(message)
    python = _PYTHON.findall(text)
    return SparkError(f"Spark gave up: {python[-1] if python else _first_line(text) or type(error).__name__}")


def _first_line(text: str) -> str:
    # py4j puts a line of its own before the one that says what happened.
    lines = [line.strip().removeprefix(": ") for line in text.splitlines()]
    return next((line for line in lines if line and not line.startswith("An error occurred while calling")), "")


SPARK_ERRORS: Final = (Py4JError, PySparkException, ConnectionError)
"""Errors that a call of Spark may raise if Java, an executor or the connection to them fails."""

_OURS: Final = re.compile(r"^\s*veilcast\.errors\.(\w+): (.*)$", re.MULTILINE)
_PYTHON: Final = re.compile(r"^\s*((?:\w+\.)*\w*(?:Error|Exception)\b.*)$", re.MULTILINE)
_KNOWN: Final = (
    ("Python worker exited unexpectedly", "a worker died, and died again; it may have had too little memory"),
    ("ExecutorLostFailure", "executors were lost, and lost again; they may have had too little memory"),
    ("Master removed our application", "the Spark master has removed us: its executors could not be started"),
    ("All masters are unresponsive", "no Spark master answers there"),
    ("SparkContext was shut down", "the connection to the Spark master was lost"),
    ("Connection refused", "the Java machine of Spark is gone"),
    ("Answer from Java side is empty", "the Java machine of Spark is gone"),
)
