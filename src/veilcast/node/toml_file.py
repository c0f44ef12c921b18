"""The parts that the files of all our processes share: a node's, and those of the hosts of a relay, a tree or an
overlay.

A file is read into one frozen value that cannot be wrong. Every error names the file and the key. Paths are relative to
the file. Addresses are numeric, because a name lookup would tell a stranger which peers this process is going to call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import Enum
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args, get_type_hints

import msgspec

from veilcast.authority.topic_record import Profile
from veilcast.decoding import read_toml
from veilcast.errors import ConfigError


class LogConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal["pretty", "json"] = "pretty"
    level: Literal["debug", "info", "warning", "error"] = "info"
    file: str | None = None
    """The log file (default: the standard error)."""


class MetricsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    listen: str | None = None
    """The address for metrics, on this computer alone (default: no metrics)."""

    def __post_init__(self) -> None:
        if self.listen is not None and not parse_ip(check_address("metrics.listen", self.listen)).is_loopback:
            raise ConfigError("metrics.listen: metrics are for this machine alone; use 127.0.0.1 or [::1]")


class RendezvousConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where this process lets inviters and joiners of its authority meet."""

    listen: str | None = None
    """The TCP address for both (default: no rendezvous)."""
    address: str | None = None
    """The address by which both know it, if that differs."""

    def __post_init__(self) -> None:
        if self.address is not None and self.listen is None:
            raise ConfigError("rendezvous.address: of use only with rendezvous.listen")
        for key in ("listen", "address"):
            if (value := getattr(self, key)) is not None:
                check_address(f"rendezvous.{key}", value)
        if self.listen is not None and parse_ip(self.place).is_unspecified:
            raise ConfigError(
                f"rendezvous.address: needed, since {self.listen} is no address that others could be told"
            )

    @property
    def place(self) -> str:
        """The address in codes; empty if there is no rendezvous."""
        return self.address or self.listen or ""


class ProcessConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The keys that every file has."""

    keyring: str
    profile: Profile = "hardened"
    passphrase_file: str | None = None
    passphrase_fd: int | None = None
    state: str = "state"
    """The directory of the process's state; only its owner may read it."""
    bulletins: str = "bulletins"
    """The directory, if it exists, of the authority's bulletins. Members that a bulletin revokes are not let in."""
    log: LogConfig = LogConfig()
    metrics: MetricsConfig = MetricsConfig()

    def __post_init__(self) -> None:
        if self.passphrase_file is not None and self.passphrase_fd is not None:
            raise ConfigError("passphrase_fd: there is a passphrase_file too; name one of the two")
        if self.passphrase_fd is not None and self.passphrase_fd < 0:
            raise ConfigError("passphrase_fd: must not be negative")


_P = TypeVar("_P", bound=ProcessConfig)
_T = TypeVar("_T", bound=msgspec.Struct)


def load_file(path: Path, parse: Callable[[bytes, Path], _P]) -> _P:
    try:
        return parse(path.read_bytes(), path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; is the name right? -c FILE names another") from error


def parse_file(
    toml: bytes, path: Path, kind: type[_P], convert: Callable[[dict[str, Any]], _P], paths: Iterable[str] = ()
) -> _P:
    """Parse a file's content. Relative paths become absolute: those that every file has, and those at the keys of
    `paths`."""
    table = read_toml(toml, path)
    try:
        config = convert(table)
        return make_paths_absolute(config, (*_PATHS, *paths), path.parent)
    except (ConfigError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path}: {explain_error(str(error), kind=kind)}") from error


def make_paths_absolute(table: _T, keys: Iterable[str], home: Path) -> _T:
    """Return the same table with absolute paths at these keys."""
    for key in keys:
        table = _make_path_absolute(table, key.split("."), home)
    return table


def check_address(key: str, text: str, otherwise: str = "; names are not looked up") -> str:
    """Check an address like `127.0.0.1:4000` or `[::1]:4000`, in the one spelling that all processes compare.
    `otherwise` ends the error: what else may stand there."""
    try:
        host, port = parse_ip(text), int(text.rpartition(":")[2])
    except ValueError:
        raise ConfigError(f"{key}: {text!r} is not like 127.0.0.1:4000 or [::1]:4000{otherwise}") from None
    if not 1 <= port <= _PORT_MAX:
        raise ConfigError(f"{key}: a port is a number from 1 to {_PORT_MAX}")
    spelled = f"[{host}]:{port}" if host.version == 6 else f"{host}:{port}"
    if text != spelled:
        raise ConfigError(f"{key}: write {spelled} for {text}")
    return text


def is_host_name(text: str) -> bool:
    """Whether this is a name like mq.example.org, in small letters, and no address."""
    return len(text) <= _NAME_MAX and _NAME.fullmatch(text) is not None


def parse_ip(text: str) -> Any:
    """Return the IP address of an address with a port."""
    host = text.rpartition(":")[0]
    return ip_address(host[1:-1] if host.startswith("[") and host.endswith("]") else host)


def read_own_table(name: str, table: dict[str, Any], profile: str, kind: type[_T]) -> _T:
    """Read the table of a machine's own settings, which has the name of its mode."""
    if "profile" in table:
        raise ConfigError(f"{name}.profile: the profile is named once, at the top of the file")
    given = {**table, "profile": profile} if "profile" in kind.__struct_fields__ else table
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(explain_error(str(error), name, kind)) from error


def pop_table(table: dict[str, Any], name: str) -> dict[str, Any]:
    """Remove a mode's own table from a file's content. Raises `ConfigError` if it is a list or a plain value."""
    own = table.pop(name, {})
    if not isinstance(own, dict):
        raise ConfigError(f"{name}: must be one table, [{name}]")
    return own


def settings_converter(name: str, file: type[_P], settings: type[_T]) -> Callable[[dict[str, Any]], _P]:
    """Return a function that reads a file with such a table into its field `settings`."""

    def convert(table: dict[str, Any]) -> _P:
        if "settings" in table:
            raise ConfigError(f"settings: unknown key; the settings of a {name} stand in the table {name}")
        if "mode" in table:
            raise ConfigError("mode: unknown key; a file with a mode is a member's, which `veilcast node run` runs")
        own = pop_table(table, name)
        config = msgspec.convert(table, file)
        return msgspec.structs.replace(config, settings=read_own_table(name, own, config.profile, settings))

    return convert


def explain_error(text: str, within: str = "", kind: type[msgspec.Struct] | None = None) -> str:
    """Return the error text with the key first, in the file's own spelling; the libraries name it last."""
    what, _, path = text.partition(" - at `")
    inner = path.rstrip("`").removeprefix("$").removeprefix(".")
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", what):
        inner, what = f"{inner}.{unknown[1]}".lstrip("."), "unknown key"
    elif missing := re.fullmatch(r"Object missing required field `(.*)`", what):
        inner, what = f"{inner}.{missing[1]}".lstrip("."), "needed, and not there"
    elif (wrong := re.fullmatch(r"Invalid enum value (.*)", what)) and (choices := _choices(inner, kind)):
        what = f"{wrong[1]} is none of {', '.join(map(str, choices))}"
    key = ".".join(part for part in (within, inner) if part)
    return f"{key}: {what}" if key else what


def _make_path_absolute(table: _T, key: list[str], home: Path) -> _T:
    value = getattr(table, key[0])
    if value is None:
        return table
    placed: Any
    if isinstance(value, tuple):
        placed = tuple(_make_path_absolute(each, key[1:], home) for each in value)
    else:
        placed = _make_path_absolute(value, key[1:], home) if len(key) > 1 else str(home / value)
    return msgspec.structs.replace(table, **{key[0]: placed})


def _choices(key: str, kind: Any) -> list[Any]:
    """Return the values that this key allows, where only some are allowed; empty for a key of a mode's own table."""
    for part in key.split("."):
        name, many, _ = part.partition("[")
        kind = get_type_hints(kind).get(name) if kind is not None else None
        if many:
            kind = next(iter(get_args(kind)), None)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [each.value for each in kind]
    return sorted(get_args(kind))  # Literals of the same values share one order: that of the first one made.


_PORT_MAX: Final = 65_535
_PATHS: Final = ("keyring", "passphrase_file", "state", "bulletins", "log.file")
_NAME_MAX: Final = 253
_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAME: Final = re.compile(rf"(?:{_LABEL}\.)*(?=[a-z0-9-]*[a-z]){_LABEL}", re.ASCII)
"""The last label has a letter: otherwise it would be part of an address."""
