from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from support.waits import HANG_S, wait_until
from veilcast.errors import LocalError, StaleError, UnreachableError
from veilcast.net import host_queries
from veilcast.net.host_queries import CLIENTS_MAX, QUESTION_MAX, HostQueryServer, ask_host


def answer(question: dict[str, Any]) -> dict[str, Any]:
    if question.get("ask") == "old":
        raise StaleError("an overlay that does not follow ours")
    return {"asked": question}


def served(path: Path, *asked: Any) -> None:
    """Run questions, each a function that blocks, against a server at this path."""

    async def run() -> None:
        desk = HostQueryServer(path, answer)
        await desk.open()
        try:
            for ask in asked:
                await asyncio.to_thread(ask)
        finally:
            await desk.close()

    asyncio.run(run())


def test_a_question_is_answered_and_a_refusal_says_why(tmp_path: Path) -> None:
    path = tmp_path / "sock"

    def refused() -> None:
        with pytest.raises(LocalError, match="does not follow ours"):
            ask_host(path, {"ask": "old"})

    served(path, lambda: _check(ask_host(path, {"ask": 1}) == {"asked": {"ask": 1}}), refused)
    assert not path.exists()


def test_only_the_owner_may_open_it(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    served(path, lambda: _check(path.stat().st_mode & 0o077 == 0))


@pytest.mark.parametrize("line", [b"\n", b"{\n", b"[]\n", b"\xff\xfe\n", b"[" * 100_000 + b"\n"])
def test_an_invalid_query_is_refused_and_hurts_no_other_client(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "sock"
    served(
        path,
        lambda: _check(json.loads(_say(path, line)) == {"error": "this is no question"}),
        lambda: _check(ask_host(path, {}) == {"asked": {}}),
    )


def test_a_question_without_end_is_cut_off_and_the_next_is_answered(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    served(
        path,
        lambda: _check(_say(path, b"x" * (QUESTION_MAX + 10)) == b""),
        lambda: _check(ask_host(path, {}) == {"asked": {}}),
    )


@pytest.mark.parametrize("is_over", [False, True])
def test_silent_clients_occupy_all_places_only_for_a_while(
    is_over: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sock"
    monkeypatch.setattr(host_queries, "QUESTION_S", 0.05 if is_over else HANG_S)

    def crowd() -> None:
        silent = [socket.socket(socket.AF_UNIX) for _ in range(CLIENTS_MAX)]
        for each in silent:
            each.connect(str(path))
        if not is_over:
            with pytest.raises(UnreachableError):
                ask_host(path, {})
        for each in silent:
            if is_over:
                assert each.recv(1) == b""  # Cut off when its time is over.
            each.close()
        monkeypatch.setattr(host_queries, "QUESTION_S", HANG_S)
        wait_until(answers)

    def answers() -> bool:
        with contextlib.suppress(UnreachableError):  # A place is free soon after its holder has left.
            return ask_host(path, {}) == {"asked": {}}
        return False

    served(path, crowd)


def test_a_missing_node_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="is it running"):
        ask_host(tmp_path / "none", {})


def _say(path: Path, line: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(str(path))
        try:
            asking.sendall(line)
            return asking.recv(1 << 16)
        except ConnectionError:
            return b""


def _check(holds: bool) -> None:
    assert holds
