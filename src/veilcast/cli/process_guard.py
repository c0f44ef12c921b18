"""A process that holds secrets writes no core dump and lets no process of the same user read its memory.

`RLIMIT_CORE` is set to 0 on every system that has it, and is inherited by child processes. On Linux the process is also
made not dumpable (`PR_SET_DUMPABLE`): a core dump goes to no pipe either, and ptrace and `/proc/PID/mem` are for root
alone. Memory is not locked (`mlock`): Python copies secrets freely, and the default limit of a user, 8 MB, is less than
Argon2id alone needs. So a machine without encrypted swap can still write secrets to its disk.
"""

from __future__ import annotations

import contextlib
import ctypes
import resource
import sys
from typing import Final


def guard_process() -> None:
    """Called before a passphrase is asked for; does no harm when it is called again, or cannot be done."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


_PR_SET_DUMPABLE: Final = 4
