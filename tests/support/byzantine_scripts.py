"""Scripts of a Byzantine replica for its outgoing messages: the behaviours of P4's adversary."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from support.key_transfer_chain import ByzantineReplica, Script, U
from veilcast.brokers.keys import agreement
from veilcast.brokers.keys.agreement import AgreementMessage, AttendanceRoll
from veilcast.brokers.keys.agreement import SignedBroadcast as Words
from veilcast.brokers.keys.redistribution import DealtShare, HeldShare, IssuedDealing, redistribute_share
from veilcast.brokers.keys.scheme import ReplicaId
from veilcast.brokers.routing.view import Outgoing, all_replicas
from veilcast.crypto import verifiable_sharing
from veilcast.crypto.derive import digest
from veilcast.crypto.verifiable_sharing import Commitments, VerifiableShare
from veilcast.errors import MalformedError
from veilcast.wire.base import Message
from veilcast.wire.brokers import (
    AgreementWord,
    ConfirmContent,
    DisputeDealing,
    FloodKind,
    ForwardContent,
    LastShare,
    NextShare,
    ShareReceived,
)

replace = msgspec.structs.replace


def index_of(outgoing: Outgoing) -> int:
    return outgoing.to.index if isinstance(outgoing.to, ReplicaId) else 0


def follow_protocol(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
    """Follows the protocol, and shares everything with the coalition."""
    return [(0, outgoing)]


def drop(*kinds: type[Message], only: tuple[int, ...] = (0, 1, 2, 3, 4, 5)) -> Script:
    def script(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        dropped = isinstance(outgoing.message, kinds) and index_of(outgoing) in only
        return [] if dropped else [(0, outgoing)]

    return script


def delay(units: int, *kinds: type[Message], only: tuple[int, ...] = (0, 1, 2, 3, 4, 5)) -> Script:
    def script(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        late = isinstance(outgoing.message, kinds) and index_of(outgoing) in only
        return [(units * U if late else 0, outgoing)]

    return script


def spoil(*kinds: type[Message]) -> Script:
    """Flips one bit of the essential part."""

    def script(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        message = outgoing.message
        if isinstance(message, kinds):
            match message:
                case NextShare() | LastShare():
                    message = replace(message, share=_flip_bit(message.share))
                case AgreementWord():
                    message = replace(message, word=_flip_bit(message.word))
                case ForwardContent(block=block) if block is not None:
                    message = replace(message, block=_flip_bit(block))
        return [(0, outgoing._replace(message=message))]

    return script


def _flip_bit(data: bytes) -> bytes:
    at = len(data) - 8
    return data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]


def replay(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
    return [(0, outgoing), (0, outgoing), (7 * U, outgoing), (60 * U, outgoing)]


def misroute(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
    """Sends to the next replica of the same node, and to all of its own."""
    if not isinstance(outgoing.to, ReplicaId) or isinstance(outgoing.message, AgreementWord):
        return [(0, outgoing)]
    scheme = outgoing.to.scheme
    wrong = [Outgoing(ReplicaId(scheme, outgoing.to.index % scheme.size + 1), outgoing.message)]
    wrong += [Outgoing(place, outgoing.message) for place in all_replicas(faulty.place.scheme) if place != faulty.place]
    return [(0, each) for each in [*wrong, outgoing]]


def send_garbage(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
    """Acknowledges and confirms everything before anything has arrived."""
    sent = [(0, outgoing)]
    for message, source in faulty.received:
        if isinstance(message, NextShare) and isinstance(source, ReplicaId) and ("said", message) not in faulty.memory:
            faulty.memory[("said", message)] = None
            origin = DealtShare.decode(message.share).holder_header.key_attempt
            early = [
                Outgoing(place, ShareReceived(origin.key, origin.attempt)) for place in all_replicas(source.scheme)
            ]
            sent += [(0, each) for each in early]
        if isinstance(message, ForwardContent) and isinstance(source, ReplicaId):
            done = ConfirmContent(message.routing.content, message.attempt)
            sent += [(0, Outgoing(place, done)) for place in all_replicas(source.scheme)]
    return sent


def accuse(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
    """Tells holders that every replica lacks everything."""
    sent = [(0, outgoing)]
    for message, source in faulty.received:
        if isinstance(message, NextShare) and isinstance(source, ReplicaId) and ("asked", message) not in faulty.memory:
            faulty.memory[("asked", message)] = None
            try:
                header = DealtShare.decode(message.share).holder_header
            except MalformedError:
                continue
            asked = DisputeDealing(
                header.key_attempt.key,
                header.key_attempt.attempt,
                header.name,
                tuple(range(1, header.new_scheme.size + 1)),
            )
            sent += [(late * U, Outgoing(ReplicaId(header.old_scheme, header.holder), asked)) for late in (0, 5, 12)]
    return sent


def change_table(what: Callable[[agreement.DealingTable, int], agreement.DealingTable | None]) -> Script:
    """Announces another table to each receiver."""

    def other(roll: AttendanceRoll, to: int) -> AttendanceRoll | None:
        table = what(roll.table, to)
        return None if table is None else roll._replace(table=table)

    return change_roll(other)


def change_roll(what: Callable[[AttendanceRoll, int], AttendanceRoll | None]) -> Script:
    """Announces another roll to each receiver."""

    def script(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        message = outgoing.message
        if not isinstance(message, AgreementWord) or message.flood is not FloodKind.ATTENDANCE:
            return [(0, outgoing)]
        said = AgreementMessage.decode(message.word)
        words = []
        for vouched in said.statements:
            if vouched.author != faulty.place.index:
                words.append(vouched)
                continue
            roll = what(agreement.decode_roll(vouched.payload), index_of(outgoing))
            if roll is not None:
                about = msgspec.msgpack.encode((_origin(message), said.old_scheme))
                flood = Words(
                    digest(about, purpose=b"vc/attend"), faulty.place, faulty.world.replica_keys, faulty.signing
                )
                words.append(flood.announce(agreement.encode_roll(roll)))
        word = replace(said, statements=tuple(words)).encode()
        return [(0, outgoing._replace(message=replace(message, word=word)))]

    return script


def slander(roll: AttendanceRoll, to: int) -> AttendanceRoll:
    """Says that the receiver is absent, and skips the first holders."""
    aside = (1,)
    return AttendanceRoll(without(roll.table, *aside), (to,), aside, roll.is_brief)


def _origin(message: AgreementWord) -> tuple[bytes, int]:
    return (message.key, message.attempt)


def without(table: agreement.DealingTable, *holders: int) -> agreement.DealingTable:
    return {holder: dealt for holder, dealt in table.items() if holder not in holders}


def two_dealings(only: tuple[int, ...], *, shows: bool = False) -> Script:
    """Deals its share twice: once for these replicas, once for the others. In a dispute it shows no dealing, or all."""

    def script(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        message = outgoing.message
        if not isinstance(message, NextShare) or not isinstance(outgoing.to, ReplicaId):
            return [(0, outgoing)]
        portion = DealtShare.decode(message.share)
        if portion.share.index != outgoing.to.index:
            return [(0, outgoing)] if shows else []
        dealt = faulty.memory.setdefault(portion.holder_header.new_points, {})
        dealt[outgoing.to] = portion
        if len(dealt) < portion.holder_header.new_scheme.size:
            return []
        other = second_dealing(faulty, list(dealt.values()))
        sent = []
        for to, first in dealt.items():
            chosen = other.share_for(to.index) if to.index in only else first
            sent.append((0, Outgoing(to, replace(message, share=chosen.encode().reveal()))))
        return sent

    return script


def second_dealing(faulty: ByzantineReplica, portions: list[DealtShare]) -> IssuedDealing:
    """Another dealing of the same share, which all dealt shares of the first one determine."""
    header = portions[0].holder_header
    chosen = portions[: header.new_scheme.threshold]
    value = verifiable_sharing._at_zero({portion.share.index: portion.share.value for portion in chosen})
    blinding = verifiable_sharing._at_zero({portion.share.index: portion.share.blinding for portion in chosen})
    holding = HeldShare(
        portions[0].publisher_header,
        faulty.place,
        Commitments.decode(header.old_points),
        VerifiableShare(header.holder, value, blinding),
    )
    return redistribute_share(
        holding, header.new_scheme, faulty.signing, random.Random(f"second {faulty.place}").randbytes
    )


def withhold_disputed(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
    """Deals to all but one, and shows nothing."""
    message = outgoing.message
    if isinstance(message, NextShare) and isinstance(outgoing.to, ReplicaId):
        other = DealtShare.decode(message.share).share.index != outgoing.to.index
        if other or outgoing.to.index == 1 + faulty.place.index % 3:
            return []
    return [(0, outgoing)]


def combine(*scripts: Script) -> Script:
    """One script after the other."""

    def script(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        sent = [(0, outgoing)]
        for each in scripts:
            sent = [(late + more, out) for late, before in sent for more, out in each(faulty, before, now)]
        return sent

    return script


ANY = (NextShare, LastShare, AgreementWord, ShareReceived, DisputeDealing, ForwardContent, ConfirmContent)

BEHAVIOURS: dict[str, Script] = {
    "curious": follow_protocol,
    "drop": drop(*ANY),
    "drop portions": drop(NextShare, LastShare),
    "drop portions to one": drop(NextShare, only=(2,)),
    "drop words": drop(AgreementWord),
    "drop words to 1": drop(AgreementWord, only=(1,)),
    "drop words to 2": drop(AgreementWord, only=(2,)),
    "drop words to 3": drop(AgreementWord, only=(3,)),
    "delay a little": delay(2, *ANY),
    "delay": delay(6, *ANY),
    "delay long": delay(25, *ANY),
    "delay portions to one": delay(4, NextShare, only=(1,)),
    "delay words": delay(8, AgreementWord),
    "delay words to one": delay(7, AgreementWord, only=(2,)),
    "spoil portions": spoil(NextShare),
    "spoil last shares": spoil(LastShare),
    "spoil words": spoil(AgreementWord),
    "replay": replay,
    "misroute": misroute,
    "babble": send_garbage,
    "accuse": accuse,
    "hide": withhold_disputed,
    "two dealings 1": two_dealings((1,)),
    "two dealings 2": two_dealings((2,), shows=True),
    "two dealings 12": two_dealings((1, 2)),
    "deny all": change_table(lambda table, to: {}),
    "deny one": change_table(lambda table, to: without(table, 1)),
    "deny two": change_table(lambda table, to: without(table, 2, 3)),
    "two words 1": change_table(lambda table, to: table if to == 1 else without(table, 1)),
    "two words 2": change_table(lambda table, to: table if to == 2 else {}),
    "two words 3": change_table(lambda table, to: table if to == 3 else None),
    "slander": change_roll(slander),
    "slander one": change_roll(lambda roll, to: slander(roll, 2)),
    "slander and hide": combine(change_roll(lambda roll, to: slander(roll, 1)), withhold_disputed),
    "deny and hide": combine(change_table(lambda table, to: without(table, 1)), withhold_disputed),
    "deny and accuse": combine(change_table(lambda table, to: {}), accuse),
    "deny, hide and drop": combine(
        change_table(lambda table, to: without(table, 2)), withhold_disputed, drop(AgreementWord, only=(3,))
    ),
}

PROVEN = {"spoil portions", "spoil last shares", "spoil words"}
"""Scripts that prove their replica Byzantine, wherever it is."""
