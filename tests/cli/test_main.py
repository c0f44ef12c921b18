"""The entry point: everything before a command runs."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from inspect import signature
from typing import get_args

import pytest

from support.waits import HANG_S
from veilcast.authority.epoch import BATCH_DAYS
from veilcast.authority.topic_record import COVER_SHARES
from veilcast.cli import commands, sim_soak
from veilcast.cli.grammar import authority, local, modes
from veilcast.cli.grammar.options import Later
from veilcast.cli.main import main
from veilcast.foil.config import GeneratorName
from veilcast.sim.swap_model.search import TREE

SIGNALLED = """
import os, runpy, signal, sys

class Impatient:
    def find_spec(self, name, path=None, target=None):
        if name == imported:
            os.kill(os.getpid(), signal.SIGINT)

imported = sys.argv.pop(1)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Impatient())
runpy.run_module("veilcast.cli.main", run_name="__main__")
"""


@pytest.mark.parametrize("imported", ["veilcast.cli.commands", "veilcast.cli.grammar.modes"])
def test_ctrl_c_while_a_command_is_imported_is_reported_in_one_line(imported: str) -> None:
    child = subprocess.run(
        [sys.executable, "-c", SIGNALLED, imported, "brokers"],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    assert (child.returncode, child.stdout, child.stderr) == (130, "", "veilcast: interrupted\n")


def subcommands(parser: argparse.ArgumentParser) -> argparse._SubParsersAction[argparse.ArgumentParser]:
    (found,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return found


def test_the_table_of_commands_matches_the_parsers() -> None:
    own = subcommands(commands.whole_parser())
    assert [(row.dest, row.help) for row in own._choices_actions] == [row[:2] for row in commands.COMMANDS]
    assert list(own.choices) == [command.name for command in commands.COMMANDS]


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of commands that do something."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for action in below:
        for child in action.choices.values():
            yield from leaves(child)
    if not below:
        yield parser


def test_every_command_names_a_function_that_exists_and_takes_json() -> None:
    found = list(leaves(commands.whole_parser()))
    assert len(found) > 40
    for parser in found:
        run = parser.get_default("run")
        assert isinstance(run, Later)
        names = list(signature(run.resolve()).parameters)
        assert len(names) == 2, parser.prog
        assert "--json" in parser._option_string_actions, parser.prog


def test_choices_that_the_grammar_repeats_are_those_of_the_rooms() -> None:
    assert authority.BATCH_DAYS == BATCH_DAYS
    assert tuple(COVER_SHARES) == authority.PRIVACY
    assert sorted(kind for kind in get_args(GeneratorName) if kind) == list(modes.GENERATORS)
    assert tuple(sim_soak.SOAKS) == local.SOAKS
    assert tuple(TREE) == local.LIARS


def refusal(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("pubb", "pub"),
        ("athority", "authority"),
        ("lab lst", "list"),
        ("brokers overlay sing", "sign"),
        ("pub news/eu --mesage hi", "--message"),
        ("pub news/eu --mesage=hi", "--message"),
        ("net up 3 --mode mash", "mesh"),
    ],
)
def test_a_mistyped_word_is_answered_with_the_nearest_one(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"did you mean {meant!r}?" in refusal(typed, capsys)


def test_a_word_that_resembles_nothing_is_answered_with_all_choices(capsys: pytest.CaptureFixture[str]) -> None:
    told = refusal("xyzzy", capsys)
    assert "did you mean" not in told
    assert all(repr(command.name) in told for command in commands.COMMANDS)
    assert "did you mean" not in refusal("--json status", capsys)


def test_an_argument_too_many_is_refused_with_the_usage_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    told = refusal("pub news/eu hi", capsys)
    assert told.startswith("usage: veilcast pub [-h]")
    assert "unrecognized arguments: hi" in told
    assert "veilcast pub TOPIC -m TEXT" in told
    assert refusal("node stop now", capsys).startswith("usage: veilcast node stop [-h]")
    assert refusal("--never status", capsys).startswith("usage: veilcast [-h]")
