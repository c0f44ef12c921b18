"""Secret files: locked with a passphrase, mode 0600, and replaced whole or not at all.

The only file of this room that touches a disk. A write goes to a new file beside the old one, is flushed to the disk,
and takes the old one's name in one step. At every moment the old file or the new one is there, whole. A secret file
that others may read, or that another user owns, is refused.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from veilcast.authority.struct_codec import AnyStruct, decode_struct, encode_struct
from veilcast.crypto.passphrase import PassphraseCost, PassphraseLock, make_lock, open_lock
from veilcast.crypto.secret import Secret
from veilcast.errors import PassphraseError, PermissionsError, StorageError, TamperedError
from veilcast.machine import Entropy


def write_secret(path: Path, value: AnyStruct, passphrase: Secret, *, cost: PassphraseCost, entropy: Entropy) -> None:
    """Lock `value` into `path`, and overwrite the former file."""
    rewrite_secret(path, value, make_lock(passphrase, cost, entropy), entropy)


def read_secret(path: Path, kind: type[AnyStruct], passphrase: Secret) -> AnyStruct:
    return open_secret(path, kind, passphrase)[0]


def open_secret(path: Path, kind: type[AnyStruct], passphrase: Secret) -> tuple[AnyStruct, PassphraseLock]:
    """The value that is locked in `path`, and the lock to write it again with."""
    data = read_private_file(path)
    try:
        found = open_lock(data, passphrase)
        return decode_struct(found.unlock(data, purpose=_purpose(kind)), kind, TamperedError), found
    except TamperedError as error:
        raise TamperedError(f"{path}: {error}, or it is another kind of file") from error
    except PassphraseError as error:
        raise PassphraseError(f"{path}: {error}") from error


def reread_secret(path: Path, kind: type[AnyStruct], own: PassphraseLock) -> AnyStruct | None:
    """The value that is locked in `path` now; None if another lock has been used since this one was opened."""
    data = read_private_file(path)
    return decode_struct(own.unlock(data, purpose=_purpose(kind)), kind, TamperedError) if own.fits(data) else None


def rewrite_secret(path: Path, value: AnyStruct, own: PassphraseLock, entropy: Entropy) -> None:
    """Lock `value` into `path`, then overwrite the bytes of the former file with zeros.

    Files that killed commands left beside it are overwritten too: they hold the same keys. A file system that copies on
    write, a journal, a backup or a solid-state disk may keep the old bytes all the same.
    """
    least = _LEAST.get(type(value).__name__, 0)
    data = own.lock(encode_struct(value), purpose=_purpose(type(value)), entropy=entropy, least=least)
    try:
        former = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        former = None
    try:
        replace_file(path, data)
        if former is not None:
            _overwrite(former)
        _erase_left(path)
    finally:
        if former is not None:
            os.close(former)


def read_private_file(path: Path) -> bytes:
    """Read a file of this user that nobody else may read. Raises `PermissionsError` otherwise."""
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


def replace_file(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Put `data` at `path` in one step."""
    if len(data) > FILE_MAX:
        raise StorageError(f"{path} would be larger than any file of ours may be")
    beside = None
    try:
        # Exclusive, under a random name: nothing that stands in the way is followed or written to.
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=_NEW, dir=path.parent)
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
    except BaseException as error:  # Also Ctrl-C: the half-written file may hold a secret.
        if beside is not None:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _storage_error("write", path, error) from error
        raise


def _overwrite(descriptor: int) -> None:
    """Fill a file that no longer has a name with zeros. A file that has another name is a copy, and stays."""
    status = os.fstat(descriptor)
    if status.st_nlink or not stat.S_ISREG(status.st_mode):
        return
    with contextlib.suppress(OSError):  # The new file is in place already.
        os.pwrite(descriptor, bytes(status.st_size), 0)
        os.fsync(descriptor)


def _erase_left(path: Path) -> None:
    """Remove the new files of `replace_file` for this path that never took its name, and overwrite their bytes."""
    left = re.compile(re.escape(f".{path.name}.") + "[a-z0-9_]{8}" + re.escape(_NEW))
    with contextlib.suppress(OSError):  # The new file is in place already.
        for beside in path.parent.iterdir():
            if left.fullmatch(beside.name):
                descriptor = os.open(beside, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                try:
                    beside.unlink()
                    _overwrite(descriptor)
                finally:
                    os.close(descriptor)


def flush_directory(directory: Path) -> None:
    """Make sure that a file which was made or renamed there will be found there."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def lock_directory(directory: Path, by: str = "another command; wait for it to end") -> Iterator[None]:
    """Lock a directory for one process. A second process gets an error at once that names the holder, `by`."""
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


def is_directory_locked(directory: Path) -> bool:
    """True if a process has locked the directory by `lock_directory`."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def _storage_error(verb: str, path: Path, error: OSError) -> StorageError:
    return StorageError(f"cannot {verb} {path}: {error.strerror or error}")


def _purpose(kind: type) -> bytes:
    """The purpose of one kind of locked file, which can never be read as another kind."""
    return _PURPOSES.get(kind.__name__, b"veilcast/" + kind.__name__.lower().encode())


LOCKED_BY_NODE: Final = "another node; stop that one first, or name another directory"
FILE_MAX: Final = 256 << 20
_NEW: Final = ".new"
_PURPOSES: Final = {"PendingRequest": b"veilcast/asking"}
"""Purposes that differ from the name of their struct. A purpose is part of the file format and never changes."""
_LEAST: Final = {"Keyring": 256 << 10}
"""The least size of a file, in bytes. Keyrings are padded, so that their size does not show what was granted."""
