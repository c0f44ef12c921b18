"""From a node's file to its parts: errors in keyring or bulletins are reported, and valid ones are used."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from veilcast.authority import issuer
from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.authority.revocation import RevokedKeys
from veilcast.authority.secret_file import write_secret
from veilcast.authority.struct_codec import encode_struct
from veilcast.cli import compose
from veilcast.crypto.passphrase import PassphraseCost
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError, ExpiredError, ForgedError
from veilcast.link.machine import LinkMachine
from veilcast.node.config import NodeConfig, parse_config

HOUR_US = 3_600_000_000
SECRET = Secret(b"correct horse")


class NodeFiles:
    """An authority with two members, and a directory with the node of one."""

    def __init__(self, directory: Path, first: int = 0, epochs: int = 3) -> None:
        self.now = epoch_of(time.time_ns() // 1000, HOUR_US)
        self.directory = directory
        authority = issuer.create(HOUR_US, os.urandom)
        authority, alice = issuer.grant_ready(authority, "alice", [], self.now + first, epochs, os.urandom)
        authority, self.mallory = issuer.grant_ready(authority, "mallory", [], self.now, 3, os.urandom)
        self.authority = authority
        write_secret(directory / "alice.keys", alice, SECRET, cost=PassphraseCost(1, 8), entropy=os.urandom)

    @property
    def config(self) -> NodeConfig:
        return parse_config(b'keyring = "alice.keys"\nlisten = "127.0.0.1:4000"\n', self.directory / "node.toml")

    def revoke_mallory(self) -> bytes:
        # As of the epoch before, so that it is in force now.
        authority = issuer.revoke(self.authority, "mallory", None, self.now - 1, os.urandom)
        assert authority.bulletin is not None
        return encode_struct(authority.bulletin)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[RevokedKeys]:
    """Return the revoked keys that the links received."""
    seen: list[RevokedKeys] = []

    def links(*arguments: Any, revoked: RevokedKeys) -> LinkMachine:
        seen.append(revoked)
        return LinkMachine(*arguments, revoked=revoked)

    monkeypatch.setattr("veilcast.link.machine.LinkMachine", links)
    return seen


def test_a_revoked_member_gets_no_link(tmp_path: Path, given: list[RevokedKeys]) -> None:
    files = NodeFiles(tmp_path)
    _composed(files)
    _check(given[0], files.mallory, files.now)
    (tmp_path / "bulletins").mkdir()
    (tmp_path / "bulletins" / "000001.bulletin").write_bytes(files.revoke_mallory())
    _composed(files)
    with pytest.raises(ForgedError):
        _check(given[1], files.mallory, files.now)


def test_a_bulletin_that_does_not_hold_is_named(tmp_path: Path) -> None:
    files = NodeFiles(tmp_path)
    place = tmp_path / "bulletins" / "000001.bulletin"
    place.parent.mkdir()
    (tmp_path / "other").mkdir()
    for wrong in (b"not a bulletin", NodeFiles(tmp_path / "other").revoke_mallory()):
        place.write_bytes(wrong)
        with pytest.raises(ConfigError, match=r"^bulletins: .*000001\.bulletin is not of this keyring's authority"):
            _composed(files)


@pytest.mark.parametrize(
    ("first", "told"), [(-4, "the membership ended 20.* UTC; ask the authority"), (2, "the membership begins 20.* UTC")]
)
def test_a_keyring_that_is_over_or_to_come_is_reported_by_date(first: int, told: str, tmp_path: Path) -> None:
    with pytest.raises(ExpiredError, match=told):
        _composed(NodeFiles(tmp_path, first))


def _composed(files: NodeFiles) -> None:
    with compose.compose(files.config, SECRET):
        pass


def _check(revoked: RevokedKeys, keyring: Keyring, epoch: int) -> None:
    revoked.check(keyring.membership.certificate, epoch)
