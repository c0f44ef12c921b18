"""Stream names: a purpose and a node, joined and split consistently."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.core.stream_purpose import name_stream, split_stream_name
from veilcast.errors import LocalError
from veilcast.machine import Address, Entropy
from veilcast.tree.streams import PROBE_STREAM, fresh_purpose

words = st.text(st.characters(exclude_characters="@", codec="ascii"), min_size=1)


@given(words, st.text(min_size=1))
def test_a_stream_name_round_trips(purpose: str, node: str) -> None:
    assert split_stream_name(name_stream(Address(node), purpose)) == (purpose, node)


def test_a_fresh_purpose_is_unique(entropy: Entropy) -> None:
    one, two = (name_stream(Address("a.onion:1"), fresh_purpose(PROBE_STREAM, entropy)) for _ in range(2))
    assert one != two
    assert one.startswith("probe-")
    assert split_stream_name(one)[1] == "a.onion:1"


@pytest.mark.parametrize(("node", "purpose"), [("", "hop"), ("a", ""), ("a", "x@y")])
def test_an_invalid_purpose_or_node_is_refused(node: str, purpose: str) -> None:
    with pytest.raises(LocalError):
        name_stream(Address(node), purpose)


@pytest.mark.parametrize("name", ["", "a", "@a", "a@"])
def test_an_invalid_stream_name_is_refused(name: str) -> None:
    with pytest.raises(LocalError):
        split_stream_name(Address(name))
