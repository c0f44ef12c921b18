"""Faults: exceptions that our own code raises over a received message, contained where a machine receives it.

Claim: whatever arrives, no exception leaves `receive`, no other message is lost with the one that raised, and no sender
repeats that message for ever.
Assumption: the code that raised has left its tables in a state that the machine can go on with.
Reason: there are two layers.

1. Inside a machine, `Faults.refuse_exceptions` stands around the code that opens and matches a stranger's bytes. An
   exception there becomes a `FaultError`, which is a `RemoteError`: the machine refuses the message as it refuses any
   other bad one, and settles or acknowledges it alike. So its sender sees an ordinary refusal. `receive` catches the
   rest.
2. A driver catches everything that leaves any method of a machine, counts it, and goes on with the next message. For
   faults of a link's own code, around handshakes and cells, this is the only layer.

The simulator makes faults `strict`: the exception leaves the machine, and ends the run. So no fault is contained unseen
where it can be repaired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from veilcast.errors import RemoteError, VeilcastError

T = TypeVar("T")


class FaultError(RemoteError):
    """A message that our own code failed on. To its sender this is a refusal like any other."""


class Faults:
    """The count of one machine's faults. Its driver learns of each by `on_fault`."""

    def __init__(self) -> None:
        self.count = 0
        self.strict = False
        self.on_fault: Callable[[Exception], object] | None = None

    def count_exception(self, error: Exception) -> None:
        """Count an exception that should not have been raised. Raises it again if faults are strict."""
        if self.strict:
            raise error
        self.count += 1
        if self.on_fault is not None:
            self.on_fault(error)

    @contextmanager
    def refuse_exceptions(self) -> Iterator[None]:
        """Raise `FaultError` for every exception that is no error of ours; errors of ours pass."""
        try:
            yield
        except VeilcastError:
            raise
        except Exception as error:
            self.count_exception(error)
            raise FaultError("a fault of our own") from error

    def contain(self, call: Callable[..., object], *given: Any) -> None:
        """Call, and count every exception."""
        try:
            call(*given)
        except Exception as error:
            self.count_exception(error)

    def call_or_none(self, call: Callable[..., T], *given: Any) -> T | None:
        """The result of a call, or None if it raises."""
        try:
            return call(*given)
        except Exception as error:
            self.count_exception(error)
            return None


def faults_of(machine: object) -> Faults:
    """The faults of a machine, or of the machine that it wraps; new ones if it has none."""
    found = getattr(machine, "faults", None)
    return found if isinstance(found, Faults) else Faults()
