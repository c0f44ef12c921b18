"""The file of a node, `node.toml`: what its owner decides, read into one frozen value that cannot be wrong.

Every error names the file and the key. Paths are relative to where the file lies. Addresses are numbers, never names:
to ask for a name would tell a stranger whom this node is going to talk to.

    mode = "mesh"
    profile = "hardened"
    keyring = "alice.keyring"
    passphrase_file = "alice.passphrase"       # or passphrase_fd = 3; without either the node asks
    listen = "0.0.0.0:4000"
    address = "203.0.113.7:4000"               # what others are told; needed where `listen` is every address
    peers = ["198.51.100.2:4000"]
    rate = 4                                   # cells a second on each link: 1, 4 or 16

    [mesh]                                     # the mode's own settings
    neighbours_max = 32
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_type_hints

import msgspec

from veilcast.authority.record import Profile
from veilcast.errors import ConfigError
from veilcast.machine import Address
from veilcast.node.modes import MODES, mode_of


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much a node keeps for its clients. What it keeps of its own publications is a matter of its mode."""

    subscriptions: int = 64
    unread: int = 4096
    """Notes that wait for the acknowledgement of one subscription; while it has so many it gets no others."""
    remembered: int = 65_536
    """Acknowledged notes whose ids are known, so that a copy from the network is not given to a client again."""
    clients: int = 16
    """Connections to the control socket."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 1:
                raise ConfigError(f"limits.{name}: must be at least 1")


class Log(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal["pretty", "json"] = "pretty"
    level: Literal["debug", "info", "warning", "error"] = "info"
    file: str | None = None
    """Or to where the node's complaints go, the standard error."""


class Metrics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    listen: str | None = None
    """Where they can be read; on this machine alone. None is nowhere."""

    def __post_init__(self) -> None:
        if self.listen is not None and not _host(check_address("metrics.listen", self.listen)).is_loopback:
            raise ConfigError("metrics.listen: metrics are for this machine alone; use 127.0.0.1 or [::1]")


class NodeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of the file. `settings` is the mode's own table, which is called as the mode is."""

    keyring: str
    listen: str
    mode: str = "mesh"
    profile: Profile = "hardened"
    address: str | None = None
    peers: tuple[str, ...] = ()
    rate: Literal[1, 4, 16] = 4
    passphrase_file: str | None = None
    passphrase_fd: int | None = None
    state: str = "state"
    """The directory of what the node keeps; nobody else may read it."""
    bulletins: str = "bulletins"
    """The directory, if it is there, of the authority's bulletins: whom they shut out gets no link."""
    control: str | None = None
    """The socket for commands and programs; None is `control.sock` in the state directory."""
    limits: Limits = Limits()
    log: Log = Log()
    metrics: Metrics = Metrics()
    settings: Any = None

    def __post_init__(self) -> None:
        mode_of(self.mode)
        if _host(check_address("listen", self.listen)).is_unspecified and self.address is None:
            raise ConfigError(f"address: needed, since {self.listen} is no address that others could be told")
        if _host(check_address("address", self.told)).is_unspecified:
            raise ConfigError(f"address: {self.told} is no address that others could be told")
        for place, peer in enumerate(self.peers):
            check_address(f"peers[{place}]", peer)
        if self.told in self.peers:
            raise ConfigError(f"peers[{self.peers.index(self.told)}]: {self.told} is this node's own address")
        if self.passphrase_file is not None and self.passphrase_fd is not None:
            raise ConfigError("passphrase_fd: there is a passphrase_file too; name one of the two")
        if self.passphrase_fd is not None and self.passphrase_fd < 0:
            raise ConfigError("passphrase_fd: must not be negative")

    @property
    def told(self) -> Address:
        """The address that others know this node by."""
        return Address(self.address if self.address is not None else self.listen)

    @property
    def contacts(self) -> tuple[Address, ...]:
        return tuple(map(Address, self.peers))

    @property
    def control_path(self) -> Path:
        return Path(self.control) if self.control is not None else Path(self.state) / "control.sock"


def load(path: Path) -> NodeConfig:
    try:
        return parse(path.read_bytes(), path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; name the node's file with -c") from error


def parse(toml: bytes, path: Path) -> NodeConfig:
    """The file's content, with its paths in full."""
    try:
        table = msgspec.toml.decode(toml, type=dict[str, Any])
        return _convert(table, path.parent)
    except (ConfigError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path}: {_naming_the_key(str(error))}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not a TOML file: {error}") from error


def check_address(key: str, text: str) -> str:
    """`127.0.0.1:4000` or `[::1]:4000`, in the one spelling that everybody compares."""
    try:
        host, port = _host(text), int(text.rpartition(":")[2])
    except ValueError:
        raise ConfigError(
            f"{key}: {text!r} is not like 127.0.0.1:4000 or [::1]:4000; names are not looked up"
        ) from None
    if not 1 <= port <= _PORT_MAX:
        raise ConfigError(f"{key}: a port is a number from 1 to {_PORT_MAX}")
    spelled = f"[{host}]:{port}" if host.version == 6 else f"{host}:{port}"
    if text != spelled:
        raise ConfigError(f"{key}: write {spelled} for {text}")
    return text


def _convert(table: dict[str, Any], directory: Path) -> NodeConfig:
    if "settings" in table:
        raise ConfigError("settings: unknown key; the settings of a mode stand in a table of its name")
    own = {name: table.pop(name) for name in MODES if name in table}
    config = msgspec.convert(table, NodeConfig)
    for name in own:
        if name != config.mode:
            raise ConfigError(f"{name}: the mode is {config.mode!r}; settings of another are of no use")
    try:
        settings = mode_of(config.mode).settings(config.profile, own.get(config.mode, {}))
    except msgspec.ValidationError as error:
        raise ConfigError(_naming_the_key(str(error), config.mode)) from error
    paths = {name: str(directory / value) for name in _PATHS if (value := getattr(config, name)) is not None}
    if config.log.file is not None:
        log = msgspec.structs.replace(config.log, file=str(directory / config.log.file))
        config = msgspec.structs.replace(config, log=log)
    return msgspec.structs.replace(config, settings=settings, **paths)


def _naming_the_key(text: str, within: str = "") -> str:
    """The key first, in the file's own spelling; the libraries name it last, if it is not the file itself."""
    what, _, path = text.partition(" - at `")
    inner = path.rstrip("`").removeprefix("$").removeprefix(".")
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", what):
        inner, what = f"{inner}.{unknown[1]}".lstrip("."), "unknown key"
    elif missing := re.fullmatch(r"Object missing required field `(.*)`", what):
        inner, what = f"{inner}.{missing[1]}".lstrip("."), "needed, and not there"
    elif (wrong := re.fullmatch(r"Invalid enum value (.*)", what)) and (choices := _choices(inner)):
        what = f"{wrong[1]} is none of {', '.join(map(str, choices))}"
    key = ".".join(part for part in (within, inner) if part)
    return f"{key}: {what}" if key else what


def _choices(key: str) -> list[Any]:
    """What may stand at this key, where only some values may; nothing for a key of a mode's own."""
    kind: Any = NodeConfig
    for part in key.split("."):
        kind = get_type_hints(kind).get(part) if kind is not None else None
    return sorted(get_args(kind))  # Literals of the same values share one order, of whoever came first.


def _host(text: str) -> Any:
    host = text.rpartition(":")[0]
    return ip_address(host[1:-1] if host.startswith("[") and host.endswith("]") else host)


_PORT_MAX: Final = 65_535
_PATHS: Final = ("keyring", "passphrase_file", "state", "bulletins", "control")
