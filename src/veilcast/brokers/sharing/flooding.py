"""Flooding: signed words that all honest replicas of a node end up with alike, although some replicas are two-faced.

Pure. This is the broadcast of Dolev and Strong, for every replica's word at once. A word is signed by its author. Who
takes one up in a round adds its own signature and passes it on in the next, and takes up in round i only what has i
signatures of different replicas. With f liars there are f + 1 rounds: what is taken up in the last has f + 1
signatures, one of them honest, and that replica passed it on to everybody in time. So all honest replicas take up the
same words; an author of two has none.

It stands on a bound on delay: a round lasts long enough for whatever honest replicas send in it to come before it ends.
The caller keeps the time and says which round it is.

Mostly nobody lies, and all replicas say the same. Who has heard all of them say the same in round 1 need not pass
anything on. What that leaves true, `attendance` says.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from veilcast.brokers.sharing.scheme import Place, Roster
from veilcast.crypto.shares import MAX_SHARES
from veilcast.crypto.sign import SIGNATURE, SigningKey, verify
from veilcast.errors import ForgedError, MalformedError

WORD_MAX: Final = 39 * 1024
"""One message has 40 KiB."""
VOUCHED: Final = 72
"""So many bytes at most takes one more signature."""

Index = Annotated[int, msgspec.Meta(ge=1, le=MAX_SHARES)]
Signature = Annotated[bytes, msgspec.Meta(min_length=SIGNATURE, max_length=SIGNATURE)]


class Vouched(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A word, its author's signature, and those of replicas who took it up."""

    author: Index
    word: Annotated[bytes, msgspec.Meta(max_length=WORD_MAX)]
    signature: Signature
    vouchers: Annotated[tuple[tuple[Index, Signature], ...], msgspec.Meta(max_length=MAX_SHARES)] = ()

    def __post_init__(self) -> None:
        signers = self.signers
        if len(set(signers)) != len(signers):
            raise MalformedError("a replica vouches once")
        if len(self.word) > WORD_MAX:
            raise MalformedError(f"a word has at most {WORD_MAX} bytes")

    @property
    def signers(self) -> tuple[int, ...]:
        return (self.author, *(index for index, _ in self.vouchers))


class Flood:
    """One replica's part in one flood; `context` names it. Keeps two words of each author at most, besides those that
    are another author's only one."""

    def __init__(
        self, context: bytes, place: Place, roster: Roster, signing: SigningKey, *, most: int = WORD_MAX
    ) -> None:
        self.context, self.most = context, most
        """No word has more bytes: what a liar says must fit into a message with everybody's signature on it, or the
        honest could not pass it on."""
        self._place, self._roster, self._signing = place, roster, signing
        self._taken: dict[int, dict[bytes, Vouched]] = {}
        self._fresh: list[Vouched] = []

    @property
    def rounds(self) -> int:
        return self._place.scheme.tolerated + 1

    def say(self, word: bytes) -> Vouched:
        """Our own word, to be sent to all others in round 1."""
        signature = self._signing.sign(self._signed(self._place.index, word), purpose=_WORD)
        said = Vouched(self._place.index, word, signature)
        self._taken[self._place.index] = {word: said}
        return said

    def hear(self, vouched: Vouched, round_number: int) -> None:
        """Take up what comes in this round; raises for what does not hold, and is silent on what comes too late."""
        if len(vouched.word) > self.most:
            raise MalformedError(f"a word of this flood has at most {self.most} bytes")
        taken = self._taken.setdefault(vouched.author, {})
        late = len(vouched.signers) < round_number or round_number > self.rounds
        if late or vouched.word in taken or (len(taken) >= _FACES and not self._is_said(vouched.word)):
            return
        check(vouched, self.context, self._place, self._roster)
        if self._place.index not in vouched.signers:
            own = self._signing.sign(self._signed(vouched.author, vouched.word), purpose=_VOUCH)
            vouched = msgspec.structs.replace(vouched, vouchers=(*vouched.vouchers, (self._place.index, own)))
        taken[vouched.word] = vouched
        self._fresh.append(vouched)

    def relay(self) -> list[Vouched]:
        """What was taken up since this was last asked: for all others, in the next round."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def words(self) -> dict[int, bytes]:
        """The one word of each author who said one, by author."""
        return {author: next(iter(taken)) for author, taken in sorted(self._taken.items()) if len(taken) == 1}

    def heard(self, author: int) -> list[Vouched]:
        """All that this author said, as far as we took it up."""
        return list(self._taken.get(author, {}).values())

    def two_faced(self) -> list[int]:
        """Authors proven to have said two things."""
        return [author for author, taken in sorted(self._taken.items()) if len(taken) >= _FACES]

    def saying(self, word: bytes) -> list[Vouched]:
        """For each author who said this, whatever else it said, that word of it."""
        return [taken[word] for _, taken in sorted(self._taken.items()) if word in taken]

    def erase(self) -> None:
        """Nothing that was said stays."""
        self._taken.clear()
        self._fresh.clear()

    def _is_said(self, word: bytes) -> bool:
        """By us, or by another who said nothing else: honest ones may agree on it, and no liar's words may bar that."""
        return word in self._taken.get(self._place.index, {}) or word in self.words().values()

    def _signed(self, author: int, word: bytes) -> bytes:
        return _signed(self.context, self._place, author, word)


def check(vouched: Vouched, context: bytes, place: Place, roster: Roster) -> None:
    """Raise unless all signatures are those of replicas of the same node, in this flood."""
    signed = _signed(context, place, vouched.author, vouched.word)
    for index, signature, purpose in (
        (vouched.author, vouched.signature, _WORD),
        *((index, signature, _VOUCH) for index, signature in vouched.vouchers),
    ):
        if index > place.scheme.size:
            raise ForgedError("no replica of the node has this index")
        verify(roster.key(Place(place.scheme, index)), signed, signature, purpose=purpose)


def _signed(context: bytes, place: Place, author: int, word: bytes) -> bytes:
    return _ENCODER.encode((context, place.scheme, author, word))


_FACES: Final = 2
_WORD: Final = b"veilcast/word"
_VOUCH: Final = b"veilcast/vouch"
_ENCODER: Final = msgspec.msgpack.Encoder()
