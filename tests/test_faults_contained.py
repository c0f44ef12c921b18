"""`Faults`: an exception that is no error of ours becomes a refusal, is counted, and ends a simulation."""

from __future__ import annotations

import pytest

from veilcast.errors import ForgedError, LocalError, RemoteError
from veilcast.faults import FaultError, Faults, faults_of


def fail(error: Exception) -> int:
    raise error


def test_a_fault_becomes_a_refusal_and_errors_of_ours_pass() -> None:
    faults = Faults()
    with pytest.raises(FaultError) as caught, faults.refuse_exceptions():
        fail(RecursionError())
    assert isinstance(caught.value, RemoteError)
    assert faults.count == 1
    for error in (ForgedError("x"), LocalError("x")):
        with pytest.raises(type(error)), faults.refuse_exceptions():
            fail(error)
    assert faults.count == 1


def test_faults_are_counted_and_reported() -> None:
    faults, told = Faults(), list[Exception]()
    faults.on_fault = told.append
    faults.contain(fail, ValueError())
    assert faults.call_or_none(fail, KeyError()) is None
    assert faults.call_or_none(int, "7") == 7
    assert faults.count == len(told) == 2


def test_strict_faults_leave() -> None:
    faults = Faults()
    faults.strict = True
    for call in (faults.contain, faults.call_or_none):
        with pytest.raises(ZeroDivisionError):
            call(fail, ZeroDivisionError())
    with pytest.raises(ZeroDivisionError), faults.refuse_exceptions():
        fail(ZeroDivisionError())
    assert faults.count == 0


def test_an_interrupt_is_no_fault() -> None:
    with pytest.raises(KeyboardInterrupt):
        Faults().contain(_interrupt)


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_a_machine_that_keeps_no_faults_gets_some() -> None:
    assert faults_of(object()).count == 0
