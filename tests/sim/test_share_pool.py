"""A coalition learns nothing from its shares if brokers are correct, and everything if a bug is planted.

A checker that never fails is no checker: each leak that the papers or the notes know is planted, and found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, product

import msgspec
import pytest

from veilcast.brokers.keys import paper_split, redistribution
from veilcast.brokers.keys.agreement import EndorsedStatement
from veilcast.brokers.keys.paper_split import SplitShare
from veilcast.brokers.keys.redistribution import DealtShare, HeldShare, IssuedDealing, PublisherShare
from veilcast.brokers.keys.scheme import KeyAttempt, ReplicaId, Scheme
from veilcast.crypto import verifiable_sharing
from veilcast.crypto.group import Scalar
from veilcast.crypto.secret import Secret as SecretBytes
from veilcast.crypto.sign import SigningKey
from veilcast.crypto.verifiable_sharing import Commitments
from veilcast.machine import Address, Frame
from veilcast.sim.brokers.checkers import KeySecrecy
from veilcast.sim.checkers import ViolationError
from veilcast.sim.links import LinkDelays
from veilcast.sim.rng import SeededEntropy, derive_bytes
from veilcast.sim.world import World
from veilcast.wire import encode
from veilcast.wire.base import Message
from veilcast.wire.brokers import AgreementWord, FirstShare, FloodKind, LastShare, NextShare, SessionItem

WORLD = World(seed=1, links=LinkDelays())
ADVERT = bytes(16)
PUBLISHER, READER = Address("p"), Address("r")
SIGNING = SigningKey(SecretBytes(bytes(32)))
KEY = bytes(16)
Sent = tuple[Address, Address, Message]


def name(node: int, index: int) -> Address:
    return Address(f"{node}.{index}")


def scheme(node: int, size: int = 3) -> Scheme:
    return Scheme(bytes((node,)) * 16, 0, size)


class Hardened:
    """The path of a key over correct nodes: all messages, in order. The agreement on holders is taken as settled."""

    def __init__(self, sizes: Sequence[int] = (3, 3, 3)) -> None:
        self.entropy = SeededEntropy(derive_bytes(1, "pool"))
        self.secret = Scalar.draw(self.entropy)
        self.sizes = sizes
        self.sent: list[Sent] = []

    def first(self, attempt: int = 0) -> list[HeldShare]:
        to = scheme(0, self.sizes[0])
        dealt = redistribution.deal_key(self.secret, KeyAttempt(KEY, attempt), to, SIGNING, self.entropy)
        for first in dealt:
            self.sent.append((PUBLISHER, name(0, first.share.index), FirstShare(ADVERT, first.encode().reveal())))
        return [self._taken(first, to) for first in dealt]

    def hand(self, holding: HeldShare, node: int) -> IssuedDealing:
        return redistribution.redistribute_share(holding, scheme(node, self.sizes[node]), SIGNING, self.entropy)

    def portions(self, handed: Sequence[IssuedDealing], old: int, node: int) -> None:
        for each in handed:
            for portion in each.shares:
                source, to = name(old, each.holder_header.holder), name(node, portion.share.index)
                self.sent.append((source, to, NextShare(ADVERT, portion.encode().reveal())))

    def combined(self, handed: Sequence[IssuedDealing], node: int) -> list[HeldShare]:
        """All replicas continue with the first majority of holders."""
        to = scheme(node, self.sizes[node])
        chosen = handed[: handed[0].holder_header.old_scheme.threshold]
        made = []
        for index in range(1, to.size + 1):
            parts = [
                verifiable_sharing.Subshare(
                    each.holder_header.holder,
                    Commitments.decode(each.holder_header.new_points),
                    each.share_for(index).share,
                )
                for each in chosen
            ]
            agreed = verifiable_sharing.agreement_digest({part.holder: part.commitments for part in parts})
            old = Commitments.decode(handed[0].holder_header.old_points)
            commitments, share = verifiable_sharing.combine_subshares(parts, old, index, to.threshold, agreed=agreed)
            made.append(HeldShare(handed[0].publisher_header, ReplicaId(to, index), commitments, share))
        return made

    def last(self, held: Sequence[HeldShare], node: int) -> None:
        for holding in held:
            share = LastShare(ADVERT, holding.make_delivery().encode().reveal())
            self.sent.append((name(node, holding.holder_id.index), READER, share))

    def run(self, attempt: int = 0) -> list[HeldShare]:
        held = self.first(attempt)
        for node in range(1, len(self.sizes)):
            handed = [self.hand(holding, node) for holding in held]
            self.portions(handed, node - 1, node)
            held = self.combined(handed, node)
        self.last(held, len(self.sizes) - 1)
        return held

    def _taken(self, first: PublisherShare, to: Scheme) -> HeldShare:
        return redistribution.accept_publisher_share(first, ReplicaId(to, first.share.index), SIGNING.public)


class Paper:
    """The same, to the letter of the corrected Algorithm 2."""

    def __init__(self, sizes: Sequence[int] = (3, 3, 3)) -> None:
        self.entropy = SeededEntropy(derive_bytes(1, "pool"))
        self.sizes = sizes
        self.sent: list[Sent] = []

    def first(self, attempt: int = 0) -> list[SplitShare]:
        key, to = SecretBytes(b"k" * 32), scheme(0, self.sizes[0])
        parcels = paper_split.split_key(key, KeyAttempt(KEY, attempt), to, SIGNING, self.entropy)
        for parcel in parcels:
            self.sent.append((PUBLISHER, name(0, parcel.index), FirstShare(ADVERT, parcel.encode().reveal())))
        return parcels

    def next(self, parcel: SplitShare, node: int) -> list[SplitShare]:
        made = paper_split.split_again(parcel, scheme(node, self.sizes[node]), SIGNING, self.entropy)
        for each in made:
            self.pass_on(each, name(node - 1, parcel.index), name(node, each.index))
        return made

    def pass_on(self, parcel: SplitShare, source: Address, to: Address) -> None:
        self.sent.append((source, to, NextShare(ADVERT, parcel.encode().reveal())))

    def run(self, attempt: int = 0) -> None:
        held = self.first(attempt)
        for node in range(1, len(self.sizes)):
            held = [piece for parcel in held for piece in self.next(parcel, node)]


def verdict(sent: Sequence[Sent], byzantine: Sequence[Address], hardened: bool = True) -> KeySecrecy:
    secret = KeySecrecy(byzantine, hardened)
    for number, (source, to, message) in enumerate(sent, 1):
        secret.on_frames(WORLD, source, [Frame(to, encode(SessionItem(number, encode(message))))])
    secret.on_end(WORLD)
    return secret


def minorities(sizes: Sequence[int]) -> Iterator[list[Address]]:
    """One largest set of Byzantine replicas at each node, for every such choice."""
    hops = [
        [[name(node, index) for index in chosen] for chosen in combinations(range(1, size + 1), (size - 1) // 2)]
        for node, size in enumerate(sizes)
    ]
    for each in product(*hops):
        yield [one for hop in each for one in hop]


@pytest.mark.parametrize("way", [Hardened, Paper])
def test_no_minority_at_every_node_puts_a_key_together_that_went_twice(way: type[Hardened | Paper]) -> None:
    run = way()
    run.run(0)
    run.run(1)
    for liars in minorities(run.sizes):
        assert verdict(run.sent, liars, way is Hardened).keys == 1


@pytest.mark.parametrize("way", [Hardened, Paper])
def test_a_majority_of_any_one_node_does(way: type[Hardened | Paper]) -> None:
    run = way()
    run.run()
    for node in range(3):
        with pytest.raises(ViolationError, match="know the key"):
            verdict(run.sent, [name(node, 1), name(node, 3)], way is Hardened)


def test_a_reader_without_a_grant_that_is_given_the_last_shares_is_found() -> None:
    run = Hardened()
    run.run()
    with pytest.raises(ViolationError):
        verdict(run.sent, [READER])


def test_five_replicas_bear_two() -> None:
    run = Hardened((5, 5))
    run.run()
    for liars in minorities(run.sizes):
        assert verdict(run.sent, liars).keys == 1
    with pytest.raises(ViolationError):
        verdict(run.sent, [name(1, 1), name(1, 2), name(1, 5)])


# --- planted bugs -----------------------------------------------------------------------------------------------------


def polynomials_used_on_two_branches() -> tuple[list[Sent], list[Address]]:
    """A holder sends the same dealing to a second branch: one Byzantine replica on each has enough."""
    run = Hardened()
    held = run.first()
    for holding in held:
        handed = run.hand(holding, 1)
        run.portions([handed], 0, 1)
        for portion in handed.shares:
            to = name(2, portion.share.index)
            run.sent.append((name(0, holding.holder_id.index), to, NextShare(ADVERT, portion.encode().reveal())))
    return run.sent, [name(1, 1), name(2, 2)]


def portions_shown_for_nothing() -> tuple[list[Sent], list[Address]]:
    """A holder believes one replica that others lack their shares."""
    run = Hardened()
    held = run.first()
    handed = [run.hand(holding, 1) for holding in held]
    run.portions(handed, 0, 1)
    for each in handed:
        shown = NextShare(ADVERT, each.share_for(2).encode().reveal())
        run.sent.append((name(0, each.holder_header.holder), name(1, 1), shown))
    return run.sent, [name(1, 1)]


def portions_shown_as_evidence() -> tuple[list[Sent], list[Address]]:
    run = Hardened()
    held = run.first()
    handed = [run.hand(holding, 1) for holding in held]
    run.portions(handed, 0, 1)
    evidence = _evidence([each.share_for(2) for each in handed])
    run.sent.append((name(1, 2), name(1, 1), AgreementWord(KEY, 0, bytes(16), FloodKind.SETTLING, evidence)))
    return run.sent, [name(1, 1)]


def whole_shares_passed_on() -> tuple[list[Sent], list[Address]]:
    """Algorithm 1 as Figure 3 draws it: each share is forwarded unchanged, to the replica with the same index."""
    run = Paper()
    for parcel in run.first():
        run.pass_on(parcel, name(0, parcel.index), name(1, parcel.index))
    return run.sent, [name(0, 3), name(1, 2)]


def everybody_gets_a_threshold_of_shares() -> tuple[list[Sent], list[Address]]:
    """Algorithm 1 to the letter: a single broker of the second node keeps enough."""
    run = Paper()
    for parcel in run.first():
        for index in (1, 2, 3):
            run.pass_on(parcel, name(0, parcel.index), name(1, index))
    return run.sent, [name(1, 2)]


def pieces_split_once_for_two_branches() -> tuple[list[Sent], list[Address]]:
    run = Paper()
    for parcel in run.first():
        for piece in run.next(parcel, 1):
            run.pass_on(piece, name(0, parcel.index), name(2, piece.index))
    return run.sent, [name(1, 1), name(2, 2)]


def pieces_split_once_for_two_attempts() -> tuple[list[Sent], list[Address]]:
    """Under another statement, so only the numbers tell. A replica that has moved meanwhile has two of them."""
    run, again = Paper(), Paper()
    run.first(0)
    again.first(1)
    (publisher, _, moved), *_ = again.sent[1:]
    return [*run.sent, *again.sent, (publisher, name(0, 1), moved)], [name(0, 1)]


def _evidence(portions: Sequence[DealtShare]) -> bytes:
    word = msgspec.msgpack.encode([[portion.encode().reveal() for portion in portions], []])
    return msgspec.msgpack.encode(EndorsedStatement(1, word, bytes(64)))


BUGS: dict[Callable[[], tuple[list[Sent], list[Address]]], bool] = {
    polynomials_used_on_two_branches: True,
    portions_shown_for_nothing: True,
    portions_shown_as_evidence: True,
    whole_shares_passed_on: False,
    everybody_gets_a_threshold_of_shares: False,
    pieces_split_once_for_two_branches: False,
    pieces_split_once_for_two_attempts: False,
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_leak_is_found(bug: Callable[[], tuple[list[Sent], list[Address]]]) -> None:
    sent, liars = bug()
    with pytest.raises(ViolationError, match="know the key"):
        verdict(sent, liars, BUGS[bug])
