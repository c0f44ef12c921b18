"""A process loads the code of its own mode alone: the modules that each service has when it begins to serve.

The files of a network of each mode are written once. One interpreter then forks for each command, which composes its
process from the files, up to the machine and its driver but without a socket, and reports its modules.
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

from support.waits import HANG_S
from veilcast.cli.context import Context
from veilcast.cli.local import mosquitto
from veilcast.cli.local import network as localnet

MODES: tuple[Literal["mesh", "relay", "tree", "foil", "brokers"], ...] = ("mesh", "relay", "tree", "foil", "brokers")
HOSTS = (("relay", "server"), ("relay", "proxy"), ("tree", "directory"), ("brokers", "north-1"))
PROCESSES = (*((mode, "01") for mode in MODES), *HOSTS)
DRIVERS = {"mesh": {"udp"}, "relay": {"streams"}, "tree": {"streams", "onion"}, "foil": {"streams", "mqtt"}}
DRIVERS["brokers"] = DRIVERS["relay"]
ALL_DRIVERS = {"udp", "streams", "onion", "mqtt", "tor", "tor_control", "tor_process", "tor_testnet"}
WITH_NUMPY = {("relay", "server"), ("tree", "01"), ("foil", "01")}
"""Tag indexes, keyed permutations and decoys are arrays; nothing else needs any."""
WITHOUT_X509 = {"mesh", "foil"}
NEVER = {"veilcast.sim", "veilcast.lab", "veilcast.cli.local.byzantine_brokers", "veilcast.cli.local.network"}
HEAVY = {"rich", "scipy", "pandas", "pyspark", "numba", "http", "multiprocessing"}

COMMANDS = {
    "01": ("node", "run", "node.toml"),
    "server": ("relay", "server", "run", "server.toml"),
    "proxy": ("relay", "proxy", "run", "proxy.toml"),
    "directory": ("tree", "directory", "run", "directory.toml"),
    "north-1": ("brokers", "run", "broker.toml"),
}
SCRIPT = """
import argparse, asyncio, importlib.metadata, json, msgspec, os, sys

def loaded(arguments):
    if not arguments:
        import veilcast.cli.local.worker
        return sorted(sys.modules)
    from veilcast.cli import service_run
    from veilcast.cli.context import Report
    from veilcast.cli.main import main
    service_run.run_service = lambda station, context, **_: Report({"modules": sorted(sys.modules)})
    sys.stdout = out
    main([*arguments, "--json"])

for arguments in json.load(sys.stdin):
    readable, writable = os.pipe()
    if os.fork() == 0:
        with os.fdopen(writable, "w") as out:
            told = loaded(arguments)
            if told is not None:
                json.dump({"modules": told}, out)
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as told:
        print(told.read().strip())
    os.wait()
"""
"""Runs each command in a fork of an interpreter that has nothing of Veilcast yet, up to where the command would serve;
without arguments, imports a local network's worker."""


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The files of a network of each mode; nothing of it runs."""
    home = tmp_path_factory.mktemp("networks")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(mosquitto, "find_mosquitto", lambda: "mosquitto")  # The files name it nowhere.
        for number, mode in enumerate(MODES):
            plan = localnet.NetworkPlan(nodes=3, mode=mode, subscribers=1, tor=mode != "tree")
            localnet.lay_out(home / mode, plan, Context(), Random(number))
    return {mode: home / mode for mode in MODES}


@pytest.fixture(scope="module")
def found(networks: dict[str, Path]) -> dict[tuple[str, str] | None, list[str]]:
    """The modules of each process by its mode and directory, and at None those of every worker."""
    commands = [_command(networks[mode], name) for mode, name in PROCESSES]
    told = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        input=json.dumps([*commands, []]),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=HANG_S,
    )
    lists = [json.loads(line)["modules"] for line in told.stdout.splitlines()]
    return dict(zip((*PROCESSES, None), lists, strict=True))


@pytest.mark.parametrize(("mode", "name"), PROCESSES)
def test_a_process_loads_its_own_mode_and_driver_alone(
    found: dict[tuple[str, str] | None, list[str]], mode: str, name: str
) -> None:
    loaded = found[mode, name]
    assert modes_in(loaded) == {mode}
    assert drivers_in(loaded) == DRIVERS[mode]
    assert ("numpy" in loaded) == ((mode, name) in WITH_NUMPY)
    assert ("cryptography.x509" in loaded) == (mode not in WITHOUT_X509)
    assert not NEVER & set(loaded)
    assert not HEAVY & packages(loaded)


def test_a_worker_loads_no_mode_before_it_has_read_its_network(
    found: dict[tuple[str, str] | None, list[str]],
) -> None:
    assert modes_in(found[None]) == set()
    assert drivers_in(found[None]) == set()
    assert not (NEVER - {"veilcast.cli.local.network"}) & set(found[None])
    assert not (HEAVY | {"numpy"}) & packages(found[None])


def _command(network: Path, name: str) -> list[str]:
    *command, file = COMMANDS[name]
    return [*command, "-c", str(network / name / file)]


def rooms(loaded: list[str]) -> set[str]:
    return {name.split(".")[1] for name in loaded if name.startswith("veilcast.")}


def packages(loaded: list[str]) -> set[str]:
    return {name.partition(".")[0] for name in loaded}


def modes_in(loaded: list[str]) -> set[str]:
    """The modes whose protocol or whose node settings are loaded."""
    named = {mode for mode in MODES if f"veilcast.node.{mode}" in loaded}
    return (rooms(loaded) & set(MODES)) | named


def drivers_in(loaded: list[str]) -> set[str]:
    return {name for name in ALL_DRIVERS if f"veilcast.net.{name}" in loaded}
