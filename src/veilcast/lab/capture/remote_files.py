"""Captures and taps on one of Hadoop's file systems, with as much of a path as readers use.

A part of a capture is fetched by the task that reads it. The pass that cuts a capture into parts, and every pass over a
packed one, fetch the file whole into scratch space.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self, TypeAlias

import msgspec

from veilcast.lab.spark.locations import NO_OPTIONS, LocationAddress, address_of, open_location
from veilcast.lab.spark.master import LOCAL
from veilcast.lab.spark.settings import SparkOptions
from veilcast.lab.storage.location import StoredFile, parse_local


class FileSize(NamedTuple):
    st_size: int


class RemoteFile(msgspec.Struct, frozen=True):
    """A file or directory; its methods do what those of `Path` do. Failures are `StorageError`."""

    name: str
    """Below the location; empty for the location itself."""
    address: LocationAddress

    def __str__(self) -> str:
        return f"{self.address.place}/{self.name}".rstrip("/")

    def __truediv__(self, name: str) -> Self:
        return type(self)(f"{self.name}/{name}".lstrip("/"), self.address)

    def resolve(self) -> Self:
        return self

    def exists(self) -> bool:
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        return any(file.name == self.name for file in self._files())

    def is_dir(self) -> bool:
        return any(file.name != self.name for file in self._files())

    def iterdir(self) -> Iterator[Self]:
        """The files of the directory, and no directories below it."""
        start = f"{self.name}/".lstrip("/")
        return (file for file in self._every() if "/" not in file.name.removeprefix(start))

    def rglob(self, name: str) -> Iterator[Self]:
        return (file for file in self._every() if file.name.rpartition("/")[2] == name)

    def stat(self) -> FileSize:
        return FileSize(sum(file.bytes for file in self._files()))

    def open(self, mode: str) -> BinaryIO:
        return self.address.open().open_file(self.name)

    def fetch(self, start: int = 0, end: int | None = None) -> BinaryIO:
        """A copy of the file on this machine, or of a part of it; it is gone when it is closed."""
        return self.address.open_remote().fetch(self.name, start, end)

    def _files(self) -> list[StoredFile]:
        return self.address.open().list_files(self.name)

    def _every(self) -> list[Self]:
        return [type(self)(file.name, self.address) for file in self._files()]


RecordPath: TypeAlias = Path | RemoteFile


def find_records(place: str | Path, master: str = LOCAL, options: SparkOptions = NO_OPTIONS) -> RecordPath:
    """The file or directory that a text names, as `open_location` finds it."""
    path = place if isinstance(place, Path) else parse_local(place)
    return path if path is not None else RemoteFile("", address_of(open_location(str(place), master, options)))
