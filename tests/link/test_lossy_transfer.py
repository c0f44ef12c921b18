"""Each message arrives once and in order, whatever is lost, repeated or reordered. The check detects planted faults."""

from __future__ import annotations

import random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from support.transfer_pair import Fate, QueuedMessage, Script, assert_all_arrive, scripts
from veilcast.link.chunks import NUMBERS
from veilcast.link.lanes import WINDOW, ReceivingLane
from veilcast.link.transfer import Transfer


@given(scripts())
def test_every_message_arrives_once_and_in_order_despite_any_losses(script: Script) -> None:
    assert_all_arrive(script)


@given(scripts(), st.integers(1, 2 * WINDOW))
def test_numbers_wrap_despite_any_losses(script: Script, before: int) -> None:
    assert_all_arrive(script, first=NUMBERS - before)


@given(scripts())
def test_prompt_bodies_carry_everything_despite_any_losses(script: Script) -> None:
    assert_all_arrive(script, cells=False)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("cells", [True, False])
def test_full_windows_recover_from_long_losses(seed: int, cells: bool) -> None:
    rng = random.Random(seed)
    parcels = []
    for number, period in enumerate(sorted(rng.choices(range(20), k=200))):
        times = rng.choice((5, 40, 400, 2_500))
        parcels.append(
            QueuedMessage(period, number % 2, bytes((rng.randrange(256), number)), times, zeros=0, control=False)
        )
    fates = [(_stormy(rng), _stormy(rng)) for _ in range(80)]
    assert_all_arrive(Script(tuple(parcels), tuple(fates)), cells=cells)


def _stormy(rng: random.Random) -> Fate:
    return tuple(rng.randrange(5) for _ in range(rng.choices((0, 1, 2), (4, 5, 1))[0]))


class _Forgetful(ReceivingLane):
    """Takes every chunk that is not early for the expected one."""

    def accept(self, wire: int, content: bytes, zeros: int | None) -> list[tuple[bytes, int]] | None:
        return super().accept(min(wire, self._expected), content, zeros) or (
            [(content, zeros)] if wire < self._expected - 1 and zeros is not None else []
        )


class _Hasty(ReceivingLane):
    """Delivers a message before its turn."""

    def accept(self, wire: int, content: bytes, zeros: int | None) -> list[tuple[bytes, int]] | None:
        if wire > self._expected and wire not in self._early and zeros is not None and not self._partial:
            super().accept(wire, content, zeros)
            return [(content, zeros)]
        return super().accept(wire, content, zeros)


class _WithoutMemory(Transfer):
    def __init__(self, *, timeout_us: int, first: int = 0) -> None:
        super().__init__(timeout_us=timeout_us, first=first)
        self._in = [_Forgetful(first) for _ in self._in]


class _WithoutOrder(Transfer):
    def __init__(self, *, timeout_us: int, first: int = 0) -> None:
        super().__init__(timeout_us=timeout_us, first=first)
        self._in = [_Hasty(first) for _ in self._in]


class _WithoutRepeats(Transfer):
    def _repeat(self, parts: list[bytes], left: int, now: int, before_us: int) -> int:
        return left


class _WithoutZeros(Transfer):
    def put(self, message: bytes, control: bool = False, now: int = 0) -> None:
        super().put(message.rstrip(b"\0") or message[:1], control, now)


class _Deaf(Transfer):
    """Assumes that everything it sent has arrived."""

    def fill(self, room: int, now: int) -> bytes:
        body = super().fill(room, now)
        self._in_flight.clear()
        return body


@pytest.mark.parametrize("kind", [_WithoutMemory, _WithoutOrder, _WithoutRepeats, _WithoutZeros, _Deaf])
def test_the_check_detects_a_planted_bug(kind: type[Transfer]) -> None:
    @settings(phases=(Phase.generate,), database=None, report_multiple_bugs=False)
    @given(scripts())
    def claim(script: Script) -> None:
        assert_all_arrive(script, kind)

    with pytest.raises(AssertionError):
        claim()
