"""Generations: the sessions of one link, each with fresher keys than the last.

1. A link begins with the session of the handshake that opened it. The initiator of that handshake renews the keys.
2. When a session is old enough, the initiator begins another handshake inside the link, as a message like any other. An
   observer cannot see that keys change.
3. The initiator seals with the new session as soon as the peer has answered. The peer cannot know whether its answer
   arrived, so it uses the old session until a datagram of the new one comes.
4. The old session still opens datagrams in flight. Its keys are deleted when it ends.

A handshake costs a millisecond, so a peer that begins one too early is refused.
"""

from __future__ import annotations

from typing import Final

from veilcast.errors import ExcessError, MalformedError, StaleError
from veilcast.link.handshake import HandshakeResult, InitiatorHandshake, ResponderHandshake
from veilcast.link.identity import LinkIdentity
from veilcast.link.session import REKEY_US, LinkSession


class SessionGenerations:
    """Bounded: the session in use, the previous one, and the next one that is being agreed."""

    __slots__ = ("_identity", "_initiation", "_next", "_old", "due_us", "is_initiator", "remote_static", "session")

    def __init__(self, identity: LinkIdentity, result: HandshakeResult) -> None:
        self._identity = identity
        self.remote_static, self.is_initiator = result.remote_static, result.is_initiator
        self.session = result.session
        """The session that seals."""
        self._next = self._old = self.session
        self.due_us = self.session.rekey_us
        """Before this time there is no key to renew and none to delete."""
        self._initiation: InitiatorHandshake | None = None

    def open(self, datagram: bytes, now: int) -> bytes | None:
        """The body; None if no session of this link sealed the datagram. Raises `StaleError` for a replay."""
        session = self.session
        if (body := session.open_own(datagram, now)) is not None:
            return body
        if self._next is not session and (body := self._next.open_own(datagram, now)) is not None:
            self._succeed(self._next)
            return body
        return None if self._old is session else self._old.open_own(datagram, now)

    def renew(self, now: int) -> bytes | None:
        """The message that begins the next session, if it is due and this side is the initiator; else None."""
        if self._old is not self.session and now >= self._old.ends_us:
            self._old = self.session
            self.due_us = self.session.rekey_us
        if not self.is_initiator or self._initiation is not None or now < self.session.rekey_us:
            return None
        generation = self.session.next_generation
        self._initiation = InitiatorHandshake(self._identity, now, remote=self.remote_static, generation=generation)
        return _FIRST + self._initiation.first_message

    def handle_control(self, message: bytes, now: int) -> bytes | None:
        """Handle the peer's message about the next session. Returns the answer, if there is one."""
        kind, content = message[:1], message[1:]
        if kind == _FIRST and not self.is_initiator:
            if self._next is not self.session or now < self.session.born_us + EARLIEST_US:
                raise ExcessError("a new session while the last one is fresh")
            generation = self.session.next_generation
            response = ResponderHandshake(
                self._identity, content, now, known=True, generation=generation, expected=self.remote_static
            )
            assert response.result is not None  # The peer uses IK.
            self._next = response.result.session
            return _ANSWER + response.answer
        if kind == _ANSWER:
            if self._initiation is None:
                raise StaleError("an answer without a request")
            initiation, self._initiation = self._initiation, None
            self._next = initiation.read(content, now).session
            self._succeed(self._next)
            return None
        raise MalformedError("not a message about sessions, or not the peer's to send")

    def _succeed(self, session: LinkSession) -> None:
        self._old, self.session = self.session, session
        self.due_us = self._old.ends_us


EARLIEST_US: Final = REKEY_US // 2
"""Age of a session at which a peer may ask for the next: clocks differ, and so do the births of a session."""

_FIRST: Final = b"\1"
_ANSWER: Final = b"\2"
