"""Receiving: how a replica comes by its share when the hop before hands a key on (`redistribution`, `agreement`).

Pure; the caller keeps the time and carries messages to and from all other replicas of the node. Delay is bounded by one
round. What happens in which round, f being the liars that the node bears:

    0            portions come from the old holders (`take`)
    1            every replica says which it has (`attend`, `hear`); if all say the same, that is all (`choose`);
                 or it has said so before, without those who are absent (`waive`), and who is not says the same
    2 .. f + 1   else what was heard is passed on (`relay`, `hear`)
    then         if there are `disputes`, holders show the portions in question, to all (`take`),
    1 .. f + 1   and replicas say what settles them (`settle`, `hear_settling`, `relay_settling`)

Who heard all others say the same, in round 1 or later with as many vouchers as the round asks for, is done (`quick`).
If others seem not to be, it sends them its `certificate`, the same words: all who did not lie said just that, so they
are done, too. All of them are done this way, or none.

`choose` then gives the old holders whose dealings are put together, the same at every honest replica, and `combine` the
share. Who is proven to lie is in `liars`: old holders with two dealings, replicas with two words. Who had to be heard,
and was, is in `present`.
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
from veilcast.brokers.keys.paper_split import KeyAttempt
from veilcast.brokers.keys.redistribution import (
    DealtShare,
    HeldShare,
    HolderHeader,
    PublisherHeader,
    decode_commitments,
)
from veilcast.brokers.keys.scheme import ReplicaId, ReplicaKeys, Scheme
from veilcast.crypto import verifiable_sharing
from veilcast.crypto.derive import digest
from veilcast.crypto.sign import SigningKey
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import ForgedError, LocalError, MalformedError, RemoteError


class ShareReception:
    """Of one key, from one node, at one replica of the next. Bounded: by the sizes of both nodes."""

    def __init__(
        self,
        origin: KeyAttempt,
        old: Scheme,
        place: ReplicaId,
        publisher: bytes,
        roster: ReplicaKeys,
        signing: SigningKey,
    ) -> None:
        self._origin, self._old, self._place, self._publisher = origin, old, place, publisher
        self._roster = roster
        about = msgspec.msgpack.encode((origin, old))
        attend, settle = (digest(about, purpose=purpose) for purpose in (b"vc/attend", b"vc/settle"))
        most = agreement.PAYLOAD_MAX - agreement.ENDORSEMENT_BYTES * place.scheme.size
        most_said = min(most, agreement.roll_size_max(old.size, place.scheme.size))
        self._attending = SignedBroadcast(attend, place, roster, signing, most=most_said)
        self._waiving = SignedBroadcast(attend, place, roster, signing, most=most_said)
        """Brief rolls, apart from the others: who says one of each has not said two things."""
        self._settling = SignedBroadcast(settle, place, roster, signing, most=most)
        self._kept: dict[Dispute, DealtShare] = {}
        self._headers: dict[int, dict[bytes, tuple[PublisherHeader, HolderHeader]]] = {}
        """Of what was dealt to us."""
        self._faces: dict[int, dict[bytes, HolderHeader]] = {}
        """Of what was dealt to anybody, as far as it was shown."""
        self._root: PublisherHeader | None = None
        self._brief: tuple[AttendanceRoll, bytes] | None = None
        self._ours: tuple[AttendanceRoll, bytes] | None = None
        """What we said before we attended, and when we did, and in which word."""

    @property
    def rounds(self) -> int:
        return self._attending.rounds

    @property
    def proven_faulty(self) -> list[ReplicaId]:
        """For certain, with the proof at hand: two dealings, or two words, under one signature."""
        replicas = sorted({*self._attending.equivocators(), *self._waiving.equivocators()})
        return self.equivocating_holders + [ReplicaId(self._place.scheme, replica) for replica in replicas]

    @property
    def equivocating_holders(self) -> list[ReplicaId]:
        """The old holders among them."""
        return [ReplicaId(self._old, holder) for holder, faces in sorted(self._faces.items()) if len(faces) > 1]

    def accept_share(self, portion: DealtShare) -> None:
        """A portion from its holder: ours, before we attend, or one in dispute. Raises for what does not hold."""
        dispute = self.check_share(portion)
        header = portion.holder_header
        if self._ours is not None:
            if dispute in self.disputes():
                self._keep(dispute, portion)
            return
        if dispute.replica != self._place.index:
            raise ForgedError("another replica's portion, which nobody has asked for")
        headers = self._headers.setdefault(header.holder, {})
        if len(headers) < _DEALINGS_PER_HOLDER:
            headers[header.name] = (portion.publisher_header, header)
            self._keep(dispute, portion)

    # --- attendance ---------------------------------------------------------------------------------------------------

    def announce_brief(self, absent: Collection[int], aside: Collection[int]) -> EndorsedStatement:
        """Before we attend: what we have without these holders, for all others, when no word of these replicas is
        waited for."""
        roll = AttendanceRoll(self._table(aside), tuple(absent), tuple(aside), is_brief=True)
        self._brief = roll, agreement.encode_roll(roll)
        return self._waiving.announce(self._brief[1])

    def announce(self) -> EndorsedStatement:
        """Round 0 is over: what we have, for all others in round 1. Of a holder with two faces we have nothing."""
        brief = self._brief[0] if self._brief else AttendanceRoll({})
        roll = AttendanceRoll(self._table(), brief.skipped_replicas, brief.skipped_holders)
        self._ours = roll, agreement.encode_roll(roll)
        return self._attending.announce(self._ours[1])

    def is_sufficient(self, aside: Collection[int]) -> bool:
        """Whether a share can be made of what we have without these holders."""
        return agreement.choose_contributors(self._table(aside), self._old.size) is not None

    def accept_statement(self, vouched: EndorsedStatement, round_number: int) -> None:
        flood = self._waiving if agreement.is_brief_roll(vouched.payload) else self._attending
        flood.accept(vouched, round_number)

    @property
    def has_announced(self) -> bool:
        return self._ours is not None

    def holders(self) -> list[int]:
        """Who dealt to us, once or twice."""
        return sorted(self._headers)

    def start_proof(self) -> tuple[PublisherHeader, list[HolderHeader]] | None:
        """What holders signed when they dealt, a majority of them, so one who does not lie; None while it is less.

        It says that the hop has begun, and tells no secret. All of it is under one word of the publisher's, who may
        have given several.
        """
        by_root: dict[bytes, tuple[PublisherHeader, list[HolderHeader]]] = {}
        for _, said in sorted(self._headers.items()):
            for root, header in list(said.values())[:1]:
                by_root.setdefault(root.points, (root, []))[1].append(header)
        found = (proof for proof in by_root.values() if len(proof[1]) >= self._old.threshold)
        return next(found, None)

    def check_start_proof(self, root: PublisherHeader, headers: Sequence[HolderHeader]) -> None:
        """Raise unless it is one."""
        self._check_root(root)
        if len(dict.fromkeys(header.holder for header in headers)) < self._old.threshold:
            raise ForgedError("too few holders to show that a hop has begun")
        for header in headers:
            if header.old_scheme != self._old or header.new_scheme != self._place.scheme:
                raise ForgedError("a dealing of another hop")
            self._check_header(header, root)

    @property
    def is_unanimous(self) -> bool:
        """All say the same. What a liar says besides makes no difference."""
        return self._agreed() is not None

    @property
    def is_skipped(self) -> bool:
        """All others agree, and did not wait for us."""
        agreed = self._agreed()
        return agreed is not None and self._place.index in agreed.roll.skipped_replicas

    def certificate(self) -> list[EndorsedStatement]:
        """What shows others that all say the same."""
        agreed = self._agreed()
        return [] if agreed is None else agreed.statements

    def present(self) -> tuple[set[int], set[int]]:
        """At the end: the replicas that said one thing, and the old holders whose dealings are usable."""
        agreed = self._agreed()
        if agreed is None:
            return set(self._attending.sole_payloads()), set(self._usable())
        return {vouched.author for vouched in agreed.statements}, set(agreed.roll.table)

    def skipped(self) -> tuple[set[int], set[int]]:
        """At the end: the replicas and the old holders that nobody waited for."""
        agreed = self._agreed()
        return (
            (set(), set()) if agreed is None else (set(agreed.roll.skipped_replicas), set(agreed.roll.skipped_holders))
        )

    def erase(self) -> None:
        """What was put together is gone; what was said stays, for those who are not done."""
        self._kept.clear()
        self._settling.erase()

    def relay(self) -> list[EndorsedStatement]:
        """At the end of a round, for all others in the next; nothing, if all said the same in round 1."""
        fresh = self._attending.relay() + self._waiving.relay()
        return [] if self.is_unanimous else fresh

    def disputes(self) -> list[Dispute]:
        """At the end of the last round: what holders are to settle."""
        return agreement.find_disputes(self._rolls(), self._place.scheme.size)

    # --- disputes -----------------------------------------------------------------------------------------------------

    def announce_settlement(self) -> EndorsedStatement:
        """For all others: portions that holders have shown; as many as fit."""
        shown = [self._kept[dispute].encode().reveal() for dispute in self.disputes() if dispute in self._kept]
        word = _ENCODER.encode(shown)
        while len(word) > self._settling.payload_max:
            shown = shown[:-1]
            word = _ENCODER.encode(shown)
        return self._settling.announce(word)

    def accept_settlement(self, vouched: EndorsedStatement, round_number: int) -> None:
        self._settling.accept(vouched, round_number)

    def relay_settlements(self) -> list[EndorsedStatement]:
        return self._settling.relay()

    # --- the end ------------------------------------------------------------------------------------------------------

    def choose_holders(self) -> tuple[int, ...] | None:
        """The old holders to go on with; None if there are too few, which cannot be with a minority of liars."""
        return agreement.choose_contributors(self._usable(), self._old.size)

    def combine(self) -> HeldShare:
        """Our share of the new sharing, from the chosen holders' portions."""
        chosen = self.choose_holders()
        if chosen is None:
            raise LocalError("too few old holders have dealt")
        dealt = agreement.majority_dealings(self._rolls(), self._place.scheme.size)
        ours = [self._kept.get(Dispute(holder, dealt[holder].name, self._place.index)) for holder in chosen]
        portions = [portion for portion in ours if portion is not None]
        if len(portions) != len(chosen):
            raise LocalError("a portion of ours is missing that nobody has shown")
        threshold, first = self._place.scheme.threshold, portions[0]
        parts = [
            verifiable_sharing.Subshare(
                portion.holder_header.holder, decode_commitments(portion.holder_header.new_points), portion.share
            )
            for portion in portions
        ]
        agreed = verifiable_sharing.agreement_digest({part.holder: part.commitments for part in parts})
        old = decode_commitments(first.holder_header.old_points)
        commitments, share = verifiable_sharing.combine_subshares(
            parts, old, self._place.index, threshold, agreed=agreed, verified=True
        )
        return HeldShare(first.publisher_header, self._place, commitments, share)

    def _table(self, aside: Collection[int] = ()) -> DealingTable:
        return {
            holder: DealingRef(header.name, header.old_sharing)
            for holder, headers in self._headers.items()
            if len(headers) == 1 and holder not in aside
            for _, header in headers.values()
        }

    def _agreed(self) -> _Agreement | None:
        """What all say: who are not absent by it, if it is brief; and else, if nothing brief can be agreed any more.

        If two brief ones are, which takes two honest replicas that had missed one another, we go by the one that does
        without us: whatever comes of it, we then hand nothing on that others take for something else.
        """
        if self._brief is None and self._ours is None:
            return None
        brief = {} if self._brief is None else {self._brief[1]: self._brief[0]}
        brief |= {
            word: agreement.decode_roll(word) for word in self._waiving.sole_payloads().values() if word not in brief
        }
        for word, roll in sorted(brief.items(), key=lambda said: self._place.index not in said[1].skipped_replicas):
            if len(roll.skipped_replicas) <= self._place.scheme.max_faulty and (
                words := self._said(self._waiving, word, roll)
            ):
                return _Agreement(roll, words)
        if self._ours is None or self._ours[0].skipped_replicas or self._ours[0].skipped_holders:
            return None
        roll, word = self._ours
        words = self._said(self._attending, word, roll)
        return _Agreement(roll, words) if words else None

    def _said(self, flood: SignedBroadcast, word: bytes, roll: AttendanceRoll) -> list[EndorsedStatement]:
        """This word, of everybody but those who are absent by it; or nothing."""
        words = flood.statements_with(word)
        said = {vouched.author for vouched in words}
        return words if said.union(roll.skipped_replicas) == set(range(1, self._place.scheme.size + 1)) else []

    def _rolls(self) -> dict[int, AttendanceRoll]:
        """What counts as said: what is agreed, for everybody, or what each has said."""
        agreed = self._agreed()
        if agreed is not None:
            return dict.fromkeys(range(1, self._place.scheme.size + 1), agreed.roll)
        if self._ours is None:
            raise LocalError("we have to attend before we choose")
        return agreement.decode_rolls(self._attending.sole_payloads())

    def _usable(self) -> DealingTable:
        """Of what dealings our share can be made."""
        rolls, open_disputes = self._rolls(), self.disputes()
        settled: set[Dispute] = set()
        for word in self._settling.sole_payloads().values() if open_disputes else ():
            settled.update(self._settled_by(word, open_disputes))
        return agreement.usable_dealings(rolls, self._place.scheme.size, settled)

    def check_share(self, portion: DealtShare) -> Dispute:
        """Whose portion of what it is; raises unless it is of this key and hop, and holds."""
        header = portion.holder_header
        if (
            portion.publisher_header.key_attempt != self._origin
            or header.old_scheme != self._old
            or header.new_scheme != self._place.scheme
        ):
            raise ForgedError("a portion of another key or hop")
        self._place.scheme.check_index(portion.share.index)
        self._check_root(portion.publisher_header)
        self._check_header(header, portion.publisher_header)
        verifiable_sharing.verify_share(portion.share, decode_commitments(header.new_points))
        return Dispute(header.holder, header.name, portion.share.index)

    def _check_root(self, root: PublisherHeader) -> None:
        if root.key_attempt != self._origin:
            raise ForgedError("a publisher's word on another key")
        if root != self._root:
            root.check(self._publisher)
            self._root = root

    def _check_header(self, header: HolderHeader, root: PublisherHeader) -> None:
        """What we have of a holder already is known to hold."""
        faces = self._faces.setdefault(header.holder, {})
        name = header.name
        if name in faces and faces[name] == header:
            return
        header.check(root, self._roster)
        if len(faces) < _DEALINGS_PER_HOLDER:
            faces[name] = header

    def _keep(self, dispute: Dispute, portion: DealtShare) -> None:
        """Ours, of two dealings of each holder at most, and what settles disputes: one portion for each."""
        self._kept.setdefault(dispute, portion)

    def _settled_by(self, word: bytes, open_disputes: Sequence[Dispute]) -> list[Dispute]:
        """What a word settles, for whoever checks it; what in it does not hold settles nothing."""
        try:
            evidence = _DECODER.decode(word)
        except MalformedError:
            return []
        settled = []
        for shown in evidence:
            try:
                portion = DealtShare.decode(shown)
                dispute = self.check_share(portion)
            except RemoteError:
                continue
            if dispute in open_disputes:
                self._keep(dispute, portion)
                settled.append(dispute)
        return settled


class _Agreement(NamedTuple):
    roll: AttendanceRoll
    statements: list[EndorsedStatement]
    """Which all say it with, so never none."""


_DEALINGS_PER_HOLDER: Final = 2
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = MsgpackDecoder(list[bytes], MalformedError, "not evidence")
