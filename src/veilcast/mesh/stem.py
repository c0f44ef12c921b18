"""Stems: how what a publisher says gets to the root without showing where it began.

The publisher hands it to one neighbour, its first relay, and waits while that one is away: another first relay would
be another sample (`first_relay`). A relay passes it on to a neighbour that depends on whom it came from alone, or ends
the stem, by a coin that does too; one that it comes back to ends it. From there it climbs to the root as subscriptions
do. Where there is no root yet, the end of the stem floods the call for one. The root's acknowledgement goes back the
same way, signed with the key of its lot: a relay that drops a note cannot make its publisher believe that it arrived.

A relay checks that a certified publisher signed what it passes on, so a stem is no way to flood the network, and keeps
for a while whom it came from, so that the acknowledgement finds its way; the oldest are forgotten first.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

from veilcast.crypto.cell import lineage_of
from veilcast.crypto.derive import digest
from veilcast.errors import MalformedError, StaleError
from veilcast.machine import Address
from veilcast.mesh.roots import Roots, leading
from veilcast.mesh.routes import Origin
from veilcast.mesh.stem_choices import StemChoices
from veilcast.wire import decode, encode
from veilcast.wire.geometry import NOTE_ID
from veilcast.wire.messages import Call, Message, Notify, Stem, Taken

Cargo: TypeAlias = Call | Notify


class StemSeat(Protocol):
    """What stems see and do of their node."""

    def present(self) -> list[Address]: ...

    def reachable(self, token: bytes) -> list[Origin]: ...

    def post(self, neighbour: Address, message: Message) -> None:
        """At once, in a frame of its own."""

    def check(self, cargo: Cargo, now: int) -> None:
        """Raise unless a publisher certified for these days signed it."""

    def arrived(self, cargo: Cargo, name: bytes, now: int) -> bool:
        """We are its root: take it. Whether it is done with, and may be acknowledged."""

    def spread(self, note: Notify, source: Address | None, now: int) -> bool:
        """Let everybody have this note, if it is the time for that; whether it is."""

    def settled(self, name: bytes, receipt: bytes) -> None:
        """This name is acknowledged. If we launched it, it is through; raises if no root gave the receipt."""


class _Passage(NamedTuple):
    """Whom a cargo came from, None if it is our own; to whom it went, at last and before; how, and when."""

    source: Address | None
    targets: tuple[Address, ...]
    climbing: bool
    at_us: int


class Stems:
    """Bounded: at most `passages_max` cargoes are remembered.

    What comes from two neighbours within `circle_us` went in a circle, and what comes twice from one is a copy; later
    it is another try.
    """

    def __init__(
        self, seat: StemSeat, choices: StemChoices, roots: Roots, *, circle_us: int, passages_max: int
    ) -> None:
        self._seat, self._choices, self._roots = seat, choices, roots
        self._circle_us, self._passages_max = circle_us, passages_max
        self._passages: dict[bytes, _Passage] = {}

    def launch(self, cargo: Cargo, lineage: bytes, now: int) -> bool:
        """Send our own on its way; False while the one it must go to is not there."""
        relay = self._choices.first_relay(lineage)
        if relay is None or relay not in self._seat.present():
            return False
        data = encode(cargo)
        self._forward(Stem(False, data), cargo_name(data), None, relay, now)
        return True

    def receive(self, stem: Stem, sender: Address, now: int) -> None:
        cargo, name = decode(stem.cargo), cargo_name(stem.cargo)
        if not isinstance(cargo, Cargo):
            raise MalformedError("not what a stem carries")
        before = self._passages.get(name)
        again = before is not None and before.source == sender and now - before.at_us < self._circle_us
        if before is not None and again and (before.climbing or not stem.climbing):
            raise StaleError("a cargo that is on its way already")
        self._seat.check(cargo, now)
        ends = stem.climbing or not self._choices.continues(sender)
        came_back = before is not None and before.source != sender and now - before.at_us < self._circle_us
        if before is not None and came_back and before.climbing:
            raise StaleError("a cargo that climbs in a circle")
        first = before.source if before is not None and came_back else sender
        onward = None if ends or came_back else self._choices.next_relay(sender, self._seat.present())
        if onward is not None:
            self._forward(Stem(False, stem.cargo), name, first, onward, now)
            return
        # A stem has ended, or comes from an end that may know no better.
        spread = isinstance(cargo, Notify) and self._seat.spread(cargo, None, now)
        try:
            self._climb(cargo, stem.cargo, name, first, now)
        except StaleError:
            if not spread:
                raise

    def taken(self, message: Taken, sender: Address) -> None:
        """An acknowledgement, for us or for whom the cargo came from."""
        passage = self._passages.get(message.name)
        if passage is None or sender not in passage.targets:
            raise StaleError("an acknowledgement of what we never sent that way")
        self.acknowledge(message.name, message.receipt)

    def acknowledge(self, name: bytes, receipt: bytes) -> None:
        """What has this name is done with: tell whom it came from, and ourselves if it is our own.

        A publisher takes one word for each try, true or not, and answers for its own cargo when that comes round, as
        relays do: otherwise whom it sends to could tell it from one.
        """
        passage = self._passages.pop(name, None)
        if passage is None:
            return
        if passage.source is not None:
            self._seat.post(passage.source, Taken(name, receipt))
        self._seat.settled(name, receipt)

    def forget(self) -> None:
        """Take every cargo for a new one: those that were passed on may have gone nowhere."""
        self._passages.clear()

    def size(self) -> int:
        return len(self._passages)

    def _climb(self, cargo: Cargo, data: bytes, name: bytes, source: Address | None, now: int) -> None:
        certificate = cargo.certificate
        lineage = lineage_of(certificate, cargo.cell) if certificate is not None else b""
        for token in dict.fromkeys((cargo.token, *self._roots.tokens(lineage))):
            best = leading(self._seat.reachable(token))
            if best is None:
                continue
            if best.via is not None:
                self._forward(Stem(True, data), name, source, best.via, now)
                return
            self._remember(name, _Passage(source, (), True, now))
            if self._seat.arrived(cargo, name, now):
                self.acknowledge(name, self._roots.receipt(lineage, name, now))
            return
        if not isinstance(cargo, Call):
            raise StaleError("there is no way to its root")
        self._roots.flood(cargo, None, now)

    def _forward(self, stem: Stem, name: bytes, source: Address | None, target: Address, now: int) -> None:
        # What went in a circle may climb through the circle: then it is acknowledged by whom it went to first.
        before = self._passages.get(name)
        former = before.targets[-1:] if before is not None and before.source == source else ()
        self._remember(name, _Passage(source, (*former, target), stem.climbing, now))
        self._seat.post(target, stem)

    def _remember(self, name: bytes, passage: _Passage) -> None:
        self._passages.pop(name, None)
        if len(self._passages) >= self._passages_max:
            del self._passages[next(iter(self._passages))]
        self._passages[name] = passage


def cargo_name(data: bytes) -> bytes:
    return digest(data, purpose=b"vc/cargo", size=NOTE_ID)
