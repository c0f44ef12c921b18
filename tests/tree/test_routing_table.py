"""The routing table: later instructions replace earlier ones, and a refused one changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import ExcessError, RemoteError
from veilcast.tree.instruction_bundles import Instruction
from veilcast.tree.routing_table import RoutingTable

TAGS = [bytes([number]) * 16 for number in range(8)]


def told(token: int, parent: int = 0) -> Instruction:
    return Instruction(bytes([token]) * 16, bytes([parent]) * 16, bytes(16))


def groups(count: int) -> list[tuple[bytes, ...]]:
    return [(tag,) for tag in TAGS[:count]]


def test_an_entry_update_beyond_capacity_changes_nothing() -> None:
    entries = RoutingTable(entries_max=4, columns_max=4)
    first = entries.put(told(1), groups(2), 10)
    entries.put(told(2), groups(2), 10)
    with pytest.raises(ExcessError):
        entries.put(told(1, parent=9), groups(3), 11)
    assert entries.get(first.name) == first
    assert first in entries.match(TAGS[:2])
    turned = entries.put(told(1, parent=9), groups(2), 11)
    assert turned in entries.match(TAGS[:2])
    assert first not in entries.match(TAGS[:2])


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(1, 30)), max_size=30))
def test_an_accepted_entry_stays_until_it_expires_and_constraints_are_bounded(
    steps: list[tuple[int, int, int]],
) -> None:
    entries, ends = RoutingTable(entries_max=3, columns_max=6), dict[bytes, tuple[int, int]]()
    for now, (token, count, length) in enumerate(steps):
        entries.expire(now)
        ends = {name: end for name, end in ends.items() if end[0] > now}
        try:
            entry = entries.put(told(token), groups(count), now + length)
        except RemoteError:
            pass
        else:
            if ends.get(entry.name, (0, 0))[0] < entry.until_us:
                ends[entry.name] = (entry.until_us, count)
        assert len(entries) == len(ends)
        assert all(entries.get(name) is not None for name in ends)
        assert sum(columns for _, columns in ends.values()) <= 6
