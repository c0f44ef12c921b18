"""Captures cut into spans, each of which another process or machine can read by itself.

One quick pass goes from header to header and cuts where a record begins; it looks at no packet. A packed file (gzip)
cannot be entered in the middle: it is one span, read in pieces as it is unpacked, so that memory does not grow with the
unpacked size. The first bytes tell the format of a file, never its name.

A capture that ends within a record, or has a record of impossible length, is used up to there, and the damage is
reported. A capture whose header itself is cut is refused.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec
import numpy as np

from veilcast.errors import ConfigError, StorageError, TamperedError
from veilcast.lab.capture import pcap, pcapng
from veilcast.lab.capture.layout import ABSURD, SHORT, Layout, Octets, Packets, Walker
from veilcast.lab.capture.packets import LINKS
from veilcast.lab.capture.remote_files import RecordPath, RemoteFile

FileKind: TypeAlias = Literal["capture", "packed", "table"]


class CaptureSpan(msgspec.Struct, frozen=True):
    """A part of a capture; all of a packed one."""

    path: RecordPath
    file: int
    """Its number among the files that are read together."""
    start: int = 0
    end: int = 0
    packets: int = 0
    layout: Layout | None = None
    """None if it is packed, and unknown before it is unpacked."""


class Piece(msgspec.Struct, frozen=True):
    """Bytes, and the packets in them."""

    data: Octets
    packets: Packets
    layout: Layout


def detect_kind(path: RecordPath) -> FileKind:
    """The kind that the first bytes tell. Raises `TamperedError` for unknown ones."""
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    if not head:
        raise TamperedError(f"{path} is empty")
    if head[:2] == _GZIP:
        return "packed"
    if head in pcap.MAGICS or head == pcapng.SECTION_KIND:
        return "capture"
    if head[:1] == b"[":
        return "table"
    if len(head) < 4:
        raise TamperedError(f"{path} is no capture: its header is cut")
    raise TamperedError(
        f"{path} is no capture: it begins like neither pcap nor pcapng, packed or not, nor like a table"
    )


def cut_spans(path: RecordPath, file: int, step: int) -> tuple[list[CaptureSpan], str | None]:
    """The spans of a file, of about `step` bytes each, and the damage at its end."""
    if detect_kind(path) == "packed":
        return [CaptureSpan(path, file)], None
    data = map_file(path)
    walk = _Walk(path, data, step)
    spans = [
        CaptureSpan(path, file, start, end, packets, layout)
        for start, end, packets, layout in walk.over(data, last=True)
    ]
    return spans, walk.damage


def map_file(path: RecordPath) -> Octets:
    if isinstance(path, RemoteFile):
        return map_part(path, 0, None)
    try:
        return np.asarray(np.memmap(path, np.uint8, "r"))
    except (OSError, ValueError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
        raise StorageError(f"cannot read {path}: {reason}") from error


def map_part(file: RemoteFile, start: int, end: int | None) -> Octets:
    with file.fetch(start, end) as copy:
        return np.asarray(np.memmap(copy, np.uint8, "r"))


class Pieces:
    """A span's bytes with their packets, piece by piece; `damage` is known after the last piece."""

    def __init__(self, span: CaptureSpan, step: int) -> None:
        self.damage: str | None = None
        self._span, self._step = span, step

    def __iter__(self) -> Iterator[Piece]:
        span = self._span
        if span.layout is None:
            yield from self._unpacked()
            return
        if isinstance(span.path, Path):
            data, begin = map_file(span.path), 0
        else:
            data, begin = map_part(span.path, span.start, span.end), span.start
        if len(data) < span.end - begin:
            raise TamperedError(f"{span.path} has become shorter while it was read")
        yield _piece(data, span.start - begin, span.end - begin, span.packets, span.layout)

    def _unpacked(self) -> Iterator[Piece]:
        path, walk, left = self._span.path, None, b""
        chunks = _Unpacking(path)
        for chunk in chunks:
            data = np.frombuffer(left + chunk, np.uint8)
            if walk is None:
                if len(data) < _HEAD:
                    left = data.tobytes()
                    continue
                walk = _Walk(path, data, self._step)
            for start, end, packets, layout in walk.over(data, last=False):
                yield _piece(data, start, end, packets, layout)
            left = data[walk.rest :].tobytes()
            self.damage = walk.damage
            if walk.damage is not None:
                return
        if walk is None:
            raise TamperedError(f"{path} is no capture: {chunks.damage or 'its header is cut'}")
        if chunks.damage is not None:
            self.damage = chunks.damage
        elif left:
            self.damage = f"it is cut: its last {len(left):,} bytes are no whole record"


class _Walk:
    """Goes over bytes as they come, and finds where to cut them."""

    def __init__(self, path: RecordPath, first: Octets, step: int) -> None:
        self.damage: str | None = None
        self.rest = 0
        """Where in the last bytes the first record begins that is not whole."""
        self._path, self._step, self._gone = path, step, 0
        self._walker = _walker(path, first)
        self._begin = self._walker.begin

    def over(self, data: Octets, *, last: bool) -> Iterator[tuple[int, int, int, Layout]]:
        """Start, end, packets and layout of each part with packets; `last` if no bytes follow these."""
        at, reason = self._begin, None
        self._begin = 0
        while at < len(data) and reason != SHORT:
            end, packets, reason = self._walker.walk(data, at, at + self._step)
            if packets:
                self._check()
                yield at, end, packets, self._walker.layout
            at = end
            if reason == ABSURD:
                self.damage = (
                    f"it is damaged at byte {self._gone + at:,}: {self._walker.damage()}; the rest is left out"
                )
                break
        if last and at < len(data) and reason == SHORT:
            self.damage = f"it is cut: its last {len(data) - at:,} bytes are no whole record"
        self.rest = at
        self._gone += at

    def _check(self) -> None:
        links = [interface.link for interface in self._walker.layout.interfaces]
        if links and not LINKS.intersection(links):
            known = ", ".join(str(link) for link in sorted(LINKS))
            raise ConfigError(f"{self._path} has link type {links[0]}, which is not read; those that are: {known}")


def _walker(path: RecordPath, first: Octets) -> Walker:
    head = first[:4].tobytes()
    try:
        if head in pcap.MAGICS:
            return pcap.PcapWalker(first)
        if head == pcapng.SECTION_KIND:
            return pcapng.PcapngWalker(first)
    except TamperedError as error:
        raise TamperedError(f"{path} is no capture: {error}") from error
    raise TamperedError(f"{path} is no capture: what is packed in it is neither pcap nor pcapng")


def _piece(data: Octets, start: int, end: int, packets: int, layout: Layout) -> Piece:
    locate = pcap.locate if layout.format == "pcap" else pcapng.locate
    return Piece(data, locate(data, start, end, packets, layout), layout)


class _Unpacking:
    """The content of a packed file, in chunks of bounded size, as far as it can be unpacked."""

    def __init__(self, path: RecordPath) -> None:
        self.damage: str | None = None
        self._path = path

    def __iter__(self) -> Iterator[bytes]:
        held: list[bytes] = []
        for part in self._parts():
            held.append(part)
            if sum(map(len, held)) >= CHUNK:
                yield b"".join(held)
                held.clear()
        if held:
            yield b"".join(held)

    def _parts(self) -> Iterator[bytes]:
        decoder = zlib.decompressobj(_WITH_HEADER)
        try:
            with self._path.open("rb") if isinstance(self._path, Path) else self._path.fetch() as file:
                # In small bites: a failure loses only the output of the current bite.
                while packed := file.read(_BITE):
                    while packed:
                        if decoder.eof:
                            # Packed files may be concatenated.
                            decoder = zlib.decompressobj(_WITH_HEADER)
                        yield decoder.decompress(packed)
                        packed = decoder.unused_data
        except zlib.error:
            self.damage = "it is damaged: it cannot be unpacked to its end"
        except OSError as error:
            raise StorageError(f"cannot read {self._path}: {error.strerror}") from error
        else:
            if not decoder.eof:
                self.damage = "it is cut: what was packed does not end"


_GZIP: Final = b"\x1f\x8b"
_WITH_HEADER: Final = 31
_BITE: Final = 1 << 12
_HEAD: Final = 28
"""Bytes needed to recognise a format."""
CHUNK: Final = 1 << 24
STEP: Final = 1 << 25
