"""Plain files of the user's own that an experiment names by `file:PATH`: edges, subscriptions, latencies and series.

All four are text, packed by gzip or not. Fields are separated by commas or by white space; empty lines and lines that
begin with # or % are comments. A fault is told with the file and its line, and the faults of a file are told together,
up to `FAULTS_MAX`. What is accepted but not used, such as a repeated edge, is counted: `notes` say it in words.

- Edges: two names of nodes in a line. Further columns, such as weights, are ignored. Names are numbers or words. A
  first line of words above numbers is a heading. Edges have no direction.
- Subscriptions: a node and a topic in a line.
- Latencies: round trips in milliseconds, as a square matrix, or as `u,v,ms` below a heading with these words, one line
  for each pair of hosts.
- Series: a table with a heading. A column `day` divides it: no stream crosses from one day to the next. A column
  `volume` is the activity that the public sees. A table of one column needs no heading.

Results depend on the contents of a file and not on the order of its edges or subscriptions: nodes are numbered in the
order of their names. A process reads each file once.
"""

from __future__ import annotations

import csv
import gzip
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError, StorageError
from veilcast.nearest import did_you_mean

Floats = NDArray[np.float64]


class UserGraph(NamedTuple):
    names: tuple[str, ...]
    """Of the nodes, in order: as numbers if all are, else as words."""
    ends: NDArray[np.int32]
    """[edges, 2]: each edge once, no loops."""
    notes: tuple[str, ...]


class UserTopics(NamedTuple):
    topics: dict[str, tuple[str, ...]]
    """Names of the subscribers by topic, sorted."""
    notes: tuple[str, ...]


class UserLatencies(NamedTuple):
    round_trips_ms: Floats
    """[hosts, hosts], equal both ways, 0 from a host to itself."""
    notes: tuple[str, ...]


class UserSeries(NamedTuple):
    values: Floats
    day: NDArray[np.int64] | None
    """Day of each value, counted from 0; None if the file names no days."""
    volume: Floats | None
    unit: float
    """The smallest step that the text of the values can show; 0 if they have more than `DECIMALS_MAX` decimals."""
    notes: tuple[str, ...]


@lru_cache(maxsize=2)
def load_edges(path: Path) -> UserGraph:
    """Raises `StorageError` for an unreadable file, and `ConfigError` with its faults for one that is no list of
    edges."""
    faults, names = _Faults(path), dict[str, int]()
    known: set[tuple[int, int]] = set()
    heading: tuple[int, list[str]] | None = None
    loops = repeated = columns = 0
    numbers = True
    for line, fields in _rows(path, faults):
        if not columns:
            columns = max(2, len(fields))
            if not all(map(str.isdecimal, fields[:2])):
                heading = line, fields
                continue
        if len(fields) != columns:
            faults.add(line, f"{len(fields)} fields, and {columns} in the lines before it")
            continue
        if bad := _find_bad_name(fields[:2]):
            faults.add(line, bad)
            continue
        numbers = numbers and all(map(str.isdecimal, fields[:2]))
        u, v = (names.setdefault(name, len(names)) for name in fields[:2])
        if u == v:
            loops += 1
        elif (edge := (min(u, v), max(u, v))) in known:
            repeated += 1
        else:
            known.add(edge)
        if len(names) > NODES_MAX or len(known) > EDGES_MAX:
            faults.stop(line, f"there are more than {NODES_MAX:,} nodes or {EDGES_MAX:,} edges")
    if heading is not None and not (numbers and names):
        line, fields = heading
        if len(fields) < 2:
            faults.add(line, "1 field; an edge has two names, separated by a comma or by white space")
        elif bad := _find_bad_name(fields[:2]):
            faults.add(line, bad)
        else:
            u, v = (names.setdefault(name, len(names)) for name in fields[:2])
            loops, repeated = loops + (u == v), repeated + ((min(u, v), max(u, v)) in known)
            known |= {(min(u, v), max(u, v))} if u != v else set()
    faults.raise_if_any("no list of edges")
    if not known:
        raise ConfigError(f"{path}: there is no edge in it; a line has the names of two nodes")
    order = sorted(names, key=_name_order(names))
    place = np.empty(len(names), np.int32)
    place[[names[name] for name in order]] = np.arange(len(order), dtype=np.int32)
    ends = np.sort(place[np.array(sorted(known), np.int64)], axis=1)
    ends = ends[np.lexsort((ends[:, 1], ends[:, 0]))]
    notes = [f"{len(order):,} nodes, {len(ends):,} edges"]
    notes += [f"{repeated:,} repeated edges were left out"] if repeated else []
    notes += [f"{loops:,} edges from a node to itself were left out"] if loops else []
    notes += [f"columns after the second were ignored ({columns - 2})"] if columns > 2 else []
    ends.setflags(write=False)
    return UserGraph(tuple(order), ends, tuple(notes))


@lru_cache(maxsize=2)
def load_subscriptions(path: Path, graph: Path | None) -> UserTopics:
    """The subscriptions of a file. If a file of edges is named, all subscribers must be nodes of it. Raises as
    `load_edges` does."""
    nodes = frozenset(load_edges(graph).names) if graph is not None else None
    faults, topics = _Faults(path), dict[str, set[str]]()
    many = repeated = 0
    for line, fields in _rows(path, faults, split=1):
        if not many and [name.lower() for name in fields] == ["node", "topic"]:
            continue
        if len(fields) != 2:
            faults.add(line, "1 field; a subscription is a node and a topic")
        elif bad := _find_bad_name(fields[:1]) or _find_bad_topic(fields[1]):
            faults.add(line, bad)
        elif nodes is not None and fields[0] not in nodes:
            faults.add(
                line, f"{graph} has no node {fields[0]!r}{did_you_mean(fields[0], nodes) if _few(nodes) else ''}"
            )
        else:
            subscribers = topics.setdefault(fields[1], set())
            repeated += fields[0] in subscribers
            subscribers.add(fields[0])
            many += 1
            if many > SUBSCRIPTIONS_MAX or len(topics) > TOPICS_MAX:
                faults.stop(line, f"there are more than {SUBSCRIPTIONS_MAX:,} subscriptions or {TOPICS_MAX:,} topics")
    faults.raise_if_any("no list of subscriptions")
    if not topics:
        raise ConfigError(f"{path}: there is no subscription in it; a line has a node and a topic")
    order = _name_order(set[str]().union(*topics.values()))
    notes = [f"{many - repeated:,} subscriptions to {len(topics):,} topics"]
    notes += [f"{repeated:,} repeated subscriptions were left out"] if repeated else []
    return UserTopics(
        {topic: tuple(sorted(topics[topic], key=order)) for topic in sorted(topics)},
        tuple(notes),
    )


@lru_cache(maxsize=1)
def load_latencies(path: Path) -> UserLatencies:
    """Raises as `load_edges` does."""
    faults = _Faults(path)
    rows = _rows(path, faults)
    first = next(rows, None)
    if first is None:
        faults.raise_if_any("no table of latencies")
        raise ConfigError(
            f"{path}: there are no latencies in it; it is a matrix, or lines of u,v,ms below that heading"
        )
    if [name.lower() for name in first[1]] == ["u", "v", "ms"]:
        found = _read_pairs(path, rows, faults)
    else:
        found = _read_matrix(path, [first, *_bounded(rows, faults)], faults)
    if (lone := np.flatnonzero(~(found > 0).any(axis=1))).size:
        raise ConfigError(f"{path}: host {lone[0] + 1} has no time above 0 to any other host")
    found.setflags(write=False)
    return UserLatencies(found, (f"round trips between {len(found):,} hosts",))


@lru_cache(maxsize=2)
def load_series(path: Path, column: str) -> UserSeries:
    """One column of a table; an empty name stands for its only column of numbers. Raises as `load_edges` does."""
    faults = _Faults(path)
    rows = _read_table(path, faults)
    if not rows:
        faults.raise_if_any("no table")
        raise ConfigError(f"{path}: there are no values in it; it is a table whose first line names its columns")
    names = rows[0][1]
    if len(names) == 1 and _is_number(names[0]):
        names = ["value"]
    else:
        rows = rows[1:]
    at = _find_column(path, names, column, rows[0][1] if rows else [])
    day_at, volume_at = (names.index(name) if name in names and name != names[at] else -1 for name in ("day", "volume"))
    values, days, volumes = list[float](), list[int](), list[float]()
    number = dict[str, int]()
    decimals = 0
    for line, row in rows:
        if len(row) != len(names):
            faults.add(line, f"{len(row)} fields, and {len(names)} columns")
        elif wrong := [names[field] for field in (at, volume_at) if field >= 0 and not _is_number(row[field])]:
            faults.add(line, f"{row[names.index(wrong[0])]!r} in column {wrong[0]} is no number")
        elif day_at >= 0 and number.get(row[day_at], len(number) - 1) < len(number) - 1:
            faults.add(line, f"day {row[day_at]!r} comes again after others")
        else:
            values.append(float(row[at]))
            decimals = max(decimals, _count_decimals(row[at]))
            days += [number.setdefault(row[day_at], len(number))] if day_at >= 0 else []
            volumes += [float(row[volume_at])] if volume_at >= 0 else []
    faults.raise_if_any("no series")
    if len(values) < 2:
        raise ConfigError(f"{path}: there are {len(values)} values in column {names[at]}, and a series has 2 at least")
    notes = [f"{len(values):,} values of column {names[at]}"]
    notes += [f"in {len(number):,} days"] if days else []
    unit = 10.0**-decimals if decimals <= DECIMALS_MAX else 0.0
    return UserSeries(
        np.array(values),
        np.array(days, np.int64) if days else None,
        np.array(volumes) if volumes else None,
        unit,
        tuple(notes),
    )


class _Faults:
    """The faults of one file, in the order of its lines."""

    def __init__(self, path: Path) -> None:
        self._path, self._found, self._many = path, list[str](), 0

    def add(self, line: int, what: str) -> None:
        self._many += 1
        if self._many <= FAULTS_MAX:
            self._found.append(f"{self._path}, line {line}: {what}")

    def stop(self, line: int, what: str) -> NoReturn:
        """Raise with the faults so far and this one: the rest of the file is not read."""
        self._found.append(f"{self._path}, line {line}: {what}")
        raise ConfigError("\n".join(self._found))

    def raise_if_any(self, what: str) -> None:
        if self._many > FAULTS_MAX:
            self._found.append(f"{self._path}: {self._many - FAULTS_MAX:,} more lines are wrong; it is {what}")
        if self._found:
            raise ConfigError("\n".join(self._found))


def _lines(path: Path, faults: _Faults) -> Iterator[tuple[int, str]]:
    """The lines of a file that are no comments, each with its number. Bounded in the length of a line and of all."""
    number = size = 0
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
        with gzip.open(path) if packed else path.open("rb") as opened:
            while line := opened.readline(LINE_MAX + 1):
                number, size = number + 1, size + len(line)
                if len(line) > LINE_MAX:
                    faults.stop(number, f"it is longer than {LINE_MAX:,} bytes: this is no file of lines")
                if size > BYTES_MAX:
                    faults.stop(number, f"the file is longer than {BYTES_MAX:,} bytes")
                try:
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                except UnicodeDecodeError:
                    faults.add(number, "it is no UTF-8 text")
                    continue
                if text and text[0] not in "#%":
                    yield number, text
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise StorageError(f"{path} cannot be read: it is packed, and damaged; fetch it again") from error
    except OSError as error:
        raise StorageError(
            f"cannot read {path}: {error.strerror}; paths are relative to the experiment's file"
        ) from error


def _rows(path: Path, faults: _Faults, split: int = -1) -> Iterator[tuple[int, list[str]]]:
    """Fields by line; `split` is the largest number of cuts, -1 for any."""
    for number, text in _lines(path, faults):
        yield number, [field.strip() for field in (text.split(",", split) if "," in text else text.split(None, split))]


def _read_table(path: Path, faults: _Faults) -> list[tuple[int, list[str]]]:
    rows = list[tuple[int, list[str]]]()
    for line, text in _lines(path, faults):
        try:
            rows.append((line, [field.strip() for field in next(csv.reader([text], strict=True))]))
        except csv.Error as error:
            faults.add(line, f"it is no line of a table ({error})")
        if len(rows) > ROWS_MAX:
            faults.stop(line, f"there are more than {ROWS_MAX:,} values")
    return rows


def _bounded(rows: Iterator[tuple[int, list[str]]], faults: _Faults) -> Iterator[tuple[int, list[str]]]:
    for count, (line, fields) in enumerate(rows, start=2):
        if count > HOSTS_MAX:
            faults.stop(line, f"there are more than {HOSTS_MAX:,} hosts")
        yield line, fields


def _read_matrix(path: Path, rows: list[tuple[int, list[str]]], faults: _Faults) -> Floats:
    hosts = len(rows)
    found = np.zeros((hosts, hosts))
    for row, (line, fields) in enumerate(rows):
        if len(fields) != hosts:
            faults.add(line, f"{len(fields)} times, and there are {hosts} lines; a matrix has as many of both")
        elif wrong := next((field for field in fields if not _is_time(field)), None):
            faults.add(line, f"{wrong!r} is no time in milliseconds")
        else:
            found[row] = [float(field) for field in fields]
    faults.raise_if_any("no matrix of latencies")
    for row, (line, _) in enumerate(rows):
        if found[row, row]:
            faults.add(line, f"{found[row, row]:g} ms from a host to itself, and not 0")
        if (other := np.flatnonzero(found[row, :row] != found[:row, row])).size:
            column = int(other[0])
            faults.add(line, f"{found[row, column]:g} ms in column {column + 1}, and {found[column, row]:g} ms back")
    faults.raise_if_any("no matrix of round trips")
    if hosts < 2:
        raise ConfigError(f"{path}: there is one host; latencies are between two at least")
    return found


def _read_pairs(path: Path, rows: Iterator[tuple[int, list[str]]], faults: _Faults) -> Floats:
    times, names = dict[tuple[str, str], tuple[float, int]](), set[str]()
    for line, fields in rows:
        if len(fields) != 3 or not _is_time(fields[2]) or _find_bad_name(fields[:2]):
            faults.add(line, "it is no pair of hosts with a time in milliseconds")
            continue
        u, v = sorted(fields[:2])
        names |= {u, v}
        if len(names) > HOSTS_MAX:
            faults.stop(line, f"there are more than {HOSTS_MAX:,} hosts")
        time, before = times.setdefault((u, v), (float(fields[2]), line))
        if time != float(fields[2]):
            faults.add(line, f"{fields[2]} ms between {u} and {v}, and {time:g} ms in line {before}")
        elif u == v and time:
            faults.add(line, f"{time:g} ms from a host to itself, and not 0")
    faults.raise_if_any("no list of latencies")
    order = sorted(names, key=_name_order(names))
    absent = [(u, v) for at, u in enumerate(order) for v in order[at + 1 :] if (min(u, v), max(u, v)) not in times]
    if absent or len(order) < 2:
        shown = ", ".join(f"{u} and {v}" for u, v in absent[:FAULTS_MAX])
        more = f" and {len(absent) - FAULTS_MAX:,} more" if len(absent) > FAULTS_MAX else ""
        raise ConfigError(f"{path}: there is no time between {shown or 'two hosts'}{more}; each pair of hosts has one")
    found = np.zeros((len(order), len(order)))
    for row, u in enumerate(order):
        for column in range(row):
            v = order[column]
            found[row, column] = found[column, row] = times[min(u, v), max(u, v)][0]
    return found


def _find_column(path: Path, names: list[str], column: str, first: list[str]) -> int:
    if column in names:
        return names.index(column)
    numeric = [at for at, field in enumerate(first) if at < len(names) and _is_number(field)]
    if not column:
        numeric = [at for at in numeric if names[at] not in ("day", "volume")]
        if len(numeric) == 1:
            return numeric[0]
    there = ", ".join(names[at] for at in numeric) or "none"
    what = f"there is no column {column!r}" if column else "name the column of the series"
    raise ConfigError(f"{path}: {what}; columns of numbers: {there}{did_you_mean(column, names) if column else ''}")


def _find_bad_name(names: list[str]) -> str:
    for name in names:
        if not name:
            return "a name is empty"
        if len(name) > NAME_MAX or not name.isprintable():
            return f"a name is longer than {NAME_MAX} characters, or cannot be printed"
    return "1 field; two names are needed, separated by a comma or by white space" if not names else ""


def _find_bad_topic(name: str) -> str:
    return "" if name and len(name) <= NAME_MAX and name.isprintable() else "the topic is empty, too long, or not text"


def _name_order(names: Iterable[str]) -> Callable[[str], tuple[int, str]]:
    """The key that sorts these names: as numbers if all are, else as words."""
    numbers = all(map(str.isdecimal, names))
    return lambda name: (int(name) if numbers else 0, name)


def _few(names: frozenset[str]) -> bool:
    return len(names) <= _COMPARED_MAX


def _is_time(text: str) -> bool:
    return _is_number(text) and float(text) >= 0


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None and math.isfinite(float(text))


def _count_decimals(text: str) -> int:
    if "e" in text.lower():
        return DECIMALS_MAX + 1
    return len(text.partition(".")[2].rstrip("0"))


NODES_MAX: Final = 1_000_000
EDGES_MAX: Final = 10_000_000
SUBSCRIPTIONS_MAX: Final = 10_000_000
TOPICS_MAX: Final = 100_000
HOSTS_MAX: Final = 2_000
ROWS_MAX: Final = 2_000_000
LINE_MAX: Final = 65_536
BYTES_MAX: Final = 1 << 30
"""Bounds on a file, unpacked."""
NAME_MAX: Final = 128
FAULTS_MAX: Final = 10
"""Faults of a file that are told one by one."""
DECIMALS_MAX: Final = 6
_COMPARED_MAX: Final = 10_000
"""Above this number of names, no nearest one is looked for."""
_GZIP: Final = b"\x1f\x8b"
_NUMBER: Final = re.compile(r"[-+]?(\d{1,18}(\.\d{0,18})?|\.\d{1,18})([eE][-+]?\d{1,3})?")
