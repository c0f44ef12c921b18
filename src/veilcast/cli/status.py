"""`veilcast status` and `veilcast peers`: the state of the running node, and how well its member is hidden."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from veilcast.cli.context import Context, Report
from veilcast.cli.phrases import format_delay, format_time, pluralize
from veilcast.cli.running_node import config_path
from veilcast.cli.status_wording import mode_texts
from veilcast.net.control_protocol import Status
from veilcast.net.sync_client import connect_sync


def anonymity_warning(status: Status, now_us: int) -> str | None:
    if status.member_until_us <= now_us:
        return "the membership is over; ask the authority for a new grant, and start the node again"
    if status.members >= MEMBERS_FEW or not mode_texts(status.mode).hides_in_group:
        return None
    return f"one of {status.members} is hardly hidden; below {MEMBERS_FEW} members expect to be guessed"


def status(arguments: argparse.Namespace, context: Context) -> Report:
    with connect_sync(config_path(arguments)) as me:
        status = me.status()
    warning = anonymity_warning(status, context.now_us())
    lines = [f"{label:15}{text}" for label, text in _rows(status, context.now_us())]
    if warning:
        lines.append(f"warning: {warning}")
    return Report({**msgspec.to_builtins(status), "warning": warning}, lines)


def _rows(status: Status, now_us: int) -> Iterator[tuple[str, str]]:
    yield "mode", f"{status.mode}, {status.profile}" + (", finishing" if status.draining else "")
    texts = mode_texts(status.mode)
    yield texts.connections(status)
    yield "member until", format_time(status.member_until_us)
    if texts.has_covers:
        yield "cover", _cover(status)
    if status.publications_hidden is not None:
        yield "publisher", _publisher(status)
    yield "subscriptions", f"{status.subscriptions}, with {pluralize(status.inbox, 'note')} not acknowledged"
    for until_us, count in Counter(status.waiting.values()).items():
        yield f"  {count} waiting", texts.ready(until_us)
    if status.lapsed:
        yield f"  {status.lapsed} lapsed", "no grant of the keyring allows this any more"
    if status.refused:
        yield "  refused", f"{pluralize(status.refused, 'note')}, since too many were not acknowledged"
    delayed = "" if status.delay is None else f": {format_delay(status.delay, now_us)}"
    yield "outbox", f"{pluralize(status.outbox, 'publication')} under way{delayed}"
    if status.overdue:
        yield f"  {status.overdue} overdue", "no way was found for this yet; the node goes on trying"
    if status.faults:
        yield (
            "faults",
            f"{status.faults:,} of veilcast itself; each dropped its message or timer, and the log says where",
        )
    for hindrance in status.hindrances:
        yield "hindered", hindrance
    for line in status.ending:
        yield "ends soon", line
    yield "running for", f"{status.uptime_s:,.0f} s"


def _cover(status: Status) -> str:
    if status.profile == "paper":
        return "none: the papers' profile is for experiments"
    if not status.subscriptions:
        return "nothing is read here that would need it"
    covered = f"{status.cover_share:.0%} of the others act as subscribers of your topics"
    return f"{covered}: insiders reach an AUC of {1 - status.cover_share / 2:.2f} at most, for any time"


def _publisher(status: Status) -> str:
    if not status.publications_hidden:
        return "a member that publishes is named within some tens of publications"
    if status.members < MEMBERS_FEW:
        return "a group of this size is too small for a bound on how often a publisher is named"
    return (
        f"for {status.publications_hidden} publications, a tenth of insiders names a publisher about 1.5 times as"
        " often as their share"
    )


def peers(arguments: argparse.Namespace, _: Context) -> Report:
    with connect_sync(config_path(arguments)) as me:
        peers = me.peers()
    lines = [
        f"{peer.address:24} {'up' if peer.up else 'down':5} for {peer.since_s:,.0f} s"
        + (f": {peer.reason}" if peer.reason else "")
        for peer in peers
    ]
    return Report({"peers": msgspec.to_builtins(peers)}, lines or ["no neighbours yet"])


MEMBERS_FEW: Final = 20
