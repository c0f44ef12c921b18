"""Stems: how what a publisher says gets to the root without showing where it began.

The publisher hands it to one neighbour, its first relay, and waits while that one is away: another first relay would
be another sample (`first_relay`). A relay passes it on to a neighbour that depends on whom it came from alone, or ends
the stem, by a coin that does too; one that it comes back to ends it. From there it climbs to the root as subscriptions
do. Where there is no root yet, the end of the stem floods the call for one. The root's acknowledgement goes back the
same way, signed with the key of its lot: a relay that drops a note cannot make its publisher believe that it arrived.

A relay checks that a certified publisher signed what it passes on, so a stem is no way to flood the network, and keeps
for a while whom it came from, so that the acknowledgement finds its way; the oldest are forgotten first.


Where stems go: the first relay of our own publications, and the next relay of what others hand us.

Every choice is by identity, which is a certified key, so that one member has one rank from however many addresses it
comes. Relays that this node chose as neighbours come before peers that came to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol, TypeAlias

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
from veilcast.wire.geometry import NOTE_ID
from veilcast.wire.mesh import Call, Message, Notify, Stem, StemReceipt


class StemChoices:
    def __init__(
        self, rules: HardeningConfig, habits: StickyChoices, members: NeighbourTable, relay: FirstRelay
    ) -> None:
        self._rules, self._habits, self._members, self._relay = rules, habits, members, relay

    def first_relay(self, lineage: bytes) -> Address | None:
        """The neighbour to which our own publications of this lineage go first, there or not."""
        if self._rules.relay.rule == "kept":
            return self._relay.address()
        names = {name.encode(): name for name in self._members.neighbours}
        first = self._habits.choose_first_relay(names, lineage)
        return None if first is None else names[first]

    def next_relay(self, predecessor: Address, neighbours: Iterable[Address]) -> Address | None:
        """The neighbour to which goes on what comes from `predecessor`."""
        about, identity = self._members.identity(predecessor), self._members.identity
        return min(
            (name for name in neighbours if name != predecessor),
            key=lambda name: (not self._members.is_chosen(name), self._habits.relay_rank(about, identity(name))),
            default=None,
        )

    def continues_stem(self, predecessor: Address) -> bool:
        """Whether what comes from `predecessor` walks on past us, or ends here."""
        return self._habits.continues_stem(self._members.identity(predecessor), self._rules.onward)


Cargo: TypeAlias = Call | Notify


class StemContext(Protocol):
    """What stems see and do of their node."""

    def present_neighbours(self) -> list[Address]: ...

    def reachable_origins(self, token: bytes) -> list[AdvertisedOrigin]: ...

    def post(self, neighbour: Address, message: Message) -> None:
        """At once, in a frame of its own."""

    def check_cargo(self, cargo: Cargo, now: int) -> None:
        """Raise unless a publisher certified for these days signed it."""

    def deliver_at_root(self, cargo: Cargo, name: bytes, now: int) -> bool:
        """We are its root: take it. Whether it is done with, and may be acknowledged."""

    def flood_to_all(self, note: Notify, source: Address | None, now: int) -> bool:
        """Let everybody have this note, if it is the time for that; whether it is."""

    def confirm(self, name: bytes, receipt: bytes) -> None:
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
        self, seat: StemContext, choices: StemChoices, roots: RootElections, *, circle_us: int, passages_max: int
    ) -> None:
        self._seat, self._choices, self._roots = seat, choices, roots
        self._circle_us, self._passages_max = circle_us, passages_max
        self._passages: dict[bytes, _Passage] = {}

    def launch(self, cargo: Cargo, lineage: bytes, now: int) -> bool:
        """Send our own on its way; False while the one it must go to is not there."""
        relay = self._choices.first_relay(lineage)
        if relay is None or relay not in self._seat.present_neighbours():
            return False
        data = encode(cargo)
        self._forward(Stem(False, data), cargo_id(data), None, relay, now)
        return True

    def receive(self, stem: Stem, sender: Address, now: int) -> None:
        cargo, name = decode(stem.cargo), cargo_id(stem.cargo)
        if not isinstance(cargo, Cargo):
            raise MalformedError("not what a stem carries")
        before = self._passages.get(name)
        again = before is not None and before.source == sender and now - before.at_us < self._circle_us
        if before is not None and again and (before.climbing or not stem.climbing):
            raise StaleError("a cargo that is on its way already")
        self._seat.check_cargo(cargo, now)
        ends = stem.climbing or not self._choices.continues_stem(sender)
        came_back = before is not None and before.source != sender and now - before.at_us < self._circle_us
        if before is not None and came_back and before.climbing:
            raise StaleError("a cargo that climbs in a circle")
        first = before.source if before is not None and came_back else sender
        onward = None if ends or came_back else self._choices.next_relay(sender, self._seat.present_neighbours())
        if onward is not None:
            self._forward(Stem(False, stem.cargo), name, first, onward, now)
            return
        # A stem has ended, or comes from an end that may know no better.
        spread = isinstance(cargo, Notify) and self._seat.flood_to_all(cargo, None, now)
        try:
            self._climb(cargo, stem.cargo, name, first, now)
        except StaleError:
            if not spread:
                raise

    def receive_acknowledgement(self, message: StemReceipt, sender: Address) -> None:
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
            self._seat.post(passage.source, StemReceipt(name, receipt))
        self._seat.confirm(name, receipt)

    def forget(self) -> None:
        """Take every cargo for a new one: those that were passed on may have gone nowhere."""
        self._passages.clear()

    def size(self) -> int:
        return len(self._passages)

    def _climb(self, cargo: Cargo, data: bytes, name: bytes, source: Address | None, now: int) -> None:
        certificate = cargo.certificate
        lineage = lineage_of(certificate, cargo.cell) if certificate is not None else b""
        for token in dict.fromkeys((cargo.token, *self._roots.tokens_of(lineage))):
            best = leading_origin(self._seat.reachable_origins(token))
            if best is None:
                continue
            if best.via is not None:
                self._forward(Stem(True, data), name, source, best.via, now)
                return
            self._remember(name, _Passage(source, (), True, now))
            if self._seat.deliver_at_root(cargo, name, now):
                self.acknowledge(name, self._roots.make_receipt(lineage, name, now))
            return
        if not isinstance(cargo, Call):
            raise StaleError("there is no way to its root")
        self._roots.flood_call(cargo, None, now)

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


def cargo_id(data: bytes) -> bytes:
    return digest(data, purpose=b"vc/cargo", size=NOTE_ID)
