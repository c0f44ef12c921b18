"""Options that several commands share."""

from __future__ import annotations

import argparse
import math
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple


class Later(NamedTuple):
    """A function of a command, whose module in `veilcast.cli` is imported when the command runs."""

    module: str
    function: str

    def resolve(self) -> Any:
        return getattr(import_module(f"veilcast.cli.{self.module}"), self.function)

    def __call__(self, arguments: argparse.Namespace, context: Any) -> Any:
        return self.resolve()(arguments, context)


def runs(parser: argparse.ArgumentParser, run: Later, *, json: str = "print one JSON object") -> None:
    """Add what every command has: `--json`, and the function that it runs."""
    parser.add_argument("--json", action="store_true", help=json)
    parser.set_defaults(run=run, parser=parser)


def add_group(commands: Any, name: str, **texts: str) -> Any:
    """Add a command that only has subcommands; called alone it prints its help."""
    group = commands.add_parser(name, **texts)
    group.set_defaults(parser=group)
    return group


def add_network_verb(verbs: Any, name: str, run: Later, text: str, *, directory: str) -> argparse.ArgumentParser:
    """Add a subcommand that works on the files of a network on this machine."""
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
    parser.add_argument(
        "--dir", type=Path, default=Path(directory), help=f"the directory of the network's files ({directory})"
    )
    runs(parser, run)
    return parser


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c",
        "--config",
        type=Path,
        metavar="FILE",
        help="the node's file (VEILCAST_NODE, or node.toml in this directory)",
    )


def add_own_config(parser: argparse.ArgumentParser, file: str) -> None:
    parser.add_argument(
        "-c",
        "--config",
        type=Path,
        default=Path(file),
        metavar="FILE",
        help=f"the process's file ({file} in this directory)",
    )


def add_passphrase_source(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--passphrase-file", type=Path, metavar="FILE", help="read the keyring's passphrase from FILE")
    source.add_argument(
        "--passphrase-fd", type=int, metavar="N", help="read the keyring's passphrase from the open file descriptor N"
    )


def add_keyring(parser: argparse.ArgumentParser, of: str) -> None:
    parser.add_argument("--keyring", type=Path, required=True, metavar="FILE", help=f"the keyring of the {of}")
    parser.add_argument("--passphrase-file", type=Path, metavar="FILE", help="read the keyring's passphrase from FILE")


def add_interest(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--range",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "LOW..HIGH"),
        help="only notes with the attribute in this range, as in --range temp -10..5; either end may be left out",
    )
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="PREDICATES",
        help="only notes that meet all predicates, as in --where '[class,=,bar],[price,>,50]'; operators are"
        " = < <= > >=, and a value in quotes is text",
    )


def add_values(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--value",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a value of an attribute, which is text if it is in quotes; may be given several times",
    )


def positive(text: str) -> float:
    """Parse a finite number above zero; argparse names the option if it is not."""
    number = float(text)
    if not 0 < number < math.inf:
        raise ValueError(text)
    return number


LINES: Final = "print JSON objects, one on each line"
"""The help of `--json` of a command that prints more than one object."""
