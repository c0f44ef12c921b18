"""`veilcast brokers overlay up`: a whole overlay by commands alone, as an operator would try it. A Byzantine replica is
found, planned away and removed, although the plan is interrupted once, and no publication is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from support.waits import wait_until
from veilcast.cli.context import Context
from veilcast.cli.local import network, workers
from veilcast.cli.local.mode import TOPIC
from veilcast.cli.main import main
from veilcast.net.sync_client import connect_sync

FILE = """
links = [["north", "south"]]
spare = 2

[[nodes]]
name = "north"
byzantine = ["share"]

[[nodes]]
name = "south"

[[members]]
edge = "north"
role = "publisher"

[[members]]
edge = "south"
role = "subscriber"
"""


@pytest.mark.all_only
def test_a_liar_is_found_and_replaced_by_commands_and_nothing_is_lost(
    disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, directory = tmp_path / "up.toml", disk / "n"
    file.write_text(FILE)

    def run(*arguments: str) -> Any:
        code = main([*arguments, "--json"], Context(warn=lambda _: None))
        told = json.loads(capsys.readouterr().out)
        assert code == 0, told
        return told

    def publish(*bodies: str) -> None:
        with connect_sync(network.node_file(directory, 0)) as me:
            for body in bodies:
                me.publish(TOPIC, body)

    def brokers() -> Any:
        return run("brokers", "status", "--dir", str(directory))["brokers"]

    def marks(told: Any) -> set[tuple[str, int]]:
        return {(mark["node"], mark["index"]) for facts in told.values() if facts for mark in facts["marks"]}

    try:
        run("brokers", "overlay", "up", str(file), "--dir", str(directory))
        publish("one", "two")
        wait_until(lambda: ("north", 3) in marks(brokers()))
        plan = run("brokers", "plan", "--dir", str(directory))
        assert (plan["liars"], plan["applied"]) == (["replica 3 of north"], False)
        assert [(step["node"], len(step["come"]), len(step["leave"])) for step in plan["steps"]] == [("north", 1, 1)]
        publish("three")
        with patch.object(workers, "add_worker", side_effect=KeyboardInterrupt):
            assert main(["brokers", "plan", "--dir", str(directory), "--apply"], Context(warn=lambda _: None)) == 130
        assert run("brokers", "plan", "--dir", str(directory))["pending"] == 2, "it was signed, and nobody has it"
        assert run("brokers", "plan", "--dir", str(directory), "--apply")["applied"]
        while (told := brokers())["north-3"] is not None:  # It has left, and is about to end.
            assert told["north-3"]["left"]
        assert (told["spare-1"]["node"], told["spare-1"]["version"], told["spare-2"]) == ("north", 2, None)
        assert run("brokers", "plan", "--dir", str(directory))["steps"] == []
        publish("four")
        with connect_sync(network.node_file(directory, 1)) as me:
            notes = me.subscribe(TOPIC, keep=True)
            assert sorted(next(notes).publication.body for _ in range(4)) == [b"four", b"one", b"three", b"two"]
        assert run("net", "down", "--dir", str(directory))["killed"] == 0
        assert not directory.exists()
    finally:
        workers.end_workers(directory, 1.0)
