"""`veilcast demo`: three private networks on this computer, attacked and measured, in less than two minutes.

The networks are the paper's mesh alone, the paper's mesh with covers and shell game, and the hardened mesh: real nodes
on loopback, one publisher, a few subscribers, and taps on all wires. Then the lab's attackers analyse the recordings of
the taps. Nothing is prepared: roles, keys, links and times are drawn in each run, so numbers differ from run to run.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table

from veilcast.authority.secret_file import replace_file
from veilcast.cli.context import Context, Report
from veilcast.cli.demo_run import DemoRun, run_network
from veilcast.cli.exits import FAILED_CHECK
from veilcast.cli.files import check_place
from veilcast.cli.input_checks import check_range
from veilcast.cli.lab import lab_extra
from veilcast.cli.local.network import NetworkPlan, SmallWorld
from veilcast.observe import CellRow

if TYPE_CHECKING:
    from veilcast.lab.attack.observer.quick_look import QuickLook

Row: TypeAlias = dict[str, Any]


def run(arguments: argparse.Namespace, context: Context) -> Report:
    if arguments.quick:
        arguments.nodes, arguments.subscribers, arguments.notes = 8, 2, 5
    # Whether the attackers are here is seen before anything is started.
    with lab_extra():
        from veilcast.lab import tables
        from veilcast.lab.attack.observer.quick_look import take_quick_look
        from veilcast.lab.report.demo_page import DemoNetwork, render_page
    check_range("--nodes", arguments.nodes, 8, 64)
    check_range("--subscribers", arguments.subscribers, 1, arguments.nodes - 2)
    check_range("--notes", arguments.notes, 1, 500)
    check_place(arguments.page, overwrite=True)
    rng = SystemRandom()
    found: list[DemoNetwork] = []
    with _interrupted_by_any_signal(), _home() as home, _ProgressView() as stage:
        for name, options in _NETWORKS.items():
            plan = NetworkPlan(
                nodes=arguments.nodes,
                subscribers=arguments.subscribers,
                topology=SmallWorld(4, 0.2),
                epoch_us=_EPOCH_US,
                heartbeat_cells=2,
                tap=True,
                life_us=_LIFE_US,
                **options,
            )
            settle_s = _GAMES_S if plan.shellgame else 0.0
            trial = run_network(
                home / str(len(found)),
                plan,
                context,
                rng,
                notes=arguments.notes,
                settle_s=settle_s,
                on_progress=partial(stage.show, name),
            )
            stage.show(name, "attacked")
            net = trial.net
            seen = take_quick_look(tables.from_rows(CellRow, trial.cells), plan.heartbeat_us, trial.published_us)
            found.append(DemoNetwork(_measure(name, trial, seen), net.addresses, net.roles, net.links, seen))
            stage.show(name, "done")
    replace_file(arguments.page, render_page(found).encode(), mode=0o644)
    rows = [tried.found for tried in found]
    works = all(2 * row["delivered"] > row["expected"] for row in rows)
    data = {"networks": rows, "page": str(arguments.page)}
    return Report(data, _table(rows, arguments), 0 if works else FAILED_CHECK)


def _measure(name: str, trial: DemoRun, seen: QuickLook) -> Row:
    """Return the results of a network and of its observer; only here are guesses compared with the truth."""
    from veilcast.lab.measure.ranking import auc, auc_by_chance

    net, cells = trial.net, trial.cells
    publisher = net.addresses[net.nodes_with_role("publisher")[0]]
    readers = [net.addresses[number] for number in net.nodes_with_role("subscriber")]
    others = [node for node in net.addresses if node != publisher]
    named = [node for node in seen.readers if node != publisher]
    reads = np.array([node in readers for node in others])

    def of(scores: Mapping[str, float]) -> float:
        return auc(np.array([scores.get(node, 0.0) for node in others]), reads)

    right = len(set(named) & set(readers))
    delivered, sent = len(trial.latencies), sum(cell.size for cell in cells)
    each = max(1, delivered) * net.plan.nodes
    return {
        "profile": name,
        "delivered": delivered,
        "expected": trial.expected,
        "latency_median_s": statistics.median(trial.latencies) if trial.latencies else None,
        "datagrams": len(cells),
        "bytes": sent,
        "sizes": len({cell.size for cell in cells}),
        "datagrams_per_delivery_and_node": len(cells) / each,
        "bytes_per_delivery_and_node": sent / each,
        "publications_seen": seen.publications,
        "publisher_named": seen.publisher == publisher,
        "readers_named": len(named),
        "readers_named_rightly": right,
        "precision": right / len(named) if named else None,
        "recall": right / len(readers),
        "base_rate": len(readers) / len(others),
        "auc": of(seen.scores),
        "auc_of_volumes": of(seen.volumes),
        "auc_by_chance": auc_by_chance(len(readers), len(others) - len(readers)),
    }


def _table(rows: list[Row], arguments: argparse.Namespace) -> list[str]:
    head = ("profile", "delivered", "latency", "datagrams", "KiB", "publisher", "readers named", "AUC", "volumes")
    lines = [head]
    for row in rows:
        latency = row["latency_median_s"]
        right = row["readers_named_rightly"]
        named = f"{right} of {arguments.subscribers}, {row['readers_named'] - right} others"
        lines.append(
            (
                row["profile"],
                f"{row['delivered']}/{row['expected']}",
                "-" if latency is None else f"{latency * 1000:.0f} ms",
                f"{row['datagrams_per_delivery_and_node']:.1f}",
                f"{row['bytes_per_delivery_and_node'] / 1024:.1f}",
                "named" if row["publisher_named"] else "hidden",
                named,
                f"{row['auc']:.2f}",
                f"{row['auc_of_volumes']:.2f}",
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    printed = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    ]
    low, high = rows[0]["auc_by_chance"]
    return [
        f"{arguments.nodes} nodes, 1 publisher, {arguments.subscribers} readers, {arguments.notes} notes, two a second;"
        " an observer records every wire",
        "",
        *printed,
        "",
        "latency         median, from `publish` to the reader's program, disks included",
        "datagrams, KiB  that a node sends for each delivered note",
        "publisher,      by the paper's attacker: the first sender publishes, nodes that forward nothing read;",
        f"readers named   of nodes named at random, {rows[0]['base_rate']:.0%} are readers",
        "AUC             of that attack; and of another, which knows when notes were published and compares which",
        f"volumes         nodes then receive more than usual; 0.5 is guessing, {low:.2f} to {high:.2f} may be chance",
        "",
        f"One run with {arguments.subscribers} readers is a small sample, and numbers differ from run to run.",
        f"Pictures of what members know and what the observer sees: {arguments.page}",
    ]


class _ProgressView:
    """The live view: a table on a terminal, and plain lines elsewhere. Both go to stderr."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._said = dict.fromkeys(_NETWORKS, "waiting")
        self._live = Live(self._view(), console=self._console, transient=True, refresh_per_second=8)

    def show(self, name: str, text: str) -> None:
        news = _COUNTS.sub("", text) != _COUNTS.sub("", self._said[name])
        self._said[name] = text
        if self._console.is_terminal:
            self._live.update(self._view())
        elif news:
            sys.stderr.write(f"{name}: {text}\n")
            sys.stderr.flush()

    def _view(self) -> Table:
        view = Table(box=None, show_header=False)
        for name, text in self._said.items():
            style = {"waiting": "dim", "done": "green"}.get(text, "bold")
            view.add_row(name, text, style=style)
        return view

    def __enter__(self) -> _ProgressView:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()


@contextlib.contextmanager
def _home() -> Iterator[Path]:
    """Yield a temporary directory for keys, state and taps; its path is short, because socket paths are limited."""
    home = Path(tempfile.mkdtemp(prefix="veilcast-demo-"))
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def _interrupted_by_any_signal() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the demo in order, as Ctrl-C does. An ignored signal stays ignored, as `nohup`
    asks."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    heeded = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_NETWORKS: Final[dict[str, dict[str, Any]]] = {
    "paper": {"profile": "paper"},
    "paper, PF + SG": {"profile": "paper", "cover": True, "shellgame": True},
    "hardened": {"profile": "hardened"},
}
_COUNTS: Final = re.compile(r"\d+")
_PAGE: Final = "veilcast-demo.html"
_EPOCH_US: Final = 24_000_000
_LIFE_US: Final = 600_000_000
_GAMES_S: Final = 8.0
"""Seconds for the shell game to be played: its nodes change places once a second, at first."""
