"""Repeats: how subscribers ask for events that they may have missed, and how publishers answer.

A broker that dies loses what it has acknowledged and not delivered, and what it kept for absent subscribers. Its
publishers still have it, and cannot know what is missing: subscribers know only when they were not connected. So

- a subscriber that has subscribed on a new stream sends a **repeat request** ("again") with the times for which it may
  have missed something;
- a publisher that can receive requests on a new stream sends a **presence announcement** ("here"), and receives the
  same request.

Both are sealed for the topic and always have one size.

Claim: the publisher receives the request at a time when the subscriber's subscription is active, unless the broker dies
again; then both come back once more.
Assumption: subscriber and publisher both come back to the broker, in any order.
Reason: if the subscription was active first, the publisher's announcement reaches the subscriber, and its answer
reaches the publisher. Otherwise the subscriber's own request does.

Each absence has a name. A publisher that has answered one, and was not disconnected since, need not answer it again. A
subscriber that was disconnected ten times in ten minutes reports all ten, and gets only the last one repeated.

Requests accumulate, and one round answers them all, so that many subscribers that come back together are one round. A
round is complete when the broker has acknowledged all of it and has had `settle_us` to deliver it. If the session loses
its broker before, the messages may have died with it: the absences of that round count as unanswered, and subscribers
will report them again. Requests that have no round yet are forgotten with the session. A round that began without a
session would leave when the publisher is back, which may be before the subscriber is.

An absence does not identify its member, and one member can invent any number. So there is no quota for a member but one
for each event (`RepeatPace`): it is repeated after pauses that double, up to sixteen times the first. And no round
begins while one is in flight.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from veilcast.authority.keyring import TopicKeys
from veilcast.core.bounded import BoundedMap, BoundedSet
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
    """A time for which a subscriber may have missed something."""

    name: Annotated[bytes, msgspec.Meta(min_length=ABSENCE_NAME_BYTES, max_length=ABSENCE_NAME_BYTES)]
    since_us: _Moment
    until_us: _Moment


class SessionAbsences:
    """The absences of one session. Bounded: beyond `ABSENCES_MAX` the oldest two become one."""

    def __init__(self, since_us: int, entropy: Entropy) -> None:
        self._entropy = entropy
        self._since_us: int | None = since_us
        self._known: list[Absence] = []

    def __len__(self) -> int:
        return len(self._known)

    def mark_away(self, since_us: int) -> None:
        """Something may be missing since then, until the subscriber is back."""
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
        """Absences that a publisher may still be able to answer: nobody stores older events."""
        self._known = [each for each in self._known if each.until_us >= after_us]
        return list(self._known)


def seal_repeat_request(keys: TopicKeys, absences: Sequence[Absence], entropy: Entropy) -> bytes:
    """Names differ in each topic: a publisher in two topics does not see that one member reads both."""
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
    """Raises `RemoteError` for a request that no member of the topic sealed."""
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


class RepeatRounds:
    """The rounds of one session. Bounded: `requests_max` answered absences, and as many requested ones."""

    def __init__(self, requests_max: int, settle_us: int) -> None:
        self._most, self._settle_us = requests_max, settle_us
        self._answered: BoundedSet[tuple[str, bytes]] = BoundedSet(requests_max)
        self._requested: dict[tuple[str, bytes], Absence] = {}
        self._rounds: list[_Round] = []

    def __len__(self) -> int:
        return len(self._answered) + len(self._requested)

    @property
    def has_requests(self) -> bool:
        return bool(self._requested)

    def ask(self, topic: str, absences: Iterable[Absence]) -> None:
        for each in absences:
            if (topic, each.name) not in self._answered and len(self._requested) < self._most:
                self._requested[topic, each.name] = each

    def take_requests(self) -> list[tuple[str, Absence]]:
        """All requests to be answered now."""
        requested = [(topic, each) for (topic, _), each in self._requested.items()]
        self._answered.update(dict.fromkeys(self._requested))
        self._requested = {}
        return requested

    def begin_round(self, requested: Iterable[tuple[str, Absence]], items: Iterable[Hashable]) -> None:
        """These items answer the requests; call `acknowledged` for each."""
        pending = dict.fromkeys(items)
        if pending:  # A round without items cannot lose any.
            self._rounds.append(_Round([(topic, each.name) for topic, each in requested], pending))

    def acknowledged(self, item: Hashable, good_us: int, now: int) -> None:
        """The broker has acknowledged the item; `good_us` is when the broker is known to have been alive."""
        self._rounds = [each for each in self._rounds if not self._is_settled(each, good_us)]
        for each in self._rounds:
            if each.pending.pop(item, _ABSENT) is not _ABSENT and not each.pending:
                each.acknowledged_us = now

    def lost(self, good_us: int) -> None:
        """The session has lost its broker, which is known to have been alive at `good_us`."""
        self._requested = {}
        for each in self._rounds:
            if not self._is_settled(each, good_us):
                for name in each.names:
                    self._answered.pop(name, None)
        self._rounds = []

    def _is_settled(self, each: _Round, good_us: int) -> bool:
        return each.acknowledged_us is not None and good_us - each.acknowledged_us >= self._settle_us


class RepeatPace:
    """When an item may be repeated next. Bounded: the last `most` items."""

    def __init__(self, again_us: int, most: int) -> None:
        self._again_us = again_us
        self._last: BoundedMap[Hashable, tuple[int, int]] = BoundedMap(most)
        """Number of repetitions, and time of the last."""

    def __len__(self) -> int:
        return len(self._last)

    def wait_us(self, item: Hashable, now: int) -> int:
        """Time until it may be repeated; 0 means now, and counts as a repetition."""
        times, last_us = self._last.pop(item, (0, 0))
        next_us = last_us + (self._again_us << min(times - 1, PAUSE_DOUBLINGS_MAX)) if times else now
        self._last[item] = (times, last_us) if next_us > now else (times + 1, now)
        return max(0, next_us - now)


@dataclass(slots=True)
class _Round:
    names: list[tuple[str, bytes]]
    pending: dict[Hashable, None]
    acknowledged_us: int | None = None


_ROOM: Final = 1024
REQUEST_BYTES: Final = _ROOM + OVERHEAD
_AGAIN: Final = b"veilcast/foil-again"
_HERE: Final = b"veilcast/foil-here"
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = MsgpackDecoder(
    Annotated[list[Absence], msgspec.Meta(max_length=ABSENCES_MAX)], MalformedError, "not a request", _ROOM
)
PAUSE_DOUBLINGS_MAX: Final = 4
_ABSENT = object()
