"""The cost of a delivery: messages, bytes and time for each subscriber that received a notification.

A defence costs all three (Das and others 2018: strong anonymity, low latency, low traffic, choose two), and a mesh with
few subscribers pays more for each. Bytes are those of the messages that carried the notification. On silent links cells
travel in any case and a notification adds none; its bytes are then its share of a price that is paid anyway.
"""

from __future__ import annotations


def delivery_cost(messages: float, size: float, readers: float, hops: float, hop_s: float) -> dict[str, float]:
    """Cost of a notification of `size` bytes that took `messages` messages to reach `readers` subscribers after `hops`
    hops on average; empty if it reached none."""
    if not readers:
        return {}
    return {"messages_each": messages / readers, "bytes": messages * size / readers, "latency": hops * hop_s}
