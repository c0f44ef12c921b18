"""New keys for a running node: it takes bulletins of its directory and renewed grants without a restart."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from pathlib import Path

import pytest

from support.authority_members import EPOCHS, HOUR_US, NOW, TOPIC, AuthorityMembers, bulletin_of, make_authority_members
from veilcast.authority import issuer
from veilcast.authority.keyring import EpochKeyCache, Keyring
from veilcast.authority.request import complete_request, make_request
from veilcast.authority.secret_file import lock_directory, open_secret, read_secret, rewrite_secret, write_secret
from veilcast.authority.struct_codec import encode_struct
from veilcast.cli.key_updates import KeyUpdates
from veilcast.crypto.passphrase import PassphraseCost, PassphraseLock
from veilcast.crypto.secret import Secret
from veilcast.errors import AuthorityError
from veilcast.net import service
from veilcast.net.clock import SystemClock
from veilcast.node.member_view import describe_ending

PASSPHRASE, CHEAP = Secret(b"passphrase"), PassphraseCost(1, 1)


class FixedClock(SystemClock):
    def __init__(self, epoch: float = NOW) -> None:
        self._now = int(epoch * HOUR_US)

    def now(self) -> int:
        return self._now


class RunningMember:
    """A member's files, and the part of its running node that takes new keys."""

    def __init__(self, home: Path, keyring: Keyring, epoch: float = NOW) -> None:
        self.path, self.bulletins = home / "keys", home / "bulletins"
        self.bulletins.mkdir()
        write_secret(self.path, keyring, PASSPHRASE, cost=CHEAP, entropy=os.urandom)
        self.lock: PassphraseLock
        self.keyring, self.lock = open_secret(self.path, Keyring, PASSPHRASE)
        self.updates = KeyUpdates(self.path, self.bulletins, self.keyring, self.lock, FixedClock(epoch))

    def put(self, state: issuer.Authority) -> None:
        (self.bulletins / f"{state.bulletins:06}.bulletin").write_bytes(encode_struct(bulletin_of(state)))

    def look(self) -> bool:
        return asyncio.run(self.updates.look())

    def reload(self) -> tuple[bool, tuple[str, ...]]:
        return asyncio.run(self.updates.reload())

    def stored(self) -> Keyring:
        return read_secret(self.path, Keyring, PASSPHRASE)


@pytest.fixture
def people() -> AuthorityMembers:
    return make_authority_members()


def test_a_bulletin_in_the_directory_is_applied_to_file_and_memory(people: AuthorityMembers, tmp_path: Path) -> None:
    running, cache = RunningMember(tmp_path, people.bob), None
    cache = EpochKeyCache(running.keyring, 8)
    before = cache.at(NOW + 1).topic(TOPIC).content
    assert running.look() is False
    revoked = issuer.revoke(people.authority, "mallory", None, NOW, people.entropy)
    running.put(revoked)
    assert running.look() is True
    assert cache.at(NOW + 1).topic(TOPIC).content != before
    assert cache.at(NOW + 1).topic(TOPIC).content == running.stored().keys_at(NOW + 1).topic(TOPIC).content
    assert running.look() is False
    assert running.reload() == (False, ())


def test_bulletins_are_applied_in_their_order_and_a_missing_one_is_told(
    people: AuthorityMembers, tmp_path: Path
) -> None:
    running = RunningMember(tmp_path, people.bob)
    first = issuer.rotate(people.authority, TOPIC, NOW, people.entropy)
    second = issuer.rotate(first, TOPIC, NOW, people.entropy)
    running.put(second)
    assert running.reload() == (False, ("bulletin 1 is missing; apply it before number 2",))
    running.put(first)
    assert running.reload() == (True, ())
    assert {grant.bulletin for grant in running.keyring.grants if grant.first == NOW} == {2}


def test_a_file_that_is_no_bulletin_of_this_authority_changes_nothing(people: AuthorityMembers, tmp_path: Path) -> None:
    running = RunningMember(tmp_path, people.bob)
    other = make_authority_members(seed=9)
    running.put(issuer.rotate(other.authority, TOPIC, NOW, other.entropy))
    (running.bulletins / "x.bulletin").write_bytes(b"half a bullet")
    before = running.path.read_bytes()
    assert running.reload() == (False, ())
    assert running.path.read_bytes() == before


def test_a_renewed_grant_is_adopted(people: AuthorityMembers, tmp_path: Path) -> None:
    running = RunningMember(tmp_path, people.carol)
    later = NOW + EPOCHS - 1
    asking = make_request(
        TOPIC, "subscriber", HOUR_US, later, EPOCHS, people.entropy, running.keyring.membership.link, tls=True
    )
    _, reply = issuer.grant(people.authority, "carol", asking.request, later, EPOCHS, people.entropy)
    renewed = complete_request(asking, reply, running.stored())
    rewrite_secret(running.path, renewed, running.lock, os.urandom)
    assert running.look() is True
    assert running.keyring.keys_at(later + EPOCHS - 1).topic(TOPIC)


def test_the_keyring_of_another_member_is_not_adopted(people: AuthorityMembers, tmp_path: Path) -> None:
    running = RunningMember(tmp_path, people.bob)
    rewrite_secret(running.path, people.carol, running.lock, os.urandom)
    changed, (problem,) = running.reload()
    assert not changed
    assert "of another member or network; restart the node" in problem
    assert running.keyring == people.bob


def test_another_passphrase_is_told(people: AuthorityMembers, tmp_path: Path) -> None:
    running = RunningMember(tmp_path, people.bob)
    write_secret(running.path, people.bob, Secret(b"another"), cost=CHEAP, entropy=os.urandom)
    assert running.reload() == (False, ("the keyring has another passphrase now; restart the node to use it",))


def test_a_file_that_another_command_writes_is_looked_at_again(people: AuthorityMembers, tmp_path: Path) -> None:
    running = RunningMember(tmp_path, people.bob)
    running.put(issuer.rotate(people.authority, TOPIC, NOW, people.entropy))
    with lock_directory(tmp_path):
        changed, (problem,) = running.reload()
    assert not changed
    assert "in use by another command" in problem
    assert running.look() is True


def test_files_that_did_not_change_are_not_read_again(
    people: AuthorityMembers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = RunningMember(tmp_path, people.bob)
    running.look()

    def fail() -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(running.updates, "_read", fail)
    assert running.look() is False


def test_keys_that_were_erased_do_not_come_back(people: AuthorityMembers, tmp_path: Path) -> None:
    """The file still has past keys, because its erasure failed; memory has not."""
    running = RunningMember(tmp_path, people.bob, NOW + 40)
    running.keyring.erase_past(NOW + 10)
    running.put(issuer.rotate(people.authority, TOPIC, NOW + 12, people.entropy))
    running.look()
    assert min(grant.first for grant in running.keyring.grants) >= NOW + 10
    assert min(grant.first for grant in running.stored().grants) >= NOW + 10


def test_a_cache_forgets_when_its_keyring_adopts_and_holds_so_many_epochs(people: AuthorityMembers) -> None:
    cache = EpochKeyCache(people.bob, 2)
    one = cache.at(NOW)
    assert cache.at(NOW) is one
    for epoch in (NOW + 1, NOW + 2):
        cache.at(epoch)
    assert len(cache._cached) == 2
    cache.forget_before(NOW + 2)
    assert list(cache._cached) == [NOW + 2]
    assert people.bob.adopt(people.bob) is False
    with pytest.raises(AuthorityError):
        people.bob.adopt(people.carol)


@pytest.mark.parametrize(
    ("epoch", "told"),
    [
        (NOW, 0),
        (NOW + EPOCHS * 0.7, 0),
        (NOW + EPOCHS - 5, 1),
        (NOW + EPOCHS + 1, 0),
    ],
)
def test_a_membership_that_ends_soon_says_so_until_it_has_ended(
    people: AuthorityMembers, epoch: float, told: int
) -> None:
    lines = describe_ending(people.bob, int(epoch * HOUR_US))
    assert len(lines) == told
    assert all(line == "the membership ends in 5 hours; ask the authority to renew it" for line in lines)


def test_a_hangup_lets_a_service_reload_and_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a supervisor; in a terminal the signal ends the process, as ever."""
    monkeypatch.setattr("sys.stdin", io.StringIO())
    calls = []

    async def reload() -> None:
        calls.append(1)

    async def run() -> None:
        with service._hangup(reload):
            os.kill(os.getpid(), signal.SIGHUP)
            while not calls:
                await asyncio.sleep(0)
        assert signal.getsignal(signal.SIGHUP) is before

    before = signal.getsignal(signal.SIGHUP)
    asyncio.run(run())
    assert calls == [1]
