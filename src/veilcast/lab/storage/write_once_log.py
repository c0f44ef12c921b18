"""A log of numbered entries, each written once: the only thing that two writers of a location decide by.

An entry is a file `000007.json` with one line of JSON. A writer reads the log and creates the entry after the last.
`Location.create` has one winner; the loser stops. The argument that this is safe:

1. Claim: a writer that has claimed the log (by an entry of its own) is the only one whose later entries are created.
   Reason: every other writer read the log before that claim, wants the claim's number or a lower one, and loses it.
2. Claim: a reader never counts a part of an entry.
   Reason: JSON has no line end inside, and an entry ends with one. An entry without it is incomplete.
3. On some file systems an entry shows before it is complete, and its writer may die or go on. A writer that claims the
   log therefore lists the incomplete entries that it saw (`void`). From then on they count for nobody, although one may
   be completed later.
4. Claim: no file is removed that an entry lists and that counts.
   Reason: a writer removes files only after its claim, and spares those of every entry that is complete after it.

Assumption: after a file is closed, all readers see it whole, in listings, too. HDFS, S3, Azure and Google give that.
"""

from __future__ import annotations

import re
from typing import Final

from veilcast.errors import TamperedError
from veilcast.lab.storage.location import Location, read_file


class WriteOnceLog:
    """The entries in a directory of a location."""

    def __init__(self, location: Location, directory: str) -> None:
        self.location, self.directory = location, directory

    @property
    def path(self) -> str:
        """The directory, for people."""
        return self.location.path_of(self.directory)

    def numbers(self) -> list[int]:
        """The numbers of all entries, complete or not."""
        found = (_ENTRY.fullmatch(file.name.rpartition("/")[2]) for file in self.location.list_files(self.directory))
        return sorted(int(name[1]) for name in found if name is not None)

    def read(self, number: int) -> bytes | None:
        """The line of an entry, without its end; None if the entry is incomplete."""
        data = read_file(self.location, self._name(number))
        return data[:-1] if data.endswith(b"\n") else None

    def create(self, number: int, line: bytes) -> bool:
        """Create an entry; False if another writer has it."""
        if b"\n" in line:
            raise ValueError("an entry is one line")
        return self.location.create(self._name(number), line + b"\n")

    def delete(self, number: int) -> None:
        self.location.delete(self._name(number))

    def path_of(self, number: int) -> str:
        return self.location.path_of(self._name(number))

    def _name(self, number: int) -> str:
        if number > _NUMBER_MAX:
            raise TamperedError(f"{self.path} has more entries than a result can have")
        return f"{self.directory}/{number:06}.json"


_ENTRY: Final = re.compile(r"(\d{6})\.json")
_NUMBER_MAX: Final = 999_999
