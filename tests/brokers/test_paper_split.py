"""The paper's key transfer: shares carry their proofs, Byzantine replicas are blamed, and no other replica is."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, combinations, product

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilcast.brokers.keys import share_counts
from veilcast.brokers.keys.paper_split import (
    BAD_SHARE,
    BAD_SPLIT,
    HOPS_MAX,
    TWO_STATEMENTS,
    SplitKeyCollector,
    SplitShare,
    TrailVerifier,
    split_again,
    split_key,
)
from veilcast.brokers.keys.scheme import (
    KeyAttempt,
    ReplicaId,
    ReplicaKeys,
    Scheme,
    check_hardened,
    majority,
    max_faulty,
)
from veilcast.crypto.derive import derive
from veilcast.crypto.secret import Secret
from veilcast.crypto.shamir import ShamirShare, reconstruct, split
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ConfigError, ExcessError, ForgedError, LocalError, MalformedError, RemoteError, StaleError
from veilcast.machine import Entropy

KEY = Secret(bytes(range(16)))
ORIGIN = KeyAttempt(b"k" * 16)
PUBLISHER = SigningKey(Secret(b"p" * 32))
Behaviour = Callable[["SplitNetwork", SplitShare, Scheme | None], list[SplitShare]]


def scheme(hop: int, size: int = 3, version: int = 0) -> Scheme:
    return Scheme(bytes((hop,)) * 16, version, size)


def signing(place: ReplicaId) -> SigningKey:
    return SigningKey(Secret(place.scheme.node + bytes((place.index, place.scheme.version)) * 8))


class SplitNetwork:
    """Brokers of some hops, some with a scripted behaviour."""

    def __init__(self, sizes: Sequence[int], seed: int = 1) -> None:
        self.schemes = [scheme(hop, size) for hop, size in enumerate(sizes, 1)]
        self.replica_keys = ReplicaKeys(nodes=len(sizes))
        for each in self.schemes:
            self.replica_keys.add(each, [signing(ReplicaId(each, index)).public for index in range(1, each.size + 1)])
        self.trails = TrailVerifier(PUBLISHER.public, self.replica_keys)
        self.entropy: Entropy = random.Random(seed).randbytes
        self.gathering = SplitKeyCollector(ORIGIN, self.trails)
        self.refused: list[str] = []

    def parcels(self) -> list[SplitShare]:
        return split_key(KEY, ORIGIN, self.schemes[0], PUBLISHER, self.entropy)

    def run(self, behaviours: dict[ReplicaId, Behaviour]) -> SplitKeyCollector:
        parcels = self.parcels()
        for to in [*self.schemes[1:], None]:
            parcels = [piece for parcel in parcels for piece in behaviours.get(parcel.holder, honest)(self, parcel, to)]
            if to is not None:
                parcels = [piece for piece in parcels if self.taken(piece)]
        for parcel in parcels:
            try:
                self.gathering.add(parcel, parcel.holder)
            except RemoteError as error:
                self.refused.append(str(error))
        return self.gathering

    def taken(self, parcel: SplitShare) -> bool:
        """An honest receiver's check; a Byzantine receiver gains nothing by accepting an invalid share."""
        try:
            self.trails.check(parcel)
        except RemoteError:
            return False
        return True


def honest(network: SplitNetwork, parcel: SplitShare, to: Scheme | None) -> list[SplitShare]:
    return [parcel] if to is None else split_again(parcel, to, signing(parcel.holder), network.entropy)


def silent(network: SplitNetwork, parcel: SplitShare, to: Scheme | None) -> list[SplitShare]:
    return []


def corrupt(network: SplitNetwork, parcel: SplitShare, to: Scheme | None) -> list[SplitShare]:
    """Splits or sends another value than it was given."""
    wrong = msgspec.structs.replace(parcel, data=Secret(network.entropy(len(parcel.data))))
    return honest(network, wrong, to)


def equivocate(network: SplitNetwork, parcel: SplitShare, to: Scheme | None) -> list[SplitShare]:
    """Splits twice, and sends one split to half of the receivers, the other to the other half."""
    if to is None:
        return corrupt(network, parcel, to)
    pair = honest(network, parcel, to), honest(network, parcel, to)
    return [pair[piece.index % 2][piece.index - 1] for piece in pair[0]]


def sign_wrong_degree(network: SplitNetwork, parcel: SplitShare, to: Scheme | None) -> list[SplitShare]:
    """Signs for shares that lie on no polynomial of the right degree: those of a split with a higher threshold."""
    if to is None or to.size < 3:
        return corrupt(network, parcel, to)
    steep = split(parcel.data, to.size, to.size, network.entropy)
    statement = split_again(parcel, to, signing(parcel.holder), network.entropy)[0].trail[-1]
    digests = tuple(
        derive(piece.data, b"vc/piece", msgspec.msgpack.encode((ORIGIN, (*statement.path, piece.index)))).reveal()
        for piece in steep
    )
    unsigned = msgspec.structs.replace(statement, digests=digests, signature=bytes(64))
    signature = signing(parcel.holder).sign(msgspec.msgpack.encode(unsigned), purpose=b"veilcast/split")
    forged = msgspec.structs.replace(unsigned, signature=signature)
    return [SplitShare((*parcel.trail, forged), piece.index, piece.data) for piece in steep]


BEHAVIOURS: tuple[Behaviour, ...] = (silent, corrupt, equivocate, sign_wrong_degree)


def faulty_set(network: SplitNetwork) -> Iterator[dict[ReplicaId, Behaviour]]:
    """Every minority at every hop, with every choice of behaviours."""
    hops = [
        [chosen for count in range(each.max_faulty + 1) for chosen in combinations(range(1, each.size + 1), count)]
        for each in network.schemes
    ]
    for choice in product(*hops):
        places = list(chain(*([ReplicaId(s, i) for i in c] for s, c in zip(network.schemes, choice, strict=True))))
        for behaviours in product(BEHAVIOURS, repeat=len(places)):
            yield dict(zip(places, behaviours, strict=True))


def check_lies(sizes: tuple[int, ...]) -> None:
    for behaviours in faulty_set(SplitNetwork(sizes)):
        gathering = SplitNetwork(sizes).run(behaviours)
        assert gathering.key == KEY
        assert set(gathering.faulty) <= {place for place, lie in behaviours.items() if lie is not silent}


@pytest.mark.parametrize("sizes", [(3,), (3, 3), (3, 1)], ids=str)
def test_every_behaviour_of_every_minority_is_tolerated_and_no_honest_replica_blamed(sizes: tuple[int, ...]) -> None:
    check_lies(sizes)


@pytest.mark.heavy
@pytest.mark.parametrize("sizes", [(3, 3, 3), (5, 3)], ids=str)
def test_every_behaviour_is_tolerated_over_more_hops(sizes: tuple[int, ...]) -> None:
    check_lies(sizes)


@pytest.mark.parametrize(
    ("hop", "lie", "reason"),
    [
        (1, corrupt, BAD_SPLIT),
        (2, corrupt, BAD_SPLIT),
        (1, equivocate, TWO_STATEMENTS),
        (1, sign_wrong_degree, BAD_SPLIT),
        (3, corrupt, BAD_SHARE),
    ],
)
def test_a_single_byzantine_replica_is_blamed_with_its_fault(hop: int, lie: Behaviour, reason: str) -> None:
    network = SplitNetwork((3, 3, 3))
    faulty = ReplicaId(network.schemes[hop - 1], 1)
    assert network.run({faulty: lie}).faulty == {faulty: reason}


@given(st.lists(st.sampled_from([1, 2, 3, 4, 5]), min_size=1, max_size=3), st.integers(0, 2**32))
@settings(max_examples=20)
def test_random_behaviours_over_nodes_of_any_size_are_tolerated(sizes: list[int], seed: int) -> None:
    rng = random.Random(seed)
    network = SplitNetwork(sizes, seed)
    behaviours: dict[ReplicaId, Behaviour] = {}
    for each in network.schemes:
        for index in rng.sample(range(1, each.size + 1), max_faulty(each.size)):
            behaviours[ReplicaId(each, index)] = rng.choice(BEHAVIOURS)
    gathering = network.run(behaviours)
    assert gathering.key == KEY
    assert set(gathering.faulty) <= set(behaviours)


def test_without_commitments_one_byzantine_replica_at_each_hop_would_corrupt_the_key() -> None:
    """The planted bug: a subscriber that checks nothing takes the first shares of a majority, and gets another key."""
    network = SplitNetwork((3,))
    parcels = [
        piece
        for parcel in network.parcels()
        for piece in (corrupt if parcel.index == 1 else honest)(network, parcel, None)
    ]
    assert reconstruct([ShamirShare(parcel.index, parcel.data) for parcel in parcels], 2) != KEY


# --- parcels ----------------------------------------------------------------------------------------------------------


def over_two_hops(network: SplitNetwork) -> SplitShare:
    return honest(network, network.parcels()[1], network.schemes[1])[2]


def test_a_split_share_names_its_path_and_survives_encoding() -> None:
    network = SplitNetwork((3, 5))
    parcel = over_two_hops(network)
    assert parcel.path == (2, 3)
    assert parcel.hops == 2
    assert [statement.to.size for statement in parcel.trail] == [3, 5]
    assert [statement.to.threshold for statement in parcel.trail] == [2, 3]
    assert SplitShare.decode(parcel.encode().reveal()) == parcel
    assert "Secret of" in repr(parcel)


@pytest.mark.parametrize("data", [b"", bytes(65)])
def test_an_empty_or_oversized_share_is_refused(data: bytes) -> None:
    parcel = SplitNetwork((3,)).parcels()[0]
    with pytest.raises(MalformedError):
        SplitShare.decode(msgspec.msgpack.encode((parcel.trail, 1, data)))


@given(st.binary(max_size=400))
@settings(max_examples=25)
def test_noise_is_not_a_split_share(data: bytes) -> None:
    with pytest.raises(MalformedError):
        SplitShare.decode(data)


@given(st.data())
@settings(max_examples=20)
def test_no_byte_of_a_split_share_can_change(data: st.DataObject) -> None:
    network = SplitNetwork((3, 3))
    encoded = bytearray(over_two_hops(network).encode().reveal())
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(RemoteError):
        network.trails.check(SplitShare.decode(bytes(encoded)))


def test_a_trail_cannot_be_combined_from_two() -> None:
    network = SplitNetwork((3, 3))
    one, other = over_two_hops(network), honest(network, network.parcels()[1], network.schemes[1])[2]
    mixed = SplitShare((one.trail[0], other.trail[1]), other.index, other.data)
    with pytest.raises(ForgedError):
        network.trails.check(mixed)
    with pytest.raises(ForgedError):
        network.trails.check(SplitShare(one.trail[1:], one.index, one.data))


def test_an_unknown_scheme_blames_nobody() -> None:
    network = SplitNetwork((3, 3))
    parcel = over_two_hops(network)
    network.replica_keys.drop(network.schemes[0].node)
    with pytest.raises(StaleError):
        SplitKeyCollector(ORIGIN, TrailVerifier(PUBLISHER.public, network.replica_keys)).add(parcel, parcel.holder)


def test_each_branch_and_each_repeat_has_its_own_polynomial() -> None:
    network = SplitNetwork((3, 3))
    parcel = network.parcels()[0]
    first, second = (honest(network, parcel, network.schemes[1]) for _ in range(2))
    assert all(a.data != b.data for a, b in zip(first, second, strict=True))
    assert all(a.data != b.data for a, b in zip(network.parcels(), network.parcels(), strict=True))


def test_shares_of_two_attempts_do_not_mix() -> None:
    network = SplitNetwork((3,))
    again = split_key(KEY, KeyAttempt(ORIGIN.key, 1), network.schemes[0], PUBLISHER, network.entropy)
    with pytest.raises(StaleError):
        network.gathering.add(again[0], again[0].holder)


def test_disjoint_paths_are_split_separately_and_any_of_them_is_enough() -> None:
    network = SplitNetwork((3, 3))
    by_one, by_other = (split_key(KEY, ORIGIN, to, PUBLISHER, network.entropy) for to in network.schemes)
    gathering = SplitKeyCollector(ORIGIN, network.trails)
    assert gathering.add(by_one[0], by_one[0].holder) is None
    assert gathering.add(by_other[2], by_other[2].holder) is None
    assert gathering.add(by_other[1], by_other[1].holder) == KEY
    assert gathering.faulty == {}


def test_a_repeated_share_counts_once() -> None:
    network = SplitNetwork((3,))
    parcel = network.parcels()[0]
    network.gathering.add(parcel, parcel.holder)
    assert network.gathering.add(parcel, parcel.holder) is None
    assert len(network.gathering) == 1


def test_the_sender_of_a_foreign_share_is_blamed() -> None:
    network = SplitNetwork((3,))
    thief = ReplicaId(network.schemes[0], 2)
    with pytest.raises(ForgedError):
        network.gathering.add(network.parcels()[0], thief)
    assert network.gathering.faulty == {thief: BAD_SHARE}


def test_the_gatherer_is_bounded() -> None:
    network = SplitNetwork((3,))
    gathering = SplitKeyCollector(ORIGIN, network.trails, most=1)
    parcels = network.parcels()
    gathering.add(parcels[0], parcels[0].holder)
    with pytest.raises(ExcessError):
        gathering.add(parcels[1], parcels[1].holder)


def test_verified_statements_are_remembered_within_bounds() -> None:
    network = SplitNetwork((5, 3))
    trails = TrailVerifier(PUBLISHER.public, network.replica_keys, kept=3)
    for parcel in network.parcels():
        trails.check(honest(network, parcel, network.schemes[1])[0])
    assert len(trails) == 3


def test_a_path_is_bounded() -> None:
    network = SplitNetwork((1,))
    (parcel,) = network.parcels()
    for _ in range(HOPS_MAX - 1):
        (parcel,) = honest(network, parcel, network.schemes[0])
    with pytest.raises(LocalError):
        honest(network, parcel, network.schemes[0])


# --- schemes ----------------------------------------------------------------------------------------------------------


def test_the_threshold_is_a_majority_that_a_minority_cannot_reach() -> None:
    for size in range(1, 20):
        assert max_faulty(size) < majority(size) <= size - max_faulty(size)


@pytest.mark.parametrize(("size", "why"), [(1, "at least 3"), (2, "at least 3"), (4, "even"), (10, "even")])
def test_hardened_refuses_small_and_even_nodes_and_says_why(size: int, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        check_hardened(size, "virtual node 'B1'")
    check_hardened(3, "virtual node 'B1'")


def test_replica_keys_keep_the_newest_versions_of_a_bounded_number_of_nodes() -> None:
    roster = ReplicaKeys(nodes=1, kept=2)
    for version in range(3):
        roster.add(scheme(1, 3, version), [bytes((version, i)) * 16 for i in range(3)])
    assert len(roster) == 2
    assert roster.key_of(ReplicaId(scheme(1, 3, 2), 1)) == bytes((2, 0)) * 16
    with pytest.raises(StaleError):
        roster.key_of(ReplicaId(scheme(1, 3, 0), 1))
    with pytest.raises(LocalError, match="no room"):
        roster.add(scheme(2, 3), [bytes((9, i)) * 16 for i in range(3)])
    with pytest.raises(LocalError, match="does not change"):
        roster.add(scheme(1, 3, 2), [bytes((9, i)) * 16 for i in range(3)])
    with pytest.raises(LocalError, match="no two alike"):
        roster.add(scheme(1, 3, 3), [bytes(32)] * 3)


# --- counts -----------------------------------------------------------------------------------------------------------


def test_the_paper_counts_hold_except_the_wrong_one() -> None:
    assert share_counts.shares_received([3] * 10) == 59_049
    assert share_counts.shares_sent([3] * 10) == 88_572
    assert share_counts.shares_received([3, 3], paths=2) == 18
    assert share_counts.shares_for_certain([3], [1]) == 2 >= majority(3)
    assert share_counts.shares_for_certain_as_printed([3], [1]) == 1 < majority(3)
    assert share_counts.shares_received([3] * 41) > 1 << 64


def test_redistribution_takes_168_messages_where_re_splitting_takes_88572() -> None:
    assert share_counts.messages_redistributed([3] * 10) == 3 + 2 * 9 * 9 + 3 == 168
    assert share_counts.messages_redistributed([5] * 10) == 460
    assert share_counts.messages_redistributed_at_worst([3] * 10) == 384
    assert share_counts.shares_sent([5] * 10) == 12_207_030


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.data())
@settings(max_examples=25)
def test_the_certain_shares_are_enough(sizes: list[int], data: st.DataObject) -> None:
    byzantine = [data.draw(st.integers(0, max_faulty(size))) for size in sizes]
    assert (
        share_counts.shares_needed(sizes)
        <= share_counts.shares_for_certain(sizes, byzantine)
        <= share_counts.shares_received(sizes)
    )


def test_the_counts_match_the_code() -> None:
    network = SplitNetwork((3, 4))
    gathering = network.run({ReplicaId(network.schemes[0], 1): silent, ReplicaId(network.schemes[1], 2): silent})
    assert len(gathering) == share_counts.shares_for_certain([3, 4], [1, 1])
    assert len(SplitNetwork((3, 4)).run({})) == share_counts.shares_received([3, 4])
    with pytest.raises(LocalError):
        share_counts.shares_for_certain([3], [4])
    with pytest.raises(LocalError):
        share_counts.shares_received([3], paths=0)
