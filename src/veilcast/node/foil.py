"""The settings of a member's node in the mode "foil": its MQTT broker, and its machine.

    mode = "foil"
    keyring = "alice.keyring"

    [foil]
    broker = "mqtts://mq.example.org:8883"     # or an address; or "mqtt://127.0.0.1:1883", in the clear, here
    name = "broker.example.org"                # the name in its certificate, if that differs
    ca = "broker.pem"                          # the authorities that may sign it; without it, those of the system
    login = "broker.login"                     # user and password, a line each, if the broker asks for them
    history = "past.csv"                       # past values: a column for each attribute, named like it
    k_p = 9                                    # the other keys are settings of the machine: `foil/config.py`

The broker may belong to anybody and is not trusted; it knows its customers by the login. A member calls its broker and
nobody calls a member, so its file has no address.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any, Final

import msgspec

from veilcast.authority.secret_file import read_private_file
from veilcast.authority.topic_record import Profile
from veilcast.errors import ConfigError
from veilcast.foil.config import AttributeConfig, FoilConfig
from veilcast.foil.member import FoilMember
from veilcast.foil.session import Login
from veilcast.machine import Address
from veilcast.node.modes import MachineInputs, Mode, NodeMember
from veilcast.node.toml_file import check_address, is_host_name, parse_ip, read_own_table


class FoilSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    broker: Address
    """A numeric address or a host name, and a port."""
    tls: bool
    name: str
    """The name that the broker's certificate must have."""
    ca: str | None
    login: str | None
    history: str | None
    """A CSV file with past values of attributes, a column for each."""
    member: FoilConfig


def read_settings(profile: Profile, table: dict[str, Any]) -> FoilSettings:
    """Read the table `foil` of a node's file: the connection to the broker, and the settings of the machine."""
    own = {key: table.pop(key, None) for key in ("broker", "name", "ca", "login", "history")}
    if own["broker"] is None:
        raise ConfigError("foil.broker: needed, and not there")
    for key, value in own.items():
        if not isinstance(value, str | None) or value == "":
            raise ConfigError(f"foil.{key}: must be a text")
    scheme, _, address = str(own["broker"]).partition("://")
    if scheme not in _SCHEMES:
        raise ConfigError(f"foil.broker: write {' or '.join(f'{each}://ADDRESS:PORT' for each in _SCHEMES)}")
    tls = _SCHEMES[scheme]
    host, is_here = _check_broker(address)
    if not tls:
        if not is_here:
            raise ConfigError("foil.broker: in the clear only on this machine; use mqtts:// for any other")
        for key in ("name", "ca"):
            if own[key] is not None:
                raise ConfigError(f"foil.{key}: of use only with mqtts://")
    attributes = table.pop("attributes", {})
    member = read_own_table("foil", table, profile, FoilConfig)
    member = msgspec.structs.replace(member, attributes=_attributes(attributes, profile))
    return FoilSettings(Address(address), tls, own["name"] or host, own["ca"], own["login"], own["history"], member)


def _check_broker(address: str) -> tuple[str, bool]:
    """The host of an address, and whether it is certainly this machine."""
    name, _, port = address.rpartition(":")
    if not is_host_name(name):
        host = parse_ip(check_address("foil.broker", address, _NAMES_TOO))
        return str(host), bool(host.is_loopback)
    if not (port.isdecimal() and 1 <= int(port) <= _PORT_MAX and port == str(int(port))):
        raise ConfigError(f"foil.broker: {address!r}: a port is a number from 1 to {_PORT_MAX}")
    return name, False


def _attributes(table: Any, profile: Profile) -> dict[str, AttributeConfig]:
    """Read the attributes one by one, so that an error names its attribute."""
    if not isinstance(table, dict) or not all(isinstance(each, dict) for each in table.values()):
        raise ConfigError("foil.attributes: write a table [foil.attributes.NAME] for each attribute")
    found = {}
    for name, own in table.items():
        try:
            found[name] = read_own_table(f"{_ATTRIBUTES}.{name}", own, profile, AttributeConfig)
        except ConfigError as error:
            raise ConfigError(str(error).replace(f"{_ATTRIBUTES}: ", f"{_ATTRIBUTES}.{name}: ", 1)) from error
    return found


def with_history(settings: FoilSettings) -> FoilConfig:
    """The machine's settings with the past values of the file `history`.

    Columns of anything but numbers are left out, and those of no attribute of a topic do no harm. Raises `ConfigError`
    for a gap in a column of numbers, and for an attribute whose table has a history, too.
    """
    if settings.history is None:
        return settings.member
    attributes = dict(settings.member.attributes)
    for name, values in _read_columns(Path(settings.history)).items():
        own = attributes.get(name, AttributeConfig())
        if own.history:
            raise ConfigError(f"foil.history: {settings.history} has a column {name!r}, and its table a history, too")
        attributes[name] = msgspec.structs.replace(own, history=tuple(values))
    return msgspec.structs.replace(settings.member, attributes=attributes)


def _read_columns(path: Path) -> dict[str, list[float]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, strict=True))
    except OSError as error:
        raise ConfigError(f"foil.history: cannot read {path}: {error.strerror}") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"foil.history: {path}: {error}") from error
    found = {}
    for name in rows[0] if rows else ():
        column = [_parse_number(row[name]) for row in rows]
        gaps = column.count(None)
        if gaps == len(column) or not name:
            continue
        if gaps:
            line = 2 + column.index(None)
            raise ConfigError(f"foil.history: {path}, line {line}: no number in column {name!r}; fill gaps first")
        found[name] = [value for value in column if value is not None]
    return found


def _parse_number(text: str | None) -> float | None:
    """None for anything but a finite number in plain digits."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in (text or "") else None


def read_login(path: str | None) -> Login | None:
    """Read a private file of two lines: the user and the password."""
    if path is None:
        return None
    lines = read_private_file(Path(path)).splitlines()
    try:
        user, password = lines
        return Login(user.decode(), password)
    except (ValueError, UnicodeDecodeError):
        raise ConfigError(f"foil.login: {path} has not two lines, the user and the password") from None


def hindrances(member: FoilMember, now: int) -> list[str]:
    """Return what the broker has refused or did wrong, in words for the owner."""
    return [f"the broker: {what} (times: {count})" for what, count in member.refusals().items()]


def build(start: MachineInputs) -> NodeMember:
    foil: FoilSettings = start.settings
    return FoilMember(
        with_history(foil),
        start.keyring,
        foil.broker,
        start.rng,
        start.entropy,
        start.now,
        start.records,
        read_login(foil.login),
    )


PATHS: Final = ("ca", "login", "history")
"""The settings that are paths."""
_NAMES_TOO: Final = ", or a host name like mq.example.org:8883"
_PORT_MAX: Final = 65_535
_ATTRIBUTES: Final = "foil.attributes"
_SCHEMES: Final = {"mqtts": True, "mqtt": False}

MODE: Final = Mode(read_settings, build, "mqtt", hindrances, paths=PATHS)
