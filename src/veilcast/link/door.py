"""The door: links are opened here, by us and by others, in letters.

    door.knock(peer, now)           ->  HELLO           a peer whose key we do not know
    door.knock(peer, now, static)   ->  RETURN          a peer whose key we know
                                    <-  COOKIE          (the same letter again, with the cookie)  ->
                                    <-  ANSWER          RETURN ends here
                                    ->  FINISH          HELLO ends here

Every letter may be lost, come twice, or be a recording. The one who knocked repeats its last letter (`again`) until it
hears a cell of the new session, and then lets go (`settle`). The other side answers a letter that it knows with what it
answered before, so repeating costs no key and makes no second session; what it remembers of a handshake outlives the
cookie that the handshake began with, so a recording has none.

Both tables are bounded, and when full the oldest goes. That harms nobody: the doorkeeper lets in so few that even while
others try hard an entry stays for two seconds, and a handshake needs one round trip.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from veilcast.errors import RemoteError, StaleError
from veilcast.link.doorkeeper import COOKIE_US, Doorkeeper
from veilcast.link.envelope import NO_COOKIE, Envelopes, Kind, Letter
from veilcast.link.handshake import Contact, Initiation, Response
from veilcast.link.party import Party
from veilcast.link.recent import remember
from veilcast.machine import Address
from veilcast.wire.geometry import THREAD


class Step(msgspec.Struct, frozen=True):
    """What a letter led to: a datagram to send back to where it came from, a contact made, both or neither.

    `own`: the datagram is what `again` would give, of a handshake that we began; it may wait for our time to send.
    """

    reply: bytes | None = None
    contact: Contact | None = None
    own: bool = False


class Door:
    """Of one node, for as long as it runs."""

    def __init__(self, party: Party, doorkeeper: Doorkeeper) -> None:
        self._party, self._doorkeeper = party, doorkeeper
        self._envelopes = Envelopes(party.envelope, party.entropy)
        self._knocks: dict[Address, _Knock] = {}
        self._guests: dict[tuple[Address, bytes], _Guest] = {}

    def __len__(self) -> int:
        """Handshakes under way, in both directions."""
        return len(self._knocks) + len(self._guests)

    def knock(self, peer: Address, now: int, remote: bytes | None = None) -> bytes:
        """Begin a handshake, in place of one under way with this peer: the datagram to send."""
        initiation = Initiation(self._party, now, remote=remote)
        kind = Kind.HELLO if remote is None else Kind.RETURN
        letter = Letter(kind, self._party.entropy(THREAD), initiation.first)
        remember(self._knocks, peer, _Knock(now, letter, initiation), KNOCKS_MAX)
        return self._envelopes.seal(letter)

    def again(self, peer: Address, now: int) -> bytes | None:
        """Our last letter to this peer in another envelope; None if there is nothing to repeat."""
        _expire(self._knocks, now)
        knock = self._knocks.get(peer)
        return None if knock is None else self._envelopes.seal(knock.letter)

    def settle(self, peer: Address) -> None:
        """The peer has the session, or is given up: there is nothing to repeat."""
        self._knocks.pop(peer, None)

    def receive(self, datagram: bytes, source: Address, now: int) -> Step:
        """Take a letter. `RemoteError` for what is refused; `ExpiredError` if our own membership is over."""
        letter = self._envelopes.open(datagram)
        match letter.kind:
            case Kind.HELLO | Kind.RETURN:
                return self._greet(letter, source, now)
            case Kind.COOKIE:
                return self._show_cookie(letter, source, now)
            case Kind.ANSWER:
                return self._read_answer(letter, source, now)
            case Kind.FINISH:
                return self._read_finish(letter, source, now)

    def _greet(self, letter: Letter, source: Address, now: int) -> Step:
        if letter.cookie == NO_COOKIE:
            cookie = self._doorkeeper.cookie(source, letter.thread, now)
            return Step(self._envelopes.seal(Letter(Kind.COOKIE, letter.thread, cookie=cookie)))
        self._doorkeeper.admit(source, letter.thread, letter.cookie, now)
        _expire(self._guests, now)
        name = (source, letter.thread)
        guest = self._guests.get(name)
        if guest is not None:
            return Step(self._envelopes.seal(guest.letter))
        response = Response(self._party, letter.content, now, known=letter.kind is Kind.RETURN)
        guest = _Guest(now, Letter(Kind.ANSWER, letter.thread, response.answer), response)
        if response.contact is not None:
            guest.response = None
        remember(self._guests, name, guest, GUESTS_MAX)
        return Step(self._envelopes.seal(guest.letter), response.contact)

    def _show_cookie(self, letter: Letter, source: Address, now: int) -> Step:
        knock = self._knock_of(letter, source, now)
        if knock.cookies == 0:
            raise StaleError("a peer that asks for cookies without end")
        knock.cookies -= 1
        knock.letter = msgspec.structs.replace(knock.letter, cookie=letter.cookie)
        return Step(self._envelopes.seal(knock.letter), own=True)

    def _read_answer(self, letter: Letter, source: Address, now: int) -> Step:
        knock = self._knock_of(letter, source, now)
        initiation, knock.initiation = knock.initiation, None
        assert initiation is not None
        try:
            contact = initiation.read(letter.content, now)
        except RemoteError:
            self.settle(source)
            raise
        if not contact.last:
            self.settle(source)
            return Step(None, contact)
        knock.letter = Letter(Kind.FINISH, letter.thread, contact.last)
        return Step(self._envelopes.seal(knock.letter), contact, own=True)

    def _read_finish(self, letter: Letter, source: Address, now: int) -> Step:
        _expire(self._guests, now)
        guest = self._guests.get((source, letter.thread))
        if guest is None or guest.response is None:
            raise StaleError("the end of a handshake that we do not know")
        response, guest.response = guest.response, None
        return Step(None, response.read(letter.content, now))

    def _knock_of(self, letter: Letter, source: Address, now: int) -> _Knock:
        """The handshake that this answers, if it still waits for one."""
        _expire(self._knocks, now)
        knock = self._knocks.get(source)
        if knock is None or knock.letter.thread != letter.thread or knock.initiation is None:
            raise StaleError("an answer to nothing that we asked")
        return knock


@dataclass(slots=True)
class _Knock:
    """One that we began. Without its initiation it waits for nothing, but for our last letter to arrive."""

    since_us: int
    letter: Letter
    initiation: Initiation | None
    cookies: int = 3
    """How many more we show: one, unless it came late or the peer began anew meanwhile."""


@dataclass(slots=True)
class _Guest:
    """One that another began, with our answer. Without its response it is over, and known again if repeated."""

    since_us: int
    letter: Letter
    response: Response | None


_Name = TypeVar("_Name")
_Entry = TypeVar("_Entry", _Knock, _Guest)


def _expire(table: dict[_Name, _Entry], now: int) -> None:
    """Tables are in the order of time, so the old ones are in front."""
    while table:
        name = next(iter(table))
        if now - table[name].since_us < HANDSHAKE_US:
            return
        del table[name]


HANDSHAKE_US: Final = 2 * COOKIE_US
"""After this long a handshake is forgotten, and no cookie that it began with is good any more."""

KNOCKS_MAX: Final = 128
GUESTS_MAX: Final = 128
