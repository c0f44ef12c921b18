"""Bundles: every node finds its own instruction and its children's bundles, and nothing about other nodes."""

from __future__ import annotations

import random
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilcast.crypto.noise import Keypair
from veilcast.crypto.sealed_box import box
from veilcast.errors import ForgedError, LocalError, MalformedError, RemoteError
from veilcast.tree import instruction_bundles, tree_shape
from veilcast.tree.instruction_bundles import (
    GROUP_MAX,
    Instruction,
    NodeId,
    Recipient,
    open_layer,
    wrap_group,
    wrap_tree,
)
from veilcast.wire.geometry import INSTALL_BLOCK
from veilcast.wire.padding import pad, unpad

DRAW = random.Random(7).randbytes
KEYS = [Keypair.draw(DRAW) for _ in range(64)]
EVERYONE = [Recipient(DRAW(16), each.public) for each in KEYS]
KEY_OF = {each.node: key for each, key in zip(EVERYONE, KEYS, strict=True)}
TOLD = [Instruction(DRAW(16), DRAW(16), DRAW(16)) for _ in EVERYONE]


def handed_down(first: NodeId, bundle: bytes, context: bytes = b"") -> dict[NodeId, tuple[Instruction, NodeId | None]]:
    """The instruction of every node below, and the node that passed it on."""
    found: dict[NodeId, tuple[Instruction, NodeId | None]] = {}
    waiting: list[tuple[NodeId, bytes, NodeId | None]] = [(first, bundle, None)]
    while waiting:
        node, sealed, giver = waiting.pop()
        layer = open_layer(KEY_OF[node], sealed, context=context)
        assert node not in found
        found[node] = layer.instruction, giver
        waiting += [(child, below, node) for child, below in layer.children]
    return found


@given(st.integers(1, GROUP_MAX), st.integers(1, 8), st.binary(max_size=20))
@settings(max_examples=25)
def test_every_node_of_a_group_gets_only_its_own_instruction(size: int, fan: int, context: bytes) -> None:
    bundle = wrap_group(EVERYONE[:size], TOLD[:size], fan, DRAW, context=context)
    found = handed_down(EVERYONE[0].node, bundle, context)
    for place in range(size):
        giver = EVERYONE[tree_shape.parent_place(place, fan)].node if place else None
        assert found[EVERYONE[place].node] == (TOLD[place], giver)
    assert len(found) == size


@given(st.integers(1, 64), st.integers(1, 8))
@settings(max_examples=25)
def test_the_papers_bundles_travel_along_the_tree(size: int, fan: int) -> None:
    firsts = wrap_tree(EVERYONE[:size], TOLD[:size], fan, DRAW)
    assert [node for node, _ in firsts] == [each.node for each in EVERYONE[: min(fan, size)]]
    found = {node: told for first, bundle in firsts for node, told in handed_down(first, bundle).items()}
    for place in range(1, size + 1):
        up = tree_shape.parent_place(place, fan)
        assert found[EVERYONE[place - 1].node] == (TOLD[place - 1], EVERYONE[up - 1].node if up else None)
    assert len(found) == size


@pytest.mark.parametrize("fan", [1, 2, 5, 32])
def test_a_full_group_fits_one_padded_block_and_a_larger_one_does_not(fan: int) -> None:
    bundle = wrap_group(EVERYONE[:GROUP_MAX], TOLD[:GROUP_MAX], fan, DRAW)
    assert unpad(pad(bundle, INSTALL_BLOCK)) == bundle
    with patch.object(instruction_bundles, "GROUP_MAX", GROUP_MAX + 1), pytest.raises(LocalError, match="do not fit"):
        pad(wrap_group(EVERYONE[: GROUP_MAX + 1], TOLD[: GROUP_MAX + 1], fan, DRAW), INSTALL_BLOCK)
    assert GROUP_MAX == 35
    with pytest.raises(LocalError, match="a group has"):
        wrap_group(EVERYONE[: GROUP_MAX + 1], TOLD[: GROUP_MAX + 1], fan, DRAW)


def test_a_layer_opens_for_its_node_and_its_context_alone() -> None:
    bundle = wrap_group(EVERYONE[:4], TOLD[:4], 2, DRAW, context=b"tags of an epoch")
    for key, context in ((KEYS[1], b"tags of an epoch"), (KEYS[0], b"other tags"), (KEYS[0], b"")):
        with pytest.raises(ForgedError):
            open_layer(key, bundle, context=context)


def test_a_node_cannot_read_or_change_a_bundle_that_it_passes_on() -> None:
    layer = open_layer(KEYS[0], wrap_group(EVERYONE[:7], TOLD[:7], 2, DRAW))
    assert [node for node, _ in layer.children] == [EVERYONE[1].node, EVERYONE[2].node]
    for node, sealed in layer.children:
        for known in (told.entry for told in TOLD[1:7]):
            assert known not in sealed
        with pytest.raises(ForgedError):
            open_layer(KEYS[0], sealed)
        for at in range(0, len(sealed), 7):
            with pytest.raises(ForgedError):
                open_layer(KEY_OF[node], sealed[:at] + bytes((sealed[at] ^ 1,)) + sealed[at + 1 :])


def test_two_bundles_of_equal_content_share_no_eight_bytes() -> None:
    one, two = (wrap_group(EVERYONE[:9], TOLD[:9], 2, DRAW) for _ in range(2))
    pieces = {one[at : at + 8] for at in range(len(one) - 7)}
    assert not any(two[at : at + 8] in pieces for at in range(len(two) - 7))


@given(st.binary(max_size=200))
def test_any_box_from_an_outsider_is_a_layer_or_refused(plain: bytes) -> None:
    sealed = box(KEYS[0].public, plain, purpose=b"vc/tree-layer", entropy=DRAW)
    for bundle in (sealed, plain):
        try:
            layer = open_layer(KEYS[0], bundle)
        except RemoteError:
            continue
        assert plain.startswith(layer.instruction.entry)


@pytest.mark.parametrize(
    "rest", [b"n" * 17, b"n" * 16 + b"\0\1", b"n" * 16 + b"\0\1x", b"n" * 16 + b"\xff\xff" + b"x" * 90]
)
def test_children_that_do_not_fill_their_layer_are_refused(rest: bytes) -> None:
    sealed = box(KEYS[0].public, bytes(48) + rest, purpose=b"vc/tree-layer", entropy=DRAW)
    with pytest.raises(MalformedError):
        open_layer(KEYS[0], sealed)


def test_a_branch_that_fits_no_bundle_is_refused() -> None:
    many, told = EVERYONE * 10, TOLD * 10
    with pytest.raises(LocalError, match="larger fan"):
        wrap_tree(many, told, 1, DRAW)
    assert len(wrap_tree(many, told, 8, DRAW)) == 8


def test_illegal_instructions_and_recipients_cannot_be_built() -> None:
    for wrong in ((b"", bytes(16), bytes(16)), (bytes(16), bytes(15), bytes(16)), (bytes(16), bytes(16), bytes(17))):
        with pytest.raises(LocalError):
            Instruction(*wrong)
    with pytest.raises(LocalError):
        Recipient(bytes(4), bytes(32))
    with pytest.raises(LocalError):
        wrap_group(EVERYONE[:2], TOLD[:1], 2, DRAW)
    with pytest.raises(LocalError):
        wrap_group(EVERYONE[:2], TOLD[:2], 0, DRAW)
