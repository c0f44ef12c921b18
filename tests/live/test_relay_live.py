"""A relay in service on loopback: publications arrive, whichever party is away; and a refused client is told why."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Literal

import pytest

from support.live_network import wait_for_status
from support.live_relay import LiveRelay, run_with_relay
from veilcast import LocalError, Range
from veilcast.authority import issuer
from veilcast.authority.epoch import epoch_of
from veilcast.authority.issuer import Authority
from veilcast.authority.secret_file import read_private_file, read_secret
from veilcast.authority.struct_codec import encode_struct
from veilcast.cli.context import Context
from veilcast.cli.files import state_file
from veilcast.cli.local.network import NetworkPlan
from veilcast.crypto.secret import Secret
from veilcast.net.client import Client

PLAN = NetworkPlan(nodes=3, mode="relay", publishers=1, subscribers=2)


@pytest.mark.parametrize("profile", ["hardened", "paper"])
def test_every_reader_gets_what_is_published_once(profile: Literal["hardened", "paper"], disk: Path) -> None:
    async def test(house: LiveRelay) -> None:
        await house.start(*house.names())
        for reader in house.subscribers:
            await house.subscribe(reader)
        await house.publish("one", "two", "three")
        for reader in house.subscribers:
            assert await house.read(reader, 3) == ["one", "three", "two"]

    run_with_relay(disk, NetworkPlan(nodes=3, mode="relay", profile=profile, subscribers=2), test)


def test_who_was_away_gets_what_was_published_meanwhile_and_hosts_may_begin_anew(disk: Path) -> None:
    async def test(house: LiveRelay) -> None:
        reader, publisher = house.subscribers[0], house.publisher
        await house.start("server", "proxy", publisher, reader)
        await house.subscribe(reader)
        await house.stop(reader)
        await house.publish("while the reader was away")
        await house.stop("server", "proxy", publisher)
        await house.start("server", "proxy", publisher, reader)
        await house.publish("after all had begun anew")
        assert await house.read(reader, 2) == ["after all had begun anew", "while the reader was away"]
        async with house.client(reader) as me:
            assert (await me.status()).inbox == 0

    run_with_relay(disk, PLAN, test)


def test_a_publication_waits_on_the_disk_until_there_is_a_relay(disk: Path) -> None:
    async def test(house: LiveRelay) -> None:
        reader = house.subscribers[0]
        await house.start(reader, house.publisher)
        async with house.client(house.publisher) as me:
            await me.publish(house.net.topic, "early")
            told = await wait_for_status(me, lambda status: bool(status.hindrances))
            assert told.outbox == 1
            assert told.hindrances == (f"no way to {house.net.hosts[1]}: nobody answers there",)
        await house.start("server", "proxy")
        async with house.client(reader) as me:
            await me.subscribe(house.net.topic, keep=True).start()
        async with house.client(house.publisher) as me:
            await wait_for_status(me, lambda status: not status.outbox and not status.hindrances)

    run_with_relay(disk, PLAN, test)


def test_a_full_server_says_so_and_the_member_hears_it(disk: Path) -> None:
    async def test(house: LiveRelay) -> None:
        with house.file("server").open("a") as file:
            file.write("[relay]\nleases_max = 1\n")
        one, other = house.subscribers
        await house.start("server", "proxy", one, other)
        async with house.client(one) as first, house.client(other) as second:
            hears = [asyncio.ensure_future(_hindrance(house, each)) for each in (first, second)]
            done, pending = await asyncio.wait(hears, return_when=asyncio.FIRST_COMPLETED)
            for each in pending:
                each.cancel()
            assert done.pop().result().startswith("the relay is full; there may be room later")

    run_with_relay(disk, PLAN, test)


async def _hindrance(house: LiveRelay, member: Client) -> str:
    """What a member that subscribes is told first."""
    await member.subscribe(house.net.topic).start()
    return (await wait_for_status(member, lambda status: bool(status.hindrances))).hindrances[0]


def test_a_subscription_that_no_relay_could_serve_is_refused_at_once(disk: Path) -> None:
    async def test(house: LiveRelay) -> None:
        reader = house.subscribers[0]
        await house.start("server", "proxy", reader)
        async with house.client(reader) as me:
            with pytest.raises(LocalError, match="temp"):
                await me.subscribe(Range("temp", 20, 25)).start()

    run_with_relay(disk, PLAN, test)


def test_a_revoked_member_is_not_let_in_and_hears_no_more_than_that(disk: Path) -> None:
    async def test(house: LiveRelay) -> None:
        reader = house.subscribers[0]
        bulletins = house.directory / "proxy" / "bulletins"
        bulletins.mkdir()
        await house.start("server", "proxy", house.subscribers[1])
        (bulletins / "000001.bulletin").write_bytes(revocation(house, reader))
        await house.start(reader)
        async with house.client(reader) as me:
            told = await wait_for_status(me, lambda status: bool(status.hindrances))
            assert told.hindrances == (f"no way to {house.net.hosts[1]}: it does not let us in",)
        async with house.client(house.subscribers[1]) as me:
            await wait_for_status(me, lambda status: bool(status.neighbours))

    run_with_relay(disk, PLAN, test)


def test_a_host_of_another_role_or_another_authority_is_not_trusted(disk: Path) -> None:
    async def test(house: LiveRelay) -> None:
        confused = house.subscribers[0]
        server, proxy = house.net.hosts
        await house.start("server", "proxy")
        house.edit_file(confused, proxy, server)
        other = LiveRelay(disk / "other", PLAN)
        other.edit_file(other.subscribers[0], other.net.hosts[1], proxy)
        await house.start(confused)
        async with house.client(confused) as me:
            told = await wait_for_status(me, lambda status: bool(status.hindrances))
            assert told.hindrances == (f"no way to {server}: its certificate is for another role",)
        try:
            await other.start(other.subscribers[0])
            async with other.client(other.subscribers[0]) as me:
                told = await wait_for_status(me, lambda status: bool(status.hindrances))
                assert told.hindrances == (f"no way to {proxy}: its certificate is not of our authority",)
        finally:
            await other.end()

    run_with_relay(disk / "one", PLAN, test)


def revocation(house: LiveRelay, member: str) -> bytes:
    """A revocation as of the epoch before, so that it is in force now."""
    home = house.directory / "authority"
    authority = read_secret(state_file(home), Authority, Secret(read_private_file(home / "passphrase")))
    now = epoch_of(Context().now_us(), authority.epoch_us)
    authority = issuer.revoke(authority, member, None, now - 1, os.urandom)
    assert authority.bulletin is not None
    return encode_struct(authority.bulletin)
