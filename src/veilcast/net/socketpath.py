"""Where the control socket of a node is: what its configuration says, or `control.sock` in its state directory."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from veilcast.decoding import read_toml
from veilcast.errors import ConfigError, StorageError


def control_path(config: Path) -> Path:
    """Paths in the file are relative to it."""
    try:
        values = read_toml(config.read_bytes(), config)
    except OSError as error:
        raise StorageError(f"cannot read {config}: {error.strerror}") from error
    for key in ("control", "state"):
        if not isinstance(values.get(key, ""), str):
            raise ConfigError(f"{config}: {key} must be a path")
    return config.absolute().parent / (values.get("control") or Path(values.get("state", STATE)) / SOCKET)


STATE: Final = "state"
SOCKET: Final = "control.sock"
