"""The master's address, checked before a Java machine is started for it.

Spark itself takes a minute to give up on an address that does not answer. So this module connects first. The connection
also tells by which of our own addresses the executors can reach us.
"""

from __future__ import annotations

import re
import socket
from typing import Final, Self
from urllib.parse import urlsplit

import msgspec

from veilcast.errors import ConfigError, UnreachableError


class Master(msgspec.Struct, frozen=True):
    url: str
    """The address in Spark's form."""
    places: tuple[tuple[str, int], ...] = ()
    """Hosts and ports of a standalone or Kubernetes master; empty if there is nothing to connect to."""

    @classmethod
    def parse(cls, url: str) -> Self:
        if found := re.fullmatch(r"local(?:\[(\d+|\*)\])?", url):
            # A task is retried as often as on a cluster: the system may kill a worker to free memory.
            cores = found[1] or "1"
            if cores == "0":
                raise ConfigError(f"--master {url}: at least one core is needed")
            return cls(f"local[{cores},{_TRIES}]")
        if url == "yarn":
            return cls(url)
        scheme, _, rest = url.partition("://")
        if scheme == "sc":
            # Behind "/;" there may be a token and other parameters, which are Spark's.
            place = rest.partition("/")[0]
            return cls(url, (_place(f"sc://{place}", place if _PORT.search(place) else f"{place}:{_CONNECT_PORT}"),))
        if scheme not in ("spark", "k8s") or not rest:
            raise ConfigError(
                f"--master {url}: must be local[N], local[*], spark://HOST:PORT, sc://HOST:PORT, yarn or "
                "k8s://HOST:PORT"
            )
        # A standalone cluster may have several masters, of which one leads.
        return cls(url, tuple(_place(url, one.removeprefix("https://")) for one in rest.split(",")))

    @property
    def is_local(self) -> bool:
        return self.url.startswith("local[")

    @property
    def _what(self) -> str:
        return "Connect server" if self.is_remote else "master"

    @property
    def is_remote(self) -> bool:
        """Whether it is a server of Spark Connect."""
        return self.url.startswith("sc://")

    def local_address(self) -> str | None:
        """Our own address on the route to the master; None if it cannot be found out here."""
        if self.is_local:
            return _LOOPBACK
        refused = []
        for host, port in self.places:
            try:
                with socket.create_connection((host, port), timeout=_PATIENCE_S) as way:
                    return str(way.getsockname()[0])
            except OSError as error:
                refused.append(f"{host}:{port}: {error.strerror or error}")
        if refused:
            raise UnreachableError(f"no Spark {self._what} answers at {'; '.join(refused)}")
        return None


def _place(url: str, text: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port or parts.path or parts.username:
        raise ConfigError(f"--master {url}: {text!r} is not HOST:PORT")
    return host, port


LOCAL: Final = "local[*]"
_PORT: Final = re.compile(r":\d+$")
_CONNECT_PORT: Final = 15_002
_LOOPBACK: Final = "127.0.0.1"
_TRIES: Final = 4
_PATIENCE_S: Final = 5
