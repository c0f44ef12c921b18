"""Sticky choices: a choice stays the same, and choices for different things are independent."""

from __future__ import annotations

from math import sqrt

from veilcast.crypto.secret import Secret
from veilcast.mesh.sticky_choices import StickyChoices

NAMES = [f"n{number}".encode() for number in range(8)]


def choices(number: int) -> StickyChoices:
    return StickyChoices(Secret(number.to_bytes(32, "big")))


def lineage(number: int) -> bytes:
    return number.to_bytes(16, "big")


def order(who: StickyChoices, of: bytes) -> list[bytes]:
    return sorted(NAMES, key=lambda name: who.parent_rank(of, name))


def test_a_member_makes_the_same_choices_after_a_restart() -> None:
    before, after = choices(1), choices(1)
    assert order(before, lineage(1)) == order(after, lineage(1))
    assert before.choose_first_relay(NAMES) == after.choose_first_relay(NAMES)
    assert before.relay_rank(NAMES[0], NAMES[1]) == after.relay_rank(NAMES[0], NAMES[1])
    for number in range(100):
        assert before.is_cover(lineage(number), 0.5) == after.is_cover(lineage(number), 0.5)


def test_the_order_of_parents_does_not_depend_on_the_present_neighbours() -> None:
    whole = order(choices(1), lineage(1))
    some = sorted(NAMES[::2], key=lambda name: choices(1).parent_rank(lineage(1), name))
    assert some == [name for name in whole if name in some]


def test_choices_of_two_lineages_and_of_two_members_are_independent() -> None:
    """Of 8 neighbours the first is the same in one case out of 8: within four standard deviations."""
    cases = 600
    for same in (
        sum(order(choices(n), lineage(1))[0] == order(choices(n), lineage(2))[0] for n in range(cases)),
        sum(order(choices(n), lineage(1))[0] == order(choices(n + 1), lineage(1))[0] for n in range(cases)),
        sum(choices(n).choose_first_relay(NAMES) == order(choices(n), lineage(1))[0] for n in range(cases)),
    ):
        assert abs(same / cases - 1 / 8) < 4 * sqrt(7 / 64 / cases)


def test_the_successor_is_the_first_of_all_neighbours_and_stays_while_it_is_one() -> None:
    who = choices(3)
    first = who.choose_first_relay(NAMES)
    assert who.choose_first_relay(reversed(NAMES)) == first
    others = [name for name in NAMES if name != first]
    for gone in others:
        assert who.choose_first_relay([name for name in NAMES if name != gone]) == first
    assert who.choose_first_relay([]) is None


def test_every_neighbour_is_as_likely_to_be_the_successor() -> None:
    cases = 600
    counts = [0] * len(NAMES)
    for number in range(cases):
        chosen = choices(number).choose_first_relay(NAMES)
        assert chosen is not None
        counts[NAMES.index(chosen)] += 1
    chi_squared = sum((count - cases / 8) ** 2 / (cases / 8) for count in counts)
    assert chi_squared < 24.3  # The 99.9th percentile with seven degrees of freedom.


def test_the_order_of_relays_depends_on_the_predecessor_alone() -> None:
    who = choices(4)
    orders = [sorted(NAMES, key=lambda name: who.relay_rank(before, name)) for before in NAMES]
    assert len({order[0] for order in orders}) > 1
    assert orders == [sorted(NAMES, key=lambda name: choices(4).relay_rank(before, name)) for before in NAMES]


def test_the_coin_of_a_predecessor_is_fixed_and_fair() -> None:
    cases = 2000
    heads = 0
    for number in range(cases):
        coin = choices(number).continues_stem(NAMES[0], 0.5)
        assert coin == choices(number).continues_stem(NAMES[0], 0.5)
        heads += coin
    assert abs(heads / cases - 0.5) < 4 * sqrt(0.25 / cases)
    assert not any(choices(number).continues_stem(NAMES[0], 0) for number in range(100))


def test_as_many_cover_a_topic_as_it_asks_for() -> None:
    cases = 500
    for share in (0.0, 0.25, 0.78, 1.0):
        covers = sum(choices(number).is_cover(lineage(number % 7), share) for number in range(cases))
        assert abs(covers / cases - share) <= 4 * sqrt(share * (1 - share) / cases)


def test_covering_one_topic_is_independent_of_covering_another() -> None:
    cases = 500
    both = sum(choices(n).is_cover(lineage(1), 0.5) and choices(n).is_cover(lineage(2), 0.5) for n in range(cases))
    assert abs(both / cases - 0.25) < 4 * sqrt(0.25 * 0.75 / cases)


def test_a_larger_share_keeps_all_covers_of_a_smaller_one() -> None:
    """So a topic that is declared again with more cover ends no cover."""
    for number in range(200):
        shares = [choices(number).is_cover(lineage(1), share) for share in (0.0, 0.3, 0.78, 0.9, 1.0)]
        assert shares == sorted(shares)
