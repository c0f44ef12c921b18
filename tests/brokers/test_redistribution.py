"""A hop redistributes a key: all honest replicas get shares of one sharing, whatever a minority on either side does."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations, product

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilcast.brokers.keys import agreement, share_counts
from veilcast.brokers.keys.agreement import (
    PAYLOAD_MAX,
    AttendanceRoll,
    DealingRef,
    Dispute,
    EndorsedStatement,
    SignedBroadcast,
    choose_contributors,
    decode_roll,
    encode_roll,
    find_disputes,
    majority_dealings,
    usable_dealings,
)
from veilcast.brokers.keys.redistribution import (
    DealtShare,
    DeliveredShare,
    HeldShare,
    IssuedDealing,
    RedistributedKeyCollector,
    accept_publisher_share,
    deal_key,
    redistribute_share,
)
from veilcast.brokers.keys.scheme import KeyAttempt, ReplicaId, ReplicaKeys, Scheme, max_faulty
from veilcast.brokers.keys.share_reception import ShareReception
from veilcast.crypto import verifiable_sharing
from veilcast.crypto.group import Scalar
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.crypto.verifiable_sharing import Commitments, VerifiableShare
from veilcast.errors import ForgedError, LocalError, MalformedError, RemoteError, StaleError

SECRET = Scalar.of(0xC0FFEE)
ORIGIN = KeyAttempt(b"k" * 16)
PUBLISHER = SigningKey(Secret(b"p" * 32))


def scheme(hop_run: int, size: int) -> Scheme:
    return Scheme(bytes((hop_run,)) * 16, 0, size)


def place(hop_run: int, size: int, index: int) -> ReplicaId:
    return ReplicaId(scheme(hop_run, size), index)


@cache
def signing(at: ReplicaId) -> SigningKey:
    return SigningKey(Secret(at.scheme.node + bytes((at.index, at.scheme.size)) * 8))


def roster(*sizes: int) -> ReplicaKeys:
    made = ReplicaKeys(nodes=len(sizes))
    for hop_run, size in enumerate(sizes, 1):
        made.add(scheme(hop_run, size), [signing(place(hop_run, size, at)).public for at in range(1, size + 1)])
    return made


@cache
def first_holdings(size: int) -> list[HeldShare]:
    parts = deal_key(SECRET, ORIGIN, scheme(1, size), PUBLISHER, random.Random(1).randbytes)
    return [accept_publisher_share(part, place(1, size, at), PUBLISHER.public) for at, part in enumerate(parts, 1)]


@cache
def deal_shares(size: int, to: int, holder: int, which: int = 0) -> IssuedDealing:
    entropy = random.Random(f"{size} {to} {holder} {which}").randbytes
    return redistribute_share(first_holdings(size)[holder - 1], scheme(2, to), signing(place(1, size, holder)), entropy)


@dataclass
class HopRun:
    """One hop with Byzantine replicas on both sides, and the honest replicas' run of it; counts what honest parties
    send."""

    old: int
    new: int
    holders: dict[int, Sequence[int | None]] = field(default_factory=dict)
    """The dealing, by its number, that each Byzantine holder sends to each replica, or nothing."""
    shows: bool = False
    """True if Byzantine holders settle disputes."""
    replicas: dict[int, dict[int, frozenset[int] | None]] = field(default_factory=dict)
    """The dealings that each Byzantine replica announces to each honest one, or nothing."""
    rng: random.Random | None = None
    """Decides what Byzantine replicas relay late."""
    sent: int = 0

    def __post_init__(self) -> None:
        self.replica_keys = roster(self.old, self.new)
        self.honest = {
            at: ShareReception(
                ORIGIN,
                scheme(1, self.old),
                place(2, self.new, at),
                PUBLISHER.public,
                self.replica_keys,
                signing(place(2, self.new, at)),
            )
            for at in range(1, self.new + 1)
            if at not in self.replicas
        }

    def run(self) -> dict[int, HeldShare]:
        for holder in range(1, self.old + 1):
            for at, which in enumerate(self.holders.get(holder, [0] * self.new), 1):
                self.sent += which is not None
                if which is not None and at in self.honest:
                    self.honest[at].accept_share(deal_shares(self.old, self.new, holder, which).share_for(at))
        for at, receiving in self.honest.items():
            self.tell(at, [receiving.announce()], 1)
        for faulty, told in self.replicas.items():
            for at, word in told.items():
                if word is not None:
                    self.honest[at].accept_statement(self.lie(faulty, word), 1)
        self.certify(1)
        for round_number in range(2, max_faulty(self.new) + 3):
            passed = {at: receiving.relay() for at, receiving in self.honest.items()}
            for at, said in passed.items():
                self.tell(at, said, round_number)
            self.late(round_number)
            self.certify(round_number)
        self.settle()
        return {at: receiving.combine() for at, receiving in self.honest.items()}

    def certify(self, round_number: int) -> None:
        """Replicas that are done send the certificate to those that are not."""
        if not all(receiving.is_unanimous for receiving in self.honest.values()):
            for at, receiving in list(self.honest.items()):
                self.tell(at, receiving.certificate(), round_number)

    def settle(self) -> None:
        asked = {dispute: None for receiving in self.honest.values() for dispute in receiving.disputes()}
        if not asked:
            return
        for dispute in asked:
            if dispute.holder in self.holders and not self.shows:
                continue
            for which in (0, 1):
                shown = deal_shares(self.old, self.new, dispute.holder, which)
                if shown.holder_header.name == dispute.name:
                    for receiving in self.honest.values():
                        self.sent += 1
                        receiving.accept_share(shown.share_for(dispute.replica))
        for at, receiving in self.honest.items():
            if receiving.disputes():
                self.tell(at, [receiving.announce_settlement()], 1, settling=True)
        for round_number in range(2, max_faulty(self.new) + 2):
            passed = {at: receiving.relay_settlements() for at, receiving in self.honest.items()}
            for at, said in passed.items():
                self.tell(at, said, round_number, settling=True)

    def tell(
        self, author: int, said: Sequence[EndorsedStatement], round_number: int, *, settling: bool = False
    ) -> None:
        if said:
            self.sent += self.new - 1
        for at, receiving in self.honest.items():
            for vouched in said if at != author else ():
                (receiving.accept_settlement if settling else receiving.accept_statement)(vouched, round_number)

    def lie(self, faulty: int, has: frozenset[int], vouchers: Sequence[int] = ()) -> EndorsedStatement:
        table = {
            holder: DealingRef(header.name, header.old_sharing)
            for holder in sorted(has)
            for header in [deal_shares(self.old, self.new, holder).holder_header]
        }
        context = next(iter(self.honest.values()))._full_rolls.context
        said = self.flood(context, faulty).announce(encode_roll(AttendanceRoll(table)))
        for voucher in vouchers:
            other = self.flood(context, voucher)
            other.accept(said, 1)
            (said,) = other.relay()
        return said

    def flood(self, context: bytes, at: int) -> SignedBroadcast:
        return SignedBroadcast(context, place(2, self.new, at), self.replica_keys, signing(place(2, self.new, at)))

    def late(self, round_number: int) -> None:
        """Byzantine replicas endorse one another's statements, and show them to one honest replica in a later round."""
        if self.rng is None:
            return
        for faulty in self.replicas:
            others = [other for other in self.replicas if other != faulty]
            has = frozenset(self.rng.sample(range(1, self.old + 1), self.rng.randint(0, self.old)))
            target = self.rng.choice(list(self.honest))
            self.honest[target].accept_statement(self.lie(faulty, has, others), round_number)


def check(hop_run: HopRun) -> None:
    """Theorem 2 for redistribution: one choice, one sharing, the old secret; no honest replica is blamed."""
    holdings = hop_run.run()
    assert len({receiving.choose_holders() for receiving in hop_run.honest.values()}) == 1
    assert len({holding.commitments.encode() for holding in holdings.values()}) == 1
    held = list(holdings.values())[: held_needed(hop_run.new)]
    assert verifiable_sharing.reconstruct([holding.share for holding in held], held[0].commitments) == SECRET
    ends = hop_run.old + hop_run.new
    assert hop_run.sent <= share_counts.messages_redistributed_at_worst([hop_run.old, hop_run.new]) - ends
    for receiving in hop_run.honest.values():
        for faulty in receiving.proven_faulty:
            faulty_set = hop_run.holders if faulty.scheme == scheme(1, hop_run.old) else hop_run.replicas
            assert faulty.index in faulty_set


def held_needed(size: int) -> int:
    return size // 2 + 1


# --- without liars ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("old", "new"), [(3, 3), (3, 5), (5, 3), (1, 3), (3, 1)])
def test_a_hop_without_byzantine_replicas_takes_one_round_of_agreement(old: int, new: int) -> None:
    hop_run = HopRun(old, new)
    check(hop_run)
    assert hop_run.sent == old * new + new * (new - 1) <= old * new + new * new


def over(sizes: Sequence[int]) -> tuple[list[HeldShare], int]:
    """A key over several hops, and the messages up to the last of them."""
    known, entropy = roster(*sizes), random.Random(5).randbytes
    parts = deal_key(SECRET, ORIGIN, scheme(1, sizes[0]), PUBLISHER, entropy)
    holdings = [
        accept_publisher_share(part, place(1, sizes[0], at), PUBLISHER.public) for at, part in enumerate(parts, 1)
    ]
    sent = len(parts)
    for hop_run, size in enumerate(sizes[1:], 2):
        to, by = scheme(hop_run, size), holdings[0].holder_id.scheme
        dealt = [redistribute_share(holding, to, signing(holding.holder_id), entropy) for holding in holdings]
        receivings = [
            ShareReception(ORIGIN, by, ReplicaId(to, at), PUBLISHER.public, known, signing(ReplicaId(to, at)))
            for at in range(1, size + 1)
        ]
        for each in dealt:
            for receiving, portion in zip(receivings, each.shares, strict=True):
                receiving.accept_share(DealtShare.decode(portion.encode().reveal()))
                sent += 1
        words = [receiving.announce() for receiving in receivings]
        for at, receiving in enumerate(receivings):
            for author, word in enumerate(words):
                if author != at:
                    receiving.accept_statement(word, 1)
                    sent += 1
            assert receiving.relay() == []
        for holding, each in zip(holdings, dealt, strict=True):
            holding.erase()
            each.erase()
        holdings = [receiving.combine() for receiving in receivings]
    return holdings, sent


def test_ten_hops_of_three_take_168_messages_at_most() -> None:
    holdings, sent = over([3] * 10)
    collecting = RedistributedKeyCollector(ORIGIN, PUBLISHER.public)
    for holding in holdings:
        collecting.add(holding.make_delivery(), holding.holder_id)
        sent += 1
    assert collecting.secret == SECRET
    assert collecting.faulty == []
    assert sent == 3 + (9 + 6) * 9 + 3 <= share_counts.messages_redistributed([3] * 10) == 168


def test_a_dealt_share_is_erased() -> None:
    entropy = random.Random(3).randbytes
    holding = HeldShare(
        *(getattr(first_holdings(3)[0], name) for name in ("publisher_header", "holder_id", "commitments", "share"))
    )
    dealt = redistribute_share(holding, scheme(2, 3), signing(holding.holder_id), entropy)
    holding.erase()
    dealt.erase()
    with pytest.raises(LocalError, match="erased"):
        holding.make_delivery()
    with pytest.raises(LocalError, match="erased"):
        redistribute_share(holding, scheme(2, 3), signing(holding.holder_id), entropy)
    with pytest.raises(LocalError, match="erased"):
        dealt.share_for(1)


def test_each_branch_has_its_own_dealing() -> None:
    one, other = deal_shares(3, 3, 1, 0), deal_shares(3, 3, 1, 1)
    assert all(a.share != b.share for a, b in zip(one.shares, other.shares, strict=True))


# --- with liars -------------------------------------------------------------------------------------------------------


def every_behaviour() -> Iterator[HopRun]:
    """Every behaviour of one Byzantine holder and one Byzantine replica among three: 9 x 81 x 2."""
    subsets = [frozenset(chosen_holders) for count in range(4) for chosen_holders in combinations((1, 2, 3), count)]
    words: list[frozenset[int] | None] = [None, *subsets]
    for sends, to_two, to_three, shows in product(product((0, 1, None), repeat=2), words, words, (False, True)):
        yield HopRun(3, 3, {1: (0, *sends)}, shows, {1: {2: to_two, 3: to_three}})


def test_byzantine_behaviour_on_both_sides_of_a_hop_is_tolerated() -> None:
    for hop_run in random.Random(7).sample(list(every_behaviour()), 25):
        check(hop_run)


@pytest.mark.heavy
def test_all_byzantine_behaviours_on_both_sides_of_a_hop_are_tolerated() -> None:
    for hop_run in every_behaviour():
        check(hop_run)


def random_hop(rng: random.Random, old: int, new: int) -> HopRun:
    holders: dict[int, Sequence[int | None]] = {
        faulty: [rng.choice((0, 0, 1, None)) for _ in range(new)]
        for faulty in rng.sample(range(1, old + 1), max_faulty(old))
    }
    byzantine = rng.sample(range(1, new + 1), max_faulty(new))
    honest = [at for at in range(1, new + 1) if at not in byzantine]
    replicas = {
        faulty: {
            at: rng.choice((None, frozenset(range(1, old + 1)), frozenset(rng.sample(range(1, old + 1), old - 1))))
            for at in honest
        }
        for faulty in byzantine
    }
    return HopRun(old, new, holders, rng.random() < 0.5, replicas, rng)


@pytest.mark.parametrize(("old", "new", "runs"), [(5, 5, 4), (3, 5, 4), (5, 3, 4)])
def test_late_colluding_statements_are_tolerated(old: int, new: int, runs: int) -> None:
    for seed in range(runs):
        check(random_hop(random.Random(seed), old, new))


@pytest.mark.all_only
def test_many_colluding_replicas_are_tolerated() -> None:
    for seed in range(100, 150):
        check(random_hop(random.Random(seed), 5, 5))


def test_a_replica_that_denies_its_share_to_some_changes_nothing() -> None:
    """Replica 3 receives the same roll from all and chooses at once; replica 2 is told of a dispute that the Byzantine
    holder does not settle. The statements of replica 3 prove to it that no dispute exists."""
    everything, less = frozenset({1, 2, 3}), frozenset({2, 3})
    hop_run = HopRun(3, 3, {1: (0, 0, 0)}, False, {1: {2: less, 3: everything}})
    check(hop_run)
    assert hop_run.honest[2].is_unanimous
    assert hop_run.honest[3].choose_holders() == (1, 2)
    assert [faulty.index for faulty in hop_run.honest[2].proven_faulty] == [1]


def test_without_shown_shares_the_two_honest_replicas_would_diverge() -> None:
    """The planted bug: a replica that uses only what it received excludes holder 1, and the other does not."""
    everything, less = frozenset({1, 2, 3}), frozenset({2, 3})
    hop_run = HopRun(3, 3, {1: (0, 0, 0)}, False, {1: {2: less, 3: everything}})
    hop_run.certify = lambda round_number: None  # type: ignore[method-assign]
    hop_run.run()
    assert hop_run.honest[2].choose_holders() != hop_run.honest[3].choose_holders()


def test_an_equivocating_holder_is_proven_by_a_replica_that_sees_both_dealings() -> None:
    receiving = HopRun(3, 3).honest[1]
    receiving.accept_share(deal_shares(3, 3, 2, 0).share_for(1))
    receiving.accept_share(deal_shares(3, 3, 2, 1).share_for(1))
    assert receiving.proven_faulty == [place(1, 3, 2)]
    assert decode_roll(receiving.announce().payload) == AttendanceRoll({})


@pytest.mark.parametrize("wrong", ["share", "holder", "receiver", "old", "signature", "root"])
def test_an_invalid_dealt_share_is_refused(wrong: str) -> None:
    portion = deal_shares(3, 3, 1).share_for(1)
    replace = msgspec.structs.replace
    match wrong:
        case "share":
            spoilt = VerifiableShare(1, portion.share.value + Scalar.of(1), portion.share.blinding)
            bad = replace(portion, share=spoilt)
        case "holder":
            bad = replace(portion, holder_header=replace(portion.holder_header, holder=2))
        case "receiver":
            bad = deal_shares(3, 3, 1).share_for(2)
        case "old":
            bad = replace(
                portion,
                holder_header=replace(portion.holder_header, old_points=deal_shares(3, 3, 2).holder_header.new_points),
            )
        case "signature":
            bad = replace(portion, holder_header=replace(portion.holder_header, signature=bytes(64)))
        case _:
            bad = replace(portion, publisher_header=replace(portion.publisher_header, signature=bytes(64)))
    receiving = HopRun(3, 3).honest[1]
    with pytest.raises(RemoteError):
        receiving.accept_share(bad)
    receiving.accept_share(portion)


def test_a_holder_that_deals_another_secret_is_refused() -> None:
    """It has the publisher's header, its place and its key, and nothing else."""
    mine = first_holdings(3)[0]
    other = HeldShare(
        mine.publisher_header, mine.holder_id, mine.commitments, VerifiableShare(1, Scalar.of(5), Scalar.of(6))
    )
    dealt = redistribute_share(other, scheme(2, 3), signing(mine.holder_id), random.Random(2).randbytes)
    with pytest.raises(ForgedError):
        HopRun(3, 3).honest[1].accept_share(dealt.share_for(1))


def test_nothing_is_chosen_before_the_announcement() -> None:
    with pytest.raises(LocalError):
        HopRun(3, 3).honest[1].choose_holders()


@given(st.binary(max_size=300))
@settings(max_examples=15)
def test_noise_is_not_a_dealt_share(data: bytes) -> None:
    with pytest.raises(MalformedError):
        DealtShare.decode(data)


# --- the subscriber ---------------------------------------------------------------------------------------------------


def test_a_subscriber_proves_bad_shares_and_other_sharings() -> None:
    holdings = first_holdings(5)
    collecting = RedistributedKeyCollector(ORIGIN, PUBLISHER.public)
    bad = msgspec.structs.replace(holdings[0].make_delivery(), share=VerifiableShare(1, Scalar.of(1), Scalar.of(2)))
    with pytest.raises(ForgedError):
        collecting.add(bad, holdings[0].holder_id)
    collecting.add(forge_delivery(holdings[1]), holdings[1].holder_id)
    for holding in holdings[2:]:
        collecting.add(holding.make_delivery(), holding.holder_id)
    assert collecting.secret == SECRET
    assert collecting.faulty == [holdings[0].holder_id, holdings[1].holder_id]


def test_a_replica_sends_one_share_and_a_stale_one_blames_nobody() -> None:
    holdings = first_holdings(5)
    collecting = RedistributedKeyCollector(ORIGIN, PUBLISHER.public)
    for _ in range(2):
        collecting.add(holdings[0].make_delivery(), holdings[0].holder_id)
    collecting.add(forge_delivery(holdings[1]), holdings[1].holder_id)
    with pytest.raises(StaleError, match="second"):
        collecting.add(holdings[1].make_delivery(), holdings[1].holder_id)
    assert len(collecting._delivered) == 2
    assert collecting.faulty == []
    with pytest.raises(StaleError):
        RedistributedKeyCollector(KeyAttempt(ORIGIN.key, 1), PUBLISHER.public).add(
            holdings[0].make_delivery(), holdings[0].holder_id
        )


def forge_delivery(holding: HeldShare) -> DeliveredShare:
    """Commitments made to fit the publisher's, and a share that opens them: only the majority shows that they are not
    genuine."""
    commitments = holding.commitments
    value, blinding = Scalar.of(77), Scalar.of(78)
    opened = verifiable_sharing._commit(value, blinding)
    index = Scalar.of(holding.holder_id.index)
    third = commitments.points[2]
    second = (opened - commitments.points[0] - third * (index * index)) / index
    made = Commitments((commitments.points[0], second, third))
    return DeliveredShare(
        holding.publisher_header, made.encode(), VerifiableShare(holding.holder_id.index, value, blinding)
    )


def test_disjoint_paths_are_dealt_separately_and_any_of_them_is_enough() -> None:
    """Two dealings of one secret have different commitments to it; shares of both do not combine, those of one do."""
    by_other = deal_key(SECRET, ORIGIN, scheme(2, 3), PUBLISHER, random.Random(8).randbytes)
    others = [accept_publisher_share(part, place(2, 3, at), PUBLISHER.public) for at, part in enumerate(by_other, 1)]
    collecting = RedistributedKeyCollector(ORIGIN, PUBLISHER.public)
    for holding in [first_holdings(3)[0], others[0]]:
        assert collecting.add(holding.make_delivery(), holding.holder_id) is None
    assert collecting.add(others[2].make_delivery(), others[2].holder_id) == SECRET
    assert collecting.faulty == []


def test_a_minority_of_the_last_node_reveals_nothing() -> None:
    collecting = RedistributedKeyCollector(ORIGIN, PUBLISHER.public)
    for holding in first_holdings(5)[:2]:
        assert collecting.add(holding.make_delivery(), holding.holder_id) is None


# --- the rules of attendance ------------------------------------------------------------------------------------------

A, B, OLD, ODD = b"a" * 32, b"b" * 32, b"o" * 32, b"x" * 32


def chosen_holders(rolls: dict[int, AttendanceRoll], settled: Sequence[Dispute] = ()) -> tuple[int, ...] | None:
    return choose_contributors(usable_dealings(rolls, 3, settled), 3)


def test_the_first_majority_of_usable_dealings_is_chosen() -> None:
    roll = AttendanceRoll({1: DealingRef(A, OLD), 2: DealingRef(A, OLD), 3: DealingRef(A, OLD)})
    assert chosen_holders(dict.fromkeys((1, 2, 3), roll)) == (1, 2)
    assert chosen_holders({1: roll, 2: roll}) == (1, 2)
    assert chosen_holders({1: roll}) is None


def test_holders_that_name_another_sharing_are_excluded() -> None:
    roll = AttendanceRoll({1: DealingRef(A, ODD), 2: DealingRef(A, OLD), 3: DealingRef(A, OLD)})
    assert chosen_holders(dict.fromkeys((1, 2, 3), roll)) == (2, 3)


def test_an_unsettled_dispute_excludes_a_dealing() -> None:
    full = AttendanceRoll({1: DealingRef(A, OLD), 2: DealingRef(A, OLD), 3: DealingRef(A, OLD)})
    rolls = {1: full, 2: full, 3: AttendanceRoll({2: DealingRef(A, OLD), 3: DealingRef(A, OLD), 1: DealingRef(B, OLD)})}
    assert find_disputes(rolls, 3) == [Dispute(1, A, 3)]
    assert chosen_holders(rolls) == (2, 3)
    assert chosen_holders(rolls, [Dispute(1, A, 3)]) == (1, 2)
    assert majority_dealings(rolls, 3)[1] == DealingRef(A, OLD)


def test_a_skipped_holder_is_in_dispute_if_the_brief_roll_is_not_agreed() -> None:
    full = AttendanceRoll({1: DealingRef(A, OLD), 2: DealingRef(A, OLD), 3: DealingRef(A, OLD)})
    less = AttendanceRoll({2: DealingRef(A, OLD), 3: DealingRef(A, OLD)}, skipped_replicas=(1,), skipped_holders=(1,))
    assert find_disputes({1: full, 2: full, 3: less}, 3) == [Dispute(1, A, 3)]


def three_with_all() -> dict[int, ShareReception]:
    three = HopRun(3, 3).honest
    for at, receiving in three.items():
        for holder in (1, 2, 3):
            receiving.accept_share(deal_shares(3, 3, holder).share_for(at))
    return three


def test_replicas_not_skipped_by_a_brief_roll_agree_and_skipped_ones_follow() -> None:
    three = three_with_all()
    said = [three[at].announce_brief((3,), (1,)) for at in (1, 2)] + [three[3].announce()]
    for at, receiving in three.items():
        for word in said:
            if word.author != at:
                receiving.accept_statement(word, 1)
    assert [receiving.is_unanimous for receiving in three.values()] == [True] * 3
    assert [receiving.choose_holders() for receiving in three.values()] == [(2, 3)] * 3
    assert [receiving.is_skipped for receiving in three.values()] == [False, False, True]
    assert [receiving.skipped() for receiving in three.values()] == [({3}, {1})] * 3
    assert not any(receiving.proven_faulty for receiving in three.values())


def test_equal_full_rolls_that_name_a_brief_roll_leave_it_open() -> None:
    """The planted bug: a replica that finished at once would diverge from one that receives the last brief roll
    later."""
    three = three_with_all()
    briefs = [receiving.announce_brief((), (1,)) for receiving in three.values()]
    words = [receiving.announce() for receiving in three.values()]
    for word in (*words[1:], briefs[1]):
        three[1].accept_statement(word, 1)
    assert (three[1].is_unanimous, three[1].choose_holders()) == (False, (1, 2)), (
        "what it would be at the end of all rounds"
    )
    three[1].accept_statement(briefs[2], 1)
    assert (three[1].is_unanimous, three[1].choose_holders()) == (True, (2, 3))


INDICES = st.integers(1, 255)


@given(
    st.dictionaries(INDICES, st.tuples(st.binary(min_size=32, max_size=32), st.just(OLD))),
    st.sets(INDICES),
    st.sets(INDICES),
    st.booleans(),
)
@settings(max_examples=20)
def test_a_roll_survives_encoding(
    rows: dict[int, tuple[bytes, bytes]], absent: set[int], aside: set[int], brief: bool
) -> None:
    table = {holder: DealingRef(*row) for holder, row in rows.items() if holder not in aside}
    roll = AttendanceRoll(table, tuple(sorted(absent)), tuple(sorted(aside)), brief)
    assert decode_roll(encode_roll(roll)) == roll
    assert len(encode_roll(roll)) <= agreement.roll_size_max(max([*table, *aside], default=0), max(absent, default=0))


ONE = AttendanceRoll({1: DealingRef(A, OLD)})


@pytest.mark.parametrize(
    "word",
    [
        b"",
        b"\xc0",
        encode_roll(ONE) + b"\0",
        encode_roll(ONE).replace(b"\x01", b"\x00"),
        encode_roll(ONE._replace(skipped_holders=(1,), is_brief=True)),
        encode_roll(ONE._replace(skipped_replicas=(2, 2))),
        encode_roll(ONE._replace(skipped_holders=(2, 2))),
        msgspec.msgpack.encode(([], [3, 2], [], False)),
    ],
)
def test_a_payload_that_is_not_a_roll_counts_as_none(word: bytes) -> None:
    with pytest.raises(MalformedError):
        decode_roll(word)
    assert agreement.decode_rolls({1: word}) == {}


# --- flooding ---------------------------------------------------------------------------------------------------------


def floods(size: int) -> dict[int, SignedBroadcast]:
    known = roster(3, size)
    return {
        at: SignedBroadcast(b"context", place(2, size, at), known, signing(place(2, size, at)))
        for at in range(1, size + 1)
    }


def test_a_late_statement_needs_more_endorsements() -> None:
    three = floods(3)
    said = three[1].announce(b"word")
    three[2].accept(said, 2)
    assert three[2].sole_payloads() == {}
    three[3].accept(said, 1)
    (vouched,) = three[3].relay()
    three[2].accept(vouched, 2)
    assert three[2].sole_payloads() == {1: b"word"}
    three[2].accept(floods(3)[3].announce(b"too late"), 3)
    assert three[2].sole_payloads() == {1: b"word"}


def test_an_author_of_two_statements_has_none_and_no_third_is_kept() -> None:
    three = floods(3)
    for word in (b"one", b"two", b"three"):
        three[2].accept(floods(3)[1].announce(word), 1)
    assert three[2].sole_payloads() == {}
    assert three[2].equivocators() == [1]
    assert len(three[2].statements_of(1)) == 2


def test_a_third_payload_is_kept_if_it_is_the_only_one_of_another_author() -> None:
    """A replica that got two statements from Byzantine ones still accepts what all others agree on; and nothing
    else."""
    three = floods(3)
    said = {word: floods(3)[1].announce(word) for word in (b"one", b"two", b"three", b"four")}
    for word in (b"one", b"two"):
        three[2].accept(said[word], 1)
    three[2].accept(floods(3)[3].announce(b"three"), 1)
    for word in (b"three", b"four"):
        three[2].accept(said[word], 1)
    assert [vouched.author for vouched in three[2].statements_with(b"three")] == [1, 3]
    assert three[2].statements_with(b"four") == []


def test_no_replica_can_state_or_endorse_for_another() -> None:
    three = floods(3)
    said = floods(3)[1].announce(b"word")
    for bad in (
        msgspec.structs.replace(said, author=3),
        msgspec.structs.replace(said, payload=b"other"),
        msgspec.structs.replace(said, endorsements=((3, said.signature),)),
        SignedBroadcast(b"elsewhere", place(2, 3, 1), roster(3, 3), signing(place(2, 3, 1))).announce(b"word"),
        msgspec.structs.replace(said, author=9),
    ):
        with pytest.raises(ForgedError):
            three[2].accept(bad, 1)
    with pytest.raises(MalformedError):
        msgspec.structs.replace(said, endorsements=((1, said.signature),))
    with pytest.raises(MalformedError):
        msgspec.structs.replace(said, payload=bytes(PAYLOAD_MAX + 1))
