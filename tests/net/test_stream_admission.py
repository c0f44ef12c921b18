"""Peers that must not get in, and what they see of us: on real sockets, with Python's own TLS on the other side."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from support.forged_certificates import MEMBER, SERVER, forge_certificates
from support.scripted_machine import ScriptedMachine
from support.tls_parties import QUICK_LIMITS, TlsParties, run_driver, run_host, wait_until
from support.waits import pause
from veilcast.authority import issuer
from veilcast.authority.role import derive_tls_key
from veilcast.crypto import x509
from veilcast.crypto.x509 import Leaf, as_pem, certify_leaf, key_as_pem, read_leaf
from veilcast.machine import Address, Connect, Frame
from veilcast.net import close_reasons
from veilcast.net.records import encode_record
from veilcast.net.stream_limits import StreamLimits
from veilcast.net.streams import TlsStreamDriver
from veilcast.net.tls import StreamIdentity, client_context, server_context

CROWD = TlsParties()
PROXY, ALICE = CROWD.proxy(), CROWD.member("alice")
BOB_RING = CROWD.ring("bob")


def run(test: Any) -> None:
    asyncio.run(test)


def forged_proxy() -> StreamIdentity:
    """Bob certifies himself as a proxy, with his own key as the issuer's."""
    key, own = derive_tls_key(BOB_RING.membership.link), BOB_RING.membership.tls
    leaf = read_leaf(own[0])
    forged = certify_leaf(key, Leaf(bytes(16), leaf.public, key.public, True, True, leaf.first_s, leaf.last_s))
    identity = CROWD.identity(BOB_RING)
    return dataclasses.replace(identity, chain=as_pem(forged, own[0]), key=key_as_pem(key).reveal())


def better_forged_proxy() -> StreamIdentity:
    """Like `forged_proxy`, with matching names of issuer and subject: only the flags of Bob's certificate are wrong."""
    key = derive_tls_key(BOB_RING.membership.link)
    chain = as_pem(*forge_certificates(BOB_RING, bytes(16), MEMBER, SERVER))
    return dataclasses.replace(CROWD.identity(BOB_RING), chain=chain, key=key_as_pem(key).reveal())


def appointed(*, named_issuer: str = "itself") -> StreamIdentity:
    """A proxy that a sub-authority appoints, with code of its own; it may name the root as the issuer."""
    _, sub = issuer.delegate(CROWD.authority, "chess", CROWD.epoch - 1, 3, CROWD.entropy)
    _, theirs = issuer.grant_ready(sub, "evil", [], CROWD.epoch - 1, 3, CROWD.entropy, "member")
    leaf = msgspec.structs.replace(read_leaf(theirs.membership.tls[0]), calls=True, answers=True)
    if named_issuer == "the root":
        root = msgspec.structs.replace(leaf, issuer=CROWD.authority.root)
        forged = x509._sign_certificate(x509._leaf_builder(root), sub.key)
    else:
        forged = certify_leaf(sub.key, leaf)
    key = key_as_pem(derive_tls_key(theirs.membership.link)).reveal()
    return dataclasses.replace(CROWD.member("stand-in"), chain=as_pem(forged, sub.tls[0]), key=key)


def revoked() -> StreamIdentity:
    identity = CROWD.member("mallory")
    CROWD.revoke("mallory")
    return identity


CALLERS: dict[str, tuple[Callable[[], StreamIdentity], str]] = {
    "of another authority": (lambda: TlsParties(8).member("alice"), close_reasons.STRANGE),
    "expired": (lambda: CROWD.identity(CROWD.ring("old", first=-9, epochs=2)), close_reasons.OVER),
    "not yet valid": (lambda: CROWD.identity(CROWD.ring("early", first=2)), close_reasons.OVER),
    "a server, who only answers": (lambda: CROWD.identity(CROWD.ring("server", "server")), close_reasons.UNFIT),
    "another proxy": (lambda: CROWD.proxy("other"), "its certificate is for another role"),
    "ourselves": (lambda: PROXY, "its certificate is for another role"),
    "revoked": (revoked, "the key has been revoked"),
    "certified by a member": (forged_proxy, close_reasons.STRANGE),
    "certified by a member whose names fit": (better_forged_proxy, close_reasons.STRANGE),
}


@contextlib.asynccontextmanager
async def raw(driver: TlsStreamDriver) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, port = driver.addresses[0].rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def shaken(address: Address, context: ssl.SSLContext) -> tuple[socket.socket, ssl.SSLObject, ssl.MemoryBIO]:
    """Return a connection to a host after the client's part of the handshake, with TLS by hand; or as far as the host
    goes."""
    host, port = address.rsplit(":", 1)
    loop, incoming, outgoing = asyncio.get_running_loop(), ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing)
    line = socket.create_connection((host, int(port)))
    line.setblocking(False)
    while True:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            await loop.sock_sendall(line, outgoing.read())
            heard = await loop.sock_recv(line, 1 << 16)
            if not heard:
                return line, tls, outgoing
            incoming.write(heard)
        else:
            await loop.sock_sendall(line, outgoing.read())
            return line, tls, outgoing


async def spoken_after_hello(address: Address, context: ssl.SSLContext) -> bytes:
    """Return all that the host sends after the client's part of the handshake, still encrypted: nothing, or an
    alert."""
    context.verify_mode = ssl.CERT_NONE  # The client does not care who we are.
    line, _, _ = await shaken(address, context)
    spoken = b""
    with line, contextlib.suppress(ConnectionError):
        while heard := await asyncio.get_running_loop().sock_recv(line, 1 << 16):
            spoken += heard
    return spoken


@pytest.mark.parametrize("who", CALLERS)
def test_a_rejected_caller_receives_nothing_and_the_reason_is_counted(who: str) -> None:
    make, reason = CALLERS[who]

    async def test() -> None:
        here = ScriptedMachine()
        async with run_host(here, PROXY) as host:
            assert await spoken_after_hello(host.addresses[0], client_context(make())) == b""
            assert host.reasons == {reason: 1}
            assert here.peers == []

    run(test())


def test_a_caller_without_a_certificate_hears_nothing() -> None:
    async def test() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        async with run_host(ScriptedMachine(), PROXY) as host:
            assert await spoken_after_hello(host.addresses[0], context) == b""
            assert host.reasons == {close_reasons.UNSHOWN: 1}

    run(test())


def test_the_test_of_silence_would_notice_an_alert() -> None:
    """A plain TLS socket with the same context says why it refuses."""

    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:

            def refuse() -> None:
                caller, _ = server.accept()
                with contextlib.suppress(ssl.SSLError), caller:
                    server_context(PROXY).wrap_socket(caller, server_side=True)

            refused = asyncio.create_task(asyncio.to_thread(refuse))
            address = Address(f"127.0.0.1:{server.getsockname()[1]}")
            assert await spoken_after_hello(address, client_context(TlsParties(8).member("x"))) != b""
            await refused

    run(test())


def test_tls_of_yesterday_is_not_spoken() -> None:
    async def test() -> None:
        context = client_context(ALICE)
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
        async with run_host(ScriptedMachine(), PROXY) as host:
            assert await spoken_after_hello(host.addresses[0], context) == b""
            assert host.reasons == {close_reasons.NOT_TLS: 1}

    run(test())


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 600, b"SSH-2.0-x\r\n", b"\x16\x03\x01\xff\xff" + b"\x01" * 600, b"\xff"],
)
def test_a_caller_without_tls_receives_nothing(garbage: bytes) -> None:
    async def test() -> None:
        async with run_host(ScriptedMachine(), PROXY) as host, raw(host) as (reader, writer):
            writer.write(garbage)
            writer.write_eof()
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            assert host.reasons.total() == 1
            assert set(host.reasons) <= {close_reasons.NOT_TLS, close_reasons.LEFT}

    run(test())


def test_a_handshake_that_never_ends_ends_in_time() -> None:
    async def test() -> None:
        hasty = dataclasses.replace(QUICK_LIMITS, handshake_s=0.05)
        async with run_host(ScriptedMachine(), PROXY, hasty) as host, raw(host) as (reader, writer):
            # A byte now and then, of a hello that says it is long.
            writer.write(b"\x16\x03\x01\x02\x00")
            while not (reader.at_eof() or reader.exception()):  # It may end by a reset.
                writer.write(b"\x01")
                await pause()
            assert host.reasons == {close_reasons.LATE: 1}

    run(test())


def test_a_handshake_that_is_too_long_ends_at_once() -> None:
    async def test() -> None:
        async with run_host(ScriptedMachine(), PROXY) as host, raw(host) as (reader, writer):
            # Records of a hello that goes on and on, up to what OpenSSL would take.
            with contextlib.suppress(ConnectionError):
                writer.write(b"\x16\x03\x01\x00\x04\x01\xff\xff\xff" + b"\x16\x03\x01\x3f\xff" + bytes(0x3FFF))
                await writer.drain()
                assert await reader.read() == b""
            assert set(host.reasons) <= {close_reasons.TOO_LONG, close_reasons.NOT_TLS}
            assert host.reasons.total() == 1

    run(test())


def test_silent_connections_shut_no_member_out() -> None:
    async def test() -> None:
        limits = dataclasses.replace(QUICK_LIMITS, handshakes=4)
        here, there = ScriptedMachine(), ScriptedMachine()
        async with contextlib.AsyncExitStack() as silent, run_host(here, PROXY, limits) as host:
            for _ in range(12):
                await silent.enter_async_context(raw(host))
            await wait_until(lambda: host.reasons[close_reasons.CROWDED] == 8)
            assert len(host._inbound._strangers) == 4
            async with run_driver(there, ALICE) as caller:
                there.events.append(Connect(host.addresses[0]))
                caller.touch()
                await wait_until(lambda: there.peers)
                assert there.peers == [("up", host.addresses[0])]

    run(test())


HOSTS: dict[str, tuple[Callable[[], StreamIdentity], str]] = {
    "a member": (lambda: CROWD.member("posing"), close_reasons.UNFIT),
    "a server": (lambda: CROWD.identity(CROWD.ring("susan", "server")), "its certificate is for another role"),
    "a broker": (lambda: CROWD.identity(CROWD.ring("bruno", "broker")), "its certificate is for another role"),
    "certified by a member": (forged_proxy, close_reasons.STRANGE),
    "certified by a member whose names fit": (better_forged_proxy, close_reasons.STRANGE),
    "appointed by a sub-authority": (
        appointed,
        "a sub-authority appointed this proxy; only the root may: ask it for a grant",
    ),
    "appointed by a sub-authority in the root's name": (
        lambda: appointed(named_issuer="the root"),
        close_reasons.STRANGE,
    ),
    "of another authority": (lambda: TlsParties(8).proxy(), close_reasons.STRANGE),
    "expired": (lambda: CROWD.identity(CROWD.ring("olaf", "proxy", first=-9, epochs=2)), close_reasons.OVER),
}


@pytest.mark.parametrize("who", HOSTS)
def test_no_other_certificate_can_pose_as_a_proxy(who: str) -> None:
    make, reason = HOSTS[who]

    async def test() -> None:
        there = ScriptedMachine()
        async with serving(server_context(make()), _wait) as address, run_driver(there, ALICE) as caller:
            there.events.append(Connect(address))
            caller.touch()
            await wait_until(lambda: there.peers)
            assert there.peers[0] == ("lost", address)
            assert list(caller.reasons) == [reason]
            assert [(peer.up, peer.reason) for peer in caller.peers()] == [(False, reason)]

    run(test())


async def _wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def _talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(encode_record(b"before any welcome"))
    await reader.read()


@pytest.mark.parametrize(("behave", "reason"), [(_wait, close_reasons.LATE), (_talk, close_reasons.UNWELCOME)])
def test_a_host_that_does_not_welcome_us_is_not_up(behave: Any, reason: str) -> None:
    async def test() -> None:
        there = ScriptedMachine()
        hasty = dataclasses.replace(QUICK_LIMITS, handshake_s=0.05) if reason == close_reasons.LATE else QUICK_LIMITS
        async with serving(server_context(PROXY), behave) as address, run_driver(there, ALICE, limits=hasty) as caller:
            there.events.append(Connect(address))
            caller.touch()
            await wait_until(lambda: there.peers)
            assert there.peers[0] == ("lost", address)
            assert list(caller.reasons) == [reason]
            assert there.got == []

    run(test())


@contextlib.asynccontextmanager
async def serving(
    context: ssl.SSLContext, behave: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
) -> AsyncIterator[Address]:
    """Run Python's own TLS server, with a given certificate."""
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ssl.SSLError):
            await behave(reader, writer)
        writer.transport.abort()

    server = await asyncio.start_server(served, "127.0.0.1", 0, ssl=context)
    try:
        yield Address(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    finally:
        server.close()


@contextlib.asynccontextmanager
async def member(driver: TlsStreamDriver, identity: StreamIdentity) -> AsyncIterator[tuple[asyncio.StreamReader, Any]]:
    """A member with a program of its own."""
    host, port = driver.addresses[0].rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port), ssl=client_context(identity), server_hostname="x")
    try:
        assert await reader.readexactly(4) == bytes(4)
        yield reader, writer
    finally:
        writer.transport.abort()


def test_a_member_that_sends_too_long_a_record_is_dropped() -> None:
    async def test() -> None:
        here = ScriptedMachine()
        async with run_host(here, PROXY) as host, member(host, ALICE) as (reader, writer):
            writer.write(encode_record(b"fine") + (QUICK_LIMITS.record_max + 1).to_bytes(4, "big"))
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            assert [data for _, data in here.got] == [b"fine"]
            assert host.reasons == {close_reasons.TOO_LONG: 1}

    run(test())


def test_data_after_the_end_of_a_stream_is_not_awaited() -> None:
    """With a planted loop for as long as bytes are there, this would never end."""

    async def test() -> None:
        here, loop = ScriptedMachine(), asyncio.get_running_loop()
        async with run_host(here, PROXY) as host:
            line, tls, outgoing = await shaken(host.addresses[0], client_context(ALICE))
            with line:
                tls.write(encode_record(b"last"))
                with contextlib.suppress(ssl.SSLError):
                    tls.unwrap()
                await loop.sock_sendall(line, outgoing.read() + b"after the end")
                await wait_until(lambda: host.reasons)
            assert [data for _, data in here.got] == [b"last"]
            assert host.reasons == {close_reasons.CLOSED: 1}

    run(test())


def test_no_session_can_be_resumed() -> None:
    async def test() -> None:
        async with run_host(ScriptedMachine(), PROXY) as host, member(host, ALICE) as (_, writer):
            tls = writer.get_extra_info("ssl_object")
            assert tls.version() == "TLSv1.3"
            assert not tls.session.has_ticket

    run(test())


@contextlib.asynccontextmanager
async def slow_readers(
    limits: StreamLimits, *names: str
) -> AsyncIterator[tuple[ScriptedMachine, TlsStreamDriver, list[Address]]]:
    """Members that read their welcome and nothing else."""
    here = ScriptedMachine()
    async with contextlib.AsyncExitStack() as stack:
        host = await stack.enter_async_context(run_host(here, PROXY, limits))
        for name in names:
            _, writer = await stack.enter_async_context(member(host, CROWD.member(name)))
            writer.transport.pause_reading()
        yield here, host, [peer for _, peer in here.peers]


BIG = bytes(QUICK_LIMITS.record_max)


def test_a_slow_reader_is_dropped_when_too_much_waits_for_it() -> None:
    async def test() -> None:
        limits = dataclasses.replace(QUICK_LIMITS, write_max=4 << 20)
        async with slow_readers(limits, "sloth") as (here, host, (sloth,)):
            while ("lost", sloth) not in here.peers:
                here.frames += [Frame(sloth, BIG)] * (0 if here.frames else 32)
                host.touch()
                assert host._backlog.unsent <= limits.write_max
                await asyncio.sleep(0)
            assert host.reasons == {close_reasons.SLOW: 1}
            assert len(host._backlog) == 0

    run(test())


def test_of_many_slow_readers_the_one_with_the_most_goes_first() -> None:
    async def test() -> None:
        limits = dataclasses.replace(QUICK_LIMITS, waiting_max=12 << 20)
        async with slow_readers(limits, "snail", "tortoise") as (here, host, (snail, tortoise)):
            while len(here.peers) == 2:
                here.frames += [Frame(snail, BIG), Frame(tortoise, BIG), Frame(tortoise, BIG)]
                host.touch()
                await asyncio.sleep(0)
            assert here.peers[2:] == [("lost", tortoise)]
            assert host._backlog.unsent <= limits.waiting_max

    run(test())


def test_a_reader_that_stands_still_is_dropped_however_little_waits() -> None:
    async def test() -> None:
        limits = dataclasses.replace(QUICK_LIMITS, review_s=0.05)
        async with slow_readers(limits, "stone") as (here, host, (stone,)):
            while ("lost", stone) not in here.peers:
                if not len(host._backlog):  # The system still takes some.
                    here.frames.append(Frame(stone, BIG))
                    host.touch()
                assert host._backlog.unsent <= 2 * len(BIG)
                await asyncio.sleep(0)
            assert host.reasons == {close_reasons.SLOW: 1}

    run(test())


def test_a_slow_reader_delays_nobody_else() -> None:
    async def test() -> None:
        there = ScriptedMachine()
        async with slow_readers(QUICK_LIMITS, "sloth2") as (here, host, (sloth,)), run_driver(there, ALICE) as caller:
            there.events.append(Connect(host.addresses[0]))
            caller.touch()
            await wait_until(lambda: len(here.peers) == 2)
            here.frames = [Frame(sloth, BIG)] * 190 + [Frame(here.peers[1][1], b"quick")] * 10
            host.touch()
            await wait_until(lambda: len(there.got) == 10)  # The machine was waiting when the first of them had left.
            assert list(host._backlog._slow) == list(host._backlog._sent)
            assert ("lost", sloth) not in here.peers

    run(test())


def test_a_reader_that_has_caught_up_leaves_the_backlog() -> None:
    """Not only the event loop sends what waits: so does the next record. Here it is always that."""

    async def test() -> None:
        here = ScriptedMachine()
        async with run_host(here, PROXY) as host:
            line, _, _ = await shaken(host.addresses[0], client_context(ALICE))
            with line:
                await wait_until(lambda: here.peers)
                while not len(host._backlog):
                    here.frames.append(Frame(here.peers[0][1], BIG))
                    host.touch()
                    await asyncio.sleep(0)
                (stream,) = host._backlog._sent
                while stream.unsent:
                    with contextlib.suppress(BlockingIOError):
                        while line.recv(1 << 20):
                            pass
                    stream.send(b"one more")
                    stream.flush()
                assert len(host._backlog) == 0

    run(test())
