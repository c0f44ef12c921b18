"""A command loads the rooms and libraries that it uses and no others: all kinds of commands, in one table.

A fresh interpreter forks for each row and runs its command lines. A command ends by itself, or at its first line of
output (`node run` prints its address). The fork reports its modules. The test counts modules and not seconds, so it
does not depend on the speed of the computer; `benchmarks/start.py` measures the seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

import pytest

from support.memory_node import MemoryNode, serve_control
from support.waits import HANG_S
from veilcast.cli import commands
from veilcast.cli.context import Context
from veilcast.cli.local import mosquitto, network
from veilcast.machine import Publication
from veilcast.topics import Conjunction

LOCAL_NETWORKS = "veilcast.cli.local.network"
MODES: tuple[Literal["mesh", "relay", "tree", "foil", "brokers"], ...] = ("mesh", "relay", "tree", "foil", "brokers")
WATCHED = (
    "asyncio",
    "email",
    "inspect",
    "multiprocessing",
    "sqlite3",
    "ssl",
    "veilcast.cli.local.byzantine_brokers",
    LOCAL_NETWORKS,
)
"""Parts of the standard library that take long to load; Byzantine brokers, and networks on one machine."""


class Loaded(NamedTuple):
    """The modules that a command has loaded when it ends: rooms of veilcast, libraries, and those of `WATCHED`."""

    rooms: str
    libraries: str = ""
    watched: str = ""
    codes: str = "0"
    """The exit codes of the command lines."""

    def __add__(self, other: object) -> Loaded:
        assert isinstance(other, Loaded)
        return Loaded(*(" ".join({*mine.split(), *theirs.split()}) for mine, theirs in zip(self, other, strict=True)))

    def sets(self) -> dict[str, set[str]]:
        return {name: set(words.split()) for name, words in self._asdict().items()}


BARE = Loaded("cli errors lazy nearest")
CLIENT = BARE + Loaded("decoding machine net topics", "msgspec typing_extensions", "inspect")
KEYS = BARE + Loaded(
    "authority crypto decoding machine topics",
    "cryptography msgspec nacl typing_extensions",
    "inspect",
)
NODE = KEYS + Loaded("core faults link net node wire", watched="asyncio sqlite3 ssl")
STREAMS = NODE + Loaded("", watched="email")
TABLE = {
    "(every help)": BARE,
    "(every mistake)": BARE._replace(codes="2"),
    "--version": BARE,
    "pub news -m hello": CLIENT,
    "sub news --count 1": CLIENT,
    "status": CLIENT,
    "peers": CLIENT,
    "node stop": CLIENT,
    "node new --keyring k --listen 127.0.0.1:4000": KEYS + Loaded("core faults link mesh node wire"),
    "node run -c mesh/01/node.toml": NODE + Loaded("mesh"),
    "node run -c relay/01/node.toml": STREAMS + Loaded("relay", "barriers rbcl"),
    "node run -c tree/01/node.toml": STREAMS + Loaded("tree", "numpy"),
    "node run -c foil/01/node.toml": NODE + Loaded("foil", "numpy"),
    "node run -c brokers/01/node.toml": STREAMS + Loaded("brokers"),
    "net status --dir mesh": KEYS + Loaded("link net node", watched=f"asyncio ssl {LOCAL_NETWORKS}"),
    "authority init authority": KEYS,
    "authority show authority": KEYS,
    "relay proxy init mask": KEYS + Loaded("core node relay wire", "barriers rbcl"),
    "brokers overlay init operator": KEYS + Loaded("brokers core node wire"),
    "sim list": KEYS + Loaded("faults link core observe sim wire", "numpy", "email") + Loaded(" ".join(MODES)),
    "lab list": BARE + Loaded("decoding lab", "msgspec typing_extensions", "inspect"),
}
"""`(every help)` runs `--help` of all commands in one process; `(every mistake)` all of `MISTAKES`."""

PLANTED = "import numpy veilcast.sim"
MISTAKES = ["pubb", "", "lab", "lab lst", "pub --mesage", "pub news hello", "net up 3 --mode mash"]


@pytest.mark.parametrize("command", TABLE)
def test_a_command_loads_what_the_table_says(found: dict[str, Loaded], command: str) -> None:
    assert found[command].sets() == TABLE[command].sets()


def test_a_planted_import_is_found(found: dict[str, Loaded]) -> None:
    assert found[PLANTED].sets() == (BARE + Loaded("sim", "numpy")).sets() | {"watched": {"inspect"}}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Loaded]:
    home = tmp_path_factory.mktemp("home")
    lay_out_networks(home)
    lines = {line: [line] for line in (*TABLE, PLANTED)} | {"(every help)": [*helps()], "(every mistake)": MISTAKES}
    with running_node(home):
        told = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            cwd=home,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            input=json.dumps([WATCHED, [[line.split() for line in each] for each in lines.values()]]),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=HANG_S,
        )
    return {
        name: Loaded(*map(" ".join, loaded))
        for name, loaded in zip(lines, map(json.loads, told.stdout.splitlines()), strict=True)
    }


def helps() -> Iterator[str]:
    """The command lines that ask for the help of every parser."""

    def below(parser: argparse.ArgumentParser, names: list[str]) -> Iterator[str]:
        yield " ".join([*names, "--help"])
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, child in action.choices.items():
                    yield from below(child, [*names, name])

    return below(commands.whole_parser(), [])


def lay_out_networks(home: Path) -> None:
    """The files of a network of each mode; nothing of it runs."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(mosquitto, "find_mosquitto", lambda: "mosquitto")  # The files name it nowhere.
        for number, mode in enumerate(MODES):
            plan = network.NetworkPlan(nodes=3, mode=mode, subscribers=1, tor=mode != "tree")
            network.lay_out(home / mode, plan, Context(), Random(number))


class GenerousNode(MemoryNode):
    """Has a note for every subscription at once."""

    async def subscribe(self, interest: Conjunction, *, keep: bool) -> int:
        number = await super().subscribe(interest, keep=keep)
        await self.publish(Publication((("topic", "news"),), b"hello"))
        return number


@contextmanager
def running_node(home: Path) -> Iterator[None]:
    """A node's control socket, served by a thread of this process."""
    up, ended = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with serve_control(home, GenerousNode()):
            up.set()
            await ended.wait()

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert up.wait(HANG_S)
        yield
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()


SCRIPT = """
import json, os, sys

class Said(BaseException):
    pass

def end(line):
    raise Said

def run(line):
    from veilcast.cli.main import main
    if line[:1] == ["import"]:
        line = list(map(__import__, line[1:])) and ["--version"]
    context = None
    if line[:2] == ["node", "run"]:
        from veilcast.cli.context import Context
        context = Context(say=end)
    if line[:1] in (["authority"], ["brokers"]) and "--help" not in line:
        from veilcast.cli.context import Context
        from veilcast.crypto.passphrase import PassphraseCost
        context = Context(cost=PassphraseCost(1, 1))
    try:
        return main(line, context)
    except SystemExit as ended:
        return ended.code
    except Said:
        return 0

def loaded(codes):
    new = {name: module for name, module in sys.modules.items() if name not in before}
    files = {name: getattr(module, "__file__", None) or "" for name, module in new.items() if "." not in name}
    return [
        sorted({name.split(".")[1] for name in new if name.startswith("veilcast.")}),
        sorted(name for name, file in files.items() if "site-packages" in file and name[0] != "_"),
        sorted(set(watched) & set(new)),
        sorted(set(map(str, codes))),
    ]

before = set(sys.modules)
watched, rows = json.load(sys.stdin)
for lines in rows:
    child = os.fork()
    if child == 0:
        out = os.dup(1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        codes = [run(line) for line in lines]
        os.write(out, json.dumps(loaded(codes)).encode() + b"\\n")
        os._exit(0)
    os.waitpid(child, 0)
"""
