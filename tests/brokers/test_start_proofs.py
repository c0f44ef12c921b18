"""Byzantine replicas that prove the start of a transfer to one honest replica of each node alone.

If that replica did not pass the proof on, the honest replicas of each node would start, finish and deal further apart
than those of the node before, until a node announces its rolls before the last honest share has come.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from support.forged_dealings import FixedRandom, root_of
from support.key_transfer_chain import (
    KEY,
    ByzantineReplica,
    CoalitionKnowledge,
    TransferChain,
    U,
    key_arrived,
    scheme,
    signing,
)
from veilcast.brokers.keys.agreement import AgreementMessage, SignedBroadcast
from veilcast.brokers.keys.redistribution import DealtShare, HolderHeader
from veilcast.brokers.keys.scheme import ReplicaId
from veilcast.brokers.keys.share_reception import ShareReception
from veilcast.brokers.routing.view import Outgoing, Peer
from veilcast.crypto.derive import digest
from veilcast.wire.base import Message
from veilcast.wire.brokers import AgreementWord, DisputeDealing, FloodKind, NextShare

NODES = 6


def at(node: int, index: int) -> ReplicaId:
    return ReplicaId(scheme(node), index)


def keeps_apart(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
    """Deals to the coalition alone, and announces its roll at the last node alone."""
    message, to, is_sent = outgoing.message, outgoing.to, False
    if isinstance(message, NextShare):
        is_sent = isinstance(to, ReplicaId) and to.index == 1
    elif isinstance(message, AgreementWord) and faulty.place.scheme == scheme(NODES):
        is_sent = AgreementMessage.decode(message.word).publisher_header is None
    return [(0, outgoing)] if is_sent else []


class Coalition:
    """Replica 1 of each node is Byzantine. Replica 2 is early at each node, replica 3 as late as the bound allows."""

    def __init__(self) -> None:
        self.world = TransferChain(NODES, byzantine={(node, 1): keeps_apart for node in range(1, NODES + 1)})
        self.world.rng = FixedRandom()  # type: ignore[assignment]
        self.world.extra_delay = self._delay
        self._sent: set[tuple[str, int]] = set()
        self.apart_us: dict[int, int] = {}
        """The time between the starts of the honest replicas of each node."""
        self.origin = self.world.deal()
        for _ in range(100 * 20):
            self.world.run(U // 20)
            for node in range(2, NODES + 1):
                self._act(node)
                self._measure(node)

    def _delay(self, source: Peer, to: Peer, message: Message) -> int:
        late = isinstance(to, ReplicaId) and to.index == 3
        late_share = isinstance(message, NextShare) and (source, to) == (at(NODES - 1, 3), at(NODES, 2))
        return U * 85 // 100 if late or late_share else 0

    def _act(self, node: int) -> None:
        headers = {header.holder: header for header in self._headers(node)}
        if {1, 2} <= headers.keys() and self._is_first("proof", node):
            root = root_of(self.world, self.origin)
            proof = AgreementMessage(scheme(node - 1), scheme(node), (), root, (headers[1], headers[2]), True)
            self._send(node, proof)
        if node < NODES:
            self._endorse_late_roll(node)
        elif 3 in headers and self._is_first("dispute", node):
            asked = DisputeDealing(KEY, 0, headers[3].name, (2,))
            self.world.send(at(node, 1), Outgoing(at(node - 1, 3), asked))

    def _endorse_late_roll(self, node: int) -> None:
        """The roll of replica 3 comes too late for replica 2, unless a second replica has signed it."""
        about = digest(msgspec.msgpack.encode((self.origin, scheme(node - 1))), purpose=b"vc/attend")
        for message in self._received(node, AgreementWord):
            assert isinstance(message, AgreementWord)
            said = AgreementMessage.decode(message.word)
            statements = [statement for statement in said.statements if statement.author == 3]
            if statements and self._is_first("roll", node):
                broadcast = SignedBroadcast(about, at(node, 1), self.world.replica_keys, signing(node, 1))
                broadcast.accept(statements[0], 1)
                self._send(node, AgreementMessage(scheme(node - 1), scheme(node), tuple(broadcast.relay())))

    def _send(self, node: int, message: AgreementMessage) -> None:
        word = AgreementWord(KEY, 0, scheme(node - 1).node, FloodKind.ATTENDANCE, message.encode())
        self.world.send(at(node, 1), Outgoing(at(node, 2), word))

    def _headers(self, node: int) -> Iterator[HolderHeader]:
        for message in self._received(node, NextShare):
            assert isinstance(message, NextShare)
            yield DealtShare.decode(message.share).holder_header

    def _received(self, node: int, kind: type[Message]) -> list[Message]:
        replica = self.world.replicas[at(node, 1)]
        assert isinstance(replica, ByzantineReplica)
        return [message for message, _ in replica.received if isinstance(message, kind)]

    def _is_first(self, what: str, node: int) -> bool:
        known = (what, node) in self._sent
        self._sent.add((what, node))
        return not known

    def _measure(self, node: int) -> None:
        receivers = [
            receiver
            for index in (2, 3)
            for receiver in self.world.replicas[at(node, index)].hardened_forwarder._receivers.values()
        ]
        begun_us = [receiver._begun_us for receiver in receivers if receiver._begun_us is not None]
        if len(begun_us) == 2:
            self.apart_us[node] = abs(begun_us[0] - begun_us[1])


def test_starts_stay_within_two_units_at_every_node_and_nothing_is_revealed() -> None:
    coalition = Coalition()
    assert max(coalition.apart_us.values()) <= 2 * U
    assert not CoalitionKnowledge(coalition.world).has_key()
    assert key_arrived(coalition.world, coalition.origin)


def test_if_no_replica_passed_a_proof_on_the_sixth_node_would_reveal_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault."""
    accept = ShareReception.accept_start_proof

    def check_only(self: ShareReception, *proof: object) -> None:
        accept(self, *proof)  # type: ignore[arg-type]
        self._received_proof = None

    monkeypatch.setattr(ShareReception, "accept_start_proof", check_only)
    coalition = Coalition()
    assert CoalitionKnowledge(coalition.world).has_key()
