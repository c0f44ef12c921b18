from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from xml.etree import ElementTree

import pytest

from support.waits import HANG_S, wait_until
from veilcast.authority.epoch import HOUR_US
from veilcast.cli import demo
from veilcast.cli.context import Context
from veilcast.cli.local import network
from veilcast.cli.local import workers as crew
from veilcast.cli.local.network import NetworkPlan, SmallWorld
from veilcast.lab import tables
from veilcast.lab.attack.observer.quick_look import take_quick_look
from veilcast.lab.report.demo_page import DemoNetwork, render_page
from veilcast.observe import CellRow


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory with a short name, because socket paths are limited."""
    with tempfile.TemporaryDirectory(prefix="vc-") as name:
        yield Path(name)


COMMAND = (sys.executable, "-m", "veilcast.cli.main", "demo")
DOOR = (str(Path(__file__).parents[2] / "run"), "demo")
"""The command of the README."""


def start(home: Path, *options: str, command: tuple[str, ...] = COMMAND) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*command, "--quick", "--page", str(home / "p.html"), *options],
        env={**os.environ, "TMPDIR": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def workers_below(directory: Path) -> list[int]:
    return [pid for home in directory.glob("veilcast-demo-*/*") for pid in crew.living_workers(home).values()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_demo_leaves_nothing_running_however_it_ends(number: signal.Signals, home: Path) -> None:
    child = start(home)
    wait_until(lambda: child.poll() is not None or list(home.glob("veilcast-demo-*/*/*/node.sock")))
    assert child.poll() is None
    workers = workers_below(home)
    assert workers
    os.killpg(child.pid, number)
    _, err = child.communicate(timeout=HANG_S)
    wait_until(lambda: not workers_below(home))
    assert not list(home.rglob("*.sock"))
    if number != signal.SIGKILL:
        assert child.returncode == 130
        assert err.endswith("veilcast: interrupted\n")
        assert not list(home.glob("veilcast-demo-*"))
        for worker in workers:
            with pytest.raises(ProcessLookupError):
                os.kill(worker, 0)


def test_a_demo_under_nohup_outlives_its_terminal() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with demo._interrupted_by_any_signal():
            os.kill(os.getpid(), signal.SIGHUP)
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.all_only
def test_the_demo_delivers_and_shows_what_the_observer_learns(home: Path) -> None:
    child = start(home, "--json", command=DOOR)
    out, err = child.communicate(timeout=HANG_S)
    assert child.returncode == 0, err
    bare, covered, hardened = json.loads(out)["networks"]
    assert [row["profile"] for row in (bare, covered, hardened)] == ["paper", "paper, PF + SG", "hardened"]
    assert bare["publisher_named"]
    assert bare["sizes"] > 1
    assert (hardened["sizes"], hardened["publications_seen"], hardened["readers_named"]) == (1, 0, 0)
    assert (home / "p.html").exists()


def test_the_page_needs_nothing_from_elsewhere_and_its_pictures_are_whole(tmp_path: Path) -> None:
    plan = NetworkPlan(
        nodes=8, profile="paper", subscribers=2, topology=SmallWorld(4, 0.2), epoch_us=HOUR_US, life_us=HOUR_US
    )
    net = network.lay_out(tmp_path / "n", plan, Context(), Random(1))
    u, v = (net.addresses[number] for number in net.links[0])
    cells = [CellRow("r", 0, 1000 * moment, u, v, 444 if moment % 7 else 80) for moment in range(100)]
    row = {
        "profile": "paper <&>",
        "delivered": 1,
        "expected": 2,
        "latency_median_s": None,
        "datagrams": 100,
        "sizes": 2,
        "publications_seen": 1,
        "readers_named": 1,
        "readers_named_rightly": 0,
    }
    seen = take_quick_look(tables.from_rows(CellRow, cells), plan.heartbeat_us, [])
    text = render_page([DemoNetwork(row, net.addresses, net.roles, net.links, seen)])
    pictures = re.findall(r"<svg[^>]*role=.*?</svg>", text, re.DOTALL)
    assert len(pictures) == 2
    for picture in pictures:
        assert len(list(ElementTree.fromstring(picture).iter("text"))) == plan.nodes
    assert not re.search(r"https?:|<script|src=|@import", text)
    assert "paper &lt;&amp;&gt;" in text


def test_without_the_lab_the_demo_says_what_to_install_before_it_starts_anything() -> None:
    blocked = "import sys; sys.modules['pyarrow'] = None; from veilcast.cli.main import main; sys.exit(main())"
    child = subprocess.run(
        [sys.executable, "-c", blocked, "demo"], capture_output=True, text=True, check=False, timeout=HANG_S
    )
    assert child.returncode == 3
    assert child.stderr.count("\n") == 1
    assert "pip install 'veilcast[lab]'" in child.stderr
