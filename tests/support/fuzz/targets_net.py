"""Targets: sockets. The control socket, inquiries, Tor's control port, SOCKS answers, records and TLS on streams."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from support.fuzz.fuzz_target import Format, Group, Prepared
from veilcast.authority import issuer
from veilcast.authority.keyring import Keyring
from veilcast.authority.tls_identity import TlsIdentity
from veilcast.errors import ExcessError, LocalError, MalformedError, RemoteError, VeilcastError
from veilcast.machine import Note, Publication
from veilcast.net import control_protocol, host_queries, records
from veilcast.net import tor_control as torcontrol
from veilcast.net.host_queries import HostQueryServer
from veilcast.net.socks import SocksWrapper
from veilcast.net.stream_setup import BrokenStream
from veilcast.net.tls import StreamIdentity, TlsSetup
from veilcast.net.tor import Tor, bootstrap_percent
from veilcast.topics import Equal, Label, Range

GROUP = Group()
NOTE = Note(bytes(16), Publication((Label("news").pair, ("a", 1.5)), b"body"))


def finish(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that never waits, because all its input is here already."""
    try:
        work.send(None)
    except StopIteration as ended:
        return ended.value
    work.close()
    raise AssertionError("it waits for more, though the stream has ended")


class Whole:
    """A stream that has ended and whose bytes have all arrived."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    async def readexactly(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        self._at += size
        if len(part) < size:
            raise asyncio.IncompleteReadError(part, size)
        return part


@GROUP.target("control-requests", "the control socket, node's side", "net.control_protocol:read_request")
def control_requests() -> Prepared:
    made = [
        control_protocol.PublishRequest(NOTE.publication),
        control_protocol.SubscribeRequest((Equal("topic", "news"), Range("a", 1, 2))),
        control_protocol.UnsubscribeRequest(1),
        control_protocol.AcknowledgeRequest(1, NOTE.id),
        control_protocol.StatusRequest(),
        control_protocol.PeersRequest(),
        control_protocol.StopRequest(),
    ]
    examples = [control_protocol.encode_request(at, each)[control_protocol.LENGTH :] for at, each in enumerate(made)]  # type: ignore[arg-type]
    shells = (b"", b"\x92\x01", b"\x92\x01\x82\xa4type\xa7Publish\xabpublication")

    def check(body: bytes) -> object:
        """The body behind its length, and the same bytes as a stream of their own."""
        with suppress(MalformedError, asyncio.IncompleteReadError):
            finish(control_protocol.read_request(Whole(body)))  # type: ignore[arg-type]
        framed = Whole(len(body).to_bytes(control_protocol.LENGTH, "big") + body)
        number, request = finish(control_protocol.read_request(framed))  # type: ignore[arg-type]
        if isinstance(request, control_protocol.UnreadableRequest):
            raise MalformedError(request.reason)
        return number, request

    return Prepared(check, (MalformedError,), examples, Format.MSGPACK, prefixes=shells)


@GROUP.target("control-answers", "the control socket, client's side", "net.control_protocol:decode_answer")
def control_answers() -> Prepared:
    made = [
        control_protocol.Welcome(1),
        control_protocol.DoneAnswer(),
        control_protocol.SubscribedAnswer(1),
        control_protocol.NoteArrived(1, NOTE),
        control_protocol.SubscriptionEnded(1),
        control_protocol.Readiness(1, ready=False, until_us=7),
        control_protocol.PeersAnswer([]),
        control_protocol.RefusedAnswer.of(LocalError("no")),
    ]
    examples = [control_protocol.encode_answer(at, each)[control_protocol.LENGTH :] for at, each in enumerate(made)]  # type: ignore[arg-type]

    def check(body: bytes) -> object:
        """The body behind its length, and the same bytes as a stream of their own."""
        with suppress(MalformedError):
            control_protocol.decode_answer(body)
        found = control_protocol.decode_answer(len(body).to_bytes(control_protocol.LENGTH, "big") + body)
        assert found is not None
        number, answer, _ = found
        if isinstance(answer, control_protocol.RefusedAnswer):
            assert isinstance(answer.error(), VeilcastError)
        return number, answer

    return Prepared(check, (MalformedError,), examples, Format.MSGPACK, prefixes=(b"", b"\x92\x01"))


@GROUP.target(
    "inquiries", "questions to a host and its answers", "net.host_queries:HostQueryServer", "net.host_queries:ask_host"
)
def inquiry() -> Prepared:
    """Both sides get the same line. The answer to a question is always a line of JSON."""

    def answer(question: dict[str, Any]) -> dict[str, Any]:
        if question.get("order") is not None:
            raise MalformedError("no order")
        return {"asked": len(question)}

    host = HostQueryServer(Path("/nowhere"), answer)

    def check(line: bytes) -> object:
        reply = host._reply(line)
        assert reply.endswith(b"\n")
        assert isinstance(msgspec.json.decode(reply), dict)
        with mock.patch.object(socket, "socket", return_value=_Told(line)):
            return len(host_queries.ask_host(Path("/nowhere"), {}))

    examples = [b'{"status": 1}\n', b'{"order": "AAAA"}\n', b'{"error": "no"}\n', b"[]\n", b"1\n"]
    return Prepared(check, (LocalError,), examples, Format.JSON, tokens=('"order"', '"error"', '"status"'))


class _Told:
    """A socket whose other side sends these bytes and no more."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def __enter__(self) -> _Told:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def settimeout(self, seconds: float) -> None: ...
    def setblocking(self, blocking: bool) -> None: ...
    def connect(self, address: object) -> None: ...
    def sendall(self, data: bytes) -> None: ...
    def close(self) -> None: ...

    family = socket.AF_UNIX

    def recv(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        self._at += len(part)
        return part

    def makefile(self, mode: str) -> _Told:
        return self

    def readline(self, size: int) -> bytes:
        return self._data.partition(b"\n")[0][:size]


@GROUP.target("tor-control", "answers at Tor's control port", "net.tor_control:TorControl", "net.tor:Tor")
def tor_control() -> Prepared:
    def check(data: bytes) -> object:
        with mock.patch.object(torcontrol, "_connect", return_value=_Told(data)):
            control = torcontrol.TorControl("127.0.0.1:9051")
        percent = bootstrap_percent(control)
        tor = Tor(control)
        tor.serve(("127.0.0.1", 80))
        with suppress(TimeoutError):
            control.await_event(0.001)
        return percent

    greeting = b'250-PROTOCOLINFO 1\r\n250-AUTH METHODS=NULL\r\n250-VERSION Tor="0.4.8.1"\r\n250 OK\r\n250 OK\r\n'
    phase = b"250-status/bootstrap-phase=NOTICE BOOTSTRAP PROGRESS=50 TAG=x\r\n250 OK\r\n"
    listeners = b'250-net/listeners/socks="127.0.0.1:9050"\r\n250 OK\r\n'
    onion = (
        b"250 OK\r\n250-ServiceID=" + b"a" * 56 + b"\r\n250-PrivateKey=ED25519-V3:" + b"A" * 86 + b"==\r\n250 OK\r\n"
    )
    event = b"650 HS_DESC UPLOADED abc UNKNOWN x\r\n"
    data = b"250+net/listeners/socks=\r\n.a\r\n..\r\n.\r\n250 OK\r\n"
    cookie = b'250-AUTH METHODS=COOKIE,SAFECOOKIE COOKIEFILE="/nowhere/\\"c"\r\n250 OK\r\n'
    whole = greeting + phase + listeners + onion + event
    examples = [whole, greeting + event + phase + listeners, greeting + data, cookie, b"514 no\r\n"]
    return Prepared(check, (VeilcastError,), examples, prefixes=(b"", greeting))


@GROUP.target("socks", "answers of a SOCKS port, cut anywhere", "net.socks:SocksWrapper")
def socks() -> Prepared:
    def talk(chunks: list[bytes]) -> tuple[str, bytes]:
        wrap, over, plain = SocksWrapper("a.onion", 80, b"u", b"p"), False, b""
        try:
            for chunk in chunks:
                if over:
                    plain += b"".join(wrap.read(chunk))
                else:
                    over = wrap.handshake(chunk)
            plain += b"".join(wrap.read(b"")) if over else b""
        except BrokenStream as error:
            return error.reason, b""
        return str(over), plain

    def check(data: bytes) -> object:
        at, stream = data[0] if data else 0, data[1:]
        whole = talk([stream])
        assert talk([stream[:at], stream[at:]]) == whole, "a cut changes the answer"
        return whole[0], whole[1]

    begin = b"\x05\x05\x02\x01\x00\x05\x00\x00"
    places = (b"\x01" + bytes(6), b"\x03\x05a.com\x00\x50", b"\x04" + bytes(18), b"\x03\x00\x00\x00")
    examples = [begin + place + b"rest" for place in places] + [b"\x03\x05\xff", b"\x03\x05\x02\x01\x01"]
    return Prepared(check, (), examples, prefixes=(b"\x03", begin))


@GROUP.target("stream-records", "records of a stream, cut anywhere", "net.records:RecordReader")
def stream_records() -> Prepared:
    def read(chunks: list[bytes]) -> tuple[list[bytes], str]:
        reader, found = records.RecordReader(1024), []
        for chunk in chunks:
            try:
                for each in reader.feed(chunk):
                    found.append(each)
            except ExcessError as error:
                return found, type(error).__name__
        return found, ""

    def check(data: bytes) -> object:
        at, stream = data[0] if data else 0, data[1:]
        whole = read([stream])
        assert read([stream[:at], stream[at:]]) == whole, "a cut changes the records"
        return len(whole[0]), whole[1]

    examples = [
        b"\x02" + b"".join(records.encode_record(b"x" * size) for size in sizes) for sizes in ((0, 1), (5, 1024, 0))
    ]
    return Prepared(check, (), [*examples, b"\x01\x00\x00\x04\x01" + bytes(1025)])


@GROUP.target("tls-stream", "bytes of strangers and of members on a TLS stream", "net.tls:TlsWrapper")
def tls_stream() -> Prepared:
    """The first byte chooses: a stranger in place of a handshake, or a member's stream with a changed byte."""
    entropy, epoch = random.Random(6).randbytes, int(time.time()) // 3600
    authority = issuer.create(3_600_000_000, entropy)
    _, host = issuer.grant_ready(authority, "host", [], epoch, 24, entropy, "server")
    _, caller = issuer.grant_ready(authority, "caller", [], epoch, 24, entropy, "proxy")
    way, other = TlsSetup(_identity(host)), TlsSetup(_identity(caller))

    def check(data: bytes) -> object:
        choice, stream = data[0] if data else 0, data[1:]
        wrap = way.wrap_inbound()
        if choice & 1:
            calling = other.dial("127.0.0.1:1").wrap  # type: ignore[arg-type]
            calling.handshake(b"")
            for _ in range(3):
                wrap.handshake(calling.outgoing())
                calling.handshake(wrap.outgoing())
            calling.write(stream[:100] or b"a")
            sent = bytearray(calling.outgoing())
            sent[stream[-1] % len(sent) if stream else 0] ^= choice >> 1
            return len(b"".join(wrap.read(bytes(sent))))
        over = wrap.handshake(stream)
        return (over, len(wrap.outgoing()))

    first = other.dial("127.0.0.1:1").wrap  # type: ignore[arg-type]
    first.handshake(b"")
    hello = first.outgoing()
    return Prepared(
        check, (BrokenStream, RemoteError), [b"\0" + hello, b"\1abc", b"\3abc", b"\0GET / HTTP/1.1\r\n\r\n"]
    )


def _identity(keyring: Keyring) -> StreamIdentity:
    party = TlsIdentity(keyring)
    return StreamIdentity(
        chain=party.chain, key=party.key.reveal(), anchor=party.anchor, callers=party.callers, hosts=party.hosts
    )
