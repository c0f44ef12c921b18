"""The settings of a member's node in the mode "foil": its MQTT broker, and its machine.

    mode = "foil"
    keyring = "alice.keyring"

    [foil]
    broker = "mqtts://192.0.2.1:8883"          # or "mqtt://127.0.0.1:1883", in the clear, on this computer alone
    name = "broker.example.org"                # the name in its certificate; without it, the address
    ca = "broker.pem"                          # the authorities that may sign it; without it, those of the system
    login = "broker.login"                     # user and password, a line each, if the broker asks for them
    k_p = 4                                    # the other keys are settings of the machine: `foil/config.py`

The broker may belong to anybody and is not trusted; it knows its customers by the login. A member calls its broker and
nobody calls a member, so its file has no address.
"""

from __future__ import annotations

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
from veilcast.node.toml_file import check_address, parse_ip, read_own_table


class FoilSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    broker: Address
    tls: bool
    name: str
    """The name that the broker's certificate must have."""
    ca: str | None
    login: str | None
    member: FoilConfig


def read_settings(profile: Profile, table: dict[str, Any]) -> FoilSettings:
    """Read the table `foil` of a node's file: the connection to the broker, and the settings of the machine."""
    own = {key: table.pop(key, None) for key in ("broker", "name", "ca", "login")}
    if own["broker"] is None:
        raise ConfigError("foil.broker: needed, and not there")
    for key, value in own.items():
        if not isinstance(value, str | None) or value == "":
            raise ConfigError(f"foil.{key}: must be a text")
    scheme, _, address = str(own["broker"]).partition("://")
    if scheme not in _SCHEMES:
        raise ConfigError(f"foil.broker: write {' or '.join(f'{each}://ADDRESS:PORT' for each in _SCHEMES)}")
    host = parse_ip(check_address("foil.broker", address))
    tls = _SCHEMES[scheme]
    if not tls:
        if not host.is_loopback:
            raise ConfigError("foil.broker: in the clear only on this machine; use mqtts:// for any other")
        for key in ("name", "ca"):
            if own[key] is not None:
                raise ConfigError(f"foil.{key}: of use only with mqtts://")
    attributes = table.pop("attributes", {})
    member = read_own_table("foil", table, profile, FoilConfig)
    member = msgspec.structs.replace(member, attributes=_attributes(attributes, profile))
    return FoilSettings(Address(address), tls, own["name"] or str(host), own["ca"], own["login"], member)


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
        foil.member,
        start.keyring,
        foil.broker,
        start.rng,
        start.entropy,
        start.now,
        start.records,
        read_login(foil.login),
    )


PATHS: Final = ("ca", "login")
"""The settings that are paths."""
_ATTRIBUTES: Final = "foil.attributes"
_SCHEMES: Final = {"mqtts": True, "mqtt": False}

MODE: Final = Mode(read_settings, build, "mqtt", hindrances, paths=PATHS)
