"""Stems: how a publisher's message reaches the root without revealing where it began.

Most cargoes are parcels (`cover_stems`). Calls and publications travel in the open where there is no root yet.

1. The publisher sends the message to one neighbour, its first relay, and waits while that neighbour is away: another
   first relay would be another sample for an observer (`first_relay`).
2. A relay forwards it to a neighbour that depends only on the previous hop, or ends the stem, by a coin that also
   depends only on the previous hop. A relay that gets it a second time ends it.
3. From the end of the stem it climbs to the root as subscriptions do. If there is no root yet, the end of the stem
   floods the call for one.
4. The root's acknowledgement goes back the same way, signed with the key of its lot. So a relay that drops a
   notification cannot make the publisher believe that it arrived.

A relay checks that a certified publisher signed what it forwards, so a stem cannot be used to flood the network. It
remembers the previous hop for a while, so that the acknowledgement finds its way; the oldest entries are evicted first.

`StemChoices` makes every choice by identity, which is a certified key. So one member has one rank, from however many
addresses it comes. Relays that this node chose as neighbours come before peers that came to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol, TypeAlias

from veilcast.core.bounded import BoundedMap
from veilcast.crypto.derive import digest
from veilcast.crypto.topic_token import lineage_of
from veilcast.errors import MalformedError, StaleError
from veilcast.machine import Address
from veilcast.mesh.config import HardeningConfig
from veilcast.mesh.first_relay import FirstRelay
from veilcast.mesh.neighbour_table import NeighbourTable
from veilcast.mesh.roots import RootElections, leading_origin
from veilcast.mesh.routes import AdvertisedOrigin
from veilcast.mesh.sticky_choices import StickyChoices
from veilcast.wire import decode, encode
from veilcast.wire.base import Message
from veilcast.wire.geometry import NOTE_ID
from veilcast.wire.mesh import Call, Notify, Parcel, Stem, StemReceipt

Cargo: TypeAlias = Call | Notify | Parcel


class StemContext(Protocol):
    """The view of their node that stems have."""

    def present_neighbours(self) -> list[Address]: ...

    def reachable_origins(self, token: bytes) -> list[AdvertisedOrigin]: ...

    def post(self, neighbour: Address, message: Message) -> None:
        """Send at once, in a frame of its own."""

    def check_cargo(self, cargo: Cargo, now: int) -> None:
        """Raise unless a publisher with a current certificate signed it, or it is a parcel for a root that is known."""

    def deliver_at_root(self, cargo: Cargo, name: bytes, now: int) -> bool:
        """This node is the root: accept the cargo. True if it is finished and may be acknowledged."""

    def flood_to_all(self, note: Notify, source: Address | None, now: int) -> bool:
        """Flood this notification to all neighbours during a mass failure; False without a mass failure."""

    def confirm(self, name: bytes, receipt: bytes) -> None:
        """This cargo is acknowledged. If this node launched it, it has arrived. Raises if no root gave the receipt."""


class Stems:
    """Bounded: at most `passages_max` cargoes are remembered.

    A cargo that comes from two neighbours within `circle_us` went in a circle. One that comes twice from one neighbour
    is a copy; later it is another try.
    """

    def __init__(
        self, context: StemContext, choices: StemChoices, roots: RootElections, *, circle_us: int, passages_max: int
    ) -> None:
        self._context, self._choices, self._roots = context, choices, roots
        self._circle_us = circle_us
        self._passages: BoundedMap[bytes, _Passage] = BoundedMap(passages_max)

    def launch(self, cargo: Cargo, lineage: bytes, now: int) -> bool:
        """Send an own cargo to the first relay; False while the relay is away."""
        relay = self._choices.first_relay(lineage)
        if relay is None or not self.has_first_relay(lineage):
            return False
        data = encode(cargo)
        self._forward(Stem(False, data), cargo_id(data), None, relay, now)
        return True

    def has_first_relay(self, lineage: bytes) -> bool:
        """True if the first relay of own cargoes is present."""
        return self._choices.first_relay(lineage) in self._context.present_neighbours()

    def receive(self, stem: Stem, sender: Address, now: int) -> None:
        cargo, name = decode(stem.cargo), cargo_id(stem.cargo)
        if not isinstance(cargo, Cargo):
            raise MalformedError("not a message that a stem carries")
        before = self._passages.get(name)
        again = before is not None and before.source == sender and now - before.at_us < self._circle_us
        if before is not None and again and (before.climbing or not stem.climbing):
            raise StaleError("a cargo that is on its way already")
        self._context.check_cargo(cargo, now)
        ends = stem.climbing or not self._choices.continues_stem(sender)
        came_back = before is not None and before.source != sender and now - before.at_us < self._circle_us
        if before is not None and came_back and before.climbing:
            raise StaleError("a cargo that climbs in a circle")
        first = before.source if before is not None and came_back else sender
        onward = None if ends or came_back else self._choices.next_relay(sender, self._context.present_neighbours())
        if onward is not None:
            self._forward(Stem(False, stem.cargo), name, first, onward, now)
            return
        # The stem ends here, or it comes from an end that may have no way.
        spread = isinstance(cargo, Notify) and self._context.flood_to_all(cargo, None, now)
        try:
            self._climb(cargo, stem.cargo, name, first, now)
        except StaleError:
            if not spread:
                raise

    def receive_acknowledgement(self, message: StemReceipt, sender: Address) -> None:
        """Handle an acknowledgement, for this node or for the previous hop."""
        passage = self._passages.get(message.name)
        if passage is None or sender not in passage.targets:
            raise StaleError("an acknowledgement from a node that did not get the message")
        self.acknowledge(message.name, message.receipt)

    def acknowledge(self, name: bytes, receipt: bytes) -> None:
        """This cargo is finished: tell the previous hop, and this node's outbox if the cargo is its own.

        A publisher accepts one receipt for each try, valid or not, and forwards the acknowledgement of its own cargo if
        that came round, as relays do. Otherwise the first relay could tell the publisher from a relay.
        """
        passage = self._passages.pop(name, None)
        if passage is None:
            return
        if passage.source is not None:
            self._context.post(passage.source, StemReceipt(name, receipt))
        self._context.confirm(name, receipt)

    def forget(self) -> None:
        """Treat every cargo as new: those that were forwarded may have gone nowhere."""
        self._passages.clear()

    def size(self) -> int:
        return len(self._passages)

    def _climb(self, cargo: Cargo, data: bytes, name: bytes, source: Address | None, now: int) -> None:
        lineage, tokens = b"", [cargo.token]
        if not isinstance(cargo, Parcel) and cargo.certificate is not None:
            lineage = lineage_of(cargo.certificate, cargo.cell)
            tokens += self._roots.tokens_of(lineage)
        for token in dict.fromkeys(tokens):
            best = leading_origin(self._context.reachable_origins(token))
            if best is None:
                continue
            if best.via is not None:
                self._forward(Stem(True, data), name, source, best.via, now)
                return
            self._passages.renew(name, _Passage(source, (), True, now))
            if self._context.deliver_at_root(cargo, name, now):
                self.acknowledge(name, self._roots.make_receipt(lineage, name, now))
            return
        if not isinstance(cargo, Call):
            raise StaleError("there is no way to its root")
        self._roots.flood_call(cargo, None, now)

    def _forward(self, stem: Stem, name: bytes, source: Address | None, target: Address, now: int) -> None:
        # A cargo that went in a circle may climb through the circle. Then its first next hop acknowledges it.
        before = self._passages.get(name)
        former = before.targets[-1:] if before is not None and before.source == source else ()
        self._passages.renew(name, _Passage(source, (*former, target), stem.climbing, now))
        self._context.post(target, stem)


class StemChoices:
    def __init__(
        self, rules: HardeningConfig, sticky: StickyChoices, members: NeighbourTable, relay: FirstRelay
    ) -> None:
        self._rules, self._sticky, self._members, self._relay = rules, sticky, members, relay

    def first_relay(self, lineage: bytes) -> Address | None:
        """The neighbour that gets own publications of this lineage first, present or not."""
        if self._rules.relay.rule == "kept":
            return self._relay.address()
        names = {name.encode(): name for name in self._members.neighbours}
        first = self._sticky.choose_first_relay(names, lineage)
        return None if first is None else names[first]

    def next_relay(self, predecessor: Address, neighbours: Iterable[Address]) -> Address | None:
        """The next hop of a cargo that comes from `predecessor`."""
        about, identity = self._members.identity(predecessor), self._members.identity
        return min(
            (name for name in neighbours if name != predecessor),
            key=lambda name: (not self._members.is_chosen(name), self._sticky.relay_rank(about, identity(name))),
            default=None,
        )

    def continues_stem(self, predecessor: Address) -> bool:
        """True if a cargo that comes from `predecessor` walks on past this node; False if the stem ends here."""
        return self._sticky.continues_stem(self._members.identity(predecessor), self._rules.onward)


def cargo_id(data: bytes) -> bytes:
    return digest(data, purpose=b"vc/cargo", size=NOTE_ID)


class _Passage(NamedTuple):
    """A cargo's previous hop (None if it is our own), its next hops so far, whether it climbs, and when."""

    source: Address | None
    targets: tuple[Address, ...]
    climbing: bool
    at_us: int
