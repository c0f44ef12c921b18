"""Finds a location by its text: a directory of this machine, or a place on one of Hadoop's file systems."""

from __future__ import annotations

import msgspec

from veilcast.errors import ConfigError
from veilcast.lab.storage.location import LocalDirectory, Location, parse_local


class LocationAddress(msgspec.Struct, frozen=True):
    """All that another process needs to open a location."""

    place: str

    def open(self) -> Location:
        return open_location(self.place)


def open_location(place: str) -> Location:
    path = parse_local(place)
    if path is None:
        raise ConfigError(
            f"{place}: results are written to directories of this machine; "
            "choose a directory, and copy it when the sweep is complete"
        )
    return LocalDirectory(path)


def address_of(location: Location) -> LocationAddress:
    return LocationAddress(location.place)
