"""No test decides by the speed of a machine: the rules of `time_rules`, held against all tests and their harnesses."""

from __future__ import annotations

from pathlib import Path

import pytest

from time_rules import time_violations

TESTS = Path(__file__).parent
FILES = sorted(TESTS.rglob("*.py"))
EXCEPTIONS = {
    "patience.py": "waits for all other tests",
    "cli/test_compose.py": "keyrings hold for the time of day, which the composed node reads",
    "net/crowd.py": "TLS certificates hold for the time of day, which OpenSSL reads",
    "live/test_tree_hijack.py": "a forged descriptor bears the time of day, which the directory compares with its own",
    "fuzz/targets_net.py": "TLS certificates hold for the time of day, which OpenSSL reads",
    "fuzz/fuzz.py": "no test: hunts for so many seconds as its caller asks for",
    "fuzz/fuzz_worker.py": "no test: hunts for so many seconds as its caller asks for",
    "lab/audit/test_recorded_network.py": "the recorded traffic is publications half a second apart",
    "live/test_foil_hostile.py": "a hostile broker goes on to its next caller if this one does not read",
    "live/test_tree_tor.py": "holds a claim on time: notifications arrive again within a minute of a relay's death",
}
"""Files that read a clock or bound a wait, and why none of them fails on a slow machine for it."""


def test_tests_wait_for_events_and_read_no_clock() -> None:
    found = {
        str(path.relative_to(TESTS)): breaches for path in FILES if (breaches := time_violations(path.read_text()))
    }
    assert {name: breaches for name, breaches in found.items() if name not in EXCEPTIONS} == {}
    assert [name for name in EXCEPTIONS if name not in found] == [], "no exception is needed there"


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
def test_the_checker_lets_pass_what_is_allowed(fine: str) -> None:
    assert time_violations(fine) == []
