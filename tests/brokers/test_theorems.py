"""P4, Theorems 1 to 3, by exhaustive search over Byzantine replicas that collude across all hops.

The code itself computes what each broker sees. The key that is split has 64 bytes, and splitting treats each byte
alike. So byte j stands for the j-th unknown: the key is the first unit vector, every random vector is the next one, and
each resulting share is its own linear form. An adversary knows the key if and only if that unit vector is in the span
of what it sees (`share_algebra`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain, combinations, product
from math import prod
from typing import TypeAlias

import numpy as np
import pytest

from support import paper_variants
from support.share_algebra import INVERSE, TIMES, Rows, is_determined
from veilcast.brokers.keys.paper_split import SplitKeyCollector, SplitShare, TrailVerifier, split_again, split_key
from veilcast.brokers.keys.scheme import KeyAttempt, ReplicaKeys, Scheme, majority
from veilcast.crypto import shamir
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey

LANES = 64
Broker: TypeAlias = tuple[int, int]
"""(hop, index), both from 1."""
Liars: TypeAlias = frozenset[Broker]
Seen: TypeAlias = tuple[frozenset[Broker], bytes]
"""A form, and the brokers that know it: its maker and its receiver."""

SIZES = [(3,), (3, 3), (3, 3, 3), (5,), (5, 5), (3, 5), (5, 3), (3, 3, 5), (4, 4), (4, 3)]


def unit(number: int) -> bytes:
    assert number < LANES, "a key has too few bytes for so many unknowns"
    return bytes(number) + b"\x01" + bytes(LANES - number - 1)


KEY = Secret(unit(0))
TARGET = np.frombuffer(unit(0), dtype=np.uint8)


def unknowns() -> Callable[[int], bytes]:
    """An entropy source whose every vector is a new unknown."""
    drawn = iter(range(1, LANES))
    return lambda size: b"".join(unit(next(drawn)) for _ in range(size // LANES))


def span(forms: Sequence[bytes]) -> Rows:
    return np.frombuffer(b"".join(forms), dtype=np.uint8).reshape(len(forms), LANES)


def knows(forms: Sequence[bytes]) -> bool:
    return is_determined(span(forms), TARGET)


def minorities(sizes: Sequence[int]) -> Iterator[Liars]:
    """Every set of brokers that is a minority at every hop."""
    hops = [
        [
            frozenset((hop, index) for index in chosen)
            for count in range((size - 1) // 2 + 1)
            for chosen in combinations(range(1, size + 1), count)
        ]
        for hop, size in enumerate(sizes, 1)
    ]
    for each in product(*hops):
        yield frozenset(chain(*each))


def signing(hop: int, index: int) -> SigningKey:
    return SigningKey(Secret(bytes((hop, index)) * 16))


PUBLISHER = signing(200, 200)
ORIGIN = KeyAttempt(bytes(16))


def scheme(hop: int, size: int) -> Scheme:
    return Scheme(bytes((hop,)) * 16, 0, size)


class SplitRun:
    """The corrected scheme over nodes of these sizes, run once; it draws the same whichever replicas are Byzantine."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = sizes
        self.seen: list[Seen] = []
        roster = ReplicaKeys(nodes=len(sizes))
        entropy = unknowns()
        self.parcels: list[SplitShare] = []
        for hop, size in enumerate(sizes, 1):
            to = scheme(hop, size)
            roster.add(to, [signing(hop, index).public for index in range(1, size + 1)])
            if hop == 1:
                self.parcels = split_key(KEY, ORIGIN, to, PUBLISHER, entropy)
            else:
                self.parcels = [
                    piece
                    for parcel in self.parcels
                    for piece in split_again(parcel, to, signing(hop - 1, parcel.index), entropy)
                ]
            self.seen += [(frozenset(enumerate(parcel.path, 1)), parcel.data.reveal()) for parcel in self.parcels]
        self.trails = TrailVerifier(PUBLISHER.public, roster)

    def view(self, byzantine: Liars) -> list[bytes]:
        """The forms that a Byzantine broker had as the last holder or as the splitter."""
        return [form for run, form in self.seen if any(each in byzantine for each in run if each[0] >= len(run) - 1)]

    def arrives(self, byzantine: Liars) -> list[SplitShare]:
        """The forms that reach the subscriber if Byzantine brokers drop all they can."""
        return [parcel for parcel in self.parcels if not byzantine & frozenset(enumerate(parcel.path, 1))]

    def gathered(self, byzantine: Liars) -> SplitKeyCollector:
        gathering = SplitKeyCollector(ORIGIN, self.trails)
        for parcel in self.arrives(byzantine):
            gathering.add(parcel, parcel.holder)
        return gathering


@cache
def run(sizes: tuple[int, ...]) -> SplitRun:
    return SplitRun(sizes)


# --- the search is to be believed -------------------------------------------------------------------------------------


def test_the_search_covers_785_sets() -> None:
    assert sum(len(list(minorities(sizes))) for sizes in SIZES) == 785


def test_the_algebra_agrees_with_reconstruction() -> None:
    pieces = [piece.data.reveal() for piece in shamir.split(KEY, 3, 5, unknowns())]
    for count in range(1, 6):
        for chosen in combinations(pieces, count):
            assert knows(chosen) == (count >= 3)


def test_the_algebra_inverts() -> None:
    assert all(TIMES[a, INVERSE[a]] == 1 for a in range(1, 256))


@pytest.mark.parametrize("sizes", [(3, 3), (5, 3)])
def test_a_majority_of_one_hop_reads_the_key(sizes: tuple[int, ...]) -> None:
    """The bound is sharp: with one more broker the search must find the break."""
    for hop, size in enumerate(sizes, 1):
        too_many = frozenset((hop, index) for index in range(1, majority(size) + 1))
        assert knows(run(sizes).view(too_many))
        assert run(sizes).gathered(too_many).key is None


# --- Theorems 1 to 3 for the corrected scheme -------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_theorem_1_no_minority_at_every_hop_reads_the_key(sizes: tuple[int, ...]) -> None:
    assert not [byzantine for byzantine in minorities(sizes) if byzantine and knows(run(sizes).view(byzantine))]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_theorem_2_the_honest_replicas_deliver_it(sizes: tuple[int, ...]) -> None:
    for byzantine in minorities(sizes):
        gathering = run(sizes).gathered(byzantine)
        assert gathering.key == KEY
        assert gathering.faulty == {}, "who only drops is not proven to lie"
        assert len(gathering) == prod(size - sum(at == hop for at, _ in byzantine) for hop, size in enumerate(sizes, 1))


@pytest.mark.parametrize("sizes", [(3,), (3, 3), (3, 3, 3), (5, 3)], ids=str)
def test_theorem_3_an_unauthorised_subscriber_of_any_minority_reads_nothing(sizes: tuple[int, ...]) -> None:
    """Every Byzantine broker gives it everything, and every honest broker gives it nothing: no grant."""
    for byzantine in minorities(sizes):
        handed = run(sizes).view(byzantine)
        assert not handed or not knows(handed)
        stolen = SplitKeyCollector(ORIGIN, run(sizes).trails)
        for parcel in run(sizes).parcels:
            if (len(sizes), parcel.index) in byzantine:
                stolen.add(parcel, parcel.holder)
        assert stolen.key is None


@pytest.mark.heavy
def test_theorem_1_holds_for_the_largest_minorities_of_three_nodes_of_five() -> None:
    """Smaller ones are subsets: 1,000 sets instead of 4,096."""
    for byzantine in minorities((5, 5, 5)):
        if len(byzantine) == 6:
            assert not knows(run((5, 5, 5)).view(byzantine))


def test_fig_2_one_replica_more_than_droppers_delivers_content() -> None:
    """Against brokers that only drop, f + 1 copies are enough; for keys that does not help, because each copy would
    reveal them."""
    for f in range(1, 5):
        copies = shamir.split(KEY, 1, f + 1, unknowns())
        for droppers in combinations(range(f + 1), f):
            left = [copy for at, copy in enumerate(copies) if at not in droppers]
            assert shamir.reconstruct(left, 1) == KEY
        assert knows([copies[0].data.reveal()])


# --- positive controls: what must break -------------------------------------------------------------------------------


def test_fig_3_algorithm_1_gives_a_single_receiver_enough_shares() -> None:
    split = shamir.split(KEY, 2, 3, unknowns())
    received = paper_variants.threshold_propagation([[share] for share in split], 3, 2)
    assert all(knows([share.data.reveal() for share in receiver]) for receiver in received)


@pytest.mark.parametrize(("size", "byzantine"), [(3, [(1, 3), (2, 2)]), (5, [(1, 3), (2, 1), (2, 2)])])
def test_fig_3_shares_forwarded_whole_meet(size: int, byzantine: list[Broker]) -> None:
    """B3 of V1 with B2 of V2, and as in 3 B among five: two shares of three, three of five."""
    split = shamir.split(KEY, majority(size), size, unknowns())
    hops = [[[share] for share in split]]
    hops.append(paper_variants.pass_on_one_each(hops[0]))
    pooled = [share.data.reveal() for hop, index in byzantine for share in hops[hop - 1][index - 1]]
    assert knows(pooled)
    broken = [
        found
        for found in minorities((size, size))
        if found and knows([share.data.reveal() for hop, index in found for share in hops[hop - 1][index - 1]])
    ]
    assert frozenset(byzantine) in broken


def test_fig_4a_network_coding_is_broken_by_one_broker_at_each_hop() -> None:
    """All of c1, c2 and c3 meet at B1 of V3; and any one of the three withholds the key from all."""
    parts = np.eye(3, 16, dtype=np.uint8)
    key = Secret(parts.tobytes())
    blocks = paper_variants.encode_blocks(key, 3)
    v1 = [[block] for block in blocks]
    v2 = paper_variants.pass_on_one_each(v1)
    v3 = paper_variants.pass_on_one_each(v2)
    b3_of_v1, b2_of_v2, b1_of_v3 = v1[2], v2[1], v3[0]
    assert paper_variants.decode_blocks([*b1_of_v3, *b2_of_v2, *b3_of_v1]) == key
    for some in combinations(blocks, 2):
        forms = np.frombuffer(b"".join(block.data.reveal() for block in some), dtype=np.uint8).reshape(2, 16)
        assert not all(is_determined(forms, part) for part in parts)


@pytest.mark.parametrize(
    ("sizes", "silenced", "read", "cases"), [((3, 3), 3, 0, 16), ((5, 5), 65, 0, 256), ((3, 5), 21, 9, 64)]
)
def test_algorithm_2_as_printed_breaks(sizes: tuple[int, int], silenced: int, read: int, cases: int) -> None:
    lost = found = sets = 0
    for byzantine in minorities(sizes):
        faulty_count = sum(hop == 1 for hop, _ in byzantine)
        entropy = unknowns()
        first = shamir.split(KEY, majority(sizes[0]), sizes[0], entropy)
        pieces = {
            (at, piece.index): piece.data.reveal()
            for at in range(1, sizes[0] + 1)
            for piece in paper_variants.split_as_printed(first[at - 1].data, sizes[0], faulty_count, entropy)
            if piece.index <= sizes[1]
        }
        held = [share.data.reveal() for share in first if (1, share.index) in byzantine]
        held += [piece for (by, to), piece in pieces.items() if (1, by) in byzantine or (2, to) in byzantine]
        arrived = [piece for (by, to), piece in pieces.items() if (1, by) not in byzantine and (2, to) not in byzantine]
        sets += 1
        found += bool(held) and knows(held)
        lost += not arrived or not knows(arrived)
    assert (lost, found, sets) == (silenced, read, cases)


def two_branches(split: Callable[[Secret, Callable[[int], bytes]], list[list[bytes]]]) -> list[Liars]:
    """V1 of three forwards to two nodes of three, here called hops 2 and 3: which minorities read the key."""
    entropy = unknowns()
    first = shamir.split(KEY, 2, 3, entropy)
    pieces = {share.index: split(share.data, entropy) for share in first}
    broken = []
    for byzantine in minorities((3, 3, 3)):
        held = [share.data.reveal() for share in first if (1, share.index) in byzantine]
        held += [
            form
            for by, branches in pieces.items()
            for hop, branch in enumerate(branches, 2)
            for at, form in enumerate(branch, 1)
            if (1, by) in byzantine or (hop, at) in byzantine
        ]
        if held and knows(held):
            broken.append(byzantine)
    return broken


BRANCHES = [scheme(2, 3), scheme(3, 3)]


def test_a_polynomial_reused_on_another_branch_breaks() -> None:
    def split(share: Secret, entropy: Callable[[int], bytes]) -> list[list[bytes]]:
        return [
            [p.data.reveal() for p in pieces] for pieces in paper_variants.reuse_one_split(share, BRANCHES, entropy)
        ]

    assert frozenset({(2, 1), (3, 2)}) in two_branches(split)


def test_a_separate_polynomial_for_each_branch_does_not_break() -> None:
    def split(share: Secret, entropy: Callable[[int], bytes]) -> list[list[bytes]]:
        held = SplitShare(split_key(KEY, ORIGIN, scheme(1, 3), PUBLISHER, unknowns())[0].trail, 1, share)
        return [[p.data.reveal() for p in split_again(held, branch, signing(1, 1), entropy)] for branch in BRANCHES]

    assert two_branches(split) == []
