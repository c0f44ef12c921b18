"""`veilcast demo`: what encryption alone hides, and what it does not, in a few seconds.

An authority grants one publisher and a few subscribers a topic; sealed, signed notes flood a simulated network of real
machines, byte for byte. Everyone then says what they learnt: subscribers read every note, the others none, and yet an
observer who sees only times and sizes names the publisher. That is what the mesh is for.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from functools import partial
from typing import Any, Final

from veilcast.authority import issuer
from veilcast.authority.epoch import HOUR_US, epoch_of
from veilcast.authority.keyring import EpochKeys
from veilcast.authority.topickeys import Role
from veilcast.cli.bounds import SEED_MAX, within
from veilcast.cli.context import Context, Report
from veilcast.cli.exits import FAILED_CHECK
from veilcast.crypto.seal import seal, unseal
from veilcast.crypto.sign import verify
from veilcast.errors import RemoteError
from veilcast.machine import Address, Delivered, Event
from veilcast.observe import Cell, Row
from veilcast.sim.flood import ID_SIZE, Flood
from veilcast.sim.graphs import watts_strogatz
from veilcast.sim.links import Links
from veilcast.sim.world import World
from veilcast.wire import decode, encode
from veilcast.wire.messages import Notify


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("demo", help="a private network on this machine, attacked and measured")
    parser.add_argument("--nodes", type=int, default=60, help="how many members (60)")
    parser.add_argument("--notes", type=int, default=20, help="how many notes are published (20)")
    parser.add_argument("--seed", type=int, default=1, help="which run (1)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=_run, parser=parser)


def _run(arguments: argparse.Namespace, context: Context) -> Report:
    # A publisher, subscribers, and somebody who is neither.
    within("--nodes", arguments.nodes, 2 + _SUBSCRIBERS, _NODES_MAX)
    within("--notes", arguments.notes, 1, _NOTES_MAX)
    within("--seed", arguments.seed, 0, SEED_MAX)
    rng = random.Random(arguments.seed)  # noqa: S311 - the demo's people and notes, not its keys
    addresses = [Address(f"member-{number:02}") for number in range(arguments.nodes)]
    publisher, *subscribers = rng.sample(addresses, 1 + _SUBSCRIBERS)
    keys = _keys(context, publisher, subscribers)

    readers: Counter[Address] = Counter()

    def on_event(address: Address, event: Event, _: int) -> None:
        if isinstance(event, Delivered) and _can_read(keys.get(address), keys[publisher], event.note.publication.body):
            readers[address] += 1

    cells: list[Cell] = []
    world = World(seed=arguments.seed, links=_LINKS, recorder=_Cells(cells), run="demo", on_event=on_event)
    for address in addresses:
        world.add(address, lambda birth: Flood())
    for u, v in watts_strogatz(len(addresses), 4, 0.2, rng):
        world.connect(addresses[u], addresses[v])
    for number in range(arguments.notes):
        frame = _note(keys[publisher], f"note {number}".encode(), context)
        world.after(number * _PAUSE_US, partial(_publish, world, publisher, rng.randbytes(ID_SIZE), frame))
    world.run(arguments.notes * _PAUSE_US + _PAUSE_US)
    world.finish()
    return _report(arguments, addresses, publisher, subscribers, readers, cells)


def _keys(context: Context, publisher: Address, subscribers: list[Address]) -> dict[Address, EpochKeys]:
    """One authority, one topic, a keyring for each who has a part in it."""
    epoch = epoch_of(context.now_us(), HOUR_US)
    authority = issuer.declare_label(issuer.create(HOUR_US, context.entropy), _TOPIC, "hardened", context.entropy)
    keys = {}
    for address in (publisher, *subscribers):
        role: Role = "publisher" if address == publisher else "subscriber"
        authority, keyring = issuer.grant_ready(authority, address, [(_TOPIC, role)], epoch, 1, context.entropy)
        keys[address] = keyring.at(epoch)
    return keys


def _note(keys: EpochKeys, text: bytes, context: Context) -> bytes:
    topic = keys.topic(_TOPIC)
    assert topic.signing is not None
    sealed = seal(topic.content, text, context=topic.token, entropy=context.entropy)
    return encode(Notify(topic.token, sealed, topic.signing.sign(topic.token + sealed, purpose=_PURPOSE)))


def _publish(world: World, publisher: Address, name: bytes, frame: bytes) -> None:
    world.call(publisher, lambda node, now: node.publish(name, frame))


def _can_read(keys: EpochKeys | None, publisher: EpochKeys, body: bytes) -> bool:
    """Whether a member with these keys gets the text out of the bytes that reached it."""
    signing = publisher.topic(_TOPIC).signing
    assert signing is not None
    message = decode(body)
    if keys is None or not isinstance(message, Notify):
        return False
    try:
        verify(signing.public, message.token + message.sealed, message.signature, purpose=_PURPOSE)
        unseal(keys.topic(_TOPIC).content, message.sealed, context=message.token)
    except RemoteError:
        return False
    return True


def _first_senders(cells: list[Cell]) -> Counter[str]:
    """The observer's attack: after every silence, whoever sends first is the source."""
    guesses: Counter[str] = Counter()
    last = None
    for cell in cells:
        if last is None or cell.t_us - last > _PAUSE_US // 2:
            guesses[cell.src] += 1
        last = cell.t_us
    return guesses


def _report(
    arguments: argparse.Namespace,
    addresses: list[Address],
    publisher: Address,
    subscribers: list[Address],
    readers: Counter[Address],
    cells: list[Cell],
) -> Report:
    others = [address for address in addresses if address not in subscribers and address != publisher]
    read = sum(readers[address] for address in subscribers)
    leaked = sum(readers[address] for address in others)
    guessed, hits = _first_senders(cells).most_common(1)[0]
    named = guessed == publisher
    wanted = arguments.notes * len(subscribers)
    data = {
        "members": len(addresses),
        "notes": arguments.notes,
        "cells": len(cells),
        "read_by_subscribers": read,
        "read_by_subscribers_of": wanted,
        "read_by_others": leaked,
        "observer_names_publisher": named,
        "observer_hits": hits,
    }
    lines = [
        f"{len(addresses)} members, 1 publisher, {len(subscribers)} subscribers, {arguments.notes} notes, "
        f"{len(cells)} cells on the wire (simulated)",
        "",
        f"  subscribers   read {read} of {wanted} notes",
        f"  the others    read {leaked}, though every note passed through them",
        f"  an observer   names {guessed} as the publisher ({hits} of {arguments.notes} bursts begin there): "
        + ("right" if named else "wrong"),
        "",
        "Encryption hides what is said, not who speaks. Hiding who speaks is the mesh's work, and not done yet.",
    ]
    return Report(data, lines, 0 if read == wanted and not leaked else FAILED_CHECK)


class _Cells:
    """A recorder that keeps what an observer of the wires would see."""

    def __init__(self, cells: list[Cell]) -> None:
        self._cells = cells

    def append(self, row: Row) -> None:
        if isinstance(row, Cell):
            self._cells.append(row)


_TOPIC: Final = "news/eu"
_SUBSCRIBERS: Final = 5
_NODES_MAX: Final = 1_000
_NOTES_MAX: Final = 1_000
_PAUSE_US: Final = 2_000_000
_LINKS: Final = Links(latency_us=(10_000, 100_000))
_PURPOSE: Final = b"veilcast/notify"
