"""Two sides of a transfer. A script loses, repeats and delays the bodies between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from veilcast.link.transfer import PROMPT_TIMEOUT_US, TIMEOUT_CELLS, Transfer

ROOM = 1176
PERIOD_US = 250_000

Fate = tuple[int, ...]
"""Periods after which a body arrives: not at all, once, or several times."""

LOST: Fate = ()
AT_ONCE: Fate = (0,)


@dataclass(frozen=True)
class QueuedMessage:
    """A message that a side queues in a period: a string, repeated, and zeros."""

    period: int
    side: int
    something: bytes
    times: int
    zeros: int
    control: bool

    @property
    def message(self) -> bytes:
        return self.something * self.times + bytes(self.zeros)


@dataclass(frozen=True)
class Script:
    """The messages of both sides in order, and the fate of each body while there are losses."""

    parcels: tuple[QueuedMessage, ...]
    fates: tuple[tuple[Fate, Fate], ...]


@dataclass
class TransferPair:
    """Side 0 and side 1, a cell each in every period."""

    sides: tuple[Transfer, Transfer]
    now: int = 1_700_000_000_000_000
    got: tuple[list[tuple[bytes, bool]], list[tuple[bytes, bool]]] = field(default_factory=lambda: ([], []))
    _late: list[tuple[int, int, bytes]] = field(default_factory=list)

    def period(self, fates: Sequence[Fate] = (AT_ONCE, AT_ONCE)) -> None:
        """Both sides send, half a period apart. Due bodies arrive before the next side sends."""
        for side, fate in enumerate(fates):
            self.now += PERIOD_US // 2
            body = self.sides[side].fill(ROOM, self.now)
            assert len(body) == ROOM
            self._late += [(self.now + periods * PERIOD_US, 1 - side, body) for periods in fate]
            self._deliver()

    def prompt(self, fates: Sequence[Fate] = (AT_ONCE, AT_ONCE), passing_us: int = 10_000) -> int:
        """Both sides send at once what they have. Returns the number of bodies."""
        count = 0
        for side, fate in enumerate(fates):
            while (body := self.sides[side].prompt(ROOM, self.now)) is not None:
                count += 1
                self._late += [(self.now + periods * passing_us, 1 - side, body) for periods in fate]
            self._deliver()
        self.now += passing_us
        return count

    def _deliver(self) -> None:
        due = [entry for entry in self._late if entry[0] <= self.now]
        self._late = [entry for entry in self._late if entry[0] > self.now]
        for _, side, body in due:
            self.got[side].extend(self.sides[side].take(body, self.now))


def transfer_pair(kind: type[Transfer] = Transfer, first: int = 0, *, cells: bool = True) -> TransferPair:
    timeout_us = TIMEOUT_CELLS * PERIOD_US if cells else PROMPT_TIMEOUT_US
    return TransferPair((kind(timeout_us=timeout_us, first=first), kind(timeout_us=timeout_us, first=first)))


def assert_all_arrive(script: Script, kind: type[Transfer] = Transfer, first: int = 0, *, cells: bool = True) -> None:
    """Every message arrives once, in order within its lane, and soon after the losses end."""
    pair = transfer_pair(kind, first, cells=cells)
    step = pair.period if cells else pair.prompt
    last = max(parcel.period for parcel in script.parcels)
    for period in range(max(last + 1, len(script.fates))):
        for parcel in script.parcels:
            if parcel.period == period:
                pair.sides[parcel.side].put(parcel.message, parcel.control)
        step(script.fates[period] if period < len(script.fates) else (AT_ONCE, AT_ONCE))
    for _ in range(CALM + sum(len(parcel.message) for parcel in script.parcels) // 256 if cells else CALM_PROMPT):
        step()
    for side in (0, 1):
        assert pair.sides[side].dropped == 0
        sent = [(parcel.message, parcel.control) for parcel in script.parcels if parcel.side != side]
        for lane in (_control, _short, _long):
            assert [entry for entry in pair.got[side] if lane(entry)] == [entry for entry in sent if lane(entry)]
        assert pair.sides[side].is_settled


def scripts(stormy: int = 24) -> st.SearchStrategy[Script]:
    delays = st.integers(0, 6)
    fate = st.one_of(st.just(LOST), st.just(AT_ONCE), st.tuples(delays), st.tuples(delays, delays))
    parcel = st.builds(
        QueuedMessage,
        period=st.integers(0, stormy),
        side=st.integers(0, 1),
        something=st.binary(min_size=1, max_size=20),
        times=st.sampled_from((1, 1, 1, 20, 150, 300)),
        zeros=st.sampled_from((0, 0, 1, 2, 1000, 9000)),
        control=st.booleans(),
    )
    return st.builds(
        lambda parcels, fates: Script(tuple(sorted(parcels, key=lambda parcel: parcel.period)), tuple(fates)),
        st.lists(parcel, min_size=1, max_size=24),
        st.lists(st.tuples(fate, fate), max_size=stormy),
    )


def _control(entry: tuple[bytes, bool]) -> bool:
    return entry[1]


def _short(entry: tuple[bytes, bool]) -> bool:
    return not entry[1] and len(entry[0].rstrip(b"\0")) <= 2048


def _long(entry: tuple[bytes, bool]) -> bool:
    return not entry[1] and not _short(entry)


CALM = 12
"""Periods without loss in which all short messages arrive."""

CALM_PROMPT = 400
"""Steps of a hundredth of a second: more than the longest that a side waits before it asks again, twice."""
