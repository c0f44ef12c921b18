from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from patience import HANG_S, pause
from veilcast import All, Equal, Label, Publication, Range, connect
from veilcast.errors import (
    ConfigError,
    LocalError,
    MalformedError,
    PermissionsError,
    StorageError,
    UnknownTopicError,
    UnreachableError,
    VeilcastError,
)
from veilcast.net import control, privatesocket, protocol
from veilcast.net.control import ControlServer
from veilcast.topics import Conjunction

sys.path.insert(0, str(Path(__file__).parent))
from desk import Desk, served

Test = Callable[[Path, Desk, ControlServer], Awaitable[None]]


def at_desk(directory: Path, test: Test, clients_max: int = 16) -> Desk:
    """Run a test with a desk that is served at `directory / "node.toml"`."""

    async def run() -> Desk:
        desk = Desk()
        async with asyncio.timeout(HANG_S), served(directory, desk, clients_max) as server:
            await test(directory / "node.toml", desk, server)
        return desk

    return asyncio.run(run())


async def until(desk: Desk, true: Callable[[], bool]) -> None:
    """Let everything else run until it holds."""
    while not true():
        await pause()


def test_a_publication_comes_to_a_subscriber_of_the_same_node(tmp_path: Path) -> None:
    async def test(config: Path, desk: Desk, _: ControlServer) -> None:
        async with connect(config) as reader, connect(config) as writer:
            notes = reader.subscribe(All(Label("weather"), Range("temp", 20, 25)))
            await notes.start()
            await writer.publish("weather", "sunny", temp=21.5)
            await writer.publish("weather", "cold", temp=3)
            await writer.publish("weather", b"\xff", temp=25)
            first = await anext(notes)
            assert first.publication == Publication((("topic", "weather"), ("temp", 21.5)), b"sunny")
            assert desk.acknowledged == []
            second = await anext(notes)
            assert second.publication.body == b"\xff"
            assert desk.acknowledged == [first.id]

    at_desk(tmp_path, test)


def test_whatever_can_be_published_can_be_handed_out(tmp_path: Path) -> None:
    async def test(config: Path, desk: Desk, _: ControlServer) -> None:
        frame = len(protocol.encode_request(1, protocol.Publish(Publication((("topic", "news"),), bytes(1 << 16)))))
        largest = protocol.REQUEST_MAX - (frame - protocol.LENGTH - (1 << 16))
        async with connect(config) as me:
            notes = me.subscribe("news")
            await notes.start()
            with pytest.raises(LocalError, match="too large"):
                await me.publish("news", bytes(largest + 1))
            await me.publish("news", bytes(largest))
            assert len((await anext(notes)).publication.body) == largest

    at_desk(tmp_path, test)


def test_a_note_that_was_not_acknowledged_comes_again_to_the_next_client(tmp_path: Path) -> None:
    async def test(config: Path, desk: Desk, _: ControlServer) -> None:
        async with connect(config) as me:
            kept = me.subscribe("news", keep=True)
            await kept.start()
            for body in ("one", "two"):
                await me.publish("news", body)
            assert (await anext(kept)).publication.body == b"one"
            await kept.acknowledge()
            assert (await anext(kept)).publication.body == b"two"
        async with connect(config) as me:
            again = me.subscribe("news")
            assert (await anext(again)).publication.body == b"two"
        assert desk.interests == {}

    at_desk(tmp_path, test)


def test_a_client_that_is_killed_keeps_its_subscription_and_one_that_leaves_ends_it(tmp_path: Path) -> None:
    async def test(config: Path, desk: Desk, server: ControlServer) -> None:
        async with connect(config) as me:
            await me.subscribe("news").start()
            me._writer.transport.abort()
            await until(desk, lambda: server.clients == 0)
        assert len(desk.interests) == 1
        assert desk.reading == 0
        async with connect(config) as me:
            await me.subscribe("news").start()
        assert desk.interests == {}

    at_desk(tmp_path, test)


def test_a_subscription_that_two_clients_have_ends_with_the_second(tmp_path: Path) -> None:
    async def test(config: Path, desk: Desk, _: ControlServer) -> None:
        async with connect(config) as one:
            await one.subscribe("news").start()
            async with connect(config) as two:
                await two.subscribe("news").start()
            assert len(desk.interests) == 1
            with pytest.raises(LocalError, match="already"):
                await one.subscribe("news").start()
        assert desk.interests == {}

    at_desk(tmp_path, test)


def test_a_subscription_that_one_client_ends_while_another_takes_it_goes_on(tmp_path: Path) -> None:
    async def test(config: Path, desk: Desk, _: ControlServer) -> None:
        subscribe, waiting, go_on = desk.subscribe, asyncio.Event(), asyncio.Event()

        async def slowly(interest: Conjunction) -> int:
            number = await subscribe(interest)
            waiting.set()
            await go_on.wait()
            return number

        async with connect(config) as one, connect(config) as two:
            ending = one.subscribe("news")
            await ending.start()
            setattr(desk, "subscribe", slowly)  # noqa: B010 (of this one desk)
            taken = two.subscribe("news", keep=True)
            async with asyncio.TaskGroup() as both:
                both.create_task(taken.start())
                await waiting.wait()
                both.create_task(ending.close())
                await one.status()
                go_on.set()
            assert len(desk.interests) == 1

    at_desk(tmp_path, test)


def test_errors_of_the_node_are_the_errors_of_the_client(tmp_path: Path) -> None:
    async def test(config: Path, desk: Desk, _: ControlServer) -> None:
        async with connect(config) as me:
            with pytest.raises(UnknownTopicError, match="no topic"):
                await me.publish("nobody/knows")
            with pytest.raises(VeilcastError, match="its log has the cause") as caught:
                await me.publish("bug")
            assert "secret" not in str(caught.value)
            with pytest.raises(LocalError, match="too large for the control socket"):
                await me.publish("news", bytes(protocol.REQUEST_MAX))
            with pytest.raises(LocalError, match="has its body"):
                await me.publish(Publication(()), b"twice")
            await me.publish(Label("news"), b"still there")
            assert (await me.status()).members == 24
            assert (await me.peers())[0].up
            await me.stop()

    desk = at_desk(tmp_path, test)
    assert [publication.body for publication in desk.published] == [b"still there"]


def test_a_node_that_goes_away_is_an_error_and_nothing_hangs(tmp_path: Path) -> None:
    async def test(config: Path, desk: Desk, server: ControlServer) -> None:
        async with connect(config) as me:
            notes = me.subscribe("news")
            await notes.start()
            waiting = asyncio.ensure_future(anext(notes))
            await asyncio.sleep(0)
            await server.close()
            with pytest.raises(UnreachableError, match="gone away"):
                await waiting
            with pytest.raises(UnreachableError, match="gone away"):
                await me.publish("news")
            with pytest.raises(UnreachableError, match="gone away"):
                await anext(notes)
        with pytest.raises(UnreachableError, match="no node answers"):
            async with connect(config):
                pass

    at_desk(tmp_path, test)


def test_a_client_that_does_not_read_costs_no_more_than_the_window(tmp_path: Path) -> None:
    """It gets `WINDOW` notes and then none, however many wait; others are served meanwhile."""

    async def test(config: Path, desk: Desk, server: ControlServer) -> None:
        async with connect(config) as slow, connect(config) as quick:
            await slow.subscribe("news").start()
            for _ in range(protocol.WINDOW * 3):
                await quick.publish("news", bytes(200_000))
            (following,) = [f for client in server._clients for f in client.subscriptions.values()]
            await until(desk, lambda: len(following.out) == protocol.WINDOW)
            for _ in range(5):
                await quick.status()
            assert len(following.out) == protocol.WINDOW

    at_desk(tmp_path, test)


def test_a_client_that_never_takes_a_byte_fills_one_buffer_and_holds_up_nobody(tmp_path: Path) -> None:
    async def test(config: Path, desk: Desk, server: ControlServer) -> None:
        async with connect(config) as quick:
            _, deaf = await asyncio.open_unix_connection(tmp_path / "node.sock")
            deaf.transport.pause_reading()  # type: ignore[attr-defined]
            deaf.write(protocol.encode_request(1, protocol.Subscribe(Label("news").constraints)))
            await desk.until_subscribed(*Label("news").constraints)
            for _ in range(30):
                await quick.publish("news", bytes(200_000))
            buffered = [client._writer.transport.get_write_buffer_size() for client in server._clients]
            assert max(buffered) < 2 * protocol.REQUEST_MAX
            deaf.transport.abort()
            await until(desk, lambda: server.clients == 1)
            await quick.status()

    at_desk(tmp_path, test)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x01\xc1",
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x03\x92\x01\x80",
        protocol.encode_answer(1, protocol.Done()),
        protocol.encode_request(1, protocol.Publish(Publication((("a", 1),), b"x"))).replace(b"Publish", b"Pilfers"),
    ],
)
def test_what_is_no_message_ends_that_client_only(tmp_path: Path, garbage: bytes) -> None:
    async def test(config: Path, desk: Desk, server: ControlServer) -> None:
        async with connect(config) as me:
            reader, writer = await asyncio.open_unix_connection(tmp_path / "node.sock")
            await protocol.read_answer(reader)
            writer.write(garbage)
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()
            assert server.malformed == 1
            assert (await me.status()).mode == "mesh"

    at_desk(tmp_path, test)


@given(st.binary(max_size=200))
def test_bytes_decode_to_a_request_or_are_malformed(body: bytes) -> None:
    with contextlib.suppress(MalformedError):
        number, _ = protocol._REQUESTS.decode(body)
        assert isinstance(number, int)


@pytest.mark.parametrize(("attribute", "legal"), [("temp", True), ("", False), ("a" * 65, False)])
def test_an_illegal_interest_is_no_message(attribute: str, legal: bool) -> None:
    constraint = {"type": "equal", "attribute": attribute, "text": "b"}
    body = msgspec.msgpack.encode((1, {"type": "Subscribe", "constraints": [constraint]}))
    with contextlib.nullcontext() if legal else pytest.raises(MalformedError):
        assert protocol._REQUESTS.decode(body) == (1, protocol.Subscribe((Equal(attribute, "b"),)))


def test_an_interest_in_nothing_is_refused(tmp_path: Path) -> None:
    async def test(config: Path, desk: Desk, server: ControlServer) -> None:
        async with connect(config) as me:
            with pytest.raises(LocalError, match="1 to 16 constraints"):
                await me._ask(protocol.Subscribe(()), protocol.Subscribed)

    at_desk(tmp_path, test)


def test_there_is_an_end_to_clients_and_to_their_subscriptions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "SUBSCRIPTIONS_MAX", 2)

    async def test(config: Path, desk: Desk, server: ControlServer) -> None:
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(connect(config)) for _ in range(3)]
            with pytest.raises(LocalError, match="3 clients already"):
                await stack.enter_async_context(connect(config))
            for topic in ("a", "b"):
                await clients[0].subscribe(topic).start()
            with pytest.raises(LocalError, match="2 subscriptions"):
                await clients[0].subscribe("c").start()
        await until(desk, lambda: server.clients == 0)
        async with connect(config) as again:
            await again.status()

    at_desk(tmp_path, test, clients_max=3)


# --- the socket itself ----------------------------------------------------------------------------------------


def test_the_socket_is_for_its_owner_alone_and_goes_with_the_node(tmp_path: Path) -> None:
    before = os.umask(0)
    try:

        async def test(config: Path, desk: Desk, _: ControlServer) -> None:
            assert stat.S_IMODE((tmp_path / "node.sock").stat().st_mode) == 0o600

        at_desk(tmp_path, test)
        assert os.umask(0) == 0
    finally:
        os.umask(before)
    assert not (tmp_path / "node.sock").exists()


def test_the_socket_of_a_dead_node_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "node.sock"))

    async def test(config: Path, desk: Desk, _: ControlServer) -> None:
        async with connect(config) as me:
            await me.status()

    at_desk(tmp_path, test)


def test_a_living_node_is_not_pushed_aside(tmp_path: Path) -> None:
    async def test(config: Path, desk: Desk, _: ControlServer) -> None:
        second = ControlServer(tmp_path / "node.sock", desk, lambda: None, 1)
        with pytest.raises(LocalError, match=r"runs already, and answers at .*; stop it first"):
            await second.open()
        await second.close()
        async with connect(config) as me:
            await me.status()

    at_desk(tmp_path, test)


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "node.sock").write_text("precious")
    with pytest.raises(StorageError, match="no socket"):
        privatesocket.listen_alone(tmp_path / "node.sock")
    assert (tmp_path / "node.sock").read_text() == "precious"


def test_a_place_where_others_may_write_or_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(PermissionsError, match="chmod go-w"):
        privatesocket.listen_alone(tmp_path / "open" / "node.sock")
    with pytest.raises(StorageError, match="cannot use"):
        privatesocket.listen_alone(tmp_path / "nowhere" / "node.sock")
    with pytest.raises(ConfigError, match="longer than"):
        privatesocket.listen_alone(tmp_path / ("n" * 120))


@pytest.mark.parametrize(
    ("first", "problem"),
    [
        (protocol.encode_answer(0, protocol.Welcome(protocol.VERSION + 1)), "another version"),
        (b"SSH-2.0-OpenSSH", "no node of ours"),
        (b"", "no node of ours"),
    ],
)
def test_what_listens_there_and_is_no_node_of_this_version_is_told(tmp_path: Path, first: bytes, problem: str) -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        writer.close()
        await writer.wait_closed()

    async def test() -> None:
        (tmp_path / "node.toml").write_text('state = "."')
        async with asyncio.timeout(HANG_S), await asyncio.start_unix_server(greet, tmp_path / "control.sock"):
            with pytest.raises(UnreachableError, match=problem):
                async with connect(tmp_path / "node.toml"):
                    pass

    asyncio.run(test())


@pytest.mark.parametrize(
    ("text", "problem"), [("control = 3", "control must be"), ("state = []", "state must be"), ("=", "node.toml")]
)
def test_a_configuration_that_leads_to_no_socket_names_what_is_wrong(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "node.toml").write_text(text)

    async def test() -> None:
        async with connect(tmp_path / "node.toml"):
            pass

    with pytest.raises(ConfigError, match=problem):
        asyncio.run(test())
