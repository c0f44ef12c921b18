"""Sealed slots: rows of equal appearance for all records, subscriptions and unread notifications of a node.

Claim: without the key, the table shows how many slots there are of each size, and nothing else about its items.
Reason: a slot is sealed, bound to its number, and padded to a size class (`SIZE` doubled as often as needed). The kind,
name, order and length of an item are inside the seal. A table has a multiple of `BATCH` slots from the start; an empty
slot is sealed too, and looks like a slot with a small item. A new item takes an empty slot. A removed item leaves an
empty slot, with the old bytes overwritten.

The index from names to slots is in memory. The writing thread changes it before the commit. So a reader compares the
name in the slot with the name that it looks for, and treats the item as absent if they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from veilcast.crypto.seal import OVERHEAD
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import TamperedError

Execute: TypeAlias = Callable[..., Any]


class ItemName(NamedTuple):
    """The name of an item: its kind, then what distinguishes it from others of its kind."""

    kind: str
    number: int = 0
    place: int = 0
    text: bytes = b""


class _Item(NamedTuple):
    name: ItemName
    data: bytes


class SlotDatabase(Protocol):
    """The part of a database that slots need."""

    def read(self, query: str, *values: object) -> list[tuple[Any, ...]]: ...
    def seal(self, data: bytes, kind: str, name: int | str | bytes) -> bytes: ...
    def unseal(self, data: bytes, kind: str, name: int | str | bytes) -> bytes: ...
    def add_rows(self, statement: str, rows: Iterator[tuple[Any, ...]]) -> None: ...


class SealedSlots:
    """The owner bounds the number of items. The index takes some 200 bytes of memory for each."""

    def __init__(self, database: SlotDatabase) -> None:
        self._database = database
        self._slots: dict[ItemName, int] = {}
        self._free: list[int] = []
        self._count = 0

    def load(self) -> None:
        """Build the index from the last commit. Raises `TamperedError` if slots are damaged, missing or out of
        place."""
        rows = self._database.read("SELECT slot, data FROM slots ORDER BY slot")
        if not rows or len(rows) % BATCH or any(slot != place for place, (slot, _) in enumerate(rows)):
            raise TamperedError("slots are missing in the node's state")
        found = [(slot, self._open(slot, data).name) for slot, data in rows]
        self._slots = {name: slot for slot, name in found if name != EMPTY}
        self._free = [slot for slot, name in reversed(found) if name == EMPTY]
        self._count = len(rows)

    def trim(self, run: Execute) -> None:
        """Remove empty slots at the end that an earlier backlog has left, a whole batch at a time."""
        last = max(self._slots.values(), default=-1)
        count = max(BATCH, BATCH * -(-(last + 1) // BATCH))
        if count < self._count:
            run("DELETE FROM slots WHERE slot >= ?", (count,))
            self._free = [slot for slot in self._free if slot < count]
            self._count = count

    def grow(self) -> None:
        """Add a batch of empty slots, in a transaction."""
        new = range(self._count, self._count + BATCH)
        self._database.add_rows(
            "INSERT INTO slots VALUES (?, ?)", ((slot, self._close(slot, EMPTY, b"")) for slot in new)
        )
        self._free[:0] = reversed(new)
        self._count += BATCH

    def put(self, run: Execute, name: ItemName, data: bytes) -> None:
        """Store an item; replaces the item of this name."""
        slot = self._slots.get(name)
        if slot is None:
            if not self._free:
                self.grow()
            slot = self._slots[name] = self._free.pop()
        run(_UPDATE, (self._close(slot, name, data), slot))

    def drop(self, run: Execute, name: ItemName) -> bool:
        """Overwrite an item with an empty slot. Returns False if there is no item of this name."""
        slot = self._slots.pop(name, None)
        if slot is None:
            return False
        run(_UPDATE, (self._close(slot, EMPTY, b""), slot))
        self._free.append(slot)
        return True

    def get(self, name: ItemName) -> bytes | None:
        """Return the item of this name as of the last commit."""
        slot = self._slots.get(name)
        if slot is None:
            return None
        for (data,) in self._database.read("SELECT data FROM slots WHERE slot = ?", slot):
            found, item = self._open(slot, data)
            return item if found == name else None
        return None

    def items(self, kind: str) -> Iterator[tuple[ItemName, bytes]]:
        """All items of one kind as of the last commit, in the order of their slots."""
        for slot, data in self._database.read("SELECT slot, data FROM slots ORDER BY slot"):
            name, item = self._open(slot, data)
            if name.kind == kind and self._slots.get(name) == slot:
                yield name, item

    def __contains__(self, name: object) -> bool:
        return name in self._slots

    def names(self, kind: str) -> list[ItemName]:
        return [name for name in list(self._slots) if name.kind == kind]

    def _close(self, slot: int, name: ItemName, data: bytes) -> bytes:
        body = msgspec.msgpack.encode((name, data))
        size = SIZE
        while size < len(body) + _LENGTH + OVERHEAD:
            size *= 2
        plain = len(body).to_bytes(_LENGTH, "big") + body
        return self._database.seal(plain.ljust(size - OVERHEAD, b"\0"), "slot", slot)

    def _open(self, slot: int, data: bytes) -> _Item:
        plain = self._database.unseal(data, "slot", slot)
        length = int.from_bytes(plain[:_LENGTH], "big")
        return _DECODER.decode(plain[_LENGTH : _LENGTH + length])


EMPTY: Final = ItemName("")
TABLE: Final = "CREATE TABLE slots (slot INTEGER PRIMARY KEY, data BLOB NOT NULL);"
_UPDATE: Final = "UPDATE slots SET data = ? WHERE slot = ?"
ROWS: Final = ("slot", "SELECT slot, data FROM slots", _UPDATE)
"""The sealing kind of the rows, and the statements that read all of them and write one."""
BATCH: Final = 256
SIZE: Final = 1_000
"""The smallest size of a sealed slot, in bytes: four of them fill a page of SQLite."""
_LENGTH: Final = 4
_DECODER: Final = MsgpackDecoder(_Item, TamperedError, "a slot in the node's state is damaged")
