"""What a delivery costs: messages, bytes and time, for each reader that has got a note.

A defence is paid for in all three (Das and others 2018: strong anonymity, low latency, little traffic, choose two), and
a mesh that serves few pays more for each of them. Where messages travel in the open, their bytes are their sizes. Where
links are silent, cells go whether there is anything to say or not: then the bytes are those of all cells of all links
while the note was on its way or due, however few of them carried it, and messages cost no more than that.
"""

from __future__ import annotations

from veilcast.errors import ConfigError


def of_messages(messages: float, size: float, readers: float, hops: float, hop_s: float) -> dict[str, float]:
    """Of a note that took so many messages of this size to reach so many readers, who got it so many hops later on the
    average; nothing where it reached nobody."""
    return _of(messages, messages * size, readers, hops, hop_s)


def of_cells(
    messages: float, links: int, rate: float, size: int, every_s: float, readers: float, hops: float, hop_s: float
) -> dict[str, float]:
    """The same on silent links, where each end of each link sends cells at this rate, and there is a note every so many
    seconds."""
    if min(links, rate, size, every_s) <= 0:
        raise ConfigError("silence needs links, a rate and a size of cells, and notes to divide its cost among")
    return _of(messages, 2 * links * rate * size * every_s, readers, hops, hop_s)


def _of(messages: float, sent: float, readers: float, hops: float, hop_s: float) -> dict[str, float]:
    if not readers:
        return {}
    return {
        "delivery_messages": messages / readers,
        "delivery_bytes": sent / readers,
        "delivery_seconds": hops * hop_s,
    }
