"""One hop of one key at one replica of the receiving node: `ShareReception`, with its timers (`hardened`).

u is the bound on the delay between honest replicas, with their time to answer. All deadlines count from the start of
the hop at this replica. The hop starts here when a majority of the old holders, so at least one honest holder, have
dealt to this replica, or when other replicas prove that a majority has dealt. So Byzantine replicas cannot start a
clock before the first honest holder has dealt. A replica that has started and is not done after u sends that proof to
all others, so honest replicas start within 2 u of one another. Measured from the start:

    at once     a replica that has all dealt shares announces its roll (the others when they have them)
    u           a replica that is not done proves to others that the hop has begun; again u after its announcement
    4 u         every replica announces its roll: honest holders deal within 3 u of one another, see below
    7 u         the first round ends; then, every 4 u, the others, f + 1 in all
    + 4 u       if there are disputes, holders were asked and have shown the shares
    + 3 u       each: the f + 1 rounds of settlement

A replica that has all shares except those of unresponsive holders (`unresponsive`) announces a brief roll at once. It
is done if all replicas that the roll does not skip announce the same. Otherwise the hop proceeds as if no replica were
unresponsive. A replica that is skipped by an agreed roll gets no share, even if it has recovered. Reason: Byzantine
holders could make it wait for their shares, so it would be done later than within the 3 u below, would deal when the
next node has already announced what it lacks, and would have to show those shares. A replica that has spoken is not
unresponsive: it is waited for with this key if it was heard before this replica's announcement, and with later keys if
it was in time.

A replica that is done by unanimity answers replicas that are not done with the statements that prove it, to all
replicas, up to 8 u.

Claim: all honest replicas are done within 3 u of one another.
Reason: either all of them are done by unanimity, or none; those done by the clock are done within 2 u. The next node
relies on these 3 u (see 4 u above).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from veilcast.brokers.keys.agreement import AgreementMessage, Dispute, EndorsedStatement, split_to_fit
from veilcast.brokers.keys.redistribution import DealtShare, HeldShare, HolderHeader, PublisherHeader
from veilcast.brokers.keys.scheme import KeyAttempt, ReplicaId, ReplicaKeys, Scheme
from veilcast.brokers.keys.share_reception import ShareReception
from veilcast.brokers.keys.unresponsive import UnresponsiveReplicas
from veilcast.brokers.routing.view import Outgoing, all_replicas
from veilcast.crypto.sign import SigningKey
from veilcast.errors import LocalError, RemoteError, StaleError
from veilcast.wire.brokers import AgreementWord, DisputeDealing, FloodKind


class TransferReceiver:
    """Bounded by the sizes of both nodes. `held_share` is set once the hop is done; `end_us` is when nothing more can
    come."""

    def __init__(
        self,
        key_attempt: KeyAttempt,
        old: Scheme,
        own_id: ReplicaId,
        publisher: bytes,
        replica_keys: ReplicaKeys,
        signing: SigningKey,
        bound_us: int,
        unresponsive: UnresponsiveReplicas,
    ) -> None:
        self.key_attempt, self.old_scheme, self.own_id, self.publisher = key_attempt, old, own_id, publisher
        self._u, self._unresponsive = bound_us, unresponsive
        self._keys = {each: replica_keys.key_of(each) for each in (*all_replicas(old), *all_replicas(own_id.scheme))}
        """Keys of all replicas, also after `ReplicaKeys` has dropped their schemes."""
        self._levels_before: dict[ReplicaId, int] = {}
        """Level of each replica (`UnresponsiveReplicas.level`) at this replica's first announcement."""
        self._reception = ShareReception(key_attempt, old, own_id, publisher, replica_keys, signing)
        self._other_replicas = [other for other in all_replicas(own_id.scheme) if other != own_id]
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
    """Longest time after its dealing that a holder may be asked to show shares: receivers start within 4 u of the
    dealing."""
    return (4 + _FIRST + _ROUND * max_faulty + 1) * bound_us


def quiet_period_us(bound_us: int, max_faulty: int) -> int:
    """Time that a restarted replica stays silent: afterwards no holder shows what it dealt to an earlier run."""
    return dispute_window_us(bound_us, max_faulty) + 4 * bound_us


def transfer_duration_us(bound_us: int, max_faulty: int) -> int:
    """Longest duration of a hop, and so the longest time by which a Byzantine holder can deal before the honest
    ones."""
    return (_FIRST + _ROUND * max_faulty + _SHOW + _SETTLE * (max_faulty + 1)) * bound_us


_VERSIONS_MAX: Final = 2
_EARLY_MAX: Final = 3
"""Statements of one replica that are kept before this replica's announcement, for each replica of the node: replicas
that did not wait may have proven unanimity by then."""

# In units of the bound on delay; the module docstring says what happens in each.
_CALL: Final = 1
_ATTEND: Final = 4
_FIRST: Final = 7
_ROUND: Final = 4
_SHOW: Final = 4
_SETTLE: Final = 3
