"""Shared by the commands that run a process until it is stopped: its file, passphrase, log and last message."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO, TypeVar

from veilcast.authority.secret_file import LOCKED_BY_NODE, is_directory_locked
from veilcast.cli import passphrase
from veilcast.cli.context import Context, Report
from veilcast.cli.files import passphrase_file
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError, StorageError
from veilcast.net import log
from veilcast.net.driver import MachineDriver
from veilcast.net.service import ServiceSetup, serve
from veilcast.node.toml_file import LogConfig, ProcessConfig

_P = TypeVar("_P", bound=ProcessConfig)


def load_process_config(path: Path, load: Callable[[Path], _P]) -> _P:
    """Read a process's file, and log from now on as the file says."""
    config = load(path)
    log.set_up(config.log.format, config.log.level, _log_file(config.log))
    return config


def process_passphrase(
    arguments: argparse.Namespace, config: ProcessConfig, context: Context, *, may_run: bool = False
) -> Secret:
    """Return the passphrase from the command line's source, or else from the source of the file.

    Raises `StorageError` if another process of this file runs, unless it `may_run`.
    """
    if not Path(config.keyring).exists():  # Check this before a person types a passphrase.
        raise StorageError(f"keyring: there is no {config.keyring}; the authority grants one")
    if not may_run and is_directory_locked(Path(config.state)):
        raise StorageError(f"{config.state} is in use by {LOCKED_BY_NODE}")
    named, descriptor = arguments.passphrase_file, arguments.passphrase_fd
    if named is None and descriptor is None:
        named = None if config.passphrase_file is None else Path(config.passphrase_file)
        descriptor = config.passphrase_fd
    if descriptor is not None:
        return passphrase.read_descriptor(descriptor)
    return passphrase.read_passphrase(context, config.keyring, named, passphrase_file(Path(config.keyring)))


def run_service(setup: ServiceSetup[Any], context: Context, *, as_json: bool, left: str) -> Report:
    """Serve until stopped, and print the addresses at the start; `left` is printed if something was left to do."""

    def ready(driver: MachineDriver) -> None:
        places = list(driver.addresses) if setup.address is None else [setup.address]
        line = f"listening at {', '.join(places)}" if places else "running"
        context.say(json.dumps({"listening": places}) if as_json else line)

    drained = asyncio.run(serve(setup, ready))
    return Report({"drained": drained}, ["all that was promised has gone out" if drained else left])


def _log_file(settings: LogConfig) -> TextIO | None:
    if settings.file is None:
        return None
    try:
        return open(settings.file, "a", encoding="utf-8", buffering=1)  # For the life of the process.
    except OSError as error:
        raise ConfigError(f"log.file: cannot write {settings.file}: {error.strerror}") from error
