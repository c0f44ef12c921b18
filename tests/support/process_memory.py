"""The memory of this process."""

from __future__ import annotations

import resource


def resident_kib() -> float:
    with open("/proc/self/statm", "rb") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() / 1024
