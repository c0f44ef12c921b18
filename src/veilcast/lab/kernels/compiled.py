"""How kernels are compiled: by numba, once for each machine, with the machine code kept on disk.

What is kept is looked up by the time of the file that a kernel stands in, not of the files of those it calls; so
kernels of one file call those of another only where these are small and hardly ever change, as in `chance`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def compiled(kernel: F) -> F:
    try:
        return cast(F, njit(kernel, cache=True, nogil=True, error_model="numpy"))
    except RuntimeError:
        # There is nowhere to keep it: no directory that we may write to.
        return cast(F, njit(kernel, nogil=True, error_model="numpy"))
