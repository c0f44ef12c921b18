from __future__ import annotations

import asyncio
import contextlib
import dis
import inspect
import socket
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.memory_node import MemoryNode, serve_control
from support.thread_node import node
from support.waits import HANG_S
from veilcast import Label, LocalError, Publication, Range, UnreachableError, connect, connect_sync
from veilcast.errors import NotReadyError, VeilcastError
from veilcast.machine import Note
from veilcast.net import client_session, control_protocol, sync_client
from veilcast.net.control_protocol import Answer
from veilcast.net.sync_client import BlockingClient


def test_a_program_without_asyncio_publishes_and_reads(tmp_path: Path) -> None:
    with node(tmp_path) as there, connect_sync(tmp_path / "node.toml") as me:
        notes = me.subscribe("weather")
        for body in ("sunny", "rain"):
            me.publish("weather", body, temp=20)
        assert me.status().subscriptions == 1
        assert len(me.peers()) == 1
        bodies = []
        for note in notes:
            bodies.append(note.publication.body)
            if len(bodies) == 2:
                notes.acknowledge()
                break
        assert bodies == [b"sunny", b"rain"]
        assert len(there.desk.acknowledged) == 2
        notes.close()
        with pytest.raises(LocalError, match="closed; subscribe again"):
            next(notes)
        assert me.status().subscriptions == 0
        me.stop()


def test_a_client_without_with_works_until_it_is_closed(tmp_path: Path) -> None:
    with node(tmp_path) as there:
        me = connect_sync(tmp_path / "node.toml")
        with me.subscribe("news") as notes:
            me.publish("news", "here")
            assert next(notes).publication.body == b"here"
        me.subscribe("sports")
        me.close()
        assert there.desk.interests == {}
        with pytest.raises(LocalError, match="this client is closed"):
            me.status()
        me.close()


def test_large_notes_and_large_publications_pass_one_another(tmp_path: Path) -> None:
    """The node's buffer is full of notes when the client sends more than the socket takes."""
    with node(tmp_path), connect_sync(tmp_path / "node.toml") as me:
        notes = me.subscribe("news")
        bodies = [bytes([number]) * 900_000 for number in range(8)]
        for body in bodies:
            me.publish("news", body)
        assert [next(notes).publication.body for _ in bodies] == bodies


def test_it_works_where_an_event_loop_runs(tmp_path: Path) -> None:
    """A notebook has a running loop. Warnings are errors in this suite."""

    async def main() -> None:
        with connect_sync(tmp_path / "node.toml") as me:
            me.publish("weather", "sunny")
            assert me.status().subscriptions == 0

    with node(tmp_path) as there:
        asyncio.run(main())
        assert [each.body for each in there.desk.published] == [b"sunny"]


def test_the_blocking_client_loads_no_asyncio(tmp_path: Path) -> None:
    program = (
        "import sys, veilcast.net.sync_client; print(*sorted({'asyncio', 'numpy', 'cryptography'} & set(sys.modules)))"
    )
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=HANG_S)
    assert child.stdout == "\n"


def test_without_a_node_the_error_says_how_to_start_one(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text("")
    with pytest.raises(UnreachableError, match="veilcast node run -c"):
        connect_sync(tmp_path / "node.toml")
    (tmp_path / "state").mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "state" / "control.sock"))
    with pytest.raises(UnreachableError, match=r"refused\); start it: veilcast node run -c"):
        connect_sync(tmp_path / "node.toml")


def test_a_listener_that_is_no_node_is_reported(tmp_path: Path) -> None:
    for first, problem in (
        (control_protocol.encode_answer(0, control_protocol.Welcome(control_protocol.VERSION + 1)), "another version"),
        (b"SSH-2.0-OpenSSH", "no node of ours"),
        (b"", "no node of ours"),
    ):
        with scripted(first) as client, pytest.raises(UnreachableError, match=problem):
            client._run(client._session.greet())


def test_a_listener_that_says_nothing_is_given_up() -> None:
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        client = BlockingClient(here)
        with pytest.raises(TimeoutError):
            client._run(client._session.greet(), 0.001)


def test_a_node_that_goes_away_is_an_error_and_nothing_hangs(tmp_path: Path) -> None:
    with scripted(said(0, control_protocol.Welcome(control_protocol.VERSION))) as me:
        me._run(me._session.greet())
        for call in (me.status, me.peers, lambda: me.publish("news"), lambda: me.subscribe("news")):
            with pytest.raises(UnreachableError, match="gone away"):
                call()


# --- readiness


def test_ready_returns_when_the_subscription_stands(tmp_path: Path) -> None:
    with node(tmp_path) as there, connect_sync(tmp_path / "node.toml") as me:
        me.subscribe("weather").ready(timeout_s=HANG_S)
        notes = me.subscribe("unheard")
        assert notes.waiting() == (None,)
        with pytest.raises(NotReadyError, match="not ready within 0 s"):
            notes.ready(0)
        there.do(lambda: there.desk.stands(*Label("unheard").constraints))
        notes.ready()
        assert notes.waiting() is None
        with pytest.raises(TimeoutError):
            me.subscribe("later").ready(0)


def test_ready_returns_for_asyncio_too_while_the_client_does_other_things(tmp_path: Path) -> None:
    async def main() -> None:
        desk = MemoryNode()
        async with asyncio.timeout(HANG_S), serve_control(tmp_path, desk), connect(tmp_path / "node.toml") as me:
            async with me.subscribe("unheard") as notes:
                with pytest.raises(NotReadyError):
                    await notes.ready(0)
                ready = asyncio.ensure_future(notes.ready())
                await me.publish("unheard", "first")
                assert not ready.done()
                await desk.stands(*Label("unheard").constraints)
                await ready
            assert desk.interests == {}

    asyncio.run(main())


def test_a_subscription_is_made_when_subscribe_is_called(tmp_path: Path) -> None:
    """Not when the first note is asked for: a note published in between arrives."""

    async def main() -> None:
        async with (
            asyncio.timeout(HANG_S),
            serve_control(tmp_path, MemoryNode()),
            connect(tmp_path / "node.toml") as me,
        ):
            notes = me.subscribe("news")
            await me.publish("news", "early")
            assert (await anext(notes)).publication.body == b"early"

    asyncio.run(main())


# --- arguments


class Number(float):
    """As numpy has them."""


WRONG: list[tuple[Callable[[BlockingClient], object], str]] = [
    (lambda me: me.publish("news", {"a": 1}), "a body is bytes or a string, not dict; encode it first"),  # type: ignore[arg-type]
    (lambda me: me.publish("news", None), "not NoneType"),  # type: ignore[arg-type]
    (lambda me: me.publish("news", "\ud800"), "valid Unicode"),
    (lambda me: me.publish(7), "the topic to publish on is a string, a Label or a Publication, not int"),  # type: ignore[arg-type]
    (lambda me: me.publish(Range("temp", 1, 2)), "not Range"),  # type: ignore[arg-type]
    (lambda me: me.publish(""), "1 to 256 bytes"),
    (lambda me: me.publish("news", temp=None), "the value of 'temp' is a number or a string, not NoneType"),  # type: ignore[arg-type]
    (lambda me: me.publish("news", temp=True), "not bool"),
    (lambda me: me.publish("news", temp=[1]), "not list"),  # type: ignore[arg-type]
    (lambda me: me.publish("news", temp=1 << 64), "a finite number of 64 bits"),
    (lambda me: me.publish("news", temp=float("nan")), "a finite number of 64 bits"),
    (lambda me: me.publish("news", temp="\ud800"), "valid Unicode"),
    (lambda me: me.publish(Publication((("topic", "news"),), {"a": 1})), "not dict"),  # type: ignore[arg-type]
    (lambda me: me.publish(Publication("news")), "a tuple of"),  # type: ignore[arg-type]
    (lambda me: me.publish(Publication(("news",))), r"\(attribute, value\), not str"),  # type: ignore[arg-type]
    (lambda me: me.publish(Publication(((7, "news"),))), "an attribute must be a string"),  # type: ignore[arg-type]
    (lambda me: me.publish(Publication((("topic", "news"),)), None), "has its body"),  # type: ignore[arg-type]
    (lambda me: me.subscribe(["a", "b"]), r"All\(...\) of several, not list"),  # type: ignore[arg-type]
    (lambda me: me.subscribe(None), "not NoneType"),  # type: ignore[arg-type]
    (lambda me: me.subscribe(b"news"), "not bytes"),  # type: ignore[arg-type]
    (lambda me: me.subscribe("a").ready(-1), "a number of seconds"),
    (lambda me: me.subscribe("b").ready("soon"), "a number of seconds"),  # type: ignore[arg-type]
    (lambda me: connect_sync(7), "configuration file, as in 'node.toml', not int"),  # type: ignore[arg-type]
    (lambda me: connect_sync(b"node.toml"), "configuration file"),  # type: ignore[arg-type]
    (lambda me: connect_sync("a\0b"), "no text that a path can be"),
]


def test_an_argument_of_a_wrong_type_is_the_callers_error(tmp_path: Path) -> None:
    with node(tmp_path) as there, connect_sync(tmp_path / "node.toml") as me:
        for call, text in WRONG:
            with pytest.raises(LocalError, match=text) as caught:
                call(me)
            assert not isinstance(caught.value, UnreachableError)
        me.publish("news", bytearray(b"still there"), temp=Number(1.5))  # type: ignore[arg-type]
        assert there.desk.published == [Publication((("topic", "news"), ("temp", 1.5)), b"still there")]


def test_connect_without_with_says_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(
        LocalError, match=r"publish: not connected yet; write `async with veilcast.connect\(...\) as me:`"
    ):
        connect("node.toml").publish("news")
    assert not hasattr(connect("node.toml"), "_anything")


@pytest.mark.parametrize(
    "module", [sync_client, sys.modules["veilcast.net.client"]], ids=lambda module: module.__name__
)
def test_every_public_method_has_a_docstring(module: types.ModuleType) -> None:
    public = [
        each for name, each in vars(module).items() if inspect.isclass(each) and each.__module__ == module.__name__
    ]
    assert len(public) >= 2
    for kind in public:
        for name, method in vars(kind).items():
            if inspect.isfunction(method) and not name.startswith("_"):
                assert method.__doc__, f"{kind.__name__}.{name}"


# --- the session


@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(0, 300), max_size=8))
def test_answers_cut_anywhere_are_the_same_answers(bodies: list[bytes], cuts: list[int]) -> None:
    """A stream of bytes comes in chunks of any size; a call that waits for the next note goes on waiting."""
    notes = [Note(bytes([at]), Publication((), body)) for at, body in enumerate(bodies)]
    answers: list[Answer] = [
        control_protocol.SubscribedAnswer(3),
        *(control_protocol.NoteArrived(3, note) for note in notes),
    ]
    data = said(1, answers[0]) + b"".join(said(0, answer) for answer in answers[1:])
    client = client_session.ClientSession()
    calls = client.subscribe(Label("news"), keep=False)
    for start, end in pairwise(sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})):
        client.incoming.append(data[start:end])
        client.act_on_incoming()
    assert list(client._followed[3].notes.values()) == notes
    if notes:
        with pytest.raises(StopIteration) as found:
            next(calls.next_note())
        assert found.value.value == notes[0]


@given(st.lists(st.binary(max_size=60), max_size=4))
def test_bytes_that_are_no_answers_lose_the_session_and_raise_nothing_else(chunks: list[bytes]) -> None:
    client = client_session.ClientSession()
    for chunk in chunks:
        client.incoming.append(chunk)
        client.act_on_incoming()
    with contextlib.suppress(VeilcastError):
        client.check()


# --- Ctrl-C


def said(number: int, answer: Answer) -> bytes:
    return control_protocol.encode_answer(number, answer)


@contextlib.contextmanager
def scripted(data: bytes, then: bytes | None = None) -> Iterator[BlockingClient]:
    """A client whose node has sent this and gone; or which echoes what is sent to it."""
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        there.sendall(data)
        there.shutdown(socket.SHUT_RDWR) if then is None else None
        yield BlockingClient(here)


OURS = frozenset({sync_client.__file__, client_session.__file__, control_protocol.__file__})


class Interrupter:
    """Raises `KeyboardInterrupt` at the n-th instruction of the client's own code, as a signal handler may."""

    def __init__(self, at: int) -> None:
        self._left, self.done = at, False
        self.where: object = None

    def __call__(self, frame: types.FrameType, event: str, _: object) -> Interrupter | None:
        if frame.f_code.co_filename not in OURS:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and not self.done and not _runs_on(frame):
            self._left -= 1
            if self._left < 0:
                self.done = True
                self.where = (frame.f_code.co_name, frame.f_lineno, dis.opname[frame.f_code.co_code[frame.f_lasti]])
                raise KeyboardInterrupt
        return self


def _runs_on(frame: types.FrameType) -> bool:
    """Whether the interpreter runs no signal handler before the instruction that comes next."""
    here, *following = (dis.opname[code] for code in frame.f_code.co_code[frame.f_lasti : frame.f_lasti + 3 : 2])
    return here in _NO_CHECK or (here, *following) == ("LOAD_FAST", "RETURN_VALUE")


_NO_CHECK = frozenset({"RESUME", "COPY_FREE_VARS", "RETURN_GENERATOR", "MAKE_CELL", "SEND", "RETURN_VALUE"})
"""Instructions before which the interpreter runs no signal handler."""


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.all_only)])
def test_ctrl_c_at_any_instruction_of_a_call_loses_no_byte_and_no_note(step: int, tmp_path: Path) -> None:
    """At each instruction in turn, or each seventh; then the same client goes on, and has every note."""
    with node(tmp_path), connect_sync(tmp_path / "node.toml") as me:
        me.publish("news", "warm up")
        interrupted, at = 0, 0
        while True:
            notes = me.subscribe("news")
            me.publish("news", b"one" * 10_000)
            me.publish("news", b"two" * 10_000)
            interrupter = Interrupter(at)
            sys.settrace(interrupter)
            try:
                me.status()
                me.publish("sports", b"x")
            except KeyboardInterrupt:
                interrupted += 1
            finally:
                sys.settrace(None)
            bodies = [next(notes).publication.body for _ in range(2)]
            assert bodies == [b"one" * 10_000, b"two" * 10_000]
            notes.close()
            assert me.status().subscriptions == 0
            if not interrupter.done:
                break
            at += step
        assert interrupted > 50


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.all_only)])
def test_ctrl_c_while_a_subscription_is_begun_or_ended_leaves_none_behind(step: int, tmp_path: Path) -> None:
    with node(tmp_path) as there, connect_sync(tmp_path / "node.toml") as me:
        interrupted, at = 0, 0
        while True:
            interrupter, notes = Interrupter(at), None
            sys.settrace(interrupter)
            try:
                notes = me.subscribe("news")
                notes.close()
            except KeyboardInterrupt:
                interrupted += 1
            finally:
                sys.settrace(None)
            if notes is not None:
                notes.close()
            me.status()  # An answer to `subscribe` that comes now makes the client send once more.
            assert me.status().subscriptions == 0, interrupter.where
            if not interrupter.done:
                break
            at += step
        assert interrupted > 50
        assert there.desk.interests == {}


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.all_only)])
def test_ctrl_c_while_a_note_is_handed_out_does_not_acknowledge_it_unseen(step: int, tmp_path: Path) -> None:
    """The program has not got the note, so the next call hands it out again."""
    with node(tmp_path), connect_sync(tmp_path / "node.toml") as me:
        interrupted, at = 0, 0
        while True:
            notes = me.subscribe("news")
            me.publish("news", b"one")
            me.publish("news", b"two")
            interrupter, bodies = Interrupter(at), list[bytes]()
            sys.settrace(interrupter)
            try:
                bodies.append(next(notes).publication.body)
            except KeyboardInterrupt:
                interrupted += 1
            finally:
                sys.settrace(None)
            while bodies[-1:] != [b"two"]:
                bodies.append(next(notes).publication.body)
            assert bodies == [b"one", b"two"], interrupter.where
            notes.close()
            if not interrupter.done:
                break
            at += step
        assert interrupted > 10


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.all_only)])
def test_ctrl_c_while_a_kept_subscription_is_taken_up_keeps_it_and_its_notes(step: int, tmp_path: Path) -> None:
    with node(tmp_path) as there, connect_sync(tmp_path / "node.toml") as me:
        me.subscribe("news", keep=True).close()
        me.publish("news", b"kept")
        interrupted, at = 0, 0
        while True:
            interrupter, notes = Interrupter(at), None
            sys.settrace(interrupter)
            try:
                notes = me.subscribe("news", keep=True)
                notes.close()
            except KeyboardInterrupt:
                interrupted += 1
            finally:
                sys.settrace(None)
            if notes is not None:
                notes.close()
            me.status()  # An answer to `subscribe` that comes now makes the client send once more.
            assert (list(there.desk.interests), len(there.desk.kept[0])) == ([0], 1), interrupter.where
            if not interrupter.done:
                break
            at += step
        assert interrupted > 50
        assert next(me.subscribe("news", keep=True)).publication.body == b"kept"
