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

    init = verb("init", Later("authority_admin", "init"), "make a new authority in DIR")
    init.add_argument("dir", type=Path, metavar="DIR", help="the directory for the authority's state")
    init.add_argument(
        "--epoch", type=positive, default=3600, metavar="SECONDS", help="length of an epoch in seconds (3600)"
    )

    topic = verb(
        "topic", Later("authority_admin", "topic"), "declare a topic with attributes, or change what is declared"
    )
    _add_directory(topic)
    topic.add_argument("topic", metavar="TOPIC", help="the topic's name, such as weather/munich")
    topic.add_argument(
        "--attribute",
        action="append",
        default=[],
        metavar="SPEC",
        help="an attribute of its publications: NAME:str, NAME:int:LOW:HIGH[:BITS[:ROUTING]] or NAME:float:...; may be "
        "given several times",
    )
    topic.add_argument(
        "--privacy",
        choices=PRIVACY,
        help="how well subscribers are hidden from insiders; sets the share of cover in groups of more than 64 (high)",
    )
    topic.add_argument(
        "--subscribers", type=int, metavar="N", help="with --members: expected number of the topic's subscribers"
    )
    topic.add_argument(
        "--members",
        type=int,
        metavar="N",
        help="expected number of the mesh's members, if the authority has not admitted them yet",
    )
    topic.add_argument(
        "--cover",
        type=float,
        metavar="SHARE",
        help="instead of --privacy: the share of other members that act as cover, 0 to 1",
    )
    _add_profile(topic)

    grant = verb(
        "grant",
        Later("authority_admin", "grant"),
        "let a member in, with topics or without: a ready keyring, or the answer to its request",
    )
    _add_directory(grant)
    grant.add_argument(
        "--topic", action="append", default=[], metavar="TOPIC", help="a topic to grant; may be given several times"
    )
    grant.add_argument(
        "--role",
        choices=("publisher", "subscriber", "proxy", "server", "directory", "broker"),
        help="the role for the topics; or, without topics, the role of a host of a relay, a tree or an overlay",
    )
    grant.add_argument("--member", required=True, metavar="NAME", help="the member's name; only the authority sees it")
    grant.add_argument("--request", type=Path, metavar="FILE", help="answer this request instead of making keys")
    grant.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FILE",
        help="where to write the keyring, or the answer to the request",
    )
    grant.add_argument(
        "--keyring-passphrase-file", type=Path, metavar="FILE", help="lock the keyring with the passphrase in FILE"
    )
    grant.add_argument("--force", action="store_true", help="overwrite the file of --out")
    _add_days(grant)
    _add_profile(grant)

    ask = verb("request", Later("authority_member", "ask"), "as a member: make keys and a request for a grant")
    ask.add_argument("--topic", default="", metavar="TOPIC", help="the topic to ask for (none: a membership alone)")
    ask.add_argument(
        "--role", choices=("publisher", "subscriber"), default="subscriber", help="the role to ask for (subscriber)"
    )
    ask.add_argument(
        "--keyring", type=Path, required=True, metavar="FILE", help="the member's keyring; made if it does not exist"
    )
    ask.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="where to write the request for the authority"
    )
    ask.add_argument(
        "--epoch",
        type=positive,
        default=3600,
        metavar="SECONDS",
        help="length of the authority's epochs; an existing keyring knows it (3600)",
    )
    ask.add_argument("--force", action="store_true", help="replace a request that still waits for its answer")
    _add_days(ask)

    accept = verb(
        "accept", Later("authority_member", "accept"), "as a member: put the authority's answer into the keyring"
    )
    accept.add_argument("answer", type=Path, metavar="ANSWER", help="the file that the authority wrote")
    accept.add_argument("--keyring", type=Path, required=True, metavar="FILE", help="the member's keyring")
    accept.add_argument("--authority", metavar="FINGERPRINT", help="refuse the answer of any other authority")

    revoke = verb(
        "revoke", Later("authority_admin", "revoke"), "exclude a member from the next epoch on; writes a bulletin"
    )
    _add_directory(revoke)
    who = revoke.add_mutually_exclusive_group(required=True)
    who.add_argument("--member", metavar="NAME", help="the member to exclude, by the name of its grant")
    who.add_argument("--group", metavar="PREFIX", help="end the sub-authority of these topics instead")
    revoke.add_argument("--topic", metavar="TOPIC", help="exclude the member from this topic only")
    revoke.add_argument(
        "--every-topic", action="store_true", help="make new keys for all topics, to hide which ones the member had"
    )

    rotate = verb(
        "rotate", Later("authority_admin", "rotate"), "new topic keys from the next epoch on; writes a bulletin"
    )
    _add_directory(rotate)
    rotate.add_argument("--topic", metavar="TOPIC", help="make new keys for this topic only")

    apply = verb("apply", Later("authority_member", "apply"), "as a member: apply a bulletin to a keyring")
    apply.add_argument("bulletin", type=Path, metavar="BULLETIN", help="the file that the authority wrote")
    apply.add_argument("--keyring", type=Path, required=True, metavar="FILE", help="the member's keyring")

    delegate = verb(
        "delegate", Later("authority_admin", "delegate"), "make a sub-authority for the topics under PREFIX/"
    )
    _add_directory(delegate)
    delegate.add_argument("--group", required=True, metavar="PREFIX", help="the first part of its topics' names")
    delegate.add_argument("--out", type=Path, required=True, metavar="DIR", help="the directory for its state")
    delegate.add_argument("--days", type=positive, default=365, help="how many days it may grant (365)")

    show = verb(
        "show", Later("authority_show", "show"), "show an authority (a directory), a keyring, a request or a bulletin"
    )
    show.add_argument("path", type=Path, metavar="PATH", help="the directory or file to show")
    show.add_argument("--topic", metavar="TOPIC", help="show this topic only")


def _add_directory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", type=Path, metavar="DIR", help="the authority's directory")


def _add_days(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--days", type=positive, default=BATCH_DAYS, help=f"how many days the grant lasts ({BATCH_DAYS})"
    )


def _add_profile(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--profile", choices=("hardened", "paper"), help="the profile of a topic that this command declares (hardened)"
    )


BATCH_DAYS: Final = 30
PRIVACY: Final = ("low", "medium", "high")
