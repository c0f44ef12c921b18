"""A location of stored files: a directory of this machine, or a place on another file system.

A location can do no more than object stores can: list, read, create and delete. Nothing is renamed, locked, appended to
or replaced. There are two kinds of new files:

- a data file (`open_new`) has a name that no other attempt has. Readers ignore it until an entry of a log lists it, so
  it may be incomplete while it is written;
- an entry of a log (`create`) has a name that several writers may want. The first writer gets it.

Names are relative to the location, with slashes.
"""

from __future__ import annotations

import errno
import io
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, Protocol, cast
from urllib.parse import unquote

from veilcast.errors import ConfigError, StorageError


class StoredFile(NamedTuple):
    name: str
    bytes: int


class Location(Protocol):
    """All failures are `StorageError`, with the place and the reason."""

    @property
    def place(self) -> str:
        """The location as the user writes it, absolute."""

    def check_writable(self) -> None:
        """Raise `StorageError` if it shows without writing that nothing can be written."""

    def path_of(self, name: str) -> str:
        """The whole path of a file, for people."""

    def uri_of(self, name: str) -> str:
        """The whole path of a file, as Spark reads it."""

    def list_files(self, below: str) -> list[StoredFile]:
        """Every file below a directory, at any depth, in the order of the names. Empty if there is no such
        directory."""

    def open_file(self, name: str) -> BinaryIO:
        """A file to read from any position."""

    def open_new(self, name: str) -> BinaryIO:
        """A new data file. It is durable once it is closed."""

    def create(self, name: str, data: bytes) -> bool:
        """Create an entry. False if it exists already, whoever created it. It is durable when this returns."""

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""


class LocalDirectory:
    """A directory of this machine.

    Claim: `create` has one winner, and no reader sees a part of an entry.
    Assumption: `link` of the file system fails if the new name exists, and is otherwise complete or not done at all.
    Reason: the bytes are written and flushed under a name of their own first, and then linked to the entry's name.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def place(self) -> str:
        return str(self.root.absolute())

    def check_writable(self) -> None:
        place = self.root.absolute()
        try:
            while not place.exists():
                place = place.parent
            if not place.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "")
            if not os.access(place, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, "")
        except OSError as error:
            raise explain_error("write", str(self.root), error) from error

    def path_of(self, name: str) -> str:
        return str(self.root / name)

    def uri_of(self, name: str) -> str:
        return f"file://{(self.root / name).resolve()}"

    def list_files(self, below: str) -> list[StoredFile]:
        top = self.root / below
        try:
            found = [path for path in top.rglob("*") if path.is_file()]
            return sorted(StoredFile(path.relative_to(self.root).as_posix(), path.stat().st_size) for path in found)
        except OSError as error:
            raise explain_error("list", str(top), error) from error

    def open_file(self, name: str) -> BinaryIO:
        try:
            return (self.root / name).open("rb")
        except OSError as error:
            raise explain_error("read", self.path_of(name), error) from error

    def open_new(self, name: str) -> BinaryIO:
        path = self.root / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return cast(BinaryIO, _NewFile(path))
        except OSError as error:
            raise explain_error("write", str(path), error) from error

    def create(self, name: str, data: bytes) -> bool:
        path = self.root / name
        beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with _NewFile(beside) as file:
                    file.write(data)
                return self._link(beside, path)
            finally:
                beside.unlink(missing_ok=True)
        except OSError as error:
            raise explain_error("write", str(path), error) from error

    def _link(self, beside: Path, path: Path) -> bool:
        try:
            os.link(beside, path)
        except FileExistsError:
            return False
        except OSError as error:
            # A file system that has no links says so by one of several errors; the entry was written all right.
            raise StorageError(
                f"cannot write {path}: its file system makes no hard links ({os.strerror(error.errno or 0)}), which "
                "decide between two writers; choose a directory on another"
            ) from error
        _flush_directory(path.parent)
        return True

    def delete(self, name: str) -> None:
        try:
            (self.root / name).unlink(missing_ok=True)
        except OSError as error:
            raise explain_error("delete", self.path_of(name), error) from error


class _NewFile(io.BufferedWriter):
    """A new local file that is on the disk once it is closed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        super().__init__(io.FileIO(path, "xb"))

    def write(self, data: object) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            raise explain_error("write", str(self._path), error) from error

    def close(self) -> None:
        if self.closed:
            return
        try:
            try:
                self.flush()
                os.fsync(self.fileno())
            finally:
                super().close()
            _flush_directory(self._path.parent)
        except OSError as error:
            raise explain_error("write", str(self._path), error) from error


def read_file(location: Location, name: str) -> bytes:
    with location.open_file(name) as file:
        return file.read()


def parse_local(text: str) -> Path | None:
    """The path that a text names on this machine; None if the text names a location of another file system.

    `file:` locations are of this machine: Hadoop's own local file system cannot decide between two writers.
    """
    found = _SCHEME.match(text)
    if found is None:
        return Path(text)
    if found[1].lower() != "file":
        return None
    rest = text[len("file:") :]
    if rest.startswith("//") and not rest.startswith("///"):
        raise ConfigError(f"{text}: names a host; a directory of this machine is file:///path")
    return Path("/" + unquote(rest).lstrip("/"))


def require_local(path: Path) -> Path:
    """The path of what a command writes for people, on this machine."""
    found = parse_local(str(path))
    if found is None:
        raise ConfigError(f"--out {path}: is no path of this machine, and pages are written there alone")
    return found


def explain_error(what: str, path: str, error: OSError) -> StorageError:
    return StorageError(f"cannot {what} {path}: {os.strerror(error.errno) if error.errno else error}")


def _flush_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def iterate_chunks(file: BinaryIO) -> Iterator[bytes]:
    """The rest of a file, in parts of bounded size."""
    while part := file.read(_CHUNK):
        yield part


_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):/")
"""A scheme has two letters at least: one letter is a drive."""
_CHUNK: Final = 1 << 22
