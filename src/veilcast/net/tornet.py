"""Which Tor network: the public one, where nothing is said; or a private one on loopback, by the file that names its
directory authorities. Nothing that joins a private one ever talks to the public one."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from veilcast.decoding import JsonDecoder
from veilcast.errors import ConfigError, StorageError


class Rounds(NamedTuple):
    """When authorities agree: every so many seconds, with time for votes and for the signatures to spread before."""

    every_s: int
    vote_s: int
    spread_s: int


class PrivateNetwork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What everybody in it must know: the authorities, each as Tor's option DirAuthority wants it."""

    authorities: tuple[str, ...]

    def __post_init__(self) -> None:
        for line in self.authorities:
            match = AUTHORITY.fullmatch(line)
            if match is None or not ipaddress.IPv4Address(match["host"]).is_loopback:
                raise ValueError("authorities: each is a directory authority on loopback")
        if not self.authorities:
            raise ValueError("authorities: there are none")

    def options(self) -> list[str]:
        """For torrc, of everybody who joins."""
        return [
            "TestingTorNetwork 1",
            *(f"DirAuthority {line}" for line in self.authorities),
            f"V3AuthVotingInterval {ROUNDS.every_s}",
            f"V3AuthVoteDelay {ROUNDS.vote_s}",
            f"V3AuthDistDelay {ROUNDS.spread_s}",
            # On loopback circuits are made in no time, and what Tor learns to wait is too short as soon as the machine
            # has other things to do: it would give up circuits that are under way, and make others, without end.
            "LearnCircuitBuildTimeout 0",
            f"CircuitBuildTimeout {CIRCUIT_S}",
        ]


def read_network(path: Path) -> PrivateNetwork:
    try:
        return _DECODER.decode(path.read_bytes(), path)
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error


_DECODER: Final = JsonDecoder(PrivateNetwork, ConfigError, "is no file of a private Tor network")
AUTHORITY: Final = re.compile(
    r"[A-Za-z0-9]{1,19} orport=[0-9]{1,5} no-v2 v3ident=[0-9A-F]{40}"
    r" (?P<host>(?:[0-9]{1,3}\.){3}[0-9]{1,3}):[0-9]{1,5} [0-9A-F]{40}",
    re.ASCII,
)
ROUNDS: Final = Rounds(20, 4, 4)
CIRCUIT_S: Final = 20
"""A machine that is overloaded makes a circuit within this time."""
