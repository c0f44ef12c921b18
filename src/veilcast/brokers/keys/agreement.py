"""What replicas of a node say to one another about a hop of a key: what one `Spoken` carries.

Pure.


Flooding: signed words that all honest replicas of a node end up with alike, although some replicas are two-faced.

Pure. This is the broadcast of Dolev and Strong, for every replica's word at once. A word is signed by its author. Who
takes one up in a round adds its own signature and passes it on in the next, and takes up in round i only what has i
signatures of different replicas. With f liars there are f + 1 rounds: what is taken up in the last has f + 1
signatures, one of them honest, and that replica passed it on to everybody in time. So all honest replicas take up the
same words; an author of two has none.

It stands on a bound on delay: a round lasts long enough for whatever honest replicas send in it to come before it ends.
The caller keeps the time and says which round it is.

Mostly nobody lies, and all replicas say the same. Who has heard all of them say the same in round 1 need not pass
anything on. What that leaves true, `attendance` says.


Attendance: whose dealings the replicas of a node go on with, so that all of them go on with the same ones.

Pure rules on what the replicas say. Each says, signed, which old holders' dealings it has and has checked
(`AttendanceRoll`).
A dealing stands if a majority of replicas has it: honest holders' dealings all do, for every honest replica has them,
and no holder has two that stand. A replica that says it lacks a dealing that stands is in dispute with its holder:
one of both lies, and nobody can tell which. So the holder shows that replica's portion openly; whoever sees it can
check it, and the replica has it now. An honest holder so shows only what a liar has anyway. A dispute that is not
settled puts the dealing out. Of what is left the first k holders are chosen who agree on the sharing that they had.

All honest replicas choose the same, if all rest on the same words (`flooding`):

- Whoever has heard every replica say the same chooses at once, and shows those words to whoever has not (`receiving`).
  All honest replicas then said just that, so each of them has heard all say what it says itself, and chooses the same.
- Else all pass on what they hear, and end up with the same words, the same disputes and the same settlements.

The bound on delay is an assumption of secrecy, too, once there is a dispute: a holder that shows the portion of an
honest replica, because it came too late, shows the liars one more than they should have.

Who was missed before need not be waited for again (`absences`). Who has all that it needs without those first says a
brief roll: what it has, of which others it waits for no word (`absent`), and which holders it does without (`aside`).

- All who are not absent by one brief roll, at least a majority, say just that: then it is agreed, whatever is said
  later. One of them is honest, so who is absent by it has failed before. Two can both be agreed only if two honest
  replicas have missed one another, so if one was killed, and has forgotten, or if delay has broken its bound. Even then
  neither leaves out one that it has heard speak of this key, and who is absent by either hands nothing on.
- Else nothing of it counts: all wait as long as ever, say all that they have, and settle disputes, so that nobody who
  is back is left out, and no holder that deals to some only can be put aside by a few.
- A replica that said a brief roll names it in the other: so if all say the same and name none, nobody honest said one,
  and none will be agreed any more. If they name one, that may still be, and they wait for the rounds to end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Annotated, Final, NamedTuple, TypeAlias

import msgspec

from veilcast.brokers.keys.redistribution import HolderHeader, PublisherHeader
from veilcast.brokers.keys.scheme import ReplicaId, ReplicaKeys, Scheme, majority
from veilcast.crypto.shamir import MAX_SHARES
from veilcast.crypto.sign import SIGNATURE, SigningKey, verify
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import ForgedError, MalformedError
from veilcast.wire import geometry as g

PAYLOAD_MAX: Final = 39 * 1024
"""One message has 40 KiB."""
ENDORSEMENT_BYTES: Final = 72
"""So many bytes at most takes one more signature."""

Index = Annotated[int, msgspec.Meta(ge=1, le=MAX_SHARES)]
Signature = Annotated[bytes, msgspec.Meta(min_length=SIGNATURE, max_length=SIGNATURE)]


class EndorsedStatement(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A word, its author's signature, and those of replicas who took it up."""

    author: Index
    payload: Annotated[bytes, msgspec.Meta(max_length=PAYLOAD_MAX)]
    signature: Signature
    endorsements: Annotated[tuple[tuple[Index, Signature], ...], msgspec.Meta(max_length=MAX_SHARES)] = ()

    def __post_init__(self) -> None:
        signers = self.signers
        if len(set(signers)) != len(signers):
            raise MalformedError("a replica vouches once")
        if len(self.payload) > PAYLOAD_MAX:
            raise MalformedError(f"a word has at most {PAYLOAD_MAX} bytes")

    @property
    def signers(self) -> tuple[int, ...]:
        return (self.author, *(index for index, _ in self.endorsements))


class SignedBroadcast:
    """One replica's part in one flood; `context` names it. Keeps two words of each author at most, besides those that
    are another author's only one."""

    def __init__(
        self, context: bytes, place: ReplicaId, roster: ReplicaKeys, signing: SigningKey, *, most: int = PAYLOAD_MAX
    ) -> None:
        self.context, self.payload_max = context, most
        """No word has more bytes: what a liar says must fit into a message with everybody's signature on it, or the
        honest could not pass it on."""
        self._place, self._roster, self._signing = place, roster, signing
        self._taken: dict[int, dict[bytes, EndorsedStatement]] = {}
        self._fresh: list[EndorsedStatement] = []

    @property
    def rounds(self) -> int:
        return self._place.scheme.max_faulty + 1

    def announce(self, word: bytes) -> EndorsedStatement:
        """Our own word, to be sent to all others in round 1."""
        signature = self._signing.sign(self._signed(self._place.index, word), purpose=_ANNOUNCE)
        said = EndorsedStatement(self._place.index, word, signature)
        self._taken[self._place.index] = {word: said}
        return said

    def accept(self, vouched: EndorsedStatement, round_number: int) -> None:
        """Take up what comes in this round; raises for what does not hold, and is silent on what comes too late."""
        if len(vouched.payload) > self.payload_max:
            raise MalformedError(f"a word of this flood has at most {self.payload_max} bytes")
        taken = self._taken.setdefault(vouched.author, {})
        late = len(vouched.signers) < round_number or round_number > self.rounds
        if (
            late
            or vouched.payload in taken
            or (len(taken) >= _STATEMENTS_PER_AUTHOR and not self._is_said(vouched.payload))
        ):
            return
        check_endorsements(vouched, self.context, self._place, self._roster)
        if self._place.index not in vouched.signers:
            own = self._signing.sign(self._signed(vouched.author, vouched.payload), purpose=_ENDORSE)
            vouched = msgspec.structs.replace(vouched, endorsements=(*vouched.endorsements, (self._place.index, own)))
        taken[vouched.payload] = vouched
        self._fresh.append(vouched)

    def relay(self) -> list[EndorsedStatement]:
        """What was taken up since this was last asked: for all others, in the next round."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def sole_payloads(self) -> dict[int, bytes]:
        """The one word of each author who said one, by author."""
        return {author: next(iter(taken)) for author, taken in sorted(self._taken.items()) if len(taken) == 1}

    def statements_of(self, author: int) -> list[EndorsedStatement]:
        """All that this author said, as far as we took it up."""
        return list(self._taken.get(author, {}).values())

    def equivocators(self) -> list[int]:
        """Authors proven to have said two things."""
        return [author for author, taken in sorted(self._taken.items()) if len(taken) >= _STATEMENTS_PER_AUTHOR]

    def statements_with(self, word: bytes) -> list[EndorsedStatement]:
        """For each author who said this, whatever else it said, that word of it."""
        return [taken[word] for _, taken in sorted(self._taken.items()) if word in taken]

    def erase(self) -> None:
        """Nothing that was said stays."""
        self._taken.clear()
        self._fresh.clear()

    def _is_said(self, word: bytes) -> bool:
        """By us, or by another who said nothing else: honest ones may agree on it, and no liar's words may bar that."""
        return word in self._taken.get(self._place.index, {}) or word in self.sole_payloads().values()

    def _signed(self, author: int, word: bytes) -> bytes:
        return _signed(self.context, self._place, author, word)


def check_endorsements(vouched: EndorsedStatement, context: bytes, place: ReplicaId, roster: ReplicaKeys) -> None:
    """Raise unless all signatures are those of replicas of the same node, in this flood."""
    signed = _signed(context, place, vouched.author, vouched.payload)
    for index, signature, purpose in (
        (vouched.author, vouched.signature, _ANNOUNCE),
        *((index, signature, _ENDORSE) for index, signature in vouched.endorsements),
    ):
        if index > place.scheme.size:
            raise ForgedError("no replica of the node has this index")
        verify(roster.key_of(ReplicaId(place.scheme, index)), signed, signature, purpose=purpose)


def _signed(context: bytes, place: ReplicaId, author: int, word: bytes) -> bytes:
    return _ENCODER.encode((context, place.scheme, author, word))


_STATEMENTS_PER_AUTHOR: Final = 2
_ANNOUNCE: Final = b"veilcast/word"
_ENDORSE: Final = b"veilcast/vouch"
_ENCODER: Final = msgspec.msgpack.Encoder()

DealingName = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
ReplicaIndex = Annotated[int, msgspec.Meta(ge=1, le=MAX_SHARES)]


class DealingRef(NamedTuple):
    """A holder's dealing by its name, and the name of the sharing that the holder says it had."""

    name: bytes
    old_sharing: bytes


DealingTable: TypeAlias = dict[int, DealingRef]
"""What one replica has: a dealing for each holder whose portion it checked."""


class AttendanceRoll(NamedTuple):
    """What one replica says: what it has, which replicas it does not wait for, which holders it does without.

    A brief one says what is had without those. Any other says all that is had, and which brief one was said before.
    """

    table: DealingTable
    skipped_replicas: tuple[int, ...] = ()
    skipped_holders: tuple[int, ...] = ()
    is_brief: bool = False


class Dispute(NamedTuple):
    """`replica` says that it lacks this dealing, which stands."""

    holder: int
    name: bytes
    replica: int


def encode_roll(roll: AttendanceRoll) -> bytes:
    rows = [(holder, *roll.table[holder]) for holder in sorted(roll.table)]
    return _ROLL_ENCODER.encode((rows, sorted(roll.skipped_replicas), sorted(roll.skipped_holders), roll.is_brief))


def roll_size_max(holders: int, replicas: int) -> int:
    """What the roll of so many takes at most."""
    return 17 + (5 + 2 * 34) * holders + 2 * (holders + replicas)


def decode_roll(word: bytes) -> AttendanceRoll:
    """`MalformedError` unless it is what `encode_roll` makes of a roll: there is one word for each."""
    rows, absent, aside, brief = _ROLL_DECODER.decode(word)
    roll = AttendanceRoll(
        {holder: DealingRef(name, old) for holder, name, old in rows}, tuple(absent), tuple(aside), brief
    )
    if encode_roll(roll) != word or len(set(absent)) < len(absent) or len(set(aside)) < len(aside):
        raise MalformedError("a roll of dealings in another order")
    if brief and not roll.table.keys().isdisjoint(aside):
        raise MalformedError("a dealing that is put aside is not had")
    return roll


def is_brief_roll(word: bytes) -> bool:
    try:
        return decode_roll(word).is_brief
    except MalformedError:
        return False


def decode_rolls(words: Mapping[int, bytes]) -> dict[int, AttendanceRoll]:
    """By replica. A word that is no roll counts as none, for everybody alike."""
    rolls = {}
    for replica, word in words.items():
        try:
            rolls[replica] = decode_roll(word)
        except MalformedError:
            continue
    return rolls


def majority_dealings(rolls: Mapping[int, AttendanceRoll], size: int) -> DealingTable:
    """The dealings that a majority of the node's replicas has."""
    counts = Counter((holder, dealt) for roll in rolls.values() for holder, dealt in roll.table.items())
    return {holder: dealt for (holder, dealt), count in sorted(counts.items()) if count >= majority(size)}


def find_disputes(rolls: Mapping[int, AttendanceRoll], size: int) -> list[Dispute]:
    """Who says that it lacks what stands. Who says nothing, or two things, lies anyway and needs no portion."""
    return [
        Dispute(holder, dealt.name, replica)
        for holder, dealt in majority_dealings(rolls, size).items()
        for replica, roll in sorted(rolls.items())
        if roll.table.get(holder) != dealt
    ]


def usable_dealings(rolls: Mapping[int, AttendanceRoll], size: int, settled: Collection[Dispute] = ()) -> DealingTable:
    """The dealings that stand, undisputed or settled."""
    out = {dispute.holder for dispute in find_disputes(rolls, size) if dispute not in settled}
    return {holder: dealt for holder, dealt in majority_dealings(rolls, size).items() if holder not in out}


def choose_contributors(left: DealingTable, holders: int) -> tuple[int, ...] | None:
    """The first majority of the old holders among those whose dealings are usable; None if there is none.

    Honest holders alone are a majority of all, so no two sharings can have one each.
    """
    by_old: dict[bytes, list[int]] = {}
    for holder in sorted(left):
        by_old.setdefault(left[holder].old_sharing, []).append(holder)
    needed = majority(holders)
    return next((tuple(found[:needed]) for found in by_old.values() if len(found) >= needed), None)


_ROLL_ENCODER: Final = msgspec.msgpack.Encoder()
_ROLL_DECODER: Final = MsgpackDecoder(
    tuple[list[tuple[ReplicaIndex, DealingName, DealingName]], list[ReplicaIndex], list[ReplicaIndex], bool],
    MalformedError,
    "not a roll of dealings",
)


class AgreementMessage(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Of which hop, words, and, of one who is not done, what shows that it has begun."""

    old_scheme: Scheme
    new_scheme: Scheme
    statements: Annotated[tuple[EndorsedStatement, ...], msgspec.Meta(max_length=2 * MAX_SHARES)] = ()
    publisher_header: PublisherHeader | None = None
    holder_headers: Annotated[tuple[HolderHeader, ...], msgspec.Meta(max_length=MAX_SHARES)] = ()
    is_stuck: bool = False

    def encode(self) -> bytes:
        return _MESSAGE_ENCODER.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> AgreementMessage:
        return _MESSAGE_DECODER.decode(data)


def split_to_fit(words: tuple[EndorsedStatement, ...]) -> list[tuple[EndorsedStatement, ...]]:
    """In as few messages as hold them: no liar may say so much that what others say is not passed on."""
    parts: list[list[EndorsedStatement]] = []
    left = 0
    for vouched in words:
        size = len(_MESSAGE_ENCODER.encode(vouched))
        if size > left:
            parts.append([])
            left = g.SHARING_MAX - _MESSAGE_OVERHEAD
        parts[-1].append(vouched)
        left -= size
    return [tuple(part) for part in parts]


_MESSAGE_ENCODER: Final = msgspec.msgpack.Encoder()
_MESSAGE_DECODER: Final = MsgpackDecoder(AgreementMessage, MalformedError, "not what replicas say to one another")
_MESSAGE_OVERHEAD: Final = 256
"""More than the rest of what is said takes, where there are words."""
