"""`veilcast foil publish|subscribe`: a whole run in one command, in separate processes, at a mosquitto."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.live_foil import LiveFoil, has_mosquitto
from support.waits import HANG_S, wait_until
from veilcast.cli.local.network import NetworkPlan

PLAN = NetworkPlan(nodes=3, mode="foil", subscribers=2, epoch_us=3_600_000_000)

pytestmark = [pytest.mark.all_only, pytest.mark.skipif(not has_mosquitto(), reason="mosquitto is not installed")]


def command(house: LiveFoil, name: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    whole = [sys.executable, "-m", "veilcast.cli.main", "foil", *arguments, "-c", str(house.file(name))]
    return subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def until_it_stands(reader: subprocess.Popen[str]) -> None:
    """Wait until the broker has accepted the subscription: nobody receives earlier publications."""
    assert reader.stderr is not None
    assert "subscribed" in reader.stderr.readline()


def test_lines_of_values_become_lines_of_notes_and_ctrl_c_ends_cleanly(disk: Path) -> None:
    house = LiveFoil(disk / "n", PLAN)
    house.broker.start()
    topic, (one, two) = house.net.topic, house.subscribers
    (disk / "series.csv").write_text("price,body\n" + "".join(f"{500 + n},tick {n}\n" for n in range(100)))
    running = []
    try:
        wanted = ["subscribe", topic, "--range", "price", "520..529", "--json", "--count", "10"]
        reader, idle = command(house, one, *wanted), command(house, two, "subscribe", topic)
        running += [reader, idle]
        for each in (reader, idle):
            until_it_stands(each)
        publisher = command(house, house.publisher, "publish", topic, "--csv", str(disk / "series.csv"))
        running.append(publisher)
        out, err = publisher.communicate(timeout=HANG_S)
        assert (publisher.returncode, out) == (0, "published 100; all of it has gone out\n"), err
        out, err = reader.communicate(timeout=HANG_S)
        notes = [json.loads(line) for line in out.splitlines()]
        assert reader.returncode == 0, err
        assert sorted(note["body"] for note in notes) == [f"tick {n}" for n in range(20, 30)]
        assert idle.stdout is not None
        assert {idle.stdout.readline() for _ in range(100)} == {f"tick {n}\n" for n in range(100)}
        idle.send_signal(signal.SIGINT)
        idle.communicate(timeout=HANG_S)
        assert idle.returncode == 0
    finally:
        for each in running:
            each.kill()
            each.communicate()
        house.broker.end()


def test_a_publisher_that_lingers_is_there_for_a_reader_who_comes_late(disk: Path) -> None:
    house = LiveFoil(disk / "n", PLAN)
    house.broker.start()
    topic, (one, two) = house.net.topic, house.subscribers
    running = []
    try:
        first = command(house, one, "subscribe", topic, "--count", "1")
        running.append(first)
        until_it_stands(first)
        stays = ["publish", topic, "--value", "price=500", "-m", "late", "--linger", "600"]
        running.append(command(house, house.publisher, *stays))
        assert first.communicate(timeout=HANG_S)[0] == "late\n"
        # The broker has it by now, and has nothing of it left.
        second = command(house, two, "subscribe", topic, "--count", "1")
        running.append(second)
        assert second.communicate(timeout=HANG_S)[0] == "late\n"
    finally:
        for each in running:
            each.kill()
            each.communicate()
        house.broker.end()


def test_what_a_broker_drops_for_want_of_room_while_its_reader_sleeps_comes_again(disk: Path) -> None:
    """Only mosquitto's log tells this: the subscriber stays connected all the time."""
    house = LiveFoil(disk / "n", PLAN, settings="max_queued_messages 3\n")
    house.broker.start()
    log, topic, running = disk / "n" / "broker" / "log", house.net.topic, []
    try:
        reader = command(house, house.subscribers[0], "subscribe", topic)
        running.append(reader)
        until_it_stands(reader)
        publisher = command(house, house.publisher, "publish", topic, "--csv", "-", stdin=subprocess.PIPE)
        running.append(publisher)
        assert publisher.stdin is not None
        assert reader.stdout is not None

        def say(first: int, last: int) -> None:
            assert publisher.stdin is not None
            publisher.stdin.writelines(f"{500 + n % 9},tick {n}\n" for n in range(first, last))
            publisher.stdin.flush()

        publisher.stdin.write("price,body\n")
        say(0, 15)
        heard = {reader.stdout.readline() for _ in range(15)}
        reader.send_signal(signal.SIGSTOP)
        say(15, 75)
        wait_until(lambda: "being dropped" in log.read_text())
        reader.send_signal(signal.SIGCONT)
        say(75, 76)
        heard |= {reader.stdout.readline() for _ in range(61)}
        assert heard == {f"tick {n}\n" for n in range(76)}
    finally:
        for each in running:
            each.send_signal(signal.SIGCONT)
            each.kill()
            each.communicate()
        house.broker.end()


def test_a_reader_without_a_broker_is_told_what_hinders_it_once(disk: Path) -> None:
    house = LiveFoil(disk / "n", PLAN)  # Its broker is not started.
    reader = command(house, house.subscribers[0], "subscribe", house.net.topic)
    try:
        assert reader.stderr is not None
        told = reader.stderr.readline()
        assert told.startswith("veilcast: the node goes on trying, but no way to ")
        assert told.endswith(": nobody answers there\n")
        reader.send_signal(signal.SIGINT)
        assert reader.communicate(timeout=HANG_S) == ("", "")
    finally:
        reader.kill()


def test_a_network_with_a_broker_of_its_own_comes_up_and_leaves_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "n"

    def net(verb: str, *options: str) -> dict[str, Any]:
        whole = [sys.executable, "-m", "veilcast.cli.main", "net", verb, *options, "--dir", str(directory), "--json"]
        found = subprocess.run(whole, capture_output=True, text=True, timeout=HANG_S)
        assert found.returncode == 0, found.stderr
        told: dict[str, Any] = json.loads(found.stdout)
        return told

    net("up", "3", "--mode", "foil", "--subscribers", "1")
    try:
        address = json.loads((directory / "net.json").read_text())["hosts"][0]
        host, _, port = address.rpartition(":")
        socket.create_connection((host, int(port))).close()
    finally:
        told = net("down")
    assert told == {"ended": 2, "killed": 0, "kept": False}
    assert not directory.exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port))).close()
