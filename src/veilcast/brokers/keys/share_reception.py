"""How a replica gets its share when the previous hop redistributes a key (`redistribution`, `agreement`).

The caller keeps the time and exchanges the messages with all other replicas of the node. Delay is bounded by one round.
f is the number of Byzantine replicas that the node tolerates. The rounds:

    0            dealt shares arrive from the old holders (`accept_share`)
    1            every replica announces which it has (`announce`, `accept_statement`); if all rolls are equal,
                 that is all (`choose_holders`); or it has announced a brief roll before, without the unresponsive
                 replicas (`announce_brief`), and all replicas that the roll does not skip announce the same
    2 .. f + 1   otherwise accepted statements are relayed (`relay`, `accept_statement`)
    then         if there are `disputes`, holders show the disputed shares to all (`accept_share`),
    1 .. f + 1   and replicas announce what settles them (`announce_settlement`, `accept_settlement`,
                 `relay_settlements`)

A replica that has received the same statement from all others is done (`is_unanimous`): in round 1, or later with as
many signatures as the round requires. If others seem not to be done, it sends them its `certificate`, the same
statements. All honest replicas made that statement, so they are done, too. Either all of them finish this way, or none.

`choose_holders` then returns the old holders whose dealings are combined, the same at every honest replica, and
`combine` returns the share. `proven_faulty` lists old holders with two dealings and replicas with two statements.
`present` lists the replicas that had to be heard and were.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import msgspec

from veilcast.brokers.keys import agreement
from veilcast.brokers.keys.agreement import (
    AttendanceRoll,
    DealingRef,
    DealingTable,
    Dispute,
    EndorsedStatement,
    SignedBroadcast,
)
from veilcast.brokers.keys.redistribution import (
    DealtShare,
    HeldShare,
    HolderHeader,
    PublisherHeader,
    decode_commitments,
)
from veilcast.brokers.keys.scheme import KeyAttempt, ReplicaId, ReplicaKeys, Scheme
from veilcast.crypto import verifiable_sharing
from veilcast.crypto.derive import digest
from veilcast.crypto.sign import SigningKey
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import ForgedError, LocalError, MalformedError, RemoteError


class ShareReception:
    """The reception of one key, from one node, at one replica of the next. Bounded by the sizes of both nodes."""

    def __init__(
        self,
        key_attempt: KeyAttempt,
        old: Scheme,
        own_id: ReplicaId,
        publisher: bytes,
        replica_keys: ReplicaKeys,
        signing: SigningKey,
    ) -> None:
        self.key_attempt, self.old_scheme, self.own_id, self.publisher = key_attempt, old, own_id, publisher
        self.replica_keys = replica_keys
        about = msgspec.msgpack.encode((key_attempt, old))
        roll_context, settlement_context = (digest(about, purpose=purpose) for purpose in (b"vc/attend", b"vc/settle"))
        payload_max = agreement.PAYLOAD_MAX - agreement.ENDORSEMENT_BYTES * own_id.scheme.size
        roll_max = min(payload_max, agreement.roll_size_max(old.size, own_id.scheme.size))
        self._full_rolls = SignedBroadcast(roll_context, own_id, replica_keys, signing, payload_max=roll_max)
        self._brief_rolls = SignedBroadcast(roll_context, own_id, replica_keys, signing, payload_max=roll_max)
        """Brief rolls, separate from full ones: a replica that sends one of each has not made two statements."""
        self._settlements = SignedBroadcast(settlement_context, own_id, replica_keys, signing, payload_max=payload_max)
        self._shares: dict[Dispute, DealtShare] = {}
        self._headers: dict[int, dict[bytes, tuple[PublisherHeader, HolderHeader]]] = {}
        """Headers of the dealings to this replica."""
        self._seen_headers: dict[int, dict[bytes, HolderHeader]] = {}
        """Headers of dealings to any replica, as far as they were shown."""
        self._root: PublisherHeader | None = None
        self._received_proof: tuple[PublisherHeader, list[HolderHeader]] | None = None
        """Start proof of another replica, cut to a majority of the holders."""
        self._brief_roll: tuple[AttendanceRoll, bytes] | None = None
        self._own_roll: tuple[AttendanceRoll, bytes] | None = None
        """This replica's full roll and its payload; `_brief_roll` is the one before it."""

    @property
    def rounds(self) -> int:
        return self._full_rolls.rounds

    @property
    def proven_faulty(self) -> list[ReplicaId]:
        """Replicas and holders with two statements or two dealings under one signature."""
        replicas = sorted({*self._full_rolls.equivocators(), *self._brief_rolls.equivocators()})
        return self.equivocating_holders + [ReplicaId(self.own_id.scheme, replica) for replica in replicas]

    @property
    def equivocating_holders(self) -> list[ReplicaId]:
        """Old holders with two dealings."""
        return [
            ReplicaId(self.old_scheme, holder)
            for holder, versions in sorted(self._seen_headers.items())
            if len(versions) > 1
        ]

    def accept_share(self, share: DealtShare) -> None:
        """Accept a share from its holder: an own one, before `announce`, or a disputed one. Raises for an invalid
        share."""
        dispute = self.check_share(share)
        header = share.holder_header
        if self._own_roll is not None:
            if dispute in self.disputes():
                self._keep_share(dispute, share)
            return
        if dispute.replica != self.own_id.index:
            raise ForgedError("another replica's share, which is not in dispute")
        headers = self._headers.setdefault(header.holder, {})
        if len(headers) < _DEALINGS_PER_HOLDER:
            headers[header.name] = (share.publisher_header, header)
            self._keep_share(dispute, share)

    # --- rolls --------------------------------------------------------------------------------------------------------

    def announce_brief(self, skipped_replicas: Collection[int], skipped_holders: Collection[int]) -> EndorsedStatement:
        """Before `announce`: the brief roll without these holders, for all others, when these replicas are not waited
        for."""
        roll = AttendanceRoll(
            self._table(skipped_holders), tuple(skipped_replicas), tuple(skipped_holders), is_brief=True
        )
        self._brief_roll = roll, agreement.encode_roll(roll)
        return self._brief_rolls.announce(self._brief_roll[1])

    def announce(self) -> EndorsedStatement:
        """Round 0 is over: the full roll, for all others in round 1. A holder with two dealings is not listed."""
        brief_roll = self._brief_roll[0] if self._brief_roll else AttendanceRoll({})
        roll = AttendanceRoll(self._table(), brief_roll.skipped_replicas, brief_roll.skipped_holders)
        self._own_roll = roll, agreement.encode_roll(roll)
        return self._full_rolls.announce(self._own_roll[1])

    def is_sufficient(self, skipped_holders: Collection[int]) -> bool:
        """True if the dealings without these holders are enough for a share."""
        return agreement.choose_contributors(self._table(skipped_holders), self.old_scheme.size) is not None

    def accept_statement(self, statement: EndorsedStatement, round_number: int) -> None:
        broadcast = self._brief_rolls if agreement.is_brief_roll(statement.payload) else self._full_rolls
        broadcast.accept(statement, round_number)

    @property
    def has_announced(self) -> bool:
        return self._own_roll is not None

    def holders(self) -> list[int]:
        """The holders that dealt to this replica, once or twice."""
        return sorted(self._headers)

    def start_proof(self) -> tuple[PublisherHeader, list[HolderHeader]] | None:
        """The headers that a majority of the holders signed when they dealt, so at least one honest holder. While fewer
        have dealt to this replica: the proof that another replica has sent, or None.

        The proof shows that the transfer has begun, and reveals no secret. All its headers are under one publisher
        header; a Byzantine publisher may have signed several.
        """
        by_publisher_header: dict[bytes, tuple[PublisherHeader, list[HolderHeader]]] = {}
        for _, dealings in sorted(self._headers.items()):
            for root, header in list(dealings.values())[:1]:
                by_publisher_header.setdefault(root.points, (root, []))[1].append(header)
        found = (proof for proof in by_publisher_header.values() if len(proof[1]) >= self.old_scheme.threshold)
        return next(found, self._received_proof)

    def accept_start_proof(self, root: PublisherHeader, headers: Sequence[HolderHeader]) -> None:
        """Check and keep the start proof of another replica, to pass it on. Raises for an invalid one."""
        self._check_root(root)
        by_holder = {header.holder: header for header in headers}
        if len(by_holder) < self.old_scheme.threshold:
            raise ForgedError("too few holders to show that a hop has begun")
        for header in headers:
            if header.old_scheme != self.old_scheme or header.new_scheme != self.own_id.scheme:
                raise ForgedError("a dealing of another hop")
            self._check_header(header, root)
        self._received_proof = root, list(by_holder.values())[: self.old_scheme.threshold]

    @property
    def is_unanimous(self) -> bool:
        """True if all replicas state the same. A second statement of a Byzantine replica makes no difference."""
        return self._agreed() is not None

    @property
    def is_skipped(self) -> bool:
        """True if all others agree and did not wait for this replica."""
        agreed = self._agreed()
        return agreed is not None and self.own_id.index in agreed.roll.skipped_replicas

    def certificate(self) -> list[EndorsedStatement]:
        """The statements that prove unanimity to others."""
        agreed = self._agreed()
        return [] if agreed is None else agreed.statements

    def present(self) -> tuple[set[int], set[int]]:
        """At the end: the replicas with exactly one statement, and the old holders with usable dealings."""
        agreed = self._agreed()
        if agreed is None:
            return set(self._full_rolls.sole_payloads()), set(self._usable())
        return {statement.author for statement in agreed.statements}, set(agreed.roll.table)

    def skipped(self) -> tuple[set[int], set[int]]:
        """At the end: the replicas and the old holders that were not waited for."""
        agreed = self._agreed()
        return (
            (set(), set()) if agreed is None else (set(agreed.roll.skipped_replicas), set(agreed.roll.skipped_holders))
        )

    def erase(self) -> None:
        """Erase the shares. The statements stay, for replicas that are not done."""
        self._shares.clear()
        self._settlements.erase()

    def relay(self) -> list[EndorsedStatement]:
        """At the end of a round: the statements for all others in the next; none, if all stated the same in round 1."""
        fresh = self._full_rolls.relay() + self._brief_rolls.relay()
        return [] if self.is_unanimous else fresh

    def disputes(self) -> list[Dispute]:
        """At the end of the last round: the disputes for holders to settle."""
        return agreement.find_disputes(self._rolls(), self.own_id.scheme.size)

    # --- disputes -----------------------------------------------------------------------------------------------------

    def announce_settlement(self) -> EndorsedStatement:
        """The shares that holders have shown, for all others; as many as fit."""
        shown = [self._shares[dispute].encode().reveal() for dispute in self.disputes() if dispute in self._shares]
        payload = _ENCODER.encode(shown)
        while len(payload) > self._settlements.payload_max:
            shown = shown[:-1]
            payload = _ENCODER.encode(shown)
        return self._settlements.announce(payload)

    def accept_settlement(self, statement: EndorsedStatement, round_number: int) -> None:
        self._settlements.accept(statement, round_number)

    def relay_settlements(self) -> list[EndorsedStatement]:
        return self._settlements.relay()

    # --- the result ---------------------------------------------------------------------------------------------------

    def choose_holders(self) -> tuple[int, ...] | None:
        """The old holders to combine; None if there are too few, which is impossible with a Byzantine minority."""
        return agreement.choose_contributors(self._usable(), self.old_scheme.size)

    def combine(self) -> HeldShare:
        """This replica's share of the new sharing, from the dealings of the chosen holders."""
        chosen = self.choose_holders()
        if chosen is None:
            raise LocalError("too few old holders have dealt")
        dealt = agreement.majority_dealings(self._rolls(), self.own_id.scheme.size)
        own = [self._shares.get(Dispute(holder, dealt[holder].name, self.own_id.index)) for holder in chosen]
        shares = [share for share in own if share is not None]
        if len(shares) != len(chosen):
            raise LocalError("an own share is missing, and no holder has shown it")
        threshold, first = self.own_id.scheme.threshold, shares[0]
        parts = [
            verifiable_sharing.Subshare(
                share.holder_header.holder, decode_commitments(share.holder_header.new_points), share.share
            )
            for share in shares
        ]
        agreed = verifiable_sharing.agreement_digest({part.holder: part.commitments for part in parts})
        old = decode_commitments(first.holder_header.old_points)
        commitments, share = verifiable_sharing.combine_subshares(
            parts, old, self.own_id.index, threshold, agreed=agreed, verified=True
        )
        return HeldShare(first.publisher_header, self.own_id, commitments, share)

    def _table(self, skipped_holders: Collection[int] = ()) -> DealingTable:
        return {
            holder: DealingRef(header.name, header.old_sharing)
            for holder, headers in self._headers.items()
            if len(headers) == 1 and holder not in skipped_holders
            for _, header in headers.values()
        }

    def _agreed(self) -> _Agreement | None:
        """The unanimous roll, if there is one: a brief roll of all replicas that it does not skip, or a full roll of
        all replicas if no brief roll can be agreed any more.

        Two brief rolls can both be agreed only if two honest replicas had missed one another. Then this replica uses
        the one that skips it: it then deals nothing that others could take for something else.
        """
        if self._brief_roll is None and self._own_roll is None:
            return None
        brief_rolls = {} if self._brief_roll is None else {self._brief_roll[1]: self._brief_roll[0]}
        brief_rolls |= {
            payload: agreement.decode_roll(payload)
            for payload in self._brief_rolls.sole_payloads().values()
            if payload not in brief_rolls
        }
        for payload, roll in sorted(
            brief_rolls.items(), key=lambda entry: self.own_id.index not in entry[1].skipped_replicas
        ):
            if len(roll.skipped_replicas) <= self.own_id.scheme.max_faulty and (
                statements := self._unanimous_statements(self._brief_rolls, payload, roll)
            ):
                return _Agreement(roll, statements)
        if self._own_roll is None or self._own_roll[0].skipped_replicas or self._own_roll[0].skipped_holders:
            return None
        roll, payload = self._own_roll
        statements = self._unanimous_statements(self._full_rolls, payload, roll)
        return _Agreement(roll, statements) if statements else None

    def _unanimous_statements(
        self, broadcast: SignedBroadcast, payload: bytes, roll: AttendanceRoll
    ) -> list[EndorsedStatement]:
        """This statement of all replicas that the roll does not skip; empty if one is missing."""
        statements = broadcast.statements_with(payload)
        authors = {statement.author for statement in statements}
        return statements if authors.union(roll.skipped_replicas) == set(range(1, self.own_id.scheme.size + 1)) else []

    def _rolls(self) -> dict[int, AttendanceRoll]:
        """The rolls that count: the agreed one for all, or each replica's own."""
        agreed = self._agreed()
        if agreed is not None:
            return dict.fromkeys(range(1, self.own_id.scheme.size + 1), agreed.roll)
        if self._own_roll is None:
            raise LocalError("the own roll must be announced before holders are chosen")
        return agreement.decode_rolls(self._full_rolls.sole_payloads())

    def _usable(self) -> DealingTable:
        """The dealings that the share can be made of."""
        rolls, open_disputes = self._rolls(), self.disputes()
        settled: set[Dispute] = set()
        for payload in self._settlements.sole_payloads().values() if open_disputes else ():
            settled.update(self._settled_by(payload, open_disputes))
        return agreement.usable_dealings(rolls, self.own_id.scheme.size, settled)

    def check_share(self, share: DealtShare) -> Dispute:
        """The (holder, dealing, replica) of a share; raises unless it belongs to this key and hop and is valid."""
        header = share.holder_header
        if (
            share.publisher_header.key_attempt != self.key_attempt
            or header.old_scheme != self.old_scheme
            or header.new_scheme != self.own_id.scheme
        ):
            raise ForgedError("a dealt share of another key or hop")
        self.own_id.scheme.check_index(share.share.index)
        self._check_root(share.publisher_header)
        self._check_header(header, share.publisher_header)
        verifiable_sharing.verify_share(share.share, decode_commitments(header.new_points))
        return Dispute(header.holder, header.name, share.share.index)

    def _check_root(self, root: PublisherHeader) -> None:
        if root.key_attempt != self.key_attempt:
            raise ForgedError("a publisher header of another key")
        if root != self._root:
            root.check(self.publisher)
            self._root = root

    def _check_header(self, header: HolderHeader, root: PublisherHeader) -> None:
        """A header that equals a stored one is known to be valid."""
        versions = self._seen_headers.setdefault(header.holder, {})
        name = header.name
        if name in versions and versions[name] == header:
            return
        header.check(root, self.replica_keys)
        if len(versions) < _DEALINGS_PER_HOLDER:
            versions[name] = header

    def _keep_share(self, dispute: Dispute, share: DealtShare) -> None:
        """Keep own shares of at most two dealings per holder, and one share per dispute."""
        self._shares.setdefault(dispute, share)

    def _settled_by(self, payload: bytes, open_disputes: Sequence[Dispute]) -> list[Dispute]:
        """The disputes that a payload settles, for any replica that checks it. Invalid shares in it settle nothing."""
        try:
            evidence = _DECODER.decode(payload)
        except MalformedError:
            return []
        settled = []
        for shown in evidence:
            try:
                share = DealtShare.decode(shown)
                dispute = self.check_share(share)
            except RemoteError:
                continue
            if dispute in open_disputes:
                self._keep_share(dispute, share)
                settled.append(dispute)
        return settled


class _Agreement(NamedTuple):
    roll: AttendanceRoll
    statements: list[EndorsedStatement]
    """The statements of all replicas, never empty."""


_DEALINGS_PER_HOLDER: Final = 2
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = MsgpackDecoder(list[bytes], MalformedError, "not evidence")
