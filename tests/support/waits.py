"""How tests wait: for an event, never for a time.

A test that waits for a process, a socket or a file says which event it waits for. `HANG_S` is the only guard against a
wait without end. It decides nothing: on a machine that other work keeps busy, a test takes longer and passes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final


def wait_until(condition: Callable[[], object]) -> None:
    """Return once the condition holds. For what gives no event of its own, such as a file of another process."""
    end = time.monotonic() + HANG_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {HANG_S:g} s")
        time.sleep(_LOOK_S)


async def until(condition: Callable[[], object]) -> None:
    """The same on an event loop, which goes on meanwhile."""
    async with asyncio.timeout(HANG_S):
        while not condition():
            await pause()


async def pause() -> None:
    """Let others go on for a moment before a test looks again. How long it is must not matter."""
    await asyncio.sleep(_LOOK_S)


HANG_S: Final = 1_800.0
"""Seconds after which a test that waits is taken to hang. The longest test takes some 120 s on a quiet machine."""
_LOOK_S: Final = 0.01
