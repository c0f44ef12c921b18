"""Repeats: which absences of readers have been answered, and which must be once more.

Of one session. What was asked for gathers, and all of it is answered at once, so that many readers who come back
together are one round. A round is answered when the broker has acknowledged all of it and has had `settle_us` to bring
it on. If the session loses its broker before, it may have died with it: the absences of that round are as good as never
answered, and readers will name them again.

Nobody knows whose an absence is, and one member can make up as many as it likes. So there is no quota for a member but
one for each event (`RepeatPace`): it is repeated after pauses that double, up to sixteen times the first. And no round
begins
while one is under way.


Requests for repeats: what a reader may have missed, sealed for the topic, and always of one size.

Pure. A broker that dies loses what it has acknowledged and not brought on, and what it kept for readers who were away.
Its publishers have it still, and nobody can tell them what is lacking: readers know when they were not connected, and
that is all. So

- whoever has subscribed on a new stream says **again**, with the times for which it may have missed something;
- whoever can hear that on a new stream says **here**, and is told the same.

Take a reader and a publisher who both come back to a broker, in whichever order. If the reader's subscription stood
before the publisher's, the publisher's "here" finds the reader, and its answer finds the publisher; else the reader's
own "again" does. Either way the publisher hears of it at a time when the reader's subscription stands, and what it
then repeats arrives, unless the broker dies again: then both come back once more.

Each time of absence has a name. A publisher that has answered one, and was not parted from its broker since, need not
answer it again; a reader that was parted ten times in ten minutes says all ten, and gets the last one repeated."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from veilcast.authority.keyring import TopicKeys
from veilcast.crypto.derive import derive, digest
from veilcast.crypto.seal import OVERHEAD, seal, unseal
from veilcast.crypto.secret import Secret
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import ForgedError, MalformedError
from veilcast.machine import Entropy
from veilcast.wire.geometry import MOMENT_MAX
from veilcast.wire.padding import pad, unpad

ABSENCE_NAME_BYTES: Final = 8
ABSENCES_MAX: Final = 32

_Moment = Annotated[int, msgspec.Meta(ge=0, le=MOMENT_MAX)]


class Absence(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A time for which a reader may have missed something."""

    name: Annotated[bytes, msgspec.Meta(min_length=ABSENCE_NAME_BYTES, max_length=ABSENCE_NAME_BYTES)]
    since_us: _Moment
    until_us: _Moment


class SessionAbsences:
    """Of one session. Bounded: of more than `ABSENCES_MAX` the oldest two become one."""

    def __init__(self, since_us: int, entropy: Entropy) -> None:
        self._entropy = entropy
        self._since_us: int | None = since_us
        self._known: list[Absence] = []

    def __len__(self) -> int:
        return len(self._known)

    def mark_away(self, since_us: int) -> None:
        """Something may be lacking since then, and until we are back."""
        self._since_us = since_us if self._since_us is None else min(self._since_us, since_us)

    def mark_back(self, now: int) -> None:
        since_us = now if self._since_us is None else min(self._since_us, now)
        self._known.append(Absence(self._entropy(ABSENCE_NAME_BYTES), since_us, now))
        self._since_us = None
        if len(self._known) > ABSENCES_MAX:
            one, other, *rest = self._known
            self._known = [
                Absence(self._entropy(ABSENCE_NAME_BYTES), min(one.since_us, other.since_us), other.until_us),
                *rest,
            ]

    def current(self, after_us: int) -> list[Absence]:
        """Those of which somebody may still have something: nobody keeps what is older."""
        self._known = [each for each in self._known if each.until_us >= after_us]
        return list(self._known)


def seal_repeat_request(keys: TopicKeys, absences: Sequence[Absence], entropy: Entropy) -> bytes:
    """Names are others in each topic: who publishes in two does not see that one reads both."""
    own = [
        Absence(
            digest(each.name + keys.token, purpose=b"vc/foil-absence", size=ABSENCE_NAME_BYTES),
            each.since_us,
            each.until_us,
        )
        for each in absences
    ]
    return seal(_key(keys), pad(_ENCODER.encode(own), _ROOM), context=_AGAIN, entropy=entropy)


def open_repeat_request(keys: TopicKeys, payload: bytes) -> list[Absence]:
    """Raises `RemoteError` for what no member of the topic sealed."""
    if len(payload) != REQUEST_BYTES:
        raise ForgedError("not a request")
    absences: list[Absence] = _DECODER.decode(unpad(unseal(_key(keys), payload, context=_AGAIN)))
    return absences


def seal_presence(keys: TopicKeys, entropy: Entropy) -> bytes:
    return seal(_key(keys), bytes(_ROOM), context=_HERE, entropy=entropy)


def check_presence(keys: TopicKeys, payload: bytes) -> None:
    if len(payload) != REQUEST_BYTES:
        raise ForgedError("not from a publisher")
    unseal(_key(keys), payload, context=_HERE)


def _key(keys: TopicKeys) -> Secret:
    return derive(keys.content, b"vc/foil-again")


_ROOM: Final = 1024
REQUEST_BYTES: Final = _ROOM + OVERHEAD
_AGAIN: Final = b"veilcast/foil-again"
_HERE: Final = b"veilcast/foil-here"
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = MsgpackDecoder(
    Annotated[list[Absence], msgspec.Meta(max_length=ABSENCES_MAX)], MalformedError, "not a request", _ROOM
)


class RepeatRounds:
    """Bounded: `requests_max` absences that were answered; of what was asked for, as many."""

    def __init__(self, requests_max: int, settle_us: int) -> None:
        self._most, self._settle_us = requests_max, settle_us
        self._answered: dict[tuple[str, bytes], None] = {}
        self._asked: dict[tuple[str, bytes], Absence] = {}
        self._rounds: list[_Round] = []

    def __len__(self) -> int:
        return len(self._answered) + len(self._asked)

    @property
    def has_requests(self) -> bool:
        return bool(self._asked)

    def ask(self, topic: str, absences: Iterable[Absence]) -> None:
        for each in absences:
            if (topic, each.name) not in self._answered and len(self._asked) < self._most:
                self._asked[topic, each.name] = each

    def take_requests(self) -> list[tuple[str, Absence]]:
        """All that is to be answered now."""
        asked = [(topic, each) for (topic, _), each in self._asked.items()]
        self._answered.update(dict.fromkeys(self._asked))
        self._asked = {}
        while len(self._answered) > self._most:
            del self._answered[next(iter(self._answered))]
        return asked

    def begin_round(self, asked: Iterable[tuple[str, Absence]], items: Iterable[Hashable]) -> None:
        """By these items it is answered; each is told when it is `through`."""
        left = dict.fromkeys(items)
        if left:  # Where there was nothing to send, nothing can be lost.
            self._rounds.append(_Round([(topic, each.name) for topic, each in asked], left))

    def acknowledged(self, item: Hashable, good_us: int, now: int) -> None:
        """It is acknowledged; `good_us` is when the broker is known to have been alive."""
        self._rounds = [each for each in self._rounds if not self._settled(each, good_us)]
        for each in self._rounds:
            if each.left.pop(item, _ABSENT) is not _ABSENT and not each.left:
                each.done_us = now

    def lost(self, good_us: int) -> None:
        for each in self._rounds:
            if not self._settled(each, good_us):
                for name in each.names:
                    self._answered.pop(name, None)
        self._rounds = []

    def _settled(self, each: _Round, good_us: int) -> bool:
        return each.done_us is not None and good_us - each.done_us >= self._settle_us


class RepeatPace:
    """When something may be repeated next. Bounded: the last `most` that were."""

    def __init__(self, again_us: int, most: int) -> None:
        self._again_us, self._most = again_us, most
        self._last: dict[Hashable, tuple[int, int]] = {}
        """How often, and when last."""

    def __len__(self) -> int:
        return len(self._last)

    def wait_us(self, item: Hashable, now: int) -> int:
        """0 if it may be repeated now, which then counts as done."""
        times, last_us = self._last.pop(item, (0, 0))
        next_us = last_us + (self._again_us << min(times - 1, PAUSE_DOUBLINGS_MAX)) if times else now
        self._last[item] = (times, last_us) if next_us > now else (times + 1, now)
        while len(self._last) > self._most:
            del self._last[next(iter(self._last))]
        return max(0, next_us - now)


@dataclass(slots=True)
class _Round:
    names: list[tuple[str, bytes]]
    left: dict[Hashable, None]
    done_us: int | None = None


PAUSE_DOUBLINGS_MAX: Final = 4
_ABSENT = object()
