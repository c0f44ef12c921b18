"""Sealed content arrives by each strategy, whatever a minority at each hop drops or corrupts, at different costs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import combinations, product

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilcast.brokers.content.blocks import (
    SINGLE_PATH_ATTEMPTS,
    ContentAssembly,
    ContentBlock,
    ContentManifest,
    Strategy,
    choose_carriers,
    encode_content,
)
from veilcast.brokers.keys.scheme import ReplicaId, Scheme, max_faulty
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ForgedError, LocalError, MalformedError, RemoteError

PUBLISHER = SigningKey(Secret(b"p" * 32))
ID = b"i" * 16
CONTENT = random.Random(1).randbytes(1000)
Broker = tuple[int, int]


def scheme(hop: int, size: int = 3) -> Scheme:
    return Scheme(bytes((hop,)) * 16, 0, size)


def prepare_content(
    strategy: Strategy, size: int = 3, content: bytes = CONTENT
) -> tuple[ContentManifest, list[ContentBlock]]:
    return encode_content(ID, content, strategy, scheme(1, size), PUBLISHER)


# --- the code ---------------------------------------------------------------------------------------------------------


@given(st.binary(min_size=1, max_size=200), st.integers(1, 9), st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_any_majority_of_the_blocks_reconstructs_the_content(content: bytes, size: int, rng: random.Random) -> None:
    manifest, blocks = prepare_content(Strategy.CODED, size, content)
    assert len(blocks) == size
    assembly = ContentAssembly(manifest, PUBLISHER.public)
    for block in rng.sample(blocks, manifest.needed):
        assert not assembly.is_complete
        assembly.add(block, ReplicaId(scheme(1, size), block.index))
    assert assembly.content() == content
    assert assembly.missing() == []


def test_every_choice_of_blocks_works() -> None:
    manifest, blocks = prepare_content(Strategy.CODED, 7)
    for chosen in combinations(blocks, manifest.needed):
        assembly = ContentAssembly(manifest, PUBLISHER.public)
        for block in chosen:
            assembly.add(block, ReplicaId(scheme(1, 7), block.index))
        assert assembly.content() == CONTENT


def test_the_code_costs_less_than_two_copies() -> None:
    for size in (3, 5, 7, 9):
        _, blocks = prepare_content(Strategy.CODED, size)
        assert sum(len(block.data) for block in blocks) < 2 * len(CONTENT)


@pytest.mark.parametrize("strategy", [Strategy.COPIES, Strategy.ONE])
def test_the_other_strategies_have_one_block_with_everything(strategy: Strategy) -> None:
    _, (block,) = prepare_content(strategy)
    assert block.data == CONTENT


def test_only_missing_blocks_are_requested() -> None:
    manifest, blocks = prepare_content(Strategy.CODED, 5)
    assembly = ContentAssembly(manifest, PUBLISHER.public)
    assert assembly.missing() == [1, 2, 3]
    assembly.add(blocks[1], ReplicaId(scheme(1, 5), 2))
    assert assembly.missing() == [1, 3]
    with pytest.raises(LocalError, match="2 blocks"):
        assembly.content()


# --- what is spoilt ---------------------------------------------------------------------------------------------------


def test_a_corrupt_block_is_detected_and_its_sender_recorded() -> None:
    manifest, blocks = prepare_content(Strategy.CODED)
    assembly = ContentAssembly(manifest, PUBLISHER.public)
    bearer = ReplicaId(scheme(1), 2)
    for bad in (
        msgspec.structs.replace(blocks[1], data=bytes(len(blocks[1].data))),
        msgspec.structs.replace(blocks[1], index=1),
        msgspec.structs.replace(blocks[1], index=9),
        msgspec.structs.replace(blocks[1], id=b"j" * 16),
        msgspec.structs.replace(blocks[1], data=blocks[1].data + b"x"),
    ):
        with pytest.raises(ForgedError):
            assembly.add(bad, bearer)
    assert assembly.faulty == [bearer]
    assert len(assembly) == 0


@given(st.data())
@settings(max_examples=15)
def test_no_byte_of_a_manifest_can_change(data: st.DataObject) -> None:
    manifest, _ = prepare_content(Strategy.CODED)
    encoded = bytearray(msgspec.msgpack.encode(manifest))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        changed = msgspec.msgpack.decode(bytes(encoded), type=ContentManifest)
    except (msgspec.DecodeError, MalformedError):
        return
    with pytest.raises(ForgedError):
        ContentAssembly(changed, PUBLISHER.public)


def test_content_is_bounded() -> None:
    with pytest.raises(LocalError):
        prepare_content(Strategy.ONE, content=b"")
    manifest, _ = prepare_content(Strategy.CODED)
    with pytest.raises(MalformedError):
        msgspec.structs.replace(manifest, needed=4)


# --- over hops with liars ---------------------------------------------------------------------------------------------


def minorities(sizes: Sequence[int]) -> Iterator[frozenset[Broker]]:
    """The largest minorities at every hop; all others are subsets."""
    hops = [list(combinations(range(1, size + 1), max_faulty(size))) for size in sizes]
    for each in product(*hops):
        yield frozenset((hop, at) for hop, chosen in enumerate(each, 1) for at in chosen)


def attempt_over(
    strategy: Strategy,
    block: ContentBlock,
    sizes: Sequence[int],
    byzantine: frozenset[Broker],
    attempt: int,
    content_id: bytes = ID,
) -> tuple[set[int], int]:
    """The honest replicas of the last hop that have the block, and the number of copies sent."""
    have, sent = {0}, 0
    for hop, size in enumerate(sizes, 1):
        to = scheme(hop, size)
        sends = [
            at
            for sender in sorted(have)
            for at in choose_carriers(strategy, content_id, block.index, to, attempt, sender)
        ]
        sent += len(sends)
        have = {at for at in sends if (hop, at) not in byzantine}
    return have, sent


def deliver_content(
    strategy: Strategy, sizes: Sequence[int], byzantine: frozenset[Broker], content_id: bytes = ID
) -> tuple[int, int]:
    """Attempts and bytes until the content is complete; missing blocks are requested again."""
    manifest, blocks = encode_content(content_id, CONTENT, strategy, scheme(1, sizes[0]), PUBLISHER)
    assembly = ContentAssembly(manifest, PUBLISHER.public)
    total = 0
    wanted = [block.index for block in blocks]
    for attempt in range(SINGLE_PATH_ATTEMPTS + 1):
        for index in wanted:
            block = blocks[index - 1]
            arrived, sent = attempt_over(strategy, block, sizes, byzantine, attempt, content_id)
            total += sent * len(block.data)
            for at in sorted(arrived):
                assembly.add(block, ReplicaId(scheme(len(sizes), sizes[-1]), at))
        if assembly.is_complete:
            assert assembly.content() == CONTENT
            return attempt + 1, total
        wanted = assembly.missing()
    raise AssertionError("it never came")


@pytest.mark.parametrize("sizes", [(3,), (3, 3), (3, 3, 3), (5, 3), (3, 5, 3), (4, 2, 3)], ids=str)
def test_copies_arrive_at_once_whichever_minority_drops(sizes: tuple[int, ...]) -> None:
    for byzantine in minorities(sizes):
        assert deliver_content(Strategy.COPIES, sizes, byzantine)[0] == 1


def fewest_senders(size: int, next_size: int) -> int:
    """The number of replicas that send a copy to the replica of the next node with the fewest, at the first attempt."""
    chosen = [
        to
        for sender in range(1, size + 1)
        for to in choose_carriers(Strategy.COPIES, ID, 1, scheme(2, next_size), 0, sender)
    ]
    return min(chosen.count(to) for to in range(1, next_size + 1))


@pytest.mark.parametrize("size", [3, 5, 7, 9])
def test_between_nodes_of_one_size_each_replica_has_an_honest_sender(size: int) -> None:
    assert fewest_senders(size, size) == max_faulty(size) + 1
    assert fewest_senders(size, 3) > max_faulty(size)


def test_in_a_larger_next_node_some_replicas_wait_for_the_second_attempt() -> None:
    """See docs/limitations.md. A node forwards the manifest of a second attempt to all."""
    assert fewest_senders(3, 5) == max_faulty(3)
    assert fewest_senders(3, 7) == 0


@pytest.mark.parametrize("strategy", [Strategy.ONE, Strategy.CODED])
@pytest.mark.parametrize("sizes", [(3,), (3, 3, 3), (5, 3)], ids=str)
def test_missing_blocks_arrive_when_requested_again(strategy: Strategy, sizes: tuple[int, ...]) -> None:
    for byzantine in minorities(sizes):
        assert deliver_content(strategy, sizes, byzantine)[0] <= SINGLE_PATH_ATTEMPTS + 1


def test_without_byzantine_replicas_the_bytes_are_those_of_the_strategy() -> None:
    nobody: frozenset[Broker] = frozenset()
    size = len(CONTENT)
    assert deliver_content(Strategy.ONE, (3, 3), nobody) == (1, 2 * size)
    assert deliver_content(Strategy.CODED, (3, 3), nobody) == (1, 2 * 3 * size // 2)
    assert deliver_content(Strategy.COPIES, (3, 3), nobody) == (1, (2 + 2 * 2) * size)


def test_one_copy_per_replica_is_not_enough() -> None:
    """The paper's n duplicates, replica to replica: a Byzantine replica at each of three hops stops all three rows."""
    byzantine = {(1, 1), (2, 2), (3, 3)}
    assert not [row for row in (1, 2, 3) if not byzantine & {(hop, row) for hop in (1, 2, 3)}]


def test_paths_change_with_block_attempt_and_node() -> None:
    ways = [
        choose_carriers(Strategy.CODED, ID, index, scheme(hop, 5), attempt)[0]
        for index in range(1, 6)
        for hop in range(4)
        for attempt in range(SINGLE_PATH_ATTEMPTS)
    ]
    assert {ways.count(at) for at in range(1, 6)} <= set(range(6, 28))
    assert choose_carriers(Strategy.ONE, ID, 1, scheme(1), SINGLE_PATH_ATTEMPTS, sender=2) == choose_carriers(
        Strategy.COPIES, ID, 1, scheme(1), 0, sender=2
    )


def test_noise_is_not_a_block() -> None:
    for bad in (b"", b"\xc0", msgspec.msgpack.encode((ID, 0, b"x")), msgspec.msgpack.encode((ID, 1, b""))):
        with pytest.raises((msgspec.DecodeError, RemoteError)):
            msgspec.msgpack.decode(bad, type=ContentBlock)
