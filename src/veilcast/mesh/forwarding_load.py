"""The forwarding load of a node: notifications that it carries for others, and those of its own topics.

A member of a mesh, as forwarder or cover, pays for the anonymity of others, in all meshes at once. A notification is
counted when it is first accepted, with the copies that are forwarded. Duplicates are not counted, nor are heartbeats,
which cost the same whatever they carry.
"""

from __future__ import annotations

import msgspec


class LoadCounts(msgspec.Struct, frozen=True):
    """Notifications, the copies of them that were forwarded, and the bytes of these."""

    notes: int = 0
    copies: int = 0
    size: int = 0

    def plus(self, copies: int, size: int) -> LoadCounts:
        """One more notification of this size, forwarded `copies` times."""
        return LoadCounts(self.notes + 1, self.copies + copies, self.size + copies * size)


class ForwardingLoad(msgspec.Struct, frozen=True):
    """`own`: topics that the node's owner subscribes to or publishes on; `others`: all other topics."""

    own: LoadCounts = LoadCounts()
    others: LoadCounts = LoadCounts()

    def plus(self, copies: int, size: int, *, own: bool) -> ForwardingLoad:
        if own:
            return ForwardingLoad(self.own.plus(copies, size), self.others)
        return ForwardingLoad(self.own, self.others.plus(copies, size))
