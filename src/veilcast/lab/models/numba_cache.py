"""The decorator that compiles models with numba, once for each machine, and caches the machine code on disk.

numba validates its cache by the time of the file of a function. It would not notice that another function, which the
first one calls, has changed. So the cache has the digest of all models and attackers in its path: a change of one
compiles all of them again, and no result comes from outdated code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def jit(kernel: F) -> F:
    before, _CONFIG.CACHE_DIR = _CONFIG.CACHE_DIR, _KEPT
    try:
        return cast(F, njit(kernel, cache=True, nogil=True, error_model="numpy"))
    except RuntimeError:
        # There is no writable directory for the cache.
        return cast(F, njit(kernel, nogil=True, error_model="numpy"))
    finally:
        _CONFIG.CACHE_DIR = before


def _cache_directory(before: str) -> str:
    """The cache directory: where the user says, or beside the source, or in the user's cache."""
    rooms = [resources.files("veilcast.lab") / room for room in ("models", "attack")]
    code = b"".join(file.read_bytes() for room in rooms for file in _source_files(room))
    digest = blake2b(code, digest_size=8).hexdigest()
    beside, users = Path(__file__).parent / "__pycache__", Path("~/.cache/veilcast/kernels")
    for place in (Path(before),) if before else (beside, users):
        try:
            kept = place.expanduser() / digest
            kept.mkdir(parents=True, exist_ok=True, mode=0o700)
        except (OSError, RuntimeError):  # The directory is not writable, or there is no home, as in some containers.
            continue
        return str(kept)
    return before


def _source_files(room: Traversable) -> Iterator[Traversable]:
    """All Python files below a directory, which can be in an archive."""
    for entry in sorted(room.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _source_files(entry)
        elif entry.name.endswith(".py"):
            yield entry


_CONFIG: Any = numba.config
_KEPT = _cache_directory(_CONFIG.CACHE_DIR)
