"""`pub`, `sub`, `status`, `peers` and `node`: the commands of a member."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from veilcast.cli.grammar.options import (
    LINES,
    Later,
    add_config,
    add_group,
    add_interest,
    add_passphrase_source,
    add_values,
    runs,
)


def add_pub(commands: Any) -> None:
    text = "publish through the running node: -m TEXT, --file FILE, or the standard input"
    pub = commands.add_parser("pub", help="publish through the running node", description=text)
    pub.advice = "the text to publish stands behind -m, as in: veilcast pub TOPIC -m TEXT"
    pub.add_argument("topic", metavar="TOPIC", help="a topic that the keyring may publish on")
    body = pub.add_mutually_exclusive_group()
    body.add_argument(
        "-m",
        "--message",
        metavar="TEXT",
        help="the text to publish; other users of this computer may see it in the process list",
    )
    body.add_argument(
        "--file", type=Path, metavar="FILE", help="publish the content of FILE, at most about 32,700 bytes"
    )
    add_values(pub)
    add_config(pub)
    runs(pub, Later("pub", "pub"))


def add_sub(commands: Any) -> None:
    text = "subscribe through the running node and print its notes, one a line, until Ctrl-C or --count"
    sub = commands.add_parser("sub", help="subscribe through the running node", description=text)
    text = "the topic to subscribe to; may be left out if exactly one topic declares the attributes"
    sub.add_argument("topic", metavar="TOPIC", nargs="?", help=text)
    add_interest(sub)
    sub.add_argument("--count", type=int, metavar="N", help="end after N notes")
    sub.add_argument(
        "--keep",
        action="store_true",
        help="let the node go on collecting notes for the next `sub` with the same interest",
    )
    add_config(sub)
    runs(sub, Later("sub", "sub"), json="print one JSON object for each note")


def add_status(commands: Any) -> None:
    _add_question(commands, "status", "show the state of the running node, and how well you are hidden")


def add_peers(commands: Any) -> None:
    _add_question(commands, "peers", "list the neighbours of the running node")


def _add_question(commands: Any, name: str, text: str) -> None:
    parser = commands.add_parser(name, help=text, description=text)
    add_config(parser)
    runs(parser, Later("status", name))


def add_node(commands: Any) -> None:
    group = add_group(commands, "node", help="a member's node: new, run, reload, stop")
    verbs = group.add_subparsers(title="commands", metavar="COMMAND")
    _add_new(verbs)

    run = verbs.add_parser("run", help="run the node until SIGTERM", description="Run a node until SIGTERM or Ctrl-C.")
    add_config(run)
    add_passphrase_source(run)
    run.add_argument(
        "--danger-tap",
        type=Path,
        metavar="DIR",
        help="write the time, addresses and size of every datagram to DIR/cells.jsonl; for the lab only",
    )
    runs(run, Later("node", "run"), json=LINES)

    text = "take new keys into the running node: bulletins in its directory, and renewed grants of its keyring"
    reload = verbs.add_parser(
        "reload", help="take bulletins and renewed grants into the running node", description=text
    )
    add_config(reload)
    runs(reload, Later("running_node", "reload"))

    stop = verbs.add_parser("stop", help="let the running node finish its work, and stop it")
    add_config(stop)
    runs(stop, Later("running_node", "stop"))


def _add_new(verbs: Any) -> None:
    text = "print a node.toml to begin with: veilcast node new ... > node.toml"
    new = verbs.add_parser("new", help="print a node.toml to begin with", description=text)
    new.add_argument("--keyring", required=True, metavar="FILE", help="the member's keyring; it need not exist yet")
    new.add_argument(
        "--listen",
        metavar="ADDRESS:PORT",
        help="in a mesh: the address of this computer at which the node listens, such as 192.0.2.1:4000",
    )
    new.add_argument(
        "--address",
        metavar="ADDRESS:PORT",
        help="in a mesh: the address by which others reach the node, if it differs from --listen",
    )
    new.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="ADDRESS:PORT",
        help="in a mesh: the address of another member; may be given several times",
    )
    new.add_argument(
        "--proxy",
        action="append",
        default=[],
        metavar="ADDRESS:PORT",
        help="in a relay: the address of a proxy; may be repeated, one for publishing and others for subscribing",
    )
    new.add_argument("--server-key", metavar="LINE", help="in a relay: the line that its server's operator publishes")
    new.add_argument(
        "--directory",
        action="append",
        metavar="ADDRESS:PORT",
        help="in a tree: the directory's address that its operator publishes, abc...xyz.onion:80; may be repeated, "
        "once for each directory",
    )
    new.add_argument(
        "--broker",
        metavar="URL",
        help="with foiling: the MQTT broker, mqtts://NAME:PORT, or mqtt://127.0.0.1:1883 on this computer",
    )
    new.add_argument(
        "--history",
        metavar="FILE",
        help="with foiling: a CSV file with past values, a column for each attribute; fakes move as these values do",
    )
    for option, what, text in (
        ("--overlay", "FILE", "with brokers: the overlay that its operator has signed; once for each path"),
        ("--operator", "LINE", "with brokers: the line that identifies the overlay's operator; once for each path"),
        ("--edge", "NAME", "with brokers: the virtual node whose replicas the node calls; once for each path"),
    ):
        new.add_argument(option, action="append", default=[], metavar=what, help=text)
    runs(new, Later("new_node", "new"))
