"""Load: what a node carries of others' notes, beside what it wants for itself.

Whoever takes part in a mesh, as forwarder or cover, pays for others' anonymity, in all meshes at once. A note is
counted when it is first taken, with the copies that are passed on; duplicates are not, nor is anything that rides in
heartbeats, which cost the same whatever is in them.
"""

from __future__ import annotations

import msgspec


class LoadCounts(msgspec.Struct, frozen=True):
    """Notes, the copies of them that were passed on, and the bytes of these."""

    notes: int = 0
    copies: int = 0
    size: int = 0

    def plus(self, copies: int, size: int) -> LoadCounts:
        """One more note of this size, passed on so many times."""
        return LoadCounts(self.notes + 1, self.copies + copies, self.size + copies * size)


class ForwardingLoad(msgspec.Struct, frozen=True):
    """`own`: of topics that the node's owner reads or publishes; `others`: of all the rest."""

    own: LoadCounts = LoadCounts()
    others: LoadCounts = LoadCounts()

    def plus(self, copies: int, size: int, *, own: bool) -> ForwardingLoad:
        if own:
            return ForwardingLoad(self.own.plus(copies, size), self.others)
        return ForwardingLoad(self.own, self.others.plus(copies, size))
