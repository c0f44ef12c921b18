"""A node that is killed at every point of every write, once each, and the check of its next run.

Run as a program, with a directory to work in and perhaps the name of a planted bug; prints a JSON object with the
number of points and the violations. Every point is a process of its own, forked from here, which ends by `os._exit`:
before a statement of SQL, after it, and within it, every few steps of SQLite's own machine. It reports over a pipe what
it confirmed to its clients and sent to its neighbour, so that the next run can be held to it.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from veilcast.authority.epoch import epoch_of
from veilcast.core.publication import NumberedPublication, make_notify, open_notify, stream_place_id
from veilcast.crypto.seal import NONCE
from veilcast.machine import Address, Publication
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.heartbeat import read_heartbeat
from veilcast.mesh.node import MeshNode
from veilcast.node import database
from veilcast.node import store as store_module
from veilcast.node.member_records import MemberRecords
from veilcast.node.store import NodeStore
from veilcast.sim.engine import START_US
from veilcast.sim.mesh.population import TOPIC, role_keyrings
from veilcast.topics import Label
from veilcast.wire import decode, encode, pad
from veilcast.wire.mesh import Heartbeat, Notify, Subscribe

CONFIG = MeshConfig(neighbours_max=4, address_bytes_max=8, linger_periods=4)
KEYRING = role_keyrings()["publisher"]
KEYS = KEYRING.keys_at(epoch_of(START_US, KEYRING.epoch_us)).topic(TOPIC)
PEER = Address("peer")
STEPS = 16
"""Steps of SQLite's machine between two points."""


def publication(body: bytes) -> Publication:
    return Publication((Label(TOPIC).pair,), body)


def foreign() -> list[tuple[bytes, bytes]]:
    """Return notes of another publisher: their ids, and the frames that carry them."""
    contents = [
        NumberedPublication(b"stranger", number, publication(b"from outside %d" % number)) for number in (1, 2, 3)
    ]
    return [
        (stream_place_id(TOPIC, one), encode(make_notify(KEYS, one, Random(one.number).randbytes))) for one in contents
    ]


class NodeLife:
    """One run of a node with one neighbour, driven by hand. `report` receives everything that the outside learns."""

    def __init__(self, directory: Path, number: int, report: Callable[[str, Any], None], bug: str = "") -> None:
        self.report, self.bug, self.now, self._beats = report, bug, START_US, 0
        rng = Random("one seed" if bug == "same stream" else f"life {number}")
        secret, entropy = KEYRING.membership.link, Random(f"disk {number}").randbytes
        self.store = NodeStore(directory, secret, entropy, unread_max=100, remembered_max=100)
        self.node = MeshNode(
            CONFIG, KEYRING, rng, rng.randbytes, [PEER], self.now, records=self.store.unsettled_records()
        )
        self.node.advertise(TOPIC, self.now)
        self.agent = MemberRecords(self.node, self.store, self.now, subscriptions_max=4)
        self.step()
        self.subscription = self.agent.subscribe(Label(TOPIC), self.now)
        self.step()
        self.report("subscribed", self.subscription)
        for _ in range(2):
            self.beat(Subscribe(KEYS.token))

    def step(self) -> None:
        if self.bug == "early":
            while (event := self.node.next_event()) is not None:
                self.agent.take(event, self.now)
            changes = self.agent.changes()
            self.agent.written(changes, (), self.now)
            self.send()
            self.store.write(changes)
        else:
            self.agent.step(self.node, self.now)
        self.send()

    def send(self) -> None:
        for frame in self.node.frames_to_send(self.now, 1000):
            if frame.data[:1] == b"\0":
                read_heartbeat(frame.data, CONFIG.heartbeat_bytes)
                continue
            notify = decode(frame.data)
            assert isinstance(notify, Notify)
            content = open_notify(KEYS, notify)
            place = f"{content.stream.hex()} {content.number}"
            nonce = notify.sealed[1 : 1 + NONCE].hex()
            self.report("sent", [content.publication.body.decode(), place, nonce, self.now])

    def beat(self, *messages: Subscribe) -> None:
        self._beats += 1
        beat = Heartbeat(self._beats, tuple(map(encode, messages)))
        self.node.receive(pad(encode(beat), CONFIG.heartbeat_bytes), PEER, self.now)
        self.now = max(self.now, self.node.next_timer() or 0)
        self.node.handle_timer(self.now)
        self.report("alive", self.now)
        self.step()

    def publish(self, body: bytes) -> None:
        record = self.agent.publish(publication(body), self.now)
        if self.bug == "early":
            self.report("safe", body.decode())
        self.step()
        if self.agent.is_stored(record):
            self.report("safe", body.decode())

    def hear(self, frame: bytes) -> None:
        self.node.receive(frame, PEER, self.now)
        self.step()

    def read(self, most: int) -> None:
        """Read some notes as a client, and acknowledge them."""
        for place in self.store.unread(self.subscription, limit=most):
            name = place.note.id
            self.report("given", name.hex())
            self.agent.acknowledge(self.subscription, name)
            if self.bug == "hasty":
                self.report("acknowledged", name.hex())
            self.step()
            self.report("acknowledged", name.hex())


def first_life(directory: Path, report: Callable[[str, Any], None], bug: str) -> None:
    life = NodeLife(directory, 1, report, bug)
    strangers = foreign()
    life.publish(b"one")
    life.hear(strangers[0][1])
    life.publish(b"two")
    life.read(2)
    for _ in range(CONFIG.linger_periods + 2):
        life.beat()
    life.hear(strangers[1][1])
    life.publish(b"three")
    life.read(1)


def judge(directory: Path, told: list[tuple[str, Any]], bug: str) -> list[str]:
    """Start the node again from its disk, and compare it with what was reported."""
    later: list[tuple[str, Any]] = []
    life = NodeLife(directory, 2, lambda what, value: later.append((what, value)), bug)
    given = {value for what, value in told if what == "given"}
    for name, frame in foreign():
        life.hear(frame)
        waits = {place.note.id for place in life.store.unread(life.subscription)}
        if name.hex() not in given and name not in waits:
            later.append(("wrong", f"note {name.hex()} is not to be had"))
    life.publish(b"four")
    for _ in range(2 * CONFIG.linger_periods + 4):
        life.beat()
    life.publish(b"five")
    acknowledged = {value for what, value in told if what == "acknowledged"}
    unread = [place.note.id.hex() for place in life.store.unread(life.subscription)]
    wrong = [value for what, value in later if what == "wrong"]
    wrong += [f"note {name} again after its acknowledgement" for name in unread if name in acknowledged]
    wrong += [f"note {name} stands there twice" for name in unread if unread.count(name) > 1]
    bodies: dict[str, str] = {}
    places: dict[str, str] = {}
    nonces: dict[str, None] = {}
    for body, place, nonce, _ in (value for what, value in [*told, *later] if what == "sent"):
        if places.setdefault(place, body) != body:
            wrong.append(f"{place} is the place of {body} and of {places[place]}")
        if bodies.setdefault(body, place) != place:
            wrong.append(f"{body} has the places {place} and {bodies[body]}")
        if nonce in nonces:
            wrong.append(f"nonce {nonce} twice")
        nonces[nonce] = None
    through = {value[0] for what, value in later if what == "sent"} | lingering_faults(told)
    wrong += [f"{body} was lost" for what, body in told if what == "safe" and body not in through]
    numbers = {value for what, value in [*told, *later] if what == "subscribed"}
    if len(numbers) > 1:
        wrong.append(f"the subscription has the numbers {numbers}")
    if left := life.store.unsettled_publications():
        wrong += [f"record {record} is never settled" for record in left[:-1]]
    life.store.close()
    return wrong


def lingering_faults(told: list[tuple[str, Any]]) -> set[str]:
    """Return the bodies that were sent so long before the end that the neighbours have them for certain."""
    end_us = max((value for what, value in told if what == "alive"), default=0)
    linger_us = CONFIG.linger_periods * CONFIG.heartbeat_us
    return {value[0] for what, value in told if what == "sent" and end_us - value[3] >= linger_us}


def run(work: Path, bug: str) -> dict[str, Any]:
    point, ended, violations = 0, False, list[str]()
    while not ended:
        # A planted bug shows at many points, so that every fifth is enough to see it.
        point += 5 if bug else 1
        directory = work / str(point)
        told, ended = run_killed_child(directory, point, bug)
        if not directory.exists() or not (directory / store_module.FILE).exists():
            violations += [f"point {point}: told {told} with no disk"] if told else []
            continue
        violations += [f"point {point}: {what}" for what in judge(directory, told, bug)]
        shutil.rmtree(directory)
        if bug and violations:
            break
    return {"points": point, "violations": violations}


def run_killed_child(directory: Path, point: int, bug: str) -> tuple[list[tuple[str, Any]], bool]:
    """Let a child run until this point; returns its reports, and whether it ran to the end."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            plan_kill(point)
            first_life(directory, lambda what, value: report(writing, what, value), bug)
        except BaseException as error:
            report(writing, "wrong", repr(error))
            raise
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = [(what, value) for what, value in map(json.loads, pipe)]
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, KILLED):
        raise RuntimeError(f"the child of point {point} ended with {code}: {told[-1:]}")
    return told, code == 0


def report(descriptor: int, what: str, value: Any) -> None:
    os.write(descriptor, msgspec.json.encode([what, value]) + b"\n")


def plan_kill(point: int) -> None:
    """End this process at the point of this number."""
    passed = 0

    def here() -> None:
        nonlocal passed
        passed += 1
        if passed == point:
            os._exit(KILLED)

    class Doomed(sqlite3.Connection):
        def execute(self, *arguments: Any) -> sqlite3.Cursor:
            here()
            self.set_progress_handler(here, STEPS)
            cursor = super().execute(*arguments)
            self.set_progress_handler(None, STEPS)
            here()
            return cursor

        def executescript(self, script: str) -> sqlite3.Cursor:
            self.set_progress_handler(here, STEPS)
            return super().executescript(script)

    connect = sqlite3.connect
    database.sqlite3.connect = lambda *arguments, **named: connect(*arguments, factory=Doomed, **named)  # type: ignore


KILLED = 9

if __name__ == "__main__":
    # The first life never ends cleanly, and nothing is asked of the disk after the second: no need to seal it anew.
    database.REWRITE_MAX = 0  # type: ignore[misc]
    sys.stdout.write(json.dumps(run(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")))
