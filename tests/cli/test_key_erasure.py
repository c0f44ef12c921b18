"""Past epoch keys: a thief of the keyring and its passphrase does not open what was recorded in epochs long over."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from support.authority_members import EPOCHS, HOUR_US, NOW, TOPIC, make_authority_members
from veilcast.authority.keyring import Keyring
from veilcast.authority.secret_file import lock_directory, open_secret, read_secret, write_secret
from veilcast.authority.struct_codec import encode_struct
from veilcast.cli import key_erasure
from veilcast.cli.key_erasure import PAST_US, KeyErasure, first_kept_epoch
from veilcast.core.publication import NumberedPublication, make_notify, open_notify
from veilcast.crypto.passphrase import PassphraseCost, lock_bytes
from veilcast.crypto.secret import Secret
from veilcast.errors import ForgedError, StorageError
from veilcast.machine import Publication
from veilcast.net.clock import SystemClock

PASSPHRASE, CHEAP = Secret(b"known to the thief"), PassphraseCost(1, 1)
LATE_US = (NOW + 12) * HOUR_US + PAST_US
"""A time at which the first eleven epochs of the grants have been over for long enough."""


class FixedClock(SystemClock):
    def __init__(self, now: int) -> None:
        self._now = now

    def now(self) -> int:
        return self._now


def erasure(path: Path, now: int = LATE_US) -> tuple[KeyErasure, Keyring]:
    keyring, own = open_secret(path, Keyring, PASSPHRASE)
    return KeyErasure(path, keyring, own, FixedClock(now)), keyring


def stored(tmp_path: Path, keyring: Keyring) -> Path:
    write_secret(tmp_path / "keys", keyring, PASSPHRASE, cost=CHEAP, entropy=os.urandom)
    return tmp_path / "keys"


@pytest.mark.parametrize("name", ["bob", "alice"])
def test_a_thief_of_keyring_and_passphrase_opens_nothing_of_epochs_that_are_erased(name: str, tmp_path: Path) -> None:
    """The thief tries every secret of the keyring, in every epoch's place, on notifications of every epoch."""
    people = make_authority_members()
    keyring: Keyring = getattr(people, name)
    content = NumberedPublication(b"s" * 8, 1, Publication((("topic", TOPIC),), b"recorded"))
    epochs = range(NOW, NOW + EPOCHS)
    recorded = {
        epoch: make_notify(people.alice.keys_at(epoch).topic(TOPIC), content, people.entropy) for epoch in epochs
    }
    past = [keyring.keys_at(epoch).topic(TOPIC).content.reveal() for epoch in epochs]
    path = stored(tmp_path, keyring)
    former = os.open(path, os.O_RDONLY)
    eraser, held = erasure(path)
    eraser.erase_file(eraser.erase_memory())
    assert not any(os.pread(former, 1 << 20, 0)), "the old file's bytes are overwritten"
    os.close(former)
    first = first_kept_epoch(LATE_US, HOUR_US)
    assert first == NOW + 11
    for stolen in (read_secret(path, Keyring, PASSPHRASE), held):
        plain = encode_struct(stolen)
        assert not [key for epoch, key in zip(epochs, past, strict=True) if epoch < first and key in plain]
        opened = set()
        keys = [stolen.keys_at(epoch).topic(TOPIC) for epoch in epochs if TOPIC in stolen.keys_at(epoch).topics]
        for epoch, notify in recorded.items():
            for each in keys:
                try:
                    assert open_notify(each, notify).publication.body == b"recorded"
                    opened.add(epoch)
                except ForgedError:
                    pass
        assert opened == set(range(first, NOW + EPOCHS))


def test_the_checker_above_finds_keys_that_were_not_erased(tmp_path: Path) -> None:
    people = make_authority_members()
    path = stored(tmp_path, people.bob)
    plain = encode_struct(read_secret(path, Keyring, PASSPHRASE))
    assert all(key.reveal() in plain for grant in people.bob.grants for key in grant.keys)


def test_recent_keys_dates_and_paper_topics_are_not_erased(tmp_path: Path) -> None:
    people = make_authority_members()
    lasts = [grant.last(record) for grant, record in people.bob.records()]
    assert not people.bob.erase_past(NOW)
    assert people.bob.erase_past(NOW + 5)
    assert not people.bob.erase_past(NOW + 5)
    assert people.bob.erase_past(NOW + 9999)
    assert [grant.last(record) for grant, record in people.bob.records()] == lasts
    assert all(not grant.keys for grant in people.bob.grants)
    paper = make_authority_members("paper")
    assert not paper.bob.erase_past(NOW + 5)


def test_a_keyring_that_another_command_has_written_is_left_as_it_is(tmp_path: Path) -> None:
    people = make_authority_members()
    path = stored(tmp_path, people.bob)
    eraser, _ = erasure(path)
    stored(tmp_path, people.carol)
    eraser.erase_file(eraser.erase_memory())
    assert read_secret(path, Keyring, PASSPHRASE) == people.carol


def test_a_full_disk_or_a_command_at_work_leaves_the_old_file_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = stored(tmp_path, make_authority_members().bob)
    before = path.read_bytes()
    eraser, _ = erasure(path)
    first = eraser.erase_memory()
    with monkeypatch.context() as full:

        def no_room(*_: object) -> int:
            raise OSError(28, "No space left on device")

        full.setattr(os, "write", no_room)
        eraser.erase_file(first)
    with lock_directory(path.parent):
        eraser.erase_file(first)
    assert path.read_bytes() == before
    assert [path] == list(tmp_path.iterdir())
    assert len(caplog.records) == 1
    eraser.erase_file(first)
    assert read_secret(path, Keyring, PASSPHRASE).grants[0].first == first


def test_a_copy_under_another_name_is_not_overwritten(tmp_path: Path) -> None:
    path = stored(tmp_path, make_authority_members().bob)
    os.link(path, tmp_path / "copy")
    eraser, _ = erasure(path)
    eraser.erase_file(eraser.erase_memory())
    assert read_secret(tmp_path / "copy", Keyring, PASSPHRASE).grants[0].first == NOW


def test_a_file_that_a_killed_command_left_beside_the_keyring_is_erased_with_it(tmp_path: Path) -> None:
    """The thief opens every file of the directory; a command was killed between writing a new file and renaming it."""
    people = make_authority_members()
    path = stored(tmp_path, people.bob)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        patch.setattr(os, "replace", Mock(side_effect=OSError("killed here")))
        with pytest.raises(StorageError):
            stored(tmp_path, people.bob)
    [left] = [each for each in tmp_path.iterdir() if each != path]
    assert read_secret(left, Keyring, PASSPHRASE) == people.bob
    others = [tmp_path / name for name in (".other.abcdefgh.new", ".keys.more.abcdefgh.new", ".keys.new", "keys.new")]
    for other in others:
        other.write_bytes(b"not ours")
    held = os.open(left, os.O_RDONLY)
    eraser, _ = erasure(path)
    eraser.erase_file(eraser.erase_memory())
    assert not left.exists()
    assert not any(os.pread(held, 1 << 20, 0)), "its bytes are overwritten"
    os.close(held)
    assert all(other.read_bytes() == b"not ours" for other in others)


def test_a_running_node_erases_without_being_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = stored(tmp_path, make_authority_members().bob)
    eraser, held = erasure(path)
    monkeypatch.setattr(key_erasure, "LOOK_S", 0.0)

    async def watch() -> None:
        task = asyncio.create_task(eraser.watch())
        while read_secret(path, Keyring, PASSPHRASE).grants[0].first == NOW:
            await asyncio.sleep(0)
        task.cancel()

    asyncio.run(watch())
    assert held.grants[0].first == first_kept_epoch(LATE_US, HOUR_US)


def test_the_size_of_a_keyring_does_not_reveal_its_grants(tmp_path: Path) -> None:
    people = make_authority_members()
    sizes = {stored(tmp_path, keyring).stat().st_size for keyring in (people.alice, people.bob, people.carol)}
    people.bob.erase_past(NOW + 9999)
    sizes.add(stored(tmp_path, people.bob).stat().st_size)
    assert len(sizes) == 1


def test_a_keyring_of_the_former_format_opens_and_is_padded_when_it_is_written(tmp_path: Path) -> None:
    people, path = make_authority_members(), tmp_path / "keys"
    new = lock_bytes(encode_struct(people.bob), PASSPHRASE, purpose=b"veilcast/keyring", cost=CHEAP, entropy=os.urandom)
    assert new[4] == 2
    old = _version_1(encode_struct(people.bob))
    path.write_bytes(old)
    path.chmod(0o600)
    assert read_secret(path, Keyring, PASSPHRASE) == people.bob
    eraser, _ = erasure(path)
    eraser.erase_file(eraser.erase_memory())
    assert path.stat().st_size > 1 << 18
    assert read_secret(path, Keyring, PASSPHRASE).grants[0].first > NOW


def _version_1(plain: bytes) -> bytes:
    """Locked as the former release did it: without a length, and without zeros."""
    from veilcast.crypto import passphrase
    from veilcast.crypto.seal import seal

    salt = bytes(16)
    key, check = passphrase._stretch(PASSPHRASE, salt, CHEAP)
    header = b"VEIL" + bytes((1, CHEAP.passes)) + CHEAP.memory_mib.to_bytes(2, "big") + salt + check
    return header + seal(key, plain, context=b"veilcast/keyring" + header, entropy=os.urandom)
