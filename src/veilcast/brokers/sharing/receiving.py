"""Receiving: how a replica comes by its share when the hop before hands a key on (`redistribution`, `attendance`).

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

from veilcast.brokers.sharing import attendance, flooding
from veilcast.brokers.sharing.attendance import Dealt, Dispute, Roll, Table
from veilcast.brokers.sharing.flooding import Flood, Vouched
from veilcast.brokers.sharing.paper import Origin
from veilcast.brokers.sharing.redistribution import Header, Holding, Portion, Root, commitments_of
from veilcast.brokers.sharing.scheme import Place, Roster, Scheme
from veilcast.crypto import dealing
from veilcast.crypto.derive import digest
from veilcast.crypto.sign import SigningKey
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import ForgedError, LocalError, MalformedError, RemoteError


class Receiving:
    """Of one key, from one node, at one replica of the next. Bounded: by the sizes of both nodes."""

    def __init__(
        self, origin: Origin, old: Scheme, place: Place, publisher: bytes, roster: Roster, signing: SigningKey
    ) -> None:
        self._origin, self._old, self._place, self._publisher = origin, old, place, publisher
        self._roster = roster
        about = msgspec.msgpack.encode((origin, old))
        attend, settle = (digest(about, purpose=purpose) for purpose in (b"vc/attend", b"vc/settle"))
        most = flooding.WORD_MAX - flooding.VOUCHED * place.scheme.size
        most_said = min(most, attendance.size_max(old.size, place.scheme.size))
        self._attending = Flood(attend, place, roster, signing, most=most_said)
        self._waiving = Flood(attend, place, roster, signing, most=most_said)
        """Brief rolls, apart from the others: who says one of each has not said two things."""
        self._settling = Flood(settle, place, roster, signing, most=most)
        self._kept: dict[Dispute, Portion] = {}
        self._headers: dict[int, dict[bytes, tuple[Root, Header]]] = {}
        """Of what was dealt to us."""
        self._faces: dict[int, dict[bytes, Header]] = {}
        """Of what was dealt to anybody, as far as it was shown."""
        self._root: Root | None = None
        self._brief: tuple[Roll, bytes] | None = None
        self._ours: tuple[Roll, bytes] | None = None
        """What we said before we attended, and when we did, and in which word."""

    @property
    def rounds(self) -> int:
        return self._attending.rounds

    @property
    def liars(self) -> list[Place]:
        """For certain, with the proof at hand: two dealings, or two words, under one signature."""
        replicas = sorted({*self._attending.two_faced(), *self._waiving.two_faced()})
        return self.two_faced + [Place(self._place.scheme, replica) for replica in replicas]

    @property
    def two_faced(self) -> list[Place]:
        """The old holders among them."""
        return [Place(self._old, holder) for holder, faces in sorted(self._faces.items()) if len(faces) > 1]

    def take(self, portion: Portion) -> None:
        """A portion from its holder: ours, before we attend, or one in dispute. Raises for what does not hold."""
        dispute = self.checked(portion)
        header = portion.header
        if self._ours is not None:
            if dispute in self.disputes():
                self._keep(dispute, portion)
            return
        if dispute.replica != self._place.index:
            raise ForgedError("another replica's portion, which nobody has asked for")
        headers = self._headers.setdefault(header.holder, {})
        if len(headers) < _FACES:
            headers[header.name] = (portion.root, header)
            self._keep(dispute, portion)

    # --- attendance ---------------------------------------------------------------------------------------------------

    def waive(self, absent: Collection[int], aside: Collection[int]) -> Vouched:
        """Before we attend: what we have without these holders, for all others, when no word of these replicas is
        waited for."""
        roll = Roll(self._table(aside), tuple(absent), tuple(aside), brief=True)
        self._brief = roll, attendance.encode(roll)
        return self._waiving.say(self._brief[1])

    def attend(self) -> Vouched:
        """Round 0 is over: what we have, for all others in round 1. Of a holder with two faces we have nothing."""
        brief = self._brief[0] if self._brief else Roll({})
        roll = Roll(self._table(), brief.absent, brief.aside)
        self._ours = roll, attendance.encode(roll)
        return self._attending.say(self._ours[1])

    def suffices(self, aside: Collection[int]) -> bool:
        """Whether a share can be made of what we have without these holders."""
        return attendance.contributors(self._table(aside), self._old.size) is not None

    def hear(self, vouched: Vouched, round_number: int) -> None:
        flood = self._waiving if attendance.is_brief(vouched.word) else self._attending
        flood.hear(vouched, round_number)

    @property
    def attended(self) -> bool:
        return self._ours is not None

    def holders(self) -> list[int]:
        """Who dealt to us, once or twice."""
        return sorted(self._headers)

    def proof(self) -> tuple[Root, list[Header]] | None:
        """What holders signed when they dealt, a majority of them, so one who does not lie; None while it is less.

        It says that the hop has begun, and tells no secret. All of it is under one word of the publisher's, who may
        have given several.
        """
        by_root: dict[bytes, tuple[Root, list[Header]]] = {}
        for _, said in sorted(self._headers.items()):
            for root, header in list(said.values())[:1]:
                by_root.setdefault(root.points, (root, []))[1].append(header)
        found = (proof for proof in by_root.values() if len(proof[1]) >= self._old.threshold)
        return next(found, None)

    def check_proof(self, root: Root, headers: Sequence[Header]) -> None:
        """Raise unless it is one."""
        self._check_root(root)
        if len(dict.fromkeys(header.holder for header in headers)) < self._old.threshold:
            raise ForgedError("too few holders to show that a hop has begun")
        for header in headers:
            if header.by != self._old or header.to != self._place.scheme:
                raise ForgedError("a dealing of another hop")
            self._check_header(header, root)

    @property
    def quick(self) -> bool:
        """All say the same. What a liar says besides makes no difference."""
        return self._agreed() is not None

    @property
    def overlooked(self) -> bool:
        """All others agree, and did not wait for us."""
        agreed = self._agreed()
        return agreed is not None and self._place.index in agreed.roll.absent

    def certificate(self) -> list[Vouched]:
        """What shows others that all say the same."""
        agreed = self._agreed()
        return [] if agreed is None else agreed.words

    def present(self) -> tuple[set[int], set[int]]:
        """At the end: the replicas that said one thing, and the old holders whose dealings are usable."""
        agreed = self._agreed()
        if agreed is None:
            return set(self._attending.words()), set(self._usable())
        return {vouched.author for vouched in agreed.words}, set(agreed.roll.table)

    def waived(self) -> tuple[set[int], set[int]]:
        """At the end: the replicas and the old holders that nobody waited for."""
        agreed = self._agreed()
        return (set(), set()) if agreed is None else (set(agreed.roll.absent), set(agreed.roll.aside))

    def erase(self) -> None:
        """What was put together is gone; what was said stays, for those who are not done."""
        self._kept.clear()
        self._settling.erase()

    def relay(self) -> list[Vouched]:
        """At the end of a round, for all others in the next; nothing, if all said the same in round 1."""
        fresh = self._attending.relay() + self._waiving.relay()
        return [] if self.quick else fresh

    def disputes(self) -> list[Dispute]:
        """At the end of the last round: what holders are to settle."""
        return attendance.disputes(self._rolls(), self._place.scheme.size)

    # --- disputes -----------------------------------------------------------------------------------------------------

    def settle(self) -> Vouched:
        """For all others: portions that holders have shown; as many as fit."""
        shown = [self._kept[dispute].encode().reveal() for dispute in self.disputes() if dispute in self._kept]
        word = _ENCODER.encode(shown)
        while len(word) > self._settling.most:
            shown = shown[:-1]
            word = _ENCODER.encode(shown)
        return self._settling.say(word)

    def hear_settling(self, vouched: Vouched, round_number: int) -> None:
        self._settling.hear(vouched, round_number)

    def relay_settling(self) -> list[Vouched]:
        return self._settling.relay()

    # --- the end ------------------------------------------------------------------------------------------------------

    def choose(self) -> tuple[int, ...] | None:
        """The old holders to go on with; None if there are too few, which cannot be with a minority of liars."""
        return attendance.contributors(self._usable(), self._old.size)

    def combine(self) -> Holding:
        """Our share of the new sharing, from the chosen holders' portions."""
        chosen = self.choose()
        if chosen is None:
            raise LocalError("too few old holders have dealt")
        dealt = attendance.standing(self._rolls(), self._place.scheme.size)
        ours = [self._kept.get(Dispute(holder, dealt[holder].name, self._place.index)) for holder in chosen]
        portions = [portion for portion in ours if portion is not None]
        if len(portions) != len(chosen):
            raise LocalError("a portion of ours is missing that nobody has shown")
        threshold, first = self._place.scheme.threshold, portions[0]
        parts = [
            dealing.Portion(portion.header.holder, commitments_of(portion.header.new), portion.share)
            for portion in portions
        ]
        agreed = dealing.agreement({part.holder: part.commitments for part in parts})
        old = commitments_of(first.header.old)
        commitments, share = dealing.combine(parts, old, self._place.index, threshold, agreed=agreed, verified=True)
        return Holding(first.root, self._place, commitments, share)

    def _table(self, aside: Collection[int] = ()) -> Table:
        return {
            holder: Dealt(header.name, header.old_name)
            for holder, headers in self._headers.items()
            if len(headers) == 1 and holder not in aside
            for _, header in headers.values()
        }

    def _agreed(self) -> _Agreed | None:
        """What all say: who are not absent by it, if it is brief; and else, if nothing brief can be agreed any more.

        If two brief ones are, which takes two honest replicas that had missed one another, we go by the one that does
        without us: whatever comes of it, we then hand nothing on that others take for something else.
        """
        if self._brief is None and self._ours is None:
            return None
        brief = {} if self._brief is None else {self._brief[1]: self._brief[0]}
        brief |= {word: attendance.decode(word) for word in self._waiving.words().values() if word not in brief}
        for word, roll in sorted(brief.items(), key=lambda said: self._place.index not in said[1].absent):
            if len(roll.absent) <= self._place.scheme.tolerated and (words := self._said(self._waiving, word, roll)):
                return _Agreed(roll, words)
        if self._ours is None or self._ours[0].absent or self._ours[0].aside:
            return None
        roll, word = self._ours
        words = self._said(self._attending, word, roll)
        return _Agreed(roll, words) if words else None

    def _said(self, flood: Flood, word: bytes, roll: Roll) -> list[Vouched]:
        """This word, of everybody but those who are absent by it; or nothing."""
        words = flood.saying(word)
        said = {vouched.author for vouched in words}
        return words if said.union(roll.absent) == set(range(1, self._place.scheme.size + 1)) else []

    def _rolls(self) -> dict[int, Roll]:
        """What counts as said: what is agreed, for everybody, or what each has said."""
        agreed = self._agreed()
        if agreed is not None:
            return dict.fromkeys(range(1, self._place.scheme.size + 1), agreed.roll)
        if self._ours is None:
            raise LocalError("we have to attend before we choose")
        return attendance.rolls_of(self._attending.words())

    def _usable(self) -> Table:
        """Of what dealings our share can be made."""
        rolls, open_disputes = self._rolls(), self.disputes()
        settled: set[Dispute] = set()
        for word in self._settling.words().values() if open_disputes else ():
            settled.update(self._settled_by(word, open_disputes))
        return attendance.usable(rolls, self._place.scheme.size, settled)

    def checked(self, portion: Portion) -> Dispute:
        """Whose portion of what it is; raises unless it is of this key and hop, and holds."""
        header = portion.header
        if portion.root.origin != self._origin or header.by != self._old or header.to != self._place.scheme:
            raise ForgedError("a portion of another key or hop")
        self._place.scheme.check_index(portion.share.index)
        self._check_root(portion.root)
        self._check_header(header, portion.root)
        dealing.verify(portion.share, commitments_of(header.new))
        return Dispute(header.holder, header.name, portion.share.index)

    def _check_root(self, root: Root) -> None:
        if root.origin != self._origin:
            raise ForgedError("a publisher's word on another key")
        if root != self._root:
            root.check(self._publisher)
            self._root = root

    def _check_header(self, header: Header, root: Root) -> None:
        """What we have of a holder already is known to hold."""
        faces = self._faces.setdefault(header.holder, {})
        name = header.name
        if name in faces and faces[name] == header:
            return
        header.check(root, self._roster)
        if len(faces) < _FACES:
            faces[name] = header

    def _keep(self, dispute: Dispute, portion: Portion) -> None:
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
                portion = Portion.decode(shown)
                dispute = self.checked(portion)
            except RemoteError:
                continue
            if dispute in open_disputes:
                self._keep(dispute, portion)
                settled.append(dispute)
        return settled


class _Agreed(NamedTuple):
    roll: Roll
    words: list[Vouched]
    """Which all say it with, so never none."""


_FACES: Final = 2
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = MsgpackDecoder(list[bytes], MalformedError, "not evidence")
