"""A location on one of Hadoop's file systems.

Claim: `create` has one winner.
Assumption: one of these holds.
1. The file system asks its server to create a file only if none has the name, and the server decides: `hdfs`,
   `webhdfs`, `swebhdfs` (the name node, under its lock) and `abfs`, `abfss` (the request carries `If-None-Match`).
2. It has the option `fs.option.create.conditional.overwrite`, and says so: `s3a` of Hadoop 3.4.2 and later. The store
   decides when the file is closed, and no file shows before.
Any other file system can be read, and is refused for results: it looks whether a name is free, and then creates.

An entry can show before it is complete, and stay so after a kill; `write_once_log` takes care of that. If a connection
is lost while an entry is created, the entry may exist. Then the writer fails, and the next one counts the entry.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, cast
from urllib.parse import urlsplit

from veilcast.errors import ConfigError, StorageError, VeilcastError
from veilcast.lab.spark import hadoop_gateway
from veilcast.lab.spark.hadoop_gateway import HadoopSettings, JavaCallError, java_errors, make_scratch_file
from veilcast.lab.storage.location import StoredFile


class HadoopDirectory:
    """A `Location`. Raises `ConfigError` if Spark has no file system for its scheme."""

    def __init__(self, place: str, settings: HadoopSettings) -> None:
        self.settings = settings
        parts = urlsplit(place)
        if parts.password:
            raise ConfigError(f"{parts.scheme}://{parts.hostname}: a location must not hold a password")
        if parts.netloc and not parts.path:
            place += "/"
        self._gateway = hadoop_gateway.find_gateway()
        try:
            with java_errors(settings):
                root = self._gateway.jvm.org.apache.hadoop.fs.Path(place)
                top = f"{parts.scheme}://{parts.netloc}/"
                self._system = hadoop_gateway.open_file_system(self._gateway, top, settings)
                self.place: str = self._system.makeQualified(root).toString()
        except JavaCallError as error:
            raise _explain_opening(parts.scheme, place, error, self._gateway) from None

    def check_reachable(self) -> None:
        """Raise `StorageError` if no server answers, or if it does not let us in."""
        with self._calls("read", self.place, missing_ok=True):
            self._system.getFileStatus(self._path(""))

    def check_writable(self) -> None:
        with self._calls("write", self.place):
            status = self._nearest_existing()
            if not status.isDirectory():
                raise explain("write", status.getPath().toString(), os.strerror(errno.ENOTDIR))
            self._system.access(status.getPath(), self._jvm.org.apache.hadoop.fs.permission.FsAction.WRITE)
            scheme = self._system.resolvePath(status.getPath()).toUri().getScheme()
        if scheme not in _DECIDING and not self._is_conditional():
            raise ConfigError(
                f"{self.place}: results cannot be written there, for {scheme}: does not decide between two writers; "
                f"those that do are a directory of this machine, {', '.join(_DECIDING)}, and s3a from Hadoop 3.4.2 on"
            )

    def path_of(self, name: str) -> str:
        return f"{self.place.rstrip('/')}/{name}".rstrip("/")

    def uri_of(self, name: str) -> str:
        return self.path_of(name)

    def list_files(self, below: str) -> list[StoredFile]:
        found, start = [], len(self.path_of("x")) - 1
        with self._calls("list", self.path_of(below), missing_ok=True):
            files = self._system.listFiles(self._path(below), True)
            while files.hasNext():
                status = files.next()
                found.append(StoredFile(status.getPath().toString()[start:], status.getLen()))
        return sorted(found)

    def open_file(self, name: str) -> BinaryIO:
        with self._calls("read", self.path_of(name)):
            status = self._system.getFileStatus(self._path(name))
            file = _RemoteFile(self, name, status.getLen(), self._system.open(self._path(name)))
        return cast(BinaryIO, io.BufferedReader(file, _SMALL_READ))

    def open_new(self, name: str) -> BinaryIO:
        return cast(BinaryIO, _NewFile(self, name))

    def upload(self, scratch: Path, name: str) -> None:
        with self._calls("write", self.path_of(name)):
            source = self._jvm.org.apache.hadoop.fs.Path(f"file://{scratch}")
            self._system.copyFromLocalFile(False, False, source, self._path(name))

    def create(self, name: str, data: bytes) -> bool:
        with self._calls("write", self.path_of(name)):
            try:
                with java_errors(self.settings):
                    builder = self._system.createFile(self._path(name)).recursive().overwrite(False)
                    if self._is_conditional():
                        builder = builder.must(_CONDITIONAL, "true")
                    stream = builder.build()
                    stream.write(data)
                    stream.close()
            except JavaCallError as error:
                if _TAKEN.isdisjoint(error.kinds):
                    raise
                return False
        return True

    def delete(self, name: str) -> None:
        with self._calls("delete", self.path_of(name)):
            self._system.delete(self._path(name), False)

    def fetch(self, name: str, start: int = 0, end: int | None = None) -> BinaryIO:
        """A copy of a file in scratch space, or of a part of it; it is gone when it is closed."""
        with self._calls("read", self.path_of(name)):
            stop = self._system.getFileStatus(self._path(name)).getLen() if end is None else end
            stream = self._system.open(self._path(name))
            try:
                return self._copy_range(stream, start, stop - start)
            finally:
                stream.close()

    def read_range(self, stream: Any, name: str, start: int, size: int) -> bytes:
        """Some bytes of an open file of this name; fewer, if the file has become shorter."""
        with self._calls("read", self.path_of(name)):
            if size <= _SMALL_READ:
                stream.seek(start)
                return bytes(stream.readNBytes(size))
            with self._copy_range(stream, start, size) as copy:
                return copy.read()

    def _copy_range(self, stream: Any, start: int, size: int) -> BinaryIO:
        stream.seek(start)
        scratch = make_scratch_file()
        try:
            target = self._jvm.java.io.FileOutputStream(str(scratch))
            try:
                self._jvm.org.apache.hadoop.util.LimitInputStream(stream, size).transferTo(target)
            finally:
                target.close()
            return scratch.open("rb")
        finally:
            scratch.unlink()

    @property
    def _jvm(self) -> Any:
        return self._gateway.jvm

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.path_of(name))

    def _nearest_existing(self) -> Any:
        path = self._path("")
        while path is not None:
            try:
                with java_errors(self.settings):
                    return self._system.getFileStatus(path)
            except JavaCallError as error:
                if not error.is_missing:
                    raise
                path = path.getParent()
        raise explain("write", self.place, os.strerror(errno.ENOENT))

    def _is_conditional(self) -> bool:
        return bool(self._system.hasPathCapability(self._path(""), _CONDITIONAL))

    @contextlib.contextmanager
    def _calls(self, what: str, path: str, *, missing_ok: bool = False) -> Iterator[None]:
        """Raise failures as errors of ours, in one line; none for a missing file, with `missing_ok`."""
        try:
            with java_errors(self.settings):
                yield
        except JavaCallError as error:
            if error.is_missing and missing_ok:
                return
            raise explain(what, path, error.reason) from None
        except OSError as error:
            raise explain(what, path, f"no scratch space: {error.strerror or error}") from error


class _RemoteFile(io.RawIOBase):
    """A file to read from any position."""

    def __init__(self, location: HadoopDirectory, name: str, size: int, stream: Any) -> None:
        self._location, self._name, self._size, self._stream = location, name, size, stream
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence])
        return self._at

    def readinto(self, buffer: Any) -> int:
        size = min(len(buffer), self._size - self._at)
        if size <= 0:
            return 0
        data = self._location.read_range(self._stream, self._name, self._at, size)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def readall(self) -> bytes:
        data = self._location.read_range(self._stream, self._name, self._at, max(0, self._size - self._at))
        self._at += len(data)
        return data

    def close(self) -> None:
        if not self.closed:
            # What was read is read.
            with contextlib.suppress(Exception):
                self._stream.close()
        super().close()


class _NewFile(io.BufferedWriter):
    """A new file, written to this machine's scratch space and copied when it is closed."""

    def __init__(self, location: HadoopDirectory, name: str) -> None:
        self._location, self._name = location, name
        try:
            self._scratch = make_scratch_file()
        except OSError as error:
            raise explain("write", location.path_of(name), f"no scratch space: {error.strerror or error}") from error
        super().__init__(io.FileIO(self._scratch, "wb"))

    def write(self, data: object) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            raise explain("write", str(self._scratch), error.strerror or str(error)) from error

    def close(self) -> None:
        if self.closed:
            return
        try:
            super().close()
            self._location.upload(self._scratch, self._name)
        except OSError as error:
            raise explain("write", str(self._scratch), error.strerror or str(error)) from error
        finally:
            self._scratch.unlink(missing_ok=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._discard()

    def __del__(self) -> None:
        self._discard()

    def _discard(self) -> None:
        """Half a file is of use to nobody."""
        if not self.closed:
            with contextlib.suppress(OSError):
                super().close()
            self._scratch.unlink(missing_ok=True)


def explain(what: str, path: str, reason: str) -> StorageError:
    return StorageError(f"cannot {what} {path}: {reason}")


def _explain_opening(scheme: str, place: str, error: JavaCallError, gateway: Any) -> VeilcastError:
    if "UnsupportedFileSystemException" in error.kinds:
        return ConfigError(f"{place}: Spark has no file system for {scheme}:")
    if "ClassNotFoundException" in error.kinds:
        version = gateway.jvm.org.apache.hadoop.util.VersionInfo.getVersion()
        jar = f"org.apache.hadoop:{_PACKAGES.get(scheme, 'hadoop-...')}:{version}"
        return ConfigError(f"{place}: the jar for {scheme}: is missing; --conf spark.jars.packages={jar} brings it")
    return StorageError(f"cannot open {place}: {error}")


_DECIDING: Final = ("hdfs", "webhdfs", "swebhdfs", "abfs", "abfss")
_CONDITIONAL: Final = "fs.option.create.conditional.overwrite"
_TAKEN: Final = frozenset({"FileAlreadyExistsException", "AlreadyBeingCreatedException", "RemoteFileChangedException"})
"""Failures that say that another writer has the name, or is about to have it."""
_PACKAGES: Final = {"s3a": "hadoop-aws", "abfs": "hadoop-azure", "abfss": "hadoop-azure", "gs": "hadoop-gcp"}
_SMALL_READ: Final = 1 << 16
"""Most bytes of a read that go over py4j."""
