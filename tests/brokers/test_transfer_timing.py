"""The deadlines of a hop (`keys.transfer_receiver`) at their limits: each run delays messages to the bound, and starts
the honest replicas of a node as far apart as Byzantine replicas can. The planted faults make one deadline a unit
shorter.

Node 1 has the holders, node 2 the receivers. Replica 1 of each is Byzantine. In units: the honest holders deal at 0 and
at 2.9, replica 2 of node 2 starts at .3 by a proof that it alone receives, and replica 3 starts by the proof that
replica 2 passes on.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.byzantine_scripts import ANY, change_table, combine, drop, follow_protocol, without
from support.forged_dealings import FixedRandom, root_of
from support.key_transfer_chain import (
    KEY,
    ByzantineReplica,
    CoalitionKnowledge,
    Script,
    TransferChain,
    U,
    key_arrived,
    scheme,
)
from veilcast.brokers.keys import transfer_receiver, transfer_sender
from veilcast.brokers.keys.agreement import AgreementMessage
from veilcast.brokers.keys.redistribution import DealtShare
from veilcast.brokers.keys.scheme import KeyAttempt, ReplicaId
from veilcast.brokers.routing.view import Outgoing, Peer
from veilcast.wire.base import Message
from veilcast.wire.brokers import (
    AgreementWord,
    DisputeDealing,
    FirstShare,
    FloodKind,
    LastShare,
    NextShare,
    ShareReceived,
)

SLOW_US = U * 85 // 100
"""Added to the delay of a tenth, so that the message stays just within the bound."""


RESERVES = {"_ROUND": 1, "_SHOW": 2}


def at(hop: int, index: int) -> ReplicaId:
    return ReplicaId(scheme(hop), index)


def deals_to(*indices: int, shows_to: tuple[int, ...] = ()) -> Script:
    """Deals to these replicas, and shows disputed shares to those alone."""

    def script(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        if not isinstance(outgoing.message, NextShare) or not isinstance(outgoing.to, ReplicaId):
            return [(0, outgoing)]
        is_shown = faulty.memory.setdefault("dealt", now) != now
        return [(0, outgoing)] if outgoing.to.index in (shows_to if is_shown else indices) else []

    return script


class WorstCase:
    """A run in which replica 2 of node 2 starts as early as possible, and replica 3 as late."""

    def __init__(
        self, holder: Script, receiver: Script, is_slow: Callable[[Peer, Peer, Message], bool], *, early: bool = True
    ) -> None:
        """`early`: replica 2 starts early, by a proof."""
        self.done_us: dict[ReplicaId, int] = {}
        self.world = TransferChain(2, byzantine={(1, 1): holder, (2, 1): receiver})
        self.world.rng = FixedRandom()  # type: ignore[assignment]
        self._is_slow = is_slow
        self.world.extra_delay = self._delay
        self.origin: KeyAttempt = self.world.deal()
        self.world.run(U // 4)
        if early:
            self._prove_start()
        self.begun_us: dict[int, int] = {}
        for _ in range(120 * 20):
            self.world.run(U // 20)
            self._record_starts()

    def _delay(self, source: Peer, to: Peer, message: Message) -> int:
        if isinstance(message, FirstShare):
            return U * 29 // 10 if to == at(1, 3) else 0
        if isinstance(message, ShareReceived) and isinstance(source, ReplicaId):
            self.done_us.setdefault(source, self.world.now)
        return SLOW_US if self._is_slow(source, to, message) else 0

    def _prove_start(self) -> None:
        """The Byzantine receiver proves the start to replica 2 alone."""
        dishonest = self.world.replicas[at(2, 1)]
        assert isinstance(dishonest, ByzantineReplica)
        dealt = [DealtShare.decode(each.share) for each, _ in dishonest.received if isinstance(each, NextShare)]
        headers = {share.holder_header.holder: share.holder_header for share in dealt}
        proof = AgreementMessage(
            scheme(1), scheme(2), (), root_of(self.world, self.origin), tuple(headers.values()), True
        )
        word = AgreementWord(KEY, 0, scheme(1).node, FloodKind.ATTENDANCE, proof.encode())
        self.world.send(at(2, 1), Outgoing(at(2, 2), word))

    def _record_starts(self) -> None:
        for index in (2, 3):
            for receiver in self.world.replicas[at(2, index)].hardened_forwarder._receivers.values():
                if receiver._begun_us is not None:
                    self.begun_us[index] = receiver._begun_us

    @property
    def start_apart_us(self) -> int:
        return abs(self.begun_us[2] - self.begun_us[3])

    @property
    def apart_us(self) -> int:
        """Time between the first and the last honest receiver that is done."""
        times = [self.done_us[at(2, index)] for index in (2, 3)]
        return max(times) - min(times)


def to_or_from_replica_3(source: Peer, to: Peer, message: Message) -> bool:
    return at(2, 3) in (source, to)


def splitting_settlement() -> WorstCase:
    """The Byzantine holder leaves out replica 3, and settles the dispute before replica 3 alone. The Byzantine receiver
    relays no settlement."""

    def relays_no_settlement(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        dropped = isinstance(outgoing.message, LastShare) or (
            isinstance(outgoing.message, AgreementWord) and outgoing.message.flood is FloodKind.SETTLING
        )
        return [] if dropped else [(0, outgoing)]

    return WorstCase(deals_to(1, 2, shows_to=(3,)), relays_no_settlement, to_or_from_replica_3)


def splitting_rolls() -> WorstCase:
    """The Byzantine holder deals to the Byzantine receiver alone, which is silent."""
    return WorstCase(deals_to(1), drop(*ANY), to_or_from_replica_3)


def late_holder() -> WorstCase:
    """The share of the late honest holder is slow on its way to replica 2. The Byzantine receiver wants it shown."""

    def is_slow(source: Peer, to: Peer, message: Message) -> bool:
        return isinstance(message, NextShare) and source == at(1, 3) and to == at(2, 2)

    return WorstCase(deals_to(1), follow_protocol, is_slow)


def late_relay() -> WorstCase:
    """Holder 1 leaves out replica 2, and deals to replica 3 late. The Byzantine receiver sends its roll to replica 3
    alone, which relays it at the end of its first round. That roll makes the dealing of holder 1 count."""

    def deals_late(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        sent = deals_to(1, 3, shows_to=(3,))(faulty, outgoing, now)
        late = isinstance(outgoing.message, NextShare) and outgoing.to == at(2, 3) and faulty.memory["dealt"] == now
        return [(3 * U if late else 0, each) for _, each in sent]

    return WorstCase(deals_late, combine(drop(AgreementWord, only=(2,)), drop(LastShare)), to_or_from_replica_3)


def disputed_honest_share(*, early: bool = True) -> WorstCase:
    """The Byzantine holder deals to the Byzantine receiver alone, which denies the dealing of holder 2 and does not ask
    for it. Without a settlement too few dealings are left."""

    def proves_no_start(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        word = outgoing.message.word if isinstance(outgoing.message, AgreementWord) else None
        is_proof = word is not None and AgreementMessage.decode(word).publisher_header is not None
        return [] if is_proof else [(0, outgoing)]

    denies = change_table(lambda table, to: without(table, 2))
    receiver = combine(denies, drop(DisputeDealing, LastShare), proves_no_start)
    return WorstCase(deals_to(1), receiver, to_or_from_replica_3, early=early)


RUNS = [splitting_rolls, splitting_settlement, late_holder, late_relay, disputed_honest_share]


@pytest.mark.parametrize("run", RUNS)
def test_within_the_bound_no_schedule_splits_replicas_or_reveals_a_share(run: Callable[[], WorstCase]) -> None:
    worst = run()
    assert key_arrived(worst.world, worst.origin)
    assert worst.apart_us <= 3 * U
    assert worst.start_apart_us > U * 17 // 10 or run is late_holder, "the schedule is the worst one"
    assert worst.start_apart_us <= 2 * U
    assert worst.world.proven_faulty() == []


@pytest.mark.parametrize(
    ("name", "run", "is_revealed"),
    [
        ("_CALL", splitting_rolls, False),
        ("_FIRST", splitting_rolls, False),
        ("_SETTLE", splitting_settlement, False),
        ("_ATTEND", late_holder, True),
        ("_ROUND", late_relay, False),
        ("_SHOW", disputed_honest_share, False),
    ],
)
def test_a_deadline_one_unit_shorter_loses_or_reveals_the_key(
    name: str, run: Callable[[], WorstCase], is_revealed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault. A later call is a shorter time between the call and the deadlines that rely on it. `_ROUND`
    and `_SHOW` have a reserve, without which they hold as well."""
    least = getattr(transfer_receiver, name) - RESERVES.get(name, 0)
    monkeypatch.setattr(transfer_receiver, name, least)
    worst = run()
    assert key_arrived(worst.world, worst.origin)
    monkeypatch.setattr(transfer_receiver, name, least + (1 if name == "_CALL" else -1))
    world = run().world
    assert CoalitionKnowledge(world).has_key() is is_revealed
    if not is_revealed:
        assert not any(reader.reassembled for reader in world.subscribers.values())


def test_a_holder_shows_its_dealing_as_long_as_the_last_receiver_may_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replica 3 starts 3.9 units after holder 2 has dealt, because holder 3 deals late. The planted fault is a window
    that is a unit shorter."""
    worst = disputed_honest_share(early=False)
    assert key_arrived(worst.world, worst.origin)
    window_us = transfer_receiver.dispute_window_us
    monkeypatch.setattr(transfer_sender, "dispute_window_us", lambda bound_us, f: window_us(bound_us, f) - bound_us)
    assert not any(reader.reassembled for reader in disputed_honest_share(early=False).world.subscribers.values())
