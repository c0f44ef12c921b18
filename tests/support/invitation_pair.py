"""An inviter and joiners in virtual time, with an adversary on the way that sees and changes every frame.

The network of a pair carries frames at once and in order. `on_way` may replace a frame by any frames, or none. Streams
have the names of the real driver: the inviter hears "in:0", "in:1" ..., a joiner hears the place of its code.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from veilcast.invitation.code import InvitationCode, draw_code
from veilcast.invitation.inviter import InvitationOver, Inviter, Requested
from veilcast.invitation.joiner import Granted, Invited, Joiner, JoinFailed, JoinFinished
from veilcast.invitation.messages import InvitationOffer, JoinRequest
from veilcast.machine import Address, Event, Machine

PLACE = Address("127.0.0.1:4000")
SECOND = 1_000_000
NOW = 1_700_000_000 * SECOND
LIFE = 600 * SECOND
PATIENCE = 60 * SECOND

OnWay = Callable[[str, bytes], list[bytes]]
"""From the receiver ("inviter" or "joiner") and a frame to the frames that arrive."""


def make_offer(**changes: object) -> InvitationOffer:
    fields = {
        "root": bytes(range(32)),
        "epoch_us": 3600 * SECOND,
        "topic": "news/eu",
        "role": "subscriber",
        "epochs": 720,
        "now_us": NOW,
        "members": 3,
        "network": 'mode = "mesh"\n',
    }
    return InvitationOffer(**{**fields, **changes})  # type: ignore[arg-type]


class Guest:
    """One joiner, its stream, and an owner that asks and stores at once."""

    def __init__(self, pair: InvitationPair, machine: Joiner, on_way: OnWay) -> None:
        self.pair, self.machine, self.on_way = pair, machine, on_way
        self.stream: Address | None = None
        self.events: list[Event] = []
        self.request = b"request" * 100
        self.stores = True

    def connect(self) -> None:
        self.stream = Address(f"in:{self.pair.streams}")
        self.pair.streams += 1
        self.pair.guests[self.stream] = self
        self.pair.inviter.peer_up(self.stream, self.pair.now)
        self.machine.peer_up(Address(f"join@{PLACE}"), self.pair.now)

    def disconnect(self) -> None:
        assert self.stream is not None
        self.pair.inviter.peer_lost(self.stream, self.pair.now)
        del self.pair.guests[self.stream]
        self.stream = None
        self.machine.peer_lost(Address(f"join@{PLACE}"), self.pair.now)

    def step(self) -> bool:
        moved = False
        while (event := self.machine.next_event()) is not None:
            moved = True
            self.events.append(event)
            if isinstance(event, Invited):
                self.machine.ask(JoinRequest(self.request, "127.0.0.1:5000"), self.pair.now)
            elif isinstance(event, Granted) and self.stores:
                self.machine.finish(self.pair.now)
        for frame in self.machine.frames_to_send(self.pair.now, 100):
            moved = True
            if self.stream is not None:
                for data in self.on_way("inviter", frame.data):
                    self.pair.inviter.receive(data, self.stream, self.pair.now)
        return moved

    @property
    def failure(self) -> JoinFailed | None:
        return next((event for event in self.events if isinstance(event, JoinFailed)), None)

    @property
    def reply(self) -> bytes | None:
        return next((event.reply for event in self.events if isinstance(event, Granted)), None)

    @property
    def is_finished(self) -> bool:
        return any(isinstance(event, JoinFinished) for event in self.events)


class InvitationPair:
    def __init__(self, seed: int = 1, offer: InvitationOffer | None = None, *, answers: bool = True) -> None:
        self.entropy = Random(seed).randbytes
        self.now = NOW
        self.code = draw_code(PLACE, self.entropy)
        self.inviter = Inviter(self.code, offer or make_offer(), NOW + LIFE, self.entropy)
        self.guests: dict[Address, Guest] = {}
        self.streams = 0
        self.requests: list[JoinRequest] = []
        self.outcomes: list[str] = []
        self.answers = answers

    def wrong_code(self) -> InvitationCode:
        """A code for the same place, with another password."""
        return draw_code(PLACE, Random(99).randbytes)

    def guest(self, code: InvitationCode | None = None, on_way: OnWay = lambda to, data: [data]) -> Guest:
        guest = Guest(self, Joiner(code or self.code, self.entropy, self.now, PATIENCE), on_way)
        guest.connect()
        return guest

    def run(self, *guests: Guest) -> None:
        """Deliver until nothing moves."""
        moved = True
        while moved:
            moved = self._step_inviter()
            for guest in guests:
                moved |= guest.step()

    def skip(self, us: int, *guests: Guest) -> None:
        """Let time pass, with every timer that is due on the way."""
        end = self.now + us
        while True:
            self.run(*guests)
            machines: list[Machine] = [self.inviter, *(guest.machine for guest in guests)]
            due = min((at for each in machines if (at := each.next_timer()) is not None), default=end)
            if due >= end:
                break
            self.now = max(self.now, due)
            for each in machines:
                each.handle_timer(self.now)
        self.now = end
        self.run(*guests)

    def _step_inviter(self) -> bool:
        moved = False
        while (event := self.inviter.next_event()) is not None:
            moved = True
            if isinstance(event, Requested):
                self.requests.append(event.ask)
                if self.answers:
                    self.inviter.answer(b"reply" * 20_000, self.now)
            elif isinstance(event, InvitationOver):
                self.outcomes.append(event.outcome)
        for frame in self.inviter.frames_to_send(self.now, 100):
            moved = True
            guest = self.guests.get(frame.destination)
            if guest is not None:
                for data in guest.on_way("joiner", frame.data):
                    guest.machine.receive(data, Address(f"join@{PLACE}"), self.now)
        return moved
