"""Files that programs append to: taps of running nodes, and captures of tcpdump. No record is lost, and none repeats.

An offset says how many bytes of each file are read: always whole records, so what a program is still writing waits.

1. A file is known by a hash of its first record, not by its name alone. So a file that is renamed by a rotation goes on
   where it was, and a new file under an old name begins at its first byte.
2. If a file's content is gone while its name is there, records may be lost: this is an error, not a fresh start.
   `tcpdump -W` does that. A file that was deleted is taken for read; delete files after they were read.
3. An offset holds `GONE_MAX` files that are no longer there, so it stays bounded over any number of rotations.
4. A batch takes the same share of what each file has to offer, so a long file does not hold up the others.

Where two nodes have taps, both record the cells between them. The receiver's rows are left out from the time on at
which the sender's tap began. A reading of whole files also knows when the sender's tap ended; a stream does not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from veilcast.errors import ConfigError, StorageError, TamperedError
from veilcast.lab.capture import file_spans, pcap, reader, taps
from veilcast.lab.capture.duplicates import MARK, POINT
from veilcast.lab.capture.file_spans import CaptureSpan
from veilcast.lab.capture.layout import ABSURD, Octets
from veilcast.lab.capture.packet_captures import CellPlan, make_cells
from veilcast.lab.capture.packets import LINKS
from veilcast.lab.capture.taps import NodeTap, TapPart

Offset: TypeAlias = dict[str, dict[str, Any]]
"""A file's name leads to `read`, the number of bytes read, and `first`, the hash of its first record."""


def find_offset(paths: Sequence[Path], start: Offset, most: int | None, last: Offset | None = None) -> Offset:
    """The offset after the next batch. The batch has about `most` bytes, or all bytes if that is None. It has a record
    at least of each file that has an unread one, and nothing beyond `last`."""
    files = {str(file): file for path in paths for file in _list_followed(path)}
    firsts = {name: first for name, file in files.items() if (first := _hash_first(file)) is not None}
    moved = {entry["first"]: name for name, entry in start.items() if firsts.get(name) != entry["first"]}
    found: Offset = {}
    pending: dict[str, int] = {}
    for name, first in firsts.items():
        known = start.get(name)
        if known is None or known["first"] != first:
            known = start[moved.pop(first)] if first in moved else {"read": 0, "first": first}
        found[name] = known
    gone = list(moved.values())
    for name in files.keys() & gone:
        raise _overwritten_error(name, start[name]["read"])
    for name, entry in found.items():
        size = files[name].stat().st_size
        if size < entry["read"]:
            raise _overwritten_error(name, entry["read"])
        if last is not None:
            size = min(size, last[name]["read"] if name in last else 0)
        pending[name] = max(0, size - entry["read"])
    total = sum(pending.values())
    for name, left in pending.items():
        if left:
            share = left if most is None or total <= most else max(1, left * most // total)
            read = found[name]["read"]
            found[name] = found[name] | {"read": _end_of_records(files[name], read, share, read + left)}
    kept = gone[-GONE_MAX:]
    return {name: start[name] for name in kept} | found


def plan_between(start: Offset, end: Offset, run: str, epoch_us: int) -> list[tuple[partial[Iterator[pa.Table]], Any]]:
    """The parts of a batch, each with the function that makes its cells."""
    before = {entry["first"]: entry["read"] for entry in start.values()}
    due = {name: (before.get(entry["first"], 0), entry["read"]) for name, entry in end.items()}
    due = {name: span for name, span in due.items() if span[0] < span[1]}
    plan = CellPlan(run, epoch_us, file_spans.STEP, (0,), marked=True)
    tapped = None
    found: list[tuple[partial[Iterator[pa.Table]], Any]] = []
    for name, (since, until) in due.items():
        path = Path(name)
        if _hash_first(path) != end[name]["first"]:
            raise _overwritten_error(name, since)
        if file_spans.detect_kind(path) == "table":
            if tapped is None:
                tapped = _arrange([each for each in end if Path(each).exists() and _is_tap(Path(each))])
            work = partial(_tap_cells, tap=tapped[name], run=run, epoch_us=epoch_us)
            found += [(work, part) for part in taps.cut_lines(path, 0, taps.TAP_STEP, since, until)[0]]
        else:
            found += [(partial(_capture_cells, plan=plan), span) for span in _cut_span(path, since, until)]
    return found


def _list_followed(path: Path) -> list[Path]:
    """The files of a path that can be followed. A directory may hold others, such as packed ones, which are passed
    over."""
    if path.is_dir():
        return [file for file in reader.find_record_files(path) if isinstance(file, Path) and _can_follow(file)]
    if path.exists() and path.stat().st_size and not _can_follow(path):
        raise ConfigError(f"{path} cannot be followed: only taps and pcap files grow record by record")
    return [path]


def _can_follow(file: Path) -> bool:
    head = _read(file, 0, 4)
    return not head or head in pcap.MAGICS or head[:1] == b"["


def _is_tap(file: Path) -> bool:
    return _read(file, 0, 1) == b"["


def _hash_first(file: Path) -> str | None:
    """The hash of a file's first record; None if it has no whole record yet."""
    if _is_tap(file):
        line, end, _ = _read(file, 0, taps.LINE_MAX).partition(b"\n")
        record = line if end else None
    else:
        head = _read(file, 0, pcap.HEADER + _PACKET)
        record = None
        if len(head) == pcap.HEADER + _PACKET:
            walker = pcap.PcapWalker(np.frombuffer(head, np.uint8))
            if (link := walker.layout.interfaces[0].link) not in LINKS:
                raise ConfigError(f"{file} has link type {link}, which is not read")
            kept = int.from_bytes(head[-8:-4], "big" if walker.layout.big else "little")
            record = head + _read(file, len(head), min(kept, _CONTENT))
            record = record if file.stat().st_size >= len(head) + min(kept, pcap.KEPT_MAX) else None
    return None if record is None else hashlib.blake2b(record, digest_size=8).hexdigest()


def _end_of_records(file: Path, since: int, share: int, until: int) -> int:
    """Where the record ends that reaches `share` bytes after `since`, or the last whole record before `until`."""
    if _is_tap(file):
        parts, _ = taps.cut_lines(file, 0, share, since, until, only_first=True)
        return parts[0].end if parts else since
    data, walker = _map(file, until)
    begin = max(since, walker.begin)
    end, packets, reason = walker.walk(data, begin, begin + share)
    if reason == ABSURD and not packets:
        raise TamperedError(f"{file} is damaged at byte {end:,}: {walker.damage()}; a stream cannot go on behind it")
    return end if packets else since


def _cut_span(file: Path, since: int, until: int) -> Iterator[CaptureSpan]:
    data, walker = _map(file, until)
    at = max(since, walker.begin)
    while at < until:
        end, packets, _ = walker.walk(data, at, at + file_spans.STEP)
        if not packets:
            raise TamperedError(f"{file} has changed while it was followed: byte {at:,} was read as a record's first")
        yield CaptureSpan(file, 0, at, end, packets, walker.layout)
        at = end


def _map(file: Path, until: int) -> tuple[Octets, pcap.PcapWalker]:
    data = file_spans.map_file(file)[:until]
    return data, pcap.PcapWalker(data)


def _arrange(names: Sequence[str]) -> Mapping[str, NodeTap | None]:
    """The node of each tap, by the first lines of all; None for records of whole networks."""
    firsts = [taps.cut_lines(Path(name), 0, _LINES, only_first=True)[0][0] for name in names]
    found = [taps.survey_tap(part) for part in firsts]
    return dict(zip(names, taps.arrange_running(names, found), strict=True))


def _tap_cells(part: TapPart, tap: NodeTap | None, run: str, epoch_us: int) -> Iterator[pa.Table]:
    yield taps.tap_cells(part, tap, run, epoch_us)


def _capture_cells(span: CaptureSpan, plan: CellPlan) -> Iterator[pa.Table]:
    for table in make_cells(span, plan):
        if pc.count_distinct(table[POINT]).as_py() > 1:
            raise ConfigError(
                f"{span.path} saw packets in several places, and a stream cannot tell duplicates; record one "
                "interface, or read the whole file"
            )
        yield table.drop_columns([MARK, POINT])


def _read(file: Path, at: int, size: int) -> bytes:
    try:
        with file.open("rb") as opened:
            opened.seek(at)
            return opened.read(size)
    except OSError as error:
        raise StorageError(f"cannot read {file}: {error.strerror}") from error


def _overwritten_error(name: str, read: int) -> TamperedError:
    return TamperedError(
        f"{name} was replaced after {read:,} bytes of it were read, so records may be lost; rotate without "
        "overwriting (tcpdump -C or -G, without -W), and begin with a new checkpoint"
    )


GONE_MAX: Final = 1_024
"""Files in an offset that are no longer there."""
_PACKET: Final = 16
_CONTENT: Final = 64
"""Bytes of the first packet that its hash covers."""
_LINES: Final = 1 << 16
"""Bytes of a tap by which its node is known."""
