"""How kernels are compiled: by numba, once for each machine, with the machine code kept on disk.

numba looks up what it kept by the time of the file that a kernel stands in, and would not notice that another kernel
that it calls has changed. So what is kept is kept under the digest of all kernels together, those of attackers too:
whoever changes one compiles all of them anew, and no result comes of code that is not there any more.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from importlib import resources
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
        # There is nowhere to keep it: no directory that we may write to.
        return cast(F, njit(kernel, nogil=True, error_model="numpy"))
    finally:
        _CONFIG.CACHE_DIR = before


def _kept(before: str) -> str:
    """Where these kernels are kept: where the user says, or beside their source, or in the user's cache."""
    rooms = [resources.files("veilcast.lab") / room for room in ("models", "attack")]
    files = [file for room in rooms for file in sorted(room.iterdir(), key=lambda entry: entry.name)]
    code = b"".join(file.read_bytes() for file in files if file.name.endswith(".py"))
    digest = blake2b(code, digest_size=8).hexdigest()
    beside, users = Path(__file__).parent / "__pycache__", Path("~/.cache/veilcast/kernels")
    for place in (Path(before),) if before else (beside, users):
        try:
            kept = place.expanduser() / digest
            kept.mkdir(parents=True, exist_ok=True, mode=0o700)
        except (OSError, RuntimeError):  # We may not write there, or have no home, as in some containers.
            continue
        return str(kept)
    return before


_CONFIG: Any = numba.config
_KEPT = _kept(_CONFIG.CACHE_DIR)
