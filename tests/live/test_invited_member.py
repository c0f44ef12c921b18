"""From nothing to the first delivered note by `invite` and `join`, live on loopback, in every mode."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from support.invited_member import Invitation, run_command, running_member
from support.live_foil import has_mosquitto
from support.waits import HANG_S, pause
from veilcast.cli.local import network
from veilcast.net.client import Client, open_client
from veilcast.node.config import load_config

FOIL = pytest.param("foil", marks=pytest.mark.skipif(not has_mosquitto(), reason="mosquitto is not installed"))
OPTIONS = {"tree": ["--danger-no-tor", "--listen", "127.101.7.7:4000"], "mesh": ["--listen", "127.101.7.7:4000"]}
"""No Tor runs here; and the mesh counts an address like 127.101.x.y as a provider of its own."""


@pytest.mark.all_only
@pytest.mark.parametrize("mode", ["mesh", "relay", "tree", "brokers", FOIL])
def test_an_invited_member_gets_a_note(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VEILCAST_PASSPHRASE_FILE", raising=False)
    net, home = tmp_path / "net", tmp_path / "anna"
    _net("up", "6", "--mode", mode, "--epoch", "30", *(["--no-tor"] if mode == "tree" else []), "--dir", str(net))
    try:
        running = network.read_network(net)
        node = str(network.node_file(net, 1))
        invitation = Invitation(net / "authority", "-c", node, "--days", "0.2", topic=running.topic)
        joined = run_command("join", invitation.code, "--dir", str(home), *OPTIONS.get(mode, []))
        assert joined.data is not None
        assert joined.data["mode"] == mode
        assert invitation.report().data is not None
        publisher = net / "roles" / "publisher" / "node.toml"
        values: dict[str, Any] = {"price": 512} if mode == "foil" else {}
        assert asyncio.run(_first_note(home, publisher, running.topic, values)).startswith(b"hello")
    finally:
        _net("down", "--dir", str(net))


def test_two_that_can_call_nobody_meet_at_a_members_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first member's node offers a rendezvous, and the authority finds it in that node's file."""
    monkeypatch.delenv("VEILCAST_PASSPHRASE_FILE", raising=False)
    anna, authority = tmp_path / "anna", tmp_path / "authority"
    run_command("authority", "init", str(authority))
    invitation = Invitation(authority)
    run_command("join", invitation.code, "--dir", str(anna))
    invitation.report()
    with (anna / "node.toml").open("a") as file:
        file.write(f'[rendezvous]\nlisten = "{_free_address()}"\n')
    place = load_config(anna / "node.toml").rendezvous.place

    async def meet() -> None:
        async with asyncio.timeout(HANG_S), running_member(anna):
            for name, options in (("ben", ["-c", str(anna / "node.toml")]), ("cleo", [])):
                again = await asyncio.to_thread(Invitation, authority, *options, waits_at=None)
                assert again.told["place"] == place
                await asyncio.to_thread(run_command, "join", again.code, "--dir", str(tmp_path / name))
                assert (await asyncio.to_thread(again.report)).data is not None

    asyncio.run(meet())
    own = load_config(anna / "node.toml").public_address
    assert own in load_config(tmp_path / "ben" / "node.toml").peers
    assert load_config(tmp_path / "cleo" / "node.toml").rendezvous.listen is None


async def _first_note(home: Path, publisher: Path, topic: str, values: dict[str, Any]) -> bytes:
    """Run the new member's node, subscribe, and let the publisher publish until a note is there."""
    async with asyncio.timeout(HANG_S), running_member(home):
        sender = await open_client(publisher)
        publishing = asyncio.create_task(_publish(sender, topic, values))
        me = await open_client(home / "node.toml")
        note = await anext(me.subscribe(topic, keep=True))
        publishing.cancel()
        with suppress(asyncio.CancelledError):
            await publishing
        await sender.close()
        await me.close()
    return note.publication.body


def _free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


async def _publish(sender: Client, topic: str, values: dict[str, Any]) -> None:
    number = 0
    while True:
        if not (await sender.status()).outbox:
            await sender.publish(topic, f"hello {number}", **values)
            number += 1
        await pause()


def _net(*words: str) -> None:
    source = str(Path(network.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": source}
    command = [sys.executable, "-m", "veilcast.cli.main", "net", *words]
    subprocess.run(command, env=environment, check=True, timeout=HANG_S, stdout=subprocess.DEVNULL)
