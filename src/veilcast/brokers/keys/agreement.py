"""Agreement in a node: a signed broadcast, and the rules by which all honest replicas combine the same dealings.

A node has n replicas, of which at most f are Byzantine, less than half. The caller keeps the time and passes the round
(`transfer_receiver` derives the times).

Section 1: the broadcast (`SignedBroadcast`) is that of Dolev and Strong, for the statements of all replicas at once.
The author signs its statement. A replica that accepts a statement in a round adds its own signature and relays it in
the next. In round i it accepts only statements with i signatures of different replicas. There are f + 1 rounds.

1.1 Property: all honest replicas accept the same statements of each author, up to two. An author of two has none.
    Assumption: what an honest replica relays at the end of a round arrives at every other in its next round.
    Reason: a statement that an honest replica accepts before the last round is relayed, and has one signature more. A
    statement accepted in the last round has f + 1 signatures, one of them of another honest replica or of its author,
    which has relayed it to all in time.
    f + 1 rounds: with f, the f Byzantine replicas could all sign a statement, and show it to one honest replica in the
    last round.

Section 2: the statements are attendance rolls. Each replica lists the holders whose dealings it has and has checked
(`AttendanceRoll`). A dealing counts if a majority of replicas has it. A replica that says it lacks a dealing that
counts is in dispute with its holder: one of both is Byzantine, and nobody can tell which. So the holder shows that
replica's share openly. Everybody can check the share, and the replica has it now. A dealing with an unsettled dispute
is excluded. From the rest, the first k holders are chosen that agree on their old sharing, k = f + 1 of the old node.

2.1 Property: the dealings of all honest holders count, and no holder has two dealings that count.
    Assumption: every honest replica has all of them when it announces (`transfer_receiver`, property 3).
    Reason: the honest replicas are a majority. Two majorities have a replica in common, and a roll has one dealing of
    each holder.

2.2 Property: all honest replicas choose the same holders.
    Reason: the choice depends on nothing but the rolls and the settlements, which are statements (1.1). A replica that
    has received the same roll from every replica chooses at once and shows those statements to replicas that have not
    (`share_reception`). Every honest replica then made that very statement, so each one receives it from all.

2.3 Property: a share shown in a dispute tells Byzantine replicas nothing new, if its holder is honest.
    Assumption: the bound on delay. If the share of an honest replica came too late, the holder shows it, and the
    Byzantine replicas have one share too many.
    Reason: by 2.1 the replica in dispute is Byzantine.

2.4 Property: enough holders are left to choose k.
    Reason: an honest holder shows what is disputed, so its dealing is settled at every honest replica
    (`transfer_receiver`, properties 7 and 8), and the honest holders are at least k. Their shares are of one sharing.
    The holder of an excused replica is the exception (`transfer_sender`, property 4): it costs another attempt.

Section 3: brief rolls. A replica that was missed before need not be waited for again (`unresponsive_replicas`). A
replica that has all it needs without the unresponsive ones first sends a brief roll: what it has, which replicas it
does not wait for (`skipped_replicas`, at most f), and which holders it does without (`skipped_holders`). A brief roll
is agreed if all replicas that it does not skip make that same statement. An honest replica sends one brief roll for a
key.

3.1 Property: an honest replica has stated an agreed brief roll. So what the roll skips has failed before.
    Reason: n - f replicas have stated it, which are more than f.

3.2 Property: honest replicas that did not miss one another agree on at most one brief roll.
    Reason: let two be agreed, and take an honest author of each. Each author states one brief roll, so it is not among
    the authors of the other, and the other roll skips it: the two authors have missed one another. One was killed and
    has lost its state, or delay has exceeded its bound. Even then neither skips a replica that it has heard on this
    key, and an honest replica that sees both uses the one that skips it, and deals nothing.
    With more than f skipped replicas in a roll, f Byzantine replicas alone could agree on one.

3.3 Property: no recovered replica is left out because some skip it, and a few replicas cannot skip a holder that deals
    only to some.
    Reason: a brief roll that is not agreed does not count. All wait as long as usual, send full rolls of all that they
    have, and settle disputes.

3.4 Property: no honest replica is done by full rolls at once while another is done by a brief roll.
    Reason: a replica that sent a brief roll names it in its full roll. If all full rolls are the same and name no brief
    roll, no honest replica sent one, and by 3.1 no brief roll is agreed. If they name one, it may still be agreed, and
    the replicas wait for the rounds to end. By then all have the same brief rolls (1.1).
"""

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
"""Largest payload, in bytes. One message has 40 KiB."""
ENDORSEMENT_BYTES: Final = 72
"""Largest size of one endorsement, in bytes."""

Index = Annotated[int, msgspec.Meta(ge=1, le=MAX_SHARES)]
Signature = Annotated[bytes, msgspec.Meta(min_length=SIGNATURE, max_length=SIGNATURE)]
DealingName = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]


class EndorsedStatement(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A payload, its author's signature, and the signatures of replicas that accepted it."""

    author: Index
    payload: Annotated[bytes, msgspec.Meta(max_length=PAYLOAD_MAX)]
    signature: Signature
    endorsements: Annotated[tuple[tuple[Index, Signature], ...], msgspec.Meta(max_length=MAX_SHARES)] = ()

    def __post_init__(self) -> None:
        signers = self.signers
        if len(set(signers)) != len(signers):
            raise MalformedError("a replica vouches once")
        if len(self.payload) > PAYLOAD_MAX:
            raise MalformedError(f"a payload has at most {PAYLOAD_MAX} bytes")

    @property
    def signers(self) -> tuple[int, ...]:
        return (self.author, *(index for index, _ in self.endorsements))


class SignedBroadcast:
    """One replica's part in one broadcast; `context` names the broadcast. Keeps at most two payloads per author, and
    those that are the only payload of another author."""

    def __init__(
        self,
        context: bytes,
        own_id: ReplicaId,
        replica_keys: ReplicaKeys,
        signing: SigningKey,
        *,
        payload_max: int = PAYLOAD_MAX,
    ) -> None:
        self.context, self.payload_max = context, payload_max
        """Largest payload, in bytes. A payload must fit into a message with every replica's signature, or honest
        replicas could not relay it."""
        self._own_id, self._replica_keys, self._signing = own_id, replica_keys, signing
        self._accepted: dict[int, dict[bytes, EndorsedStatement]] = {}
        self._fresh: list[EndorsedStatement] = []

    @property
    def rounds(self) -> int:
        return self._own_id.scheme.max_faulty + 1

    def announce(self, payload: bytes) -> EndorsedStatement:
        """Make this replica's own statement, to be sent to all others in round 1."""
        signature = self._signing.sign(self._signed_bytes(self._own_id.index, payload), purpose=_ANNOUNCE)
        statement = EndorsedStatement(self._own_id.index, payload, signature)
        self._accepted[self._own_id.index] = {payload: statement}
        return statement

    def accept(self, statement: EndorsedStatement, round_number: int) -> None:
        """Accept a statement in this round. Raises for an invalid one; ignores one that is too late."""
        if len(statement.payload) > self.payload_max:
            raise MalformedError(f"a payload of this broadcast has at most {self.payload_max} bytes")
        accepted = self._accepted.setdefault(statement.author, {})
        is_late = len(statement.signers) < round_number or round_number > self.rounds
        if (
            is_late
            or statement.payload in accepted
            or (len(accepted) >= _STATEMENTS_PER_AUTHOR and not self._is_stated(statement.payload))
        ):
            return
        check_endorsements(statement, self.context, self._own_id, self._replica_keys)
        if self._own_id.index not in statement.signers:
            own = self._signing.sign(self._signed_bytes(statement.author, statement.payload), purpose=_ENDORSE)
            statement = msgspec.structs.replace(
                statement, endorsements=(*statement.endorsements, (self._own_id.index, own))
            )
        accepted[statement.payload] = statement
        self._fresh.append(statement)

    def relay(self) -> list[EndorsedStatement]:
        """The statements accepted since the last call, for all others in the next round."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def sole_payloads(self) -> dict[int, bytes]:
        """The payload of each author that made exactly one statement."""
        return {
            author: next(iter(accepted)) for author, accepted in sorted(self._accepted.items()) if len(accepted) == 1
        }

    def statements_of(self, author: int) -> list[EndorsedStatement]:
        """All accepted statements of this author."""
        return list(self._accepted.get(author, {}).values())

    def equivocators(self) -> list[int]:
        """Authors proven to have made two statements."""
        return [
            author for author, accepted in sorted(self._accepted.items()) if len(accepted) >= _STATEMENTS_PER_AUTHOR
        ]

    def statements_with(self, payload: bytes) -> list[EndorsedStatement]:
        """The statements with this payload, of all authors, whatever else they stated."""
        return [accepted[payload] for _, accepted in sorted(self._accepted.items()) if payload in accepted]

    def erase(self) -> None:
        """Erase all statements."""
        self._accepted.clear()
        self._fresh.clear()

    def _is_stated(self, payload: bytes) -> bool:
        """True if this replica, or an author with no other payload, stated it: honest replicas may agree on it, and no
        Byzantine statement may prevent that."""
        return payload in self._accepted.get(self._own_id.index, {}) or payload in self.sole_payloads().values()

    def _signed_bytes(self, author: int, payload: bytes) -> bytes:
        return _signed_bytes(self.context, self._own_id, author, payload)


def check_endorsements(
    statement: EndorsedStatement, context: bytes, own_id: ReplicaId, replica_keys: ReplicaKeys
) -> None:
    """Raise unless all signatures are of replicas of the same node, in this broadcast."""
    signed = _signed_bytes(context, own_id, statement.author, statement.payload)
    for index, signature, purpose in (
        (statement.author, statement.signature, _ANNOUNCE),
        *((index, signature, _ENDORSE) for index, signature in statement.endorsements),
    ):
        if index > own_id.scheme.size:
            raise ForgedError("no replica of the node has this index")
        verify(replica_keys.key_of(ReplicaId(own_id.scheme, index)), signed, signature, purpose=purpose)


def _signed_bytes(context: bytes, own_id: ReplicaId, author: int, payload: bytes) -> bytes:
    return _ENCODER.encode((context, own_id.scheme, author, payload))


# --- attendance rolls -------------------------------------------------------------------------------------------------


class DealingRef(NamedTuple):
    """The name of a holder's dealing, and the name of the sharing that the holder says its share belongs to."""

    name: bytes
    old_sharing: bytes


DealingTable: TypeAlias = dict[int, DealingRef]
"""The dealings that one replica has checked, by holder."""


class AttendanceRoll(NamedTuple):
    """One replica's statement: the dealings that it has, the replicas that it does not wait for, the holders that it
    does without.

    A brief roll lists the dealings without those holders. A full roll lists all dealings, and repeats what its sender's
    brief roll skipped.
    """

    table: DealingTable
    skipped_replicas: tuple[int, ...] = ()
    skipped_holders: tuple[int, ...] = ()
    is_brief: bool = False


class Dispute(NamedTuple):
    """`replica` says that it lacks this dealing, which counts."""

    holder: int
    name: bytes
    replica: int


def encode_roll(roll: AttendanceRoll) -> bytes:
    rows = [(holder, *roll.table[holder]) for holder in sorted(roll.table)]
    return _ENCODER.encode((rows, sorted(roll.skipped_replicas), sorted(roll.skipped_holders), roll.is_brief))


def roll_size_max(holders: int, replicas: int) -> int:
    """Largest encoded roll for these numbers, in bytes."""
    return 17 + (5 + 2 * 34) * holders + 2 * (holders + replicas)


def decode_roll(payload: bytes) -> AttendanceRoll:
    """`MalformedError` unless `encode_roll` makes these bytes: every roll has one encoding."""
    rows, skipped, without, brief = _ROLL_DECODER.decode(payload)
    roll = AttendanceRoll(
        {holder: DealingRef(name, old) for holder, name, old in rows}, tuple(skipped), tuple(without), brief
    )
    if encode_roll(roll) != payload or len(set(skipped)) < len(skipped) or len(set(without)) < len(without):
        raise MalformedError("a roll of dealings in another order")
    if brief and not roll.table.keys().isdisjoint(without):
        raise MalformedError("a brief roll lists a holder that it skips")
    return roll


def is_brief_roll(payload: bytes) -> bool:
    try:
        return decode_roll(payload).is_brief
    except MalformedError:
        return False


def decode_rolls(payloads: Mapping[int, bytes]) -> dict[int, AttendanceRoll]:
    """Rolls by replica. A payload that is not a roll counts as none, for all replicas alike."""
    rolls = {}
    for replica, payload in payloads.items():
        try:
            rolls[replica] = decode_roll(payload)
        except MalformedError:
            continue
    return rolls


def majority_dealings(rolls: Mapping[int, AttendanceRoll], size: int) -> DealingTable:
    """The dealings that a majority of the node's replicas has."""
    counts = Counter((holder, dealt) for roll in rolls.values() for holder, dealt in roll.table.items())
    return {holder: dealt for (holder, dealt), count in sorted(counts.items()) if count >= majority(size)}


def find_disputes(rolls: Mapping[int, AttendanceRoll], size: int) -> list[Dispute]:
    """The replicas that say they lack a dealing that counts. A replica with no statement, or two, is Byzantine anyway
    and needs no share."""
    return [
        Dispute(holder, dealt.name, replica)
        for holder, dealt in majority_dealings(rolls, size).items()
        for replica, roll in sorted(rolls.items())
        if roll.table.get(holder) != dealt
    ]


def usable_dealings(rolls: Mapping[int, AttendanceRoll], size: int, settled: Collection[Dispute] = ()) -> DealingTable:
    """The dealings that count and are undisputed or settled."""
    out = {dispute.holder for dispute in find_disputes(rolls, size) if dispute not in settled}
    return {holder: dealt for holder, dealt in majority_dealings(rolls, size).items() if holder not in out}


def choose_contributors(dealings: DealingTable, holders: int) -> tuple[int, ...] | None:
    """The first majority of the old holders with usable dealings, or None.

    Two sharings cannot have a majority each: honest holders alone are a majority of all.
    """
    by_old: dict[bytes, list[int]] = {}
    for holder in sorted(dealings):
        by_old.setdefault(dealings[holder].old_sharing, []).append(holder)
    needed = majority(holders)
    return next((tuple(found[:needed]) for found in by_old.values() if len(found) >= needed), None)


# --- messages ---------------------------------------------------------------------------------------------------------


class AgreementMessage(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The payload of a message between replicas of a node: the transfer, statements, and from a replica that is not
    done, the proof that the transfer has begun."""

    old_scheme: Scheme
    new_scheme: Scheme
    statements: Annotated[tuple[EndorsedStatement, ...], msgspec.Meta(max_length=2 * MAX_SHARES)] = ()
    publisher_header: PublisherHeader | None = None
    holder_headers: Annotated[tuple[HolderHeader, ...], msgspec.Meta(max_length=MAX_SHARES)] = ()
    is_stuck: bool = False

    def encode(self) -> bytes:
        return _ENCODER.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> AgreementMessage:
        return _MESSAGE_DECODER.decode(data)


def split_to_fit(statements: tuple[EndorsedStatement, ...]) -> list[tuple[EndorsedStatement, ...]]:
    """Distribute statements over as few messages as hold them. Otherwise a Byzantine replica could displace the
    statements of others by long ones."""
    parts: list[list[EndorsedStatement]] = []
    remaining = 0
    for statement in statements:
        size = len(_ENCODER.encode(statement))
        if size > remaining:
            parts.append([])
            remaining = g.SHARING_MAX - _MESSAGE_OVERHEAD
        parts[-1].append(statement)
        remaining -= size
    return [tuple(part) for part in parts]


_STATEMENTS_PER_AUTHOR: Final = 2
_ANNOUNCE: Final = b"veilcast/word"
_ENDORSE: Final = b"veilcast/vouch"
_ENCODER: Final = msgspec.msgpack.Encoder()
_ROLL_DECODER: Final = MsgpackDecoder(
    tuple[list[tuple[Index, DealingName, DealingName]], list[Index], list[Index], bool],
    MalformedError,
    "not a roll of dealings",
)
_MESSAGE_DECODER: Final = MsgpackDecoder(AgreementMessage, MalformedError, "not what replicas say to one another")
_MESSAGE_OVERHEAD: Final = 256
"""Upper bound of the other fields of a message with statements, in bytes."""
