"""Real prices, for P3: closes of one-minute bars and of days, from the data folder that the user names.

Minutes are of GOOG (three days of 2015) and MSFT (21 days of 2016), days of five stocks up to 2013. The paper's own
minutes (Google, 2007) are not public. Closes are taken in order. A minute without a trade has no bar, so a step goes
from one bar to the next; between days it spans the night. Daily closes are adjusted for splits, which are no moves of
the price.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.data import DAILY, MINUTES, BarsFile, bad_file_error, missing_folder_error, read_text


@dataclass(frozen=True, eq=False)
class Bars:
    close: NDArray[np.float64]
    volume: NDArray[np.float64]
    day: NDArray[np.int64]
    """Day of each bar, counted from 0."""
    trading: NDArray[np.bool_]
    """Whether the bar is within trading hours, half past nine to four; trades before and after are rare."""

    def days(self) -> list[NDArray[np.float64]]:
        """The closes of each day, within trading hours."""
        return self._by_day(self.close)

    def traded(self) -> list[NDArray[np.float64]]:
        """The volumes of the same bars."""
        return self._by_day(self.volume)

    def _by_day(self, column: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        return np.split(column[self.trading], np.flatnonzero(np.diff(self.day[self.trading])) + 1)


def load_minutes(symbol: str, folder: Path | None) -> Bars:
    """Raises `ConfigError` if no folder is named or the symbol is missing, and `StorageError` for another file."""
    return _choose("minutes", MINUTES, symbol, folder)


def load_daily(symbol: str, folder: Path | None) -> Bars:
    """Raises as `load_minutes` does."""
    return _choose("daily", DAILY, symbol, folder)


def cut_windows(series: NDArray[np.float64], steps: int, apart: int) -> NDArray[np.float64]:
    """Streams [streams, steps]: pieces of a series, each beginning `apart` steps after the last."""
    if not 1 <= steps <= len(series) or apart < 1:
        raise ConfigError(f"a piece has 1 to {len(series)} steps, and the next begins 1 step later or more")
    return sliding_window_view(series, steps)[::apart].copy()


def _choose(source: str, file: BarsFile, symbol: str, folder: Path | None) -> Bars:
    if folder is None:
        raise missing_folder_error(source)
    bars = _read(file.name, folder.absolute())
    if symbol not in bars:
        raise ConfigError(f"symbol: there are no {source} of {symbol!r} in the data; there are: {', '.join(bars)}")
    return bars[symbol]


@lru_cache(maxsize=2)
def _read(name: str, folder: Path) -> Mapping[str, Bars]:
    file = MINUTES if name == MINUTES.name else DAILY
    names = _COLUMNS[file.name]
    try:
        table = list(csv.DictReader(read_text(file, folder).decode().splitlines(), strict=True))
        rows = [tuple(row[column] for column in names) for row in table]
        found = {}
        for symbol in file.rows:
            own = [row for row in rows if row[0] == symbol]
            dates = np.array([when[:_DATE] for _, when, _, _ in own])
            trading = np.array([len(when) == _DATE or _OPEN <= when[-len(_OPEN) :] < _CLOSE for _, when, _, _ in own])
            numbers = np.array([(float(close), float(volume)) for _, _, close, volume in own]).reshape(-1, 2)
            found[symbol] = Bars(numbers[:, 0], numbers[:, 1], np.unique(dates, return_inverse=True)[1], trading)
    except (KeyError, ValueError, TypeError, csv.Error) as error:
        raise bad_file_error(file, folder, f"is no table of prices ({error})") from error
    whole = {symbol: len(bars.close) for symbol, bars in found.items()} == dict(file.rows) and len(rows) == sum(
        file.rows.values()
    )
    prices = all(np.isfinite(bars.close).all() and (bars.close > 0).all() for bars in found.values())
    if not whole or not prices or any((np.diff(bars.day) < 0).any() for bars in found.values()):
        raise bad_file_error(file, folder, f"does not have its {sum(file.rows.values())} prices above 0, in order")
    for bars in found.values():
        for column in (bars.close, bars.volume, bars.day, bars.trading):
            column.setflags(write=False)
    return found


_COLUMNS: Final = {
    MINUTES.name: ("symbol", "time_ny", "close", "volume"),
    DAILY.name: ("Ticker", "Date", "Adj Close", "Volume"),
}
_DATE: Final = len("2016-04-15")
_OPEN: Final = "09:30"
_CLOSE: Final = "16:00"
