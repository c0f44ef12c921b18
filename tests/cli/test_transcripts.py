"""The transcripts in the guides under docs/ of commands that need no running node say just what these commands say.

Each "step by step" section is run in a directory of its own, command by command, at a terminal that types passphrases.
A command that the document shows without any output may say anything: there the document shows the command alone.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from veilcast.cli.context import Context
from veilcast.cli.main import main
from veilcast.crypto.passphrase import PassphraseCost

DOCS = Path(__file__).parents[2] / "docs"
DOCUMENT = "\n".join(path.read_text() for path in (DOCS / "member.md", *sorted((DOCS / "operator").glob("*.md"))))
FENCE = re.compile(r"^```\n(.*?)^```", re.MULTILINE | re.DOTALL)
SECTION = re.compile(r"^## ([^\n]*step by step)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


class Shown(NamedTuple):
    """A command of a transcript, and what the document has below it."""

    command: str
    output: list[str]


def shown_in(text: str) -> Iterator[Shown]:
    """The commands of the fenced blocks, in their order."""
    for block in FENCE.findall(text):
        if not block.startswith("$ "):
            continue
        for part in ("\n" + block).split("\n$ ")[1:]:
            command, *output = part.strip("\n").split("\n")
            yield Shown(command, output)


class Terminal:
    """Runs commands in the current directory, and keeps what a person would see: prompts, warnings and output."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}
        """What the document calls a name that is drawn by chance, and what it is here."""

    def run(self, command: str) -> list[str]:
        for theirs, ours in self.known.items():
            command = command.replace(theirs, ours)
        command, _, file = command.partition(" > ")
        if command.startswith(("veilcast authority request", "veilcast authority grant")):
            command += " --days 1"  # A month of certificates takes seconds to sign.
        seen = io.StringIO()

        def typed(prompt: str) -> str:
            seen.write(prompt.rstrip() + "\n")
            return "a passphrase"

        context = Context(
            has_terminal=lambda: True,
            ask_secret=typed,
            warn=lambda line: seen.write(f"veilcast: {line}\n"),
            say=lambda line: seen.write(f"{line}\n"),
            cost=PassphraseCost(passes=1, memory_mib=1),
        )
        with contextlib.redirect_stdout(seen), contextlib.redirect_stderr(seen):
            code = main(shlex.split(command)[1:], context)
        assert code == 0, f"{command}: {seen.getvalue()}"
        if file:
            Path(file).write_text(seen.getvalue())
            return []
        return seen.getvalue().splitlines()

    def check(self, shown: Shown) -> None:
        """Run the command, and compare what it says with the document, but for what chance and time decide."""
        said = self.run(shown.command)
        if shown.output:
            assert list(map(_plain, said)) == list(map(_plain, shown.output)), shown.command
            for theirs, ours in zip(shown.output, said, strict=True):
                self.known.update(zip(DRAWN.findall(theirs), DRAWN.findall(ours), strict=True))


def _plain(line: str) -> str:
    for pattern, word in ((DRAWN, "DRAWN"), (TIME, "TIME"), (EPOCHS, "EPOCHS")):
        line = pattern.sub(word, line)
    return line


def play(section: str, directory: Path) -> list[str]:
    """Run what can be run of a section; the commands that were compared."""
    terminal, compared = Terminal(), []
    with contextlib.chdir(directory):
        commands = [shown for shown in shown_in(section) if shown.command.startswith(OFFLINE)]
        if not any("authority init" in shown.command for shown in commands):
            terminal.run("veilcast authority init authority")
        for shown in commands:
            if "--member cleo" in shown.command:  # Whom the steps before it have let in, "for each".
                terminal.run("veilcast authority grant authority --member cleo --out cleo.keys")
            if "authority apply" in shown.command:
                shutil.copytree("authority/bulletins", "bulletins")
            terminal.check(shown)
            compared += [shown.command] * bool(shown.output)
    return compared


SECTIONS = dict(SECTION.findall(DOCUMENT))
OFFLINE: Final = (
    "veilcast authority ",
    "veilcast node new ",
    "veilcast relay server init ",
    "veilcast tree directory init ",
    "veilcast brokers init ",
    "veilcast brokers overlay init ",
)
DRAWN = re.compile(r"\b[0-9a-f]{32}\b|veilcast-(?:server|broker|operator)-[\w-]+(?:\.\.\.)?|\b[a-z2-7]{56}\.onion")
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC")
EPOCHS = re.compile(r"\d+ epochs")


@pytest.fixture(autouse=True)
def no_passphrase_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VEILCAST_PASSPHRASE_FILE", raising=False)


@pytest.mark.parametrize("name", SECTIONS)
def test_a_transcript_matches_the_output_of_the_commands(name: str, tmp_path: Path) -> None:
    assert play(SECTIONS[name], tmp_path) or name == "Foiling, step by step", "there is something to compare"


def test_a_line_that_a_transcript_lacks_is_found(tmp_path: Path) -> None:
    name = next(name for name in SECTIONS if "three machines" in name)
    lines = SECTIONS[name].splitlines(keepends=True)
    at = lines.index("passphrase for authority:\n")
    with pytest.raises(AssertionError, match="veilcast authority topic"):
        play("".join(lines[:at] + lines[at + 1 :]), tmp_path)
