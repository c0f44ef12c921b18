from __future__ import annotations

import asyncio
import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from support.waits import HANG_S
from veilcast.errors import UnknownTopicError
from veilcast.net import log
from veilcast.net.log import FAULT_EVERY_S, FaultLog, LoopFaults, Plain, Style

PLANTED = ("news/planted", "192.0.2.99:4000", "deadbeefcafe", "planted plaintext")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Restore the logging setup afterwards."""
    root = logging.getLogger()
    before = root.handlers[:], root.level, logging.raiseExceptions, sys.excepthook, sys.unraisablehook
    written = io.StringIO()
    yield written
    root.handlers[:], root.level, logging.raiseExceptions, sys.excepthook, sys.unraisablehook = before


def plant() -> None:
    """Log everything that must not show, in every possible way."""
    logger = logging.getLogger("veilcast.node")
    topic, peer, key, text = PLANTED
    logger.warning("a note on %s from %s with %r: %s", topic, peer, key.encode(), {text: [peer]})
    logger.warning("by name %(topic)s %(count)d", {"topic": topic, "count": 3})
    logger.warning("a wrong number of arguments %d %d", topic)  # noqa: PLE1206
    logging.getLogger("asyncio").error(f"Exception in callback <Handle raddr={peer}>")
    logging.getLogger("elsewhere").warning("%s", key)
    logger.warning(UnknownTopicError(topic))
    try:
        try:
            raise KeyError(key)
        except KeyError as error:
            raise UnknownTopicError(f"no topic {topic!r}") from error
    except UnknownTopicError:
        logger.exception("failed for %s", peer)
        logging.getLogger("asyncio").exception(peer)


@pytest.mark.parametrize("style", ["pretty", "json"])
def test_no_planted_topic_peer_key_or_plaintext_reaches_the_log(stream: io.StringIO, style: Style) -> None:
    log.set_up(style, "debug", stream)
    plant()
    written = stream.getvalue()
    assert not [secret for secret in PLANTED if secret in written]
    assert "UnknownTopicError" in written
    assert "KeyError" in written
    assert "test_log.py:" in written
    assert "[hidden] 3" in written


def test_the_search_finds_what_danger_reveal_prints(stream: io.StringIO) -> None:
    log.set_up("pretty", "debug", stream, danger_reveal=True)
    logging.getLogger("veilcast.node").warning("a note on %s", PLANTED[0])
    assert PLANTED[0] in stream.getvalue()


def test_every_json_line_is_one_object_and_numbers_and_plain_words_pass(stream: io.StringIO) -> None:
    log.set_up("json", "info", stream)
    plant()
    logging.getLogger("veilcast.udp").info("%d neighbours in mode %s, %.1f s", 5, Plain("mesh"), 0.25)
    logging.getLogger("veilcast.udp").debug("not at this level")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert lines[-1]["text"] == "5 neighbours in mode mesh, 0.2 s"
    assert {"time", "level", "room", "text"} <= lines[-1].keys()
    assert lines[-1]["room"] == "udp"


def test_pretty_lines_cannot_be_broken(stream: io.StringIO) -> None:
    log.set_up("pretty", "info", stream)
    logging.getLogger("veilcast.udp").info("one\nline \x1b[31m")
    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize(
    "fault",
    [
        "raise ValueError('news/planted')",
        "import threading; t = threading.Thread(target=lambda: {}['news/planted']); t.start(); t.join()",
        "class A:\n  def __del__(self): raise ValueError('news/planted')\nA()",
    ],
)
def test_an_uncaught_exception_shows_only_its_type_and_place(fault: str) -> None:
    child = subprocess.run(
        [sys.executable, "-c", f"from veilcast.net import log\nlog.set_up()\n{fault}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    assert "news/planted" not in child.stderr + child.stdout
    assert "Error at" in child.stderr
    assert "Traceback" not in child.stderr


def test_faults_in_callbacks_are_counted_and_only_the_first_of_a_minute_logged(stream: io.StringIO) -> None:
    log.set_up("json", "info", stream)

    async def test() -> int:
        loop, faults = asyncio.get_running_loop(), LoopFaults()
        loop.set_exception_handler(faults)

        def fail(*_: Any) -> None:
            raise ValueError(PLANTED[3])

        for _ in range(log.FAULTS_LOGGED * 5):
            loop.call_soon(fail, PLANTED[1])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return faults.count

    assert asyncio.run(test()) == log.FAULTS_LOGGED * 5
    assert 1 <= len(stream.getvalue().splitlines()) <= 2 * log.FAULTS_LOGGED
    assert not [secret for secret in PLANTED if secret in stream.getvalue()]


def test_faults_of_a_machine_are_logged_once_a_minute_without_their_text(stream: io.StringIO) -> None:
    log.set_up("pretty", "info", stream)
    now = 1000.0
    faults = FaultLog(lambda: now)
    for _ in range(100):
        faults(ValueError(PLANTED[3]))
    assert stream.getvalue().count("\n") == 1
    now += FAULT_EVERY_S
    faults(ValueError(PLANTED[3]))
    first, second = stream.getvalue().splitlines()
    assert "1 since the start" in first
    assert "101 since the start" in second
    assert "ValueError" in second
    assert not any(planted in stream.getvalue() for planted in PLANTED)
