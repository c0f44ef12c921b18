"""All commands: parses the arguments, runs one command, prints its report or its one-line error, returns the exit code.

A command pays only for what it uses. The table has the name and the one-line help of each command, its parser is in
`veilcast.cli.grammar`, and the module with its work is imported when it runs. So help, version and mistakes import
nothing but parsers.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from veilcast import __version__
from veilcast.cli import exits
from veilcast.errors import VeilcastError
from veilcast.nearest import did_you_mean

if TYPE_CHECKING:
    from veilcast.cli.context import Context, Report


class CommandParser(argparse.ArgumentParser):
    """The parser of every command: argparse, with errors that name the next step.

    Three things differ from argparse. A mistyped command, option or choice is answered with the nearest one that
    exists. An argument that a command does not take is an error of that command, with its usage, and not one of
    `veilcast`. An argument that begins with a minus and a digit is a value, as in `--range temp -10..5`; no option
    begins so.
    """

    advice = ""
    """The next step after a surplus positional argument; a command that knows one sets it on its parser."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._negative_number_matcher = _NEGATIVE

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            self._refuse(rest)
        return found, rest

    def _refuse(self, rest: Sequence[str]) -> NoReturn:
        told = f"unrecognized arguments: {' '.join(rest)}"
        options = [text for text in rest if text.startswith("-")]
        if options:
            self.error(told + did_you_mean(options[0].partition("=")[0], self._option_string_actions))
        self.error(told + (f"; {self.advice}" if self.advice else ""))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = action.choices
        if choices is None or value in choices:
            return
        nearest = did_you_mean(str(value), map(str, choices))
        listed = f" (choose from {', '.join(map(repr, choices))})" if not nearest else ""
        raise argparse.ArgumentError(action, f"invalid choice: {value!r}{nearest or listed}")


class Command(NamedTuple):
    name: str
    help: str
    """The line of `veilcast --help`; the same as in the command's own parser."""
    module: str
    """The module in `veilcast.cli.grammar` that makes the command's parser."""

    def add_parser(self, commands: Any) -> None:
        getattr(import_module(f"veilcast.cli.grammar.{self.module}"), f"add_{self.name}")(commands)


def run(argv: Sequence[str] | None = None, context: Context | None = None) -> int:
    arguments = parse(sys.argv[1:] if argv is None else argv)
    if arguments.run is None:
        arguments.parser.print_help()
        return exits.USAGE
    from veilcast.cli.context import Context

    try:
        report: Report = arguments.run(arguments, context or Context())
        _print(report, as_json=arguments.json)
    except VeilcastError as error:
        return _fail(error, as_json=arguments.json)
    except BrokenPipeError:
        # The reading program (head, less) has ended; nothing is left to print to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.OK
    return report.code


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; ends the process, as argparse does, for help, version and mistakes."""
    named = next((text for text in argv if not text.startswith("-")), None)
    parser, commands = _top()
    chosen = [command for command in COMMANDS if command.name == named]
    for command in chosen:
        command.add_parser(commands)
    if not chosen:  # Help, version or a mistake: the names are enough.
        for command in COMMANDS:
            commands.add_parser(command.name, help=command.help)
    return parser.parse_args(argv)


def whole_parser() -> CommandParser:
    """Return the parsers of all commands in one, for tests and tools that read the grammar."""
    parser, commands = _top()
    for command in COMMANDS:
        command.add_parser(commands)
    return parser


def _top() -> tuple[CommandParser, Any]:
    """Return the parser of `veilcast` itself, and the object to which commands are added."""
    parser = CommandParser(
        prog="veilcast",
        usage="veilcast [-h] [--version] COMMAND ...",
        description="Publish and subscribe without revealing who you are, and measure what shows.",
        epilog="All take --json and --help. Exit codes: docs/exit-codes.md. Not audited.",
        # With a deeper indent the longest name gets a line of its own, and the whole no longer fits a screen.
        formatter_class=lambda prog: _Brief(prog, indent_increment=1),
        add_help=False,
    )
    # The screen is full, and the first line and the last say these.
    parser.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    parser.add_argument("--version", action=_Version, nargs=0, help=argparse.SUPPRESS)
    parser.set_defaults(run=None, json=False, parser=parser)
    return parser, parser.add_subparsers(title="commands", metavar="COMMAND", prog="veilcast")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        sys.stdout.write(f"veilcast {__version__}\n")
        parser.exit()


class _Brief(argparse.HelpFormatter):
    """Omits the line that says that a command is a COMMAND, and gives the longest name a place on its line."""

    def format_help(self) -> str:
        self._action_max_length += 1  # argparse forgets the indent of commands.
        return super().format_help()

    def _format_action(self, action: argparse.Action) -> str:
        text = super()._format_action(action)
        return text.partition("\n")[2] if action.metavar == "COMMAND" else text


def _print(report: Report, *, as_json: bool) -> None:
    if report.data is None:
        return
    lines = [_json(report.data)] if as_json else report.lines
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def _fail(error: VeilcastError, *, as_json: bool) -> int:
    code, name = exits.code_of(error)
    if as_json:
        sys.stdout.write(_json({"error": name, "message": str(error)}) + "\n")
    sys.stderr.write(f"veilcast: {error}\n")
    return code


def _json(data: dict[str, Any]) -> str:
    import json

    return json.dumps(data, sort_keys=True)


_NEGATIVE: Final = re.compile(r"-\.?\d")

COMMANDS: Final = (
    Command("demo", "private networks on this machine, attacked and measured", "local"),
    Command("authority", "the offline authority: init, grant, revoke, rotate, show, ...", "authority"),
    Command("invite", "invite one person by a code", "joining"),
    Command("join", "join a group by a code", "joining"),
    Command("node", "a member's node: new, run, reload, stop", "member"),
    Command("pub", "publish through the running node", "member"),
    Command("sub", "subscribe through the running node", "member"),
    Command("status", "show the state of the running node, and how well you are hidden", "member"),
    Command("peers", "list the neighbours of the running node", "member"),
    Command("relay", "the services of a relay: server, proxy", "modes"),
    Command("tree", "the directory of a tree, and a private Tor network", "modes"),
    Command("foil", "publish and subscribe at any MQTT broker, among fakes", "modes"),
    Command("brokers", "an overlay of replicated brokers: overlay, run, plan, ...", "modes"),
    Command("net", "many nodes on this machine: up, start, status, down", "local"),
    Command("sim", "the protocol in virtual time: run, soak, explore, ...", "local"),
    Command("audit", "what an observer learns from captures of your own network", "lab"),
    Command("lab", "experiments on Spark: list, run, report, doctor, ...", "lab"),
)
