"""The thief of a disk, in every mode: all files of members that are off, no passphrase, and an informant's knowledge.

The informant reads the same topic. It knows every notification with its id, all epoch keys, tokens and certificates,
the public keys and addresses of all members, and every unkeyed hash of these that the source has a purpose for.
"""

from __future__ import annotations

import asyncio
import base64
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import veilcast
from support import live_brokers, live_foil, live_relay, live_tree
from support.live_network import LiveNetwork
from support.waits import HANG_S, pause
from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.authority.secret_file import read_secret
from veilcast.cli.compose import compose
from veilcast.cli.files import passphrase_file
from veilcast.cli.local.network import KEYRING, NetworkPlan
from veilcast.crypto.derive import digest
from veilcast.crypto.key_agreement import public_of
from veilcast.crypto.secret import Secret
from veilcast.machine import Note
from veilcast.net.clock import SystemClock

BODIES = [f"a planted body, number {number}" for number in range(6)]
MODES = ["mesh", "relay", "tree", "foil", "brokers"]


class Seized(NamedTuple):
    """The thief's copy: a directory for each member, at the end and while all were running."""

    house: LiveNetwork
    off: Path
    on: Path
    notes: list[Note]
    """Notifications that the informant has read."""


@pytest.fixture(scope="module")
def seized(disks: Callable[[], Path]) -> Callable[[str], Seized]:
    """A network of each mode, made on first use: two subscribers that read all notes except the last, and a cover that
    reads none."""
    made: dict[str, Seized] = {}

    def of(mode: str) -> Seized:
        if mode not in made:
            made[mode] = _seize(mode, disks())
        return made[mode]

    return of


@pytest.mark.all_only
@pytest.mark.parametrize("mode", MODES)
def test_a_locked_disk_holds_nothing_that_an_informant_can_compute(mode: str, seized: Callable[[str], Seized]) -> None:
    disk = seized(mode)
    known = list(knowledge(disk))
    assert len(known) > 1_000
    for when in (disk.off, disk.on):
        for member in members(disk.house):
            for file in files(when / member):
                assert not found(file.read_bytes(), known), (member, file)


@pytest.mark.all_only
@pytest.mark.parametrize("mode", MODES)
def test_the_disks_of_two_readers_have_no_value_in_common(mode: str, seized: Callable[[str], Seized]) -> None:
    disk = seized(mode)
    one, two = disk.house.subscribers
    for when in (disk.off, disk.on):
        shared = values(when / one) & values(when / two)
        assert not {value for value in shared if isinstance(value, bytes)}
        assert shared <= values(when / disk.house.others[0])


@pytest.mark.all_only
@pytest.mark.parametrize("mode", MODES)
def test_the_disk_of_a_reader_looks_like_that_of_a_cover(mode: str, seized: Callable[[str], Seized]) -> None:
    """Also with unread notifications, and for a publisher with an empty outbox. Exception: in foil a publisher keeps
    its sessions with all fake streams."""
    disk = seized(mode)
    alike = members(disk.house)[1:] if mode == "foil" else members(disk.house)
    shapes = {member: shape(disk.off / member) for member in alike}
    assert len(set(shapes.values())) == 1, {member: str(shape)[-700:] for member, shape in shapes.items()}


@pytest.mark.parametrize("spell", [bytes, lambda data: data.hex().encode(), base64.b64encode])
def test_the_search_finds_what_is_planted(spell: Callable[[bytes], bytes]) -> None:
    known = [b"0123456789abcdef", b"another one that is not there"]
    for before in range(9):
        assert found(bytes(before) + spell(known[0]) + b"tail", known) == {known[0]}
    assert found(bytes(100) + spell(known[0])[:-9], known[1:]) == set()


# --- what the thief looks for -------------------------------------------------------------------------------


def knowledge(disk: Seized) -> Iterator[bytes]:
    """All byte strings that an informant knows, and all unkeyed hashes of them."""
    plain = {known for known in _plain(disk) if any(known)}
    yield from plain
    for known in plain:
        for purpose in purposes():
            yield digest(known, purpose=purpose)
            yield digest(known, purpose=purpose, size=16)


def _plain(disk: Seized) -> Iterator[bytes]:
    yield disk.house.net.topic.encode()
    yield from (body.encode() for body in BODIES)
    yield from (note.id for note in disk.notes)
    now = SystemClock().now()
    for member in members(disk.house):
        keyring = _keyring(disk.house.directory / member)
        chain = keyring.membership.certificate
        yield from (chain.leaf.subject, public_of(keyring.membership.link), chain.leaf.signature, keyring.root)
        yield from keyring.membership.tls
        for epoch in range(epoch_of(now, keyring.epoch_us) - 4, epoch_of(now, keyring.epoch_us) + 2):
            for keys in keyring.keys_at(epoch).topics.values() if epoch >= chain.leaf.first else ():
                yield from (keys.token, keys.lineage, keys.content.reveal())
                if keys.signing is not None and keys.certificate is not None:
                    yield from (keys.signing.public, keys.certificate.leaf.signature)
    yield from (address.encode() for address in (*disk.house.net.addresses, *disk.house.net.hosts) if address)


def purposes() -> set[bytes]:
    """The purposes of every hash in the source."""
    sources = Path(veilcast.__file__).parent.rglob("*.py")
    return {word.encode() for file in sources for word in re.findall(r'b"(vc/[a-z0-9/-]{1,13})"', file.read_text())}


def found(data: bytes, known: Iterable[bytes]) -> set[bytes]:
    """The strings that occur anywhere in these bytes, plain, in hex or in base64; short ones are skipped."""
    starts: dict[int, bytes] = {}
    for one in known:
        if len(one) >= 8:
            for text in (one, one.hex().encode(), base64.b64encode(one)):
                starts[int.from_bytes(text[:8], "little")] = one
    wanted = np.fromiter(starts, np.uint64)
    hits: set[bytes] = set()
    for offset in range(8):
        words = np.frombuffer(data, np.uint64, count=max(0, len(data) - offset) // 8, offset=min(offset, len(data)))
        hits |= {starts[int(word)] for word in words[np.isin(words, wanted)]}
    return hits


def files(directory: Path) -> list[Path]:
    """All files except the settings, which name the node's peers in clear, and in brokers the overlay, which all
    members have."""
    plain = (".toml", ".signed")
    return [file for file in directory.rglob("*") if file.is_file() and file.suffix not in plain]


def values(directory: Path) -> set[Any]:
    """All values of all rows; by table and column if they are no bytes."""
    every: set[Any] = set()
    for name, _, rows in tables(directory):
        for row in rows:
            every |= {cell if isinstance(cell, bytes) else (name, place, cell) for place, cell in enumerate(row)}
    return every


def shape(directory: Path) -> tuple[Any, ...]:
    """The thief's view without reading sealed bytes: rows by size, and file sizes."""
    counts: Counter[tuple[Any, ...]] = Counter()
    for name, made, rows in tables(directory):
        counts.update(
            (name, made, *(len(cell) if isinstance(cell, bytes | str) else -1 for cell in row)) for row in rows
        )
    sizes = ((file.relative_to(directory), file.stat().st_size) for file in files(directory))
    return tuple(sorted(counts.items())), tuple(sorted(sizes))


def tables(directory: Path) -> Iterator[tuple[str, str, list[tuple[Any, ...]]]]:
    for file in sorted(directory.rglob("*.sqlite")):
        connection = sqlite3.connect(file)
        for name, made in connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall():
            yield f"{file.name} {name}", made, connection.execute(f"SELECT * FROM {name}").fetchall()
        connection.close()


# --- the networks -------------------------------------------------------------------------------------------


def members(house: LiveNetwork) -> list[str]:
    return [house.publisher, *house.subscribers, *house.others]


class _MeshHouse(LiveNetwork):
    def service(self, name: str) -> Any:
        return compose(*self.member(name))


def _seize(mode: str, base: Path) -> Seized:
    notes: list[Note] = []

    async def live(house: Any) -> None:
        await _live(house, notes, base / "on")

    directory, houses = base / "net", list[LiveNetwork]()

    async def test(house: LiveNetwork) -> None:
        houses.append(house)
        await live(house)

    if mode == "mesh":
        _in_mesh(directory, NetworkPlan(nodes=6, profile="paper", publishers=1, subscribers=2), test)
    elif mode == "relay":
        live_relay.run_with_relay(directory, NetworkPlan(nodes=4, mode="relay", publishers=1, subscribers=2), test)
    elif mode == "tree":
        live_tree.run_with_tree(
            directory, NetworkPlan(nodes=5, mode="tree", publishers=1, subscribers=2, tor=False), test
        )
    elif mode == "foil":
        if not live_foil.has_mosquitto():
            pytest.skip("needs mosquitto")
        live_foil.run_with_foil(directory, NetworkPlan(nodes=4, mode="foil", publishers=1, subscribers=2), test)
    else:
        live_brokers.run_with_brokers(
            directory, NetworkPlan(nodes=4, mode="brokers", publishers=1, subscribers=2), test
        )
    _seize_files(houses[0], base / "off")
    return Seized(houses[0], base / "off", base / "on", notes)


async def _live(house: Any, notes: list[Note], on: Path) -> None:
    await house.start(*(house.brokers if hasattr(house, "brokers") else house.net.plan.hosts), *members(house))
    if hasattr(house, "wait_until_acquainted"):
        await house.wait_until_acquainted()
    topic, mesh = house.net.topic, house.net.plan.mode == "mesh"
    more = {"price": 500.0} if house.net.plan.mode == "foil" else {}
    async with AsyncExitStack() as clients:
        readers = [await clients.enter_async_context(house.client(reader)) for reader in house.subscribers]
        subscriptions = [me.subscribe(topic, keep=True) for me in readers]
        for me, subscription in zip(readers, subscriptions, strict=True):
            await subscription.start()
            await _until(me, lambda status: mesh or not status.waiting)
        publisher = await clients.enter_async_context(house.client(house.publisher))
        for body in cycle(BODIES):
            await publisher.publish(topic, body, **more)
            await pause()  # A mesh keeps nothing for a reader that it does not know yet.
            if all([(await me.status()).inbox >= len(BODIES) for me in readers]):
                break
        await _until(publisher, lambda status: not status.outbox)
        for subscription in subscriptions:
            notes += [await anext(subscription) for _ in BODIES[1:]]
            await subscription.acknowledge()
    assert len({note.id for note in notes}) >= len(BODIES) - 1
    _seize_files(house, on)


def _seize_files(house: LiveNetwork, target: Path) -> None:
    for member in members(house):
        for file in files(house.directory / member):
            place = target / file.relative_to(house.directory)
            place.parent.mkdir(parents=True, exist_ok=True)
            if file.name != passphrase_file(Path(KEYRING)).name:
                shutil.copy(file, place)


async def _until(me: Any, true: Callable[[Any], bool]) -> None:
    while not true(await me.status()):
        await pause()


def _in_mesh(directory: Path, plan: NetworkPlan, test: Callable[[LiveNetwork], Awaitable[None]]) -> None:
    async def run() -> None:
        house = _MeshHouse(directory, plan)
        try:
            async with asyncio.timeout(HANG_S):
                await test(house)
        finally:
            await house.end()

    asyncio.run(run())


def _keyring(directory: Path) -> Keyring:
    path = directory / KEYRING
    return read_secret(path, Keyring, Secret(passphrase_file(path).read_bytes()))
