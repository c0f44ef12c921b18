"""The owner of a machine that serves nobody on this computer: it has records to keep, and numbers to show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from veilcast.net.writing import Books, Touched, Writer


class StationOwner:
    """Fulfils `service.Owner`."""

    def __init__(
        self,
        books: Books,
        write: Callable[[Sequence[Any]], Any],
        driver: Touched,
        numbers: Callable[[], Mapping[str, float]],
    ) -> None:
        self._writer = Writer(books, write, driver)
        self.run, self.act_on, self.finish = self._writer.run, self._writer.act_on, self._writer.written
        self.numbers = numbers
