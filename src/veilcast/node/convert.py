"""The node's state as version 1 wrote it: read, and its tables removed, so that `database` can write it anew.

Version 1 had a table for each kind of item, with the ids of notifications, record numbers and counts in clear.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from veilcast.node.slots import Name

Run = Callable[..., Any]


class Found(NamedTuple):
    items: list[tuple[Name, bytes]]
    acknowledged: list[tuple[int, bytes]]
    """Subscription and id of each, the oldest first."""


def take_old(run: Run, unseal: Callable[[bytes, str, Any], bytes]) -> Found:
    """Read all tables of version 1, then remove them; in the transaction that writes the new ones."""
    tables = [name for (name,) in run("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()]
    items: list[tuple[Name, bytes]] = []
    for record, data, published in run("SELECT record, data, published FROM records ORDER BY record").fetchall():
        items.append((Name("record", record), bytes([published]) + unseal(data, "record", record)))
    for name, data in run("SELECT name, data FROM state WHERE name <> 'owner'").fetchall():
        items.append((Name("state", text=name.encode()), unseal(data, "state", name)))
    old = []
    if "inbox" in tables:
        for number, data in run("SELECT subscription, interest FROM subscriptions").fetchall():
            items.append((Name("subscription", number), unseal(data, "interest", number)))
        inbox = "SELECT subscription, place, note, publication FROM inbox ORDER BY place"
        for number, place, note, data in run(inbox).fetchall():
            items.append((Name("note", number, place, note), unseal(data, "note", note)))
        for (last,) in run("SELECT seq FROM sqlite_sequence WHERE name = 'subscriptions'").fetchall():
            items.append((Name("last"), last.to_bytes(8, "big")))
        old = run("SELECT subscription, note FROM acknowledged ORDER BY place").fetchall()
        run("DELETE FROM sqlite_sequence")
    for table in tables:
        if not table.startswith("sqlite_"):
            run(f"DROP TABLE {table}")
    return Found(items, old)
