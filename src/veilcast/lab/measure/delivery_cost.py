"""What a delivery costs: messages, bytes and time, for each reader that has got a note.

A defence is paid for in all three (Das and others 2018: strong anonymity, low latency, little traffic, choose two), and
a mesh that serves few pays more for each of them. Bytes are those of what carried the note. Where links are silent,
cells go whether there is anything to say or not, and a note costs none beyond these: then its bytes are the share that
it has of a price that is paid anyway.
"""

from __future__ import annotations


def delivery_cost(messages: float, size: float, readers: float, hops: float, hop_s: float) -> dict[str, float]:
    """Of a note that took so many messages of this size to reach so many readers, who got it so many hops later on the
    average; nothing where it reached nobody."""
    if not readers:
        return {}
    return {"messages_each": messages / readers, "bytes": messages * size / readers, "latency": hops * hop_s}
