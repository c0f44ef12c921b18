"""`veilcast pub TOPIC`: publish through the running node."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from veilcast.cli.context import Context, Report
from veilcast.cli.counts import counted
from veilcast.cli.files import read_file
from veilcast.cli.reach import add_config, config_of, warn_if_hindered
from veilcast.errors import ConfigError
from veilcast.machine import Publication, Value
from veilcast.net.blocking import connect_sync
from veilcast.topics import Label


def add_commands(commands: Any) -> None:
    text = "publish through the running node: -m TEXT, --file FILE, or what comes on stdin"
    pub = commands.add_parser("pub", help="publish through the running node", description=text)
    pub.add_argument("topic", metavar="TOPIC", help="one that the keyring may publish on")
    body = pub.add_mutually_exclusive_group()
    body.add_argument("-m", "--message", metavar="TEXT", help="others on this machine may see it in the process list")
    body.add_argument("--file", type=Path, metavar="FILE", help="publish what is in it, 32,700 bytes or so at most")
    pub.add_argument(
        "--value", action="append", default=[], metavar="NAME=VALUE", help="of an attribute; may be given several times"
    )
    add_config(pub)
    pub.add_argument("--json", action="store_true", help="print one JSON object")
    pub.advice = "the text to publish stands behind -m, as in: veilcast pub TOPIC -m TEXT"
    pub.set_defaults(run=_pub, parser=pub)


def _pub(arguments: argparse.Namespace, context: Context) -> Report:
    pairs = (Label(arguments.topic).pair, *map(parse_value, arguments.value))
    config = config_of(arguments)
    if arguments.message is not None:
        body = arguments.message.encode()
    elif arguments.file is not None:
        body = read_file(arguments.file)
    else:
        if context.has_terminal():
            context.warn("type what is to be published, and end with Ctrl-D on a line of its own")
        body = context.read_input()
    with connect_sync(config) as me:
        me.publish(Publication(pairs, body))
        warn_if_hindered(me, context)
    return Report({"published": len(body)}, [f"published {counted(len(body), 'byte')}; the node has it on its disk"])


def parse_value(text: str) -> tuple[str, Value]:
    """`temp=21.5`, `floor=3`, `class=tech`: a number where it looks like one."""
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise ConfigError(f"--value {text!r}: write NAME=VALUE")
    return name, number_or_text(value)


def number_or_text(text: str) -> Value:
    """A number where it looks like one; not "1_000", which is one for Python alone."""
    if "_" in text:
        return text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
