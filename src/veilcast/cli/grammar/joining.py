"""`invite` and `join`: one person joins by a code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from veilcast.cli.grammar.authority import BATCH_DAYS
from veilcast.cli.grammar.options import LINES, Later, positive, runs


def add_invite(commands: Any) -> None:
    text = "invite one person: prints a code to read out, and grants what that person's `veilcast join` asks for"
    invite = commands.add_parser("invite", help="invite one person by a code", description=text)
    invite.add_argument("topic", nargs="?", metavar="TOPIC", help="the topic to grant (none: a membership alone)")
    invite.add_argument(
        "--role", choices=("publisher", "subscriber"), help="the role to grant for the topic (subscriber)"
    )
    invite.add_argument(
        "--authority",
        type=Path,
        metavar="DIR",
        help="the directory of the authority, or of a sub-authority (VEILCAST_AUTHORITY, or authority)",
    )
    invite.add_argument(
        "--member", metavar="NAME", help="the member's name; only the authority sees it (member-1, member-2, ...)"
    )
    invite.add_argument(
        "--days", type=positive, default=BATCH_DAYS, help=f"how many days the grant lasts ({BATCH_DAYS})"
    )
    invite.add_argument(
        "--minutes", type=positive, default=10, metavar="N", help="how many minutes the invitation stands (10)"
    )
    invite.add_argument(
        "--listen",
        metavar="ADDRESS:PORT",
        help="where to wait (this computer's address towards the network, and any free port)",
    )
    invite.add_argument(
        "--address", metavar="ADDRESS:PORT", help="the address that the code names, if it differs from --listen"
    )
    invite.add_argument(
        "--via",
        metavar="ADDRESS:PORT",
        help="meet at the rendezvous of a node or proxy, which both sides call, in place of --listen (that of the "
        "node's file)",
    )
    invite.add_argument(
        "-c",
        "--config",
        type=Path,
        metavar="FILE",
        help="a node's file whose mode, settings and peers the new member gets (those of the last invitation; or "
        "VEILCAST_NODE, or node.toml in this directory)",
    )
    invite.add_argument(
        "--passphrase-file", type=Path, metavar="FILE", help="read the authority's passphrase from FILE"
    )
    runs(invite, Later("invite", "invite"), json=LINES)


def add_join(commands: Any) -> None:
    text = "join a group by the code that `veilcast invite` printed: makes your keys, keyring and node's file"
    join = commands.add_parser("join", help="join a group by a code", description=text)
    join.add_argument(
        "code",
        nargs="*",
        metavar="CODE",
        help="the code, or the link; without it the command asks for it, and with - it reads its input, so that other "
        "users of this computer do not see it",
    )
    join.add_argument("--dir", type=Path, default=Path(), metavar="DIR", help="where to write the files (here)")
    join.add_argument(
        "--listen",
        metavar="ADDRESS:PORT",
        help="in a mesh: where the node takes datagrams (this computer's address, and the first free port from 4000)",
    )
    join.add_argument(
        "--address",
        metavar="ADDRESS:PORT",
        help="in a mesh: the address by which others reach the node, if it differs from --listen",
    )
    join.add_argument("--now", action="store_true", help="start the node at once, and run it until Ctrl-C")
    join.add_argument("--danger-no-tor", action="store_true", help="in a tree: use no Tor, for tests alone")
    join.add_argument("--passphrase-file", type=Path, metavar="FILE", help="read the keyring's passphrase from FILE")
    runs(join, Later("join", "join"), json=LINES)
