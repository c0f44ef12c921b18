"""`veilcast status` and `veilcast peers`: how the running node is, and how hidden its member."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any, Final

import msgspec

from veilcast.cli.context import Context, Report
from veilcast.cli.reach import add_config, config_of
from veilcast.cli.show import time_of
from veilcast.cli.sub import when
from veilcast.net.agent import Status
from veilcast.net.blocking import connect_sync


def add_commands(commands: Any) -> None:
    for name, run, text in (
        ("status", _status, "how the running node is, and how hidden you are"),
        ("peers", _peers, "the neighbours of the running node"),
    ):
        parser = commands.add_parser(name, help=text, description=text)
        add_config(parser)
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        parser.set_defaults(run=run, parser=parser)


def _status(arguments: argparse.Namespace, context: Context) -> Report:
    with connect_sync(config_of(arguments)) as me:
        status = me.status()
    warning = warning_of(status, context.now_us())
    lines = [
        f"mode           {status.mode}, {status.profile}" + (", finishing" if status.draining else ""),
        f"group          {_number(status.members, 'member')}, {_number(status.neighbours, 'neighbour')}",
        f"member until   {time_of(status.member_until_us)}",
        f"cover          {_cover(status)}",
        f"subscriptions  {status.subscriptions}, with {_number(status.inbox, 'note')} not acknowledged",
        *(f"{f'  {count} waiting':15}{when(until_us)}" for until_us, count in Counter(status.waiting.values()).items()),
        f"outbox         {_number(status.outbox, 'publication')} under way",
        f"running for    {status.uptime_s:,.0f} s",
        *([f"warning: {warning}"] if warning else []),
    ]
    return Report({**msgspec.to_builtins(status), "warning": warning}, lines)


def _cover(status: Status) -> str:
    if status.profile == "paper":
        return "none: the papers' profile is for experiments"
    if not status.subscriptions:
        return "nothing is read here that would need it"
    return f"{status.cover_share:.0%} of the others act as readers of what you read"


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def warning_of(status: Status, now_us: int) -> str | None:
    if status.member_until_us <= now_us:
        return "the membership is over; ask the authority for a new grant, and start the node again"
    if status.members >= MEMBERS_FEW:
        return None
    return f"one of {status.members} is hardly hidden; below {MEMBERS_FEW} members expect to be guessed"


def _peers(arguments: argparse.Namespace, _: Context) -> Report:
    with connect_sync(config_of(arguments)) as me:
        peers = me.peers()
    lines = [f"{peer.address:24} {'up' if peer.up else 'down':5} for {peer.since_s:,.0f} s" for peer in peers]
    return Report({"peers": msgspec.to_builtins(peers)}, lines or ["no neighbours yet"])


MEMBERS_FEW: Final = 20
