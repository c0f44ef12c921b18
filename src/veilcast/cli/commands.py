"""All commands: parse, run one, print its report or its one-line error, give back a code that means something."""

from __future__ import annotations

import argparse
import json
import os
import sys
from importlib.metadata import version

from veilcast.cli import (
    audit,
    authority,
    brokers,
    demo,
    exits,
    foil,
    lab,
    net,
    node,
    pub,
    relay,
    sim,
    status,
    sub,
    tree,
)
from veilcast.cli.context import Context, Report
from veilcast.errors import VeilcastError


def run(argv: list[str] | None = None, context: Context | None = None) -> int:
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.run is None:
        arguments.parser.print_help()
        return exits.USAGE
    try:
        report = arguments.run(arguments, context or Context())
        _print(report, as_json=arguments.json)
    except VeilcastError as error:
        return _fail(error, as_json=arguments.json)
    except BrokenPipeError:
        # The reader (head, less) went away; there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.OK
    assert isinstance(report, Report)
    return report.code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="veilcast",
        usage="veilcast [-h] [--version] COMMAND ...",
        description="Publish and subscribe without revealing who you are, and measure what shows.",
        epilog="All take --json and --help. Exit codes: docs/operating.md. Not audited.",
        # With a deeper indent the longest name gets a line of its own, and the whole no longer fits a screen.
        formatter_class=lambda prog: _Brief(prog, indent_increment=1),
        add_help=False,
    )
    # The screen is full, and the first line and the last say these.
    parser.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    told = f"veilcast {version('veilcast')}"
    parser.add_argument("--version", action="version", version=told, help=argparse.SUPPRESS)
    parser.set_defaults(run=None, json=False, parser=parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", prog="veilcast")
    for room in (demo, authority, node, pub, sub, status, relay, tree, foil, brokers, net, sim, audit, lab):
        room.add_commands(commands)
    return parser


class _Brief(argparse.HelpFormatter):
    """Without the line that says that a command is a COMMAND."""

    def _format_action(self, action: argparse.Action) -> str:
        text = super()._format_action(action)
        return text.partition("\n")[2] if action.metavar == "COMMAND" else text


def _print(report: Report, *, as_json: bool) -> None:
    if report.data is None:
        return
    lines = [json.dumps(report.data, sort_keys=True)] if as_json else report.lines
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def _fail(error: VeilcastError, *, as_json: bool) -> int:
    code, name = exits.code_of(error)
    if as_json:
        sys.stdout.write(json.dumps({"error": name, "message": str(error)}, sort_keys=True) + "\n")
    sys.stderr.write(f"veilcast: {error}\n")
    return code
