"""A session that is started when it is needed, and whose Java machine can start while other work goes on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Self

from veilcast.lab.spark.master import LOCAL, Master
from veilcast.lab.spark.settings import SparkOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkLater:
    """A context manager. Work that ends before it needs a session starts no Java machine."""

    def __init__(
        self, url: str = LOCAL, options: SparkOptions | None = None, say: Callable[[str], object] = lambda _: None
    ) -> None:
        Master.parse(url)
        if find_spec("pyspark") is None:
            raise ModuleNotFoundError("no pyspark", name="pyspark")
        self._url, self._options, self._say = url, options or SparkOptions(), say
        self._held = contextlib.ExitStack()
        self.session: SparkSession | None = None
        """None before it was needed."""
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the Java machine in a thread, once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._start_java, daemon=True)
            self._thread.start()

    @property
    def is_ready(self) -> bool:
        """Whether a session would start at once."""
        return self.session is not None or (self._thread is not None and not self._thread.is_alive())

    def get(self) -> SparkSession:
        if self.session is None:
            if self._thread is not None:
                self._thread.join()
            from veilcast.lab.spark.sessions import session

            self.session = self._held.enter_context(session(self._url, self._options, self._say))
        return self.session

    def _start_java(self) -> None:
        from veilcast.lab.spark.sessions import start_java_machine

        # The session tries again, and tells what is wrong.
        with contextlib.suppress(Exception):
            start_java_machine(self._url, self._options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.__exit__(kind, error, trace)
