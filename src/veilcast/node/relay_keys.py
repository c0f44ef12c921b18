"""A relay's own keys, outside the machines: files for what is secret, and a line of text for what is not.

The server's keys are locked with the passphrase of its keyring: who loses them loses every join, and who steals them is
the server. The mask of the proxies is a short secret that operators of proxies tell one another, and never the
server's; it lies in a private file as a passphrase does. What everybody is told of a server is one line, which people
copy into their files, so it says what it is and notices a slip.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from veilcast.authority.vault import read_private, write_whole
from veilcast.crypto.group import Scalar
from veilcast.crypto.passphrase import Cost, lock, unlock
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError, MalformedError, PassphraseError, TamperedError
from veilcast.machine import Entropy
from veilcast.node import lines
from veilcast.relay.joining import ServerKeys, ServerPublic


def write_server_keys(path: Path, keys: ServerKeys, passphrase: Secret, *, cost: Cost, entropy: Entropy) -> None:
    locked = lock(keys.encode().reveal(), passphrase, purpose=_PURPOSE, cost=cost, entropy=entropy)
    write_whole(path, locked)


def read_server_keys(path: Path, passphrase: Secret) -> ServerKeys:
    try:
        return ServerKeys.decode(Secret(unlock(read_private(path), passphrase, purpose=_PURPOSE)))
    except TamperedError as error:
        raise TamperedError(f"{path}: {error}, or it is another kind of file") from error
    except PassphraseError as error:
        raise PassphraseError(f"{path}: {error}") from error
    except MalformedError as error:
        raise TamperedError(f"{path}: not the keys of a server") from error


def write_mask(path: Path, mask: Scalar) -> None:
    write_whole(path, lines.spell(_MASK, mask.reveal()).encode() + b"\n")


def read_mask(path: Path) -> Scalar:
    try:
        return Scalar(lines.read(_MASK, read_private(path).decode().strip()))
    except (ValueError, MalformedError) as error:
        raise TamperedError(f"{path} holds no mask; make one with `veilcast relay proxy init`") from error


def spell_public(public: ServerPublic) -> str:
    return lines.spell(_PUBLIC, public.encode())


def read_public(key: str, text: str) -> ServerPublic:
    """What stands at this key of a file; `ConfigError` if it is not what a server told."""
    try:
        return ServerPublic.decode(lines.read(_PUBLIC, text))
    except (ValueError, MalformedError) as error:
        raise ConfigError(f"{key}: not the line that `veilcast relay server init` printed; copy it whole") from error


_PURPOSE: Final = b"veilcast/relay-server"
_PUBLIC: Final = "veilcast-server-"
_MASK: Final = "veilcast-mask-"
