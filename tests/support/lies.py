"""What one lying replica does with the messages that it would send: the behaviours of P4's adversary, as scripts."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from support.overlays import Liar, Script, U
from veilcast.brokers.routes import Outgoing, replicas
from veilcast.brokers.said import Said
from veilcast.brokers.sharing import attendance
from veilcast.brokers.sharing.attendance import Roll
from veilcast.brokers.sharing.flooding import Flood as Words
from veilcast.brokers.sharing.redistribution import Handed, Holding, Portion, hand_on
from veilcast.brokers.sharing.scheme import Place
from veilcast.crypto import dealing
from veilcast.crypto.dealing import Commitments, Share
from veilcast.crypto.derive import digest
from veilcast.errors import MalformedError
from veilcast.wire.brokers import Carry, Disputed, Done, Flood, LastShare, NextShare, Spoken, Taken
from veilcast.wire.messages import Message

replace = msgspec.structs.replace


def index_of(outgoing: Outgoing) -> int:
    return outgoing.to.index if isinstance(outgoing.to, Place) else 0


def curious(liar: Liar, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
    """Does nothing wrong, and tells its friends everything."""
    return [(0, outgoing)]


def drop(*kinds: type[Message], only: tuple[int, ...] = (0, 1, 2, 3, 4, 5)) -> Script:
    def script(liar: Liar, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        dropped = isinstance(outgoing.message, kinds) and index_of(outgoing) in only
        return [] if dropped else [(0, outgoing)]

    return script


def delay(units: int, *kinds: type[Message], only: tuple[int, ...] = (0, 1, 2, 3, 4, 5)) -> Script:
    def script(liar: Liar, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        late = isinstance(outgoing.message, kinds) and index_of(outgoing) in only
        return [(units * U if late else 0, outgoing)]

    return script


def spoil(*kinds: type[Message]) -> Script:
    """One bit of what matters."""

    def script(liar: Liar, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        message = outgoing.message
        if isinstance(message, kinds):
            match message:
                case NextShare() | LastShare():
                    message = replace(message, share=_flipped(message.share))
                case Spoken():
                    message = replace(message, word=_flipped(message.word))
                case Carry(block=block) if block is not None:
                    message = replace(message, block=_flipped(block))
        return [(0, outgoing._replace(message=message))]

    return script


def _flipped(data: bytes) -> bytes:
    at = len(data) - 8
    return data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]


def replay(liar: Liar, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
    return [(0, outgoing), (0, outgoing), (7 * U, outgoing), (60 * U, outgoing)]


def misroute(liar: Liar, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
    """To the next replica of the same node, and to all of its own."""
    if not isinstance(outgoing.to, Place) or isinstance(outgoing.message, Spoken):
        return [(0, outgoing)]
    scheme = outgoing.to.scheme
    wrong = [Outgoing(Place(scheme, outgoing.to.index % scheme.size + 1), outgoing.message)]
    wrong += [Outgoing(place, outgoing.message) for place in replicas(liar.place.scheme) if place != liar.place]
    return [(0, each) for each in [*wrong, outgoing]]


def babble(liar: Liar, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
    """Says that all is taken and done before anything is."""
    sent = [(0, outgoing)]
    for message, source in liar.heard:
        if isinstance(message, NextShare) and isinstance(source, Place) and ("said", message) not in liar.memory:
            liar.memory[("said", message)] = None
            origin = Portion.decode(message.share).header.origin
            early = [Outgoing(place, Taken(origin.key, origin.attempt)) for place in replicas(source.scheme)]
            sent += [(0, each) for each in early]
        if isinstance(message, Carry) and isinstance(source, Place):
            done = Done(message.routing.content, message.attempt)
            sent += [(0, Outgoing(place, done)) for place in replicas(source.scheme)]
    return sent


def accuse(liar: Liar, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
    """Tells holders that everybody lacks everything."""
    sent = [(0, outgoing)]
    for message, source in liar.heard:
        if isinstance(message, NextShare) and isinstance(source, Place) and ("asked", message) not in liar.memory:
            liar.memory[("asked", message)] = None
            try:
                header = Portion.decode(message.share).header
            except MalformedError:
                continue
            asked = Disputed(header.origin.key, header.origin.attempt, header.name, tuple(range(1, header.to.size + 1)))
            sent += [(late * U, Outgoing(Place(header.by, header.holder), asked)) for late in (0, 5, 12)]
    return sent


def say(what: Callable[[attendance.Table, int], attendance.Table | None]) -> Script:
    """Other words on what it has, for each replica that it speaks to."""

    def other(roll: Roll, to: int) -> Roll | None:
        table = what(roll.table, to)
        return None if table is None else roll._replace(table=table)

    return call(other)


def call(what: Callable[[Roll, int], Roll | None]) -> Script:
    """Another roll, for each replica that it speaks to."""

    def script(liar: Liar, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        message = outgoing.message
        if not isinstance(message, Spoken) or message.flood is not Flood.ATTENDANCE:
            return [(0, outgoing)]
        said = Said.decode(message.word)
        words = []
        for vouched in said.words:
            if vouched.author != liar.place.index:
                words.append(vouched)
                continue
            roll = what(attendance.decode(vouched.word), index_of(outgoing))
            if roll is not None:
                about = msgspec.msgpack.encode((_origin(message), said.old))
                flood = Words(digest(about, purpose=b"vc/attend"), liar.place, liar.world.roster, liar.signing)
                words.append(flood.say(attendance.encode(roll)))
        word = replace(said, words=tuple(words)).encode()
        return [(0, outgoing._replace(message=replace(message, word=word)))]

    return script


def slander(roll: Roll, to: int) -> Roll:
    """That whom it speaks to is not there, and that it does without the first holders."""
    aside = (1,)
    return Roll(without(roll.table, *aside), (to,), aside, roll.brief)


def _origin(message: Spoken) -> tuple[bytes, int]:
    return (message.key, message.attempt)


def without(table: attendance.Table, *holders: int) -> attendance.Table:
    return {holder: dealt for holder, dealt in table.items() if holder not in holders}


def two_dealings(only: tuple[int, ...], *, shows: bool = False) -> Script:
    """Deals its share twice: once for these replicas, once for the others. In dispute it shows nothing, or all."""

    def script(liar: Liar, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        message = outgoing.message
        if not isinstance(message, NextShare) or not isinstance(outgoing.to, Place):
            return [(0, outgoing)]
        portion = Portion.decode(message.share)
        if portion.share.index != outgoing.to.index:
            return [(0, outgoing)] if shows else []
        dealt = liar.memory.setdefault(portion.header.new, {})
        dealt[outgoing.to] = portion
        if len(dealt) < portion.header.to.size:
            return []
        other = second(liar, list(dealt.values()))
        sent = []
        for to, first in dealt.items():
            chosen = other.portion(to.index) if to.index in only else first
            sent.append((0, Outgoing(to, replace(message, share=chosen.encode().reveal()))))
        return sent

    return script


def second(liar: Liar, portions: list[Portion]) -> Handed:
    """Another dealing of the same share, which all portions of the first one give."""
    header = portions[0].header
    chosen = portions[: header.to.threshold]
    value = dealing._at_zero({portion.share.index: portion.share.value for portion in chosen})
    blinding = dealing._at_zero({portion.share.index: portion.share.blinding for portion in chosen})
    holding = Holding(
        portions[0].root, liar.place, Commitments.decode(header.old), Share(header.holder, value, blinding)
    )
    return hand_on(holding, header.to, liar.signing, random.Random(f"second {liar.place}").randbytes)


def hide(liar: Liar, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
    """Deals to all but one, and shows nothing."""
    message = outgoing.message
    if isinstance(message, NextShare) and isinstance(outgoing.to, Place):
        other = Portion.decode(message.share).share.index != outgoing.to.index
        if other or outgoing.to.index == 1 + liar.place.index % 3:
            return []
    return [(0, outgoing)]


def both(*scripts: Script) -> Script:
    """One after the other."""

    def script(liar: Liar, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        sent = [(0, outgoing)]
        for each in scripts:
            sent = [(late + more, out) for late, before in sent for more, out in each(liar, before, now)]
        return sent

    return script


ANY = (NextShare, LastShare, Spoken, Taken, Disputed, Carry, Done)

LIES: dict[str, Script] = {
    "curious": curious,
    "drop": drop(*ANY),
    "drop portions": drop(NextShare, LastShare),
    "drop portions to one": drop(NextShare, only=(2,)),
    "drop words": drop(Spoken),
    "drop words to 1": drop(Spoken, only=(1,)),
    "drop words to 2": drop(Spoken, only=(2,)),
    "drop words to 3": drop(Spoken, only=(3,)),
    "delay a little": delay(2, *ANY),
    "delay": delay(6, *ANY),
    "delay long": delay(25, *ANY),
    "delay portions to one": delay(4, NextShare, only=(1,)),
    "delay words": delay(8, Spoken),
    "delay words to one": delay(7, Spoken, only=(2,)),
    "spoil portions": spoil(NextShare),
    "spoil last shares": spoil(LastShare),
    "spoil words": spoil(Spoken),
    "replay": replay,
    "misroute": misroute,
    "babble": babble,
    "accuse": accuse,
    "hide": hide,
    "two dealings 1": two_dealings((1,)),
    "two dealings 2": two_dealings((2,), shows=True),
    "two dealings 12": two_dealings((1, 2)),
    "deny all": say(lambda table, to: {}),
    "deny one": say(lambda table, to: without(table, 1)),
    "deny two": say(lambda table, to: without(table, 2, 3)),
    "two words 1": say(lambda table, to: table if to == 1 else without(table, 1)),
    "two words 2": say(lambda table, to: table if to == 2 else {}),
    "two words 3": say(lambda table, to: table if to == 3 else None),
    "slander": call(slander),
    "slander one": call(lambda roll, to: slander(roll, 2)),
    "slander and hide": both(call(lambda roll, to: slander(roll, 1)), hide),
    "deny and hide": both(say(lambda table, to: without(table, 1)), hide),
    "deny and accuse": both(say(lambda table, to: {}), accuse),
    "deny, hide and drop": both(say(lambda table, to: without(table, 2)), hide, drop(Spoken, only=(3,))),
}

PROVEN = {"spoil portions", "spoil last shares", "spoil words"}
"""Those that prove themselves, wherever the liar is."""
