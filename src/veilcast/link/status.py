"""Status: numbers about all links of a node together."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from veilcast.link.link import Link


def link_status(links: Collection[Link], counts: Mapping[str, int], now: int) -> dict[str, int | float]:
    """Sums over all links, with `counts` for those that are closed. No number is about one peer."""
    waiting_us = [oldest_us for link in links if (oldest_us := link.oldest_us) is not None]
    transfers = [link.line.transfer for link in links if link.line is not None]
    cells = counts.get("cells", 0)
    padding = counts.get("padding", 0) + sum(transfer.padding for transfer in transfers)
    return {
        "links": len(links),
        "links up": sum(link.up for link in links),
        "messages waiting": sum(transfer.waiting for transfer in transfers),
        "messages dropped": counts.get("messages dropped", 0) + sum(transfer.dropped for transfer in transfers),
        "queue age us": now - min(waiting_us, default=now),
        "slots missed": counts.get("slots missed", 0) + sum(link.slots.missed for link in links),
        "padding share": padding / max(1, cells),
        **{kind: counts.get(kind, 0) for kind in ("cells", "letters", "datagrams", "cells taken")},
        **{kind: times for kind, times in sorted(counts.items()) if kind.startswith("refused")},
    }
