"""Byzantine brokers: each is the real machine with its own keys, and does one thing that it should not.

A Byzantine broker knows its replica, its signing key and its peers, and draws from its `rng`. Changed messages are
numbered and acknowledged correctly (`rewritten_streams`), so that a peer cannot detect a Byzantine broker by its
stream. All Byzantine brokers share their knowledge, whatever else they do: `checkers.KeySecrecy` models that. A broker
with the behaviour "pool" does nothing else, and has no class here.

`lies` counts the provable lies, by the peer that received them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import msgspec

from veilcast.brokers.keys import agreement
from veilcast.brokers.keys.agreement import AgreementMessage, AttendanceRoll, SignedBroadcast
from veilcast.brokers.keys.paper_split import SplitShare, split_again
from veilcast.brokers.keys.redistribution import DealtShare, HeldShare, IssuedDealing, redistribute_share
from veilcast.brokers.keys.scheme import KeyAttempt, ReplicaId, ReplicaKeys, Scheme
from veilcast.crypto.derive import digest
from veilcast.crypto.group import Scalar
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.crypto.verifiable_sharing import Commitments, VerifiableShare
from veilcast.errors import RemoteError
from veilcast.machine import Address, Entropy, Machine
from veilcast.sim.brokers.rewritten_streams import RewritingBroker
from veilcast.sim.brokers.share_pool import scalar_at_zero
from veilcast.sim.wrappers import Delayer, MachineWrapper
from veilcast.wire.base import Message
from veilcast.wire.brokers import (
    AgreementWord,
    Claim,
    ConfirmContent,
    DisputeDealing,
    FloodKind,
    ForwardContent,
    LastShare,
    NextShare,
    OverlayOrder,
    RequestBlocks,
    ShareReceived,
    VersionAdopted,
    WithdrawClaim,
)


@dataclass(frozen=True)
class ReplicaView:
    """The knowledge of a replica beside the messages that it receives."""

    place: ReplicaId
    signing: SigningKey
    peers: Mapping[Address, ReplicaId]
    """Replicas of its own node and of the neighbouring nodes."""
    schemes: Mapping[bytes, Scheme]
    rng: Random
    entropy: Entropy
    hardened: bool = True


class ByzantineBroker(RewritingBroker):
    """The base of brokers that send changed messages."""

    def __init__(self, inner: Machine, view: ReplicaView) -> None:
        super().__init__(inner)
        self._view = view
        self.lies: Counter[Address] = Counter()
        """Provable lies, by the peer that received them."""


class DroppingBroker(ByzantineBroker):
    """Confirms content, and forwards neither content nor keys. Half of these brokers forward every second message."""

    def __init__(self, inner: Machine, view: ReplicaView) -> None:
        super().__init__(inner, view)
        self._forwards_half = view.rng.random() < 0.5

    def on_message(self, message: Message, source: Address) -> None:
        if isinstance(message, ForwardContent):
            self.inject(source, ConfirmContent(message.routing.content, message.attempt))

    def rewrite(self, message: Message, peer: Address) -> list[Message]:
        kept = isinstance(message, ForwardContent | NextShare | LastShare | AgreementWord | RequestBlocks)
        return [] if kept and not (self._forwards_half and self._view.rng.random() < 0.5) else [message]


class ShareCorruptingBroker(ByzantineBroker):
    """Deals shares that differ from its commitments. In the paper's profile, it also splits another secret and signs
    the statement."""

    def __init__(self, inner: Machine, view: ReplicaView) -> None:
        super().__init__(inner, view)
        self._split: dict[bytes, dict[int, SplitShare]] = {}

    def rewrite(self, message: Message, peer: Address) -> list[Message]:
        if not isinstance(message, NextShare | LastShare):
            return [message]
        self.lies[peer] += 1
        if not self._view.hardened and isinstance(message, NextShare) and self._view.rng.random() < 0.5:
            split_share = SplitShare.decode(message.share)
            split_share = self._shares_of_other_secret(split_share)[split_share.index]
            return [msgspec.structs.replace(message, share=split_share.encode().reveal())]
        return [msgspec.structs.replace(message, share=_flip_bit(message.share, self._view.rng))]

    def _shares_of_other_secret(self, split_share: SplitShare) -> dict[int, SplitShare]:
        """Shares of a random secret, under a signed statement."""
        name, own = split_share.trail[-1].name, split_share.trail[-1].path[-1]
        if name not in self._split:
            other = SplitShare(split_share.trail[:-1], own, Secret(self._view.entropy(len(split_share.data))))
            made = split_again(other, split_share.trail[-1].to, self._view.signing, self._view.entropy)
            self._split = {name: {each.index: each for each in made}}
        return self._split[name]


class BlockCorruptingBroker(ByzantineBroker):
    """Flips a bit in the content that it forwards."""

    def rewrite(self, message: Message, peer: Address) -> list[Message]:
        if not isinstance(message, ForwardContent) or message.block is None:
            return [message]
        self.lies[peer] += 1
        return [msgspec.structs.replace(message, block=_flip_bit(message.block, self._view.rng))]


class ReplayingBroker(ByzantineBroker):
    """Repeats a message that it has received or sent before, to any peer."""

    def __init__(self, inner: Machine, view: ReplicaView) -> None:
        super().__init__(inner, view)
        self._seen: deque[Message] = deque(maxlen=REMEMBERED_MAX)

    def on_message(self, message: Message, source: Address) -> None:
        self._seen.append(message)

    def rewrite(self, message: Message, peer: Address) -> list[Message]:
        said = [message]
        if self._seen and self._view.rng.random() < 0.5:
            said.append(self._view.rng.choice(self._seen))
        self._seen.append(message)
        return said


class EquivocatingBroker(ByzantineBroker):
    """Deals twice and votes twice: half of the other replicas get one version, half the other. Both are signed."""

    def __init__(self, inner: Machine, view: ReplicaView) -> None:
        super().__init__(inner, view)
        self._second: dict[bytes, list[Any]] = {}

    def preview(self, batch: Sequence[tuple[Address, Message]]) -> None:
        """Deal a second time, once the batch holds enough of its own shares to interpolate its own share."""
        dealings: dict[bytes, list[DealtShare]] = {}
        for _, message in batch:
            if isinstance(message, NextShare) and self._view.hardened:
                dealt_share = DealtShare.decode(message.share)
                dealings.setdefault(dealt_share.holder_header.name, []).append(dealt_share)
        for name, dealt_shares in dealings.items():
            if name not in self._second and len(dealt_shares) >= dealt_shares[0].holder_header.new_scheme.threshold:
                self._remember(name, self._deal_again(dealt_shares).shares)

    def rewrite(self, message: Message, peer: Address) -> list[Message]:
        place = self._view.peers.get(peer)
        if place is None or place.index % 2:
            return [message]
        said: Message = message
        match message:
            case NextShare():
                said = self._other_share(message)
            case AgreementWord(flood=FloodKind.ATTENDANCE):
                said = _replace_statement(message, self._view, _omit_last_holder)
        if said != message:
            self.lies[peer] += 1
        return [said]

    def _deal_again(self, dealt_shares: Sequence[DealtShare]) -> IssuedDealing:
        header = dealt_shares[0].holder_header
        shares = {dealt_share.share.index: dealt_share.share for dealt_share in dealt_shares}
        chosen = list(shares.values())[: header.new_scheme.threshold]
        value = scalar_at_zero({share.index: share.value.reveal() for share in chosen})
        blinding = scalar_at_zero({share.index: share.blinding.reveal() for share in chosen})
        own = VerifiableShare(header.holder, Scalar(value), Scalar(blinding))
        held = HeldShare(
            dealt_shares[0].publisher_header,
            ReplicaId(header.old_scheme, header.holder),
            Commitments.decode(header.old_points),
            own,
        )
        return redistribute_share(held, header.new_scheme, self._view.signing, self._view.entropy)

    def _other_share(self, message: NextShare) -> NextShare:
        if not self._view.hardened:
            split_share = SplitShare.decode(message.share)
            other = self._split_again(split_share)[split_share.index - 1]
        else:
            dealt_share = DealtShare.decode(message.share)
            if dealt_share.holder_header.name not in self._second:
                return message
            other = self._second[dealt_share.holder_header.name][dealt_share.share.index - 1]
        return msgspec.structs.replace(message, share=other.encode().reveal())

    def _split_again(self, split_share: SplitShare) -> list[Any]:
        """One piece does not reveal the secret that it was given, so the second statement is on a random one."""
        statement = split_share.trail[-1]
        if statement.name not in self._second:
            other = SplitShare(
                split_share.trail[:-1], statement.path[-1], Secret(self._view.entropy(len(split_share.data)))
            )
            self._remember(statement.name, split_again(other, statement.to, self._view.signing, self._view.entropy))
        return self._second[statement.name]

    def _remember(self, name: bytes, made: list[Any]) -> None:
        self._second[name] = made
        if len(self._second) > REMEMBERED_MAX:
            del self._second[next(iter(self._second))]


class IntermittentBroker(ByzantineBroker):
    """Forwards nothing for one key and everything for the next. It also reports honest replicas as absent."""

    def __init__(self, inner: Machine, view: ReplicaView) -> None:
        super().__init__(inner, view)
        self._is_dropping: dict[bytes, bool] = {}

    def rewrite(self, message: Message, peer: Address) -> list[Message]:
        match message:
            case NextShare(share=share) | LastShare(share=share):
                key = share[:_NAMED]
            case AgreementWord(key=key):
                pass
            case _:
                return [message]
        if self._is_dropping.setdefault(key, self._view.rng.random() < 0.5):
            return []
        if len(self._is_dropping) > REMEMBERED_MAX:
            del self._is_dropping[next(iter(self._is_dropping))]
        if isinstance(message, AgreementWord) and message.flood is FloodKind.ATTENDANCE:
            return [_replace_statement(message, self._view, self._skip_others)]
        return [message]

    def _skip_others(self, roll: AttendanceRoll) -> AttendanceRoll:
        scheme = self._view.place.scheme
        others = [index for index in range(1, scheme.size + 1) if index != self._view.place.index]
        skipped_holders = sorted(roll.table)[:1]
        table = {holder: dealt for holder, dealt in roll.table.items() if holder not in skipped_holders}
        return AttendanceRoll(table, tuple(others[: scheme.max_faulty]), tuple(skipped_holders))


class MisroutingBroker(ByzantineBroker):
    """Sends content, shares and claims to other peers than the addressee."""

    def rewrite(self, message: Message, peer: Address) -> list[Message]:
        if not isinstance(
            message, ForwardContent | NextShare | LastShare | Claim | WithdrawClaim | ConfirmContent | ShareReceived
        ):
            return [message]
        others = [other for other in self._view.peers if other != peer]
        if others and self._view.rng.random() < 0.5:
            self.inject(self._view.rng.choice(others), message)
        return [message] if isinstance(message, Claim) or self._view.rng.random() < 0.5 else []


class AccusingBroker(ByzantineBroker):
    """Claims that other replicas of its node lack their shares, so that the sender reveals these shares to it."""

    def on_message(self, message: Message, source: Address) -> None:
        if not isinstance(message, NextShare) or not self._view.hardened:
            return
        try:
            dealt_share = DealtShare.decode(message.share)
        except RemoteError:
            return
        origin, header, scheme = (
            dealt_share.publisher_header.key_attempt,
            dealt_share.holder_header,
            self._view.place.scheme,
        )
        others = tuple(index for index in range(1, scheme.size + 1) if index != self._view.place.index)
        self.inject(source, DisputeDealing(origin.key, origin.attempt, header.name, others))


class StallingBroker(ByzantineBroker):
    """Stays after it should leave, and never reports that it is ready for a change of the overlay."""

    def rewrite(self, message: Message, peer: Address) -> list[Message]:
        return [] if isinstance(message, OverlayOrder | VersionAdopted) else [message]


class SilentBroker(MachineWrapper):
    """Receives everything and sends nothing."""

    def frames_to_send(self, now: int, limit: int) -> list[Any]:
        self._frames_of_inner(now, limit)
        return []


def make_byzantine(behaviour: str, inner: Machine, view: ReplicaView, bound_us: int) -> Machine:
    """A broker with this behaviour. With "pool" it is the honest machine: it only shares its knowledge."""
    match behaviour:
        case "pool":
            return inner
        case "mute":
            return SilentBroker(inner)
        case "delay":
            return Delayer(inner, view.rng.choice((bound_us // 2, bound_us, 3 * bound_us)))
    return _LIARS[behaviour](inner, view)


def provable_lies(machine: Any) -> Counter[Address]:
    """The provable lies of this machine; none, if it is no `ByzantineBroker`."""
    while machine is not None and not isinstance(machine, ByzantineBroker):
        machine = getattr(machine, "inner", None)
    return Counter() if machine is None else machine.lies


def _replace_statement(
    message: AgreementWord, view: ReplicaView, change: Callable[[AttendanceRoll], AttendanceRoll]
) -> AgreementWord:
    """The agreement message with this replica's own statement changed, and signed again."""
    said, old = AgreementMessage.decode(message.word), view.schemes.get(message.node)
    if old is None:
        return message
    about = digest(msgspec.msgpack.encode((KeyAttempt(message.key, message.attempt), old)), purpose=b"vc/attend")
    broadcast = SignedBroadcast(about, view.place, ReplicaKeys(nodes=1), view.signing)
    statements = tuple(
        broadcast.announce(agreement.encode_roll(change(agreement.decode_roll(statement.payload))))
        if statement.author == view.place.index
        else statement
        for statement in said.statements
    )
    return msgspec.structs.replace(message, word=msgspec.structs.replace(said, statements=statements).encode())


def _omit_last_holder(roll: AttendanceRoll) -> AttendanceRoll:
    """The statement without the last holder that dealt to this replica."""
    return roll._replace(table=dict(list(roll.table.items())[:-1]))


def _flip_bit(data: bytes, rng: Random) -> bytes:
    """Flip a bit near the end, where a share, a piece and a block hold nothing but their secret."""
    spoilt = bytearray(data)
    spoilt[-min(len(data), 1 + rng.randrange(1, 16))] ^= 1 << rng.randrange(8)
    return bytes(spoilt)


REMEMBERED_MAX: Final = 64
_NAMED: Final = 24
"""Length of the key's name, which every dealing begins with, in bytes."""
_LIARS: Final[dict[str, Callable[[Machine, ReplicaView], Machine]]] = {
    "drop": DroppingBroker,
    "share": ShareCorruptingBroker,
    "block": BlockCorruptingBroker,
    "replay": ReplayingBroker,
    "equivocate": EquivocatingBroker,
    "doze": IntermittentBroker,
    "misroute": MisroutingBroker,
    "accuse": AccusingBroker,
    "stall": StallingBroker,
}
BEHAVIOURS: Final = (*_LIARS, "delay", "mute", "pool")
