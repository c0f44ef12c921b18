"""The rules on time in tests, as a checker over syntax trees: a test waits for an event, and reads no clock.

`time_violations(source)` gives one line for each breach. Why each is banned stands in
docs/decisions/0047-tests-wait-for-events.md; `tests/test_meta.py` runs the checker over all tests, and
`tests/test_time_rules.py` shows that it finds planted breaches.

1. A limit on a wait (`timeout=`, `asyncio.timeout`, `wait_for`, `settimeout`, `communicate`, `join`, `wait`) is
   `patience.HANG_S`, or none. Any other limit is a guess about the speed of a machine.
2. No test sleeps. `asyncio.sleep(0)` lets the event loop go on, and is allowed. `patience` waits for what has no event.
3. No test reads a clock, except where a product needs the time of day; `EXCEPTIONS` names those.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final


def time_violations(source: str) -> list[str]:
    found = {*_calls(ast.parse(source))} if SUSPECT.search(source) else set()
    return [f"line {line}: {what}" for line, what in sorted(found)]


Breach = tuple[int, str]


def _calls(tree: ast.AST) -> Iterator[Breach]:
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module="time", names=names):
                yield from ((node.lineno, f"time.{name.name}") for name in names if name.name in CLOCKS)
            case ast.Attribute(value=ast.Name(id="time"), attr=name) if name in CLOCKS:
                yield node.lineno, f"time.{name}"
            case ast.Call(func=ast.Attribute(attr="time", value=owner), args=[]) if "loop" in ast.unparse(owner):
                yield node.lineno, ast.unparse(node)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="asyncio"), attr="sleep"), args=[argument]):
                if not _is_zero(argument):
                    yield node.lineno, ast.unparse(node)
            case ast.Call():
                yield from ((node.lineno, ast.unparse(limit)) for limit in _limits(node) if not _is_patient(limit))
            case ast.arguments():
                yield from ((limit.lineno, ast.unparse(limit)) for limit in _defaults(node) if not _is_patient(limit))


def _limits(call: ast.Call) -> Iterator[ast.expr]:
    """The limits on a wait that this call is given."""
    yield from (keyword.value for keyword in call.keywords if keyword.arg in LIMITS)
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name) if (at := WAITS.get(name)) is not None:
            yield from call.args[at : at + 1]
        case ast.Attribute(attr="wait") if len(call.args) == 1 and _is_number(call.args[0]):
            yield call.args[0]
        case ast.Attribute(attr="join", value=ast.Name(id=name)) if call.args and (
            "thread" in name or "process" in name
        ):
            yield call.args[0]


def _defaults(arguments: ast.arguments) -> Iterator[ast.expr]:
    """Default values that are limits."""
    plain = [*arguments.posonlyargs, *arguments.args]
    pairs = zip(reversed(plain), reversed(arguments.defaults), strict=False)
    for argument, default in (*pairs, *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)):
        if argument.arg in LIMITS and default is not None:
            yield default


def _is_patient(limit: ast.expr) -> bool:
    match limit:
        case ast.BinOp(left=ast.Constant(value=int(times)), op=ast.Mult(), right=right) if times >= 1:
            return _is_patient(right)
    # A parameter's callers, and its default, are looked at themselves.
    return ast.unparse(limit) in ("HANG_S", "None", *LIMITS)


def _is_zero(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value == 0


def _is_number(value: ast.expr) -> bool:
    """True for a number and for a constant that stands for one, as `TIMEOUT_S`; `", ".join(names)` has none."""
    if isinstance(value, ast.Name):
        return value.id.endswith("_S")
    return isinstance(value, ast.Constant) and isinstance(value.value, int | float)


SUSPECT: Final = re.compile(
    r"timeout|within_s|wait_for|\bsleep|\btime\.\w|from time\b|loop\w*(\(\))?\.time\("
    r"|\.wait\([^)]|(thread|process)\w*\.join\("
)
"""A source without any of these breaks no rule: most have none, and to parse them all takes seconds."""
CLOCKS: Final = frozenset(
    {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep", "thread_time", "time", "time_ns"}
    | {"process_time", "process_time_ns"}
)
LIMITS: Final = frozenset({"timeout", "timeout_s", "within_s"})
WAITS: Final = {"settimeout": 0, "timeout": 0, "timeout_at": 0, "wait_for": 1}
"""Calls whose positional argument is a limit, and at which place."""

EXCEPTIONS = {
    "support/waits.py": "waits for all other tests",
    "cli/test_compose.py": "keyrings hold for the time of day, which the composed node reads",
    "support/tls_parties.py": "TLS certificates hold for the time of day, which OpenSSL reads",
    "live/test_tree_hijack.py": "a forged descriptor bears the time of day, which the directory compares with its own",
    "support/fuzz/targets_net.py": "TLS certificates hold for the time of day, which OpenSSL reads",
    "support/fuzz/fuzz.py": "no test: hunts for so many seconds as its caller asks for",
    "support/fuzz/fuzz_worker.py": "no test: hunts for so many seconds as its caller asks for",
    "lab/audit/test_recorded_network.py": "the recorded traffic is publications half a second apart",
    "live/test_foil_hostile.py": "a hostile broker goes on to its next caller if this one does not read",
    "live/test_tree_tor.py": "holds a claim on time: notifications arrive again within a minute of a relay's death",
}
"""Files that read a clock or bound a wait, and why none of them fails on a slow machine for it."""
