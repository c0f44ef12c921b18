"""Secret files: locked with a passphrase, mode 0600, and replaced whole or not at all.

The only file of this room that touches a disk. A write goes to a new file beside the old one, is flushed to the disk,
and takes the old one's name in one step; whatever happens in between, the old file or the new one is there, whole. A
secret file that others may read is refused, and so is one of another owner.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from veilcast.authority.plain import Plain, from_bytes, to_bytes
from veilcast.crypto.passphrase import Cost, lock, unlock
from veilcast.crypto.secret import Secret
from veilcast.errors import PassphraseError, PermissionsError, StorageError, TamperedError
from veilcast.machine import Entropy


def write_secret(path: Path, value: Plain, passphrase: Secret, *, cost: Cost, entropy: Entropy) -> None:
    """Lock `value` into `path`."""
    write_whole(path, lock(to_bytes(value), passphrase, purpose=_purpose(type(value)), cost=cost, entropy=entropy))


def read_secret(path: Path, kind: type[Plain], passphrase: Secret) -> Plain:
    data = read_private(path)
    try:
        return from_bytes(unlock(data, passphrase, purpose=_purpose(kind)), kind, TamperedError)
    except TamperedError as error:
        raise TamperedError(f"{path}: {error}, or it is another kind of file") from error
    except PassphraseError as error:
        raise PassphraseError(f"{path}: {error}") from error


def read_private(path: Path) -> bytes:
    """Read a file that nobody else may read; `PermissionsError` if somebody may."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid():
                raise PermissionsError(f"{path} belongs to another user; only its owner may use it")
            if stat.S_IMODE(status.st_mode) & 0o077:
                raise PermissionsError(f"{path} can be read by others; chmod 600 {path}")
            if status.st_size > FILE_MAX:
                raise TamperedError(f"{path} is larger than any file of ours")
            return file.read()
    except OSError as error:
        raise _storage_error("read", path, error) from error


def write_whole(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Put `data` at `path` in one step."""
    if len(data) > FILE_MAX:
        raise StorageError(f"{path} would be larger than any file of ours may be")
    beside = None
    try:
        # Exclusive, under a random name: nothing that stands in the way is followed or written to.
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)
        beside = Path(name)
        try:
            os.fchmod(descriptor, mode)
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(beside, path)
        flush_directory(path.parent)
    except BaseException as error:  # Of Ctrl-C, too: what is half written may be a secret.
        if beside is not None:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _storage_error("write", path, error) from error
        raise


def flush_directory(directory: Path) -> None:
    """Make sure that a file which was made or renamed there will be found there."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def alone(directory: Path, by: str = "another command; wait for it to end") -> Iterator[None]:
    """Hold a directory for one process; a second one is told so at once, and by whom."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _storage_error("open", directory, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise StorageError(f"{directory} is in use by {by}") from error
    try:
        yield
    finally:
        os.close(descriptor)


def _storage_error(verb: str, path: Path, error: OSError) -> StorageError:
    return StorageError(f"cannot {verb} {path}: {error.strerror or error}")


def _purpose(kind: type) -> bytes:
    """One kind of locked file can never be read as another."""
    return b"veilcast/" + kind.__name__.lower().encode()


FILE_MAX: Final = 256 << 20
