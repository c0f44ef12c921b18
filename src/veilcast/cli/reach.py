"""How a command reaches the running node: by the node's configuration file, which knows the control socket."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from veilcast.errors import ConfigError


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="the node's configuration (VEILCAST_NODE, or node.toml here)"
    )


def config_of(arguments: argparse.Namespace) -> Path:
    path: Path = arguments.config or Path(os.environ.get("VEILCAST_NODE") or "node.toml")
    if not path.is_file():
        raise ConfigError(f"there is no {path}; name the node's configuration with -c FILE")
    return path
