"""The table `tor` of a file: the Tor by which a process is reached and calls others.

    [tor]                                      # left out: a `tor` of our own, in the public network
    control = "127.0.0.1:9051"                 # or one that runs already; or "unix:/run/tor/control"
    cookie = "/run/tor/control.authcookie"     # its cookie file, unless we can read the one that it names
    network = "testnet/network.json"           # or a private network, as `veilcast tree testnet up` writes it

With `danger_off` there is no Tor: streams go directly from address to address, and every observer on the way learns who
talks to whom. That is for tests, and to measure the cost of Tor.
"""

from __future__ import annotations

from typing import Final

import msgspec

from veilcast.crypto.onion_keys import read_host
from veilcast.errors import ConfigError, MalformedError
from veilcast.node.toml_file import check_address, parse_ip


class TorTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    control: str | None = None
    cookie: str | None = None
    network: str | None = None
    danger_off: bool = False

    def __post_init__(self) -> None:
        if self.cookie is not None and self.control is None:
            raise ConfigError("tor.cookie: of use only with tor.control, the address of a Tor that runs")
        named = [key for key in ("control", "network", "danger_off") if getattr(self, key)]
        if len(named) > 1:
            raise ConfigError(f"tor.{named[1]}: there is a tor.{named[0]} too; name one of the two")
        if self.control is None or self.control.startswith("unix:"):
            return
        if not parse_ip(check_address("tor.control", self.control)).is_loopback:
            raise ConfigError("tor.control: Tor must run on this machine; use 127.0.0.1 or [::1]")

    def check_listen(self, listen: str | None) -> None:
        """Only a process without Tor has a listening address in its file."""
        if self.danger_off and listen is None:
            raise ConfigError("listen: needed, and not there, since tor.danger_off says that there is no Tor")
        if not self.danger_off and listen is not None:
            raise ConfigError("listen: this process is reached at its onion service; leave it away")
        if listen is not None and parse_ip(check_address("listen", listen)).is_unspecified:
            raise ConfigError(f"listen: {listen} is no address that others could be told")

    def check_peer(self, key: str, text: str) -> str:
        """Check an address that must be reachable in the way of this table."""
        if self.danger_off:
            return check_address(key, text)
        host, _, port = text.rpartition(":")
        try:
            read_host(host)
        except MalformedError as error:
            raise ConfigError(f"{key}: {text!r} is not like abc...xyz.onion:80; copy it whole") from error
        if not port.isascii() or not port.isdecimal() or not 1 <= int(port) <= 65_535:
            raise ConfigError(f"{key}: a port is a number from 1 to 65535")
        return text


TOR_PATHS: Final = ("tor.cookie", "tor.network")
"""The keys of the table that are paths."""
