"""The file of a tree's directory, `directory.toml`, read as a node's is (`toml_file`).

keyring = "directory.keys"                 # a membership with no topic

[tor]                                      # by which Tor it is reached; see `tor_table`

[tree]                                     # what its machine can be told: `tree/config.py` explains each key
"""

from __future__ import annotations

from pathlib import Path

from veilcast.node import toml_file
from veilcast.node.toml_file import ProcessConfig, settings_converter
from veilcast.node.tor_table import TOR_PATHS, TorTable
from veilcast.tree.config import DirectoryConfig


class DirectoryFile(ProcessConfig, frozen=True, forbid_unknown_fields=True, kw_only=True):
    listen: str | None = None
    """Without Tor only: where it takes streams."""
    tor: TorTable = TorTable()
    settings: DirectoryConfig = DirectoryConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tor.check_listen(self.listen)


def load_directory(path: Path) -> DirectoryFile:
    return toml_file.load_file(path, parse_directory)


def parse_directory(toml: bytes, path: Path) -> DirectoryFile:
    convert = settings_converter("tree", DirectoryFile, DirectoryConfig)
    return toml_file.parse_file(toml, path, DirectoryFile, convert, paths=TOR_PATHS)
