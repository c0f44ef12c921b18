"""Bulletins in a directory: those that arrive while a process runs count, and invalid ones do no harm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from veilcast.authority import issuer
from veilcast.authority.issuer import Authority
from veilcast.authority.struct_codec import encode_struct
from veilcast.cli.files import publish_bulletin
from veilcast.cli.identity import BulletinDirectory
from veilcast.errors import ConfigError, ForgedError

HOUR_US = 3_600_000_000
NOW = 10 * HOUR_US


def revocation(authority: Authority) -> bytes:
    authority = issuer.revoke(authority, "mallory", None, 9, os.urandom)
    assert authority.bulletin is not None
    return encode_struct(authority.bulletin)


def test_a_bulletin_that_comes_later_counts_and_one_that_does_not_hold_is_left_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = issuer.create(HOUR_US, os.urandom)
    authority, alice = issuer.grant_ready(authority, "alice", [], 10, 3, os.urandom)
    authority, mallory = issuer.grant_ready(authority, "mallory", [], 10, 3, os.urandom)
    void = BulletinDirectory(tmp_path / "bulletins", alice, NOW)
    void.check(mallory.membership.certificate, 10)
    (tmp_path / "bulletins").mkdir()
    (tmp_path / "bulletins" / "000001.bulletin").write_bytes(b"no bulletin")
    for _ in range(2):
        void.check(mallory.membership.certificate, 10)
    assert len(caplog.records) == 1
    whole = revocation(authority)
    (tmp_path / "bulletins" / "000002.bulletin").write_bytes(whole[:50])
    void.check(mallory.membership.certificate, 10)
    (tmp_path / "bulletins" / "000002.bulletin").write_bytes(whole)
    with pytest.raises(ForgedError, match="revoked"):
        void.check(mallory.membership.certificate, 10)
    void.check(alice.membership.certificate, 10)
    with pytest.raises(ConfigError, match=r"000001\.bulletin is not of this keyring's authority"):
        BulletinDirectory(tmp_path / "bulletins", alice, NOW)


def test_a_bulletin_of_a_sub_authority_whose_time_is_over_keeps_no_node_from_starting(tmp_path: Path) -> None:
    """Its names are over, too: no certificate of this sub-authority is valid any more."""
    root, sub = issuer.delegate(issuer.create(HOUR_US, os.urandom), "chess", 8, 3, os.urandom)
    root, alice = issuer.grant_ready(root, "alice", [], 10, 9, os.urandom)
    sub, _ = issuer.grant_ready(sub, "mallory", [], 9, 2, os.urandom)
    (tmp_path / "000001.bulletin").write_bytes(revocation(sub))
    assert len(BulletinDirectory(tmp_path, alice, NOW)) == 1
    assert len(BulletinDirectory(tmp_path, alice, NOW + HOUR_US)) == 0


def test_a_bulletin_that_takes_the_place_of_one_of_the_same_size_is_read(tmp_path: Path) -> None:
    """Bulletins are padded: that of another revocation often has the same size."""
    authority = issuer.create(HOUR_US, os.urandom)
    authority, alice = issuer.grant_ready(authority, "alice", [], 10, 3, os.urandom)
    authority, _ = issuer.grant_ready(authority, "bob", [], 10, 3, os.urandom)
    authority, mallory = issuer.grant_ready(authority, "mallory", [], 10, 3, os.urandom)
    first = issuer.revoke(authority, "bob", None, 9, os.urandom).bulletin
    assert first is not None
    path, second = tmp_path / "newest.bulletin", revocation(authority)
    path.write_bytes(encode_struct(first))
    void = BulletinDirectory(tmp_path, alice, NOW)
    void.check(mallory.membership.certificate, 10)
    assert len(second) == path.stat().st_size
    (tmp_path / "copy").write_bytes(second)
    (tmp_path / "copy").replace(path)
    with pytest.raises(ForgedError, match="revoked"):
        void.check(mallory.membership.certificate, 10)


def test_the_bulletins_of_a_sub_authority_do_not_take_the_place_of_the_roots(tmp_path: Path) -> None:
    root = issuer.create(HOUR_US, os.urandom)
    root, alice = issuer.grant_ready(root, "alice", [], 10, 3, os.urandom)
    root, mallory = issuer.grant_ready(root, "mallory", [], 10, 3, os.urandom)
    written = []
    for group in ("chess", "go"):
        root, sub = issuer.delegate(root, group, 9, 5, os.urandom)
        sub, _ = issuer.grant_ready(sub, "mallory", [], 9, 2, os.urandom)
        written.append(publish_bulletin(tmp_path / group, issuer.revoke(sub, "mallory", None, 9, os.urandom)))
    written.insert(0, publish_bulletin(tmp_path / "root", issuer.revoke(root, "mallory", None, 9, os.urandom)))
    (tmp_path / "node").mkdir()
    for path in written:
        (tmp_path / "node" / path.name).write_bytes(path.read_bytes())
    with pytest.raises(ForgedError, match="revoked"):
        BulletinDirectory(tmp_path / "node", alice, NOW).check(mallory.membership.certificate, 10)
