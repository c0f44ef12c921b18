"""What liars can make of a publisher's word alone, and worlds in which nothing is left to chance."""

from __future__ import annotations

import random

import msgspec

from support.overlays import ADVERT, PUBLISHER, World, scheme, signing
from veilcast.brokers.absences import _is_picked
from veilcast.brokers.routes import Outgoing
from veilcast.brokers.said import Said
from veilcast.brokers.sharing import attendance
from veilcast.brokers.sharing.attendance import Dealt, Roll
from veilcast.brokers.sharing.bulk import key_id
from veilcast.brokers.sharing.flooding import Flood as Words
from veilcast.brokers.sharing.paper import Origin
from veilcast.brokers.sharing.redistribution import First, Handed, Header, Holding, Root, hand_on
from veilcast.brokers.sharing.scheme import Place, Scheme
from veilcast.crypto import dealing
from veilcast.crypto.dealing import Commitments, Share
from veilcast.crypto.derive import digest
from veilcast.crypto.group import Scalar
from veilcast.wire.brokers import FirstShare, Flood, NextShare, Spoken


class Steady:
    """All messages take the same time."""

    def randrange(self, low: int, high: int) -> int:
        return low


def unpicked(count: int) -> list[bytes]:
    """Keys with which nobody who is absent is waited for."""
    keys = (key_id(PUBLISHER.public, number.to_bytes(8, "big")) for number in range(9_999))
    return [key for key in keys if not _is_picked(key, 1)][:count]


def level(world: World, who: tuple[int, int], whom: tuple[int, int]) -> int:
    """How often in a row this replica has missed that one."""
    way = world.replicas[Place(scheme(who[0]), who[1])].passing._redistributing
    assert way is not None
    return way._absences.level(PUBLISHER.public, signing(*whom).public)


def root_of(world: World, origin: Origin) -> Root:
    dealt = [First.decode(message.share).root for message, _, _ in world.shares if isinstance(message, FirstShare)]
    return next(root for root in dealt if root.origin == origin)


def forge(root: Root, holder: Place, to: Scheme) -> Handed:
    """A dealing that holds, of a share of a sharing that never was; for a node of three."""
    assert holder.scheme.threshold == 2
    entropy = random.Random(f"{holder} {root.origin}").randbytes
    value, blinding = Scalar.draw(entropy), Scalar.draw(entropy)
    first = root.commitments.points[0]
    second = (dealing._commit(value, blinding) - first) / Scalar.of(holder.index)
    held = Holding(root, holder, Commitments((first, second)), Share(holder.index, value, blinding))
    return hand_on(held, to, signing(holder.scheme.node[0], holder.index), entropy)


def forged_share(root: Root, holder: Place, to: Place) -> Outgoing:
    portion = forge(root, holder, to.scheme).portion(to.index)
    return Outgoing(to, NextShare(ADVERT, portion.encode().reveal()))


def brief(world: World, by: Place, origin: Origin, headers: list[Header], absent: tuple[int, ...]) -> Spoken:
    """A brief roll that this replica signs: it has these, and waits for none of those."""
    old = headers[0].by
    about = digest(msgspec.msgpack.encode((origin, old)), purpose=b"vc/attend")
    roll = Roll({header.holder: Dealt(header.name, header.old_name) for header in headers}, absent, (), brief=True)
    word = Words(about, by, world.roster, signing(by.scheme.node[0], by.index)).say(attendance.encode(roll))
    said = Said(old, by.scheme, (word,)).encode()
    return Spoken(origin.key, origin.attempt, old.node, Flood.ATTENDANCE, said)
