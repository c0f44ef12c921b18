"""The plan of the challenge: its settings, and the names and seeds of its runs.

`settings.toml` lists the settings in blocks. A setting has as many runs for training as for the test, and the labels of
the test runs are not among the files of a set. A run's seed is a hash of its name, of the size and, for the test part,
of a salt. The public set has no salt: its seeds follow from this package, so its test labels can be made by anyone who
has the package. With a salt that its maker keeps, nobody else can make the test part or its labels; the training part
stays the same.
"""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from veilcast.decoding import read_toml
from veilcast.errors import ConfigError
from veilcast.nearest import did_you_mean

Part: TypeAlias = Literal["train", "test"]


class Block(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One adversary's view of a mode, and the settings in which it looks."""

    mode: str
    view: str
    """Name of the adversary's view; several blocks of a row can have one."""
    about: str
    """The adversary and what it observes."""
    made_by: Literal["model", "machines"]
    """Machines are the real ones, in the simulator."""
    kind: str
    """Kind of the runs."""
    tables: tuple[str, ...]
    """The tables that the adversary is given."""
    hidden_roles: tuple[str, ...] = ()
    """Beginnings of the roles in the table `server` whose rows the adversary does not see."""
    asks: tuple[str, ...]
    """The roles that are asked for."""
    attacks: tuple[str, ...] = ()
    """The lab's own attackers that are compared; empty: all that apply."""
    base: dict[str, Any]
    profiles: dict[str, dict[str, Any]]
    """Parameters of each profile."""
    runs: dict[str, int]
    """Runs of each part of a setting, by size."""
    large: dict[str, Any] = {}
    """Parameters of the large size, where a setting does not give them."""
    settings: tuple[dict[str, Any], ...]


class Setting(NamedTuple):
    """One setting at one size."""

    row: str
    """Mode and profile."""
    number: int
    block: Block
    params: Mapping[str, Any]
    runs: int
    size: str

    @property
    def name(self) -> str:
        return f"{self.row}/{self.number:02d}"

    def run_names(self, part: Part) -> list[str]:
        return [f"{self.name}/{part}/{number}" for number in range(self.runs)]

    def seed_of(self, run: str, salt: bytes) -> int:
        """The seed of a run; the salt changes those of the test part."""
        secret = salt if f"/{_TEST}/" in run else b""
        named = f"veilcast challenge {version()} {self.size} {run}".encode()
        return int.from_bytes(hashlib.sha256(named + b"\0" + secret).digest()[:8], "big") >> 1


def list_settings(size: str, patterns: Sequence[str] = ()) -> list[Setting]:
    """The settings at this size, in the order of rows and numbers; only those that a pattern names, if any is given.

    Raises `ConfigError` for an unknown size, and for a pattern that names no setting.
    """
    if size not in SIZES:
        raise ConfigError(f"there is no size {size!r}; there are {' and '.join(SIZES)}{did_you_mean(size, SIZES)}")
    known = list(_settings(size))
    for pattern in patterns:
        if not any(fits(setting, pattern) for setting in known):
            rows = ", ".join(dict.fromkeys(setting.row for setting in known))
            raise ConfigError(f"no setting is called {pattern}; the rows are {rows}, and a setting is mesh-paper/00")
    return [setting for setting in known if not patterns or any(fits(setting, pattern) for pattern in patterns)]


def list_rows(settings: Iterable[Setting]) -> list[str]:
    return list(dict.fromkeys(setting.row for setting in settings))


def version() -> int:
    """The version of the challenge. Another one has other seeds."""
    found: int = _read_file()["version"]
    return found


def digest_plan(size: str) -> str:
    """A digest of all settings and of the names of all runs at this size."""
    plan = [
        (each.name, each.block.kind, each.block.tables, sorted(each.params.items()), each.runs)
        for each in list_settings(size)
    ]
    return hashlib.sha256(msgspec.json.encode((version(), size, plan))).hexdigest()


def read_packaged(name: str) -> bytes:
    """The bytes of a data file of this package; empty if the package has no such file."""
    path = resources.files(__package__) / name
    return path.read_bytes() if path.is_file() else b""


def _settings(size: str) -> Iterator[Setting]:
    numbers: dict[str, int] = {}
    rows: dict[str, list[Setting]] = {}
    for block in _blocks():
        for profile, own in block.profiles.items():
            row = f"{block.mode}-{profile}"
            for given in block.settings:
                number = numbers.get(row, 0)
                numbers[row] = number + 1
                larger = block.large if size == _LARGE else {}
                params = block.base | own | larger | given
                rows.setdefault(row, []).append(Setting(row, number, block, params, block.runs[size], size))
    for settings in rows.values():
        yield from settings


def fits(setting: Setting, pattern: str) -> bool:
    """Whether a pattern names the setting or its row."""
    return fnmatch.fnmatchcase(setting.row, pattern) or fnmatch.fnmatchcase(setting.name, pattern)


@cache
def _blocks() -> tuple[Block, ...]:
    return msgspec.convert(_read_file()["blocks"], tuple[Block, ...])


@cache
def _read_file() -> dict[str, Any]:
    return read_toml(read_packaged("settings.toml"), "settings of the challenge")


_TEST: Final = "test"
_LARGE: Final = "large"
PARTS: Final[tuple[Part, ...]] = ("train", "test")
SIZES: Final = ("small", _LARGE)
