"""Finds a location by its text: a directory of this machine, or a place on one of Hadoop's file systems."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from veilcast.errors import ConfigError, UnreachableError
from veilcast.lab.spark.master import LOCAL
from veilcast.lab.spark.settings import SparkOptions
from veilcast.lab.storage.location import LocalDirectory, Location, parse_local

if TYPE_CHECKING:
    from veilcast.lab.spark.hadoop_directory import HadoopDirectory
    from veilcast.lab.spark.hadoop_gateway import HadoopSettings

NO_OPTIONS: Final = SparkOptions()


class LocationAddress(msgspec.Struct, frozen=True):
    """All that another process needs to open a location."""

    place: str
    settings: HadoopSettings | None = None
    """Settings for a place on one of Hadoop's file systems; None for a directory of this machine."""

    def open(self) -> Location:
        return LocalDirectory(Path(self.place)) if self.settings is None else self.open_remote()

    def open_remote(self) -> HadoopDirectory:
        from veilcast.lab.spark.hadoop_directory import HadoopDirectory
        from veilcast.lab.spark.hadoop_gateway import HadoopSettings

        return HadoopDirectory(self.place, self.settings or HadoopSettings())


def open_location(place: str, master: str = LOCAL, options: SparkOptions = NO_OPTIONS) -> Location:
    """A location, whose server has answered. For a place elsewhere this process starts the Java machine of its next
    session, with that session's master and options, unless it has one."""
    path = parse_local(place)
    if path is not None:
        return LocalDirectory(path)
    _connect(place)
    from veilcast.lab.spark.sessions import start_java_machine

    start_java_machine(master, options)
    from veilcast.lab.spark.hadoop_directory import HadoopDirectory
    from veilcast.lab.spark.hadoop_gateway import HadoopSettings

    location = HadoopDirectory(place, HadoopSettings.of_process(options))
    location.check_reachable()
    return location


def address_of(location: Location) -> LocationAddress:
    return LocationAddress(location.place, getattr(location, "settings", None))


def _connect(place: str) -> None:
    """Raise `UnreachableError` at once where Hadoop would try for minutes."""
    try:
        parts = urlsplit(place)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"{place}: {error}") from error
    if host is None or port is None:
        return
    try:
        socket.create_connection((host, port), timeout=_PATIENCE_S).close()
    except OSError as error:
        raise UnreachableError(f"{place}: no server answers at {host}:{port}: {error.strerror or error}") from error


_PATIENCE_S: Final = 5
