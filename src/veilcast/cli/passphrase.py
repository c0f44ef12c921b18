"""Where a passphrase comes from: a file or a prompt, never the command's arguments.

In order: the file named by an option, the file named in VEILCAST_PASSPHRASE_FILE, the file that a command without a
terminal left beside what it locked, and the terminal. Without a terminal a new passphrase is drawn and written to such
a file, mode 0600, with a warning: whoever holds both files holds the keys.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path

from veilcast.authority.vault import read_private, write_whole
from veilcast.cli.context import Context
from veilcast.crypto.secret import Secret
from veilcast.errors import PassphraseError


def existing(context: Context, what: str, option: Path | None, beside: Path) -> Secret:
    """The passphrase that opens `what`."""
    named = _named(option)
    if named is not None:
        return _from_file(named)
    if beside.exists():
        return _from_file(beside)
    if context.has_terminal():
        return _asked(context, f"passphrase for {what}: ")
    raise PassphraseError(f"no terminal to ask for the passphrase of {what}; name a file with --passphrase-file")


def fresh(context: Context, what: str, option: Path | None, beside: Path, *, draw: bool = False) -> Secret:
    """A passphrase to lock `what` with; with `draw`, a drawn one is the rule and nobody is asked."""
    named = _named(option) if not draw else option
    if named is not None:
        return _from_file(named)
    if beside.exists():
        return _from_file(beside)
    if context.has_terminal() and not draw:
        first = _asked(context, f"new passphrase for {what}: ")
        if first != _asked(context, "the same again: "):
            raise PassphraseError("the two passphrases differ; nothing was made")
        return first
    drawn = base64.b32encode(context.entropy(20)).lower()
    write_whole(beside, drawn + b"\n")
    context.warn(f"a drawn passphrase for {what} is in {beside}; keep the two files apart")
    return Secret(drawn)


def _named(option: Path | None) -> Path | None:
    if option is not None:
        return option
    variable = os.environ.get("VEILCAST_PASSPHRASE_FILE")
    return Path(variable) if variable else None


def _from_file(path: Path) -> Secret:
    content = read_private(path).rstrip(b"\r\n")
    if not content:
        raise PassphraseError(f"{path} holds no passphrase")
    return Secret(content)


def _asked(context: Context, prompt: str) -> Secret:
    answer = context.ask_secret(prompt)
    if not answer:
        raise PassphraseError("an empty passphrase protects nothing; nothing was done")
    return Secret(answer.encode())
