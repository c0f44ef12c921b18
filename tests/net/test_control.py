from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.memory_node import MemoryNode, serve_control
from support.waits import HANG_S, until
from veilcast import All, Equal, Label, Publication, Range, connect
from veilcast.errors import (
    ConfigError,
    FullError,
    LocalError,
    MalformedError,
    PermissionsError,
    StorageError,
    UnknownTopicError,
    UnreachableError,
    VeilcastError,
)
from veilcast.net import control, control_protocol, private_socket
from veilcast.net.control import ControlServer
from veilcast.topics import Conjunction

Test = Callable[[Path, MemoryNode, ControlServer], Awaitable[None]]


def with_node(directory: Path, test: Test, clients_max: int = 16) -> MemoryNode:
    """Run a test with a node in memory that is served at `directory / "node.toml"`."""

    async def run() -> MemoryNode:
        desk = MemoryNode()
        async with asyncio.timeout(HANG_S), serve_control(directory, desk, clients_max) as server:
            await test(directory / "node.toml", desk, server)
        return desk

    return asyncio.run(run())


def test_a_publication_comes_to_a_subscriber_of_the_same_node(tmp_path: Path) -> None:
    async def test(config: Path, desk: MemoryNode, _: ControlServer) -> None:
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

    with_node(tmp_path, test)


def test_every_accepted_publication_can_be_delivered(tmp_path: Path) -> None:
    async def test(config: Path, desk: MemoryNode, _: ControlServer) -> None:
        frame = len(
            control_protocol.encode_request(
                1, control_protocol.PublishRequest(Publication((("topic", "news"),), bytes(1 << 16)))
            )
        )
        largest = control_protocol.REQUEST_MAX - (frame - control_protocol.LENGTH - (1 << 16))
        async with connect(config) as me:
            notes = me.subscribe("news")
            await notes.start()
            with pytest.raises(LocalError, match="too large"):
                await me.publish("news", bytes(largest + 1))
            await me.publish("news", bytes(largest))
            assert len((await anext(notes)).publication.body) == largest

    with_node(tmp_path, test)


def test_a_note_that_was_not_acknowledged_comes_again_to_the_next_client(tmp_path: Path) -> None:
    async def test(config: Path, desk: MemoryNode, _: ControlServer) -> None:
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

    with_node(tmp_path, test)


def test_a_client_that_is_killed_keeps_its_subscription_and_one_that_leaves_ends_it(tmp_path: Path) -> None:
    async def test(config: Path, desk: MemoryNode, server: ControlServer) -> None:
        async with connect(config) as me:
            await me.subscribe("news").start()
            me._writer.transport.abort()
            await until(lambda: server.clients == 0)
        assert len(desk.interests) == 1
        assert desk.reading == 0
        async with connect(config) as me:
            await me.subscribe("news").start()
        assert desk.interests == {}

    with_node(tmp_path, test)


def test_a_subscription_whose_client_dies_ends_after_the_grace_period(tmp_path: Path) -> None:
    async def test() -> None:
        desk = MemoryNode()
        async with serve_control(tmp_path, desk, grace_s=0) as server:
            async with connect(tmp_path / "node.toml") as me:
                await me.subscribe("kept", keep=True).start()
                await me.subscribe("news").start()
                me._writer.transport.abort()
                await until(lambda: len(desk.interests) == 1)
            assert [interest.constraints for interest in desk.interests.values()] == [Label("kept").constraints]
            assert server.clients == 0

    asyncio.run(test())


def test_a_killed_client_receives_the_missed_notes_if_it_returns_in_time(tmp_path: Path) -> None:
    async def test(config: Path, desk: MemoryNode, server: ControlServer) -> None:
        async with connect(config) as me, connect(config) as writer:
            notes = me.subscribe("news")
            await writer.publish("news", "one")
            await anext(notes)  # Handed out, and not acknowledged.
            me._writer.transport.abort()
            await until(lambda: server.clients == 1)
            await writer.publish("news", "two")
            async with connect(config) as again:
                notes = again.subscribe("news")
                assert [(await anext(notes)).publication.body for _ in range(2)] == [b"one", b"two"]
                assert not server._ending
            assert desk.interests == {}

    with_node(tmp_path, test)


def test_a_killed_client_does_not_end_a_subscription_that_another_client_has_or_keeps(tmp_path: Path) -> None:
    async def test() -> None:
        desk = MemoryNode()
        async with serve_control(tmp_path, desk, grace_s=0) as server, connect(tmp_path / "node.toml") as other:
            await other.subscribe("shared").start()
            async with connect(tmp_path / "node.toml") as keeper:
                await keeper.subscribe("kept", keep=True).start()
            async with connect(tmp_path / "node.toml") as me:
                for topic in ("shared", "kept", "own"):
                    await me.subscribe(topic).start()
                me._writer.transport.abort()
                await until(lambda: server.clients == 1)
            await until(lambda: len(desk.interests) == 2)
            assert not server._ending

    asyncio.run(test())


def test_a_temporary_subscription_of_an_earlier_life_of_the_node_ends_after_the_grace_period(tmp_path: Path) -> None:
    async def test() -> None:
        desk = MemoryNode()
        async with serve_control(tmp_path, desk), connect(tmp_path / "node.toml") as me:
            await me.subscribe("news").start()
            await me.subscribe("kept", keep=True).start()
            me._writer.transport.abort()
        assert len(desk.interests) == 2
        async with serve_control(tmp_path, desk, grace_s=0):
            await until(lambda: len(desk.interests) == 1)

    asyncio.run(test())


def test_a_subscription_that_two_clients_have_ends_with_the_second(tmp_path: Path) -> None:
    async def test(config: Path, desk: MemoryNode, _: ControlServer) -> None:
        async with connect(config) as one:
            await one.subscribe("news").start()
            async with connect(config) as two:
                await two.subscribe("news").start()
            assert len(desk.interests) == 1
            with pytest.raises(LocalError, match="already"):
                await one.subscribe("news").start()
        assert desk.interests == {}

    with_node(tmp_path, test)


def test_a_subscription_that_one_client_ends_while_another_takes_it_goes_on(tmp_path: Path) -> None:
    async def test(config: Path, desk: MemoryNode, _: ControlServer) -> None:
        subscribe, waiting, go_on = desk.subscribe, asyncio.Event(), asyncio.Event()

        async def slowly(interest: Conjunction, *, keep: bool) -> int:
            number = await subscribe(interest, keep=keep)
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

    with_node(tmp_path, test)


def test_a_client_that_closes_a_kept_subscription_can_take_it_up_again(tmp_path: Path) -> None:
    async def test(config: Path, desk: MemoryNode, server: ControlServer) -> None:
        async with connect(config) as me:
            for _ in range(2):
                async with me.subscribe("news", keep=True) as notes:
                    await me.publish("news", "one")
                    assert (await anext(notes)).publication.body == b"one"
            [client] = server._clients
            assert client.subscriptions == {}
        assert len(desk.interests) == 1

    with_node(tmp_path, test)


def test_a_server_closes_while_the_end_of_a_subscription_never_reaches_the_disk(tmp_path: Path) -> None:
    """This happens after a failed write, when nothing is written any more."""

    async def test() -> None:
        desk, ending = MemoryNode(), asyncio.Event()

        async def fail(number: int) -> None:
            ending.set()
            await asyncio.Event().wait()

        desk.unsubscribe = fail  # type: ignore[method-assign]
        async with (
            asyncio.timeout(HANG_S),
            serve_control(tmp_path, desk, grace_s=0),
            connect(tmp_path / "node.toml") as me,
        ):
            await me.subscribe("news").start()
            me._writer.transport.abort()
            await ending.wait()

    asyncio.run(test())


def test_subscriptions_that_dead_clients_left_make_room_for_a_living_one(tmp_path: Path) -> None:
    """The one whose client died first goes first; kept ones and those of living clients stay."""

    async def test(config: Path, desk: MemoryNode, server: ControlServer) -> None:
        desk.subscriptions_max = 4
        async with connect(config) as alive:
            await alive.subscribe("kept", keep=True).start()
            await alive.subscribe("alive").start()
            for topic in ("first", "second"):
                async with connect(config) as me:
                    await me.subscribe(topic).start()
                    me._writer.transport.abort()
                    await until(lambda: server.clients == 1)
            await alive.subscribe("new").start()
            assert desk.topics() == ["alive", "kept", "new", "second"]
            await alive.subscribe("newer").start()
            assert desk.topics() == ["alive", "kept", "new", "newer"]
            with pytest.raises(FullError, match="4 subscriptions already"):
                await alive.subscribe("newest").start()
        assert desk.topics() == ["kept"]

    with_node(tmp_path, test)


def test_errors_of_the_node_are_the_errors_of_the_client(tmp_path: Path) -> None:
    async def test(config: Path, desk: MemoryNode, _: ControlServer) -> None:
        async with connect(config) as me:
            with pytest.raises(UnknownTopicError, match="no topic"):
                await me.publish("nobody/knows")
            with pytest.raises(VeilcastError, match="its log has the cause") as caught:
                await me.publish("bug")
            assert "secret" not in str(caught.value)
            with pytest.raises(LocalError, match="too large for the control socket"):
                await me.publish("news", bytes(control_protocol.REQUEST_MAX))
            with pytest.raises(LocalError, match="has its body"):
                await me.publish(Publication(()), b"twice")
            await me.publish(Label("news"), b"still there")
            assert (await me.status()).members == 24
            assert (await me.peers())[0].up
            await me.stop()

    desk = with_node(tmp_path, test)
    assert [publication.body for publication in desk.published] == [b"still there"]


def test_a_node_that_goes_away_is_an_error_and_nothing_hangs(tmp_path: Path) -> None:
    async def test(config: Path, desk: MemoryNode, server: ControlServer) -> None:
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

    with_node(tmp_path, test)


def test_a_client_that_does_not_read_costs_no_more_than_the_window(tmp_path: Path) -> None:
    """The client receives `WINDOW` notes and then none, however many wait; other clients are served meanwhile."""

    async def test(config: Path, desk: MemoryNode, server: ControlServer) -> None:
        async with connect(config) as slow, connect(config) as quick:
            await slow.subscribe("news").start()
            for _ in range(control_protocol.WINDOW * 3):
                await quick.publish("news", bytes(200_000))
            (following,) = [f for client in server._clients for f in client.subscriptions.values()]
            await until(lambda: len(following.out) == control_protocol.WINDOW)
            for _ in range(5):
                await quick.status()
            assert len(following.out) == control_protocol.WINDOW

    with_node(tmp_path, test)


def test_a_client_that_reads_nothing_fills_one_buffer_and_delays_no_other(tmp_path: Path) -> None:
    async def test(config: Path, desk: MemoryNode, server: ControlServer) -> None:
        async with connect(config) as quick:
            _, deaf = await asyncio.open_unix_connection(tmp_path / "node.sock")
            deaf.transport.pause_reading()  # type: ignore[attr-defined]
            deaf.write(control_protocol.encode_request(1, control_protocol.SubscribeRequest(Label("news").constraints)))
            await desk.until_subscribed(*Label("news").constraints)
            for _ in range(30):
                await quick.publish("news", bytes(200_000))
            buffered = [client._writer.transport.get_write_buffer_size() for client in server._clients]
            assert max(buffered) < 2 * control_protocol.REQUEST_MAX
            deaf.transport.abort()
            await until(lambda: server.clients == 1)
            await quick.status()

    with_node(tmp_path, test)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x01\xc1",
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x03\x92\xa1a\x80",
    ],
)
def test_bytes_that_are_no_message_end_that_client_only(tmp_path: Path, garbage: bytes) -> None:
    async def test(config: Path, desk: MemoryNode, server: ControlServer) -> None:
        async with connect(config) as me, connect(config) as other:
            other._writer.write(garbage)
            with pytest.raises(LocalError, match="received bytes that are no message"):
                await other._run(other._session.ask(control_protocol.StatusRequest(), control_protocol.StatusAnswer))
            assert server.malformed == 1
            assert (await me.status()).mode == "mesh"

    with_node(tmp_path, test)


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        (b"\x80", "missing required field"),
        (
            control_protocol.encode_answer(7, control_protocol.DoneAnswer())[control_protocol.LENGTH + 2 :],
            "Invalid value 'Done'",
        ),
        (
            msgspec.msgpack.encode({"type": "Publish", "publication": {"pairs": [], "body": {"a": 1}}}),
            "publication.body",
        ),
    ],
)
def test_a_request_that_the_node_cannot_read_is_refused_by_its_number(
    tmp_path: Path, request_: bytes, named: str
) -> None:
    async def test(config: Path, desk: MemoryNode, server: ControlServer) -> None:
        async with connect(config) as me:
            body = b"\x92\x07" + request_
            me._session._answers[7] = None
            me._writer.write(len(body).to_bytes(control_protocol.LENGTH, "big") + body)
            with pytest.raises(LocalError, match=f"cannot read this request: .*{named}"):
                await me._run(me._session._answer(7, control_protocol.DoneAnswer))
            assert server.malformed == 1
            assert (await me.status()).mode == "mesh"

    with_node(tmp_path, test)


@given(st.binary(max_size=200))
def test_bytes_decode_to_a_request_or_are_malformed(body: bytes) -> None:
    with contextlib.suppress(MalformedError):
        number, _ = control_protocol._REQUESTS.decode(body)
        assert isinstance(number, int)


@pytest.mark.parametrize(("attribute", "legal"), [("temp", True), ("", False), ("a" * 65, False)])
def test_an_illegal_interest_is_no_message(attribute: str, legal: bool) -> None:
    constraint = {"type": "equal", "attribute": attribute, "text": "b"}
    body = msgspec.msgpack.encode((1, {"type": "Subscribe", "constraints": [constraint]}))
    with contextlib.nullcontext() if legal else pytest.raises(MalformedError):
        assert control_protocol._REQUESTS.decode(body) == (
            1,
            control_protocol.SubscribeRequest((Equal(attribute, "b"),)),
        )


def test_an_interest_in_nothing_is_refused(tmp_path: Path) -> None:
    async def test(config: Path, desk: MemoryNode, server: ControlServer) -> None:
        async with connect(config) as me:
            with pytest.raises(LocalError, match="1 to 16 constraints"):
                await me._run(me._session.ask(control_protocol.SubscribeRequest(()), control_protocol.SubscribedAnswer))

    with_node(tmp_path, test)


def test_there_is_an_end_to_clients_and_to_their_subscriptions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "SUBSCRIPTIONS_MAX", 2)

    async def test(config: Path, desk: MemoryNode, server: ControlServer) -> None:
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(connect(config)) for _ in range(3)]
            with pytest.raises(LocalError, match="3 clients already"):
                await stack.enter_async_context(connect(config))
            for topic in ("a", "b"):
                await clients[0].subscribe(topic).start()
            with pytest.raises(LocalError, match="2 subscriptions"):
                await clients[0].subscribe("c").start()
        await until(lambda: server.clients == 0)
        async with connect(config) as again:
            await again.status()

    with_node(tmp_path, test, clients_max=3)


# --- the socket itself ----------------------------------------------------------------------------------------


def test_the_socket_is_for_its_owner_alone_and_goes_with_the_node(tmp_path: Path) -> None:
    before = os.umask(0)
    try:

        async def test(config: Path, desk: MemoryNode, _: ControlServer) -> None:
            assert stat.S_IMODE((tmp_path / "node.sock").stat().st_mode) == 0o600

        with_node(tmp_path, test)
        assert os.umask(0) == 0
    finally:
        os.umask(before)
    assert not (tmp_path / "node.sock").exists()


def test_the_socket_of_a_dead_node_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "node.sock"))

    async def test(config: Path, desk: MemoryNode, _: ControlServer) -> None:
        async with connect(config) as me:
            await me.status()

    with_node(tmp_path, test)


def test_a_living_node_is_not_pushed_aside(tmp_path: Path) -> None:
    async def test(config: Path, desk: MemoryNode, _: ControlServer) -> None:
        second = ControlServer(tmp_path / "node.sock", desk, lambda: None, 1)
        with pytest.raises(LocalError, match=r"runs already, and answers at .*; stop it first"):
            await second.open()
        await second.close()
        async with connect(config) as me:
            await me.status()

    with_node(tmp_path, test)


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "node.sock").write_text("precious")
    with pytest.raises(StorageError, match="no socket"):
        private_socket.open_private_listener(tmp_path / "node.sock")
    assert (tmp_path / "node.sock").read_text() == "precious"


def test_a_place_where_others_may_write_or_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(PermissionsError, match="chmod go-w"):
        private_socket.open_private_listener(tmp_path / "open" / "node.sock")
    with pytest.raises(StorageError, match="cannot use"):
        private_socket.open_private_listener(tmp_path / "nowhere" / "node.sock")
    with pytest.raises(ConfigError, match="longer than"):
        private_socket.open_private_listener(tmp_path / ("n" * 120))


@pytest.mark.parametrize(
    ("first", "problem"),
    [
        (control_protocol.encode_answer(0, control_protocol.Welcome(control_protocol.VERSION + 1)), "another version"),
        (b"SSH-2.0-OpenSSH", "no node of ours"),
        (b"", "no node of ours"),
    ],
)
def test_a_listener_that_is_no_node_of_this_version_is_reported(tmp_path: Path, first: bytes, problem: str) -> None:
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
def test_an_error_names_the_fault_of_a_configuration_without_a_socket(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "node.toml").write_text(text)

    async def test() -> None:
        async with connect(tmp_path / "node.toml"):
            pass

    with pytest.raises(ConfigError, match=problem):
        asyncio.run(test())
