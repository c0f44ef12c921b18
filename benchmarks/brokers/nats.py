"""nats-server as a broker, in the clear, with members of our own making on the same driver as all others.

Core NATS, which forwards each message to the connected subscribers, and keeps nothing; `verbose`, so that it says of
each publication that it has it. As much of a member as a benchmark needs: one connection, no loss. A frame is a line
and what follows it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from brokers.broker import Broker, Stage, free_ports
from brokers.members import Joined
from brokers.mosquitto import wait_for
from brokers.mqtt import topic_of
from veilcast.machine import (
    Address,
    Connect,
    Delivered,
    Event,
    Frame,
    Interest,
    Machine,
    Note,
    Publication,
    Record,
    Settled,
    Waiting,
)
from veilcast.net.mqtt import MqttDriver
from veilcast.net.mqtt import MqttSetup as Way
from veilcast.net.stream_setup import FrameFormat
from veilcast.topics import TOPIC


def is_here() -> bool:
    return _SERVER is not None


@contextmanager
def nats(directory: Path, stage: Stage) -> Iterator[Broker]:
    (port,) = free_ports(1)
    assert _SERVER is not None
    command = [_SERVER, "-a", "127.0.0.1", "-p", str(port), "-l", str(directory / "log")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_for(port)
        try:
            others = [f"other/{number}" for number in range(stage.others)]
            yield Broker({"broker": process.pid}, lambda number: _join(port), others)
        finally:
            process.terminate()


class NatsMember:
    """What `machine.Member` has. Its broker is the only peer."""

    def __init__(self, broker: Address) -> None:
        self._broker, self._is_up = broker, False
        self._frames: deque[Frame] = deque()
        self._events: deque[Event] = deque([Connect(broker)])
        self._last = 0
        self._unwritten: dict[int, Publication] = {}
        self._unanswered: deque[Event | None] = deque()
        """Handle the reply to the oldest command."""

    def publish(self, publication: Publication, now: int) -> int:
        self._last += 1
        self._unwritten[self._last] = publication
        self._events.append(Record(self._last, publication.body))
        return self._last

    def stored(self, record: int, now: int) -> None:
        publication = self._unwritten.pop(record)
        subject, body = _subject(str(publication.pairs[0][1])), publication.body
        self._command(f"PUB {subject} {len(body)}\r\n".encode() + body, Settled(record))

    def withdraw(self, record: int, now: int) -> None:
        raise NotImplementedError

    def subscribe(self, interest: Interest, now: int) -> int:
        self._last += 1
        self._command(f"SUB {_subject(topic_of(interest))} {self._last}".encode(), Waiting(self._last, now))
        return self._last

    def unsubscribe(self, number: int, now: int) -> None:
        raise NotImplementedError

    def acknowledge(self, note: bytes, now: int) -> None:
        """Core NATS knows of none."""

    def receive(self, data: bytes, source: Address, now: int) -> None:
        head, _, rest = data.partition(b"\r\n")
        word, *words = head.split(b" ")
        match word:
            case b"MSG":
                topic = words[0].decode().replace(".", "/")
                note = Note(b"", Publication(((TOPIC, topic),), rest[:-2]))
                self._events.append(Delivered(int(words[1]), note))
            case b"+OK":
                if (event := self._unanswered.popleft()) is not None:
                    self._events.append(event)
            case b"PING":
                self._frames.append(Frame(self._broker, b"PONG\r\n"))
            case b"-ERR":
                raise SystemExit(f"nats-server: {head!r}")

    def peer_up(self, peer: Address, now: int) -> None:
        self._is_up = True
        self._unanswered.appendleft(None)
        told = json.dumps({"verbose": True, "pedantic": False, "lang": "python", "version": "1"})
        self._frames.appendleft(Frame(self._broker, f"CONNECT {told}\r\n".encode()))

    def handle_timer(self, now: int) -> None:
        pass

    def next_timer(self) -> int | None:
        return None

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        return [self._frames.popleft() for _ in range(min(limit, len(self._frames)))] if self._is_up else []

    def next_event(self) -> Event | None:
        return self._events.popleft() if self._events else None

    def _command(self, line: bytes, done: Event) -> None:
        self._unanswered.append(done)
        self._frames.append(Frame(self._broker, line + b"\r\n"))


class _Cutter:
    """Lines; and after one of a message, as many bytes as it says."""

    def __init__(self, _: int) -> None:
        self._buffer = b""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        self._buffer += chunk
        at = 0
        while (end := self._buffer.find(b"\r\n", at)) >= 0:
            stop = end + 2
            if self._buffer.startswith(b"MSG ", at):
                stop += int(self._buffer[at:end].rpartition(b" ")[2]) + 2
                if stop > len(self._buffer):
                    break
            yield self._buffer[at:stop]
            at = stop
        self._buffer = self._buffer[at:]


def _join(port: int) -> Joined:
    return Joined(NatsMember(Address(f"127.0.0.1:{port}")), _drive)


def _drive(machine: Machine, act_on: Callable[[Event], object]) -> MqttDriver:
    return MqttDriver(machine, broker=Way(_LINES), act_on=act_on)


def _subject(label: str) -> str:
    return label.replace("/", ".")


_LINES = FrameFormat(_Cutter, lambda frame: b"", has_welcome=False)
_SERVER = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin")
