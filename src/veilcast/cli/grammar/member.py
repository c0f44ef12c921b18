"""`pub`, `sub`, `status`, `peers` and `node`: the commands of a member."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from veilcast.cli.grammar.options import (
    LINES,
    Later,
    add_config,
    add_group,
    add_passphrase_source,
    add_range,
    add_values,
    runs,
)


def add_pub(commands: Any) -> None:
    text = "publish through the running node: -m TEXT, --file FILE, or what comes on stdin"
    pub = commands.add_parser("pub", help="publish through the running node", description=text)
    pub.advice = "the text to publish stands behind -m, as in: veilcast pub TOPIC -m TEXT"
    pub.add_argument("topic", metavar="TOPIC", help="one that the keyring may publish on")
    body = pub.add_mutually_exclusive_group()
    body.add_argument("-m", "--message", metavar="TEXT", help="others on this machine may see it in the process list")
    body.add_argument("--file", type=Path, metavar="FILE", help="publish what is in it, 32,700 bytes or so at most")
    add_values(pub)
    add_config(pub)
    runs(pub, Later("pub", "pub"))


def add_sub(commands: Any) -> None:
    text = "print notes through the running node, one a line, until Ctrl-C or --count"
    sub = commands.add_parser("sub", help="subscribe through the running node", description=text)
    text = "may be left out if one topic alone declares the attributes of the ranges"
    sub.add_argument("topic", metavar="TOPIC", nargs="?", help=text)
    add_range(sub)
    sub.add_argument("--count", type=int, metavar="N", help="end after N notes")
    sub.add_argument("--keep", action="store_true", help="let the node go on collecting for the next `sub` of the same")
    add_config(sub)
    runs(sub, Later("sub", "sub"), json="print one JSON object a note")


def add_status(commands: Any) -> None:
    _add_question(commands, "status", "how the running node is, and how hidden you are")


def add_peers(commands: Any) -> None:
    _add_question(commands, "peers", "the neighbours of the running node")


def _add_question(commands: Any, name: str, text: str) -> None:
    parser = commands.add_parser(name, help=text, description=text)
    add_config(parser)
    runs(parser, Later("status", name))


def add_node(commands: Any) -> None:
    group = add_group(commands, "node", help="a member's node: new, run, stop")
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

    stop = verbs.add_parser("stop", help="let the running node finish, and end")
    add_config(stop)
    runs(stop, Later("stop", "stop"))


def _add_new(verbs: Any) -> None:
    text = "print a node.toml to begin with: veilcast node new ... > node.toml"
    new = verbs.add_parser("new", help="print a node.toml to begin with", description=text)
    new.add_argument("--keyring", required=True, metavar="FILE", help="the member's keys; may still be to come")
    new.add_argument("--listen", metavar="ADDRESS:PORT", help="in a mesh: of this machine, as in 192.0.2.1:4000")
    new.add_argument("--address", metavar="ADDRESS:PORT", help="by which others reach it, where that is another")
    new.add_argument(
        "--peer", action="append", default=[], metavar="ADDRESS:PORT", help="of another member; may be given often"
    )
    new.add_argument(
        "--proxy",
        action="append",
        default=[],
        metavar="ADDRESS:PORT",
        help="in a relay: by which it is used; one or two",
    )
    new.add_argument("--server-key", metavar="LINE", help="in a relay: what its server's operator tells everybody")
    new.add_argument(
        "--directory", metavar="ADDRESS:PORT", help="in a tree: as its operator tells everybody, abc...xyz.onion:80"
    )
    new.add_argument(
        "--broker", metavar="URL", help="with foiling: mqtts://ADDRESS:PORT, or mqtt://127.0.0.1:1883 on this machine"
    )
    for option, what, text in (
        ("--overlay", "FILE", "with brokers: what the overlay's operator has signed; once for each path"),
        ("--operator", "LINE", "with brokers: by which the operator is known to everybody; as often"),
        ("--edge", "NAME", "with brokers: the virtual node whose replicas it calls; as often"),
    ):
        new.add_argument(option, action="append", default=[], metavar=what, help=text)
    runs(new, Later("new_node", "new"))
