"""A process loads the code of its own mode alone: the rooms that a composed node, host or worker has imported.

The files are laid out once for each mode. A fresh interpreter then forks for each process and composes it from its
files, up to the machine and its driver but without a socket, and tells the modules that it has.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Literal

import pytest

from patience import HANG_S
from veilcast.cli import localnet, mosquitto
from veilcast.cli.context import Context

MODES: tuple[Literal["mesh", "relay", "tree", "foil", "brokers"], ...] = ("mesh", "relay", "tree", "foil", "brokers")
HOSTS = (("relay", "server"), ("relay", "proxy"), ("tree", "directory"), ("brokers", "north-1"))
PROCESSES = (*((mode, None) for mode in MODES), *HOSTS)
DRIVERS = {"mesh": {"udp"}, "relay": {"streams"}, "tree": {"streams", "onions"}, "foil": {"streams", "mqtt"}}
DRIVERS["brokers"] = DRIVERS["relay"]
ALL_DRIVERS = {"udp", "streams", "onions", "mqtt", "tor", "torcontrol", "torprocess", "testnet"}
WITH_NUMPY = {("relay", "server"), ("tree", None), ("foil", None)}
"""Tag indexes, keyed permutations and decoys are arrays; nothing else needs any."""
WITHOUT_X509 = {("mesh", None), ("foil", None)}
HEAVY = {"rich", "scipy", "pandas", "pyspark", "numba", "http", "multiprocessing"}

SCRIPT = """
import contextlib, json, os, sys
from pathlib import Path
from veilcast.cli import worker

def compose(directory, host):
    before = sorted(sys.modules)
    with contextlib.ExitStack() as parts:
        net = worker.read_net(directory)
        if host is None:
            worker._compose(directory, net, 0, parts, None)
        else:
            parts.enter_context(worker._composed(directory, net, host, None))
        return {"before": before, "composed": sorted(sys.modules)}

found = []
for directory, host in json.load(sys.stdin):
    readable, writable = os.pipe()
    if os.fork() == 0:
        with os.fdopen(writable, "w") as out:
            json.dump(compose(Path(directory), host), out)
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as told:
        found.append(json.load(told))
    os.wait()
json.dump(found, sys.stdout)
"""
"""A worker's own steps. `veilcast node run` and the hosts' commands compose their processes by the same functions.
Every process is a fork of an interpreter that has imported the worker's module and composed nothing."""


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The files of a network of each mode; nothing of it runs."""
    home = tmp_path_factory.mktemp("networks")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(mosquitto, "program", lambda: "mosquitto")  # The files name it nowhere.
        for number, mode in enumerate(MODES):
            plan = localnet.Plan(nodes=3, mode=mode, subscribers=1, tor=mode != "tree")
            localnet.lay_out(home / mode, plan, Context(), Random(number))
    return {mode: home / mode for mode in MODES}


@pytest.fixture(scope="module")
def found(networks: dict[str, Path]) -> dict[tuple[str, str | None], dict[str, list[str]]]:
    """Of every process, by its mode and host (None for a member): its modules before it is composed, and after."""
    told = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        input=json.dumps([(str(networks[mode]), host) for mode, host in PROCESSES]),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=HANG_S,
    )
    return dict(zip(PROCESSES, json.loads(told.stdout), strict=True))


@pytest.mark.parametrize(("mode", "host"), PROCESSES)
def test_a_process_loads_its_own_mode_and_driver_alone(
    found: dict[tuple[str, str | None], dict[str, list[str]]], mode: str, host: str | None
) -> None:
    before, composed = found[mode, host]["before"], found[mode, host]["composed"]
    assert modes_in(before) == set(), "what every worker imports"
    assert modes_in(composed) == {mode}
    assert drivers_in(composed) == DRIVERS[mode]
    assert "sim" not in rooms(composed)
    assert not HEAVY & packages(composed)
    assert ("numpy" in composed) == ((mode, host) in WITH_NUMPY)
    assert ("cryptography.x509" in composed) == ((mode, host) not in WITHOUT_X509)


def rooms(loaded: list[str]) -> set[str]:
    return {name.split(".")[1] for name in loaded if name.startswith("veilcast.")}


def packages(loaded: list[str]) -> set[str]:
    return {name.partition(".")[0] for name in loaded}


def modes_in(loaded: list[str]) -> set[str]:
    """The modes whose protocol or whose node settings are loaded."""
    settings = {"broker_member": "brokers", **{f"{mode}_member": mode for mode in MODES}}
    named = {settings.get(name.removeprefix("veilcast.node.")) for name in loaded} - {None}
    return (rooms(loaded) & set(MODES)) | {str(mode) for mode in named}


def drivers_in(loaded: list[str]) -> set[str]:
    return {name for name in ALL_DRIVERS if f"veilcast.net.{name}" in loaded}
