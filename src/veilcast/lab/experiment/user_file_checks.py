"""Reads the user's own files of experiments before a sweep starts, and tells all their faults at once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from veilcast.errors import ConfigError, StorageError
from veilcast.lab import data, trace_file, user_files
from veilcast.lab.attack import foreign
from veilcast.lab.experiment.params import UserFile


def check_user_files(files: Iterable[UserFile]) -> list[str]:
    """One line for each file: what was read, and what was left out.

    Raises `ConfigError` with the faults of all files, a line each, or `StorageError` if files cannot be read at all.
    """
    notes, faults, unreadable = list[str](), dict[str, None](), True
    for file in files:
        try:
            notes.append(f"{file.path}: {'; '.join(_read(file))}")
        except (ConfigError, StorageError) as error:
            unreadable = unreadable and isinstance(error, StorageError)
            faults |= dict.fromkeys(str(error).splitlines())
    if faults:
        raise (StorageError if unreadable else ConfigError)("\n".join(faults))
    return notes


def _read(file: UserFile) -> tuple[str, ...]:
    path = Path(file.path).absolute()
    match file.format:
        case "edges":
            return data.load_user_overlay(path, None, file.of).notes
        case "subscriptions":
            return user_files.load_subscriptions(path, Path(file.of).absolute() if file.of else None).notes
        case "latencies":
            return user_files.load_latencies(path).notes
        case "series":
            return user_files.load_series(path, file.of).notes
        case "attacker":
            found = foreign.load_attackers(foreign.read_attacker_file(path))
            return (f"attackers {', '.join(each.name for each in found)}",)
        case "trace":
            trace = trace_file.load_trace(path)
            return f"{trace.publisher.size:,} interactions of {trace.users:,} users", trace.describe_refused()
