"""The resources of this machine, and Spark's part of them.

Python processes beside the Java machine do the work of a sweep, one for each core, and own their memory. So Java gets a
quarter of the memory, within bounds. In a container the limit of its control group counts, not the machine's memory.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

import msgspec


class Resources(msgspec.Struct, frozen=True):
    cores: int
    memory_mb: int

    @classmethod
    def of_machine(cls, group: Path = Path("/sys/fs/cgroup/memory.max")) -> Resources:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        with contextlib.suppress(OSError, ValueError):  # There is no such group, or it says "max".
            memory = min(memory, int(group.read_text()))
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return cls(cores, memory >> 20)

    @property
    def driver_mb(self) -> int:
        """Java's memory on this machine, in MB."""
        return min(max(self.memory_mb // 4, DRIVER_MB_MIN), DRIVER_MB_MAX)


DRIVER_MB_MIN: Final = 1024
DRIVER_MB_MAX: Final = 8192
