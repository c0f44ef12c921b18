"""P2, section 4.2: four flaws of the tree to the letter, as attacks that succeed on `paper` and fail on `hardened`.

Each attack is a function of what its party was told or has seen, and uses only that; the tests say what it computes.
The trees are those of the recipes (`tree.plan`, `tree.bundles`, `tree.filters`, `tree.labels`), without machines.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import sqrt

import pytest

from veilcast.crypto.noise import Keypair
from veilcast.crypto.secret import Secret
from veilcast.topics import Geometry
from veilcast.tree import tree_shape
from veilcast.tree.destination_filters import DestinationFilters
from veilcast.tree.instruction_bundles import Instruction, NodeId, Recipient, open_layer, wrap_group, wrap_tree
from veilcast.tree.layout import HardenedLayout, PaperLayout
from veilcast.tree.paper_router import LabelHeader, LoopLabels
from veilcast.wire.geometry import INSTALL_BLOCK
from veilcast.wire.padding import pad, unpad

N, R, CHAIN = 500, 3, 3
NODES = [number.to_bytes(16, "big") for number in range(N)]
B = tree_shape.branching_factor(N, R)


def number_of(node: NodeId) -> int:
    return int.from_bytes(node, "big")


def rooted(seed: int, root: int = 0, n: int = N) -> PaperLayout:
    return PaperLayout(Secret(seed.to_bytes(8, "big")), NODES[:n], root=root, r=R)


def hung(seed: int, home: int = 0, n: int = N, guards: Sequence[int] = (1, 2, 3)) -> HardenedLayout:
    chain = [NODES[number] for number in guards]
    return HardenedLayout(Secret(seed.to_bytes(8, "big")), NODES[:n], home=NODES[home], guards=chain, r=R)


# --- (a) bundles shrink on their way down, so a node knows how deep it stands, and if it is next to the subscriber


@dataclass(frozen=True)
class Handed:
    """The bytes that a node gets, and what it finds in them."""

    bundle: bytes
    told: Instruction


@cache
def keys() -> list[Keypair]:
    entropy = random.Random(3).randbytes
    return [Keypair.draw(entropy) for _ in range(N)]


def opened(firsts: Iterable[tuple[NodeId, bytes]], strip: Callable[[bytes], bytes]) -> dict[NodeId, Handed]:
    """Everything that is handed on, to every node; `strip` removes the outer layer of a bundle."""
    found: dict[NodeId, Handed] = {}
    waiting = list(firsts)
    while waiting:
        node, bundle = waiting.pop()
        layer = open_layer(keys()[number_of(node)], strip(bundle))
        found[node] = Handed(bundle, layer.instruction)
        waiting += [(child, bundle_of(below, strip)) for child, below in layer.children]
    return found


def bundle_of(sealed: bytes, strip: Callable[[bytes], bytes]) -> bytes:
    """The bundle as the next node gets it: padded, if bundles travel padded."""
    return sealed if strip is bytes else pad(sealed, INSTALL_BLOCK)


@cache
def paper_handed(seed: int) -> dict[NodeId, Handed]:
    plan = rooted(seed)
    below = [plan.node_at(place) for place in range(1, N)]
    recipients = [Recipient(NODES[number], keys()[number].public) for number in below]
    told = [plan.instruction(number) for number in below]
    return opened(wrap_tree(recipients, told, plan.branching, random.Random(seed).randbytes), bytes)


@cache
def hardened_handed(seed: int) -> dict[NodeId, Handed]:
    plan = hung(seed)
    firsts = []
    for group in plan.groups(32):
        recipients = [Recipient(NODES[number], keys()[number].public) for number in group]
        told = [plan.instruction(number) for number in group]
        sealed = wrap_group(recipients, told, 4, random.Random(seed).randbytes)
        firsts.append((NODES[group[0]], pad(sealed, INSTALL_BLOCK)))
    return opened(firsts, unpad)


def accused_by_size(seen: Mapping[NodeId, Handed], sizes: Callable[[Handed], int]) -> set[NodeId]:
    """The guess for the subscriber: the parents of the nodes that were handed the most."""
    most = max(map(sizes, seen.values()))
    return {each.told.parent for each in seen.values() if sizes(each) > most / 2}


def travelled(each: Handed) -> int:
    return len(each.bundle)


def held(each: Handed) -> int:
    """The content that a node of `hardened` finds after it has removed the padding."""
    return len(unpad(each.bundle))


def test_a_in_paper_who_is_handed_most_has_the_subscriber_for_a_parent() -> None:
    for seed in range(3):
        assert accused_by_size(paper_handed(seed), travelled) == {NODES[0]}


def test_a_in_paper_a_third_of_all_trees_name_their_subscriber_to_one_node_in_twenty() -> None:
    """1 - .95^8 = .34, where the paper claims .05^3. A colluder at depth 1 is handed at least 50 layers."""
    plan = rooted(0)
    sizes = {plan.place(number_of(node)): travelled(each) for node, each in paper_handed(0).items()}
    limit = max(size for place, size in sizes.items() if place > B)
    rng, trees, named = random.Random(5), 400, 0
    for seed in range(trees):
        plan = rooted(seed)
        colluders = rng.sample(range(1, N), N // 20)
        accused = {plan.instruction(number).parent for number in colluders if sizes[plan.place(number)] > limit}
        assert accused <= {NODES[0]}
        named += bool(accused)
    expected = 1 - 0.95**B
    assert abs(named / trees - expected) < 4 * sqrt(expected * (1 - expected) / trees)


def test_a_hardened_all_that_travels_has_one_size_and_what_is_in_it_tells_no_depth() -> None:
    for seed in range(3):
        seen, plan = hardened_handed(seed), hung(seed)
        assert len(seen) == N
        assert {travelled(each) for each in seen.values()} == {INSTALL_BLOCK}
        assert accused_by_size(seen, travelled) == {each.told.parent for each in seen.values()}, "everyone accuses"
        large = [node for node, each in seen.items() if held(each) > INSTALL_BLOCK / 8]
        depths = [tree_shape.place_depth(plan.place(number_of(node)), plan.branching) for node in large]
        everyone = [tree_shape.place_depth(place, plan.branching) for place in range(N)]
        assert 80 < len(large) < 140, "those who hand on to several"
        assert abs(sum(depths) / len(depths) - sum(everyone) / N) < 0.3


def test_a_hardened_who_finds_most_in_a_bundle_accuses_the_wrong_ones() -> None:
    for seed in range(3):
        assert NODES[0] not in accused_by_size(hardened_handed(seed), held)


# --- (b) a node has one parent for each subscriber, and sends what is on their topic to all of them


TOPIC = b"news"
GEOMETRY = Geometry.sized(elements=8, queries=4, bound=1e-9)
SMALL = 60


@dataclass
class Routed:
    """The cost of one publication, and the nodes that it reached."""

    messages: int
    reached: set[int]


def by_topic(plans: Sequence[PaperLayout], origin: int, remembering: bool, cut_off: int = 5_000) -> Routed:
    """The paper's routing: filters by destination, and labels in the header, or a memory of messages at each node."""
    rng, headers = random.Random(2), LabelHeader(256)
    tables = [DestinationFilters(GEOMETRY, destinations=len(plans)) for _ in range(SMALL)]
    for plan in plans:
        for number in range(SMALL):
            if plan.place(number):
                tables[number].add(plan.instruction(number).parent, [TOPIC])
    labels = [LoopLabels(headers, every_us=1 << 40, rng=rng, now=0) for _ in range(SMALL)]
    routed, seen = Routed(0, set()), set[int]()
    waiting = deque([(origin, headers.empty())])
    while waiting and routed.messages < cut_off:
        number, header = waiting.popleft()
        routed.reached.add(number)
        marked = labels[number].mark(header, 0)
        if marked is None or (remembering and number in seen):
            continue
        seen.add(number)
        for destination in tables[number].match([[TOPIC]]):
            routed.messages += 1
            waiting.append((number_of(destination), marked))
    return routed


def by_entry(plans: Sequence[HardenedLayout], origin: int) -> Routed:
    """The hardened routing: the origin matches, and from there on every copy climbs by the names of entries."""
    routed = Routed(0, set())
    for plan in plans:
        table = {plan.entry(number): plan.instruction(number) for number in range(SMALL)}
        table |= {told.entry: told for told in map(plan.guard_instruction, range(len(plan.guards)))}
        entry = plan.entry(origin)
        while entry in table:
            told = table[entry]
            entry = told.parent_entry
            routed.messages += 1
        assert entry == plan.home_entry
        routed.reached.add(number_of(told.parent))
    return routed


@pytest.mark.parametrize("origin", [20, 33, 47])
def test_b_in_paper_a_publication_of_three_subscribers_leaves_all_their_ways(origin: int) -> None:
    """Twelve hops would do. Labels stop cycles, not copies: it runs to thousands for sixty nodes."""
    plans = [rooted(seed, seed, SMALL) for seed in range(3)]
    labelled, remembered = (by_topic(plans, origin, remembering) for remembering in (False, True))
    assert {0, 1, 2} <= labelled.reached
    assert {0, 1, 2} <= remembered.reached
    assert labelled.messages > 2_000
    assert 3 * (R + 1) < remembered.messages <= 3 * SMALL
    ways = {node for plan in plans for node in (*plan.path(origin), NODES[origin])}
    assert len(labelled.reached) > 3 * len(ways), "and most nodes see what is none of theirs"


@pytest.mark.parametrize("origin", [20, 33, 47])
def test_b_hardened_every_copy_climbs_its_own_tree(origin: int) -> None:
    plans = [hung(seed, seed, SMALL, guards=(10, 11, 12)) for seed in range(3)]
    routed = by_entry(plans, origin)
    assert routed.reached == {0, 1, 2}
    assert routed.messages <= 3 * (R + 1 + CHAIN)


# --- (c) the subscriber is a parent in every one of its trees, others only when they stand inside


REFRESHES = 40


def most_frequent(parents: Iterable[NodeId]) -> list[NodeId]:
    """The parents that the colluders were told most often; several if they are equally frequent."""
    counts = Counter(parents)
    most = max(counts.values())
    return [node for node, count in counts.items() if count == most]


def runs(count: int) -> Iterator[tuple[list[int], list[int]]]:
    """A tenth of all nodes collude, and the guards are drawn from all."""
    rng = random.Random(8)
    for _ in range(count):
        yield rng.sample(range(1, N), N // 10), rng.sample(range(1, N), CHAIN)


def paper_parents(run: int, colluders: Sequence[int]) -> Iterator[NodeId]:
    for refresh in range(REFRESHES):
        plan = rooted(1000 * run + refresh)
        yield from (plan.instruction(number).parent for number in colluders)


def hardened_parents(run: int, colluders: Sequence[int], guards: Sequence[int]) -> Iterator[NodeId]:
    """A colluding guard is told its parent in every tree, and not which of the guards it is."""
    for refresh in range(REFRESHES):
        plan = hung(1000 * run + refresh, guards=guards)
        yield from (plan.instruction(number).parent for number in colluders)
        yield from (plan.guard_instruction(link).parent for link in range(CHAIN) if guards[link] in colluders)


def test_c_in_paper_the_subscriber_is_the_colluders_most_frequent_parent() -> None:
    for run, (colluders, _) in enumerate(runs(10)):
        assert most_frequent(paper_parents(run, colluders)) == [NODES[0]]


def test_c_hardened_it_is_not_unless_the_guard_next_to_it_colludes() -> None:
    for run, (colluders, guards) in enumerate(runs(12)):
        if guards[0] not in colluders:
            assert most_frequent(hardened_parents(run, colluders, guards)) != [NODES[0]]


def test_c_hardened_the_guard_next_to_it_names_it_and_the_others_name_a_guard() -> None:
    """The remaining attack: of three guards, one is next to the subscriber."""
    colluders, guards = [*range(10, 60)], [101, 102, 103]
    for link, named in enumerate((0, 101, 102)):
        found = most_frequent(hardened_parents(link, [*colluders, guards[link]], guards))
        assert found == [NODES[named]]


# --- (d) the header of labels grows with every hop


def hops_by_header(header: bytes, headers: LabelHeader) -> int:
    """The number of nodes that would set this many bits; none at the first."""
    return round(headers.read(header).bit_count() / headers.hashes)


def test_d_in_paper_a_node_reads_off_the_header_how_far_a_message_has_come() -> None:
    headers, rng = LabelHeader(), random.Random(6)
    right = total = 0
    for _ in range(200):
        header: bytes | None = headers.empty()
        assert hops_by_header(header or b"", headers) == 0, "the origin knows that it is one"
        for hop in range(1, 5):
            header = LoopLabels(headers, every_us=1, rng=rng, now=0).mark(header or headers.empty(), 0) or header
            right += hops_by_header(header or b"", headers) == hop
            total += 1
    assert right / total > 0.95


def test_d_hardened_what_a_copy_carries_from_hop_to_hop_is_a_name_drawn_for_the_next() -> None:
    """Names of entries are as good as random at every depth: their bits tell no hop."""
    plan = hung(1)
    by_depth: dict[int, list[int]] = {}
    for number in range(N):
        bits = int.from_bytes(plan.entry(number), "big").bit_count()
        by_depth.setdefault(tree_shape.place_depth(plan.place(number), plan.branching), []).append(bits)
    deep, high = by_depth[3], by_depth[2] + by_depth[1]
    assert abs(sum(deep) / len(deep) - sum(high) / len(high)) < 4 * sqrt(32 / len(high))
