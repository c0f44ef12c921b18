"""The checker of `time_rules` finds planted breaches; `test_meta.py` runs it over all tests."""

from __future__ import annotations

import pytest

from support.time_rules import time_violations


@pytest.mark.parametrize(
    "breach",
    [
        "import time\ntime.sleep(1)",
        "from time import sleep",
        "import time\nassert time.monotonic() < deadline",
        "import time\nbegun = time.perf_counter()",
        "asyncio.get_running_loop().time()",
        "loop.time()",
        "async def f(): await asyncio.sleep(0.01)",
        "async def f(): await asyncio.sleep(delay)",
        "async def f():\n  async with asyncio.timeout(20): pass",
        "async def f(): await asyncio.wait_for(task, 5)",
        "async def f(): await asyncio.wait([task], timeout=1.0)",
        "TIMEOUT_S = 60\nchild.communicate(timeout=TIMEOUT_S)",
        "subprocess.run(command, timeout=120)",
        "child.wait(30)",
        "event.wait(TIMEOUT_S)",
        "thread.join(60)",
        "stream.settimeout(20)",
        "in_house(disk, plan, test, within_s=60)",
        "in_house(disk, plan, test, within_s=0.5 * HANG_S)",
        "def in_house(test, within_s=60.0): pass",
        "def in_house(test, *, within_s=60.0): pass",
    ],
)
def test_the_checker_finds_each_planted_breach(breach: str) -> None:
    assert time_violations(breach)


@pytest.mark.parametrize(
    "fine",
    [
        "async def f(): await asyncio.sleep(0)",
        "subprocess.run(command, timeout=HANG_S)",
        "async def f():\n  async with asyncio.timeout(HANG_S): pass",
        "in_house(disk, plan, test, within_s=10 * HANG_S)",
        "def in_house(test, within_s=HANG_S): asyncio.timeout(within_s)",
        "child.wait()",
        "', '.join(names)",
        "desk.join(4)",
        "link = Transfer(timeout_us=1)",
        "world.run(duration_us)",
        "stream.settimeout(None)",
    ],
)
def test_the_checker_accepts_allowed_code(fine: str) -> None:
    assert time_violations(fine) == []
