"""A rendezvous in virtual time, with inviters and joiners that call it, and strangers that send what they like."""

from __future__ import annotations

from random import Random

from support.invitation_pair import LIFE, NOW, PATIENCE, PLACE, make_offer
from veilcast.authority.revocation import RevokedKeys
from veilcast.crypto.certificate import Certificate
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.invitation.code import InvitationCode, draw_code
from veilcast.invitation.inviter import Inviter, Requested
from veilcast.invitation.joiner import Granted, Invited, Joiner
from veilcast.invitation.messages import JoinRequest
from veilcast.invitation.rendezvous import Rendezvous, sign_permit
from veilcast.machine import Address, Disconnect, Event, Frame

CALLED = Address(f"join@{PLACE}")
EPOCH_US = 3_600_000_000
KEY = SigningKey(Secret(bytes(range(32))))


class RendezvousNetwork:
    def __init__(self, seed: int = 1, revoked: RevokedKeys | None = None) -> None:
        self.entropy = Random(seed).randbytes
        self.now = NOW
        self.place = Rendezvous(KEY.public, EPOCH_US, PLACE, revoked)
        self.callers: dict[Address, Inviter | Joiner] = {}
        self.events: dict[Address, list[Event]] = {}
        self.refused: dict[Address, list[Frame]] = {}
        """Frames for callers that are no machines."""
        self.reply = b"reply" * 10_000

    def permit(
        self,
        code: InvitationCode,
        key: SigningKey = KEY,
        until: int = NOW + LIFE,
        delegation: Certificate | None = None,
    ) -> bytes:
        return sign_permit(key, delegation, code.number, code.place, until)

    def invite(self, code: InvitationCode | None = None, permit: bytes | None = None) -> tuple[InvitationCode, Address]:
        code = code or draw_code(PLACE, self.entropy, rendezvous=True)
        permit = self.permit(code) if permit is None else permit
        return code, self.call(Inviter(code, make_offer(), NOW + LIFE, self.entropy, permit))

    def join(self, code: InvitationCode) -> Address:
        return self.call(Joiner(code, self.entropy, self.now, PATIENCE))

    def call(self, machine: Inviter | Joiner) -> Address:
        name = Address(f"in:{len(self.events)}")
        self.callers[name], self.events[name] = machine, []
        self.place.peer_up(name, self.now)
        machine.peer_up(CALLED, self.now)
        return name

    def hang_up(self, name: Address) -> None:
        machine = self.callers.pop(name)
        self.place.peer_lost(name, self.now)
        machine.peer_lost(CALLED, self.now)

    def send(self, name: str, data: bytes) -> list[bytes]:
        """A stranger sends; returns what it is told."""
        self.place.receive(data, Address(name), self.now)
        self.run()
        return [frame.data for frame in self.refused.pop(Address(name), [])]

    def run(self) -> None:
        moved = True
        while moved:
            moved = False
            for name, machine in list(self.callers.items()):
                while (event := machine.next_event()) is not None:
                    moved = True
                    self.events[name].append(event)
                    self._react(machine, event)
                for frame in machine.frames_to_send(self.now, 100):
                    moved = True
                    self.place.receive(frame.data, name, self.now)
            for frame in self.place.frames_to_send(self.now, 1000):
                moved = True
                target = self.callers.get(frame.destination)
                if target is None:
                    self.refused.setdefault(frame.destination, []).append(frame)
                else:
                    target.receive(frame.data, CALLED, self.now)
            while (told := self.place.next_event()) is not None:
                moved = True
                if isinstance(told, Disconnect) and told.peer in self.callers:
                    machine = self.callers.pop(told.peer)
                    machine.peer_lost(CALLED, self.now)
                    while (event := machine.next_event()) is not None:
                        self.events[told.peer].append(event)

    def skip(self, us: int) -> None:
        """Let time pass in steps of a second."""
        for _ in range(us // 1_000_000):
            self.now += 1_000_000
            self.place.handle_timer(self.now)
            for machine in list(self.callers.values()):
                machine.handle_timer(self.now)
            self.run()

    def _react(self, machine: Inviter | Joiner, event: Event) -> None:
        match event, machine:
            case Requested(), Inviter():
                machine.answer(self.reply, self.now)
            case Invited(), Joiner():
                machine.ask(JoinRequest(b"request" * 100), self.now)
            case Granted(), Joiner():
                machine.finish(self.now)
