"""What a publication costs over trees, held against plain walks; and the table of P2's three ways to route."""

from __future__ import annotations

from statistics import mean

import numpy as np
import pytest

from veilcast.lab.models import tree


def planted(nodes: int, readers: int, seed: int) -> tree.SpanningTrees:
    return tree.subscriber_rooted(nodes, 3, tree.draw_nodes(nodes, readers, seed, "readers"), seed)


def paths(above: tree.Nodes, origin: int, number: int) -> list[int]:
    """The plain walk up one tree."""
    walked = [origin]
    while above[walked[-1], number] >= 0:
        walked.append(int(above[walked[-1], number]))
    return walked


def flooded(above: tree.Nodes, origin: int) -> int:
    """By definition: everybody who is reached hands on to all of its parents."""
    reached, edges = [origin], set()
    for node in reached:
        for parent in {*above[node].tolist()} - {-1}:
            edges.add((node, parent))
            if parent not in reached:
                reached.append(parent)
    return len(edges)


def wandered(above: tree.Nodes, passed: list[int]) -> int:
    """All simple paths, each step counted, and those that end at once for having been there."""
    messages = 0
    for parent in {*above[passed[-1]].tolist()} - {-1}:
        messages += 1 if parent in passed else 1 + wandered(above, [*passed, parent])
    return messages


def test_copies_climb_one_path_for_each_reader() -> None:
    trees = planted(60, 5, 1)
    above, origin = tree.all_parents(trees), tree.draw_origins(60, 7, 1)
    walks = [[paths(above, int(start), number) for number in range(5)] for start in origin]
    cost = tree.climb_trees(trees, origin)
    assert cost.copies == pytest.approx(mean(sum(len(walk) - 1 for walk in one) for one in walks))
    assert cost.hops == pytest.approx(cost.copies / 5)
    hops = [{(at, *walk[at : at + 2]) for walk in one for at in range(len(walk) - 1)} for one in walks]
    assert cost.messages == pytest.approx(mean(map(len, hops)))
    sent = np.bincount([sender for one in hops for _, sender, _ in one], minlength=60)
    assert (cost.sent == sent).all()


def test_readers_stand_at_the_root_and_nobody_is_deeper_than_the_tree() -> None:
    readers = tree.draw_nodes(500, 4, 2, "readers")
    above = tree.all_parents(planted(500, 4, 2))
    for number, reader in enumerate(readers):
        ways = [paths(above, node, number) for node in range(500)]
        assert {way[-1] for way in ways} == {reader}
        assert max(map(len, ways)) - 1 == 3


def test_of_trees_that_hang_anybody_is_the_root() -> None:
    above = tree.all_parents(tree.randomly_rooted(100, 3, 300, 1))
    roots = np.argmin(above, axis=0)
    assert np.unique(roots).size > 80


def test_with_a_memory_everybody_who_is_reached_hands_on_once() -> None:
    for seed in range(5):
        above = tree.all_parents(planted(60, 3, seed))
        assert tree.count_flood(above, seed) == flooded(above, seed)


def test_with_exact_labels_every_simple_path_is_walked() -> None:
    for seed in range(5):
        above = tree.all_parents(planted(14, 2, seed))
        assert tree.count_wander(above, seed, 10**6, 0, seed) == wandered(above, [seed])


def test_a_header_that_is_full_ends_paths_too_early_and_counting_ends_where_it_is_told() -> None:
    above = tree.all_parents(planted(60, 3, 1))
    exact, filtered, tiny = (tree.count_wander(above, 0, 10**5, bits, 1) for bits in (0, 64, 8))
    assert 3 <= tiny < filtered <= exact == 10**5


def table(readers: int, seeds: int = 6) -> dict[str, float]:
    found: dict[str, list[float]] = {"trees": [], "seen": [], "busiest": []}
    for seed in range(seeds):
        trees = planted(500, readers, seed)
        above, origin = tree.all_parents(trees), tree.draw_origins(500, 100, seed)
        cost = tree.climb_trees(trees, origin)
        found["trees"].append(cost.messages)
        found["busiest"].append(float(cost.sent.max()))
        found["seen"] += [tree.count_flood(above, int(start)) for start in origin[:10]]
    return {name: mean(values) for name, values in found.items()}


@pytest.mark.parametrize(("readers", "trees", "seen"), [(2, 6, 104), (3, 8, 435), (10, 28, 3_701), (50, 139, 23_734)])
def test_the_table_of_messages_is_reproduced(readers: int, trees: float, seen: float) -> None:
    found = table(readers)
    assert found["trees"] == pytest.approx(trees, rel=0.08)
    assert found["seen"] == pytest.approx(seen, rel=0.2)


def test_the_busiest_node_sends_far_less_than_a_server() -> None:
    assert table(50)["busiest"] == pytest.approx(149, rel=0.1)
    assert tree.climb_trees(planted(500, 50, 1), tree.draw_origins(500, 1, 1)).sent.max() == pytest.approx(48, abs=2)


def test_topics_alone_and_labels_cost_hundreds_of_thousands_for_two_readers() -> None:
    counts = [
        tree.count_wander(tree.all_parents(planted(500, 2, seed)), int(origin), 2_000_000, 128, seed)
        for seed in range(8)
        for origin in tree.draw_origins(500, 2, seed)
    ]
    assert 300_000 < mean(counts) < 1_100_000


def test_a_hundred_thousand_nodes_are_no_more_than_their_paths() -> None:
    cost = tree.climb_trees(planted(100_000, 100, 1), tree.draw_origins(100_000, 20, 1))
    assert cost.hops == pytest.approx(2.98, abs=0.01)
    assert 100 <= cost.sent.max() <= 220
