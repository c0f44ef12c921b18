"""`veilcast authority`: the offline authority."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from veilcast.cli.grammar.options import Later, add_group, positive, runs


def add_authority(commands: Any) -> None:
    group = add_group(commands, "authority", help="the offline authority: init, grant, revoke, rotate, show, ...")
    verbs = group.add_subparsers(title="commands", metavar="COMMAND")

    def verb(name: str, run: Later, text: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
        runs(parser, run)
        parser.add_argument("--passphrase-file", type=Path, metavar="FILE", help="read the passphrase from FILE")
        return parser

    init = verb("init", Later("issue", "init"), "make a new authority in DIR")
    init.add_argument("dir", type=Path, metavar="DIR")
    init.add_argument("--epoch", type=positive, default=3600, metavar="SECONDS", help="length of an epoch (3600)")

    topic = verb("topic", Later("issue", "topic"), "declare a topic with attributes, or change what is declared")
    topic.add_argument("dir", type=Path, metavar="DIR")
    topic.add_argument("topic", metavar="TOPIC")
    topic.add_argument(
        "--attribute",
        action="append",
        default=[],
        metavar="SPEC",
        help="NAME:str, NAME:int:LOW:HIGH[:BITS[:ROUTING]] or NAME:float:...",
    )
    topic.add_argument("--privacy", choices=PRIVACY, help="of its readers, by which cover is chosen (high)")
    topic.add_argument("--subscribers", type=int, metavar="N", help="with --privacy: how many the topic will have")
    topic.add_argument("--members", type=int, metavar="N", help="with --privacy: how many the mesh will have")
    topic.add_argument("--cover", type=float, metavar="SHARE", help="or the share of others that act as cover itself")
    _add_profile(topic)

    grant = verb(
        "grant",
        Later("issue", "grant"),
        "let a member in, with topics or without: a ready keyring, or the answer to its request",
    )
    grant.add_argument("dir", type=Path, metavar="DIR")
    grant.add_argument("--topic", action="append", default=[], metavar="TOPIC", help="may be given several times")
    grant.add_argument(
        "--role",
        choices=("publisher", "subscriber", "proxy", "server", "directory", "broker"),
        help="of the topics; or, without any, of a host: of the relay, of the tree, or of the brokers",
    )
    grant.add_argument("--member", required=True, metavar="NAME", help="known to the authority only")
    grant.add_argument("--request", type=Path, metavar="FILE", help="answer this request instead of making keys")
    grant.add_argument("--out", type=Path, required=True, metavar="FILE")
    grant.add_argument("--keyring-passphrase-file", type=Path, metavar="FILE", help="lock the keyring with this one")
    grant.add_argument("--force", action="store_true", help="overwrite --out")
    _add_days(grant)
    _add_profile(grant)

    ask = verb("request", Later("hold", "ask"), "as a member: make keys and a request for a grant")
    ask.add_argument("--topic", default="", metavar="TOPIC", help="without one, a membership alone is asked for")
    ask.add_argument("--role", choices=("publisher", "subscriber"), default="subscriber")
    ask.add_argument("--keyring", type=Path, required=True, metavar="FILE", help="where the keys will be; may exist")
    ask.add_argument("--out", type=Path, required=True, metavar="FILE", help="the request, to bring to the authority")
    ask.add_argument(
        "--epoch", type=positive, default=3600, metavar="SECONDS", help="the authority's epoch; a keyring knows (3600)"
    )
    ask.add_argument("--force", action="store_true", help="give up a request that still waits")
    _add_days(ask)

    accept = verb("accept", Later("hold", "accept"), "as a member: put the authority's answer into the keyring")
    accept.add_argument("answer", type=Path, metavar="ANSWER")
    accept.add_argument("--keyring", type=Path, required=True, metavar="FILE")
    accept.add_argument("--authority", metavar="FINGERPRINT", help="refuse the answer of any other authority")

    revoke = verb("revoke", Later("issue", "revoke"), "shut a member out from the next epoch on; writes a bulletin")
    revoke.add_argument("dir", type=Path, metavar="DIR")
    who = revoke.add_mutually_exclusive_group(required=True)
    who.add_argument("--member", metavar="NAME")
    who.add_argument("--group", metavar="PREFIX", help="end a sub-authority instead")
    revoke.add_argument("--topic", metavar="TOPIC", help="of this topic only")
    revoke.add_argument(
        "--every-topic", action="store_true", help="new keys for all topics, to hide which ones the member held"
    )

    rotate = verb("rotate", Later("issue", "rotate"), "new topic keys from the next epoch on; writes a bulletin")
    rotate.add_argument("dir", type=Path, metavar="DIR")
    rotate.add_argument("--topic", metavar="TOPIC", help="this topic only")

    apply = verb("apply", Later("hold", "apply"), "as a member: apply a bulletin to a keyring")
    apply.add_argument("bulletin", type=Path, metavar="BULLETIN")
    apply.add_argument("--keyring", type=Path, required=True, metavar="FILE")

    delegate = verb("delegate", Later("issue", "delegate"), "make a sub-authority for the topics under PREFIX/")
    delegate.add_argument("dir", type=Path, metavar="DIR")
    delegate.add_argument("--group", required=True, metavar="PREFIX")
    delegate.add_argument("--out", type=Path, required=True, metavar="DIR")
    delegate.add_argument("--days", type=positive, default=365, help="how long it may act (365)")

    show = verb("show", Later("show", "show"), "show an authority (a directory), a keyring, a request or a bulletin")
    show.add_argument("path", type=Path, metavar="PATH")
    show.add_argument("--topic", metavar="TOPIC", help="this topic only")


def _add_days(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--days", type=positive, default=BATCH_DAYS, help=f"how long the grant lasts ({BATCH_DAYS})")


def _add_profile(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profile", choices=("hardened", "paper"), help="of a topic that this declares (hardened)")


BATCH_DAYS: Final = 30
PRIVACY: Final = ("low", "medium", "high")
