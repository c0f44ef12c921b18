"""Prices of the data folder: read in order and checked, and a missing file is reported in one line."""

from __future__ import annotations

import gzip
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veilcast.errors import ConfigError, StorageError
from veilcast.lab import data, prices

HEAD = "symbol,time_ny,open,high,low,close,volume,source\n"
ROWS = """GOOG,2015-12-23 04:59,1,1,1,752,10,lean
GOOG,2015-12-23 09:30,1,1,1,752.48,10,lean
GOOG,2015-12-23 09:31,1,1,1,753.24,30,lean
GOOG,2015-12-24 09:30,1,1,1,750,7,lean
MSFT,2016-04-15 09:30,1,1,1,55.1,100,react-stockcharts
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(prices, "MINUTES", replace(data.MINUTES, rows={"GOOG": 4, "MSFT": 1}))
    prices._read.cache_clear()
    write(tmp_path, HEAD + ROWS)
    return tmp_path


def write(folder: Path, text: str) -> None:
    (folder / "stocks").mkdir(exist_ok=True)
    (folder / data.MINUTES.name).write_bytes(gzip.compress(text.encode()))


def test_closes_come_in_order_and_those_of_trading_hours_by_day(folder: Path) -> None:
    bars = prices.load_minutes("GOOG", folder)
    assert bars.close.tolist() == [752, 752.48, 753.24, 750]
    assert [day.tolist() for day in bars.days()] == [[752.48, 753.24], [750]]
    assert prices.load_minutes("MSFT", folder).volume.tolist() == [100]
    with pytest.raises(ValueError, match="read-only"):
        bars.close[0] = 0


@pytest.mark.parametrize(
    "text",
    [
        ROWS,
        HEAD + ROWS.replace("753.24", "much"),
        HEAD + ROWS.replace("753.24", "nan"),
        HEAD + ROWS.replace("753.24", "-1"),
        HEAD + ROWS.replace("MSFT", "IBM"),
        HEAD + ROWS + "AAPL,2016-04-15 09:30,1,1,1,55.1,100,x\n",
        HEAD + ROWS.replace("2015-12-24", "2015-12-22"),
        HEAD + "GOOG\n",
    ],
)
def test_a_file_that_is_something_else_is_refused(folder: Path, text: str) -> None:
    write(folder, text)
    with pytest.raises(StorageError, match=r"minute_bars\.csv\.gz .*; get it from"):
        prices.load_minutes("GOOG", folder)


def test_no_folder_no_file_and_no_such_symbol_are_told(folder: Path) -> None:
    with pytest.raises(ConfigError, match="--data DIR"):
        prices.load_daily("IBM", None)
    with pytest.raises(ConfigError, match="no minutes of 'IBM' in the data; there are: GOOG, MSFT"):
        prices.load_minutes("IBM", folder)
    with pytest.raises(StorageError, match="is not there"):
        prices.load_daily("IBM", folder)


def test_windows_are_pieces_of_a_series() -> None:
    assert prices.cut_windows(np.arange(7.0), 3, 2).tolist() == [[0, 1, 2], [2, 3, 4], [4, 5, 6]]
    for steps, apart in ((0, 1), (8, 1), (3, 0)):
        with pytest.raises(ConfigError):
            prices.cut_windows(np.arange(7.0), steps, apart)


@pytest.mark.skipif(not os.environ.get("VEILCAST_DATA"), reason="no data folder is named")
def test_the_published_price_files_are_complete() -> None:
    folder = Path(os.environ["VEILCAST_DATA"])
    google, microsoft = prices.load_minutes("GOOG", folder), prices.load_minutes("MSFT", folder)
    assert [len(day) for day in google.days()] == [390, 224, 382]
    assert {len(day) for day in microsoft.days()} == {390}
    for symbol in data.DAILY.rows:
        close = prices.load_daily(symbol, folder).close
        assert np.abs(np.diff(np.log(close))).max() < 0.8, "no split is left in it"
    assert set(data.file_digests(["minutes", "daily"], folder)) == {data.MINUTES.name, data.DAILY.name}
