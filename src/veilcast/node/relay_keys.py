"""A relay's own keys, outside the machines: files for what is secret, and a line of text for what is not.

The server's keys are locked with the passphrase of its keyring: who loses them loses every join, and who steals them is
the server. The mask of the proxies is a short secret that operators of proxies tell one another, and never the
server's; it lies in a private file as a passphrase does. What everybody is told of a server is one line, which people
copy into their files, so it says what it is and notices a slip.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from veilcast.authority.secret_file import read_private_file, replace_file
from veilcast.crypto.group import Scalar
from veilcast.crypto.passphrase import PassphraseCost, lock_bytes, unlock_bytes
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError, MalformedError, PassphraseError, TamperedError
from veilcast.machine import Entropy
from veilcast.node import checked_line
from veilcast.relay.enrolment import ServerKeys, ServerPublic


def write_server_keys(
    path: Path, keys: ServerKeys, passphrase: Secret, *, cost: PassphraseCost, entropy: Entropy
) -> None:
    locked = lock_bytes(keys.encode().reveal(), passphrase, purpose=_PURPOSE, cost=cost, entropy=entropy)
    replace_file(path, locked)


def read_server_keys(path: Path, passphrase: Secret) -> ServerKeys:
    try:
        return ServerKeys.decode(Secret(unlock_bytes(read_private_file(path), passphrase, purpose=_PURPOSE)))
    except TamperedError as error:
        raise TamperedError(f"{path}: {error}, or it is another kind of file") from error
    except PassphraseError as error:
        raise PassphraseError(f"{path}: {error}") from error
    except MalformedError as error:
        raise TamperedError(f"{path}: not the keys of a server") from error


def write_mask(path: Path, mask: Scalar) -> None:
    replace_file(path, checked_line.encode_line(_MASK, mask.reveal()).encode() + b"\n")


def read_mask(path: Path) -> Scalar:
    try:
        return Scalar(checked_line.decode_line(_MASK, read_private_file(path).decode().strip()))
    except (ValueError, MalformedError) as error:
        raise TamperedError(f"{path} holds no mask; make one with `veilcast relay proxy init`") from error


def encode_server_line(public: ServerPublic) -> str:
    return checked_line.encode_line(_PUBLIC, public.encode())


def decode_server_line(key: str, text: str) -> ServerPublic:
    """What stands at this key of a file; `ConfigError` if it is not what a server told."""
    try:
        return ServerPublic.decode(checked_line.decode_line(_PUBLIC, text))
    except (ValueError, MalformedError) as error:
        raise ConfigError(f"{key}: not the line that `veilcast relay server init` printed; copy it whole") from error


_PURPOSE: Final = b"veilcast/relay-server"
_PUBLIC: Final = "veilcast-server-"
_MASK: Final = "veilcast-mask-"
