"""`node reload` on a running node: a bulletin in its directory is in force without a restart."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from support.invited_member import Invitation, run_command, running_member
from support.waits import HANG_S
from veilcast.authority.keyring import Keyring
from veilcast.authority.secret_file import read_secret
from veilcast.crypto.secret import Secret


def test_a_running_node_takes_a_bulletin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VEILCAST_PASSPHRASE_FILE", raising=False)
    authority, anna = tmp_path / "authority", tmp_path / "anna"
    run_command("authority", "init", str(authority))
    for name in ("anna", "mallory"):
        invitation = Invitation(authority, "--member", name)
        run_command("join", invitation.code, "--dir", str(tmp_path / name))
        invitation.report()
    before = keyring_of(anna)

    async def drive() -> None:
        async with asyncio.timeout(HANG_S), running_member(anna):
            assert await reload(anna) is False
            run_command("authority", "revoke", str(authority), "--member", "mallory")
            shutil.copytree(authority / "bulletins", anna / "bulletins")
            await reload(anna)  # The node may have looked before by itself.
            assert keyring_of(anna).grants[0].bulletin == 1
            assert await reload(anna) is False

    asyncio.run(drive())
    after = keyring_of(anna)
    assert before.grants[0].bulletin == 0
    assert before.grants[0].keys[-1] != after.grants[0].keys[-1]


async def reload(home: Path) -> bool:
    report = await asyncio.to_thread(run_command, "node", "reload", "-c", str(home / "node.toml"))
    assert report.data is not None
    assert report.data["problems"] == []
    return bool(report.data["changed"])


def keyring_of(home: Path) -> Keyring:
    return read_secret(home / "member.keys", Keyring, Secret((home / "member.keys.passphrase").read_bytes().strip()))
