"""The routing table of the hardened tree: entries by name, and by the tags of the subscription.

An instruction says: a message that arrives under this name goes to that node, under that name there. The name of an
entry is a digest of the token in its instruction. Children learn the name and not the token, so no child can change
where its parent forwards to. The subscriber that installed the tree can, with an instruction that ends later than the
one before. A replayed instruction changes nothing, for any sender.

Only an origin matches: it looks up the entries whose constraints a publication satisfies, in an exact index of tags.
Entries expire by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from veilcast.crypto.derive import digest
from veilcast.errors import ExcessError, MalformedError, StaleError
from veilcast.topics.tag_index import TagIndex
from veilcast.tree.instruction_bundles import Instruction
from veilcast.wire.geometry import ENTRY, TAG


@dataclass(frozen=True, slots=True)
class RoutingEntry:
    name: bytes
    parent: bytes
    parent_entry: bytes
    until_us: int
    number: int
    """Number in the tag index."""
    columns: int
    """Number of constraints in the tag index."""


def entry_name(token: bytes) -> bytes:
    """The name by which senders address the entry of this token."""
    return digest(token, purpose=b"vc/tree-name", size=ENTRY)


class RoutingTable:
    """Bounded: `entries_max` entries with `columns_max` constraints in all."""

    def __init__(self, *, entries_max: int, columns_max: int) -> None:
        self._entries_max, self._columns_max, self._columns = entries_max, columns_max, 0
        self._entries: dict[bytes, RoutingEntry] = {}
        self._names: dict[int, bytes] = {}
        self._index = TagIndex(capacity=columns_max)

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, instruction: Instruction, groups: Sequence[tuple[bytes, ...]], until_us: int) -> RoutingEntry:
        """Store an instruction; `RemoteError` if it is older than the stored one, invalid, or the table is full."""
        name = entry_name(instruction.entry)
        former = self._entries.get(name)
        if former is not None and former.until_us >= until_us:
            if (former.parent, former.parent_entry, former.until_us) == (
                instruction.parent,
                instruction.parent_entry,
                until_us,
            ):
                return former
            raise StaleError("an instruction older than the stored one")
        if former is None and len(self._entries) >= self._entries_max:
            raise ExcessError("the routing table is full")
        if not groups or not all(groups) or any(len(tag) != TAG for group in groups for tag in group):
            raise MalformedError("an instruction without valid tags")
        if self._columns + len(groups) - (0 if former is None else former.columns) > self._columns_max:
            raise ExcessError("the index of the routing table is full")
        if former is not None:
            self._index.remove(former.number)
            self._forget(former)
        number = self._index.insert(groups, until_us)
        entry = self._entries[name] = RoutingEntry(
            name, instruction.parent, instruction.parent_entry, until_us, number, len(groups)
        )
        self._names[number] = name
        self._columns += entry.columns
        return entry

    def get(self, name: bytes) -> RoutingEntry | None:
        return self._entries.get(name)

    def match(self, tags: Sequence[bytes]) -> list[RoutingEntry]:
        """The entries that match a publication with these tags."""
        if any(len(tag) != TAG for tag in tags):
            raise MalformedError("a publication with invalid tags")
        return [self._entries[self._names[number]] for number in self._index.match(tags).tolist()] if tags else []

    def next_us(self) -> int | None:
        return self._index.next_expiry()

    def expire(self, now: int) -> None:
        for number in self._index.expire(now).tolist():
            self._forget(self._entries[self._names[number]])

    def _forget(self, entry: RoutingEntry) -> None:
        del self._entries[entry.name], self._names[entry.number]
        self._columns -= entry.columns
