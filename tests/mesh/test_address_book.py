"""The address book: hearsay stays hearsay, and no Byzantine member fills it."""

from __future__ import annotations

from collections import Counter
from random import Random

from veilcast.machine import Address
from veilcast.mesh.address_book import FAILURES_MAX, AddressBook
from veilcast.sim.mesh.population import address_prefix

MOST, SOURCE_MAX = 40, 4


def make_book() -> AddressBook:
    return AddressBook(MOST, SOURCE_MAX, address_prefix, Random(1))


def name(prefix: int, host: int = 0) -> Address:
    return Address(f"p{prefix}.{host}")


def any_address(_: Address) -> bool:
    return True


def test_hearsay_takes_at_most_half_the_book_and_never_evicts_proven_addresses() -> None:
    book = make_book()
    for number in range(MOST // 2):
        book.mark_reached(name(number))
    proven = dict(book.proven)
    for number in range(1_000):
        book.add_hearsay(name(1_000 + number), name(2_000 + number))
    assert len(book.unproven) == MOST // 2
    assert book.proven == proven


def test_one_byzantine_source_gets_a_few_entries_and_others_keep_theirs() -> None:
    book = make_book()
    for number in range(10):
        book.add_hearsay(name(number), name(100 + number))
    for number in range(1_000):
        book.add_hearsay(name(500, number), name(99, number))
    by = Counter(book.unproven.values())
    assert by["p99"] == SOURCE_MAX
    assert sum(by.values()) == 10 + SOURCE_MAX


def test_when_hearsay_is_full_the_prefix_that_told_most_loses_its_oldest() -> None:
    book = make_book()
    for source in range(MOST // 2 // SOURCE_MAX):
        for number in range(SOURCE_MAX):
            book.add_hearsay(name(10 * source + number), name(100 + source))
    book.add_hearsay(name(77), name(200))
    assert name(77) in book.unproven
    assert name(0) not in book.unproven
    assert len(book.unproven) == MOST // 2


def test_proven_addresses_are_bounded_and_the_largest_prefix_is_evicted() -> None:
    book = make_book()
    for number in range(MOST // 2 - 2):
        book.mark_reached(name(number))
    for number in range(100):
        book.mark_reached(name(500, number))
    assert len(book.proven) == MOST // 2
    assert sum(address_prefix(other) == "p500" for other in book.proven) == 2
    assert name(500, 99) in book.proven


def test_hearsay_is_dropped_after_one_failure_and_proven_addresses_after_several() -> None:
    book = make_book()
    book.add_hearsay(name(1), name(9))
    book.mark_reached(name(2))
    book.mark_failed(name(1))
    assert len(book) == 1
    for _ in range(FAILURES_MAX - 1):
        book.mark_failed(name(2))
    book.mark_reached(name(2))
    for _ in range(FAILURES_MAX - 1):
        book.mark_failed(name(2))
    assert name(2) in book.proven
    book.mark_failed(name(2))
    assert len(book) == 0


def test_many_addresses_of_one_prefix_are_no_likelier_than_one() -> None:
    book = make_book()
    for number in range(16):
        book.mark_reached(name(0, number))
    book.mark_reached(name(1))
    drawn = Counter(address_prefix(book.choose(any_address) or Address("")) for _ in range(400))
    assert abs(drawn["p1"] - 200) < 60


def test_a_sample_has_one_address_of_each_prefix() -> None:
    book = make_book()
    for number in range(16):
        book.mark_reached(name(number % 4, number))
    assert len({address_prefix(other) for other in book.sample(8)}) == len(book.sample(8)) == 4


def test_an_address_that_does_not_fit_is_not_chosen() -> None:
    book = make_book()
    book.mark_reached(name(1))
    assert book.choose(lambda other: other != name(1)) is None
