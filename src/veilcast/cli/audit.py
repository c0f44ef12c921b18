"""`veilcast audit`: what an observer of every wire learns from captures of one's own network.

The lab does the work; this module is the command. It refuses limits that cannot be checked before it reads anything.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from veilcast.cli.context import Context, Report
from veilcast.cli.exits import FAILED_CHECK
from veilcast.cli.files import make_directory
from veilcast.cli.lab import lab_extra
from veilcast.cli.lab_attack import run_own_controls
from veilcast.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from veilcast.lab.attack.registry import Attacker
    from veilcast.lab.audit.attacker_reports import AttackerReport
    from veilcast.lab.audit.audit import Audit, CaptureAudit
    from veilcast.lab.audit.live_audit import LiveReport
    from veilcast.lab.audit.operator_files import ListedMember, OverlayLink
    from veilcast.lab.capture.remote_files import RecordPath


def run(arguments: argparse.Namespace, context: Context) -> Report:
    with lab_extra():
        from veilcast.lab.audit import audit, limits, reader
        from veilcast.lab.audit.observed import SMALL_BYTES
        from veilcast.lab.capture.remote_files import find_records
        from veilcast.lab.report import audit_page
        from veilcast.lab.spark import LOCAL, SparkOptions
        from veilcast.lab.storage.location import require_local
    if arguments.follow:
        return _follow(arguments, context)
    for name in _LIVE:
        if getattr(arguments, name) is not None:
            raise ConfigError(f"--{name} is for an audit while traffic is recorded; give --follow")
    fail_if = [limits.parse_limit(text) for text in arguments.fail_if]
    for limit in fail_if:
        if arguments.members is None and limit.name in limits.NEED_MEMBERS:
            raise ConfigError(f"--fail-if {limit}: this needs the members' roles; give --members")
    members, links = _read_lists(arguments)
    options = SparkOptions.parse(arguments.conf, ui=arguments.ui, event_log=arguments.event_log)
    captures = [find_records(place, arguments.master or LOCAL, options) for place in arguments.captures]
    if arguments.out is not None:
        arguments.out = require_local(arguments.out)
        make_directory(arguments.out)
    epoch_us = round(arguments.epoch * 1_000_000)
    listed, only = {member.node for member in members}, arguments.only_members
    say: Callable[[str], object] = (lambda _: None) if arguments.json else context.say
    own, controls = _load_attackers(arguments.attacker, say)
    observe = partial(reader.observe, captures, epoch_us, links, listed, only_listed=only, own=own)
    skew = None
    asked = arguments.master is not None or options != SparkOptions()
    if not asked and sum(map(_bytes, captures)) <= SMALL_BYTES:
        seen = observe()
    else:
        with lab_extra():
            from veilcast.lab.spark import Progress, session
            from veilcast.lab.spark.task_skew import measure_skew
        with session(arguments.master or LOCAL, options, say) as spark, Progress(spark, say=say):
            seen = observe(spark=spark)
            skew = measure_skew(spark)
    found = audit.audit_capture(seen, links, members)
    crossed = found.crossed_limits(fail_if)
    worst, *others = found.networks
    data = {
        **msgspec.to_builtins(worst),
        "found": found.found(),
        "crossed": [str(limit) for limit in crossed],
        "remarks": [*found.remarks, *worst.remarks],
        "left_out": msgspec.to_builtins(found.left_out),
        "controls": controls,
        "skew": skew and skew.to_dict(),
        "other_networks": [{**msgspec.to_builtins(each), "found": each.found()} for each in others],
    }
    lines = [
        *_lines(found),
        *([skew.describe()] if skew is not None else []),
        *(f"failed: {limit}" for limit in crossed),
    ]
    if arguments.out is not None:
        pages = audit_page.write_pages(arguments.out, found, fail_if)
        lines += [f"the page: {page}" for page in pages]
    return Report(data, lines, FAILED_CHECK if crossed else 0)


def _load_attackers(
    files: list[Path], say: Callable[[str], object]
) -> tuple[list[Attacker[Any]], list[dict[str, Any]]]:
    """The attackers of the user's own, and their controls."""
    with lab_extra():
        from veilcast.lab.attack import foreign
    sources = [foreign.read_attacker_file(each) for each in files]
    for source in sources:
        for each in foreign.load_attackers(source):
            if not foreign.serves(each, "mesh.wires"):
                raise ConfigError(
                    f"{source.place}: attacker {each.name} does not observe captures (CaptureObservations)"
                )
    return run_own_controls(sources, say) if sources else ([], [])


def _follow(arguments: argparse.Namespace, context: Context) -> Report:
    for name in ("fail_if", "out"):
        if getattr(arguments, name):
            raise ConfigError(f"--{name.replace('_', '-')} is for a whole record; give it without --follow")
    with lab_extra():
        from veilcast.lab.audit import live_audit
        from veilcast.lab.spark import LOCAL, SparkOptions, session
    members, links = _read_lists(arguments)
    window = _WINDOW_S if arguments.window is None else arguments.window
    if not 0 <= window <= _WINDOW_MAX_S:
        raise ConfigError(f"--window {window:g}: must be from 0 to {_WINDOW_MAX_S:,} seconds")
    own, _ = _load_attackers(arguments.attacker, context.warn)
    settings = live_audit.LiveSettings(
        epoch_us=round(arguments.epoch * 1_000_000),
        window_us=round(window * 1_000_000),
        attackers=None if arguments.ask is None else tuple(arguments.ask),
        own=tuple(own),
        links=tuple(links),
        members=tuple(members),
        only_listed=arguments.only_members,
        every_s=_EVERY_S if arguments.every is None else arguments.every,
    )
    live_audit.choose_attackers(settings.attackers, own)
    places = [_find_place(place) for place in arguments.captures]

    def emit(report: LiveReport) -> None:
        # A report is written at once, so Ctrl-C cuts none.
        context.say(msgspec.json.encode(report).decode() if arguments.json else "\n".join(_live_lines(report)))

    options = SparkOptions.parse(arguments.conf, ui=arguments.ui, event_log=arguments.event_log)
    with session(arguments.master or LOCAL, options, context.warn) as spark:
        context.warn("following; Ctrl-C ends it")
        with contextlib.suppress(KeyboardInterrupt):
            live_audit.follow(spark, places, settings, emit, checkpoint=arguments.checkpoint)
    return Report(None)


def _find_place(text: str) -> Path:
    from veilcast.lab.storage.location import parse_local

    place = parse_local(text)
    if place is None:
        raise ConfigError(f"{text}: --follow reads files of this machine; mount the location, or follow it there")
    if not place.exists():
        raise StorageError(f"cannot read {place}: there is nothing; --follow waits for files inside a directory alone")
    return place


def _read_lists(arguments: argparse.Namespace) -> tuple[tuple[ListedMember, ...], tuple[OverlayLink, ...]]:
    from veilcast.lab.audit import operator_files

    if arguments.only_members and arguments.members is None:
        raise ConfigError("--only-members leaves out all but the members; give --members")
    return (
        operator_files.read_members(arguments.members) if arguments.members else (),
        operator_files.read_links(arguments.topology) if arguments.topology else (),
    )


def _live_lines(report: LiveReport) -> list[str]:
    at = datetime.fromtimestamp(report.last_us / 1e6, UTC)
    named = f", network {report.network + 1} of {report.networks}" if report.networks > 1 else ""
    ends = "; the record ends" if report.final else ""
    return [
        f"{at:%H:%M:%S} UTC{named}: {report.nodes:,} nodes, {report.links:,} links (each way), "
        f"{report.cells:,} cells in {(report.last_us - report.first_us) / 1e6:.1f} s{ends}",
        *(f"  {remark}" for remark in report.remarks),
        *(f"  {line}" for line in _roles(report)),
    ]


def _bytes(path: RecordPath) -> int:
    """Return the total size; missing files are reported when they are read."""
    if isinstance(path, Path) and path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size if path.exists() else 0


def _lines(found: CaptureAudit) -> list[str]:
    lines = [
        *found.worst.reading.summary(),
        *found.remarks,
        *found.left_out.lines(),
        *(f"in doubt: {doubt}" for doubt in found.left_out.doubts),
    ]
    for number, each in enumerate(found.networks, 1):
        lines.append("")
        if len(found.networks) > 1:
            lines.append(f"network {number} of {len(found.networks)}, with {each.nodes[0]}:")
        lines += _network(each)
    return lines


def _network(found: Audit) -> list[str]:
    wire = found.wire
    lines = [
        *found.remarks,
        f"{wire.nodes:,} nodes, {wire.links:,} links (each way), {wire.cells:,} cells in "
        f"{(wire.last_us - wire.first_us) / 1e6:.1f} s; heartbeat {wire.heartbeat_us / 1000:g} ms",
        f"sizes that tell links apart: {', '.join(str(each.size) for each in wire.telling[:8]) or 'none'}; "
        f"links that keep another rhythm: {len(wire.odd) or 'none'}; publications seen: {found.publications or 'none'}",
        "",
        *_roles(found),
    ]
    if found.advice:
        lines += ["", "what to change:"]
        lines += [f"  {each.found}: {each.change}" for each in found.advice]
    return lines


def _roles(found: Audit | LiveReport) -> list[str]:
    lines = []
    for role in ("publisher", "subscriber"):
        best = found.best(role)
        if best is None:
            lines.append(f"{role}s: no attacker names any")
            continue
        lines.append(f"{role}s: {best.attack} is the best attacker{_measure_text(best)}")
        for suspect in best.suspects[: max(_SHOWN, best.named)]:
            if suspect.score > 0:
                right = {True: ", rightly", False: ", wrongly", None: ""}[suspect.right]
                lines.append(
                    f"  {suspect.node}  score {suspect.score:.3g}, confidence {suspect.confidence:.2f}, "
                    f"among {suspect.among}{right}"
                )
    return lines


def _measure_text(best: AttackerReport) -> str:
    measures = best.measures
    if not measures:
        return "; roles are not known, so these are scores only"
    auc, low, high = (measures[name] for name in ("auc", "auc_low", "auc_high"))
    text = f": AUC {auc:.2f} [{low:.2f}, {high:.2f}], base rate {measures['base_rate']:.0%}"
    if "tpr_1" in measures:
        text += f", {measures['tpr_1']:.0%} found where 1 % of others are named"
    return f"{text}, smallest anonymity set {measures['set_min']:g}"


_SHOWN: Final = 5
_LIVE: Final = ("every", "window", "checkpoint", "ask")
_EVERY_S: Final = 5.0
_WINDOW_S: Final = 3_600.0
_WINDOW_MAX_S: Final = 1_000_000_000
