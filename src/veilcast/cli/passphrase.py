"""Where a passphrase comes from: a file, an open descriptor or a prompt, never the command's arguments.

The sources in order: the file of an option, the file that a command left beside what it locked, the file named in
VEILCAST_PASSPHRASE_FILE, and the terminal. If there is no terminal, a new passphrase is drawn and written to a file
beside the locked one, mode 0600, with a warning: both files together are as good as the keys.

A process that handles a passphrase writes no core dump, and lets no process of the same user read its memory.
`RLIMIT_CORE` is set to 0 on every system that has it, and is inherited by child processes. On Linux the process is also
made not dumpable (`PR_SET_DUMPABLE`): a core dump goes to no pipe either, and only root may use ptrace and
`/proc/PID/mem`. Memory is not locked (`mlock`): Python copies secrets freely, and the default limit of a user, 8 MB, is
less than Argon2id alone needs. So a computer without encrypted swap can still write secrets to its disk.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import os
import resource
import sys
from pathlib import Path
from typing import Final

from veilcast.authority.secret_file import read_private_file, replace_file
from veilcast.cli.context import Context
from veilcast.crypto.secret import Secret
from veilcast.errors import PassphraseError


def guard_process() -> None:
    """Protect this process before a passphrase is read. Harmless if it is repeated or not possible."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


_PR_SET_DUMPABLE: Final = 4


def read_passphrase(context: Context, what: str, option: Path | None, beside: Path) -> Secret:
    """Return the passphrase that opens `what`."""
    guard_process()
    known = _known(option, beside, os.environ.get("VEILCAST_PASSPHRASE_FILE"))
    if known is not None:
        return known
    if context.has_terminal():
        return _ask(context, f"passphrase for {what}: ")
    raise PassphraseError(f"no terminal to ask for the passphrase of {what}; name a file with --passphrase-file")


def read_descriptor(descriptor: int) -> Secret:
    """Read a passphrase from an open file or pipe of the parent process, and close it."""
    guard_process()
    try:
        with open(descriptor, "rb") as file:
            content = file.read(_DESCRIPTOR_MAX).rstrip(b"\r\n")
    except OSError as error:
        raise PassphraseError(f"cannot read a passphrase from descriptor {descriptor}: {error.strerror}") from error
    if not content:
        raise PassphraseError(f"descriptor {descriptor} holds no passphrase")
    return Secret(content)


def new_passphrase(context: Context, what: str, option: Path | None, beside: Path, *, draw: bool = False) -> Secret:
    """Return a passphrase to lock `what` with; with `draw`, it is drawn and nobody is asked."""
    guard_process()
    known = _known(option, beside, None if draw else os.environ.get("VEILCAST_PASSPHRASE_FILE"))
    if known is not None:
        return known
    if context.has_terminal() and not draw:
        first = _ask(context, f"new passphrase for {what}: ")
        if first != _ask(context, "the same again: "):
            raise PassphraseError("the two passphrases differ; nothing was made")
        return first
    drawn = base64.b32encode(context.entropy(20)).lower()
    replace_file(beside, drawn + b"\n")
    context.warn(f"a drawn passphrase for {what} is in {beside}; keep the two files apart")
    return Secret(drawn)


def _known(option: Path | None, beside: Path, variable: str | None) -> Secret | None:
    """Read the first of these files that exists."""
    if option is not None:
        return _from_file(option)
    if beside.exists():
        return _from_file(beside)
    return _from_file(Path(variable)) if variable else None


def _from_file(path: Path) -> Secret:
    content = read_private_file(path).rstrip(b"\r\n")
    if not content:
        raise PassphraseError(f"{path} holds no passphrase")
    return Secret(content)


def _ask(context: Context, prompt: str) -> Secret:
    try:
        answer = context.ask_secret(prompt)
    except EOFError as error:
        raise PassphraseError("no passphrase was typed; nothing was done") from error
    if not answer:
        raise PassphraseError("an empty passphrase protects nothing; nothing was done")
    return Secret(answer.encode())


_DESCRIPTOR_MAX: Final = 4096
