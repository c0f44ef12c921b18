"""`veilcast relay`, `tree`, `foil` and `brokers`: the commands of these modes other than a member's node."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from veilcast.cli.grammar.options import (
    LINES,
    Later,
    add_config,
    add_group,
    add_keyring,
    add_own_config,
    add_passphrase_source,
    add_range,
    add_values,
    runs,
)


def add_relay(commands: Any) -> None:
    group = add_group(commands, "relay", help="the services of a relay: server, proxy")
    services = group.add_subparsers(title="services", metavar="SERVICE")

    verbs = _service(services, "server", "matches publications with subscriptions, and knows nobody's name")
    init = _verb(
        verbs, "init", Later("relay", "init_server"), "make a server's keys, and print the line that all its users need"
    )
    init.add_argument("out", type=Path, metavar="FILE", help="for the keys, locked with the keyring's passphrase")
    add_keyring(init, "server")
    _add_run(verbs, Later("relay", "run_server"), "server")

    verbs = _service(services, "proxy", "knows its users, and not what they say")
    init = _verb(
        verbs,
        "init",
        Later("relay", "init_proxy"),
        "make a mask, for all proxies of one server and never for the server",
    )
    init.add_argument("out", type=Path, metavar="FILE", help="for the mask; bring copies to the other proxies")
    _add_run(verbs, Later("relay", "run_proxy"), "proxy")


def _service(services: Any, name: str, text: str) -> Any:
    service = add_group(services, name, help=text, description=text)
    return service.add_subparsers(title="commands", metavar="COMMAND")


def _add_run(verbs: Any, run: Later, name: str) -> None:
    parser = _verb(verbs, "run", run, f"run the {name} until SIGTERM or Ctrl-C")
    add_own_config(parser, f"{name}.toml")
    add_passphrase_source(parser)


def add_tree(commands: Any) -> None:
    group = add_group(commands, "tree", help="the directory of a tree, and a private Tor network")
    parts = group.add_subparsers(title="parts", metavar="PART")

    text = "lists the nodes of a tree, and knows nothing of what they say"
    directory = add_group(parts, "directory", help=text, description=text)
    verbs = directory.add_subparsers(title="commands", metavar="COMMAND")
    init = _verb(verbs, "init", Later("tree", "init"), "print the line that all its nodes need")
    add_keyring(init, "directory")
    run = _verb(verbs, "run", Later("tree", "run"), "run the directory until SIGTERM or Ctrl-C")
    add_own_config(run, "directory.toml")
    add_passphrase_source(run)

    _add_testnet(parts)


def _add_testnet(parts: Any) -> None:
    text = "a private Tor network on this machine: up, status, down"
    group = add_group(parts, "testnet", help=text, description=f"{text}. It hides nobody from whoever runs it.")
    verbs = group.add_subparsers(title="commands", metavar="COMMAND")

    def verb(name: str, text: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
        parser.add_argument("--dir", type=Path, default=Path(_TESTNET), help=f"where its files are ({_TESTNET})")
        runs(parser, Later("testnet", name))
        return parser

    up = verb("up", "start three directory authorities and some relays, and wait until all know of all")
    up.add_argument("--relays", type=int, default=4, metavar="N", help="besides the authorities (4)")
    verb("status", "how each Tor of the network is")
    verb("down", "end the network, and take away its files")


def add_foil(commands: Any) -> None:
    group = add_group(commands, "foil", help="publish and subscribe at any MQTT broker, among fakes")
    verbs = group.add_subparsers(title="commands", metavar="COMMAND")

    text = (
        "publish one event (-m, --value), or one for each line of CSV (--csv), and end when the broker has all of it. A"
        " broker keeps nothing for readers who were never there, and repeats come from a publisher that runs: so let"
        " readers subscribe first, or stay for them (--linger)"
    )
    publish = verbs.add_parser("publish", help="publish until all has gone out", description=text)
    publish.advice = "the text to publish stands behind -m, as in: veilcast foil publish TOPIC -m TEXT"
    publish.add_argument("topic", metavar="TOPIC", help="one that the keyring may publish on")
    publish.add_argument(
        "-m", "--message", metavar="TEXT", help="others on this machine may see it in the process list"
    )
    add_values(publish)
    publish.add_argument(
        "--csv",
        metavar="FILE",
        help="attributes by the names in the first line, 'body' for what is said; - is the standard input. Every"
        " declared attribute needs a value",
    )

    publish.add_argument(
        "--linger", type=int, default=0, metavar="SECONDS", help="stay so long for readers who come late (0)"
    )

    text = "print notes, one a line, until Ctrl-C or --count; it is said when the broker has taken the subscription on"
    subscribe = verbs.add_parser("subscribe", help="print what is true and asked for", description=text)
    subscribe.add_argument("topic", metavar="TOPIC", nargs="?", help="may be left out if a range names it")
    add_range(subscribe)
    subscribe.add_argument("--count", type=int, metavar="N", help="end after N notes")
    subscribe.add_argument("--keep", action="store_true", help="let the broker go on collecting for the next time")

    for verb, name in ((publish, "publish"), (subscribe, "subscribe")):
        add_config(verb)
        add_passphrase_source(verb)
        runs(verb, Later("foil", name), json=LINES)

    _add_show(verbs)


def _add_show(verbs: Any) -> None:
    text = "what a broker would see of a column of numbers; nothing is sent"
    show = verbs.add_parser("show", help="what a broker would see of a series; nothing is sent", description=text)
    show.add_argument("file", type=Path, metavar="FILE", help="CSV, with names in its first line")
    show.add_argument("column", metavar="COLUMN", help="the name of the values' column")
    show.add_argument("--domain", required=True, metavar="LOW..HIGH", help="as the topic declares it")
    show.add_argument("--bits", type=int, default=_BITS, metavar="N", help=f"the topic's resolution ({_BITS})")
    show.add_argument("--generator", choices=GENERATORS, default="", help="(what fits)")
    show.add_argument("--fakes", type=int, default=4, metavar="K", help="of each event (4)")
    show.add_argument("--deviation", type=float, default=0.0, help="of the values' steps, or of the noise")
    show.add_argument("--public-after", type=int, default=0, metavar="STEPS", help="when values become known to all")
    show.add_argument("--profile", choices=("hardened", "paper"), default="hardened", help="(hardened)")
    show.add_argument("--steps", type=int, default=60, metavar="N", help="the first N values (60)")
    show.add_argument("--truth", action="store_true", help="mark what is true")
    runs(show, Later("foil_show", "show"))


def add_brokers(commands: Any) -> None:
    group = add_group(commands, "brokers", help="an overlay of replicated brokers: overlay, run, plan, ...")
    verbs = group.add_subparsers(title="commands", metavar="COMMAND")

    init = _verb(
        verbs, "init", Later("brokers", "init"), "as a broker's owner: print the line that the overlay's operator needs"
    )
    add_keyring(init, "broker")

    run = _verb(verbs, "run", Later("brokers", "run"), "run a broker until SIGTERM or Ctrl-C")
    add_own_config(run, _BROKER)
    add_passphrase_source(run)

    status = _verb(
        verbs, "status", Later("brokers", "status"), "how running brokers are, and whom they have found lying"
    )
    add_own_config(status, _BROKER)
    status.add_argument("--dir", type=Path, metavar="DIR", help="all brokers of an overlay on this machine instead")

    order = _verb(
        verbs, "order", Later("brokers", "order"), "hand a newer overlay to a running broker, which tells all others"
    )
    add_own_config(order, _BROKER)
    order.add_argument("overlay", type=Path, metavar="FILE", help="what `overlay sign` wrote")

    _add_plan(verbs)
    _add_overlay(verbs)


def _add_overlay(verbs: Any) -> None:
    text = "the operator's side: a key, a signed description; or a whole overlay on this machine"
    overlay = add_group(verbs, "overlay", help=text, description=text)
    parts = overlay.add_subparsers(title="commands", metavar="COMMAND")

    init = _verb(
        parts,
        "init",
        Later("brokers", "init_operator"),
        "make the operator's key, and print the line that everybody needs",
    )
    init.add_argument("out", type=Path, metavar="FILE", help="for the key, locked with a passphrase")
    _add_passphrase(init)

    sign = _verb(
        parts, "sign", Later("brokers", "sign"), "check a description of the overlay, and sign it for everybody"
    )
    sign.add_argument("description", type=Path, metavar="OVERLAY.toml", help="its nodes, replicas and links")
    sign.add_argument("--key", type=Path, required=True, metavar="FILE", help="the operator's")
    sign.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FILE",
        help="what brokers and members get; if there is one already, the new one follows it",
    )
    _add_passphrase(sign)

    show = _verb(parts, "show", Later("brokers", "show"), "what a signed description says")
    show.add_argument("overlay", type=Path, metavar="FILE", help="what `overlay sign` wrote")
    show.add_argument("--operator", required=True, metavar="LINE", help="what `overlay init` printed")

    up = _verb(
        parts,
        "up",
        Later("brokers_up", "up"),
        "start a whole overlay on this machine, brokers and members, from one file",
    )
    up.add_argument("file", type=Path, metavar="FILE", help="TOML; docs/operating.md has one to begin with")
    up.add_argument("--dir", type=Path, default=Path(_DIRECTORY), help=f"where its files are ({_DIRECTORY})")


def _add_passphrase(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--passphrase-file", type=Path, metavar="FILE", help="read the key's passphrase from FILE")


def _add_plan(verbs: Any) -> None:
    text = "where replicas should stand, by what running brokers tell of one another"
    parser = _verb(verbs, "plan", Later("brokers_plan", "plan_overlay"), text)
    parser.add_argument(
        "facts",
        type=Path,
        nargs="*",
        metavar="FACTS",
        help="what `brokers status --json` printed, a file for each broker",
    )
    parser.add_argument("--overlay", type=Path, metavar="FILE", help="with FACTS: the signed overlay")
    parser.add_argument("--operator", metavar="LINE", help="with FACTS: what `overlay init` printed")
    parser.add_argument(
        "--spare", type=int, default=0, metavar="N", help="with FACTS: brokers that could be attached (0)"
    )
    parser.add_argument("--dir", type=Path, metavar="DIR", help="an overlay on this machine, instead of all of these")
    parser.add_argument(
        "--way",
        choices=("pairs", "phases", "phases-once"),
        default="pairs",
        help="pairs where they help most, the paper's three phases, or their variation (pairs)",
    )
    parser.add_argument("--cap", type=int, metavar="N", help="replicas that one path may be given at most")
    parser.add_argument("--replicas", type=int, metavar="N", help="to be allotted besides what each node keeps")
    parser.add_argument(
        "--move",
        action="store_true",
        help="let nodes give up a pair each, to stand where it helps more; else only spare brokers are allotted "
        "(hardened)",
    )
    parser.add_argument("--apply", action="store_true", help="with --dir: carry it out, step by step")


def _verb(verbs: Any, name: str, run: Later, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
    runs(parser, run, json=LINES)
    return parser


GENERATORS: Final = ("bucketing", "entropy", "moran", "noise", "sign-flip", "trajectories", "window")
_BITS: Final = 16
_BROKER: Final = "broker.toml"
_DIRECTORY: Final = "veilcast-net"
_TESTNET: Final = "veilcast-tor"
