"""One hop of one key at one replica of the receiving node: `ShareReception`, with its timers (`hardened`).

Times are in units of u, the bound on delay, and count from the start of the hop at this replica:

    0       a replica that has all dealt shares announces its full roll; one that lacks only those of unresponsive
            holders (`unresponsive_replicas`) announces a brief roll
    1       a replica that is not done proves to the others that the hop has begun, and so asks whether they are done;
            it asks again 1 after its first announcement
    4       a replica that has announced no full roll yet does
    7       the first round ends; then, every 4, the others, f + 1 in all: E(i) = 7 + 4 (i - 1)
    + 4     if there are disputes: holders were asked at E(f + 1), and have shown the shares
    + 3     each: the f + 1 rounds of settlement

A replica is done when all that its roll does not skip have announced the same (by unanimity), or when the last round
has ended (by the clock). Then it deals to the next node.

Assumptions:

A1. A message between honest replicas arrives within 1, the time to answer included.
A2. At most f replicas of each of the two nodes are Byzantine, fewer than half. A replica that was killed lately counts
    as one.
A3. All honest holders deal within 3 of one another, the first one at time D. At the first node they deal within 1: an
    honest publisher sends to all at once. At every later node this is property 6 of the node before it.

S(r) is the start at replica r, and S the first start at an honest one. Each property gives the reason for a constant,
and what breaks if it is one less. `tests/brokers/test_transfer_timing.py` has the worst schedules, and one unit less
than each needs as planted faults.

1.  Property: no honest replica starts before D, whatever Byzantine replicas send.
    Reason: a start needs the headers that f + 1 holders signed when they dealt. One of these holders is honest.

2.  Property: honest replicas start within 2 of one another, and before D + 4.
    Reason: the replica that started at S proves the start at S + 1, unless it is done. The proof arrives by S + 2, and
    it is the headers that were dealt to this replica or that another replica has shown to it. (A replica that has no
    dealt share yet keeps the proof until its first one comes. By property 1, an honest holder's comes by S + 1.) If the
    first replica is done by S + 1, all that its roll does not skip have announced, and so have started. By D + 4, f + 1
    honest holders have dealt to every replica.
    If a replica did not pass on a proof that it was shown, starts would drift by up to 1 more at each node, and the
    sixth node would reveal the key (`tests/brokers/test_start_proofs.py`).
    `_CALL` = 1: with 2, starts would be 3 apart, and property 4 fails. With 0, every replica would call in every hop.

3.  Property: the full roll of an honest replica lists the dealings of all honest holders.
    Reason: it is announced at S(r) + 4 or when all have dealt. S(r) + 4 is after D + 4 (property 1), and honest
    dealings arrive by D + 3 + 1 (A3, A1).
    `_ATTEND` = 4: with 3, an honest replica can lack an honest holder's share. The holder shows that share, and f
    Byzantine replicas then have f + 1 shares of the dealing: the key is revealed.

4.  Property: the full roll of every honest replica arrives at every other in its first round.
    Reason: it is sent by S + 2 + 4, arrives by S + 7, and no first round of an honest replica ends before S + 7.
    `_FIRST` = 7: with 6, a roll of the replica that started last can come in the second round with one signature, and
    is refused there and accepted elsewhere. The honest replicas then combine different dealings, and the key is lost.

5.  Property: what an honest replica relays at its E(i), or sends as a certificate in its round i, arrives at every
    honest replica in its round i + 1 at the latest. This is the assumption of the broadcast (`agreement`).
    Reason: sent by S + 2 + E(i), it arrives by S + 3 + E(i), and E(i + 1) = E(i) + 4.
    `_ROUND` = 4: 3 is the least. The fourth is a reserve, at a cost of f units and only where replicas disagree.

6.  Property: all honest replicas that are not skipped are done within 3 of one another, and all by unanimity or none.
    Reason: let r be the first that is done by unanimity, at T, and x another.
    a. x has announced by T, because r has its statement, and asks by T + 1. The question arrives by T + 2. r answers
       each question, also an earlier one, with its certificate to all, which arrives at x by T + 3.
    b. r answers questions until S(r) + 8 (`_FIRST` + 1). x announces first by S(x) + 4, asks by S(x) + 5, and is heard
       by S(x) + 6, so by S(r) + 8. The answer arrives by S(x) + 7, in the first round of x, or within 1 of T.
    c. If r is done after its first round, it certifies unasked. r has signed each statement that x may lack, so x
       accepts it in one round more than r, which is enough by property 5.
    d. If T is in the last round, the statement that r lacked has f + 1 signatures. An honest replica has signed it, and
       has sent it in an earlier round. So x has it in its last round, too.
    e. If no replica is done by unanimity, all have the same statements and the same disputes (`agreement`), and the
       same number of rounds. They are done within 2, as they started.
    These 3 are A3 of the next node: with a longer time here, `_ATTEND` there must be longer.

7.  Property: a share that an honest holder shows is stated by every honest replica that announces a settlement.
    Reason: honest replicas ask within 2 of one another, the last question arrives 1 later, and the share 1 later.
    `_SHOW` = 4: 2 is the least, because the replica that asked last has the share then and its statement settles the
    dispute for all. With 4 no settlement depends on one replica.

8.  Property: all honest replicas settle the same disputes.
    Reason: the rounds of settlement are a broadcast. Statements are sent within 2, and arrive 1 later.
    `_SETTLE` = 3: with 2, a Byzantine holder that shows a share to the replica that started last settles the dispute
    there alone. The honest replicas then combine different dealings, and the key is lost.

9.  Property: a replica that an agreed roll skips gets no share, even if it has recovered.
    Reason: it is outside properties 2 and 6. Byzantine holders could make it wait for their shares and be done later
    than 3 after the others. The next node would already have announced that it lacks what this replica deals, and an
    honest share would have to be shown. A replica that has spoken is waited for: with this key if it was heard before
    this replica's announcement, and with later keys if it was in time.

10. Property: an honest holder can show each share that an honest replica disputes (`dispute_window_us`), and none that
    it dealt to an earlier run of the replica that lacks it (`quiet_period_us`).
    Reason: by property 2, receivers start within 4 of any honest dealing. They ask at E(f + 1), and the question takes
    1: 4 + E(f + 1) + 1. A replica that restarts had started before, so the first honest dealing was before the restart
    and the last by 3 later. Their windows have ended when the quiet period does, which is 4 longer: 3 is the least.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from veilcast.brokers.keys.agreement import AgreementMessage, Dispute, EndorsedStatement, split_to_fit
from veilcast.brokers.keys.redistribution import DealtShare, HeldShare, HolderHeader, PublisherHeader
from veilcast.brokers.keys.scheme import ReplicaId, Scheme
from veilcast.brokers.keys.share_reception import ShareReception
from veilcast.brokers.keys.unresponsive_replicas import UnresponsiveReplicas
from veilcast.brokers.routing.view import Outgoing, all_replicas
from veilcast.errors import LocalError, RemoteError, StaleError
from veilcast.wire.brokers import AgreementWord, DisputeDealing, FloodKind


class TransferReceiver:
    """Bounded by the sizes of both nodes. `held_share` is set once the hop is done; `end_us` is when nothing more can
    come."""

    def __init__(self, reception: ShareReception, bound_us: int, unresponsive: UnresponsiveReplicas) -> None:
        self.key_attempt, self.old_scheme, self.own_id = reception.key_attempt, reception.old_scheme, reception.own_id
        self.publisher = reception.publisher
        self._reception, self._u, self._unresponsive = reception, bound_us, unresponsive
        replicas = (*all_replicas(self.old_scheme), *all_replicas(self.own_id.scheme))
        self._keys = {each: reception.replica_keys.key_of(each) for each in replicas}
        """Keys of all replicas, also after `ReplicaKeys` has dropped their schemes."""
        self._levels_before: dict[ReplicaId, int] = {}
        """Level of each replica (`UnresponsiveReplicas.level`) at this replica's first announcement."""
        self._other_replicas = [other for other in all_replicas(self.own_id.scheme) if other != self.own_id]
        self._named_advertisements: dict[int, bytes] = {}
        self._announced_by: set[int] = set()
        """Replicas that have announced a roll themselves."""
        self._skipped: set[int] = set()
        """Replicas that were skipped, once the hop is done."""
        self._begun_us: int | None = None
        self._announced_us: int | None = None
        """Time of this replica's first announcement."""
        self._round = 1
        self._settlement_round: int | None = None
        """Round of settlement, from 1; 0 while holders show shares; None before."""
        self._proofs_sent = 0
        self._is_nudged = self._has_certified = False
        self._early_statements: dict[int, list[EndorsedStatement]] = {}
        self._early_shown: dict[tuple[int, int], list[DealtShare]] = {}
        self.held_share: HeldShare | None = None
        self.is_done = False
        """True if this replica has its share or cannot get one."""

    @property
    def has_begun(self) -> bool:
        return self._begun_us is not None

    @property
    def holder_count(self) -> int:
        """Number of holders that have dealt to this replica."""
        return len(self._reception.holders())

    @property
    def equivocating_holders(self) -> list[ReplicaId]:
        return self._reception.equivocating_holders

    @property
    def equivocating_replicas(self) -> list[ReplicaId]:
        """Other replicas with two statements. This replica never makes two, whatever was replayed from an earlier
        run."""
        return [
            replica
            for replica in self._reception.proven_faulty
            if replica.scheme == self.own_id.scheme and replica != self.own_id
        ]

    @property
    def advertisement(self) -> bytes | None:
        """The advertisement that more than f holders name for the key."""
        return self._majority_advertisement(())

    @property
    def end_us(self) -> int | None:
        """Time after which no replica can need anything from this one."""
        return None if self._begun_us is None else self._settlement_end_us(self._rounds)

    def accept_share(self, share: DealtShare, advertisement: bytes, now: int) -> list[Outgoing]:
        """Accept a share from its holder, identified by its link. Raises for an invalid share."""
        sent = self.handle(now)
        if self.is_done:
            return sent
        if share.share.index != self.own_id.index and self._settlement_round is None:
            if not self._reception.has_announced:
                raise StaleError("another replica's share, which is not in dispute yet")
            self._reception.check_share(share)
            early_shown = self._early_shown.setdefault((share.holder_header.holder, share.share.index), [])
            if len(early_shown) < _VERSIONS_MAX:
                early_shown.append(share)
            return sent
        self._reception.accept_share(share)
        self._named_advertisements.setdefault(share.holder_header.holder, advertisement)
        if self._begun_us is None and len(self._reception.holders()) >= self.old_scheme.threshold:
            self._begun_us = now
        return sent + self.handle(now)

    def accept_message(
        self, broadcast: FloodKind, message: AgreementMessage, source: ReplicaId, now: int
    ) -> list[Outgoing]:
        """Accept a message of another replica of the node. Raises for an invalid one."""
        sent = self.handle(now)
        if broadcast is FloodKind.SETTLING:
            if not self.is_done:
                for statement in message.statements:
                    self._reception.accept_settlement(statement, max(1, self._settlement_round or 0))
            return sent
        if message.publisher_header is not None:
            self._reception.accept_start_proof(message.publisher_header, message.holder_headers)
            self._begun_us = now if self._begun_us is None else self._begun_us
        if any(statement.author == source.index for statement in message.statements):
            self._announced_by.add(source.index)
            if source.index in self._skipped and now <= self._round_end_us(1):
                self._unresponsive.record_present(self.publisher, self._keys[source])
        if message.is_stuck and (self._begun_us is None or now <= self._round_end_us(1) + self._u):
            self._is_nudged = True
        if self._announced_us is not None:
            self._accept_statements(message.statements)
        else:
            early = self._early_statements.setdefault(source.index, [])
            early += message.statements[: _EARLY_MAX * self.own_id.scheme.size - len(early)]
        return sent + self.handle(now)

    def handle(self, now: int) -> list[Outgoing]:
        """Run all steps that are due."""
        sent: list[Outgoing] = []
        while (when := self.next_us()) is not None and when <= now:
            sent += self._step(now)
        return sent

    def next_us(self) -> int | None:
        """Time of the next step; 0 if a step is due that needs no clock."""
        begun_us = self._begun_us
        if begun_us is None:
            return None
        if self.is_done:
            return 0 if self._owes_certificate() else None
        if self._reception.is_unanimous or (
            self._announced_us is None and (self._is_complete() or self._find_skippable() is not None)
        ):
            return 0
        due, proof_us = (
            self._current_end_us() if self._reception.has_announced else self._after_us(_ATTEND),
            self._proof_due_us(),
        )
        return due if proof_us is None else min(due, proof_us)

    # --- the clock ----------------------------------------------------------------------------------------------------

    @property
    def _rounds(self) -> int:
        return self._reception.rounds

    def _after_us(self, units: int) -> int:
        assert self._begun_us is not None, "nothing is due before the beginning"
        return self._begun_us + units * self._u

    def _round_end_us(self, round_number: int) -> int:
        return self._after_us(_FIRST + _ROUND * (round_number - 1))

    def _settlement_end_us(self, round_number: int) -> int:
        return self._round_end_us(self._rounds) + (_SHOW + _SETTLE * round_number) * self._u

    def _current_end_us(self) -> int:
        return (
            self._round_end_us(self._round)
            if self._settlement_round is None
            else self._settlement_end_us(self._settlement_round)
        )

    def _proof_due_us(self) -> int | None:
        """Time of the next proof to others that the hop has begun: one before this replica's announcement, one
        after."""
        if not self._proofs_sent:
            return self._after_us(_CALL)
        after = 0 if self._announced_us is None else self._announced_us + _CALL * self._u
        return after if self._proofs_sent == 1 and after > self._after_us(_CALL) else None

    def _step(self, now: int) -> list[Outgoing]:
        if self.is_done:
            return self._certify()
        if self._reception.is_unanimous:
            is_late = self._round > 1
            self._combine()
            return self._certify() if is_late or self._is_nudged else []
        if not self._reception.has_announced:
            skippable = self._find_skippable() if self._announced_us is None else None
            if skippable is not None:
                return self._announce(self._reception.announce_brief(*skippable), now)
            if now >= self._after_us(_ATTEND) or (self._announced_us is None and self._is_complete()):
                return self._announce(self._reception.announce(), now)
            return self._send_start_proof()
        proof_us = self._proof_due_us()
        return (
            self._send_start_proof()
            if proof_us is not None and proof_us <= min(now, self._current_end_us())
            else self._end_round()
        )

    def _announce(self, statement: EndorsedStatement, now: int) -> list[Outgoing]:
        if self._announced_us is None:
            self._announced_us = now
            replicas = [*all_replicas(self.old_scheme), *self._other_replicas]
            self._levels_before = {
                replica: self._unresponsive.level(self.publisher, self._keys[replica]) for replica in replicas
            }
            for _, statements in sorted(self._early_statements.items()):
                self._accept_statements(statements, strict=False)
            self._early_statements.clear()
        return self._send_statements((statement,))

    def _is_complete(self) -> bool:
        """True if all holders have dealt."""
        return len(self._reception.holders()) == self.old_scheme.size

    def _find_skippable(self) -> tuple[list[int], list[int]] | None:
        """The replicas and holders to skip, if there are any and no other is missing."""
        dealt, skipped_holders = set(self._reception.holders()), self._skippable(self.old_scheme)
        if not self._reception.is_sufficient(skipped_holders) or self._majority_advertisement(skipped_holders) is None:
            skipped_holders = set()
        candidates = self._skippable(self.own_id.scheme) - self._announced_by - {self.own_id.index}
        skipped_replicas = sorted(candidates)[: self.own_id.scheme.max_faulty]
        missing = len(dealt | skipped_holders) < self.old_scheme.size
        return (
            None
            if missing or not (skipped_replicas or skipped_holders)
            else (skipped_replicas, sorted(skipped_holders))
        )

    def _skippable(self, scheme: Scheme) -> set[int]:
        """The replicas of a node that are not waited for."""
        keys = {replica.index: self._keys[replica] for replica in all_replicas(scheme)}
        return {at for at, key in keys.items() if self._unresponsive.is_skipped(self.key_attempt, self.publisher, key)}

    def _majority_advertisement(self, skipped_holders: Collection[int]) -> bytes | None:
        """The advertisement that more than f holders name, without these holders."""
        names = [name for holder, name in self._named_advertisements.items() if holder not in skipped_holders]
        return next((name for name in names if names.count(name) > self.old_scheme.max_faulty), None)

    def _record_presence(self) -> None:
        """Record which replicas and holders were present and which were missed."""
        nodes, skipped_of = (self.own_id.scheme, self.old_scheme), self._reception.skipped()
        self._skipped = skipped_of[0]
        recovered = (self._skipped & self._announced_by, set[int]())
        for scheme, present, skipped, back in zip(nodes, self._reception.present(), skipped_of, recovered, strict=True):
            for replica in all_replicas(scheme):
                key = self._keys[replica]
                if replica.index in present or replica.index in back:
                    self._unresponsive.record_present(self.publisher, key)
                elif replica != self.own_id and replica.index not in skipped:
                    self._unresponsive.record_missed(self.publisher, key, self._levels_before[replica])

    def _send_start_proof(self) -> list[Outgoing]:
        self._proofs_sent += 1
        proof = self._reception.start_proof()
        root, headers = proof or (None, [])
        return self._make_messages(FloodKind.ATTENDANCE, (), root, tuple(headers), stuck=True)

    def _end_round(self) -> list[Outgoing]:
        """A round is over."""
        if self._settlement_round is None:
            fresh = self._reception.relay()
            self._round += 1
            if self._round <= self._rounds:
                return self._send_statements(tuple(fresh))
            disputes = self._reception.disputes()
            if not disputes:
                self._combine()
                return []
            self._settlement_round = 0
            return self._ask_holders(disputes)
        settlement_round, self._settlement_round = self._settlement_round, self._settlement_round + 1
        if settlement_round >= self._rounds:
            self._combine()
            return []
        statements = (
            (self._reception.announce_settlement(),)
            if settlement_round == 0
            else tuple(self._reception.relay_settlements())
        )
        return self._make_messages(FloodKind.SETTLING, statements) if statements else []

    def _ask_holders(self, disputes: list[Dispute]) -> list[Outgoing]:
        by_dealing: dict[tuple[int, bytes], list[int]] = {}
        for dispute in disputes:
            by_dealing.setdefault((dispute.holder, dispute.name), []).append(dispute.replica)
        for shares in self._early_shown.values():
            for share in shares:
                try:
                    self._reception.accept_share(share)
                except RemoteError:
                    continue
        self._early_shown.clear()
        return [
            Outgoing(
                ReplicaId(self.old_scheme, holder),
                DisputeDealing(self.key_attempt.key, self.key_attempt.attempt, name, tuple(disputed)),
            )
            for (holder, name), disputed in by_dealing.items()
        ]

    def _combine(self) -> None:
        """The hop is done, with a share or without. All dealt shares are erased."""
        self.is_done = True
        try:
            if self._reception.choose_holders() is not None:
                self._record_presence()
                self.held_share = None if self._reception.is_skipped else self._reception.combine()
        except (RemoteError, LocalError):
            self.held_share = None
        finally:
            self._reception.erase()
            self._early_shown.clear()
            self._early_statements.clear()

    # --- statements ---------------------------------------------------------------------------------------------------

    def _accept_statements(
        self, statements: tuple[EndorsedStatement, ...] | list[EndorsedStatement], *, strict: bool = True
    ) -> None:
        for statement in statements:
            try:
                self._reception.accept_statement(statement, self._round)
            except RemoteError:
                if strict:
                    raise

    def _owes_certificate(self) -> bool:
        return self._is_nudged and not self._has_certified and self._reception.is_unanimous

    def _certify(self) -> list[Outgoing]:
        """Send the certificate to all others: a certificate that only Byzantine replicas had would split the honest
        ones."""
        if self._has_certified:
            return []
        self._has_certified = True
        return self._send_statements(tuple(self._reception.certificate()))

    def _send_statements(self, statements: tuple[EndorsedStatement, ...]) -> list[Outgoing]:
        return self._make_messages(FloodKind.ATTENDANCE, statements) if statements else []

    def _make_messages(
        self,
        broadcast: FloodKind,
        statements: tuple[EndorsedStatement, ...],
        root: PublisherHeader | None = None,
        headers: tuple[HolderHeader, ...] = (),
        *,
        stuck: bool = False,
    ) -> list[Outgoing]:
        sent: list[Outgoing] = []
        for part in split_to_fit(statements) or [()]:
            message = AgreementMessage(self.old_scheme, self.own_id.scheme, part, root, headers, stuck)
            word = AgreementWord(
                self.key_attempt.key, self.key_attempt.attempt, self.old_scheme.node, broadcast, message.encode()
            )
            sent += [Outgoing(other, word) for other in self._other_replicas]
        return sent


def dispute_window_us(bound_us: int, max_faulty: int) -> int:
    """Longest time after its dealing that a holder may be asked to show shares (property 10)."""
    return (4 + _FIRST + _ROUND * max_faulty + 1) * bound_us


def quiet_period_us(bound_us: int, max_faulty: int) -> int:
    """Time that a restarted replica stays silent: afterwards no honest holder shows what it dealt to an earlier run
    (property 10)."""
    return dispute_window_us(bound_us, max_faulty) + 4 * bound_us


_VERSIONS_MAX: Final = 2
"""Dealings of one holder that a replica keeps shares of; the second proves that the holder is Byzantine."""
_EARLY_MAX: Final = 3
"""Statements of one replica that are kept before this replica's announcement, for each replica of the node. An honest
replica of a node of n sends at most n + 2 before its second round: its brief roll, its full roll, and a certificate.
So 2 for each of n would do, and 3 is a reserve."""

# In units of the bound on delay; the module docstring derives each.
_CALL: Final = 1
_ATTEND: Final = 4
_FIRST: Final = 7
_ROUND: Final = 4
_SHOW: Final = 4
_SETTLE: Final = 3
