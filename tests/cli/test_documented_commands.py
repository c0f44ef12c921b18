"""Every command that the documents show is one that the command line takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from veilcast.cli import commands

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def shown(text: str) -> list[str]:
    """The commands in fenced blocks, without what the shell does with them."""
    lines = [line.removeprefix("$ ") for block in FENCE.findall(text) for line in block.splitlines()]
    return [line.split(" > ")[0].removeprefix("./run ") for line in lines if re.match(r"(\./run )?veilcast ", line)]


GUIDES = ("README.md", "docs/member.md", "docs/researcher.md", "docs/operator/*.md")
COMMANDS = [command for name in GUIDES for path in sorted(ROOT.glob(name)) for command in shown(path.read_text())]


@pytest.mark.parametrize("command", dict.fromkeys(COMMANDS))
def test_a_command_that_is_shown_can_be_typed(command: str) -> None:
    _, *arguments = shlex.split(command)
    assert commands.parse(arguments).run is not None


def test_the_search_finds_the_commands_and_the_parser_refuses_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(COMMANDS) > 20
    assert shown("```\n$ veilcast node new --listen 1 > node.toml\nout\n```\nveilcast pub\n") == [
        "veilcast node new --listen 1"
    ]
    with pytest.raises(SystemExit):
        test_a_command_that_is_shown_can_be_typed("veilcast node now")
    assert "invalid choice" in capsys.readouterr().err
