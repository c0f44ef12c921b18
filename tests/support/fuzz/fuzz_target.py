"""A fuzz target: a name, a function of bytes, the errors that its contract names, and inputs to start from.

To prepare a target may take long (keys, machines, a compiled model), so a table holds functions that prepare one. `run`
runs a prepared target on one input, and raises every error that the contract does not name.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from support.fuzz import fuzz_feedback


class Format(enum.Enum):
    """The format of a target's inputs, which decides its hostile seeds and its mutator."""

    BYTES = "bytes"
    MSGPACK = "msgpack"
    JSON = "json"
    TOML = "toml"
    SCRIPT = "script"
    """Several records for one machine, see `fuzz_script`."""


@dataclass(frozen=True)
class Prepared:
    check: Callable[[bytes], object]
    """Parses one input. If the parser is compiled and gives no coverage, the result is the feedback."""
    may_raise: tuple[type[Exception], ...]
    """The errors that the parser's contract names; none for `receive()` of a machine."""
    examples: Sequence[bytes]
    """Valid inputs, made by the project's own encoders."""
    format: Format = Format.BYTES
    prefixes: Sequence[bytes] = (b"",)
    """Bytes before the structure of hostile seeds, such as a type byte. The structured mutator does not change the
    first `skip` bytes of any input."""
    skip: int = 0
    max_len: int = 4096
    """Longest input that the fuzzer makes by itself, in bytes; hostile seeds may be longer."""
    tokens: Sequence[str] = field(default_factory=tuple)
    """Words of the input's language, for formats that are text."""

    def run(self, data: bytes) -> None:
        """Parse one input. Raises every error that the contract does not name."""
        try:
            result = self.check(data)
        except self.may_raise as error:
            fuzz_feedback.count_refusal(error)
        else:
            fuzz_feedback.count_shape(result)


Prepare: TypeAlias = Callable[[], Prepared]


@dataclass(frozen=True)
class Target:
    name: str
    about: str
    """The parser, and the origin of its bytes."""
    prepare: Prepare
    parsers: tuple[str, ...]
    """The functions under test, as `module:name` below `veilcast`."""
    interpreted: bool = False
    """True if numba must not compile: only interpreted kernels check bounds."""


class Group:
    """The targets of one module, added by a decorator."""

    def __init__(self) -> None:
        self.targets: list[Target] = []

    def target(self, name: str, about: str, *parsers: str, interpreted: bool = False) -> Callable[[Prepare], Prepare]:
        def add(prepare: Prepare) -> Prepare:
            self.targets.append(Target(name, about, prepare, parsers, interpreted))
            return prepare

        return add
