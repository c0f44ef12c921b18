"""Files that several commands share: where they are, and how they are opened and written."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veilcast.authority.keyring import Keyring
from veilcast.authority.secret_file import read_secret, replace_file, write_secret
from veilcast.authority.struct_codec import encode_struct
from veilcast.cli import passphrase
from veilcast.cli.context import Context
from veilcast.crypto.derive import fingerprint
from veilcast.crypto.secret import Secret
from veilcast.errors import StorageError

if TYPE_CHECKING:
    from veilcast.authority.issuer import Authority


def format_toml(table: dict[str, Any], name: str = "") -> str:
    """Write a table as TOML: plain values first, then the tables inside. JSON's spelling of these values is TOML,
    too."""
    inner: list[tuple[str, str, dict[str, Any]]] = []
    lines = [f"\n[{name}]"] if name else []
    for key, value in table.items():
        path = f"{name}.{key}".lstrip(".")
        if isinstance(value, dict):
            inner.append((path, "", value))
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            inner += [(path, f"\n[[{path}]]\n", each) for each in value]
        else:
            lines.append(f"{key} = {json.dumps(value)}")
    text = "".join(f"{line}\n" for line in lines)
    for path, head, each in inner:
        text += head + format_toml(each) if head else format_toml(each, path)
    return text


def open_authority(context: Context, arguments: argparse.Namespace) -> tuple[Authority, Secret]:
    """Open an authority's state; returns it with the passphrase to write it. Writes a bulletin that a killed command
    left out."""
    from veilcast.authority.issuer import Authority  # Here, because every process imports this file.

    directory: Path = arguments.dir
    if not state_file(directory).exists():
        raise StorageError(f"{directory} holds no authority; make one with `veilcast authority init {directory}`")
    secret = passphrase.read_passphrase(context, str(directory), arguments.passphrase_file, directory / "passphrase")
    authority = read_secret(state_file(directory), Authority, secret)
    publish_bulletin(directory, authority)
    return authority, secret


def write_authority(context: Context, directory: Path, authority: Authority, secret: Secret) -> None:
    write_secret(state_file(directory), authority, secret, cost=context.cost, entropy=context.entropy)


def publish_bulletin(directory: Path, authority: Authority) -> Path:
    """Write the newest bulletin of the state to its file, if that has not been done; returns the path.

    The file name of a sub-authority's bulletin has its key. Otherwise the bulletin would replace the root's bulletin of
    the same number where a member copies both into one directory.
    """
    signer = "" if authority.delegation is None else f"-{fingerprint(authority.delegation.subject).hex()[:8]}"
    path = directory / "bulletins" / f"{authority.bulletins:06}{signer}.bulletin"
    if authority.bulletin is not None and not path.exists():
        make_directory(path.parent)
        replace_file(path, encode_struct(authority.bulletin), mode=0o644)
    return path


def keyring_passphrase(context: Context, arguments: argparse.Namespace) -> Secret:
    return passphrase.read_passphrase(
        context, str(arguments.keyring), arguments.passphrase_file, passphrase_file(arguments.keyring)
    )


def open_keyring(context: Context, arguments: argparse.Namespace) -> tuple[Keyring, Secret]:
    """Open an existing keyring; returns it with the passphrase to write it."""
    check_there(arguments.keyring)
    secret = keyring_passphrase(context, arguments)
    return read_secret(arguments.keyring, Keyring, secret), secret


def check_there(path: Path) -> None:
    """Raise `StorageError` if the file does not exist, before anybody is asked for its passphrase."""
    if not path.is_file():
        raise StorageError(f"cannot read {path}: there is no such file")


def check_place(path: Path, *, overwrite: bool = False, option: str | None = None) -> None:
    """Refuse a path that cannot be written, before anything else is changed. `option` is the command's option to
    overwrite."""
    try:
        if path.is_dir():
            raise StorageError(f"{path} is a directory; choose another name")
        if path.exists() and not overwrite:
            hint = "" if option is None else f", or add {option}"
            raise StorageError(f"{path} is there already; choose another name{hint}")
        if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
            raise StorageError(f"cannot write {path}: {path.parent} is not a directory we may write to")
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from error


def make_directory(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make {path}: {error.strerror}") from error


def state_file(directory: Path) -> Path:
    return directory / "authority.locked"


def asking_file(keyring: Path) -> Path:
    return keyring.with_name(keyring.name + ".asking")


def passphrase_file(path: Path) -> Path:
    return path.with_name(path.name + ".passphrase")
