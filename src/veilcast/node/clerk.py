"""The clerk: keeps the records of a machine that has no clients of its own, as a relay's server and proxy have none.

As an `Agent` does, it waits for nothing: what is to be written gathers, whoever may wait for the disk writes it, and
only then is the machine told that its records are stored. So nothing leaves that rests on what a kill would undo.
"""

from __future__ import annotations

from collections.abc import Sequence

from veilcast.faults import faults_of
from veilcast.machine import Durable, Event, Record, Settled
from veilcast.node.ledger import Entry, Forget, Keep


class Clerk:
    def __init__(self, machine: Durable) -> None:
        self._machine, self._faults = machine, faults_of(machine)
        self._entries: list[Entry] = []

    def take(self, event: Event, now: int) -> bool:
        """False if the event is not about what is kept."""
        match event:
            case Record(record, data):
                self._entries.append(Keep(record, data))
            case Settled(record):
                self._entries.append(Forget(record))
            case _:
                return False
        return True

    def changes(self) -> list[Entry]:
        """All that is to be written since this was last asked; the caller writes it, or ends this life."""
        entries, self._entries = self._entries, []
        return entries

    def written(self, entries: Sequence[Entry], _: None, now: int) -> None:
        for entry in entries:
            if isinstance(entry, Keep):
                self._faults.contain(self._machine.stored, entry.record, now)
