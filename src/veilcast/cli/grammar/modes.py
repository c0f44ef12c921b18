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
    add_interest,
    add_keyring,
    add_network_verb,
    add_own_config,
    add_passphrase_source,
    add_values,
    runs,
)


def add_relay(commands: Any) -> None:
    group = add_group(commands, "relay", help="the services of a relay: server, proxy")
    services = group.add_subparsers(title="services", metavar="SERVICE")

    verbs = _service(services, "server", "matches publications with subscriptions, without knowing the members")
    init = _verb(
        verbs, "init", Later("relay", "init_server"), "make a server's keys, and print the line that all members need"
    )
    init.add_argument(
        "out", type=Path, metavar="FILE", help="where to write the keys, locked with the keyring's passphrase"
    )
    add_keyring(init, "server")
    _add_run(verbs, Later("relay", "run_server"), "server")
    _add_audit(verbs, Later("relay_audit", "audit_server"), "server")

    verbs = _service(services, "proxy", "knows its members, but not what they publish and read")
    init = _verb(
        verbs,
        "init",
        Later("relay", "init_proxy"),
        "make the mask that all proxies of one server share; the server must not have it",
    )
    init.add_argument("out", type=Path, metavar="FILE", help="where to write the mask; copy it to the other proxies")
    _add_run(verbs, Later("relay", "run_proxy"), "proxy")
    _add_audit(verbs, Later("relay_audit", "audit_proxy"), "proxy")


def _service(services: Any, name: str, text: str) -> Any:
    service = add_group(services, name, help=text, description=text)
    return service.add_subparsers(title="commands", metavar="COMMAND")


def _add_audit(verbs: Any, run: Later, name: str) -> None:
    parser = _verb(verbs, "audit", run, f"show what the {name}'s own records tell about members, while it runs or not")
    add_own_config(parser, f"{name}.toml")
    add_passphrase_source(parser)


def _add_run(verbs: Any, run: Later, name: str) -> None:
    parser = _verb(verbs, "run", run, f"run the {name} until SIGTERM or Ctrl-C")
    add_own_config(parser, f"{name}.toml")
    add_passphrase_source(parser)


def add_tree(commands: Any) -> None:
    group = add_group(commands, "tree", help="the directory of a tree, and a private Tor network")
    parts = group.add_subparsers(title="parts", metavar="PART")

    text = "lists the nodes of a tree, without knowing what they publish and read"
    directory = add_group(parts, "directory", help=text, description=text)
    verbs = directory.add_subparsers(title="commands", metavar="COMMAND")
    init = _verb(verbs, "init", Later("tree", "init"), "print the line that all nodes of the tree need")
    add_keyring(init, "directory")
    run = _verb(verbs, "run", Later("tree", "run"), "run the directory until SIGTERM or Ctrl-C")
    add_own_config(run, "directory.toml")
    add_passphrase_source(run)

    _add_testnet(parts)


def _add_testnet(parts: Any) -> None:
    text = "a private Tor network on this machine: up, status, down"
    group = add_group(parts, "testnet", help=text, description=f"{text}. It hides nobody from its operator.")
    verbs = group.add_subparsers(title="commands", metavar="COMMAND")

    def verb(name: str, text: str) -> argparse.ArgumentParser:
        return add_network_verb(verbs, name, Later("tor_testnet", name), text, directory=_TESTNET)

    up = verb("up", "start three directory authorities and some relays, and wait until each knows all others")
    up.add_argument("--relays", type=int, default=4, metavar="N", help="number of relays (4)")
    verb("status", "show the state of each Tor process of the network")
    verb("down", "end the network, and remove its files")


def add_foil(commands: Any) -> None:
    group = add_group(commands, "foil", help="publish and subscribe at any MQTT broker, among fakes")
    verbs = group.add_subparsers(title="commands", metavar="COMMAND")

    text = (
        "publish one event (-m, --value), or one for each line of CSV (--csv), and end when the broker has all of it. A"
        " broker keeps nothing for new subscribers, and only a running publisher repeats events: so let subscribers"
        " subscribe first, or wait for them (--linger)"
    )
    publish = verbs.add_parser("publish", help="publish, and end when everything is sent", description=text)
    publish.advice = "the text to publish stands behind -m, as in: veilcast foil publish TOPIC -m TEXT"
    publish.add_argument("topic", metavar="TOPIC", help="a topic that the keyring may publish on")
    publish.add_argument(
        "-m",
        "--message",
        metavar="TEXT",
        help="the text to publish; other users of this computer may see it in the process list",
    )
    add_values(publish)
    publish.add_argument(
        "--csv",
        metavar="FILE",
        help="a CSV file with the attributes' names in its first line, 'body' for the text; - is the standard input."
        " Every declared attribute needs a value",
    )

    publish.add_argument(
        "--linger", type=int, default=0, metavar="SECONDS", help="how long to wait for new subscribers afterwards (0)"
    )

    text = "subscribe and print notes, one a line, until Ctrl-C or --count; a message says when the broker has accepted"
    subscribe = verbs.add_parser("subscribe", help="print the true events that match", description=text)
    subscribe.add_argument(
        "topic",
        metavar="TOPIC",
        nargs="?",
        help="the topic to subscribe to; may be left out if an attribute identifies it",
    )
    add_interest(subscribe)
    subscribe.add_argument("--count", type=int, metavar="N", help="end after N notes")
    subscribe.add_argument("--keep", action="store_true", help="let the broker go on collecting for the next call")

    for verb, name in ((publish, "publish"), (subscribe, "subscribe")):
        add_config(verb)
        add_passphrase_source(verb)
        runs(verb, Later("foil", name), json=LINES)

    _add_check(verbs)
    _add_show(verbs)


def _add_check(verbs: Any) -> None:
    text = (
        "attack a series of your own, as the member would foil it, by the lab's attackers; nothing is sent. Exit code"
        " 13 if they name the true message or value more often than the bounds allow"
    )
    check = verbs.add_parser("check", help="measure how well a series of your own is hidden", description=text)
    check.add_argument("file", type=Path, metavar="FILE", help="a CSV file with names in its first line")
    check.add_argument("column", metavar="COLUMN", help="the name of the column with the values")
    check.add_argument(
        "--domain", required=True, metavar="LOW..HIGH", help="the attribute's domain, as the topic declares it"
    )
    check.add_argument(
        "--bits", type=int, default=_BITS, metavar="N", help=f"the attribute's resolution in bits ({_BITS})"
    )
    check.add_argument(
        "-c",
        "--config",
        metavar="FILE",
        help="the member's file; without it the default settings, with the first half of the series as past values",
    )
    check.add_argument("--generator", choices=GENERATORS, default="", help="without -c: the generator of the fakes")
    check.add_argument("--fakes", type=int, metavar="K", help="without -c: number of fakes for each event (9)")
    check.add_argument("--profile", choices=("hardened", "paper"), help="without -c: the profile (hardened)")
    check.add_argument(
        "--message-bound", type=float, default=0.0, metavar="RATE", help="bound for the true message (1.3 of a guess)"
    )
    check.add_argument("--value-bound", type=float, default=0.0, metavar="RATE", help="bound for the true value (0.25)")
    check.add_argument("--windows", type=int, default=48, metavar="N", help="parts of the series, at most (48)")
    check.add_argument("--length", type=int, default=200, metavar="N", help="events of a part, at most (200)")
    check.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the check's randomness (0)")
    runs(check, Later("foil_check", "check"))


def _add_show(verbs: Any) -> None:
    text = "show what a broker would see of a column of numbers; nothing is sent"
    show = verbs.add_parser("show", help="show what a broker would see of a series; nothing is sent", description=text)
    show.add_argument("file", type=Path, metavar="FILE", help="a CSV file with names in its first line")
    show.add_argument("column", metavar="COLUMN", help="the name of the column with the values")
    show.add_argument(
        "--domain", required=True, metavar="LOW..HIGH", help="the attribute's domain, as the topic declares it"
    )
    show.add_argument(
        "--bits", type=int, default=_BITS, metavar="N", help=f"the attribute's resolution in bits ({_BITS})"
    )
    show.add_argument(
        "--generator",
        choices=GENERATORS,
        default="",
        help="the generator of the fakes (the one that fits the attribute)",
    )
    show.add_argument("--fakes", type=int, default=9, metavar="K", help="number of fakes for each event (9)")
    show.add_argument("--deviation", type=float, default=0.0, help="standard deviation of the steps, or of the noise")
    show.add_argument(
        "--public-after", type=int, default=0, metavar="STEPS", help="number of steps after which values become public"
    )
    show.add_argument(
        "--profile", choices=("hardened", "paper"), default="hardened", help="the profile of the member (hardened)"
    )
    show.add_argument(
        "-c", "--config", metavar="FILE", help="the member's file, in place of the options for generator and fakes"
    )
    show.add_argument("--steps", type=int, default=60, metavar="N", help="show the first N values (60)")
    show.add_argument("--truth", action="store_true", help="mark the true candidates")
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
        verbs,
        "status",
        Later("brokers", "status"),
        "show the state of running brokers, and the replicas that they have found faulty",
    )
    add_own_config(status, _BROKER)
    status.add_argument(
        "--dir", type=Path, metavar="DIR", help="show all brokers of the overlay in this directory instead"
    )

    order = _verb(
        verbs,
        "order",
        Later("brokers", "order"),
        "hand a newer overlay to a running broker, which passes it on to all others",
    )
    add_own_config(order, _BROKER)
    order.add_argument("overlay", type=Path, metavar="FILE", help="the file that `overlay sign` wrote")

    _add_plan(verbs)
    _add_overlay(verbs)


def _add_overlay(verbs: Any) -> None:
    text = "for the operator: its key, signed descriptions, or a whole overlay on this computer"
    overlay = add_group(verbs, "overlay", help=text, description=text)
    parts = overlay.add_subparsers(title="commands", metavar="COMMAND")

    init = _verb(
        parts,
        "init",
        Later("brokers", "init_operator"),
        "make the operator's key, and print the line that everybody needs",
    )
    init.add_argument("out", type=Path, metavar="FILE", help="where to write the key, locked with a passphrase")
    _add_passphrase(init)

    sign = _verb(
        parts, "sign", Later("brokers", "sign"), "check a description of the overlay, and sign it for everybody"
    )
    sign.add_argument(
        "description", type=Path, metavar="OVERLAY.toml", help="the description: nodes, replicas and links"
    )
    sign.add_argument("--key", type=Path, required=True, metavar="FILE", help="the operator's key")
    sign.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FILE",
        help="where to write the signed overlay for brokers and members; if it exists, the new one is its successor",
    )
    _add_passphrase(sign)

    show = _verb(parts, "show", Later("brokers", "show"), "show a signed description")
    show.add_argument("overlay", type=Path, metavar="FILE", help="the file that `overlay sign` wrote")
    show.add_argument("--operator", required=True, metavar="LINE", help="the line that `overlay init` printed")

    up = _verb(
        parts,
        "up",
        Later("overlay_up", "up"),
        "start a whole overlay on this computer, brokers and members, from one file",
    )
    up.add_argument("file", type=Path, metavar="FILE", help="TOML; docs/operating.md has one to begin with")
    up.add_argument(
        "--dir", type=Path, default=Path(_DIRECTORY), help=f"the directory of the network's files ({_DIRECTORY})"
    )


def _add_passphrase(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--passphrase-file", type=Path, metavar="FILE", help="read the key's passphrase from FILE")


def _add_plan(verbs: Any) -> None:
    text = "plan where replicas should be placed, by what running brokers report about one another"
    parser = _verb(verbs, "plan", Later("broker_plan", "plan_overlay"), text)
    parser.add_argument(
        "facts",
        type=Path,
        nargs="*",
        metavar="FACTS",
        help="files with the output of `brokers status --json`, one for each broker",
    )
    parser.add_argument(
        "--since",
        type=Path,
        nargs="+",
        default=(),
        metavar="FACTS",
        help="with FACTS: earlier files of the same brokers; only failures after them count",
    )
    parser.add_argument(
        "--paths",
        type=Path,
        metavar="FILE",
        help="the paths to protect, as CSV: from,to,weight; otherwise all pairs of nodes, with equal weights",
    )
    parser.add_argument("--overlay", type=Path, metavar="FILE", help="with FACTS: the signed overlay")
    parser.add_argument("--operator", metavar="LINE", help="with FACTS: the line that `overlay init` printed")
    parser.add_argument(
        "--spare", type=int, default=0, metavar="N", help="with FACTS: number of brokers that could be attached (0)"
    )
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help="plan for the overlay in this directory, instead of FACTS"
    )
    parser.add_argument(
        "--way",
        choices=("pairs", "phases", "phases-once"),
        default="pairs",
        help="the method: pairs of replicas where they help most, the paper's three phases, or their variation (pairs)",
    )
    parser.add_argument("--cap", type=int, metavar="N", help="largest number of replicas that one path may get")
    parser.add_argument(
        "--replicas",
        type=int,
        metavar="N",
        help="number of replicas to distribute in addition to those that each node keeps",
    )
    parser.add_argument(
        "--move",
        action="store_true",
        help="in `hardened`: let nodes give up a pair of replicas that helps more elsewhere; otherwise only spare "
        "brokers are placed",
    )
    parser.add_argument("--apply", action="store_true", help="with --dir: carry out the plan, step by step")


def _verb(verbs: Any, name: str, run: Later, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
    runs(parser, run, json=LINES)
    return parser


GENERATORS: Final = (
    "bucketing",
    "counter",
    "entropy",
    "forecast",
    "jumps",
    "moran",
    "noise",
    "sign-flip",
    "trajectories",
    "window",
)
_BITS: Final = 16
_BROKER: Final = "broker.toml"
_DIRECTORY: Final = "veilcast-net"
_TESTNET: Final = "veilcast-tor"
