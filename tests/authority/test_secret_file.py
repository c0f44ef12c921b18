from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from support.waits import HANG_S
from veilcast.authority import secret_file
from veilcast.authority.issuer import Authority
from veilcast.authority.keyring import Keyring
from veilcast.authority.request import PendingRequest, make_request
from veilcast.authority.secret_file import (
    FILE_MAX,
    lock_directory,
    read_private_file,
    read_secret,
    replace_file,
    write_secret,
)
from veilcast.authority.struct_codec import decode_struct, encode_struct
from veilcast.crypto.passphrase import PassphraseCost
from veilcast.crypto.secret import Secret
from veilcast.errors import PassphraseError, PermissionsError, StorageError, TamperedError

CHEAP = PassphraseCost(passes=1, memory_mib=1)
RIGHT = Secret(b"right")
ENTROPY = random.Random(5).randbytes


THING = make_request("t", "subscriber", 1, 0, 1, ENTROPY)


def test_a_secret_file_opens_with_its_passphrase_and_kind_only(tmp_path: Path) -> None:
    path = tmp_path / "thing"
    write_secret(path, THING, RIGHT, cost=CHEAP, entropy=ENTROPY)
    assert read_secret(path, PendingRequest, RIGHT) == THING
    assert path.stat().st_mode & 0o777 == 0o600
    assert THING.seed.reveal() not in path.read_bytes()
    with pytest.raises(PassphraseError, match="thing"):
        read_secret(path, PendingRequest, Secret(b"wrong"))
    with pytest.raises(TamperedError, match="thing"):
        read_secret(path, Keyring, RIGHT)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(TamperedError):
        read_secret(path, PendingRequest, RIGHT)


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "theirs"
    replace_file(path, b"x")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(PermissionsError, match="another user"):
        read_private_file(path)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o620])
def test_a_file_that_other_users_may_open_is_refused(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "open"
    replace_file(path, b"x")
    path.chmod(mode)
    with pytest.raises(PermissionsError, match="chmod 600"):
        read_private_file(path)


def test_missing_directories_and_huge_files_are_one_line_errors(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file"):
        read_private_file(tmp_path / "nothing")
    with pytest.raises(StorageError, match="cannot write"):
        replace_file(tmp_path / "no" / "such", b"")
    huge = tmp_path / "huge"
    replace_file(huge, b"")
    os.truncate(huge, FILE_MAX + 1)
    with pytest.raises(TamperedError):
        read_private_file(huge)
    with pytest.raises(StorageError, match="larger"):
        replace_file(huge, bytes(FILE_MAX + 1))


@pytest.mark.parametrize("link", [True, False])
def test_a_link_or_a_file_in_the_way_is_not_written_to(
    link: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if an attacker guesses the name of the temporary file."""
    monkeypatch.setattr(tempfile, "_get_candidate_names", lambda: iter(("guessed", "another")))
    victim, guessed = tmp_path / "victim", tmp_path / ".file.guessed.new"
    victim.write_bytes(b"precious")
    if link:
        guessed.symlink_to(victim)
    else:
        os.link(victim, guessed)
    replace_file(tmp_path / "file", b"secret")
    assert victim.read_bytes() == guessed.read_bytes() == b"precious"
    assert (tmp_path / "file").read_bytes() == b"secret"


def test_a_write_killed_at_any_moment_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    """A process dies at its n-th system call of the write, for every n, until one lives to the end."""
    path = tmp_path / "file"
    program = [sys.executable, "-c", _DYING, str(path)]
    told = subprocess.run(program, stdout=subprocess.PIPE, check=True, timeout=HANG_S).stdout
    outcomes = [(code, bytes.fromhex(content)) for code, content in json.loads(told)]
    assert {content for _, content in outcomes} == {b"old", b"new" * 1000}
    assert outcomes[0] == (9, b"old")
    assert outcomes[-1] == (0, b"new" * 1000)
    assert len(outcomes) > 5
    replace_file(path, b"after")
    assert path.read_bytes() == b"after"


def test_a_full_disk_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    replace_file(path, b"old")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StorageError, match="No space left"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_directory_serves_one_command_at_a_time(tmp_path: Path) -> None:
    with lock_directory(tmp_path), pytest.raises(StorageError, match="in use"), lock_directory(tmp_path):
        pass
    with lock_directory(tmp_path):
        pass


def test_plain_bytes_of_another_kind_or_version_are_not_taken() -> None:
    data = encode_struct(THING)
    assert decode_struct(data, PendingRequest, TamperedError) == THING
    assert data[:5] == b"VCas\x03"
    for bad in (
        b"",
        data[:4],
        data[:4] + b"\x01" + data[5:],
        data[:-1],
        encode_struct(THING.request),
        data[:5] + b"\xc1",
    ):
        with pytest.raises(TamperedError):
            decode_struct(bad, PendingRequest, TamperedError)


def test_two_writers_never_tear_a_file(tmp_path: Path) -> None:
    """Writers in several processes at once: a reader sees one whole content or another, and no write fails."""
    path = tmp_path / "file"
    replace_file(path, b"a" * 5000)
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER, str(path), letter]) for letter in "bcd"]
    while any(writer.poll() is None for writer in writers):
        content = path.read_bytes()
        assert content == content[:1] * 5000
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


_WRITER = """
import sys
from pathlib import Path
from veilcast.authority.secret_file import replace_file
for _ in range(50):
    replace_file(Path(sys.argv[1]), sys.argv[2].encode() * 5000)
"""

# Each write is a fork of an interpreter that has its imports already.
_DYING = """
import json, os, sys
from pathlib import Path
from veilcast.authority.secret_file import replace_file

def dying(call, left):
    def counted(*arguments, **options):
        left[0] -= 1
        if left[0] == 0:
            os._exit(9)
        if call is os_write:  # short writes, so that the file is half-written at some step
            return call(arguments[0], bytes(arguments[1])[:700])
        return call(*arguments, **options)
    return counted

os_write, path, outcomes = os.write, Path(sys.argv[1]), []
for step in range(1, 50):
    replace_file(path, b"old")
    child = os.fork()
    if child == 0:
        left = [step]
        for name in ("open", "fchmod", "write", "fsync", "close", "replace"):
            setattr(os, name, dying(getattr(os, name), left))
        replace_file(path, b"new" * 1000)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    outcomes.append((code, path.read_bytes().hex()))
    if code == 0:
        break
    for leftover in path.parent.glob(".file.*.new"):
        leftover.unlink()
print(json.dumps(outcomes))
"""


def test_a_write_that_is_interrupted_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    replace_file(path, b"old")

    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replace_file(path, b"a new secret")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == b"old"


def test_the_purposes_of_locked_files_never_change() -> None:
    """A file that was locked under one purpose does not open under another."""
    purposes = [secret_file._purpose(kind) for kind in (Authority, Keyring, PendingRequest)]
    assert purposes == [b"veilcast/authority", b"veilcast/keyring", b"veilcast/asking"]
